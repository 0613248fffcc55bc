"""The mutation matrix: right attention, two other layouts, twenty mistakes, in learners' spellings.

``mutants.py`` builds the same mistakes into the library's class. Here they stand in a class of
their own, as a learner writes one, with each usual way of ruling a key out and of returning.
"""

import itertools
import math

import pytest
import torch
from torch import nn

from encoder_lib import checks

FILLS = {"-inf": -math.inf, "-1e9": -1e9, "smallest": torch.finfo(torch.float32).min}
CAUSES = {  # what the diagnosis must speak of
    "no_scale": "not scaled", "scale_dmodel": "d_model", "scale_dk": "square root",
    "softmax_query": "softmax runs over the queries", "sigmoid": "sigmoid",
    "attn_transposed": "transposed", "mask_ignored": "mask is ignored",
    "mask_inverted": "mask looks inverted", "mask_query": "queries (rows)",
    "mask_zero_before_softmax": "0 before the softmax", "mask_after_softmax": "after the softmax",
    "mask_small_neg": "small number", "mask_B_L_broadcast": "(B, 1, 1, L)",
    "badsplit": "split without a transpose", "badmerge": "merged without a transpose",
    "no_oproj": "output projection is missing", "no_vproj": "values are not projected",
    "shared_qkv": "one and the same projection", "batch_attn": "batch axis",
    "dropout_always": "dropout",
}  # fmt: skip
LAYOUTS = {"interleaved_heads": "interleaved", "qk_swapped": "swapped"}


class Attention(nn.Module):
    """A learner's multi-head attention; ``form`` is the mistake, ``fill`` rules keys out."""

    form, fill = "correct", -math.inf

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def heads(self, x):
        batch, length, _ = x.shape
        if self.form == "badsplit":
            return x.reshape(batch, self.h, length, self.d)
        if self.form == "interleaved_heads":
            return x.view(batch, length, self.d, self.h).permute(0, 3, 1, 2)
        return x.view(batch, length, self.h, self.d).transpose(1, 2)

    def glued(self, x):
        batch, _, length, _ = x.shape
        if self.form == "badmerge":
            return x.reshape(batch, length, -1)
        if self.form == "interleaved_heads":
            return x.permute(0, 2, 3, 1).reshape(batch, length, -1)
        return x.transpose(1, 2).reshape(batch, length, -1)

    def masked(self, scores, keep):
        if keep is None or self.form in ("mask_ignored", "mask_after_softmax"):
            return scores
        pad = ~keep[:, None, None, :]
        if self.form == "mask_B_L_broadcast" and keep.size(0) == keep.size(1):
            pad = ~keep
        if self.form == "mask_inverted":
            pad = ~pad
        if self.form == "mask_query":
            pad = pad.transpose(-2, -1)
        if self.form == "mask_zero_before_softmax":
            return scores * ~pad
        if self.form == "mask_small_neg":
            return scores + pad * -4.0
        return scores.masked_fill(pad, self.fill)

    def forward(self, x, keep_mask=None, return_weights=False):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.form == "shared_qkv":
            k = v = q
        if self.form == "qk_swapped":
            q, k = k, q
        if self.form == "no_vproj":
            v = x
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        scales = {"no_scale": 1, "scale_dk": self.d, "scale_dmodel": x.size(-1) ** 0.5}
        scores = q @ k.transpose(-1, -2) / scales.get(self.form, self.d**0.5)
        scores = self.masked(scores, keep_mask)
        axis = {"softmax_query": -2, "batch_attn": 0}.get(self.form, -1)
        weights = torch.sigmoid(scores) if self.form == "sigmoid" else scores.softmax(axis)
        if self.form == "mask_after_softmax" and keep_mask is not None:
            weights = weights * keep_mask[:, None, None, :]
        used = nn.functional.dropout(weights, 0.1) if self.form == "dropout_always" else weights
        if self.form == "attn_transposed":
            used = used.transpose(-2, -1)
        out = self.glued(used @ v)
        out = out if self.form == "no_oproj" else self.w_o(out)
        return (out, weights) if return_weights else out


