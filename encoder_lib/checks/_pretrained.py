"""Checks of chapter 11."""

__all__: list[str] = []
