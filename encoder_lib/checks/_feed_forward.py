"""Checks of chapter 06."""

__all__: list[str] = []
