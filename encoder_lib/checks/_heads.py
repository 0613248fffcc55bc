"""Checks of chapter 05: splitting, merging, the whole multi-head attention."""

import functools
import inspect
import math

import torch
from torch import nn

from encoder_lib.checks._attend import WRONG_STEPS, Steps, attend, said, wrong_pairs
from encoder_lib.checks._attention import AttentionChecker, right_without_mask, takes
from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, answer, call, kind, made
from encoder_lib.checks._report import Misconception
from encoder_lib.checks._weights import bare_maps, has_bias, own_name, set_by_name

__all__ = ["multi_head_attention"]

NAMES = ("w_q", "w_k", "w_v", "w_o")
WANTS = "a class, or a function that makes a module from (d_model, n_heads)"


# --- multi-head attention, right and wrong --------------------------------------------------------


def split(x, n_heads, how="right"):
    """(B, L, D) -> (B, H, L, d_k), or the same shape from another cut."""
    if how == "view":
        return x.reshape(x.size(0), n_heads, x.size(1), -1)
    if how == "interleaved":
        return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge(x, how="right"):
    """(B, H, L, d_k) -> (B, L, D), or the same shape put together otherwise."""
    if how == "view":
        return x.reshape(x.size(0), x.size(2), -1)
    if how == "interleaved":
        return x.permute(0, 2, 3, 1).flatten(2)
    return x.transpose(1, 2).flatten(2)


def projected(x, weights, name):
    """x W^T + b for the map ``name``; a bias that is not there is 0."""
    return nn.functional.linear(x, weights[name], weights.get("b" + name[1:]))


def multi_head(weights, n_heads, x, keep, steps=Steps(), cut="right", join="right", maps=NAMES,
               mask_axes="keys"):  # fmt: skip
    """(output, weights) of multi-head attention with the given steps; padded rows are set to 0.

    maps: which weights make query, key, value and output; "" leaves the map out.
    """
    q, k, v = (split(projected(x, weights, m) if m else x, n_heads, cut) for m in maps[:3])
    mask = None
    if keep is not None:  # (B, 1, 1, L), or (L, L) by mistake when B = L
        square = mask_axes == "batch if square" and keep.size(0) == keep.size(1)
        mask = keep if square or mask_axes == "batch" else keep[:, None, None, :]
        if mask_axes == "heads":
            mask = keep[:, None, :]  # (B, 1, L) meets the heads' axis
    out, a = attend(q, k, v, mask, steps, n_heads)
    out = merge(out, join)
    return at_real(projected(out, weights, maps[3]) if maps[3] else out, a, keep)


def at_real(out, weights, keep):
    """Output (B, L, D) and weights (B, H, L, L) with the rows of padded queries set to 0."""
    if keep is None:
        return out, weights
    out = torch.where(keep[..., None], out, 0.0)
    if isinstance(weights, torch.Tensor) and weights.dim() == 4:
        weights = torch.where(keep[:, None, :, None], weights, 0.0)
    return out, weights


def over_batch(weights, n_heads, x, keep):
    """Attention along the batch instead of along the sentence, the masks left out."""
    out, a = multi_head(weights, n_heads, x.transpose(0, 1), None)
    return at_real(out.transpose(0, 1), a, keep)


def averaged(weights, n_heads, x, keep):
    """The right output, and the mean of the heads' weights (B, L, L)."""
    out, a = multi_head(weights, n_heads, x, keep)
    return out, a.mean(dim=1)


# --- running a learner's module -------------------------------------------------------------------


def fused(weights):
    """The weights with query, key and value in one map, ``w_qkv``."""
    found = {k: w for k, w in weights.items() if k[2:] == "o"}
    for letter in "wb":
        found[f"{letter}_qkv"] = torch.cat([weights[f"{letter}_{name}"] for name in "qkv"])
    return found


class Learner:
    """A learner's multi-head attention as f(weights, n_heads, x, keep) -> (output, weights).

    ``raw`` is the last result before the rows of padded queries were set to 0, ``missing`` the maps
    that the module does not have under any name known.
    """

    def __init__(self, attempt, names=None, adapter=None):
        self.attempt, self.names, self.adapter = attempt, names, adapter
        self.missing, self.raw = [], None

    def load(self, module, weights):
        """Copy the weights by name, or by the learner's adapter."""
        if self.adapter is not None:
            call(self.adapter, module, weights)
            return
        joint = own_name(module, "w_qkv")
        if joint and not own_name(module, "w_q") and getattr(module, joint).weight.size(0) > 1:
            weights = fused(weights)
        self.missing = set_by_name(module, weights, self.names)

    def __call__(self, weights, n_heads, x, keep):
        module = made(self.attempt, x.size(-1), n_heads, wants=WANTS)
        self.load(module, weights)
        result = self.forward(module, x, keep)
        if isinstance(result, torch.Tensor):
            result = (result, None)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise Trouble("forward should return the output, or (output, weights)", "type")
        if not isinstance(result[0], torch.Tensor) or result[0].shape != x.shape:
            raise Trouble(f"the output should have the shape of x, {tuple(x.shape)}; what came is "
                          f"{kind(result[0])}", "shape")  # fmt: skip
        self.raw = result
        return at_real(*result, keep)

    def forward(self, module, x, keep):
        """The module's answer, with weights if it can return them."""
        try:
            asks = "return_weights" in inspect.signature(module.forward).parameters
        except (TypeError, ValueError):
            asks = False
        forward = functools.partial(module, return_weights=True) if asks else module
        alone = functools.partial(module.forward, return_weights=True) if asks else module.forward
        short = takes(alone, 1) and (keep is None or not takes(alone, 2))
        return answer(forward, x) if short else answer(forward, x, keep)


