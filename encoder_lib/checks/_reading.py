"""Checks of chapter 12: the entropy of attention, weights on a neighbour, rollout."""

import functools
import math

import torch

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks.report import Misconception

__all__ = ["attention_entropy", "offset_share", "rollout"]


def padded_weights(draw, heads, lengths, length, sharp=1.5, decided=False):
    """Weights (B, H, L, L) and keep_mask (B, L), True = real; padded keys have weight 0.

    decided: head 0 puts all its weight on one real key, so that others have exactly 0.
    """
    keep = draw.keep(lengths, length)  # (B, L)
    scores = sharp * draw.normal(len(lengths), heads, length, length)
    weights = scores.masked_fill(~keep[:, None, None, :], -torch.inf).softmax(-1)
    if decided:
        best = weights[:, 0].argmax(-1)  # (B, L)
        weights[:, 0] = torch.nn.functional.one_hot(best, length).to(weights.dtype)
    return weights, keep


def single(evidence):
    """One number came where one for each head is asked."""
    return all(isinstance(t.got, float) or isinstance(t.got, torch.Tensor) and t.got.dim() == 0
               for t in evidence.answers()) and bool(evidence.answers())  # fmt: skip


def over_real(rows, keep):
    """The mean over real queries: (B, H, L) and (B, L) give (H,)."""
    return rows.transpose(1, 2)[keep].mean(0)


def text_by_text(rows, keep):
    """The mean of the texts' means: (B, H, L) and (B, L) give (H,)."""
    texts = [row[:, real].mean(-1) for row, real in zip(rows, keep, strict=True)]
    return torch.stack(texts).mean(0)


# --- entropy --------------------------------------------------------------------------------------


def entropy(weights, keep, base=1.0, axis=-1, sign=1.0, over=over_real):
    """The mean entropy in nats of every head (H,), or with one step made otherwise."""
    return sign * over(torch.special.entr(weights).sum(axis) / base, keep)


def with_nan(weights, keep):
    """Log of 0 times 0."""
    return over_real(-(weights * weights.log()).sum(-1), keep)


def as_share(weights, keep):
    """Every row's entropy as a share of the largest possible."""
    most = keep.sum(1).float().log()[:, None, None]  # (B, 1, 1)
    return over_real(torch.special.entr(weights).sum(-1) / most, keep)


def over_keys(weights, keep):
    """The mean over the keys in the place of the sum."""
    return over_real(torch.special.entr(weights).mean(-1), keep)


def of_mean(weights, keep):
    """The entropy of the mean row instead of the mean entropy of the rows."""
    return torch.special.entr(weights.transpose(1, 2)[keep].mean(0)).sum(-1)


