"""Attention with one step or several done wrongly, to recognise an answer by what it computes."""

import math
from dataclasses import dataclass, replace

import torch

ADDED = (0.5, *map(float, range(1, 13)), 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)


@dataclass(frozen=True)
class Steps:
    """How each step of attention is done; the defaults are right.

    scale: what the scores are divided by; hide: what the mask does; added: how much a mask that is
    only added lowers the scores, or what it fills in, without its sign; fill: what a softmax over
    hidden scores alone gives (zeros, NaN, or even weights, as with -1e9); weigh: how scores become
    weights; use: how weights meet values.
    """

    scale: str = "root d_k"
    hide: str = "key"
    added: float = 0.0
    fill: str = "zeros"
    weigh: str = "keys"
    use: str = "plain"

    @property
    def without_mask(self):
        """The steps that count where there is no mask."""
        return self if self.hide == "future" else replace(self, hide="key", added=0.0, fill="zeros")


def divisor(q, k, scale, n_heads):
    """What the scores are divided by; q (..., L_q, d_k)."""
    d_k = q.size(-1)
    return {
        "root d_k": math.sqrt(d_k), "none": 1.0, "d_k": d_k, "d_model": d_k * n_heads,
        "root d_model": math.sqrt(d_k * n_heads), "multiplied": 1 / math.sqrt(d_k),
        "root heads": math.sqrt(n_heads), "root length": math.sqrt(k.size(-2)),
    }[scale]  # fmt: skip


def hidden(scores, mask, steps):
    """Scores (..., L_q, L_k) after the mask, True = attend, or what ``steps.hide`` does instead."""
    if steps.hide == "future":
        past = torch.ones_like(scores, dtype=torch.bool).tril()
        mask = past if mask is None else past & mask
    if mask is None or steps.hide in ("ignored", "after softmax"):
        return scores
    full = mask.expand(scores.shape) if mask.dim() == scores.dim() else mask
    ruled_out = -1e9 if steps.fill == "even" else -math.inf
    if steps.hide == "inverted":
        return scores.masked_fill(full, ruled_out)
    if steps.hide == "query":
        return scores.masked_fill(~full.transpose(-2, -1), ruled_out)
    if steps.hide == "zero before softmax":
        return scores.masked_fill(~full, 0.0)
    if steps.hide == "filled":
        return scores.masked_fill(~full, -steps.added)
    if steps.hide == "added":
        return scores - steps.added * ~full
    if steps.hide == "added inverted":
        return scores - steps.added * full
    return scores.masked_fill(~full, ruled_out)


def weighed(scores, weigh, fill="zeros"):
    """Weights (..., L_q, L_k) of the scores; where all scores are hidden, ``fill`` decides."""
    if weigh == "sigmoid":
        return scores.sigmoid()
    if weigh == "no softmax":
        return scores.masked_fill(scores == -math.inf, 0.0)
    if weigh == "relu":
        return scores.relu()
    if weigh == "exp":
        return scores.exp()
    axes = {"queries": -2, "batch": 0, "heads": -3, "axis 1": 1, "axis 2": 2}
    weights = scores.softmax(dim=axes.get(weigh, -1))
    if weigh == "keys, twice":
        weights = weights.softmax(-1)
    return weights.nan_to_num(0.0) if fill == "zeros" else weights


def attend(q, k, v, mask=None, steps=Steps(), n_heads=None):
    """(output, weights) of attention with the given steps; shapes as in the library's function."""
    n_heads = n_heads or (q.size(-3) if q.dim() == 4 else 1)
    scores = q @ k.transpose(-2, -1) / divisor(q, k, steps.scale, n_heads)  # (..., L_q, L_k)
    weights = weighed(hidden(scores, mask, steps), steps.weigh, steps.fill)
    if steps.hide == "after softmax" and mask is not None:
        weights = weights * mask
    turn = steps.use == "transposed" or steps.use == "transposed if square" and q.shape == k.shape
    late = math.sqrt(q.size(-1))
    weights = weights / late if steps.use == "weights scaled" else weights
    used = weights.transpose(-2, -1) if turn else weights
    out = torch.matmul(used, v)
    return (out / late if steps.use == "output scaled" else out, weights)


def filled(*ways):
    """Each of the ways with each kind of fill."""
    return tuple(replace(way, fill=fill) for way in ways for fill in ("zeros", "nan", "even"))


