"""Checks of chapter 13: tests that the learner writes, tried on healthy and on sick models."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._compare import apart, plain
from encoder_lib.checks._learner import NotAttempted, Trouble, answer, as_function
from encoder_lib.checks.report import Misconception

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
        self.raised, self.given, self.seen, self.left = False, False, [], set()

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
            self.raises_for_sick(*args)
            return True

    def raises_for_sick(self, *args):
        """Ask a patient that is clearly sick, and hope for an AssertionError.

        Raises: NotAttempted when nothing comes, Trouble when some patients got a verdict.
        """
        try:
            self.ask(self.sick, *args)
        except NotAttempted:
            if not self.given:
                raise
        if not self.raised:
            raise Trouble("your test returns a verdict for some models and nothing for others: a "
                          "return is missing on one of its ways", "no_verdict")  # fmt: skip

    def ask(self, kind, *args):
        """What the test says about one patient; a tensor of one element counts as its value."""
        patient, args, after = self.build(kind, *args)
        value = answer(self.guarded, patient, *args)
        self.given = self.given or not self.raised
        self.left |= after(self)
        return plain(value)


LUCK = (
    "The same model gets another verdict at the next call: your test leaves it to luck. Does it "
    "draw too few numbers, look at a part chosen at random, or is dropout on?"
)


OTHER = (
    "Your verdict on some models is wrong. True is for healthy ones, False for sick ones; below "
    "is one about which your test is mistaken."
)


class VerdictChecker(Checker):
    """The check of a test: its verdict may not depend on luck."""

    def failed(self, key, diagnosis, *args, **kwargs):
        """The report on a wrong test; what another answer calls random is luck here."""
        if key == "random":
            key, diagnosis = "luck", LUCK
        if key == "value":
            diagnosis = OTHER
        return super().failed(key, diagnosis, *args, **kwargs)


def leaves_to_luck(evidence):
    """Some model gets another verdict when it is asked for again."""
    return any(evidence.ask(*t.args) != t.got for t in evidence.answers() for _ in range(3))


LEFT_TO_LUCK = Misconception("luck", LUCK, signs=leaves_to_luck)


def never_asks(name):
    """The misconception of a test that never calls what it is to test."""
    text = f"Your test never calls {name}, so its verdict cannot depend on it."
    return Misconception("never_asks", text, signs=lambda e: e.answers() and not any(e.f.seen))


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


class Asked(list):
    """The inputs that a patient was asked; a copy of the patient writes into the same list."""

    def __deepcopy__(self, memo):
        return self


LEAKS_BETWEEN = {  # kind -> (from, to), numbers of texts
    "first to others": ((0, 1), (0, 2)),
    "others to first": ((1, 0), (2, 0)),
    "second to third": ((1, 2),),
    "third to second": ((2, 1),),
}


class Patient(nn.Module):
    """One attention with a residual connection, (B, L, D) -> (B, L, D), and one fault.

    The fault's name says which; "healthy" has none. A ``dropout`` is there for one of them only.
    """

    def __init__(self, kind):
        super().__init__()
        self.kind, self.asked = kind, Asked()
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
        self.asked.append(x.detach())
        if self.kind == "drops padded input":
            x = torch.where(keep[..., None], x, 0.0)
        if self.kind == "over batch":
            return x + self.attend(x.transpose(0, 1), None).transpose(0, 1)
        out = x + self.attend(x, keep)
        out = self.norm(out.flatten(0, 1)).view_as(x)
        out = self.between_texts(self.between_tokens(out, x), x)
        return out * (keep[..., None] if self.kind == "zeros" else 1.0)

    def between_tokens(self, out, x):
        """What a token adds to others of its text, whatever the mask says."""
        if self.kind == "right neighbour":
            return out + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))
        return out + 0.1 * x[:, -1:] if self.kind == "last place" else out

    def between_texts(self, out, x):
        """What one text adds to another."""
        if self.kind == "slight mean":
            return out + 2e-3 * x.mean((0, 1))
        way = torch.zeros(len(x), len(x))  # (to, from)
        for one, other in LEAKS_BETWEEN.get(self.kind, ()):
            if max(one, other) < len(x):
                way[other, one] = 1.0
        return out + (way @ x.mean(1))[:, None] if way.any() else out


def condition(patient):
    """What a test should leave as it is: (name, value) pairs."""
    modes = [module.training for module in patient.modules()]
    weights = [p.detach().clone() for p in patient.parameters()]
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in patient.modules())
    return {"another mode (train or eval)": modes, "other weights": weights, "hooks": hooks,
            "another dropout": patient.dropout.p}  # fmt: skip


def built(kind, seed, x, keep):
    """(patient, (x, keep), what to look at afterwards) of a case; the seed makes the weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        patient = Patient(kind).train(kind != "batch norm, evaluation")
    before = condition(patient)

    def after(verdict):
        verdict.seen.append([(asked, keep) for asked in patient.asked])
        now = condition(patient)
        left = {what for what, value in before.items() if apart(now[what], value, 0.0) is not None}
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
            keep = draw.keep((6, 4, 2), 6)  # (B, L)
            x = draw.normal(3, 6, D) * torch.where(keep, 1.0, 3.0)[..., None]
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
    "right neighbour": "a model in which each token hears the next one, padding or not",
    "last place": "a model in which each token hears the last place, padding or not",
}