attention_entropy = Checker(
    name="attention_entropy",
    number="12.2",
    component="attention maps",
    right=entropy,
    reread="Are deeper layers more global?",
    inputs=("the weights", "keep_mask"),
    tolerance=1e-4,
    dtype=False,
    cases=(
        Case("one text without padding", lambda draw: padded_weights(draw, 3, (5,), 5)),
        Case("padding of three lengths", lambda draw: padded_weights(draw, 2, (6, 4, 2), 6)),
        Case("a head with weights of exactly 0",
             lambda draw: padded_weights(draw, 3, (5, 3), 5, decided=True)),
        Case("batch, heads and length equal", lambda draw: padded_weights(draw, 3, (3, 2, 2), 3)),
    ),
    misconceptions=(
        Misconception("zero_log", "Weights of 0 give NaN: the logarithm of 0 is minus infinity, "
                      "and 0 times that is not 0 for a computer. Every padded key has such a "
                      "weight.", with_nan),
        Misconception("sign", "Your entropy is negative: logarithms of shares are, so the sum "
                      "needs a minus.", functools.partial(entropy, sign=-1.0)),
        Misconception("bits", "You count in bits, with the logarithm to base 2. Asked for are "
                      "nats, the natural logarithm.", functools.partial(entropy, base=math.log(2))),
        Misconception("padding_counted", "The rows of padded queries are averaged, too. They are "
                      "no words: nobody uses what they look at.",
                      functools.partial(entropy, over=lambda rows, keep: rows.mean((0, 2)))),
        Misconception("padding_as_zero", "The rows of padded queries are set to 0 but still "
                      "counted: you divide by all positions instead of by the real ones.",
                      functools.partial(entropy, over=lambda rows, keep:
                                        (rows * keep[:, None]).mean((0, 2)))),
        Misconception("over_queries", "You add up over the queries: columns do not add up to 1, "
                      "and are no shares. A query divides its attention among the keys, the last "
                      "axis.",
                      functools.partial(entropy, axis=-2)),
        Misconception("over_keys", "You average over the keys where entropy is a sum: the result "
                      "shrinks with the length of the batch.", over_keys),
        Misconception("share", "Your numbers are shares of the largest possible entropy, ln n. "
                      "Asked for is the entropy itself, in nats.", as_share),
        Misconception("mean_of_texts", "You take the mean of each text, then the mean of the "
                      "texts: a word of a short text counts more. Asked for is the mean over all "
                      "real queries.",
                      functools.partial(entropy, over=text_by_text)),
        Misconception("of_mean", "You take the entropy of the mean row. Words that look sharply at "
                      "different places give a flat mean, though no row is flat.", of_mean),
        Misconception("one_number", "You average over the heads, too. Heads differ, that is why "
                      "they are looked at: one number for each, (H,).", signs=single),
        Misconception("summed", "You add up over the queries instead of taking the mean, so a "
                      "large batch looks more even.",
                      functools.partial(entropy, over=lambda rows, keep:
                                        rows.transpose(1, 2)[keep].sum(0))),
    ),
)  # fmt: skip


# --- the share of a neighbour ---------------------------------------------------------------------


def pairs(weights, keep, offset):
    """Weights (B, H, n) of query i on key i + offset, and for both (B, n) whether it is real."""
    first, n = max(0, -offset), weights.size(-1) - abs(offset)
    at = weights.diagonal(offset, -2, -1)  # (B, H, n)
    return at, keep[:, first : first + n], keep[:, first + offset : first + offset + n]


def share(weights, keep, offset, over=over_real):
    """The mean weight (H,) of real queries on the real key ``offset`` places away."""
    at, query, key = pairs(weights, keep, offset)
    return over(at, query & key)


def all_pairs(weights, keep, offset):
    """The mean over all pairs, those of the padding, too."""
    return pairs(weights, keep, offset)[0].mean((0, 2))


def queries_only(weights, keep, offset):
    """The mean over pairs with a real query, the key may be padding."""
    at, query, _ = pairs(weights, keep, offset)
    return over_real(at, query)


def per_query(weights, keep, offset):
    """The sum over pairs, divided by the number of all real queries."""
    at, query, key = pairs(weights, keep, offset)
    return at.transpose(1, 2)[query & key].sum(0) / keep.sum()


def around(weights, keep, offset, checked=False, below=False):
    """Positions beyond an end come in at the other one.

    checked: the key there has to be real; below: only at the beginning, as a negative index does.
    """
    at = torch.arange(weights.size(-1))
    key = (at + offset) % len(at)
    real = keep & keep[:, key] if checked else keep
    inside = (at + offset < len(at)) | (not below)
    return over_real(weights[:, :, at, key], real & inside)


def both_sides(weights, keep, offset):
    """Keys at this distance on either side."""
    here, there = (pairs(weights, keep, way) for way in (offset, -offset))
    at, real = (torch.cat([a, b], -1) for a, b in zip((here[0], here[1] & here[2]),
                (there[0], there[1] & there[2]), strict=True))  # fmt: skip
    return over_real(at, real)


def over_all(weights, keep, offset, squared=False):
    """The sum over pairs, divided by the number of all places, or of all pairs of places."""
    at, query, key = pairs(weights, keep, offset)
    found = at.transpose(1, 2)[query & key].sum(0)
    return found / (keep.numel() * (keep.size(1) if squared else 1))


def neighbours(offset, *sizes):
    """A case: weights with padding, and the offset; sizes as in padded_weights."""
    return lambda draw: (*padded_weights(draw, *sizes), offset)


