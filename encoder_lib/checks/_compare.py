"""Comparing what came with what is right: the first difference, as words and as one small row."""

import math
import numbers
from dataclasses import dataclass

import torch

from encoder_lib.checks._learner import kind

SHOWN = 6


@dataclass(frozen=True)
class Difference:
    """Where and how a value differs; ``key`` is one of type, length, shape, dtype, nan, value."""

    key: str
    text: str
    expected: str = ""
    got: str = ""


def row_text(row):
    """At most six numbers of a row, (n,), in brackets."""
    values = row.tolist()
    words = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in values[:SHOWN]]
    return f"[{', '.join(words)}{', ...' if len(values) > SHOWN else ''}]"


def has(name):
    """The verb that goes with the name of a part: the weights have, the output has."""
    noun = name.split(" of ")[0].split(" after ")[0]
    return "have" if noun.endswith("s") and not noun.endswith("ss") else "has"


def rows_apart(got, want, distance):
    """(index of the worst row as words, expected row, got row); tensors of one shape."""
    if want.dim() == 0:
        return "", str(round(want.item(), 6)), str(round(got.item(), 6))
    worst = int(distance.amax(dim=-1).argmax()) if want.dim() > 1 else 0
    index = []
    for size in reversed(want.shape[:-1]):
        worst, rest = divmod(worst, size)
        index.insert(0, rest)
    start = max(0, int(distance[tuple(index)].argmax()) - SHOWN + 1) if want.size(-1) > SHOWN else 0
    words = f"row {tuple(index)}" if len(index) > 1 else f"row {index[0]}" if index else "the row"
    words += f" from entry {start} on" if start else ""
    return words, row_text(want[tuple(index)][start:]), row_text(got[tuple(index)][start:])


def tensors_apart(got, want, tolerance, name, dtype):
    """The difference of two tensors, or None; NaN equals NaN."""
    if not isinstance(got, torch.Tensor):
        return Difference("type", f"{name} should be a tensor; what came is {kind(got)}")
    if got.shape != want.shape:
        return Difference("shape", f"{name} {has(name)} another shape than it should",
                          str(tuple(want.shape)), str(tuple(got.shape)))  # fmt: skip
    if got.dtype != want.dtype if dtype else got.is_complex() != want.is_complex():
        return Difference("dtype", f"{name} {has(name)} another dtype than it should",
                          str(want.dtype), str(got.dtype))  # fmt: skip
    if want.numel() == 0:
        return None
    a, b = got.detach().double(), want.detach().double()
    distance = (a - b).abs()
    distance[a.isnan() & b.isnan() | (a == b)] = 0.0  # equal infinities differ by NaN
    finite = b[b.isfinite()].abs()
    bound = tolerance * max(1.0, finite.max().item() if finite.numel() else 1.0)
    wrong = ~(distance <= bound)
    if not wrong.any():
        return None
    where, expected, shown = rows_apart(got.detach(), want.detach(), distance.nan_to_num(math.inf))
    key = "nan" if (a.isnan() & ~b.isnan()).any() else "value"
    what = f"{has(name)} NaN" if key == "nan" else f"{has(name)} other numbers than it should"
    return Difference(key, f"{name} {what}{f', {where}' if where else ''}", expected, shown)


def plain(value):
    """A tensor of one element or a NumPy number as a Python number; other values as they are."""
    single = isinstance(value, torch.Tensor) and value.numel() == 1
    single = single or type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1
    if single:
        return value.item()
    if isinstance(value, numbers.Real) and type(value) not in (bool, int, float):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def numbers_apart(got, want, tolerance, name):
    """The difference of two plain numbers, truth values or texts, or None."""
    got = plain(got)
    if isinstance(want, bool) or isinstance(got, bool) or isinstance(want, str):
        same, alike = got == want, type(got) is type(want)
    else:
        alike = isinstance(got, int | float)
        same = alike and (got == want or got != got and want != want or math.isclose(
            got, want, rel_tol=tolerance, abs_tol=tolerance))  # fmt: skip
    if not alike:
        return Difference("type", f"{name} should be {kind(want)}; what came is {kind(got)}")
    shown = repr(want), repr(got)[:80]
    return None if same else Difference("value", f"{name} is another one than expected", *shown)


def groups_apart(got, want, tolerance, name, dtype, names):
    """The first difference of two tuples, lists or dicts, or None."""
    alike = dict if isinstance(want, dict) else (tuple, list)
    if not isinstance(got, alike):
        return Difference("type", f"{name} should be {kind(want)}; what came is {kind(got)}")
    if len(got) != len(want):
        return Difference("length", f"{name} should hold {len(want)} things, but {len(got)} came")
    if isinstance(want, dict):
        if got.keys() != want.keys():
            shown = str(list(want)), str(list(got))[:200]
            return Difference("type", f"{name} has other keys", *shown)
        pairs = [(f"{name}[{key!r}]", got[key], want[key]) for key in want]
    else:
        named = names[: len(want)] or [f"{name}[{i}]" for i in range(len(want))]
        pairs = list(zip(named, got, want, strict=True))
    for inner, a, b in pairs:
        found = apart(a, b, tolerance, inner, dtype)
        if found is not None:
            return found
    return None


def apart(got, want, tolerance=1e-5, name="the result", dtype=True, names=()):
    """The first difference between what came and what is right, or None.

    Tensors must agree in shape, dtype and values, to ``tolerance`` times the largest entry where
    that exceeds 1; tuples and lists are taken for each other; numbers may come as tensors of one
    element. ``names`` names the parts of a tuple.
    """
    if want is None:
        return None if got is None else Difference("type", f"{name} should be None")
    if isinstance(want, torch.Tensor):
        return tensors_apart(got, want, tolerance, name, dtype)
    if isinstance(want, tuple | list | dict):
        return groups_apart(got, want, tolerance, name, dtype, names)
    return numbers_apart(got, want, tolerance, name)