# key, what is said, the steps that make the mistake; more than one set of steps may show one idea.
WRONG_STEPS = (
    ("no_scale", "The scores are not scaled: they have the size of the bare dot products, whose "
     "variance grows with d_k, so the softmax is too sure.", (Steps(scale="none"),)),
    ("scale_dk", "The scores are divided by d_k itself; the scale is its square root.",
     (Steps(scale="d_k"),)),
    ("scale_dmodel", "The scores are scaled by the width of the whole model, d_model, instead of "
     "the width of one head, d_k. With one head the two are the same, with several they are not.",
     (Steps(scale="root d_model"), Steps(scale="d_model"))),
    ("scale_other", "The scores are scaled by another number than d_k gives (multiplied instead of "
     "divided, or the length or the number of heads in its place).",
     (Steps(scale="multiplied"), Steps(scale="root length"), Steps(scale="root heads"))),
    ("scale_late", "The scale comes too late: the weights or the output are divided, while the "
     "scores went into the softmax as large as they were. Rows of weights should add up to 1.",
     (Steps(scale="none", use="weights scaled"), Steps(scale="none", use="output scaled"))),
    ("softmax_query", "Your softmax runs over the queries: the columns of the weights add up to 1, "
     "the rows do not. Each query should hand out one unit of attention over the keys.",
     filled(Steps(weigh="queries"))),
    ("batch_attn", "Your softmax runs over the batch axis: the sentences of a batch share their "
     "weights, so a sentence gets another result when it stands alone.",
     filled(Steps(weigh="batch"))),
    ("softmax_heads", "Your softmax runs over the heads; each head should have weights of its own "
     "that add up to 1 over the keys.", filled(Steps(weigh="heads"))),
    ("softmax_twice", "The softmax was taken twice: the weights are the softmax of what were "
     "weights already, so they are almost equal.", (Steps(weigh="keys, twice"),)),
    ("sigmoid", "The weights of a row do not add up to 1: this looks like a sigmoid of each score "
     "by itself. With the softmax the keys compete.", (Steps(weigh="sigmoid"),)),
    ("no_softmax", "The weights of a row do not add up to 1: the scores are used without a "
     "softmax.",
     (Steps(weigh="no softmax"), Steps(weigh="relu"), Steps(weigh="exp"))),
    ("attn_transposed", "The weights are right but used transposed: each output adds up values "
     "with the weights of a column (who looks at me) instead of a row (whom do I look at).",
     (Steps(use="transposed"), Steps(use="transposed if square"))),
    ("mask_inverted", "The mask looks inverted: real tokens got weight 0, and the forbidden ones "
     "(the padding) got everything. Here True means attend.",
     (*filled(Steps(hide="inverted")),
      *(Steps(hide="added inverted", added=a) for a in ADDED))),
    ("mask_zero_before_softmax", "The mask sets forbidden scores to 0 before the softmax. A score "
     "of 0 is an ordinary score: e to the 0 is 1, so padding still gets weight.",
     (Steps(hide="zero before softmax"),)),
    ("mask_after_softmax", "The mask is applied after the softmax: the weights of the padding are "
     "0, but the rows no longer add up to 1, because padding took its share of the sum before.",
     (Steps(hide="after softmax"),)),
    ("mask_small_neg", "The mask puts a small number into the scores or adds one to them, instead "
     "of ruling the key out, so padding still gets some weight (much of it, if its scores are "
     "larger). Was a 0/1 mask added, or a number of too small a size?",
     (*(Steps(hide="added", added=a) for a in (*ADDED, -1.0)),
      *(Steps(hide="filled", added=a) for a in ADDED))),
    ("mask_future", "The future is hidden: each query attends to itself and to what comes before. "
     "An encoder reads in both directions; only what the mask forbids is hidden.",
     (Steps(hide="future"),)),
    ("mask_ignored", "The mask is ignored: forbidden keys (the padding) keep the weight that they "
     "have without a mask.", (Steps(hide="ignored"),)),
    ("mask_query", "The mask hides queries (rows) instead of keys (columns): the rows of the "
     "padding changed, but every real token still looks at the padding.",
     filled(Steps(hide="query"))),
)  # fmt: skip


def wrong_pairs():
    """(key, text, key, text, steps) of two mistakes at once, each from another kind of step."""
    ways = [(key, text, way) for key, text, group in WRONG_STEPS for way in group]
    for i, (key, text, first) in enumerate(ways):
        for other, also, second in ways[i + 1 :]:
            mine, theirs = changed(first), changed(second)
            if not mine.keys() & theirs.keys():
                yield key, text, other, also, replace(Steps(), **mine, **theirs)


def changed(steps):
    """The fields in which steps are not right."""
    return {name: value for name, value in vars(steps).items() if value != getattr(Steps(), name)}


def said(wanted):
    """What is said about the mistake with this key."""
    return next(text for key, text, _ in WRONG_STEPS if key == wanted)