offset_share = Checker(
    name="offset_share",
    number="12.3",
    component="attention maps",
    right=share,
    reread="Find heads by measure",
    inputs=("the weights", "keep_mask", "offset"),
    dtype=False,
    cases=(
        Case("the token before, no padding", neighbours(-1, 3, (5,), 5)),
        Case("the token before, with padding", neighbours(-1, 2, (6, 4, 2), 6)),
        Case("the token after, with padding", neighbours(1, 2, (6, 4, 3), 6)),
        Case("two places before, and a text of two tokens", neighbours(-2, 3, (5, 4, 2), 5)),
        Case("the token itself", neighbours(0, 2, (4, 2), 4)),
    ),
    misconceptions=(
        Misconception("itself", "Your numbers are the same for every offset, those of the "
                      "diagonal: how much a token looks at itself.",
                      lambda weights, keep, offset: share(weights, keep, 0)),
        Misconception("wrong_sign", "You look at the other side: rows are queries, columns are "
                      "keys, and offset -1 is the key in front of the query.",
                      lambda weights, keep, offset: share(weights, keep, -offset)),
        Misconception("around", "You go round the end: the first token has no token before it, and "
                      "your code takes the last one. Does a roll or a negative index do "
                      "that?", tuple(functools.partial(around, checked=c, below=b)
                                     for c in (False, True) for b in (False, True))),
        Misconception("both_sides", "You look at both sides. An offset has a sign: -1 is the token "
                      "before and not the one behind.", both_sides),
        Misconception("offset_fixed", "Your offset is fixed in the code; it should be the one that "
                      "is handed over.",
                      tuple(lambda w, k, offset, by=by: share(w, k, by) for by in (-1, 1, -2))),
        Misconception("padding_counted", "Pairs of the padding are averaged, too. A pair counts "
                      "when its query and its key are real.", all_pairs),
        Misconception("key_unchecked", "You ask whether the query is real, but not whether the key "
                      "is: the last word looks at padding with weight 0, and pulls the mean "
                      "down.", queries_only),
        Misconception("edges_counted", "You divide by all real queries. Those at the edge have no "
                      "token there and cannot look at it; they do not count.",
                      (per_query, over_all, functools.partial(over_all, squared=True))),
        Misconception("mean_of_texts", "You take the mean of each text, then the mean of the "
                      "texts: a pair of a short text counts more. Asked for is the mean over all "
                      "pairs.",
                      (functools.partial(share, over=text_by_text),
                       functools.partial(share, over=lambda rows, real: torch.stack(
                           [row[:, r].mean(-1) for row, r in zip(rows, real, strict=True)
                            if r.any()]).mean(0)))),
        Misconception("one_number", "You average over the heads, too: one number for each was "
                      "asked, (H,). The head that looks back is lost in the mean.", signs=single),
        Misconception("summed", "You add up the weights instead of taking their mean: the result "
                      "grows with the number of texts.",
                      functools.partial(share, over=lambda rows, real:
                                        rows.transpose(1, 2)[real].sum(0))),
    ),
)  # fmt: skip


# --- rollout --------------------------------------------------------------------------------------


def roll(weights, kept, mix=lambda a, eye, kept: kept * eye + (1 - kept) * a,
         heads=lambda w: w.mean(1), join=lambda a, total: a @ total):  # fmt: skip
    """Rollout (B, L, L) of N weights (B, H, L, L), or with one step made otherwise."""
    total = None
    for w in weights:
        a = heads(w)
        a = mix(a, torch.eye(a.size(-1)), kept)
        total = a if total is None else join(a, total)
    return total


def mean_of_layers(weights, kept):
    """The mean of the mixed maps instead of their product."""
    return roll(weights, kept, join=lambda a, total: a + total) / len(weights)


def mean_of_maps(weights, kept):
    """The mean of the maps themselves."""
    return mean_of_layers(weights, 0.0)


def mixed_at_the_end(weights, kept):
    """The plain product, with the identity mixed in once."""
    total = roll(weights, 0.0)
    return kept * torch.eye(total.size(-1)) + (1 - kept) * total


