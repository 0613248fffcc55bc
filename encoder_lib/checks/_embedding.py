"""Checks of chapter 01: padding a batch, the embedding as a product, its scale."""

import math

import torch
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._start import one_or_two

__all__ = ["embedding_by_product", "pad_batch", "scaled_embedding"]


# --- padding --------------------------------------------------------------------------------------


def cut_row(row, max_len, cut):
    """A row as long as it may be, or what a wrong step leaves of it."""
    if cut == "refused" and len(row) > max_len:
        raise ValueError("a row is too long")
    return {"first": row[:max_len], "last": row[-max_len:], "one less": row[: max_len - 1],
            "one more": row[: max_len + 1]}.get(cut, row)  # fmt: skip


def padded(rows, pad_id, max_len, cut="first", width="longest", side="right", fill="pad_id"):
    """ids (B, L) int64 of rows cut to ``max_len``; L is the length of the longest row left."""
    rows = [cut_row(row, max_len, cut) for row in rows]
    lengths = [len(row) for row in rows]
    length = {"longest": max(lengths), "shortest": min(lengths), "one more": max(lengths) + 1,
              "max_len": max(max_len, *lengths)}[width]  # fmt: skip
    value = {"pad_id": pad_id, "zero": 0, "minus one": -1}[fill]
    filled = []
    for row in rows:
        gap = [value] * (length - len(row))
        filled.append(gap + row[:length] if side == "left" else row[:length] + gap)
    return torch.tensor(filled)


PADDINGS = (
    ("pads_left", "Your rows are filled up at the front. In this book a sentence begins at "
     "position 0 and the padding stands behind it.", (dict(side="left"),)),
    ("cut_to_shortest", "All rows are cut to the shortest one: words are lost. The longest row "
     "decides how wide the batch is.", (dict(width="shortest"),)),
    ("always_max_len", "Your batch is always as wide as max_len. That is only the limit: where "
     "all rows are shorter, the longest one decides.",
     (dict(width="max_len"), dict(width="max_len", cut="refused"))),
    ("off_by_one", "Your batch is one column too wide or too narrow: some length is off by one.",
     (dict(width="one more"), dict(cut="one less"), dict(cut="one more"))),
    ("cut_at_front", "Rows that are too long lose their first tokens instead of their last ones.",
     (dict(cut="last"),)),
    ("not_cut", "Rows longer than max_len are not cut: they stay as long as they are, or there "
     "is an error.", (dict(cut="not"), dict(cut="refused"))),
    ("pad_id_ignored", "The padding is filled with a number of your own (0 or -1) instead of "
     "pad_id. Where another id is the padding, 0 is a word.",
     (dict(fill="zero"), dict(fill="minus one"))),
)  # fmt: skip


def rows_of(draw, lengths, low=0):
    """A list of rows of the given lengths, ids from ``low`` to 49, in random order."""
    lengths = [lengths[i] for i in draw.permutation(len(lengths)).tolist()]
    return [draw.integers(low, 50, n).tolist() for n in lengths]


pad_batch = Checker(
    name="pad_batch",
    number="1.2",
    component="the input embedding",
    right=padded,
    reread="A batch needs rows of equal length",
    inputs=("rows", "pad_id", "max_len"),
    misconceptions=one_or_two(padded, PADDINGS),
    cases=(
        Case("rows of three lengths", lambda draw: (rows_of(draw, (6, 4, 2), 1), 0, 9)),
        Case("another pad_id, while 0 is a word",
             lambda draw: (rows_of(draw, (5, 3, 1)), draw.integer(50, 60), 8)),
        Case("two rows longer than max_len", lambda draw: (rows_of(draw, (9, 7, 2), 1), 0, 5)),
        Case("rows just as long as max_len", lambda draw: (rows_of(draw, (4, 4, 3), 1), 0, 4)),
        Case("one row alone", lambda draw: (rows_of(draw, (draw.integer(3, 7),), 1), 0, 8)),
    ),
)  # fmt: skip


# --- the embedding as a product -------------------------------------------------------------------


def by_product(ids, weight, classes="all", real="as weight", turned=False, row="own", zeroed=False,
               over=""):  # fmt: skip
    """One-hot rows times weight, ids (B, L), weight (V, D) -> (B, L, D), or what is wrong."""
    n = {"all": weight.size(0), "seen": int(ids.max()) + 1}[classes]
    picked = {"own": ids, "from 1": ids - 1, "before": (ids - 1) % n, "after": (ids + 1) % n,
              "next": ids + 1}[row]  # fmt: skip
    if row == "next" and picked.max() >= n:
        raise IndexError("no such row")
    one_hot = picked[..., None] == torch.arange(n)  # (B, L, V)
    one_hot = one_hot & (ids != 0)[..., None] if zeroed else one_hot
    one_hot = one_hot.to(torch.float32 if real == "float" else weight.dtype)
    x = one_hot @ (weight.T if turned else weight)
    return {"": lambda: x, "sum": lambda: x.sum(1), "mean": lambda: x.mean(1)}[over]()


def looked_up(ids, weight):
    """The right rows, (B, L, D)."""
    return F.embedding(ids, weight)


