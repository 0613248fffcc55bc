"""Measurements for the book's ledger of claims, ``book/claims.md``.

A notebook calls ``record`` where it has measured something. The line it prints is stored with the
notebook, and the ledger is made from these lines: no number in it is typed.
"""

from __future__ import annotations

import math
import re

__all__ = ["record", "shown"]

ROUNDING = 1e-3  # a float bounded by 0 and at most this is a rounding error, its digits chance
ID = re.compile(r"[A-Z]\d+[a-z]?")


def shown(value: float) -> str:
    """A number as the ledger shows it: an int in full, a float with two significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0.0"
    size = math.floor(math.log10(abs(float(f"{value:.1e}"))))
    if size < -3 or size > 5:
        return f"{value:.1e}"
    return f"{round(value, 1 - size):,.{max(0, 1 - size)}f}"


def _number(name: str, number: object) -> float:
    """``number`` as int or float; one-element tensors and arrays are converted."""
    number = number.item() if hasattr(number, "item") else number
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{name} must be a number, got {number!r}")
    if not math.isfinite(number):
        raise AssertionError(f"{name} must be finite, got {number}")
    return number


def record(claim: str, what: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Print ``value`` as one line of the ledger, if it lies within the bound of the verdict.

    ``claim`` is an id such as ``B22`` and ``what`` says what was measured, in one line without
    ``" = "`` and ``" < "``. A float bounded by 0 and at most 0.001 is shown as "< high".

    Raises: AssertionError naming claim, value and bound when the bound does not hold.
    """
    if not ID.fullmatch(claim):
        raise ValueError(f"claim must be an id such as B22, got {claim!r}")
    if not what.strip() or re.search(r"\n| [=<] |\(bound ", what):
        raise ValueError(f"what must be one line without ' = ' and ' < ', got {what!r}")
    value = _number(f"claim {claim}: {what}", value)
    bound = f"(bound {low:g} to {high:g})"
    if isinstance(value, int):
        bound = f"(bound {low:,} to {high:,})"
    if not (low <= value <= high):
        raise AssertionError(f"claim {claim}: {what} is {value:g}, outside its bound {bound[7:-1]}")
    rounding = isinstance(value, float) and low == 0 < high <= ROUNDING
    said = f"< {high:g}" if rounding else f"= {shown(value)}"
    print(f"claim {claim} · {what} {said}{' ' + unit if unit else ''} {bound}")
