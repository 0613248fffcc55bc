"""Checks of chapter 04."""

__all__: list[str] = []