class OutputOnly(Attention):
    """The same, without weights to look at."""

    def forward(self, x, mask=None):
        return super().forward(x, mask)


class OverTheBatch(Attention):
    """Attention along the batch axis, as when batch-first and length-first are mixed up."""

    def forward(self, x, keep_mask=None, return_weights=False):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


def reports(form, seeds=3):
    """The reports on one form in all spellings."""
    for base, (_, fill) in itertools.product((Attention, OutputOnly), FILLS.items()):
        made = type("Mine", (base,), {"form": form, "fill": fill})
        for seed in range(seeds):
            yield checks.multi_head_attention(made, seed=seed)


def test_there_are_23_rows():
    assert 1 + len(LAYOUTS) + len(CAUSES) == 23


def test_right_attention_passes():
    for report in reports("correct"):
        assert report.passed and not report.diagnosis, report


@pytest.mark.parametrize("form", LAYOUTS)
def test_another_layout_passes_and_is_named(form):
    for report in reports(form):
        assert report.passed and LAYOUTS[form] in report.diagnosis
        assert "valid layout" in str(report) and LAYOUTS[form] in str(report)


@pytest.mark.parametrize("form", CAUSES)
def test_a_mistake_is_rejected_and_its_cause_is_named(form):
    for report in reports(form):
        assert not report.passed
        assert report.misconception == ("random" if form == "dropout_always" else form), report
        assert CAUSES[form] in report.diagnosis, report
        assert form == "dropout_always" or (report.expected and report.got)


def test_attention_along_the_batch_is_named():
    assert checks.multi_head_attention(OverTheBatch).misconception == "batch_attn"


def as_function(form, fill):
    """The same mistake in the function of chapter 03."""

    def my_attention(q, k, v, mask=None):
        learner = Attention(q.size(-1), 1)
        learner.form, learner.fill = form, fill
        heads = q.size(1) if q.dim() == 4 else 1
        scales = {
            "no_scale": 1,
            "scale_dk": q.size(-1),
            "scale_dmodel": (q.size(-1) * heads) ** 0.5,
        }
        scores = q @ k.transpose(-1, -2) / scales.get(form, q.size(-1) ** 0.5)
        if mask is not None:
            scores = function_mask(scores, mask, form, fill)
        axis = {"softmax_query": -2, "batch_attn": 0}.get(form, -1)
        weights = torch.sigmoid(scores) if form == "sigmoid" else scores.softmax(axis)
        if form == "mask_after_softmax" and mask is not None:
            weights = weights * mask
        used = nn.functional.dropout(weights, 0.1) if form == "dropout_always" else weights
        return (used.transpose(-2, -1) if form == "attn_transposed" else used) @ v, weights

    return my_attention


def function_mask(scores, mask, form, fill):
    """Scores with a mask, True = attend, that any broadcast may enlarge."""
    if form in ("mask_ignored", "mask_after_softmax"):
        return scores
    if form == "mask_inverted":
        return scores.masked_fill(mask, fill)
    if form == "mask_query":
        return scores.masked_fill(~mask.expand(scores.shape).transpose(-2, -1), fill)
    if form == "mask_zero_before_softmax":
        return scores * mask
    return scores - 4.0 * ~mask if form == "mask_small_neg" else scores.masked_fill(~mask, fill)


OF_THE_FUNCTION = [
    form for form in CAUSES
    if not form.startswith(("bad", "no_o", "no_v", "shared", "mask_B"))
]  # fmt: skip


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("form", ["correct", *OF_THE_FUNCTION])
def test_the_function_is_classified_in_the_same_way(form, fill):
    for seed in range(3):
        report = checks.scaled_dot_product_attention(as_function(form, FILLS[fill]), seed=seed)
        assert report.passed == (form == "correct"), report
        wanted = {"correct": "", "dropout_always": "random"}.get(form, form)
        assert report.misconception == wanted, report
