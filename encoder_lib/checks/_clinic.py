"""Checks of chapter 13: tests that the learner writes, tried on healthy and on sick models."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import NotAttempted, answer, as_function
from encoder_lib.checks._report import Misconception

__all__ = ["finds_wrong_scale", "padding_invariant", "texts_do_not_leak"]

D = 8


# --- running a test -------------------------------------------------------------------------------


class Verdicts:
    """A learner's test as f(patient, ...) -> True for healthy, False for sick.

    An AssertionError is a False. A test that returns nothing for a healthy patient and raises for
    a sick one is as good. ``seen`` holds what patients were asked, ``left`` what the test changed.
    """

    def __init__(self, attempt, build, sick):
        self.attempt = as_function(attempt).args[0]  # refuses stubs; the bare function inside
        self.build, self.sick = build, sick
        self.raised, self.seen, self.left = False, [], set()

    def guarded(self, *args):
        """The attempt, whose AssertionErrors are False."""
        self.raised = False
        try:
            return self.attempt(*args)
        except AssertionError:
            self.raised = True
            return False

    def __call__(self, kind, *args):
        """The verdict on one patient; raises NotAttempted when a sick one gets nothing, too."""
        try:
            return self.ask(kind, *args)
        except NotAttempted:
            if not self.raises_for_sick(*args):
                raise
            return True

    def raises_for_sick(self, *args):
        """Whether the test raises an AssertionError for a patient that is clearly sick."""
        self.ask(self.sick, *args)
        return self.raised

    def ask(self, kind, *args):
        """What the test says about one patient; a tensor of one element counts as its value."""
        patient, args, after = self.build(kind, *args)
        value = answer(self.guarded, patient, *args)
        self.left |= after(self)
        return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


LUCK = (
    "The same model gets another verdict at the next call: your test leaves it to luck. "
    "Does it draw too few numbers, or is dropout on?"
)


class VerdictChecker(Checker):
    """The check of a test: its verdict may not depend on luck."""

    def failed(self, key, diagnosis, *args, **kwargs):
        """The report on a wrong test; what another answer calls random is luck here."""
        if key == "random":
            key, diagnosis = "luck", LUCK
        return super().failed(key, diagnosis, *args, **kwargs)


def leaves_to_luck(evidence):
    """Some model gets another verdict when it is asked for again."""
    return any(evidence.ask(*t.args) != t.got for t in evidence.answers() for _ in range(8))


def verdicts(healthy, wrong=(), always=None):
    """A form: the verdicts of a right test, turned round for the kinds in ``wrong``."""
    if always is not None:
        return lambda kind, *args: always
    return lambda kind, *args: (kind in healthy) != (kind in wrong)


def usual(healthy, sick):
    """The misconceptions that a test of anything may hold."""
    return (
        Misconception("passes_everything", "Your test finds nothing, not even in the sickest "
                      "model. Does it change what must not matter, and compare numbers, not "
                      "shapes?",
                      verdicts(healthy, always=True)),
        Misconception("fails_everything", "Your test finds every model sick, healthy ones too. Is "
                      "something compared that may differ, or more exactly than floats can be?",
                      verdicts(healthy, always=False)),
        Misconception("upside_down", "Your verdicts are upside down: True is for healthy models.",
                      verdicts(healthy, (*healthy, *sick))),
    )  # fmt: skip


def notes(evidence):
    """What a right test has left behind in the models."""
    left = sorted(evidence.f.left)
    return tuple(f"your test leaves {what}: put it back as it was, or the test is the next fault"
                 for what in left)  # fmt: skip


# --- patients -------------------------------------------------------------------------------------


class Patient(nn.Module):
    """One attention with a residual connection, (B, L, D) -> (B, L, D), and one fault.

    The fault's name says which; "healthy" has none. A ``dropout`` is there for one of them only.
    """

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.w_q, self.w_k, self.w_v = (nn.Linear(D, D) for _ in range(3))
        self.dropout = nn.Dropout(0.3 if kind == "dropout" else 0.0)
        self.norm = nn.BatchNorm1d(D) if kind.startswith("batch norm") else nn.Identity()

    def hide(self, scores, keep):
        """Scores (B, L, L) with the padded keys hidden, as well as the fault allows."""
        if self.kind == "no mask":
            return scores
        if self.kind == "weak mask":
            return scores - 5.0 * ~keep[:, None]
        keep = ~keep if self.kind == "inverted mask" else keep
        return scores.masked_fill(~keep[:, None], -1e9)

    def attend(self, x, keep):
        """Attention's change of x; keep None hides nothing."""
        h = F.layer_norm(x, (D,))
        scores = self.w_q(h) @ self.w_k(h).mT / math.sqrt(D)  # (B, L, L)
        weights = (scores if keep is None else self.hide(scores, keep)).softmax(-1)
        return self.dropout(weights @ self.w_v(h))

    def forward(self, x, keep):
        """The model (B, L, D), its fault in place."""
        if self.kind == "drops padded input":
            x = torch.where(keep[..., None], x, 0.0)
        if self.kind == "over batch":
            return x + self.attend(x.transpose(0, 1), None).transpose(0, 1)
        out = x + self.attend(x, keep)
        out = self.norm(out.flatten(0, 1)).view_as(x)
        return self.between_texts(out, x) * (keep[..., None] if self.kind == "zeros" else 1.0)

    def between_texts(self, out, x):
        """What one text adds to another."""
        first = torch.zeros(len(x), 1, 1)
        first[0] = 1.0
        if self.kind == "slight mean":
            return out + 2e-3 * x.mean((0, 1))
        if self.kind == "first to others":
            return out + (1 - first) * x[0].mean(0)
        if self.kind == "others to first" and len(x) > 1:
            return out + first * x[1:].mean((0, 1))
        return out