def learner(attempt, draw, names=None, adapter=None, bias=True):
    """The answer as a function of a case's arguments; tells ``draw`` which biases there are.

    Options of the check: ``names`` and ``adapter`` as in ``_weights``; ``bias=False`` for a module
    without biases whose weights an adapter sets.
    """
    f = Learner(attempt, names, adapter)
    module = made(attempt, 24, 4, wants=WANTS)
    draw.without = set() if bias else {f"b_{letter}" for letter in "qkvo"}
    draw.symmetric = adapter is None and bare_maps(module, NAMES)
    for key in NAMES if adapter is None else ():
        name = (names or {}).get(key) or own_name(module, key) or own_name(module, "w_qkv")
        if name is not None and not has_bias(module, name):
            draw.without.add("b" + key[1:])
    return f


def batch(draw, n_heads, d_model, lengths, length, masked=True):
    """(weights, n_heads, x (B, L, D), keep (B, L) or None), with loud garbage in the padding."""
    weights = {}
    for name in NAMES:
        weight = 1.5 * draw.normal(d_model, d_model) / math.sqrt(d_model)
        weights[name] = (weight + weight.T) / math.sqrt(2) if draw.symmetric else weight
        gone = "b" + name[1:] in draw.without
        weights["b" + name[1:]] = (0.0 if gone else 1.0) * draw.normal(d_model)
    keep = draw.keep(lengths, length)  # (B, L)
    x = draw.normal(len(lengths), length, d_model) * torch.where(keep, 1.0, 3.0)[..., None]
    return weights, n_heads, x, keep if masked else None


# --- signs ----------------------------------------------------------------------------------------


def with_and_without(evidence):
    """(raw rows with the mask, without it, keep (B, L)) of one padded case."""
    weights, n_heads, x, keep = next(t.args for t in evidence.trials if t.args[3] is not None)
    evidence.ask(weights, n_heads, x, keep)
    masked = evidence.f.raw[0].detach()
    evidence.ask(weights, n_heads, x, None)
    return masked, evidence.f.raw[0].detach(), keep


def ignores_mask(evidence):
    """The output is the same with the mask and without, padded rows, too."""
    masked, free, _ = with_and_without(evidence)
    return right_without_mask(evidence) and torch.allclose(masked, free, atol=1e-6)


def masks_queries(evidence):
    """The rows of the padding change with the mask, those of real tokens do not."""
    masked, free, keep = with_and_without(evidence)
    changed = ~torch.isclose(masked, free, atol=1e-6).all(dim=-1)  # (B, L)
    only_padding = bool(changed.any()) and not bool((changed & keep).any())
    return only_padding and right_without_mask(evidence)


def unmasked(evidence):
    """(weights, n_heads, x) of the case without a mask, and its output."""
    weights, n_heads, x, keep = next(t.args for t in evidence.trials if t.args[3] is None)
    return weights, n_heads, x, evidence.ask(weights, n_heads, x, keep)[0]


def mixes_samples(evidence):
    """A sentence gives another result alone than in its batch."""
    weights, n_heads, x, together = unmasked(evidence)
    alone = evidence.ask(weights, n_heads, x[:1], None)[0]
    return not torch.allclose(together[:1], alone, atol=1e-4)


def mixes_positions(evidence):
    """Shuffled words do not give the shuffled result."""
    weights, n_heads, x, out = unmasked(evidence)
    order = torch.tensor([4, 2, 0, 3, 1])
    shuffled = evidence.ask(weights, n_heads, x[:, order], None)[0]
    return not torch.allclose(shuffled, out[:, order], atol=1e-4)


SHARED = ("Queries, keys and values come from one and the same projection: what a word asks for, what "
          "it offers and what it hands over are then one thing. There should be three.")  # fmt: skip
BATCH = ("The sentences of a batch influence each other: attention, or its softmax, runs over the batch "
         "axis, so the first sentence gives another result alone than beside others.")  # fmt: skip
SPLIT = ("The heads were split without a transpose: the numbers are cut in the order in which they lie "
         "in memory, so head 0 sees only the first tokens instead of some numbers of every token.")
MERGE = ("The heads were merged without a transpose: the rows of one head are glued together, so the "
         "output of a token holds numbers of other tokens.")  # fmt: skip
