"""Wrong attentions that look right, and how to put one in the library's place.

    python tests/support/mutants.py FOLDER FORM ...

runs the library's own tests of attention once for each form, with that form injected, up to the
first failure. What pytest said goes to ``FOLDER/FORM.txt``, its last line is the exit code: 1 when
a test failed, which is what must happen, 0 when the suite noticed nothing.
"""

import contextlib
import math
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from encoder_lib import attention, encoder
from encoder_lib.embedding import require_dropout, require_features
from encoder_lib.masks import as_keep_mask

SUITE = ("test_torch_parity.py", "test_attention.py")
SCALE_AND_MASK = (
    "no_scale", "scale_dk", "softmax_query", "sigmoid", "attn_transposed", "mask_ignored",
    "mask_inverted", "mask_query", "mask_zero_before_softmax", "mask_after_softmax",
    "mask_small_neg", "batch_attn", "dropout_always",
)  # fmt: skip
WRONG = (
    *SCALE_AND_MASK, "scale_dmodel", "mask_B_L_broadcast", "badsplit", "badmerge", "no_oproj",
    "no_vproj", "shared_qkv",
)  # fmt: skip
OTHER_LAYOUT = ("interleaved_heads", "qk_swapped")


def hide(scores, mask, form):
    """The scores with forbidden keys hidden, or what ``form`` does instead; mask is (..., L, L)."""
    if mask is None or form in ("mask_ignored", "mask_after_softmax"):
        return scores
    if form == "mask_inverted":
        mask = ~mask
    if form == "mask_query":
        mask = mask.expand(scores.shape).transpose(-2, -1)
    fill = {"mask_zero_before_softmax": 0.0, "mask_query": -1e9}.get(form, -math.inf)
    if form == "mask_small_neg":
        return scores - 3.0 * ~mask
    return scores.masked_fill(~mask, fill)


def weigh(scores, form):
    """The softmax over keys, or what ``form`` does instead; queries without a key get zeros."""
    if form == "sigmoid":
        return scores.sigmoid()
    axis = {"softmax_query": -2, "batch_attn": 0}.get(form, -1)
    return scores.softmax(axis).nan_to_num(0.0)


def attend(q, k, v, mask, dropout_p, form, n_heads=1):
    """Attention spelt out, with the one step that ``form`` names replaced."""
    d_k = q.size(-1)
    scale = {"no_scale": 1.0, "scale_dk": d_k, "scale_dmodel": math.sqrt(d_k * n_heads)}
    scores = q @ k.transpose(-2, -1) / scale.get(form, math.sqrt(d_k))
    weights = weigh(hide(scores, mask, form), form)
    if form == "mask_after_softmax" and mask is not None:
        weights = weights * mask
    if form == "dropout_always":
        weights = F.dropout(weights, 0.2)
    used = F.dropout(weights, dropout_p)
    if form == "attn_transposed" and used.size(-1) == used.size(-2):
        used = used.transpose(-2, -1)
    return used @ v, weights


class Mutant(attention.MultiHeadAttention):
    """The library's multi-head attention with one step wrong; ``form`` says which."""

    form = "correct"

    def split(self, x):
        if self.form == "badsplit":
            return x.reshape(x.size(0), self.n_heads, x.size(1), -1)
        if self.form == "interleaved_heads":
            return x.unflatten(-1, (-1, self.n_heads)).permute(0, 3, 1, 2)
        return super().split(x)

    def merge(self, x):
        if self.form == "badmerge":
            return x.reshape(x.size(0), x.size(2), -1)
        if self.form == "interleaved_heads":
            return x.permute(0, 2, 3, 1).flatten(2)
        return super().merge(x)

    def projections(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if self.form == "qk_swapped":
            q, k = k, q
        if self.form == "shared_qkv":
            k = v = q
        return q, k, x if self.form == "no_vproj" else v

    def mask(self, x, keep_mask):
        if keep_mask is None:
            return None
        keep = as_keep_mask(keep_mask, x.shape[:2])
        if self.form == "mask_B_L_broadcast" and keep.size(0) == keep.size(1):
            return keep
        return keep[:, None, None, :]

    def forward(self, x, keep_mask=None, return_weights=False):
        require_features(x, self.d_model)
        q, k, v = (self.split(y) for y in self.projections(x))
        dropout = self.dropout if self.training else 0.0
        mask = self.mask(x, keep_mask)
        out, weights = attend(q, k, v, mask, dropout, self.form, self.n_heads)
        out = self.merge(out)
        out = out if self.form == "no_oproj" else self.w_o(out)
        return (out, weights) if return_weights else out


def mutant(form):
    """The class of a wrong multi-head attention."""
    return type("MultiHeadAttention", (Mutant,), {"form": form})


def function(form):
    """A wrong scaled_dot_product_attention with the library's checks of its arguments."""

    def scaled_dot_product_attention(q, k, v, mask=None, dropout_p=0.0):
        attention.require_qkv(q, k, v)
        require_dropout(dropout_p)
        if mask is not None:
            mask = attention.as_score_mask(mask, (*q.shape[:-1], k.size(-2)))
        return attend(q, k, v, mask, dropout_p, form)

    return scaled_dot_product_attention


def inject(form):
    """Put a wrong form into the library: ``module:form`` or ``function:form``."""
    import encoder_lib

    kind, name = form.split(":")
    if kind == "function":
        places = (attention, encoder_lib)
        attribute, wrong = "scaled_dot_product_attention", function(name)
    else:
        places = (attention, encoder, encoder_lib)
        attribute, wrong = "MultiHeadAttention", mutant(name)
    for place in places:
        setattr(place, attribute, wrong)


def run_suite(form, report):
    """Inject a form and run the suite; the first failure is enough. Writes the report."""
    root = Path(__file__).resolve().parents[2]
    inject(form)
    suite = [str(root / "tests" / "unit" / file) for file in SUITE]
    options = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", f"--rootdir={root}"]
    with report.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        code = pytest.main([*options, *suite])
        print(int(code))


def main():
    """One forked process for each form: torch is loaded once, and no form meets another."""
    torch.set_num_threads(1)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed here, and loading is slow
    folder, *forms = sys.argv[1:]
    for form in forms:
        child = os.fork()
        if child == 0:
            run_suite(form, Path(folder, form.replace(":", "-") + ".txt"))
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