PRODUCTS = (
    ("classes_from_ids", "The one-hot rows are only as wide as the ids of this batch need. Their "
     "width is the size of the vocabulary: the product must work for a batch without rare words, "
     "too.", (dict(classes="seen"),)),
    ("float32_only", "The one-hot rows are always float32, so a table of another dtype is "
     "refused. They should have the dtype of the table.", (dict(real="float"),)),
    ("transposed", "The table is transposed in your product. Its rows belong to the ids; where "
     "there happen to be as many ids as dimensions, that gives wrong numbers instead of an "
     "error.", (dict(turned=True),)),
    ("off_by_one", "Every token gets the row of a neighbour: your ids are counted from 1, or "
     "shifted by one. Ids count from 0.",
     (dict(row="from 1"), dict(row="before"), dict(row="after"), dict(row="next"))),
    ("padding_zeroed", "Id 0 gives zeros. Here it is an id like all others: the product picks "
     "row 0 of the table, whatever stands in it.", (dict(zeroed=True),)),
    ("summed_over_tokens", "The tokens of a sentence are added up or averaged: one vector per "
     "sentence came back. Every token should keep a row of its own.",
     (dict(over="sum"), dict(over="mean"))),
)  # fmt: skip


def some_ids(draw, size, highest=True):
    """ids (2, 4) below ``size``, one of them three times, 0 among them, the highest if wanted."""
    often = draw.integer(1, size - 2)
    ids = [often, often, often, 0, *draw.integers(0, size - 2, 3).tolist()]
    ids = torch.tensor([*ids, size - 1 if highest else 1])
    return ids[draw.permutation(8)].view(2, 4)


embedding_by_product = Checker(
    name="embedding_by_product",
    number="1.3",
    component="the input embedding",
    right=looked_up,
    reread="From ids to vectors",
    inputs=("ids", "weight"),
    gradient=(1,),
    misconceptions=one_or_two(by_product, PRODUCTS),
    cases=(
        Case("all ids from 0 to V - 1 may occur, one of them three times",
             lambda draw: (some_ids(draw, 9), draw.normal(9, 6))),
        Case("a batch without the last id",
             lambda draw: (some_ids(draw, 9, highest=False), draw.normal(9, 5))),
        Case("as many ids as dimensions", lambda draw: (some_ids(draw, 7), draw.normal(7, 7))),
        Case("a table in float64",
             lambda draw: (some_ids(draw, 8), draw.normal(8, 3, dtype=torch.float64))),
    ),
)  # fmt: skip


# --- the scale ------------------------------------------------------------------------------------


def scaled(ids, weight, pad_id, factor="root D", zero="padding"):
    """Rows of weight (V, D) times sqrt(D), zeros at the padding: ids (B, L) -> (B, L, D)."""
    (v, d), length = weight.shape, ids.size(1)
    x = weight[ids] * {
        "root D": math.sqrt(d), "none": 1.0, "divided": 1 / math.sqrt(d), "D": float(d),
        "root V": math.sqrt(v), "root L": math.sqrt(length),
    }[factor]  # fmt: skip
    if zero == "nothing":
        return x
    if zero == "axis":  # a mask (B, L) meets (B, L, D)
        return x * (ids != pad_id)
    hidden = {"padding": ids == pad_id, "id 0": ids == 0, "real": ids != pad_id}[zero]  # (B, L)
    return torch.where(hidden[..., None], 0.0, x)


SCALES = (
    ("not_scaled", "The rows are not scaled: the factor is missing, so tokens drawn from N(0, "
     "1/D) stay far quieter than the positions.", (dict(factor="none"),)),
    ("divided", "The rows are divided by the root of D. The factor is there to raise the tokens: "
     "they are multiplied.", (dict(factor="divided"),)),
    ("times_d", "The rows are multiplied by D itself; the factor is its root.",
     (dict(factor="D"),)),
    ("root_of_other_size", "The root of another size is taken: that of the vocabulary or of the "
     "sentence. What counts is the number of dimensions of a row.",
     (dict(factor="root V"), dict(factor="root L"))),
    ("padding_not_zero", "Padding is not zero: it gets what stands in its row of the table. That "
     "row may hold anything; it is zero only if somebody sets it to zero.",
     (dict(zero="nothing"),)),
    ("id_0_zeroed", "Id 0 is set to zero, whatever pad_id says. Where another id is the padding, "
     "0 is a word.", (dict(zero="id 0"),)),
    ("inverted", "It is the other way round: real tokens became zero, and the padding kept its "
     "row.", (dict(zero="real"),)),
    ("mask_axis", "The mask (B, L) is multiplied with rows (B, L, D) without an axis of its own "
     "for D. Mostly that is an error; where the sizes happen to agree it zeroes the wrong "
     "numbers.", (dict(zero="axis"),)),
)  # fmt: skip


def padded_ids(draw, vocabulary, pad_id, lengths, length):
    """ids (B, L): random words, among them 0 where that is a word, then padding."""
    words = draw.integers(0, vocabulary - 1, len(lengths), length)
    words = torch.where(words >= pad_id, words + 1, words)  # every id but pad_id
    words[0, 0] = 0 if pad_id else 1
    return torch.where(draw.keep(lengths, length), words, pad_id)


scaled_embedding = Checker(
    name="scaled_embedding",
    number="1.5",
    component="the input embedding",
    right=scaled,
    reread="How loud should a token be?",
    inputs=("ids", "weight", "pad_id"),
    gradient=(1,),
    misconceptions=one_or_two(scaled, SCALES),
    cases=(
        Case("padding of two lengths, a table whose padding row is not zero",
             lambda draw: (padded_ids(draw, 11, 0, (4, 2), 4), draw.normal(11, 6), 0)),
        Case("another pad_id, while 0 is a word",
             lambda draw: (padded_ids(draw, 12, 5, (5, 3, 1), 5), draw.normal(12, 8), 5)),
        Case("batch, length and width equal, so that a wrong broadcast would not be an error",
             lambda draw: (padded_ids(draw, 9, 0, (3, 2, 1), 3), draw.normal(9, 3), 0)),
        Case("a batch without padding, in float64",
             lambda draw: (padded_ids(draw, 10, 0, (4, 4), 4),
                           draw.normal(10, 7, dtype=torch.float64), 0)),
    ),
)  # fmt: skip
