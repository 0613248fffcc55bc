"""Checks of chapter 13."""

__all__: list[str] = []
