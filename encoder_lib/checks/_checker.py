"""The check of one exercise: run the answer on fresh inputs, compare, name the misconception."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from encoder_lib.checks._compare import Difference, apart
from encoder_lib.checks._learner import (
    Draw, NotAttempted, Trouble, as_function, call, copied, isolated, kind,
)  # fmt: skip
from encoder_lib.checks._report import FAILED, NOT_ATTEMPTED, PASSED, Misconception, Report


@dataclass(frozen=True)
class Case:
    """One kind of input: what it shows, in words, and how to draw it: make(draw) -> arguments."""

    name: str
    make: Callable[[Draw], tuple]


@dataclass
class Trial:
    """One case, run: the arguments, what is right, and what came (a value or a Trouble)."""

    case: Case
    args: tuple
    want: object
    got: object
    changed: str = ""


@dataclass
class Evidence:
    """All that is known about an answer: the function itself, the trials, fresh inputs."""

    f: Callable
    trials: list[Trial]
    draw: Draw

    def answers(self):
        """The trials in which an answer came."""
        return [trial for trial in self.trials if not isinstance(trial.got, Trouble)]

    def ask(self, *args):
        """What the answer gives for these arguments; raises Trouble when it fails."""
        return call(self.f, *copied(args))


def differentiable(result, came):
    """Whether a result has a gradient to compare, and the answer returned it, too."""
    return came is not None and isinstance(result, torch.Tensor) and result.is_floating_point()


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

    def __call__(self, attempt=None, *, seed=None, **options) -> Report:
        """Check an answer. ``seed`` repeats the same inputs; returns a Report, never raises."""
        try:
            with isolated(seed) as draw:
                return self.check(attempt, draw, options)
        except NotAttempted as stub:
            notes = (str(stub),) if str(stub) else ()
            return self.report(NOT_ATTEMPTED, diagnosis=NOT_ATTEMPTED, notes=notes)
        except Trouble as trouble:
            return self.failed(trouble.key, trouble.text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever was handed in, the learner gets a report
            text = f"the check cannot work with what came: {kind(attempt)} ({type(error).__name__})"
            return self.failed("type", text)

    def check(self, attempt, draw, options):
        """The report on an attempt; raises NotAttempted, Trouble."""
        f = self.adapt(attempt, draw, **options)
        trials = [self.run(case, f, draw, first=i == 0) for i, case in enumerate(self.cases)]
        evidence = Evidence(f, trials, draw)
        repeated = self.repeat(f, trials[0])
        if repeated is not None:
            return repeated
        for note, variant in (("", self.right), *self.variants):
            if self.equals(variant, trials):
                return self.accept(evidence, note)
        return self.diagnose(evidence)

    # --- running ----------------------------------------------------------------------------------

    def run(self, case, f, draw, first):
        """One trial. A stub in the first case is a NotAttempted, later it is a Trouble."""
        args = case.make(draw)
        want, given = self.right(*copied(args)), copied(args)
        try:
            got = copied(call(f, *given))
        except Trouble as trouble:
            got = trouble
        except NotAttempted as stub:
            if first:
                raise
            got = Trouble(f"nothing came back: {stub}")
        return Trial(case, args, want, got, self.changed_argument(args, given))

    def changed_argument(self, args, given):
        """The name of an argument that the answer changed in place, or nothing."""
        for i, (before, after) in enumerate(zip(args, given, strict=True)):
            if apart(after, before, 0.0) is not None:
                return self.inputs[i] if i < len(self.inputs) else f"argument {i + 1}"
        return ""

    def repeat(self, f, trial):
        """A failed report when the same input gives another result the second time, else None."""
        if isinstance(trial.got, Trouble):
            return None
        again = copied(call(f, *copied(trial.args)))
        if self.apart(again, trial.got) is None:
            return None
        return self.failed("random", "the same input gives another result the second time: is "
                           "dropout always on, even in evaluation?")  # fmt: skip

    # --- comparing --------------------------------------------------------------------------------

    def apart(self, got, want):
        """The first difference, or None."""
        return apart(got, want, self.tolerance, "the result", self.dtype, self.outputs)

    def equals(self, form, trials):
        """Whether ``form`` gives what came, in every trial; both may fail in the same trial."""
        for trial in trials:
            try:
                would = call(form, *copied(trial.args))
            except (Trouble, NotAttempted):
                would = None
            if isinstance(trial.got, Trouble):
                if would is not None:
                    return False
            elif would is None or self.apart(trial.got, would) is not None:
                return False
        return True

    # --- reporting --------------------------------------------------------------------------------

    def diagnose(self, evidence):
        """The report on a wrong answer: the first misconception that fits, or what was seen."""
        trial, found = self.first_difference(evidence.trials)
        comparable = bool(evidence.answers()) and found.key != "type"
        for misconception in self.misconceptions:
            if self.fits(misconception, evidence, comparable):
                return self.failed(misconception.key, misconception.diagnosis, trial, found,
                                   misconception.reread)  # fmt: skip
        return self.failed(found.key, f"{found.text}.", trial, found)

    def first_difference(self, trials):
        """(trial, difference) to show: numbers that differ rather than an error."""
        seen = [(t, self.apart(t.got, t.want)) for t in trials if not isinstance(t.got, Trouble)]
        seen = [(trial, found) for trial, found in seen if found is not None]
        if seen:
            return seen[0]
        trial = next(t for t in trials if isinstance(t.got, Trouble))
        return trial, Difference(trial.got.key, trial.got.text)

    def fits(self, misconception, evidence, comparable):
        """Whether a misconception explains all that came."""
        if misconception.signs is not None:
            try:
                if misconception.signs(evidence):
                    return True
            except Exception:  # an answer of a strange kind shows no sign of this idea
                pass
        if not comparable:
            return False
        return any(self.equals(form, evidence.trials) for form in misconception.forms)

    def accept(self, evidence, note):
        """The report on an answer whose numbers are right: inputs unchanged, gradients right?"""
        changed = next((t.changed for t in evidence.trials if t.changed), "")
        if changed:
            return self.failed("mutates", f"your function changed {changed} in place: whoever called "
                               "it finds other numbers there afterwards.")  # fmt: skip
        checked = [*(case.name for case in self.cases), "inputs unchanged, same result when repeated"]
        if self.gradient and not note:
            for trial in evidence.trials:
                found = self.gradient_difference(evidence.f, trial)
                if found is not None:
                    return self.failed("gradient", f"{found.text}.", trial, found)
            checked.append("gradients equal to the reference's")
        notes = ((note,) if note else ()) + tuple(self.notes(evidence))
        return self.report(PASSED, diagnosis=note, checked=tuple(checked), notes=notes)

    def gradient_difference(self, f, trial):
        """The difference of the gradients for one random upstream gradient, or None."""
        grads = []
        for function in (f, self.right):
            args = copied(trial.args)
            leaves = [args[i].requires_grad_() for i in self.gradient]
            results = call(function, *args)
            results = list(results) if isinstance(results, tuple | list) else [results]
            given = trial.got if isinstance(trial.got, tuple | list) else [trial.got]
            results = [r for r, came in zip(results, given, strict=True) if differentiable(r, came)]
            if not any(r.requires_grad for r in results):
                return Difference("gradient", "no gradient reaches the inputs: was a result turned "
                                  "into plain numbers, or detached")  # fmt: skip
            weights = torch.Generator().manual_seed(0)
            total = sum((r * torch.randn(r.shape, generator=weights)).sum() for r in results)
            grads.append(call(torch.autograd.grad, total, leaves, allow_unused=True,
                              materialize_grads=True))  # fmt: skip
        named = [f"the gradient of {self.inputs[i]}" for i in self.gradient]
        return apart(grads[0], grads[1], 10 * self.tolerance, "the gradients", names=named)

    def failed(self, key, diagnosis, trial=None, found=None, reread=""):
        """A report on a wrong answer."""
        return self.report(
            FAILED, diagnosis=diagnosis, misconception=key, where=trial.case.name if trial else "",
            expected=found.expected if found else "", got=found.got if found else "",
            reread=self.place_of(reread or self.reread),
        )  # fmt: skip

    def place_of(self, heading):
        """``chapter 03, "Heading"``."""
        return f'chapter {int(self.number.split(".")[0]):02d}, "{heading}"'

    def report(self, status, **fields):
        """A report on this exercise."""
        return Report(self.number, self.name, status, **fields)
