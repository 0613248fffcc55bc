"""Checks of chapter 04: masks for padding and for the future, the masked softmax."""

import functools
import math

import torch

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import as_function
from encoder_lib.checks.report import Misconception

__all__ = ["additive_mask", "causal_mask", "left_keep_mask", "masked_softmax"]


def other_dtype(evidence):
    """The truth values are right, but they are numbers."""
    return all(t.got.dtype != t.want.dtype and torch.equal(t.got != 0, t.want)
               and bool(((t.got == 0) | (t.got == 1)).all()) for t in evidence.trials)  # fmt: skip


NOT_BOOL = Misconception(
    "not_bool", "The entries are right, but they are numbers instead of True and False. In front "
    "of an integer, `~` turns bits around, and a float mask is added to the scores.",
    signs=other_dtype, reread="Three conventions, one table")  # fmt: skip


# --- padding on the left --------------------------------------------------------------------------


def on_the_left(lengths, max_len, shift=0):
    """keep_mask (B, L) of rows that end at the last place; ``shift`` moves where they begin."""
    return torch.arange(max_len) >= max_len - lengths[:, None] + shift


def on_the_right(lengths, max_len):
    """keep_mask (B, L) of rows that begin at place 0."""
    return torch.arange(max_len) < lengths[:, None]


def as_long_as_the_longest(evidence):
    """Another last axis: the longest row counts instead of max_len."""
    return all(t.got.shape[-1] == t.args[0].max() for t in evidence.trials) and any(
        t.got.shape != t.want.shape for t in evidence.trials)  # fmt: skip


def lengths_of(draw, *lengths):
    """The lengths in random order, (B,) int64."""
    return torch.tensor(lengths)[draw.permutation(len(lengths))]


left_keep_mask = Checker(
    name="left_keep_mask",
    number="4.2",
    component="masks",
    right=on_the_left,
    reread="Which tokens are real?",
    inputs=("lengths", "max_len"),
    misconceptions=(
        Misconception(
            "right_side", "This is the mask of rows that are padded on the right: the first places "
            "are real. Here a row of n tokens fills the last n places.", on_the_right),
        Misconception(
            "inverted", "True stands at the padding; in this book True = real token.",
            (lambda n, length: ~on_the_left(n, length), lambda n, length: ~on_the_right(n, length)),
            reread="Three conventions, one table"),
        Misconception(
            "off_by_one", "The border is off by one: every row has one real token too many or too "
            "few. Try a row of length 0, and one of the full length.",
            tuple(functools.partial(on_the_left, shift=shift) for shift in (-1, 1))),
        Misconception(
            "rows_flipped", "The whole tensor was turned around, the rows, too: the first sentence "
            "has the mask of the last.", lambda n, length: on_the_left(n, length).flip(0)),
        Misconception(
            "transposed", "The axes are exchanged: a keep_mask is (B, L), a row for each sentence.",
            lambda n, length: on_the_left(n, length).T),
        Misconception(
            "longest", "The mask is as long as the longest row. A batch may be filled up further "
            "than that: the length is max_len.", signs=as_long_as_the_longest),
        NOT_BOOL,
    ),
    cases=(
        Case("rows of different lengths, a full and an empty one among them",
             lambda draw: (lengths_of(draw, 6, 4, 1, 0), 6)),
        Case("a batch as large as the length", lambda draw: (lengths_of(draw, 1, 2, 4, 3), 4)),
        Case("no row as long as max_len", lambda draw: (lengths_of(draw, 2, 3, 5), 7)),
        Case("a single row", lambda draw: (lengths_of(draw, draw.integer(1, 4)), 5)),
    ),
)  # fmt: skip


# --- masks that are added -------------------------------------------------------------------------


def by_name(attempt, draw):
    """The answer as a function of the name of the dtype, since arguments are compared."""
    f = as_function(attempt)
    return lambda keep, name: f(keep, getattr(torch, name))


