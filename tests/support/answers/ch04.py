"""Answers to the exercises of chapter 04."""

import math

import torch
from torch.nn import functional as F

from answers import right, wrong

WRONG_VALUES = {
    "4.1": {
        "no_mask": 3 / 8, "hidden": 0, "inverted": 1, "zeros_raised": 0.62, "one_padding": 0.0603,
        "real": 0.819, "chapter": 0.155,
    },
}  # fmt: skip


# --- padding on the left --------------------------------------------------------------------------

LEFT = "left_keep_mask"


@right(LEFT)
def turned_around(lengths, max_len):
    return (torch.arange(max_len).unsqueeze(0) < lengths.unsqueeze(1)).flip(-1)


@right(LEFT)
def with_loops(lengths, max_len):
    keep = torch.zeros(len(lengths), max_len, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        keep[b, max_len - n :] = True
    return keep


@right(LEFT)
def counted_from_the_end(lengths, max_len):
    return torch.arange(max_len, 0, -1) <= lengths[:, None]


@right(LEFT)
def by_slices(lengths, max_len):
    rows = [[i >= max_len - n for i in range(max_len)] for n in lengths]
    return torch.tensor(rows)


@wrong(LEFT, "right_side")
def as_in_the_chapter(lengths, max_len):
    return torch.arange(max_len) < lengths.unsqueeze(1)


@wrong(LEFT, "inverted")
def true_is_padding(lengths, max_len):
    return torch.arange(max_len) < max_len - lengths.unsqueeze(1)


@wrong(LEFT, "inverted")
def padding_on_the_right(lengths, max_len):
    return torch.arange(max_len)[None] >= lengths[:, None]


@wrong(LEFT, "off_by_one")
def one_too_few(lengths, max_len):
    return torch.arange(max_len) > max_len - lengths.unsqueeze(1)


@wrong(LEFT, "off_by_one")
def one_too_many(lengths, max_len):
    return torch.arange(max_len) >= max_len - 1 - lengths.unsqueeze(1)


@wrong(LEFT, "rows_flipped")
def all_axes_turned(lengths, max_len):
    return torch.flip(torch.arange(max_len) < lengths[:, None], dims=(0, 1))


@wrong(LEFT, "transposed")
def lengths_along_the_last_axis(lengths, max_len):
    return torch.arange(max_len).unsqueeze(1) >= max_len - lengths


@wrong(LEFT, "longest")
def max_len_not_used(lengths, max_len):
    longest = int(lengths.max())
    return torch.arange(longest) >= longest - lengths[:, None]


@wrong(LEFT, "not_bool")
def as_floats(lengths, max_len):
    keep = torch.zeros(len(lengths), max_len)
    for b, n in enumerate(lengths):
        keep[b, max_len - n :] = 1
    return keep


@wrong(LEFT, "not_bool")
def as_integers(lengths, max_len):
    return turned_around(lengths, max_len).long()


# --- masks that are added -------------------------------------------------------------------------

ADDED = "additive_mask"


@right(ADDED)
def logarithm(keep_mask, dtype):
    return keep_mask.to(dtype).log()[:, None, None]


@right(ADDED)
def chosen(keep_mask, dtype):
    zero, infinite = torch.tensor(0.0, dtype=dtype), torch.tensor(-math.inf, dtype=dtype)
    return torch.where(keep_mask, zero, infinite).view(keep_mask.size(0), 1, 1, -1)


@right(ADDED, note="two such masks added to each other overflow")
def lowest_number(keep_mask, dtype):
    return (1 - keep_mask[:, None, None, :].to(dtype)) * torch.finfo(dtype).min


@right(ADDED, note="it becomes -inf in half precision")
def lowest_number_of_float32(keep_mask, dtype):
    mask = 1.0 - keep_mask.to(dtype)
    return mask.unsqueeze(1).unsqueeze(1) * torch.finfo(torch.float32).min


@wrong(ADDED, "still_bool")
def only_axes(keep_mask, dtype):
    return keep_mask[:, None, None, :]


@wrong(ADDED, "zero_one")
def converted(keep_mask, dtype):
    return keep_mask.to(dtype)[:, None, None, :]


@wrong(ADDED, "inverted")
def hides_what_is_real(keep_mask, dtype):
    zeros = torch.zeros(keep_mask.shape, dtype=dtype)
    return zeros.masked_fill(keep_mask, float("-inf"))[:, None, None, :]


@wrong(ADDED, "inverted")
def hides_what_is_real_with_1e4(keep_mask, dtype):
    return keep_mask[:, None, None, :].to(dtype) * -1e4


@wrong(ADDED, "positive")
def ones_at_padding(keep_mask, dtype):
    return (~keep_mask)[:, None, None, :].to(dtype)


@wrong(ADDED, "positive")
def plus_infinity(keep_mask, dtype):
    zeros = torch.zeros(keep_mask.shape, dtype=dtype)
    return zeros.masked_fill(~keep_mask, math.inf)[:, None, None, :]


@wrong(ADDED, "zero_times_infinity")
def product_with_infinity(keep_mask, dtype):
    return (1.0 - keep_mask[:, None, None, :].to(dtype)) * -math.inf


@wrong(ADDED, "small_number")
def minus_one(keep_mask, dtype):
    return (keep_mask.to(dtype) - 1)[:, None, None, :]


@wrong(ADDED, "small_number")
def minus_hundred(keep_mask, dtype):
    return (~keep_mask).to(dtype)[:, None, None, :] * -100


@wrong(ADDED, "minus_1e9")
def a_billion(keep_mask, dtype):
    zeros = torch.zeros(keep_mask.shape, dtype=dtype)
    return zeros.masked_fill(~keep_mask, -1e9)[:, None, None, :]


@wrong(ADDED, "minus_1e9")
def ten_thousand(keep_mask, dtype):
    return (1 - keep_mask.to(dtype)).mul(-10000.0)[:, None, None, :]


@wrong(ADDED, "dtype_ignored")
def always_float32(keep_mask, dtype):
    return torch.zeros(keep_mask.shape).masked_fill(~keep_mask, -math.inf)[:, None, None, :]


@wrong(ADDED, "axes")
def as_it_came(keep_mask, dtype):
    return torch.zeros(keep_mask.shape, dtype=dtype).masked_fill(~keep_mask, -math.inf)


@wrong(ADDED, "axes")
def without_an_axis_for_heads(keep_mask, dtype):
    return lowest_number(keep_mask, dtype).squeeze(1)


# --- the future -----------------------------------------------------------------------------------

CAUSAL = "causal_mask"


@right(CAUSAL)
def by_comparison(keep_mask):
    place = torch.arange(keep_mask.shape[1])
    allowed = (place[None, :] <= place[:, None])[None, None]
    return torch.logical_and(allowed, keep_mask.unsqueeze(1).unsqueeze(1))


@right(CAUSAL)
def without_the_strict_upper_triangle(keep_mask):
    b, n = keep_mask.shape
    future = torch.triu(torch.ones(n, n), diagonal=1) == 1
    return keep_mask.view(b, 1, 1, n).expand(b, 1, n, n).masked_fill(future, False)


@right(CAUSAL)
def with_four_loops(keep_mask):
    b, n = keep_mask.shape
    allowed = [[[[bool(keep_mask[s, j]) and j <= i for j in range(n)] for i in range(n)]]
               for s in range(b)]  # fmt: skip
    return torch.tensor(allowed)


def triangle(keep_mask, diagonal=0):
    n = keep_mask.shape[1]
    return torch.tril(torch.ones(n, n), diagonal=diagonal).bool()[None, None]


@wrong(CAUSAL, "future")
def upper_triangle(keep_mask):
    n = keep_mask.shape[1]
    return torch.ones(n, n).triu(1).bool() & keep_mask[:, None, None, :]


@wrong(CAUSAL, "future")
def upper_triangle_alone(keep_mask):
    b, n = keep_mask.shape
    return torch.ones(n, n).triu(1).bool().expand(b, 1, n, n)


@wrong(CAUSAL, "inverted")
def true_is_ignore(keep_mask):
    n = keep_mask.shape[1]
    return torch.ones(n, n).triu(1).bool() | ~keep_mask[:, None, None, :]


@wrong(CAUSAL, "strict")
def not_itself(keep_mask):
    return triangle(keep_mask, -1) & keep_mask[:, None, None, :]


@wrong(CAUSAL, "one_ahead")
def one_of_the_future(keep_mask):
    return triangle(keep_mask, 1) & keep_mask[:, None, None, :]


@wrong(CAUSAL, "or")
def either(keep_mask):
    return triangle(keep_mask) | keep_mask[:, None, None, :]


@wrong(CAUSAL, "padding_ignored")
def future_only(keep_mask):
    b, n = keep_mask.shape
    return triangle(keep_mask).repeat(b, 1, 1, 1)


@wrong(CAUSAL, "future_ignored")
def padding_only(keep_mask):
    b, n = keep_mask.shape
    return keep_mask.view(b, 1, 1, n).repeat(1, 1, n, 1)


@wrong(CAUSAL, "queries_instead")
def rows_of_padding(keep_mask):
    return triangle(keep_mask) & keep_mask[:, None, :, None]


@wrong(CAUSAL, "queries_too")
def both_axes(keep_mask):
    return triangle(keep_mask) & keep_mask[:, None, None, :] & keep_mask[:, None, :, None]


@wrong(CAUSAL, "axes")
def three_axes(keep_mask):
    return triangle(keep_mask)[0] & keep_mask[:, None, :]


@wrong(CAUSAL, "not_bool")
def floats_multiplied(keep_mask):
    return triangle(keep_mask).float() * keep_mask[:, None, None, :].float()


# --- the masked softmax ---------------------------------------------------------------------------

MASKED = "masked_softmax"


@right(MASKED)
def nan_replaced(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@right(MASKED)
def lowest_then_zero(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return F.softmax(torch.where(mask, scores, lowest), dim=-1) * mask


@right(MASKED)
def equation_with_exp(scores, mask):
    hidden = torch.where(mask, scores, torch.full_like(scores, -math.inf))
    largest = hidden.amax(-1, keepdim=True).clamp(min=-1e30)
    powers = torch.exp(hidden - largest)
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


@right(MASKED)
def query_by_query(scores, mask):
    flat, allowed = scores.reshape(-1, scores.size(-1)), mask.expand(scores.shape)
    rows = []
    for s, m in zip(flat, allowed.reshape(flat.shape), strict=True):
        rows.append(torch.zeros_like(s).masked_scatter(m, s[m].softmax(0)) if m.any() else 0 * s)
    return torch.stack(rows).view(scores.shape)


@wrong(MASKED, "nan_rows")
def empty_rows_forgotten(scores, mask):
    return torch.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1)


@wrong(MASKED, "nan_rows")
def powers_of_the_rest(scores, mask):
    powers = torch.where(mask, torch.exp(scores), 0.0)
    return powers / powers.sum(-1, keepdim=True)


@wrong(MASKED, "uniform_rows")
def a_billion_less(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)


@wrong(MASKED, "uniform_rows")
def lowest_number_only(scores, mask):
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)


@wrong(MASKED, "inverted")
def hides_the_allowed(scores, mask):
    return scores.masked_fill(mask, -1e9).softmax(-1)


@wrong(MASKED, "inverted")
def hides_the_allowed_with_infinity(scores, mask):
    return scores.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(0)


@wrong(MASKED, "ignored")
def no_mask(scores, mask):
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


@wrong(MASKED, "zero_before")
def scores_times_mask(scores, mask):
    return torch.softmax(scores * mask.float(), dim=-1)


@wrong(MASKED, "zero_before")
def zeros_filled_in(scores, mask):
    return scores.masked_fill(~mask, 0).softmax(dim=-1)


@wrong(MASKED, "after")
def zeros_afterwards(scores, mask):
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0)


