"""The check of one exercise: run the answer on fresh inputs, compare, name the misconception."""

from collections.abc import Callable
from dataclasses import dataclass, field

from encoder_lib.checks._compare import apart
from encoder_lib.checks._judge import Case, Evidence, Trial, judge
from encoder_lib.checks._learner import (
    NotAttempted,
    Trouble,
    as_function,
    as_it_was,
    isolated,
    kind,
    sentence,
)
from encoder_lib.checks.report import FAILED, NOT_ATTEMPTED, PASSED, Misconception, Report

__all__ = ["Case", "Checker", "Evidence", "Trial"]


@dataclass(frozen=True)
class Checker:
    """The check of one exercise; call it with the answer, it returns a Report and never raises.

    Args:
        name: as in ``checks.name(answer)``.
        number: of the exercise, "3.5".
        component: the part of the encoder it is about.
        right: function of a case's arguments, what a right answer gives.
        cases: inputs that tell the misconceptions apart, drawn afresh in every call.
        misconceptions: in the order in which they are tried; the first that fits is named.
        reread: heading of the chapter to reread.
        inputs, outputs: names of the arguments and of the parts of the result.
        variants: (note, function) of right answers of another form; accepted, and named.
        gradient: numbers of the arguments whose gradients are compared, too.
        adapt: (attempt, draw, **options) -> function of a case's arguments.
        notes: function of the evidence of a right answer, gives sentences.
        tolerance: relative to the largest entry where that exceeds 1.
        dtype: whether the dtype of the result counts.
        again: how often a right answer runs again in every case, where it may have been luck.
    """

    name: str
    number: str
    component: str
    right: Callable
    cases: tuple[Case, ...]
    misconceptions: tuple[Misconception, ...]
    reread: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    variants: tuple[tuple[str, Callable], ...] = ()
    gradient: tuple[int, ...] = ()
    adapt: Callable = field(default=lambda attempt, draw: as_function(attempt))
    notes: Callable[[Evidence], tuple[str, ...]] = lambda evidence: ()
    tolerance: float = 1e-5
    dtype: bool = True
    again: int = 0

    def __call__(self, attempt=None, *, seed=None, **options) -> Report:
        """Check an answer. ``seed`` repeats the same inputs; returns a Report, never raises."""
        try:
            with isolated(seed) as draw, as_it_was(attempt):
                return judge(self, attempt, draw, options)
        except NotAttempted as stub:
            notes = (str(stub),) if str(stub) else ()
            return self.report(NOT_ATTEMPTED, diagnosis=NOT_ATTEMPTED, notes=notes)
        except Trouble as trouble:
            return self.failed(trouble.key, sentence(trouble.text))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever was handed in, the learner gets a report
            text = f"The check cannot work with this answer, {kind(attempt)}: it led to a "
            text += f"{type(error).__name__}."
            return self.failed("type", text)

    def as_function(self):
        """The check as a function, whose help says what is checked."""

        def check(attempt=None, *, seed=None, **options):
            return self(attempt, seed=seed, **options)

        check.__name__ = check.__qualname__ = self.name
        check.__module__ = "encoder_lib.checks"
        what = "\n".join(f"    {case.name}" for case in self.cases)
        check.__doc__ = (f"Check an answer to exercise {self.number} ({self.component}).\n\n"
                         f"Returns a Report; never raises. Checked:\n\n{what}\n")  # fmt: skip
        return check

    def apart(self, got, want):
        """The first difference between two results, or None."""
        return apart(got, want, self.tolerance, "the result", self.dtype, self.outputs)

    def failed(self, key, diagnosis, trial=None, found=None, reread=""):
        """The report on a wrong answer."""
        chapter, heading = int(self.number.split(".")[0]), reread or self.reread
        return self.report(
            FAILED, diagnosis=diagnosis, misconception=key, where=trial.case.name if trial else "",
            expected=found.expected if found else "", got=found.got if found else "",
            reread=f'chapter {chapter:02d}, "{heading}"',
        )  # fmt: skip

    def passed(self, checked, diagnosis, notes):
        """The report on a right answer."""
        return self.report(PASSED, checked=checked, diagnosis=diagnosis, notes=notes)

    def report(self, status, **fields):
        """A report on this exercise."""
        return Report(self.number, self.name, status, **fields)
