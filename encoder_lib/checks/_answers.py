"""Checked answers: numbers and words, compared by digest, so that nobody reads them by accident.

``answers/NN.toml`` holds for every exercise of a chapter the digest of the right answer and of
typical wrong ones, each with a diagnosis. A digest hides an answer from the eye, not from somebody
who tries numbers.
"""

import functools
import hashlib
import math
import tomllib
from importlib import resources

import torch

from encoder_lib.checks._learner import is_stub, kind
from encoder_lib.checks.report import FAILED, NOT_ATTEMPTED, PASSED, Report


def canonical(value, digits):
    """An answer as text: whole numbers and words exactly, other numbers to ``digits`` digits."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return " ".join(canonical(part, digits) for part in value)
    if isinstance(value, str):
        return " ".join(value.lower().split())
    if isinstance(value, bool) or digits == 0 and isinstance(value, int):
        return str(value).lower()
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if digits == 0:
        return str(int(number)) if number == int(number) else str(number)
    return f"{number:.{digits}g}" if number else "0"


def digest(number, value, digits=0):
    """The digest of an answer to exercise ``number``; digits as in ``canonical``; returns a str."""
    return hashlib.sha256(f"{number}|{canonical(value, digits)}".encode()).hexdigest()[:16]


@functools.cache
def answers():
    """``{number: entry}`` of all checked answers: name, asks, digits, right, wrong, reread."""
    folder, found = resources.files("encoder_lib.checks").joinpath("answers"), {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found |= tomllib.loads(file.read_text("utf-8"))
    return found


def near(value, digits):
    """The value, and for a rounded number also its neighbours in the last digit."""
    if digits == 0 or not isinstance(value, int | float) or isinstance(value, bool) or not value:
        return [value]
    if not math.isfinite(value):
        return [value]
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return [value, value + unit, value - unit]


def judged(number, entry, value):
    """The report on an answer that is there; may raise for values that are no answer at all."""
    digits = entry.get("digits", 0)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    found = [digest(number, v, digits) for v in near(value, digits)]
    name, reread = entry["name"], f'chapter {int(number.split(".")[0]):02d}, "{entry["reread"]}"'
    if entry["right"] in found:
        return Report(number, name, PASSED, checked=(entry["asks"],))
    for wrong in entry.get("wrong", []):
        if wrong["digest"] in found:
            return Report(number, name, FAILED, wrong["diagnosis"], wrong["key"], reread=reread)
    text = f"This is not it. Asked for: {entry['asks']}."
    return Report(number, name, FAILED, text, "value", got=repr(value)[:80], reread=reread)


def answer(number, value=None) -> Report:
    """Check the answer to a question with one right answer, a number or a word.

    Returns: a Report, also when the exercise or the kind of value is unknown; never raises.
    """
    try:
        entry = answers()[number]
        if is_stub(value):
            return Report(number, entry["name"], NOT_ATTEMPTED, NOT_ATTEMPTED)
        return judged(number, entry, value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        known = isinstance(number, str) and number in answers()
        text = f"This answer is {kind(value)}; a number or a word is wanted."
        if not known:
            text = f"No exercise of this number has a checked answer; these have: {[*answers()]}."
        return Report(number if known else "?", "answer", FAILED, text, "type")
