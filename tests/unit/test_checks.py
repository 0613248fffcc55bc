"""The checks of the exercises: right answers pass, wrong ones get the diagnosis that is meant.

The answers are in ``tests/support/answers``. Seeds are fixed; a check draws other inputs for every
seed.
"""

import collections
import contextlib
import random

import pytest
import torch
from torch import nn

import answers
from encoder_lib import checks
from encoder_lib.checks.report import Report

ALL = answers.collected()
RIGHT = [answer for answer in ALL if not answer.key]
WRONG = [answer for answer in ALL if answer.key]
SEEDS = range(3)


def reports(answer):
    """The reports of one answer for a few seeds."""
    check = checks.EXERCISES[answer.check]
    return [check(answer.attempt, seed=seed, **answer.options) for seed in SEEDS]


# --- right and wrong answers ----------------------------------------------------------------------


@pytest.mark.parametrize("answer", RIGHT, ids=lambda answer: answer.label)
def test_right_answers_pass(answer):
    for report in reports(answer):
        assert report.passed, report
        assert answer.note.lower() in str(report).lower()


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: answer.label)
def test_wrong_answers_get_the_diagnosis_that_is_meant(answer):
    for report in reports(answer):
        assert report.status == "not right yet" and not report.passed
        assert report.misconception == answer.key, report
        assert len(report.diagnosis) > 40 and report.reread.startswith("chapter ")


def test_every_exercise_has_at_least_three_wrong_answers_and_a_right_one():
    wrong = collections.Counter(answer.check for answer in WRONG)
    right = collections.Counter(answer.check for answer in RIGHT)
    assert {name: wrong[name] for name in checks.EXERCISES if wrong[name] < 3} == {}
    assert [name for name in checks.EXERCISES if right[name] < 1] == []
    assert len(WRONG) >= 100 and len(checks.EXERCISES) >= 25


def test_every_misconception_is_met_by_some_answer():
    """A diagnosis that no answer ever gets is not known to work."""
    met = {(answer.check, answer.key) for answer in WRONG}
    listed = {(name, m.key) for name, check in checks.EXERCISES.items()
              for m in check.misconceptions if "+" not in m.key}  # fmt: skip
    assert listed - met == set()


# --- unfinished answers and garbage ---------------------------------------------------------------


class WithoutForward(nn.Module):
    """A module whose forward is not written yet."""


class ForwardOfDots(nn.Module):
    """A module whose forward is a stub, whatever it is made from."""

    def __init__(self, *sizes, **options):
        super().__init__()

    def forward(self, *args, **kwargs): ...


def raises_not_implemented(*args, **kwargs):
    raise NotImplementedError


UNFINISHED = [None, ..., lambda *args, **kwargs: None, lambda *args, **kwargs: ...,
              raises_not_implemented, WithoutForward, ForwardOfDots]  # fmt: skip


@pytest.mark.parametrize("name", checks.EXERCISES)
def test_an_unfinished_answer_is_not_attempted(name):
    assert checks.EXERCISES[name]().status == "not attempted yet"
    for attempt in UNFINISHED:
        report = checks.EXERCISES[name](attempt)
        assert report.status == "not attempted yet" and not report
        assert "not attempted yet" in str(report)


class Hostile:
    """Refuses everything: attributes, calls, comparisons, even its description."""

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        raise RuntimeError("no")

    def __repr__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None
    __str__ = __bool__ = __iter__ = __len__ = __float__ = __repr__


def raiser(error):
    """A function that raises ``error`` whatever it is given."""

    def raise_it(*args, **kwargs):
        raise error

    return raise_it


def breaker(*args, **kwargs):
    """Overwrites every tensor it is given and returns the first argument."""
    for x in args:
        if isinstance(x, torch.Tensor):
            with contextlib.suppress(RuntimeError):
                x.zero_()
    return args[0] if args else 0


def values(rng):
    """One random value of a random kind."""
    g = torch.Generator().manual_seed(rng.randrange(2**31))
    shape = [rng.randrange(4) for _ in range(rng.randrange(5))]
    return rng.choice([
        lambda: rng.random(), lambda: rng.randrange(-9, 9), lambda: "attention", lambda: b"x",
        lambda: True, lambda: float("nan"), lambda: [], lambda: {}, lambda: {"a": [1]},
        lambda: set(), lambda: torch.randn(shape, generator=g),
        lambda: torch.full(shape or [1], float("nan")),
        lambda: torch.randn(shape, generator=g).double(), lambda: torch.ones(shape).bool(),
        lambda: torch.ones(shape, dtype=torch.complex64), lambda: torch.zeros(2).to_sparse(),
        lambda: (i for i in range(3)), lambda: iter([]), lambda: object(), Hostile, lambda: 10**400,
        lambda: (torch.randn(2, 2, generator=g), None), lambda: (1, 2, 3), lambda: nn.Linear(2, 3),
        lambda: int, lambda: nn.Module(), lambda: torch.empty(2, device="meta"), lambda: "\ud800",
    ])()  # fmt: skip


def garbage(rng):
    """One attempt of a random kind: a value, or something that can be called and gives one."""
    value = values(rng)
    return rng.choice([
        lambda: value, lambda: lambda *args, **kwargs: value, lambda: lambda: value,
        lambda: raiser(rng.choice([ValueError("x"), SystemExit(1), RecursionError(), MemoryError(),
                                   GeneratorExit(), StopIteration(), AssertionError()])),
        lambda: breaker, lambda: lambda *args, **kwargs: args, lambda: lambda *args: (value, value),
        lambda: type("Made", (nn.Module,), {"forward": lambda self, *a, **k: value}),
        lambda: type("Odd", (nn.Module,), {"__init__": lambda self, *a: None,
                                           "forward": lambda self, *a: a}),
        lambda: type("Late", (), {"__call__": lambda self, *a, **k: value})(),
    ])()  # fmt: skip


@pytest.mark.parametrize("name", checks.EXERCISES)
def test_garbage_gets_a_report(name):
    rng = random.Random(name)
    for _ in range(200):
        report = checks.EXERCISES[name](garbage(rng))
        assert isinstance(report, Report) and not report.passed, report
        assert report.status in ("not right yet", "not attempted yet")
        assert len(str(report)) < 2000