def constant_padding(evidence):
    """Each padded token that the models were asked had the same number in all its places."""
    asked = [(x, keep) for pairs in evidence.f.seen for x, keep in pairs
             if x.shape[:2] == keep.shape]  # fmt: skip
    return bool(asked) and all(x[~keep].std(-1).max() < 1e-6 for x, keep in asked)


padding_invariant = VerdictChecker(
    name="padding_invariant",
    number="13.4",
    again=2,
    component="padding",
    right=verdicts(FINE),
    reread="How a check is made",
    inputs=("the model", "the seed", "x", "keep_mask"),
    adapt=tests_models("no mask"),
    notes=notes,
    cases=ward(FINE | LEAKS),
    misconceptions=(
        never_asks("the model"),
        LEFT_TO_LUCK,
        Misconception("constant_padding", "You compare padding that is constant with padding that "
                      "is another constant. LayerNorm subtracts the mean of a token, so both are "
                      "zeros for these models: use random numbers.", signs=constant_padding),
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
        Misconception("part_only", "A leak that concerns one place only stays hidden. Change all "
                      "of the padding, and compare all real tokens.",
                      tuple(verdicts(FINE, wrong) for wrong in
                            (("right neighbour",), ("last place",)))),
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
    "second to third": "a leak from the second text into the third",
    "third to second": "a leak from the third text into the second",
    "slight mean": "a slight leak from each text into each",
}


def missing(*ways):
    """Forms: the verdicts of tests that miss these kinds of leaks, or also call eval() first."""
    return tuple(verdicts(APART, (*way, *more)) for way in ways
                 for more in ((), ("batch norm, training",)))  # fmt: skip


FIRST, OTHERS, SECOND, THIRD = LEAKS_BETWEEN  # where the leak starts; see there where it ends

texts_do_not_leak = VerdictChecker(
    name="texts_do_not_leak",
    number="13.5",
    again=3,
    component="batches",
    right=verdicts(APART),
    reread="Learning by heart proves little",
    inputs=("the model", "the seed", "x", "keep_mask"),
    adapt=tests_models("over batch"),
    notes=notes,
    cases=ward(APART | MIXED),
    misconceptions=(
        never_asks("the model"),
        LEFT_TO_LUCK,
        Misconception("evaluation_only", "Your test calls eval() first, and in evaluation mode "
                      "BatchNorm keeps texts apart. Test the model in the mode in which it comes.",
                      verdicts(APART, ("batch norm, training",))),
        Misconception("one_output", "Your test looks at the output of one text only. A leak has a "
                      "direction: the other texts may hear of this one.",
                      missing((FIRST, SECOND, THIRD), (OTHERS, SECOND))),
        Misconception("one_input", "Your test changes one text only. A leak has a direction: this "
                      "one may hear of the texts that you left alone.",
                      missing((OTHERS, SECOND, THIRD), (FIRST, THIRD))),
        Misconception("one_direction", "Your test finds leaks in one direction of the batch only, "
                      "into earlier texts or into later ones. Any text may hear of any other: "
                      "change each of them, and look at all others.",
                      missing((FIRST, SECOND), (OTHERS, THIRD))),
        Misconception("first_only", "A leak between two texts neither of which is the first stays "
                      "hidden. Change each text by itself, and look at all others.",
                      missing((SECOND, THIRD))),
        Misconception("shuffled", "You shuffle the texts. A leak that treats all texts alike, such "
                      "as a mean over the batch, is shuffled with them and stays hidden.",
                      missing(("over batch", "slight mean"))),
        Misconception("too_loose", "Your tolerance lets a slight leak through. Rounding is below "
                      "0.00001 here; what is larger has a cause.",
                      missing(("slight mean",))),
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
    if drawn.var() == 0:
        return False  # nothing was drawn: a known pair
    return abs(drawn.mean()) > 0.2 or not 0.8 < drawn.var() < 1.25


def asks_for_itself(evidence):
    """q and k are the same vectors in every call."""
    pairs = [pair for given in evidence.f.seen for pair in given]
    alike = [q.shape == k.shape and torch.equal(q, k) for q, k in pairs]
    return all(alike) and any(q.var() > 0 for q, _ in pairs)


def scale_misconceptions():
    """What the check of a scale test recognises."""
    right, wrong = ("right",), ("none", "d_k", "8 heads", "2 heads")
    return (
        never_asks("score"),
        Misconception("width_ignored", "You draw q and k of the same width whatever d_k is. The "
                      "right scale depends on d_k, so the vectors must have d_k "
                      "numbers.", signs=ignores_width),
        Misconception("not_standard", "The numbers you draw do not have mean 0 and variance 1, and "
                      "only for these you know the variance of a score.", signs=not_standard),
        Misconception("q_is_k", "You use the same vectors as q and as k. A vector's score with "
                      "itself is its squared length, which is large and never negative; the "
                      "variance is known for vectors drawn independently.", signs=asks_for_itself),
        LEFT_TO_LUCK,
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
    again=6,
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
