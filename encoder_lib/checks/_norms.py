"""Checks of chapter 07."""

__all__: list[str] = []
