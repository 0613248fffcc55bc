"""Checks of chapter 00."""

__all__: list[str] = []
