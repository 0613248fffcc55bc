"""Checks of chapter 10."""

__all__: list[str] = []
