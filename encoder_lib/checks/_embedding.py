"""Checks of chapter 01."""

__all__: list[str] = []