def added(keep, name, hidden=-math.inf, inverted=False):
    """0 at real tokens, ``hidden`` at padding, (B, 1, 1, L) of the dtype called ``name``."""
    keep, dtype = keep[:, None, None, :], getattr(torch, name)
    hidden = torch.finfo(dtype).min if hidden == "lowest" else hidden
    lowered = keep if inverted else ~keep
    return torch.zeros(keep.shape, dtype=dtype).masked_fill(lowered, hidden)


def lowest_float32(keep, name):
    """As ``added``, where the lowest float32 number was multiplied: -inf in half precision."""
    return (~keep)[:, None, None, :].to(getattr(torch, name)) * torch.finfo(torch.float32).min


def levels(evidence):
    """(number at real tokens, at padding) in float32; None where it is not one number."""
    trial = next(t for t in evidence.trials if t.args[1] == "float32")
    got, keep = trial.got.reshape(trial.args[0].shape).double(), trial.args[0]  # (B, L)
    found = [got[keep].unique(), got[~keep].unique()]
    return tuple(values.item() if values.numel() == 1 else None for values in found)


def is_bool(evidence):
    """What came is still a mask of truth values."""
    return all(t.got.dtype == torch.bool for t in evidence.answers())


def ignores_dtype(evidence):
    """Another dtype than the one asked for, in some trial."""
    return any(t.got.dtype != t.want.dtype for t in evidence.answers())


def lacks_axes(evidence):
    """One of the axes in between is missing, or both."""
    return all(t.got.dim() < 4 and t.got.numel() == t.want.numel() for t in evidence.answers())


def infinite_times_zero(evidence):
    """NaN at the real tokens, which is what 0 times infinity gives."""
    trial = next(t for t in evidence.trials if t.args[1] == "float32")
    return bool(trial.got.reshape(trial.args[0].shape)[trial.args[0]].isnan().all())


def hides_real(evidence):
    """Padding is 0, real tokens are not."""
    real, hidden = levels(evidence)
    return hidden == 0 and real not in (0, None)


def lowers(evidence, least, most):
    """Real tokens are 0, padding is one number between least and most."""
    real, hidden = levels(evidence)
    return real == 0 and least < hidden <= most


LOWEST = torch.finfo(torch.float32).min
ADDED_MISTAKES = (
    Misconception(
        "still_bool", "What came back is a bool tensor. It is to be added to the scores: numbers "
        "of the given dtype, 0 where nothing is hidden.", signs=is_bool),
    Misconception(
        "zero_one", "Real tokens have 1 and padding 0. Added to the scores, that raises the real "
        "ones by 1 and hides nothing.", signs=lambda e: levels(e) == (1, 0),
        reread="Three conventions, one table"),
    Misconception(
        "inverted", "Your mask hides the real tokens and leaves the padding: True = real token, "
        "and what is real gets 0.", signs=hides_real, reread="Three conventions, one table"),
    Misconception(
        "positive", "Padding is raised instead of lowered: with a mask that is added, what is to "
        "be hidden needs a very negative number.", signs=lambda e: lowers(e, 0, math.inf)),
    Misconception(
        "zero_times_infinity", "At the real tokens there is NaN: 0 times infinity is no number. "
        "Choose between two numbers instead of multiplying.", signs=infinite_times_zero),
    Misconception(
        "small_number", "Padding is lowered by a small number only, so it still gets some weight, "
        "the more the larger its score.", signs=lambda e: lowers(e, -1000, -1e-9)),
    Misconception(
        "minus_1e9", "You hide with a number of your own choice, such as -1e9. It does not exist "
        "in every dtype: float16 ends at -65504. There are two numbers that all dtypes have.",
        signs=lambda e: lowers(e, LOWEST, -1000)),
    Misconception(
        "dtype_ignored", "The mask does not have the dtype that was asked for. Added to scores in "
        "half precision, a float32 mask would turn them into float32.", signs=ignores_dtype),
    Misconception(
        "axes", "The axes in between are missing. Scores are (B, H, L_q, L_k) and broadcasting "
        "aligns from the right, so that without them B is taken for the queries, or for the heads.",
        signs=lacks_axes, reread="Shapes that fit by accident"),
)  # fmt: skip

