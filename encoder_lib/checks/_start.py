"""Checks of chapter 00: counting parameters, the baseline of the most frequent class."""

import functools
import itertools

import torch
from torch import nn

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import as_function
from encoder_lib.checks.report import Misconception

__all__ = ["majority_baseline", "parameter_count"]


def one_or_two(form, ways):
    """Misconceptions from ways to go wrong: each alone, then each two that can meet (first forms).

    Args:
        form: function of a case's arguments, with a keyword for every step; the defaults are right.
        ways: (key, what is said, (keywords of a wrong form, ...)), the special before the general.
    """
    alone = [Misconception(key, text, tuple(functools.partial(form, **way) for way in group))
             for key, text, group in ways]  # fmt: skip
    first = [(key, text, group[0]) for key, text, group in ways]
    both = [
        Misconception(f"{key}+{other}", f"{text} And: {also}",
                      functools.partial(form, **one, **two))
        for (key, text, one), (other, also, two) in itertools.combinations(first, 2)
        if not one.keys() & two.keys()
    ]  # fmt: skip
    return (*alone, *both)


# --- the number of parameters ---------------------------------------------------------------------


class Bare(nn.Module):
    """Parameters of its own with three axes and with none, beside a linear map."""

    def __init__(self, a, b):
        super().__init__()
        self.cube, self.number = nn.Parameter(torch.zeros(2, a, b)), nn.Parameter(torch.zeros(()))
        self.linear = nn.Linear(a, b)


def stacked(a, b):
    """Linear maps and a norm, one stack inside another."""
    inner = nn.Sequential(nn.Linear(b, a), nn.LayerNorm(a))
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), inner)


def tied(a, b):
    """An embedding table that is the weight of the output layer, too."""
    table, output = nn.Embedding(a, b), nn.Linear(b, a)
    output.weight = table.weight
    return nn.Sequential(table, output)


def repeated(a, b):
    """One layer that stands in two places."""
    layer = nn.Linear(a, a)
    return nn.Sequential(layer, nn.Linear(a, b), nn.Linear(b, a), layer)


def frozen(a, b):
    """A table that is not trained, before a layer that is."""
    return nn.Sequential(nn.Embedding(a, b).requires_grad_(False), nn.Linear(b, 3))


KINDS = {
    "stacked": stacked, "tied": tied, "repeated": repeated, "frozen": frozen, "bare": Bare,
    "buffers": lambda a, b: nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()),
}  # fmt: skip


def tensors_of(module, held, shared):
    """The tensors that are counted; ``held``: all, or what which modules hold by themselves."""
    if held == "own":
        return list(module.parameters(recurse=False))
    if held == "children":
        return [p for child in module.children() for p in child.parameters(recurse=False)]
    if held == "each":
        return [p for part in module.modules() for p in part.parameters(recurse=False)]
    return [p for _, p in module.named_parameters(remove_duplicate=shared == "once")]


def count(
    kind, a, b, held="all", shared="once", axes=0, frozen=True, buffers=False, unit="numbers"
):
    """The number of parameters of a module of this kind, or what a wrong step counts."""
    module = KINDS[kind](a, b)
    counted = [p for p in tensors_of(module, held, shared) if p.dim() >= axes]
    counted = [p for p in counted if frozen or p.requires_grad]
    counted += list(module.buffers()) if buffers else []
    size = {"numbers": lambda p: p.numel(), "tensors": lambda p: 1,
            "bytes": lambda p: p.numel() * p.element_size()}[unit]  # fmt: skip
    return sum(size(p) for p in counted)


def by_name(kind, a, b):
    """Counts only what is called a weight."""
    module = KINDS[kind](a, b)
    return sum(p.numel() for name, p in module.named_parameters() if name.endswith("weight"))


def counting(attempt, draw):
    """The answer as a function of (kind, a, b): it is asked about a new module each time."""
    f = as_function(attempt)
    return lambda kind, a, b: f(KINDS[kind](a, b))


BIASES = ("Only matrices are counted: biases, the gains of norms, and every other parameter that "
          "has one axis or none are left out.")  # fmt: skip
COUNTS = (
    ("state_dict", "You count what `state_dict` holds. That is what gets saved: buffers (the "
     "running means of a batch norm) are in it, too, and a shared tensor once under every name.",
     (dict(buffers=True, shared="twice"),)),
    ("buffers_counted", "Buffers are counted as well. A buffer, such as the running mean of a "
     "batch norm, belongs to the module, but no gradient ever trains it: it is no parameter.",
     (dict(buffers=True),)),
    ("shared_twice", "A parameter that stands in two places is counted twice. It is one tensor: "
     "one set of numbers that both places use.", (dict(shared="twice"), dict(held="each"))),
    ("frozen_left_out", "Frozen parameters are left out. `requires_grad` says whether a "
     "parameter is trained just now; it is a parameter of the model all the same.",
     (dict(frozen=False),)),
    ("matrices_only", BIASES, (dict(axes=2),)),
    ("tensors_counted", "You count the tensors, not the numbers in them: a table of 1000 rows is "
     "one tensor and many parameters.", (dict(unit="tensors"),)),
    ("bytes", "You count bytes: a number of float32 takes four of them.", (dict(unit="bytes"),)),
    ("not_deep", "Only one level of the model is counted: the parameters of modules inside of "
     "modules are missing.", (dict(held="own"), dict(held="children"))),
)  # fmt: skip


