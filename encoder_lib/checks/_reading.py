"""Checks of chapter 12."""

__all__: list[str] = []
