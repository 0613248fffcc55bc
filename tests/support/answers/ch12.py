"""Answers to the exercises of chapter 12."""

import functools
import math

import torch

from answers import right, wrong

WRONG_VALUES = {
    "12.1": {"weight": 0.6, "words": 0.8, "ratio": 0.25, "product": 0.3, "lengths": 0.143},
}  # fmt: skip

# --- entropy --------------------------------------------------------------------------------------

ENTROPY = "attention_entropy"


@right(ENTROPY)
def by_xlogy(weights, keep_mask):
    rows = -torch.xlogy(weights, weights).sum(-1)
    return (rows * keep_mask[:, None]).sum((0, 2)) / keep_mask.sum()


@right(ENTROPY)
def by_loops_and_clamp(weights, keep_mask):
    found = []
    for h in range(weights.shape[1]):
        rows = [
            weights[b, h, i] for b, real in enumerate(keep_mask) for i in range(int(real.sum()))
        ]
        found.append(sum(-sum(p * math.log(max(p, 1e-12)) for p in row.tolist()) for row in rows)
                     / len(rows))  # fmt: skip
    return torch.tensor(found)


@right(ENTROPY)
def by_distributions(weights, keep_mask):
    rows = weights.transpose(1, 2)[keep_mask]
    return torch.distributions.Categorical(probs=rows, validate_args=False).entropy().mean(0)


def rows_of(weights):
    return -(weights * (weights + 1e-12).log()).sum(-1)


@wrong(ENTROPY, "zero_log")
def p_log_p(weights, keep_mask):
    return -(weights * torch.log(weights)).sum(-1).transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "sign")
def without_a_minus(weights, keep_mask):
    return (weights * (weights + 1e-12).log()).sum(-1).transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "bits")
def in_bits(weights, keep_mask):
    return -(weights * (weights + 1e-12).log2()).sum(-1).transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "padding_counted")
def all_rows(weights, keep_mask):
    return rows_of(weights).mean(dim=(0, 2))


@wrong(ENTROPY, "padding_as_zero")
def zeros_and_mean(weights, keep_mask):
    return rows_of(weights).masked_fill(~keep_mask[:, None, :], 0.0).mean(dim=(0, 2))


@wrong(ENTROPY, "over_queries")
def columns(weights, keep_mask):
    entropy = -(weights * (weights + 1e-12).log()).sum(2)
    return entropy.transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "over_keys")
def mean_over_keys(weights, keep_mask):
    return -(weights * (weights + 1e-12).log()).mean(-1).transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "share")
def relative(weights, keep_mask):
    most = torch.log(keep_mask.sum(1).float())
    return (rows_of(weights) / most[:, None, None]).transpose(1, 2)[keep_mask].mean(0)


@wrong(ENTROPY, "mean_of_texts")
def every_text_alike(weights, keep_mask):
    n = keep_mask.sum(1)
    return ((rows_of(weights) * keep_mask[:, None]).sum(-1) / n[:, None]).mean(0)


@wrong(ENTROPY, "of_mean")
def entropy_of_the_average(weights, keep_mask):
    mean = (weights * keep_mask[:, None, :, None]).sum((0, 2)) / keep_mask.sum()
    return rows_of(mean)


@wrong(ENTROPY, "one_number")
def over_all_heads(weights, keep_mask):
    return by_xlogy(weights, keep_mask).mean()


@wrong(ENTROPY, "summed")
def not_divided(weights, keep_mask):
    return (rows_of(weights) * keep_mask[:, None]).sum((0, 2))


# --- the share of a neighbour ---------------------------------------------------------------------

SHARE = "offset_share"


def mean_of(weights, place):
    """The mean weight where place (B, L, L) is True, of every head."""
    return (weights * place[:, None]).sum((0, 2, 3)) / place.sum()


def at_distance(weights, offset):
    i = torch.arange(weights.size(-1))
    return i - i[:, None] == offset


@right(SHARE)
def with_a_place(weights, keep_mask, offset):
    both = keep_mask[:, :, None] & keep_mask[:, None, :]
    return mean_of(weights, both & at_distance(weights, offset))


@right(SHARE)
def with_loops(weights, keep_mask, offset):
    found = []
    for b, real in enumerate(keep_mask.tolist()):
        for i, query in enumerate(real):
            if query and 0 <= i + offset < len(real) and real[i + offset]:
                found.append(weights[b, :, i, i + offset])
    return sum(found) / len(found)