def sized(kind):
    """A case's arguments: a kind of module and two unequal sizes."""
    return lambda draw: (kind, draw.integer(4, 8), draw.integer(9, 14))


parameter_count = Checker(
    name="parameter_count",
    number="0.4",
    component="the whole encoder",
    right=count,
    reread="Where the parameters are",
    inputs=("the module", "the module", "the module"),
    adapt=counting,
    misconceptions=(*one_or_two(count, COUNTS), Misconception("matrices_only", BIASES, by_name)),
    cases=(
        Case("modules inside of modules", sized("stacked")),
        Case("an embedding table shared with the output layer", sized("tied")),
        Case("one layer in two places", sized("repeated")),
        Case("a module with buffers", sized("buffers")),
        Case("a frozen table", sized("frozen")),
        Case("parameters with three axes and with none", sized("bare")),
    ),
)


# --- the baseline ---------------------------------------------------------------------------------


def baseline(train, test, source="train", measured="test", unit="share", rule="majority"):
    """The accuracy of always answering the most frequent class; train (n,), test (m,) int64."""
    values, counts = train.unique(return_counts=True)
    looked_at = {"train": train, "test": test, "both": torch.cat([train, test])}
    answer = looked_at[source].mode().values
    right = (looked_at[measured] == answer).double()
    share = {
        "majority": right.mean(), "class": answer, "one in train": 1 / values.numel(),
        "one in test": 1 / test.unique().numel(),
        "one in both": 1 / looked_at["both"].unique().numel(),
        "proportional": (test[:, None] == train).double().mean(),
        "least": (test == values[counts.argmin()]).double().mean(),
    }[rule]  # fmt: skip
    return float({"share": share, "count": right.sum(), "error": 1 - share,
                  "percent": 100 * share}[unit])  # fmt: skip


BASELINES = (
    ("majority_of_test", "Your rule answers the most frequent class of the test set. To know "
     "which that is, it has looked at the labels that it is tested on; it may look at the "
     "training labels only.", (dict(source="test"),)),
    ("both_sets", "Your rule counts training and test labels together. The test labels must not "
     "have a say in what it answers.", (dict(source="both"),)),
    ("share_in_train", "The share of the class in the training set came back. That is how good "
     "the rule is on what it has seen; asked for is how often it is right on the test set.",
     (dict(measured="train"),)),
    ("one_over_classes", "Your baseline is one over the number of classes, what blind guessing "
     "gets. Classes are not equally frequent, and a rule that knows this does better.",
     (dict(rule="one in train"), dict(rule="one in test"), dict(rule="one in both"))),
    ("proportional", "Your baseline guesses each class as often as it occurs in training. Asked "
     "for is the rule that gives one and the same answer to everything.",
     (dict(rule="proportional"),)),
    ("least_frequent", "Your rule answers the least frequent class of the training set.",
     (dict(rule="least"),)),
    ("class_returned", "The class that the rule answers came back, not how often that answer is "
     "right.", (dict(rule="class"),)),
    ("count_returned", "The number of right answers came back. An accuracy is a share: it is "
     "divided by the number of test labels.", (dict(unit="count"),)),
    ("error_rate", "The share of the wrong answers came back; accuracy is the share of the right "
     "ones.", (dict(unit="error"),)),
    ("percent", "The accuracy came back in percent. Here, as in the chapter, it is a number from "
     "0 to 1.", (dict(unit="percent"),)),
)  # fmt: skip


def labels(draw, train_counts, test_counts):
    """(train (n,), test (m,)): so many labels of every class; classes and order are random."""
    classes = draw.permutation(len(train_counts))
    return tuple(
        classes.repeat_interleave(torch.tensor(counts))[draw.permutation(sum(counts))]
        for counts in (train_counts, test_counts)
    )


def apart_labels(draw):
    """One class leads in train, another in test, and the second of both in their sum."""
    n, m = draw.integer(11, 20), draw.integer(8, 11)
    return labels(draw, (n, n - 1, 3, 2), (2, m - 1, m, 1))


def alike_labels(draw):
    """One class leads in both, by other shares."""
    return labels(draw, (draw.integer(11, 20), 8, 5, 6), (draw.integer(9, 13), 3, 4, 2))


majority_baseline = Checker(
    name="majority_baseline",
    number="0.3",
    component="the whole encoder",
    right=baseline,
    reread="Before it has learnt anything",
    inputs=("train_labels", "test_labels"),
    misconceptions=one_or_two(baseline, BASELINES),
    cases=(
        Case("another class most frequent in the test set, a third in both", apart_labels),
        Case("the same class most frequent in both", alike_labels),
        Case("a test set without the most frequent class of the training set",
             lambda draw: labels(draw, (draw.integer(9, 14), 5, 3), (0, draw.integer(4, 9), 2))),
        Case("two classes", lambda draw: labels(draw, (12, draw.integer(5, 10)), (5, 4))),
    ),
)  # fmt: skip