additive_mask = Checker(
    name="additive_mask",
    number="4.3",
    component="masks",
    right=added,
    reread="Five ways",
    inputs=("keep_mask", "dtype"),
    adapt=by_name,
    variants=(
        ("finfo.min hides as well, but a row of padding only gives the average of the padding, and "
         "two such masks added to each other overflow", functools.partial(added, hidden="lowest")),
        ("the lowest number of float32 hides as well; it becomes -inf in half precision",
         lowest_float32),
    ),
    misconceptions=ADDED_MISTAKES,
    cases=tuple(
        Case(f"{name}, padding of three lengths",
             lambda draw, name=name: (draw.keep(lengths_of(draw, 5, 3, 1).tolist(), 5), name))
        for name in ("float32", "float64", "bfloat16", "float16")
    ),
)  # fmt: skip


# --- the future -----------------------------------------------------------------------------------


def causal(keep, upper=False, diagonal=0, past=True, real="keys"):
    """(B, 1, L, L) for keep (B, L): which keys of the triangle each query may attend to."""
    square = torch.ones(keep.size(1), keep.size(1), dtype=torch.bool)  # (L, L)
    triangle = square.triu(diagonal) if upper else square.tril(diagonal)
    allowed = (triangle if past else square).expand(keep.size(0), 1, -1, -1)
    if "keys" in real:
        allowed = allowed & keep[:, None, None, :]
    if "queries" in real:
        allowed = allowed & keep[:, None, :, None]
    return allowed


def without_heads(evidence):
    """The shape (B, L, L), or without the batch."""
    return all(t.got.dim() < 4 and t.got.shape[-2:] == t.want.shape[-2:] for t in evidence.trials)


causal_mask = Checker(
    name="causal_mask",
    number="4.4",
    component="masks",
    right=causal,
    reread="The finished functions",
    inputs=("keep_mask",),
    misconceptions=(
        Misconception(
            "future", "Your mask shows the future and hides the past. In nn.MultiheadAttention the "
            "upper triangle says what to *ignore*; here True = attend.",
            tuple(functools.partial(causal, upper=True, diagonal=d, real=real)
                  for d in (0, 1) for real in ("keys", "")),
            reread="Three conventions, one table"),
        Misconception(
            "inverted", "The whole mask is inverted: here True = attend.",
            (lambda keep: ~causal(keep), lambda keep: causal(keep, upper=True, diagonal=1)
             | ~keep[:, None, None, :]), reread="Three conventions, one table"),
        Misconception(
            "strict", "No token may attend to itself, and the first one to nobody at all. The "
            "diagonal belongs to what is allowed.",
            tuple(functools.partial(causal, diagonal=-1, real=real) for real in ("keys", ""))),
        Misconception(
            "one_ahead", "Each token sees one token of the future: the diagonal is one too high.",
            functools.partial(causal, diagonal=1)),
        Misconception(
            "or", "A key is allowed if it is real *or* not in the future. It has to be both.",
            lambda keep: causal(keep, real="") | keep[:, None, None, :]),
        Misconception(
            "padding_ignored", "The future is hidden, the padding is not.",
            functools.partial(causal, real="")),
        Misconception(
            "future_ignored", "The padding is hidden, the future is not.",
            functools.partial(causal, past=False)),
        Misconception(
            "queries_instead", "The rows of the padding are hidden (queries) instead of its "
            "columns (keys): every real token may still attend to padding.",
            (functools.partial(causal, real="queries"),),
            reread="Keys are hidden, queries are not"),
        Misconception(
            "queries_too", "You hid the rows of the padding as well. Then padded queries have no "
            "key, which a softmax by hand turns into NaN; a mask hides keys only.",
            functools.partial(causal, real="keys, queries"),
            reread="Break it: hide the queries as well"),
        Misconception(
            "axes", "An axis is missing: scores are (B, H, L_q, L_k), and with a mask (B, L_q, "
            "L_k) the sentences of the batch are taken for heads.", signs=without_heads,
            reread="Shapes that fit by accident"),
        NOT_BOOL,
    ),
    cases=(
        Case("padding of three lengths",
             lambda draw: (draw.keep(lengths_of(draw, 5, 3, 2).tolist(), 5),)),
        Case("a batch as large as the length",
             lambda draw: (draw.keep(lengths_of(draw, 4, 3, 2, 1).tolist(), 4),)),
        Case("no padding", lambda draw: (draw.keep([4, 4], 4),)),
        Case("padding anywhere", lambda draw: (draw.permutation(6)[None, :] % 2 == 0,)),
    ),
)  # fmt: skip