def built(kind, seed, x, keep):
    """(patient, (x, keep), what to look at afterwards) of a case; the seed makes the weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        patient = Patient(kind).train(kind != "batch norm, evaluation")
    mode = patient.training

    def after(_):
        left = set() if patient.training == mode else {"another mode (train or eval)"}
        graded = any(p.grad is not None for p in patient.parameters())
        return left | {"gradients"} if graded else left

    return patient, (x, keep), after


def tests_models(sick):
    """An ``adapt`` for tests of Patients; ``sick`` is a fault that nobody can miss."""
    return lambda attempt, draw: Verdicts(attempt, built, sick)


def ward(kinds):
    """One case for each kind of patient: texts of three lengths, loud garbage in the padding."""

    def made(kind):
        def make(draw):
            keep = draw.keep((5, 4, 2), 5)  # (B, L)
            x = draw.normal(3, 5, D) * torch.where(keep, 1.0, 3.0)[..., None]
            return kind, draw.integer(0, 2**31), x, keep

        return make

    return tuple(Case(text, made(kind)) for kind, text in kinds.items())


# --- does padding matter? -------------------------------------------------------------------------

FINE = {
    "healthy": "a healthy model",
    "zeros": "a healthy model that sets padded outputs to 0",
    "drops padded input": "a healthy model that never reads padding",
    "dropout": "a healthy model with dropout, in training mode",
}
LEAKS = {
    "no mask": "a model without a mask",
    "inverted mask": "a model with its mask inverted",
    "weak mask": "a model whose mask lets a little through",
}

padding_invariant = VerdictChecker(
    name="padding_invariant",
    number="13.4",
    component="padding",
    right=verdicts(FINE),
    reread="How a check is made",
    inputs=("the model", "the seed", "x", "keep_mask"),
    adapt=tests_models("no mask"),
    notes=notes,
    cases=ward(FINE | LEAKS),
    misconceptions=(
        Misconception("padded_rows", "Your test compares the rows of padding, too. What comes out "
                      "there may change with what goes in; nobody reads it.",
                      (verdicts(FINE, ("healthy", "dropout")), verdicts(FINE, ("healthy",)))),
        Misconception("training_mode", "Dropout is taken for a leak: in training mode two calls "
                      "differ, whatever you change.", verdicts(FINE, ("dropout",))),
        Misconception("nan", "You fill the padding with NaN or infinity. A mask hides every finite "
                      "number, but 0 times NaN is NaN (chapter 04): healthy models fail.",
                      (verdicts(FINE, ("healthy", "zeros", "dropout")),
                       verdicts(FINE, ("healthy", "zeros")))),
        Misconception("too_loose", "Your tolerance lets a small leak through. Rounding is below "
                      "0.00001 here; what is larger has a cause.",
                      (verdicts(FINE, ("weak mask",)), verdicts(FINE, ("weak mask", "dropout")))),
        *usual(FINE, LEAKS),
    ),
)  # fmt: skip


# --- do texts leak? -------------------------------------------------------------------------------

APART = {
    "healthy": "a healthy model",
    "batch norm, evaluation": "a model with BatchNorm, in evaluation mode: texts stay apart",
}
MIXED = {
    "over batch": "attention over the batch",
    "batch norm, training": "BatchNorm in training mode",
    "first to others": "a leak from the first text into the others",
    "others to first": "a leak from the others into the first text",
    "slight mean": "a slight leak from each text into each",
}

texts_do_not_leak = VerdictChecker(
    name="texts_do_not_leak",
    number="13.5",
    component="batches",
    right=verdicts(APART),
    reread="Learning by heart proves little",
    inputs=("the model", "the seed", "x", "keep_mask"),
    adapt=tests_models("over batch"),
    notes=notes,
    cases=ward(APART | MIXED),
    misconceptions=(
        Misconception("evaluation_only", "Your test calls eval() first, and in evaluation mode "
                      "BatchNorm keeps texts apart. Test the model in the mode in which it comes.",
                      verdicts(APART, ("batch norm, training",))),
        Misconception("one_output", "Your test looks at the output of one text only. A leak has a "
                      "direction: the other texts may hear of this one.",
                      (verdicts(APART, ("first to others",)),
                       verdicts(APART, ("first to others", "batch norm, training")))),
        Misconception("one_input", "Your test changes one text only. A leak has a direction: this "
                      "one may hear of the texts that you left alone.",
                      (verdicts(APART, ("others to first",)),
                       verdicts(APART, ("others to first", "batch norm, training")))),
        Misconception("shuffled", "You shuffle the texts. A leak that treats all texts alike, such "
                      "as a mean over the batch, is shuffled with them and stays hidden.",
                      tuple(verdicts(APART, ("over batch", "slight mean", *more)) for more in
                            ((), ("batch norm, training",)))),
        Misconception("too_loose", "Your tolerance lets a slight leak through. Rounding is below "
                      "0.00001 here; what is larger has a cause.",
                      (verdicts(APART, ("slight mean",)),
                       verdicts(APART, ("slight mean", "batch norm, training")))),
        *usual(APART, MIXED),
    ),
)  # fmt: skip


# --- is the scale right? --------------------------------------------------------------------------

SCALES = {  # what the scores are divided by
    "right": lambda d_k: math.sqrt(d_k),
    "none": lambda d_k: 1.0,
    "d_k": lambda d_k: d_k,
    "8 heads": lambda d_k: math.sqrt(8 * d_k),
    "2 heads": lambda d_k: math.sqrt(2 * d_k),
}


class Score:
    """score(q, k) for (..., L, d_k): (..., L_q, L_k), divided by what the fault says."""

    def __init__(self, kind, d_k):
        self.divisor, self.given = SCALES[kind](d_k), []

    def __call__(self, q, k):
        self.given.append((q.detach(), k.detach()))
        return q @ k.transpose(-2, -1) / self.divisor


def scored(kind, d_k):
    """(score, (d_k,), what was given) of one case."""
    score = Score(kind, d_k)

    def after(verdict):
        verdict.seen.append(score.given)
        return set()

    return score, (d_k,), after


def of_width(*found):
    """A form: the verdicts of a test that finds these faults and no other."""
    return lambda kind, d_k: kind not in found


def ignores_width(evidence):
    """q and k are as wide in every case."""
    widths = {q.size(-1) for given in evidence.f.seen for q, _ in given}
    return len(widths) == 1 and len({t.args[1] for t in evidence.trials}) > 1


def not_standard(evidence):
    """Numbers that are far from mean 0 and variance 1."""
    pairs = [pair for given in evidence.f.seen for pair in given]
    drawn = torch.cat([x.flatten().float() for pair in pairs for x in pair])
    return abs(drawn.mean()) > 0.2 or not 0.8 < drawn.var() < 1.25


def scale_misconceptions():
    """What the check of a scale test recognises."""
    right, wrong = ("right",), ("none", "d_k", "8 heads", "2 heads")
    return (
        Misconception("never_asks", "Your test never calls score, so its verdict cannot depend on "
                                    "it.",
                      signs=lambda e: not any(e.f.seen)),
        Misconception("width_ignored", "You draw q and k of the same width whatever d_k is. The "
                      "right scale depends on d_k, so the vectors must have d_k "
                      "numbers.", signs=ignores_width),
        Misconception("not_standard", "The numbers you draw do not have mean 0 and variance 1, and "
                      "only for these you know the variance of a score.", signs=not_standard),
        Misconception("luck", LUCK, signs=leaves_to_luck),
        Misconception("expects_no_scale", "You expect the variance d_k: that is what a dot product "
                      "has before it is divided by anything.", verdicts(right, ("right", "none"))),
        Misconception("too_large_only", "Your test finds scores that are too large, not those that "
                      "are too small. A variance has two sides.", of_width("none")),
        Misconception("too_small_only", "Your test finds scores that are too small, not those that "
                      "are too large. A variance has two sides.",
                      (of_width("d_k", "8 heads", "2 heads"), of_width("d_k", "8 heads"))),
        Misconception("too_loose", "Your bounds are so wide that a scale for twice the width "
                      "passes: its variance is 1/2. Draw more numbers, then you can be strict.",
                      (of_width("none", "d_k", "8 heads"), of_width("none", "d_k"))),
        *usual(right, wrong),
    )  # fmt: skip


finds_wrong_scale = VerdictChecker(
    name="finds_wrong_scale",
    number="13.6",
    component="attention",
    right=verdicts(("right",)),
    reread="29 what no check finds",
    inputs=("score", "d_k"),
    adapt=lambda attempt, draw: Verdicts(attempt, scored, "none"),
    cases=tuple(
        Case(text, lambda draw, kind=kind, d_k=d_k: (kind, d_k))
        for text, kind, d_k in (
            ("the right scale, d_k = 16", "right", 16), ("the right scale, d_k = 32", "right", 32),
            ("the right scale, d_k = 64", "right", 64),
            ("no scale", "none", 16), ("divided by d_k", "d_k", 16),
            ("divided by the root of d_model, 8 heads", "8 heads", 16),
            ("divided by the root of d_model, 2 heads", "2 heads", 64),
        )
    ),
    misconceptions=scale_misconceptions(),
)  # fmt: skip
