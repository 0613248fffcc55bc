"""Checks of chapter 03: the softmax by hand, and the way back through it."""

import functools
import math

import torch

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks.report import Misconception

__all__ = ["softmax", "softmax_backward"]


# --- the softmax ----------------------------------------------------------------------------------


def by_hand(scores, axis=-1, stable=True, divide=True):
    """The softmax with ``exp``; without the largest score taken away, or without the division."""
    shares = (scores - scores.amax(axis, keepdim=True) if stable else scores).exp()
    return shares / shares.sum(axis, keepdim=True) if divide else shares


def lost_axis(scores, largest=True, total=True):
    """The softmax whose sums and largest scores (...) are laid along the wrong axis of (..., L)."""
    if largest:
        scores = scores - scores.amax(-1)
    shares = by_hand(scores, divide=False, stable=not largest)
    return shares / shares.sum(-1, keepdim=not total)


def whole(scores):
    """The softmax over all scores of the tensor."""
    return scores.flatten().softmax(-1).view_as(scores)


def powers(base):
    """The softmax with powers of another base, as a function."""
    return lambda scores: (scores * math.log(base)).softmax(-1)


def with_and_without(**options):
    """``by_hand`` in two forms: with the largest score taken away and without."""
    return tuple(functools.partial(by_hand, stable=stable, **options) for stable in (True, False))


def in_the_thousands(evidence):
    """What came for large scores, of an answer that is right for ordinary ones; else nothing."""
    usual, large = evidence.trials[:-2], evidence.trials[-2:]
    right = all(torch.allclose(t.got, t.want, atol=1e-5) for t in usual)
    return torch.cat([t.got for t in large]) if right else None


def overflows(evidence):
    """Right for ordinary scores, NaN or infinite for large ones."""
    large = in_the_thousands(evidence)
    return large is not None and not bool(large.isfinite().all())


def clips(evidence):
    """Right for ordinary scores, finite and wrong for large ones."""
    large = in_the_thousands(evidence)
    return large is not None and bool(large.isfinite().all())


def with_hidden(draw):
    """Scores (3, 6) of which each row has two of -inf."""
    hidden = torch.stack([draw.permutation(6) < 2 for _ in range(3)])
    return (draw.normal(3, 6).masked_fill(hidden, -math.inf),)


def large_scores(draw):
    """Scores (4, 5), two of each row near 1000, the others near -1000, as are all of one row."""
    large = torch.stack([draw.permutation(5) < 2 for _ in range(4)])
    large[draw.integer(0, 4)] = False
    return (draw.normal(4, 5) + torch.where(large, 1000.0, -1000.0),)


SOFTMAX_MISTAKES = (
    Misconception(
        "softmax_query", "Your softmax runs over the last axis but one, the queries: the columns "
        "add up to 1, the rows do not. Each query hands out one unit over the keys.",
        with_and_without(axis=-2), reread="Then without"),
    Misconception(
        "softmax_first", "Your softmax runs over an axis that is counted from the front (0 or 1). "
        "In a batch that is no longer the axis of the keys, and the rows do not add up to 1.",
        (*with_and_without(axis=0), *with_and_without(axis=1)), reread="Then without"),
    Misconception(
        "whole_tensor", "All scores of the tensor share one unit: the whole adds up to 1, instead "
        "of every row.", (whole, lambda s: s.exp() / s.exp().sum()), reread="Then without"),
    Misconception(
        "no_keepdim", "The sum (or the largest score) of the rows has lost its axis, so it is laid "
        "along the wrong one: an error for most shapes, and for square scores other numbers "
        "without any error.",
        (lost_axis, functools.partial(lost_axis, largest=False),
         functools.partial(lost_axis, total=False), lambda s: s.exp() / s.exp().sum(-1))),
    Misconception(
        "not_normalised", "The powers of e are right, but nothing makes shares of them: each row "
        "should add up to 1.", with_and_without(divide=False)),
    Misconception(
        "no_exp", "The scores themselves are divided by their sum. Scores may be negative, and so "
        "may their sum; shares are made of their powers of e, which are positive.",
        lambda s: s / s.sum(-1, keepdim=True)),
    Misconception(
        "log", "These are the logarithms of the weights; weights lie between 0 and 1.",
        lambda s: s.log_softmax(-1)),
    Misconception(
        "sigmoid", "Each score is squeezed by itself, by a sigmoid, so that a row adds up to "
        "anything. In a softmax the keys compete for one unit.", torch.sigmoid),
    Misconception(
        "base", "The powers are taken of another base than e.",
        (powers(2), powers(10), lambda s: 2.0**s / (2.0**s).sum(-1, keepdim=True))),
    Misconception(
        "largest_of_all", "You take away the largest score of the whole tensor. In a row far below "
        "it all powers become 0, and 0/0 is NaN; every row has a largest score of its own.",
        lambda s: by_hand(s - s.amax(), stable=False), reread="Exercises"),
    Misconception(
        "overflow", "Right for ordinary scores, but scores in the thousands give NaN: e to the "
        "1000 is infinite, and infinity over infinity is no number; nor is 0/0, for a row of very "
        "negative scores. What may be done to all scores of a row without changing its weights?",
        signs=overflows, reread="Exercises"),
    Misconception(
        "clipped", "Right for ordinary scores, but large ones get other weights than they should: "
        "were scores cut off, or was something added so that no division fails? Two large scores "
        "that differ need different weights.", signs=clips, reread="Exercises"),
)  # fmt: skip

