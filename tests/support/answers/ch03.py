"""Answers to the exercises of chapter 03. Those with one wrong step come from ``mutants.py``."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import mutants
from answers import right, wrong

WRONG_VALUES = {
    "3.1": {
        "no_scale": 0.319, "scale_dk": 0.297, "softmax_query": 0.576, "three_words": 0.446,
        "third": 1 / 3, "quarter": 1 / 4, "power": 4.113,
    },
}  # fmt: skip


# --- the softmax ----------------------------------------------------------------------------------

SOFTMAX = "softmax"
right(SOFTMAX)(nn.Softmax(dim=-1))


@right(SOFTMAX)
def through_logsumexp(scores):
    return (scores - torch.logsumexp(scores, dim=-1, keepdim=True)).exp()


@right(SOFTMAX)
def row_by_row(scores):
    rows = []
    for row in scores.reshape(-1, scores.shape[-1]):
        powers = [torch.exp(s - max(row)) for s in row]
        rows.append(torch.stack(powers) / sum(powers))
    return torch.stack(rows).reshape(scores.shape)


@right(SOFTMAX)
def detached_largest(x):
    x = x - x.detach().max(dim=-1, keepdim=True)[0]
    return torch.exp(x) / torch.exp(x).sum(dim=-1, keepdim=True)


@wrong(SOFTMAX, "largest_of_all")
def largest_of_all(scores):
    e = torch.exp(scores - scores.max())
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "softmax_query")
def columns_add_up(scores):
    e = torch.exp(scores - scores.max(dim=-2, keepdim=True).values)
    return e / e.sum(dim=-2, keepdim=True)


@wrong(SOFTMAX, "softmax_query")
def columns_add_up_and_overflow(scores):
    return scores.exp() / scores.exp().sum(-2, keepdim=True)


@wrong(SOFTMAX, "softmax_first")
def second_axis(scores):
    e = torch.exp(scores)
    return e / torch.sum(e, dim=1, keepdim=True)


@wrong(SOFTMAX, "softmax_first")
def first_axis(scores):
    return F.softmax(scores, dim=0)


@wrong(SOFTMAX, "whole_tensor")
def one_unit_for_all(scores):
    e = torch.exp(scores - scores.max())
    return e / torch.sum(e)


@wrong(SOFTMAX, "no_keepdim")
def sum_without_keepdim(scores):
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1)


@wrong(SOFTMAX, "no_keepdim")
def largest_without_keepdim(scores):
    e = torch.exp(scores - scores.max(dim=-1).values)
    return e / e.sum(dim=-1, keepdim=True)


@wrong(SOFTMAX, "no_keepdim")
def naive_without_keepdim(scores):
    return torch.exp(scores) / torch.exp(scores).sum(dim=-1)


@wrong(SOFTMAX, "not_normalised")
def only_powers(scores):
    return torch.exp(scores - scores.max(-1, keepdim=True).values)


@wrong(SOFTMAX, "no_exp")
def shares_of_scores(scores):
    return scores / torch.sum(scores, -1, keepdim=True)


@wrong(SOFTMAX, "log")
def logarithms(scores):
    return scores - torch.logsumexp(scores, dim=-1, keepdim=True)


@wrong(SOFTMAX, "sigmoid")
def each_alone(scores):
    return 1 / (1 + torch.exp(-scores))


@wrong(SOFTMAX, "base")
def powers_of_two(scores):
    e = 2 ** (scores - scores.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "overflow")
def by_the_book(scores):
    e = torch.exp(scores)
    return e / e.sum(dim=-1, keepdim=True)


@wrong(SOFTMAX, "overflow")
def minus_the_mean(scores):
    finite = torch.where(scores == -math.inf, 0.0, scores)
    e = torch.exp(scores - finite.mean(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "overflow")
def minus_the_largest_size(scores):
    size = scores.masked_fill(scores.isinf(), 0.0).abs().max(-1, keepdim=True).values
    e = torch.exp(scores - size)
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "clipped")
def cut_off(scores):
    e = torch.exp(scores.clamp(-50, 50))
    return e / e.sum(-1, keepdim=True)


@wrong(SOFTMAX, "clipped")
def nan_to_zero(scores):
    e = torch.exp(scores)
    return torch.nan_to_num(e / e.sum(-1, keepdim=True))


@wrong(SOFTMAX, "mutates")
def in_place(scores):
    scores -= scores.amax(-1, keepdim=True)
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


@wrong(SOFTMAX, "gradient")
def through_numpy(scores):
    e = (scores - scores.amax(-1, keepdim=True)).detach().exp()
    return e / e.sum(-1, keepdim=True)


# --- attention ------------------------------------------------------------------------------------

CHECK = "scaled_dot_product_attention"
right(CHECK, note="only outputs")(F.scaled_dot_product_attention)
for form in mutants.SCALE_AND_MASK:
    wrong(CHECK, "random" if form == "dropout_always" else form)(mutants.function(form))


@right(CHECK)
def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return torch.einsum("...ij,...jd->...id", weights, v), weights


@right(CHECK)
def scaled_before_and_by_hand(q, k, v, mask=None):
    scores = (q / math.sqrt(q.size(-1))) @ k.mT
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-1e9))
    e = (scores - scores.max(-1, keepdim=True).values).exp()
    weights = e / e.sum(-1, keepdim=True)
    return weights @ v, weights


@right(CHECK)
class AsAModule(nn.Module):
    def forward(self, query, key, value, allowed=None):
        added = 0.0 if allowed is None else torch.zeros_like(allowed, dtype=query.dtype)
        if allowed is not None:
            added = added.masked_fill(~allowed, torch.finfo(query.dtype).min)
        weights = torch.softmax(query @ key.transpose(-1, -2) / key.size(-1) ** 0.5 + added, dim=-1)
        return [weights @ value, weights]


@wrong(CHECK, "qk_swapped")
def keys_ask(q, k, v, mask=None):
    return with_einsum(k, q, v, mask)


@wrong(CHECK, "mask_ignored")
def without_a_mask(q, k, v):
    return with_einsum(q, k, v)


def attention(q, k, v, mask, scale, axis=-1):
    """Attention as in the chapter, with another scale or another axis of the softmax."""
    scores = q @ k.transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=axis)
    return weights @ v, weights


@right(CHECK)
def mask_by_name_only(q, k, v, *, mask=None):
    return with_einsum(q, k, v, mask)


@right(CHECK)
def mask_after_other_options(q, k, v, dropout=None, attn_mask=None):
    return with_einsum(q, k, v, attn_mask)


@right(CHECK)
def options_unnamed(q, k, v, **options):
    return with_einsum(q, k, v, **options)


@right(CHECK)
def weights_to_look_at(q, k, v, mask=None):
    out, weights = with_einsum(q, k, v, mask)
    return out, weights.detach()


@right(CHECK)
def key_by_key(q, k, v, mask=None):
    allowed = torch.ones(*q.shape[:-1], k.size(-2), dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    if q.dim() > 2:
        parts = [key_by_key(*four) for four in zip(q, k, v, allowed, strict=True)]
        return torch.stack([out for out, _ in parts]), torch.stack([w for _, w in parts])
    rows = []
    for query, row in zip(q, allowed, strict=True):
        keys = row.nonzero().flatten()
        some = torch.stack([query @ k[j] / math.sqrt(len(query)) for j in keys] or [query.sum()])
        rows.append(torch.zeros(len(k)).index_put((keys,), some.softmax(0)[: len(keys)]))
    return torch.stack(rows) @ v, torch.stack(rows)


@wrong(CHECK, "gradient")
def weights_for_numbers(q, k, v, mask=None):
    return tuple(nn.Parameter(part) for part in with_einsum(q, k, v, mask))


@wrong(CHECK, "gradient")
def gradients_switched_off(q, k, v, mask=None):
    torch.set_grad_enabled(False)
    return with_einsum(q, k, v, mask)


@wrong(CHECK, "results_swapped")
def weights_first(q, k, v, mask=None):
    out, weights = with_einsum(q, k, v, mask)
    return weights, out


@wrong(CHECK, "results_swapped")
def weights_alone(q, k, v, mask=None):
    return with_einsum(q, k, v, mask)[1]


@wrong(CHECK, "operands")
def keys_are_added_up(q, k, v, mask=None):
    return with_einsum(q, k, k, mask)


@wrong(CHECK, "operands")
def queries_meet_queries(q, k, v, mask=None):
    return with_einsum(q, q, v, mask)


@wrong(CHECK, "wrong_weights")
def scores_returned(q, k, v, mask=None):
    return with_einsum(q, k, v, mask)[0], q @ k.mT


@wrong(CHECK, "wrong_weights")
def weights_of_keys(q, k, v, mask=None):
    out, weights = with_einsum(q, k, v, mask)
    return out, weights.mT


@wrong(CHECK, "mask_values")
def values_set_to_zero(q, k, v, mask=None):
    out, weights = with_einsum(q, k, v)
    return out if mask is None else (weights * mask) @ v, weights


@wrong(CHECK, "mask_future")
def only_the_past(q, k, v, mask=None):
    past = torch.ones(q.size(-2), k.size(-2)).tril().bool()
    return with_einsum(q, k, v, past if mask is None else past & mask)


@wrong(CHECK, "softmax_twice")
def once_more(q, k, v, mask=None):
    weights = F.softmax(with_einsum(q, k, v, mask)[1], dim=-1)
    return weights @ v, weights


@wrong(CHECK, "mask_small_neg")
def fifty_filled_in(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = (scores if mask is None else scores.masked_fill(~mask, -50.0)).softmax(-1)
    return weights @ v, weights


@wrong(CHECK, "mask_small_neg")
def thirty_taken_off(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = (scores if mask is None else scores - 30 * (1 - mask.float())).softmax(-1)
    return weights @ v, weights


@wrong(CHECK, "scale_dmodel")
def scaled_by_all_heads(q, k, v, mask=None):
    d_model = q.size(-1) * (q.size(1) if q.dim() == 4 else 1)
    return attention(q, k, v, mask, d_model**-0.5)


@wrong(CHECK, "scale_other")
def multiplied(q, k, v, mask=None):
    return attention(q, k, v, mask, q.size(-1) ** 0.5)


@wrong(CHECK, "scale_other")
def scaled_by_the_length(q, k, v, mask=None):
    return attention(q, k, v, mask, 1 / math.sqrt(k.size(-2)))


@wrong(CHECK, "softmax_front")
def second_axis_counted(q, k, v, mask=None):
    return attention(q, k, v, mask, q.size(-1) ** -0.5, axis=1)


@wrong(CHECK, "softmax_front")
def third_axis(q, k, v, mask=None):
    return attention(q, k, v, mask, q.size(-1) ** -0.5, axis=2)


@wrong(CHECK, "scale_late")
def weights_scaled(q, k, v, mask=None):
    weights = attention(q, k, v, mask, 1.0)[1] / math.sqrt(q.size(-1))
    return weights @ v, weights


@wrong(CHECK, "scale_late")
def output_scaled(q, k, v, mask=None):
    out, weights = attention(q, k, v, mask, 1.0)
    return out / math.sqrt(q.size(-1)), weights


@wrong(CHECK, "softmax_heads")
def second_axis_of_heads(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-3).nan_to_num()
    return weights @ v, weights


@wrong(CHECK, "no_softmax")
def bare_scores(q, k, v, mask=None):
    weights = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights


@wrong(CHECK, "mixes_samples")
def batch_norm_of_scores(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    scores = scores - scores.mean(dim=0, keepdim=True)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v, scores.softmax(-1)


@wrong(CHECK, "no_scale+mask_after_softmax")
def two_mistakes(q, k, v, mask=None):
    weights = (q @ k.mT).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v, weights


@wrong(CHECK, "mask_small_neg")
def mask_of_ones_added(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = (scores if mask is None else scores + mask.float()).softmax(-1)
    return weights @ v, weights


@wrong(CHECK, "mutates")
def scales_in_place(q, k, v, mask=None):
    q /= math.sqrt(q.size(-1))
    scores = q @ k.mT
    weights = (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1)
    return weights @ v, weights


@wrong(CHECK, "gradient")
def detached(q, k, v, mask=None):
    out, weights = with_einsum(q, k, v, mask)
    return out.detach(), weights.detach()


# --- the way back through the softmax -------------------------------------------------------------

BACKWARD = "softmax_backward"


@right(BACKWARD)
def with_the_jacobian(weights, upstream):
    jacobian = torch.diag_embed(weights) - torch.einsum("...i,...j->...ij", weights, weights)
    return torch.einsum("...ij,...j->...i", jacobian, upstream)


@right(BACKWARD)
def with_loops(w, g):
    out = torch.zeros_like(w)
    for j in range(w.size(-1)):
        for i in range(w.size(-1)):
            out[..., j] += g[..., i] * w[..., i] * ((1 if i == j else 0) - w[..., j])
    return out


@right(BACKWARD)
def by_autograd(weights, upstream):
    scores = weights.log().requires_grad_()
    return torch.autograd.grad(scores.softmax(-1), scores, upstream)[0]


@right(BACKWARD)
def centred(w, g):
    return w * g - w * torch.linalg.vecdot(w, g).unsqueeze(-1)


@wrong(BACKWARD, "jacobian")
def only_the_jacobian(weights, upstream):
    return torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)


@wrong(BACKWARD, "jacobian")
def not_summed(weights, upstream):
    return only_the_jacobian(weights, upstream) * upstream.unsqueeze(-2)


@wrong(BACKWARD, "upstream_ignored")
def gradient_of_the_sum(weights, upstream):
    scores = weights.log().requires_grad_()
    scores.softmax(-1).sum().backward()
    return scores.grad


@wrong(BACKWARD, "upstream_ignored")
def derivative_alone(weights, upstream):
    return weights * (1 - weights)


@wrong(BACKWARD, "own_score_only")
def as_for_a_sigmoid(weights, upstream):
    return upstream * (weights - weights**2)


@wrong(BACKWARD, "no_competition")
def first_term(weights, upstream):
    return torch.einsum("...ij,...j->...i", torch.diag_embed(weights), upstream)


@wrong(BACKWARD, "outer_only")
def second_term(weights, upstream):
    outer = weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return (outer @ upstream.unsqueeze(-1)).squeeze(-1)


@wrong(BACKWARD, "sign")
def turned_around(weights, upstream):
    return weights * ((weights * upstream).sum(-1, keepdim=True) - upstream)


@wrong(BACKWARD, "plus")
def terms_added(weights, upstream):
    return weights * (upstream + (weights * upstream).sum(-1, keepdim=True))


@wrong(BACKWARD, "unweighted")
def plain_sum(weights, upstream):
    return weights * (upstream - upstream.sum(-1, keepdim=True))


@wrong(BACKWARD, "unweighted")
def plain_mean(weights, upstream):
    return (upstream - upstream.mean(dim=-1, keepdim=True)) * weights


@wrong(BACKWARD, "mean")
def mean_of_weighted(weights, upstream):
    return weights * (upstream - torch.mean(weights * upstream, dim=-1, keepdim=True))


@wrong(BACKWARD, "outer_weight")
def without_the_factor(weights, upstream):
    return upstream - (weights * upstream).sum(-1, keepdim=True)


@wrong(BACKWARD, "axis")
def over_the_queries(weights, upstream):
    return weights * (upstream - (weights * upstream).sum(dim=-2, keepdim=True))


@wrong(BACKWARD, "axis")
def over_everything(weights, upstream):
    return weights * (upstream - (weights * upstream).sum())


@wrong(BACKWARD, "softmax_again")
def weights_for_scores(weights, upstream):
    scores = weights.clone().requires_grad_()
    return torch.autograd.grad(scores.softmax(-1), scores, upstream)[0]


@wrong(BACKWARD, "mutates")
def overwrites_upstream(weights, upstream):
    upstream -= (weights * upstream).sum(-1, keepdim=True)
    return weights * upstream
