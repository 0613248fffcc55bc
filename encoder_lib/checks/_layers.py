"""Checks of chapter 08."""

__all__: list[str] = []