CUTS = (
    ("badsplit", SPLIT, (dict(cut="view"), dict(cut="view", join="view"))),
    ("badmerge", MERGE, (dict(join="view"),)),
    ("no_oproj", "The output projection is missing: the heads stand side by side, and nothing mixes "
     "them.", (dict(maps=("w_q", "w_k", "w_v", "")),)),
    ("no_vproj", "The values are not projected: the input itself is averaged instead of its values.",
     (dict(maps=("w_q", "w_k", "", "w_o")),)),
    ("shared_qkv", SHARED, tuple(dict(maps=(m, m, m, "w_o")) for m in ("w_q", "w_k", "w_v"))),
    ("shared_qk", "Queries and keys come from the same projection, so the scores are symmetric.",
     (dict(maps=("w_q", "w_q", "w_v", "w_o")), dict(maps=("w_k", "w_k", "w_v", "w_o")))),
    ("mask_B_L_broadcast", "The mask (B, L) meets the scores (B, H, L, L) without axes of its own: where "
     "B = L (or B = H) it is taken for a mask of query rows (or of heads) and the masks of the sentences "
     "are mixed up. It needs the shape (B, 1, 1, L).",
     (dict(mask_axes="batch"), dict(mask_axes="batch if square"), dict(mask_axes="heads"))),
)  # fmt: skip


def misconceptions():
    """What the check of multi-head attention recognises, the special before the general."""
    found = [
        Misconception("mask_ignored", said("mask_ignored"), signs=ignores_mask),
        Misconception("mask_query", said("mask_query"), signs=masks_queries),
    ]
    for key, text, ways in CUTS:
        forms = tuple(functools.partial(multi_head, **way) for way in ways)
        found.append(Misconception(key, text, forms))
    for key, text, ways in WRONG_STEPS:
        forms = tuple(functools.partial(multi_head, steps=steps) for steps in ways)
        found.append(Misconception(key, BATCH if key == "batch_attn" else text, forms))
    found += [
        Misconception("averaged_weights", "The weights are averaged over the heads: the shape should "
                      "be (B, H, L, L), a map for every head.", averaged),
        Misconception("shared_qkv", SHARED, signs=lambda e: set(NAMES[:3]) <= set(e.f.missing)),
        Misconception("batch_attn", BATCH, signs=mixes_samples),
        Misconception("badsplit", SPLIT, signs=mixes_positions),
        Misconception("names", "Not all of the maps were found whose weights the check sets: call them "
                      "w_q, w_k, w_v and w_o, or say how yours are called: names={\"w_q\": ...}.",
                      signs=lambda e: bool(e.f.missing)),
    ]  # fmt: skip
    return (*found, *pairs())


def pairs():
    """Two mistakes at once: one of the cut, the maps or the scale, and one of the mask."""
    cuts = [(key, text, way) for key, text, ways in CUTS for way in ways if "mask_axes" not in way]
    steps = [(key, text, way) for key, text, ways in WRONG_STEPS for way in ways]
    found = [
        Misconception(f"{key}+{other}", f"{text} And: {also}",
                      functools.partial(multi_head, steps=second, **first))
        for key, text, first in cuts for other, also, second in steps
    ]  # fmt: skip
    found += [
        Misconception(f"{key}+{other}", f"{text} And: {also}",
                      functools.partial(multi_head, steps=both))
        for key, text, other, also, both in wrong_pairs()
    ]  # fmt: skip
    return tuple(found)


multi_head_attention = AttentionChecker(
    name="multi_head_attention",
    number="5.3",
    component="multi-head attention",
    right=multi_head,
    reread="The finished module",
    inputs=("the weights", "n_heads", "x", "keep_mask"),
    outputs=("the output", "the weights"),
    gradient=(2,),
    adapt=learner,
    misconceptions=misconceptions(),
    variants=(
        ("a valid layout, but not torch's: your heads are interleaved (head h takes every H-th number), "
         "so trained weights cannot be exchanged without reordering them",
         functools.partial(multi_head, cut="interleaved", join="interleaved")),
        ("a valid layout with other names: your w_q makes the keys and your w_k the queries (q and k "
         "swapped), so trained weights cannot be exchanged without renaming them",
         functools.partial(multi_head, maps=("w_k", "w_q", "w_v", "w_o"))),
    ),
    cases=(
        Case("four heads, no mask", lambda draw: batch(draw, 4, 24, (5, 5), 5, masked=False)),
        Case("padding of three lengths, garbage in it", lambda draw: batch(draw, 4, 24, (5, 3, 2), 5)),
        Case("batch as large as the length", lambda draw: batch(draw, 2, 12, (3, 2, 1), 3)),
        Case("batch as large as the number of heads", lambda draw: batch(draw, 2, 12, (3, 2), 4)),
        Case("one head", lambda draw: batch(draw, 1, 6, (4, 2), 4)),
    ),
)  # fmt: skip
