"""Answers to the exercises of chapter 03. Those with one wrong step come from ``mutants.py``."""

import math

import torch
from torch.nn import functional as F

import mutants
from answers import right, wrong

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


@wrong(CHECK, "qk_swapped")
def keys_ask(q, k, v, mask=None):
    return with_einsum(k, q, v, mask)


@wrong(CHECK, "mask_ignored")
def without_a_mask(q, k, v):
    return with_einsum(q, k, v)


@wrong(CHECK, "no_scale+mask_after_softmax")
def two_mistakes(q, k, v, mask=None):
    weights = (q @ k.mT).softmax(-1)
    if mask is not None:
        weights = weights * mask
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
