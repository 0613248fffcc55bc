"""Right, unusual and wrong answers to the exercises, written as learners write them.

Every module here holds those of one chapter. ``@right("name")`` marks an answer that the check must
accept, ``@right("name", note="interleaved")`` one that it must accept and name; ``@wrong("name",
"key")`` marks one that it must reject with the misconception ``key``. None of them uses the checks'
own wrong forms: a check that knew only its own words would be no check.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field


@dataclass
class Answer:
    """One answer to the exercise ``check``; ``key`` is the misconception, "" for a right answer."""

    check: str
    attempt: object
    key: str = ""
    note: str = ""
    options: dict = field(default_factory=dict)

    @property
    def label(self):
        """How the test of this answer is called."""
        return f"{self.check}-{self.key or 'right'}-{getattr(self.attempt, '__name__', 'answer')}"


ANSWERS: list[Answer] = []


def right(check, note="", **options):
    """Mark a right answer; options are handed to the check."""

    def mark(attempt):
        ANSWERS.append(Answer(check, attempt, note=note, options=options))
        return attempt

    return mark


def wrong(check, key, **options):
    """Mark an answer that holds the misconception ``key``."""

    def mark(attempt):
        ANSWERS.append(Answer(check, attempt, key=key, options=options))
        return attempt

    return mark


def collected():
    """All answers of all modules of this package."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return ANSWERS
