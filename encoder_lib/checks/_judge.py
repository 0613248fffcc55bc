"""Inside a check: run the answer, compare, name the misconception, write the report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from encoder_lib.checks._compare import Difference, apart
from encoder_lib.checks._learner import Draw, NotAttempted, Trouble, call, copied, sentence


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
    """All that is known about an answer: the function itself, the trials, fresh inputs.

    ``begun`` remembers which beginnings of forms fit the first trial, see ``begins``.
    """

    f: Callable
    trials: list[Trial]
    draw: Draw
    begun: dict = field(default_factory=dict)

    def answers(self):
        """The trials in which an answer came."""
        return [trial for trial in self.trials if not isinstance(trial.got, Trouble)]

    def ask(self, *args):
        """What the answer gives for these arguments; raises Trouble when it fails."""
        return call(self.f, *copied(args))


def judge(checker, attempt, draw, options):
    """The report on an attempt. Raises NotAttempted and Trouble, which the checker reports."""
    f = checker.adapt(attempt, draw, **options)
    trials = [run(checker, case, f, draw, i == 0) for i, case in enumerate(checker.cases)]
    if differs_when_repeated(checker, f, trials[0]):
        return checker.failed("random", RANDOM)
    evidence = Evidence(f, trials, draw)
    for note, variant in (("", checker.right), *checker.variants):
        if equals(checker, variant, trials):
            return accept(checker, evidence, note)
    return diagnose(checker, evidence)


# --- running --------------------------------------------------------------------------------------


def run(checker, case, f, draw, first):
    """One trial. A stub in the first case is a NotAttempted, later it is a Trouble."""
    args = case.make(draw)
    want, given = checker.right(*copied(args)), copied(args)
    try:
        got = copied(call(f, *given))
    except Trouble as trouble:
        got = trouble
    except NotAttempted as stub:
        if first:
            raise
        got = Trouble(f"nothing came back: {stub}")
    return Trial(case, args, want, got, changed_argument(checker, args, given))


def changed_argument(checker, args, given):
    """The name of an argument that the answer changed in place, or nothing."""
    for i, (before, after) in enumerate(zip(args, given, strict=True)):
        if apart(after, before, 0.0) is not None:
            return checker.inputs[i] if i < len(checker.inputs) else f"argument {i + 1}"
    return ""


def differs_when_repeated(checker, f, trial):
    """Whether the same arguments give another result the second time."""
    if isinstance(trial.got, Trouble):
        return False
    found = checker.apart(copied(call(f, *copied(trial.args))), trial.got)
    return found is not None and found.key != "type"  # what cannot be compared is no other result


def was_luck(checker, evidence, seconds=0.5):
    """Whether some case gives another result when it is asked again; for some time only."""
    end = time.perf_counter() + seconds
    for _ in range(checker.again):
        for trial in evidence.trials:
            if differs_when_repeated(checker, evidence.f, trial):
                return True
            if time.perf_counter() > end:
                return False
    return False


RANDOM = (
    "The same input gives another result the second time: is dropout always on, even in evaluation?"
)


# --- comparing ------------------------------------------------------------------------------------


def equals(checker, form, trials):
    """Whether ``form`` gives what came, in every trial; both may fail in the same trial."""
    for trial in trials:
        try:
            would = call(form, *copied(trial.args))
        except (Trouble, NotAttempted):
            would = None
        if isinstance(trial.got, Trouble):
            if would is not None:
                return False
        elif would is None or clearly_apart(checker, trial.got, would):
            return False
        elif checker.apart(trial.got, would) is not None:
            return False
    return True


def clearly_apart(checker, got, would):
    """Whether the first numbers of two results differ by far: a short cut."""
    a, b = (r[0] if isinstance(r, tuple) and r else r for r in (got, would))
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() for t in (a, b)):
        return False
    apart_by = abs(a.reshape(-1)[0].item() - b.reshape(-1)[0].item())
    far = 0.01 + 10 * checker.tolerance
    return apart_by > far and apart_by > far * b.abs().max().item()  # False where NaN or infinite


def fits(checker, misconception, evidence, comparable):
    """Whether a misconception explains all that came."""
    if misconception.signs is not None:
        try:
            if misconception.signs(evidence):
                return True
        except Exception:  # an answer of a strange kind shows no sign of this idea
            pass
    if not comparable:
        return False
    return any(begins(checker, form, evidence) and equals(checker, form, evidence.trials)
               for form in misconception.forms)  # fmt: skip


def begins(checker, form, evidence):
    """Whether what counts of a form in the first trial fits there; asked once, as many share it.

    A checker may say what counts: ``beginning(form)`` gives (a key, a form for the first trial).
    """
    if not hasattr(checker, "beginning"):
        return True
    key, start = checker.beginning(form)
    if key not in evidence.begun:
        evidence.begun[key] = equals(checker, start, evidence.trials[:1])
    return evidence.begun[key]


def with_graph(checker, function, trial):
    """(inputs at ``checker.gradient``, results as a list) of a run that keeps its graph."""
    args = copied(trial.args)
    leaves = [args[i].requires_grad_() for i in checker.gradient]
    with torch.enable_grad():  # an answer may have switched it off for good
        results = call(function, *args)
    return leaves, list(results) if isinstance(results, tuple | list) else [results]


def has_graph(result, leaves=()):
    """Whether a part of a result can pass a gradient on to the leaves."""
    is_input = any(result is leaf for leaf in leaves)
    return is_input or isinstance(result, torch.Tensor) and result.grad_fn is not None


def gradients(leaves, results):
    """The gradients at the leaves for a fixed upstream gradient of each result."""
    upstream = torch.Generator().manual_seed(0)
    total = sum((r * torch.randn(r.shape, generator=upstream)).sum() for r in results)
    return call(torch.autograd.grad, total, leaves, allow_unused=True, materialize_grads=True)


def gradient_difference(checker, f, trial):
    """The difference of the answer's gradients from the right ones, if any; or None.

    Further parts of a result, such as weights to look at, may come without a graph.
    """
    (ideal, wanted), (leaves, results) = (with_graph(checker, g, trial) for g in (checker.right, f))
    pairs = [(a, b) for a, b in zip(wanted, results, strict=True) if has_graph(a, ideal)]
    if not pairs:
        return None
    first, pairs = pairs[0][1], [(a, b) for a, b in pairs if has_graph(b, leaves)]
    right = gradients(ideal, [a for a, _ in pairs]) if pairs else None
    got = gradients(leaves, [b for _, b in pairs]) if has_graph(first, leaves) else None
    if got is None:
        return Difference("gradient", "No gradient reaches the inputs: was a result detached, or "
                          "turned into plain numbers")  # fmt: skip
    named = [f"the gradient of {checker.inputs[i]}" for i in checker.gradient]
    return apart(got, right, 10 * checker.tolerance, "the gradients", names=named)


NAN_BEHIND = (": a NaN or an infinity was computed on the way and hidden afterwards, and the way "
              "back leads through it.")  # fmt: skip

# --- reporting ------------------------------------------------------------------------------------


def diagnose(checker, evidence):
    """The report on a wrong answer: the first misconception that fits, or what was seen."""
    trial, found = first_difference(checker, evidence.trials)
    comparable = bool(evidence.answers()) and found.key != "type"
    for misconception in checker.misconceptions:
        if fits(checker, misconception, evidence, comparable):
            return checker.failed(misconception.key, misconception.diagnosis, trial, found,
                                  misconception.reread)  # fmt: skip
    return checker.failed(found.key, sentence(found.text), trial, found)


def first_difference(checker, trials):
    """(trial, difference) to show: numbers that differ rather than an error."""
    seen = [(t, checker.apart(t.got, t.want)) for t in trials if not isinstance(t.got, Trouble)]
    seen = [(trial, found) for trial, found in seen if found is not None]
    if seen:
        return seen[0]
    trial = next(t for t in trials if isinstance(t.got, Trouble))
    return trial, Difference(trial.got.key, trial.got.text)


def accept(checker, evidence, note):
    """The report on an answer whose numbers are right: inputs unchanged, gradients right?"""
    changed = next((trial.changed for trial in evidence.trials if trial.changed), "")
    if changed:
        return checker.failed("mutates", f"Your code changed {changed} in place: whoever called it "
                              "finds other numbers there afterwards.")  # fmt: skip
    if was_luck(checker, evidence):
        return checker.failed("random", RANDOM)
    checked = [case.name for case in checker.cases]
    checked.append("inputs unchanged, same result when repeated")
    if checker.gradient and not note:
        for trial in evidence.trials:
            found = gradient_difference(checker, evidence.f, trial)
            if found is not None:
                right = "" if found.key == "gradient" else "The result is right; "
                more = NAN_BEHIND if found.key == "nan" else "."
                return checker.failed("gradient", f"{right}{found.text}{more}", trial, found)
        checked.append("gradients equal to the reference's")
    notes = ((note,) if note else ()) + tuple(checker.notes(evidence))
    return checker.passed(tuple(checked), note, notes)