# --- the masked softmax ---------------------------------------------------------------------------


def masked(scores, mask):
    """Weights (..., L_q, L_k); zeros for a query without any key, with finite gradients."""
    empty = ~mask.any(-1, keepdim=True)
    return scores.masked_fill(~(mask | empty), -math.inf).softmax(-1).masked_fill(empty, 0.0)


def filled(scores, mask, value=-math.inf, axis=-1, clean=False, turned=False, inverted=False):
    """The softmax of scores with ``value`` at what is hidden, right or in some way wrong."""
    mask = mask.expand(scores.shape)
    mask = mask.transpose(-2, -1) if turned else mask
    weights = scores.masked_fill(mask if inverted else ~mask, value).softmax(axis)
    return weights.nan_to_num(0.0) if clean else weights


def ways(**options):
    """``filled`` with three ways to treat empty rows: NaN, zeros, equal shares."""
    return tuple(functools.partial(filled, **options, **more)
                 for more in ({}, {"clean": True}, {"value": -1e9}))  # fmt: skip


def lowered(by, how="added", clean=False):
    """The softmax in which hidden scores are lowered by a number, or set to it, as a function."""

    def form(scores, mask):
        low = scores.masked_fill(~mask, -by) if how == "filled" else scores - by * ~mask
        weights = low.softmax(-1)
        return weights * mask.any(-1, keepdim=True) if clean else weights

    return form


def small_numbers():
    """``lowered`` by numbers of several sizes, with empty rows left as they are or set to 0."""
    sizes = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    return tuple(lowered(by, how, clean) for by in sizes for how in ("added", "filled")
                 for clean in (False, True))  # fmt: skip


def parts_right(evidence):
    """(ordinary trials right, rows with a key right everywhere, what came in the empty rows)."""
    right, everywhere, empty = True, True, []
    for trial in evidence.trials:
        some = trial.args[1].expand(trial.want.shape).any(-1)  # (..., L_q)
        same = torch.allclose(trial.got[some], trial.want[some], atol=1e-5)
        everywhere = everywhere and same
        right = right and (same or trial.case.name == STEEP)
        empty.append(trial.got[~some])
    return right, everywhere, torch.cat([rows.flatten() for rows in empty])


def empty_rows_uniform(evidence):
    """Rows with a key are right, those without one share 1."""
    _, everywhere, empty = parts_right(evidence)
    return everywhere and bool(((empty > 0.01) & (empty < 0.9)).all())


def empty_rows_nan(evidence):
    """Rows with a key are right, those without one are NaN."""
    _, everywhere, empty = parts_right(evidence)
    return everywhere and bool(empty.isnan().all())


def fails_if_steep(evidence):
    """Right where no hidden key has a far larger score."""
    right, everywhere, _ = parts_right(evidence)
    return right and not everywhere


def some_empty(draw):
    """Scores (4, 5) and a mask (4, 5) of which two rows hide everything."""
    mask = draw.normal(4, 5) > 0
    mask[draw.permutation(4)[:2]] = False
    keep = torch.eye(4, 5, dtype=torch.bool) & mask.any(-1, keepdim=True)
    return 2 * draw.normal(4, 5), mask | keep