@wrong(SHARE, "itself")
def forgets_the_offset(weights, keep_mask, offset):
    return torch.diagonal(weights, dim1=2, dim2=3).transpose(1, 2)[keep_mask].mean(0)


@wrong(SHARE, "wrong_sign")
def query_minus_key(weights, keep_mask, offset):
    return with_a_place(weights, keep_mask, -offset)


@wrong(SHARE, "wrong_sign")
def rows_for_keys(weights, keep_mask, offset):
    return with_loops(weights.transpose(2, 3), keep_mask, offset)


@wrong(SHARE, "around")
def rolls(weights, keep_mask, offset):
    on = weights.gather(-1, torch.arange(weights.size(-1)).roll(-offset).expand(
        *weights.shape[:3])[..., None]).squeeze(-1)  # fmt: skip
    return on.transpose(1, 2)[keep_mask].mean(0)


@wrong(SHARE, "padding_counted")
def ignores_the_mask(weights, keep_mask, offset):
    return weights.diagonal(offset, 2, 3).mean(-1).mean(0)


@wrong(SHARE, "key_unchecked")
def real_queries(weights, keep_mask, offset):
    return mean_of(weights, keep_mask[:, :, None] & at_distance(weights, offset))


@wrong(SHARE, "edges_counted")
def divides_by_all_queries(weights, keep_mask, offset):
    place = keep_mask[:, :, None] & at_distance(weights, offset)
    return (weights * place[:, None]).sum(-1).transpose(1, 2)[keep_mask].mean(0)


@wrong(SHARE, "mean_of_texts")
def text_after_text(weights, keep_mask, offset):
    each = [with_a_place(w[None], keep[None], offset) for w, keep in
            zip(weights, keep_mask, strict=True) if keep.sum() > abs(offset)]  # fmt: skip
    return torch.stack(each).mean(0)


@wrong(SHARE, "mean_of_texts")
def text_after_text_with_nan(weights, keep_mask, offset):
    each = [with_a_place(weights[b : b + 1], keep_mask[b : b + 1], offset)
            for b in range(len(weights))]  # fmt: skip
    return sum(each) / len(each)


@wrong(SHARE, "one_number")
def mean_over_heads(weights, keep_mask, offset):
    return with_a_place(weights, keep_mask, offset).mean().item()


@wrong(SHARE, "summed")
def adds_up(weights, keep_mask, offset):
    both = keep_mask[:, :, None] & keep_mask[:, None, :]
    return (weights * (both & at_distance(weights, offset))[:, None]).sum((0, 2, 3))


# --- rollout --------------------------------------------------------------------------------------

ROLLOUT = "rollout"


def mixed(weights, kept):
    eye = torch.eye(weights[0].size(-1))
    return [kept * eye + (1 - kept) * w.mean(1) for w in weights]


@right(ROLLOUT)
def from_the_top(weights, kept):
    return functools.reduce(torch.bmm, mixed(weights, kept)[::-1])


@right(ROLLOUT)
def vectors_through_layers(weights, kept):
    x = torch.eye(weights[0].size(-1)).expand(len(weights[0]), -1, -1)
    for w in weights:
        x = kept * x + torch.einsum("bhij,bjk->bik", w, x) * (1 - kept) / w.size(1)
    return x


@wrong(ROLLOUT, "no_identity")
def attention_only(weights, kept):
    return functools.reduce(lambda total, w: w.mean(1) @ total, weights[1:], weights[0].mean(1))


@wrong(ROLLOUT, "not_a_share")
def adds_the_identity(weights, kept):
    total = torch.eye(weights[0].size(-1))
    for w in weights:
        total = (w.mean(1) + torch.eye(w.size(-1))) @ total
    return total


@wrong(ROLLOUT, "always_half")
def as_in_the_chapter(weights, kept):
    return from_the_top(weights, 0.5)


@wrong(ROLLOUT, "always_half")
def brings_rows_to_1(weights, kept):
    total = torch.eye(weights[0].size(-1))
    for w in weights:
        a = w.mean(1) + torch.eye(w.size(-1))
        total = (a / a.sum(-1, keepdim=True)) @ total
    return total


