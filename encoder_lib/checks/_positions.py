"""Checks of chapter 02."""

__all__: list[str] = []