@wrong(MASKED, "small_number")
def mask_added(scores, mask):
    return torch.softmax(scores + mask.float(), dim=-1)


@wrong(MASKED, "small_number")
def ten_less(scores, mask):
    return torch.softmax(scores - 10.0 * (1 - mask.float()), dim=-1)


@wrong(MASKED, "queries")
def rows_hidden(scores, mask):
    weights = scores.masked_fill(~mask.transpose(-2, -1), -math.inf).softmax(-1)
    return weights.nan_to_num(0.0)


@wrong(MASKED, "queries")
def rows_hidden_with_a_billion(scores, mask):
    return torch.softmax(torch.where(mask.mT, scores, -1e9), dim=-1)


@wrong(MASKED, "softmax_query")
def columns_add_up(scores, mask):
    return scores.masked_fill(~mask, -1e9).softmax(dim=-2)


@wrong(MASKED, "too_late")
def renormalised(scores, mask):
    weights = scores.softmax(-1) * mask
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


@wrong(MASKED, "too_late")
def largest_of_all(scores, mask):
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values) * mask
    return torch.nan_to_num(powers / powers.sum(-1, keepdim=True))


@wrong(MASKED, "too_late")
def powers_times_mask(scores, mask):
    powers = torch.exp(scores) * mask
    return powers / (powers.sum(-1, keepdim=True) + 1e-9)


@wrong(MASKED, "mutates")
def filled_in_place(scores, mask):
    return scores.masked_fill_(~mask, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong(MASKED, "gradient")
def infinity_added(scores, mask):
    added = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return torch.nan_to_num((scores + added).softmax(-1), nan=0.0)


@wrong(MASKED, "small_number")
def fifty_filled_in(scores, mask):
    weights = scores.masked_fill(~mask, -50.0).softmax(-1)
    return weights * mask.any(-1, keepdim=True)


@wrong(MASKED, "not_normalised")
def powers_alone(scores, mask):
    return torch.where(mask, scores, -math.inf).exp()


@wrong(MASKED, "softmax_query")
def first_axis(scores, mask):
    return torch.where(mask, scores, -1e9).softmax(0)


@wrong(MASKED, "too_late")
def scores_cut_off(scores, mask):
    powers = scores.clamp(-50, 50).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)