@wrong(ROLLOUT, "shares_exchanged")
def share_of_attention(weights, kept):
    return from_the_top(weights, 1 - kept)


@wrong(ROLLOUT, "reversed")
def first_layer_left(weights, kept):
    total = torch.eye(weights[0].size(-1))
    for a in mixed(weights, kept):
        total = total @ a
    return total


@wrong(ROLLOUT, "elementwise")
def star(weights, kept):
    return functools.reduce(torch.mul, mixed(weights, kept))


@wrong(ROLLOUT, "mean_of_layers")
def averages_layers(weights, kept):
    return torch.stack(mixed(weights, kept)).mean(0)


@wrong(ROLLOUT, "mean_of_layers")
def averages_maps(weights, kept):
    return torch.stack(weights).mean((0, 2))


@wrong(ROLLOUT, "last_layer")
def overwrites(weights, kept):
    for a in mixed(weights, kept):
        total = a
    return total


@wrong(ROLLOUT, "heads_summed")
def adds_heads(weights, kept):
    return from_the_top([w.sum(1, keepdim=True) for w in weights], kept)


@wrong(ROLLOUT, "per_head")
def every_head(weights, kept):
    total = torch.eye(weights[0].size(-1))
    for w in weights:
        total = (kept * torch.eye(w.size(-1)) + (1 - kept) * w) @ total
    return total


@wrong(ROLLOUT, "per_head")
def every_head_then_the_mean(weights, kept):
    return every_head(weights, kept).mean(1)


@wrong(ROLLOUT, "largest_head")
def strongest_head(weights, kept):
    return from_the_top([w.max(1, keepdim=True).values for w in weights], kept)


@wrong(ROLLOUT, "mutates")
def mixes_in_place(weights, kept):
    for w in weights:
        w *= 1 - kept
        w += kept * torch.eye(w.size(-1))
    return functools.reduce(lambda total, w: w.mean(1) @ total, weights[1:], weights[0].mean(1))


# --- more of them ---------------------------------------------------------------------------------


def places(keep_mask, offset):
    at = torch.arange(keep_mask.size(1))
    pair = at[None, :] - at[:, None] == offset
    return pair & keep_mask[:, :, None] & keep_mask[:, None, :]


@right("offset_share")
def by_places(weights, keep_mask, offset):
    pair = places(keep_mask, offset)
    return (weights * pair[:, None]).sum((0, 2, 3)) / pair.sum()


@wrong("offset_share", "around")
def a_negative_index(weights, keep_mask, offset):
    total, n = torch.zeros(weights.size(1)), 0
    for b, real in enumerate(keep_mask):
        for query in range(len(real)):
            key = query + offset
            if key < len(real) and real[query] and real[key]:
                total, n = total + weights[b, :, query, key], n + 1
    return total / n


@wrong("offset_share", "both_sides")
def distance(weights, keep_mask, offset):
    pair = places(keep_mask, offset) | places(keep_mask, -offset)
    return (weights * pair[:, None]).sum((0, 2, 3)) / pair.sum()


@wrong("offset_share", "offset_fixed")
def always_the_one_before(weights, keep_mask, offset):
    return by_places(weights, keep_mask, -1)


@wrong("offset_share", "edges_counted")
def over_every_place(weights, keep_mask, offset):
    return (weights * places(keep_mask, offset)[:, None]).sum((0, 2, 3)) / keep_mask.numel()


@right("rollout")
def product_at_once(weights, kept):
    maps = kept * torch.eye(weights[0].size(-1)) + (1 - kept) * torch.stack(weights).mean(2)
    total = maps[0]
    for a in maps[1:]:
        total = torch.einsum("bij,bjk->bik", a, total)
    return total


@wrong("rollout", "not_lessened")
def adds_a_share(weights, kept):
    eye = torch.eye(weights[0].size(-1))
    total = eye
    for w in weights:
        a = w.mean(1) + kept * eye
        total = a / a.sum(-1, keepdim=True) @ total
    return total


@wrong("rollout", "mixed_once")
def mixed_behind(weights, kept):
    total = torch.eye(weights[0].size(-1))
    for w in weights:
        total = w.mean(1) @ total
    return kept * torch.eye(total.size(-1)) + (1 - kept) * total


@wrong("rollout", "transposed")
def columns_first(weights, kept):
    return product_at_once(weights, kept).transpose(1, 2)