def padded(draw):
    """Scores (B, H, L, L) and a mask (B, 1, 1, L), one sentence of nothing but padding."""
    return 2 * draw.normal(3, 2, 4, 4), draw.keep([4, 2, 0], 4)[:, None, None, :]


def steep(draw):
    """Scores (3, 5) near -70, of which a hidden one is larger by 200."""
    scores, mask = draw.normal(3, 5), torch.ones(3, 5, dtype=torch.bool)
    place = draw.integers(0, 5, 3)
    mask[torch.arange(3), place] = False
    return scores + 200.0 * ~mask - 70.0, mask


STEEP = "hidden keys with far larger scores than all others"
MASKED_MISTAKES = (
    Misconception(
        "nan_rows", "Right, except where a query may attend to nothing: all scores are -inf there, "
        "and the softmax of that is 0/0, NaN. Those rows should be 0.",
        signs=empty_rows_nan, reread="A row of nothing but padding"),
    Misconception(
        "uniform_rows", "Right, except where a query may attend to nothing: all its scores are "
        "equally low, so it gets equal shares of what was hidden. Those rows should be 0.",
        signs=empty_rows_uniform, reread="A row of nothing but padding"),
    Misconception(
        "inverted", "The mask is inverted: what was to be hidden got everything. True = attend.",
        ways(inverted=True), reread="Three conventions, one table"),
    Misconception(
        "ignored", "The mask is not used: forbidden keys keep their weight.",
        lambda scores, mask: scores.softmax(-1), reread="Where does the mask go?"),
    Misconception(
        "zero_before", "Forbidden scores are 0 before the softmax. That is an ordinary score: e to "
        "the 0 is 1, so what is hidden still gets weight.",
        (functools.partial(filled, value=0.0), lambda s, m: (s * m).softmax(-1),
         lambda s, m: (s * m).softmax(-1) * m.any(-1, keepdim=True))),
    Misconception(
        "after", "The zeros come after the softmax: forbidden keys have weight 0, but they took "
        "their share of the sum before, so that the rows no longer add up to 1.",
        lambda scores, mask: scores.softmax(-1) * mask),
    Misconception(
        "small_number", "Forbidden scores are lowered by a small number, or set to one, and not "
        "ruled out, so they may still get weight (or a 0/1 mask was added to the scores).",
        small_numbers()),
    Misconception(
        "not_normalised", "The powers of e are right, and those of forbidden keys are 0, but "
        "nothing makes shares of them: each row should add up to 1.",
        (lambda s, m: s.exp() * m, lambda s, m: s.masked_fill(~m, -math.inf).exp())),
    Misconception(
        "queries", "The mask hides rows (queries) instead of columns (keys).",
        (*ways(turned=True), lambda s, m: s.softmax(-1) * m.expand(s.shape).mT),
        reread="Keys are hidden, queries are not"),
    Misconception(
        "softmax_query", "The mask is right, but the softmax runs over the queries or another axis "
        "counted from the front: rows do not add up to 1. The keys are the last axis.",
        (*ways(axis=-2), *ways(axis=1), *ways(axis=0)), reread="Where does the mask go?"),
    Misconception(
        "too_late", "Right for ordinary scores. But where a forbidden key has a far larger score "
        "than all others, it still takes part, in the softmax or in the largest score, and what is "
        "allowed is rounded to 0 (or becomes 0/0) before the key is taken out.",
        signs=fails_if_steep, reread="Where does the mask go?"),
)  # fmt: skip

masked_softmax = Checker(
    name="masked_softmax",
    number="4.5",
    component="masks",
    right=masked,
    reread="Five ways",
    inputs=("scores", "mask"),
    gradient=(0,),
    misconceptions=MASKED_MISTAKES,
    cases=(
        Case("no query without a key",
             lambda draw: (2 * draw.normal(2, 5, 5), draw.keep([3, 2], 5)[:, None, :])),
        Case("queries that may attend to nothing", some_empty),
        Case("a mask (B, 1, 1, L), one sentence of padding only", padded),
        Case(STEEP, steep),
    ),
)  # fmt: skip