softmax = Checker(
    name="softmax",
    number="3.3",
    component="softmax",
    right=lambda scores: scores.softmax(-1),
    reread="First with loops",
    inputs=("scores",),
    gradient=(0,),
    tolerance=1e-4,  # float32 rounds scores near 1000 to 6e-5, whatever the formula
    misconceptions=SOFTMAX_MISTAKES,
    cases=(
        Case("every row of scores (B, L_q, L_k) gives weights that add up to 1",
             lambda draw: (2 * draw.normal(2, 3, 5),)),
        Case("a square of scores", lambda draw: (2 * draw.normal(4, 4),)),
        Case("a single row", lambda draw: (2 * draw.normal(6),)),
        Case("a score of -inf gets weight 0", with_hidden),
        Case("scores near 1000 and -1000 in a row", large_scores),
        Case("scores near -1000 only", lambda draw: (draw.normal(3, 5) - 1000,)),
    ),
)  # fmt: skip


# --- the way back through the softmax -------------------------------------------------------------


def backward(w, g, own=True, others=True, axis=-1):
    """The gradient of the scores (..., L), or one of its two terms; ``axis`` is summed over."""
    average = (w * g).sum(axis, keepdim=True)
    return (w * g if own else 0.0) - (w * average if others else 0.0)


def builds_jacobian(evidence):
    """What came has one axis more than the scores, as long as the last one."""
    return all(t.got.shape == (*t.want.shape, t.want.size(-1)) for t in evidence.trials)


def ignores_upstream(evidence):
    """Another upstream gradient gives the same result."""
    w, g = evidence.trials[0].args
    other = evidence.ask(w, evidence.draw.normal(*g.shape))
    return torch.allclose(evidence.ask(w, g), other, atol=1e-6)


def given(draw, *shape):
    """Weights and an upstream gradient, both of the given shape."""
    return (1.5 * draw.normal(*shape)).softmax(-1), draw.normal(*shape)


def decided(draw):
    """Weights (4, 5) of which one row is one-hot and one has hidden keys, and a gradient (4, 5)."""
    scores = draw.normal(4, 5)
    scores[0, 1:] = scores[1, 3:] = -math.inf
    return scores.softmax(-1), draw.normal(4, 5)


BACKWARD_MISTAKES = (
    Misconception(
        "jacobian", "What came back has an axis too many: it is the Jacobian, or something of its "
        "size. It still has to be multiplied by the upstream gradient and summed.",
        signs=builds_jacobian),
    Misconception(
        "upstream_ignored", "Your result does not depend on the upstream gradient. (The gradient "
        "of the plain sum of the weights is 0, since every row adds up to 1.)",
        signs=ignores_upstream),
    Misconception(
        "own_score_only", "You let each weight depend on its own score only: w (1 - w), the "
        "diagonal of the Jacobian, as for a sigmoid. But a score takes from all other weights, "
        "too.", lambda w, g: w * (1 - w) * g),
    Misconception(
        "no_competition", "This is the term of equation (3.1) with the delta. The other one, what "
        "a score takes away from all the weights of its row, is missing.", lambda w, g: w * g),
    Misconception(
        "outer_only", "This is the term of equation (3.1) without the delta, the outer product. "
        "The other one, what a score does for its own weight, is missing.",
        (functools.partial(backward, own=False), lambda w, g: -backward(w, g, own=False))),
    Misconception(
        "sign", "The sign of the whole is wrong: a higher score raises its own weight.",
        lambda w, g: -backward(w, g)),
    Misconception(
        "plus", "The two terms of equation (3.1) are added; the second one is subtracted.",
        lambda w, g: w * g + w * (w * g).sum(-1, keepdim=True)),
    Misconception(
        "unweighted", "You subtract the plain sum or mean of the upstream gradient; in equation "
        "(3.1) every term of that sum has its weight.",
        (lambda w, g: w * (g - g.mean(-1, keepdim=True)),
         lambda w, g: w * (g - g.sum(-1, keepdim=True)))),
    Misconception(
        "mean", "The weighted upstream gradients are divided by the number of keys. The weights "
        "add up to 1 already, so their weighted sum is the average.",
        lambda w, g: w * (g - (w * g).mean(-1, keepdim=True))),
    Misconception(
        "outer_weight", "The factor in front of the bracket of equation (3.1), the weight itself, "
        "is missing.", lambda w, g: g - (w * g).sum(-1, keepdim=True)),
    Misconception(
        "axis", "Your sum runs over another axis than the keys, or over all of them: rows are "
        "mixed that have nothing to do with each other.",
        (*(functools.partial(backward, axis=axis) for axis in (-2, 0, 1)),
         lambda w, g: w * (g - (w * g).sum()))),
    Misconception(
        "softmax_again", "You took the softmax of the weights: what is given has been through it "
        "already.", lambda w, g: backward(w.softmax(-1), g)),
)  # fmt: skip

softmax_backward = Checker(
    name="softmax_backward",
    number="3.6",
    component="softmax",
    right=backward,
    reread="Why a scale",
    inputs=("weights", "upstream"),
    misconceptions=BACKWARD_MISTAKES,
    cases=(
        Case("weights (B, L_q, L_k)", lambda draw: given(draw, 2, 3, 5)),
        Case("a square of weights", lambda draw: given(draw, 4, 4)),
        Case("a single row", lambda draw: given(draw, 6)),
        Case("a decided row, and weights of exactly 0", decided),
    ),
)  # fmt: skip
