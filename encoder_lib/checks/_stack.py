"""Checks of chapter 09."""

__all__: list[str] = []