def first_plain(weights, kept):
    """The first layer without its residual connection."""
    rest = roll(weights[1:], kept) if len(weights) > 1 else torch.eye(weights[0].size(-1))
    return rest @ weights[0].mean(1)


def rescaled(a, eye, kept):
    """The identity added, and rows brought to 1: always half of each."""
    return (a + eye) / 2


def layers(n, batch, heads, length, kept):
    """A case: n layers of weights (B, H, L, L), and the share of the residual connection."""
    return lambda draw: ([padded_weights(draw, heads, (length,) * batch, length)[0]
                          for _ in range(n)], kept)  # fmt: skip


rollout = Checker(
    name="rollout",
    number="12.6",
    component="attention maps",
    right=roll,
    reread="Rollout, and a judge",
    inputs=("the weights", "kept"),
    dtype=False,
    cases=(
        Case("three layers, half of each from the residual connection", layers(3, 1, 2, 4, 0.5)),
        Case("several texts, a share of 0.8", layers(3, 2, 3, 5, 0.8)),
        Case("two layers, a share of 0.2", layers(2, 2, 2, 4, 0.2)),
        Case("one layer", layers(1, 2, 3, 3, 0.7)),
        Case("texts, heads and length equal", layers(4, 3, 3, 3, 0.4)),
    ),
    misconceptions=(
        Misconception("no_identity", "The residual connection is missing: you multiply the maps as "
                      "they are, as if a token's own vector did not go past attention.",
                      functools.partial(roll, mix=lambda a, eye, kept: a)),
        Misconception("not_a_share", "You add the identity to the map without dividing: the rows "
                      "add up to 2, after N layers to 2 to the power of N.",
                      functools.partial(roll, mix=lambda a, eye, kept: a + eye)),
        Misconception("not_lessened", "You add `kept` times the identity, but the map keeps its "
                      "full weight: it should have what is left, 1 - kept.",
                      (functools.partial(roll, mix=lambda a, eye, kept: a + kept * eye),
                       functools.partial(roll, mix=lambda a, eye, kept:
                                         (a + kept * eye) / (1 + kept)))),
        Misconception("mixed_once", "The residual connection comes in once for all layers. Each "
                      "layer has its own.", (mixed_at_the_end, first_plain)),
        Misconception("transposed", "Rows and columns are exchanged: a row belongs to an output "
                      "and says where it comes from.",
                      lambda weights, kept: roll(weights, kept).mT),
        Misconception("always_half", "Half of each layer comes from the residual connection, "
                      "whatever share you are given.", functools.partial(roll, mix=rescaled)),
        Misconception("shares_exchanged", "The shares are exchanged: `kept` is what goes past "
                      "attention, the rest goes through it.",
                      lambda weights, kept: roll(weights, 1 - kept)),
        Misconception("reversed", "Your layers are multiplied in the other order. A row of the "
                      "result belongs to an output, a column to an input: where does the first "
                      "layer stand?",
                      functools.partial(roll, join=lambda a, total: total @ a)),
        Misconception("elementwise", "You multiply entry by entry. A way from a token to another "
                      "leads through any token in between: that needs the matrix product.",
                      functools.partial(roll, join=lambda a, total: a * total)),
        Misconception("mean_of_layers", "You average the layers instead of multiplying them: what "
                      "the second layer reads is a mixture already.",
                      (mean_of_layers, mean_of_maps)),
        Misconception("last_layer", "Only the last layer is left: is the product overwritten in "
                      "every round?", functools.partial(roll, join=lambda a, total: a)),
        Misconception("heads_summed", "You add up the heads: H heads give rows that add up to H. "
                      "It should be their mean.",
                      functools.partial(roll, heads=lambda w: w.sum(1))),
        Misconception("per_head", "You roll out each head on its own. Layers hand on one vector "
                      "for all heads, so head 1 of a layer does not read head 1 of the layer "
                      "before.",
                      (functools.partial(roll, heads=lambda w: w),
                       lambda weights, kept: roll(weights, kept, heads=lambda w: w).mean(1))),
        Misconception("largest_head", "You take the largest weight of any head. Rows of that do "
                      "not add up to 1.", functools.partial(roll, heads=lambda w: w.amax(1))),
    ),
)  # fmt: skip
