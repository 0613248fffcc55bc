"""One check for each exercise of the book that has code to hand in.

``checks.NAME(answer)`` runs the answer on fresh random inputs and returns a report, which prints
itself: ``report.passed``, ``report.status``, ``report.misconception`` (a key), ``report.diagnosis``
(a sentence). A check never raises, whatever was handed in; ``seed=...`` repeats its inputs. All
checks are public, there are no hidden ones. ``checks.answer("5.1", value)`` checks a number or a
word. ``checks.EXERCISES`` holds the checks by name, ``checks.ANSWERS`` the digests of the answers,
``encoder_lib.checks.report`` the class of the reports.
"""

# ruff: noqa: F403
from encoder_lib.checks._answers import answer
from encoder_lib.checks._answers import answers as _answers_by_number
from encoder_lib.checks._attention import *
from encoder_lib.checks._checker import Checker as _Checker
from encoder_lib.checks._clinic import *
from encoder_lib.checks._embedding import *
from encoder_lib.checks._feed_forward import *
from encoder_lib.checks._heads import *
from encoder_lib.checks._layers import *
from encoder_lib.checks._masks import *
from encoder_lib.checks._norms import *
from encoder_lib.checks._positions import *
from encoder_lib.checks._pretrained import *
from encoder_lib.checks._reading import *
from encoder_lib.checks._stack import *
from encoder_lib.checks._start import *
from encoder_lib.checks._training import *

_FOUND = [value for value in dict(globals()).values() if isinstance(value, _Checker)]
EXERCISES = {
    checker.name: checker
    for checker in sorted(_FOUND, key=lambda c: [int(part) for part in c.number.split(".")])
}
globals().update({name: checker.as_function() for name, checker in EXERCISES.items()})

ANSWERS = _answers_by_number()

__all__ = ["ANSWERS", "EXERCISES", "answer", *EXERCISES]
