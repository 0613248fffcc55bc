"""Wrong attentions that look right: every one must be caught by the checks used on the library.

The forms and what a check must say about them: a mutant is *killed* when one check fails. Two
forms are valid attentions with another layout of the weights: they pass all that does not compare
copied weights.
"""

import math

import pytest
import torch
from torch import nn

from encoder_lib.attention import MultiHeadAttention

KEEP = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
SQUARE = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()


class Mutable(nn.Module):
    """Multi-head attention spelt out, with one step replaced by ``form``."""

    def __init__(self, form, d_model=16, n_heads=4):
        super().__init__()
        self.form, self.H = form, n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model))

    def split(self, x):
        b, length, d = x.shape
        if self.form == "badsplit":
            return x.reshape(b, self.H, length, d // self.H)
        if self.form == "interleaved_heads":
            return x.view(b, length, d // self.H, self.H).permute(0, 3, 1, 2)
        return x.view(b, length, self.H, d // self.H).transpose(1, 2)

    def merge(self, x):
        if self.form == "badmerge":
            return x.reshape(x.size(0), x.size(2), -1)
        if self.form == "interleaved_heads":
            return x.permute(0, 2, 3, 1).flatten(2)
        return x.transpose(1, 2).flatten(2)

    def projections(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.form == "qk_swapped":
            q, k = k, q
        if self.form == "shared_qkv":
            k = v = q
        return q, k, x if self.form == "no_vproj" else v

    def scale(self, d_k):
        names = {"no_scale": 1.0, "scale_dmodel": math.sqrt(d_k * self.H), "scale_dk": d_k}
        return names.get(self.form, math.sqrt(d_k))

    def hide(self, scores, keep):
        if keep is None or self.form in ("mask_ignored", "mask_after_softmax"):
            return scores
        mask = keep[:, None, None, :]
        if self.form == "mask_inverted":
            mask = ~mask
        if self.form == "mask_query":
            mask = keep[:, None, :, None] | torch.zeros_like(scores, dtype=torch.bool)
        if self.form == "mask_B_L_broadcast" and keep.size(0) == keep.size(1):
            mask = keep
        fill = {"mask_zero_before_softmax": 0.0, "mask_query": -1e9}.get(self.form, -torch.inf)
        if self.form == "mask_small_neg":
            return scores - 3.0 * ~mask
        return scores.masked_fill(~mask, fill)

    def weigh(self, scores):
        if self.form == "sigmoid":
            return scores.sigmoid()
        axis = {"softmax_query": -2, "batch_attn": 0}.get(self.form, -1)
        return scores.softmax(axis)

    def forward(self, x, keep=None, return_weights=False):
        q, k, v = (self.split(y) for y in self.projections(x))
        scores = self.hide(q @ k.transpose(-2, -1) / self.scale(q.size(-1)), keep)
        weights = self.weigh(scores)
        if self.form == "mask_after_softmax" and keep is not None:
            weights = weights * keep[:, None, None, :]
        if self.form == "dropout_always":
            weights = torch.dropout(weights, 0.2, True)
        used = weights.transpose(-2, -1) if self.form == "attn_transposed" else weights
        out = self.merge(used @ v)
        out = out if self.form == "no_oproj" else self.w_o(out)
        return (out, weights) if return_weights else out


def randomise(module):
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def reference(module):
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    weights = [getattr(module, w) for w in ("w_q", "w_k", "w_v")]
    theirs.in_proj_weight.data = torch.cat([w.weight.data for w in weights])
    theirs.in_proj_bias.data = torch.cat([w.bias.data for w in weights])
    theirs.out_proj.load_state_dict(module.w_o.state_dict())
    return theirs.eval()


def close(a, b, atol=1e-4):
    return torch.allclose(a, b, atol=atol, rtol=0)


def rows_sum_to_one(module):
    _, weights = module(torch.randn(2, 5, 16), KEEP, True)
    return close(weights.sum(-1), torch.ones(2, 4, 5))


def padded_keys_get_nothing(module):
    _, weights = module(torch.randn(2, 5, 16), KEEP, True)
    return weights[1, ..., 3:].abs().max() < 1e-6


def padding_does_not_matter(module):
    x = torch.randn(2, 5, 16)
    garbage = torch.where(KEEP[..., None], x, 50 * torch.randn_like(x))
    longer = torch.cat([x, torch.randn(2, 4, 16)], 1)
    more = torch.cat([KEEP, torch.zeros(2, 4, dtype=torch.bool)], 1)
    out = module(x, KEEP)[KEEP]
    return close(module(garbage, KEEP)[KEEP], out) and close(module(longer, more)[:, :5][KEEP], out)


def order_is_carried_along(module):
    x, order = torch.randn(2, 5, 16), torch.tensor([3, 0, 4, 1, 2])
    return close(module(x[:, order]), module(x)[:, order])


def samples_do_not_meet(module):
    x = torch.randn(2, 5, 16)
    return close(module(x)[:1], module(x[:1]))


def equals_torch(module, x, keep):
    out, weights = module(x, keep, True)
    expected, their_weights = reference(module)(
        x, x, x, key_padding_mask=~keep, average_attn_weights=False
    )
    return close(out[keep], expected[keep]) and close(weights, their_weights)


def equals_torch_padded(module):
    return equals_torch(module, torch.randn(2, 5, 16), KEEP)


def equals_torch_when_batch_and_length_coincide(module):
    return equals_torch(module, torch.randn(3, 3, 16), SQUARE)


WITHOUT_A_REFERENCE = (
    rows_sum_to_one,
    padded_keys_get_nothing,
    padding_does_not_matter,
    order_is_carried_along,
    samples_do_not_meet,
)
COPIED_WEIGHTS = (equals_torch_padded, equals_torch_when_batch_and_length_coincide)

WRONG = (
    "no_scale", "scale_dmodel", "scale_dk", "softmax_query", "sigmoid", "attn_transposed",
    "mask_ignored", "mask_inverted", "mask_query", "mask_zero_before_softmax",
    "mask_after_softmax", "mask_small_neg", "mask_B_L_broadcast", "badsplit", "badmerge",
    "no_oproj", "no_vproj", "shared_qkv", "batch_attn", "dropout_always",
)  # fmt: skip
OTHER_LAYOUT = ("interleaved_heads", "qk_swapped")


def failed(module, checks):
    torch.manual_seed(2)
    return [check.__name__ for check in checks if not check(module)]


@pytest.mark.parametrize("build", [lambda: Mutable("correct"), lambda: MultiHeadAttention(16, 4)])
def test_right_attentions_pass_every_check(build):
    assert failed(randomise(build()), WITHOUT_A_REFERENCE + COPIED_WEIGHTS) == []


@pytest.mark.parametrize("form", WRONG)
def test_wrong_attentions_are_caught(form):
    assert failed(randomise(Mutable(form)), WITHOUT_A_REFERENCE + COPIED_WEIGHTS)


@pytest.mark.parametrize("form", OTHER_LAYOUT)
def test_other_layouts_fail_only_where_weights_are_copied(form):
    module = randomise(Mutable(form))
    assert failed(module, WITHOUT_A_REFERENCE) == []
    assert failed(module, COPIED_WEIGHTS)


def test_only_the_square_batch_finds_the_silent_broadcast():
    module = randomise(Mutable("mask_B_L_broadcast"))
    everything = failed(module, WITHOUT_A_REFERENCE + COPIED_WEIGHTS)
    assert everything == ["equals_torch_when_batch_and_length_coincide"]


def test_shapes_alone_find_nothing():
    x = torch.randn(2, 5, 16)
    for form in WRONG:
        out, weights = Mutable(form)(x, KEEP, True)
        assert out.shape == (2, 5, 16) and weights.shape == (2, 4, 5, 5)
