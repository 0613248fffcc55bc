"""Checks of chapter 05: splitting, merging, the whole multi-head attention."""

import functools
import inspect
import math

import torch
from torch import nn

from encoder_lib.checks._attend import WRONG_STEPS, Steps, attend, said, wrong_pairs
from encoder_lib.checks._attention import (
    WRONG_WEIGHTS,
    AttentionChecker,
    right_without_mask,
    with_mask,
    wrong_weights,
)
from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, call, kind, made
from encoder_lib.checks._weights import bare_maps, has_bias, own_name, parts, set_by_name
from encoder_lib.checks.report import Misconception

__all__ = ["head_contributions", "merge_heads", "multi_head_attention", "split_heads"]

PLAIN = Steps()
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


def multi_head(weights, n_heads, x, keep, steps=PLAIN, cut="right", join="right", maps=NAMES,
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
    if isinstance(weights, torch.Tensor) and weights.dim() == 3:  # a mean over the heads
        weights = torch.where(keep[..., None], weights, 0.0)
    return out, weights


def per_head(weights, n_heads, x, keep, numbers_first=False):
    """One map for queries, keys and values whose rows are read head by head."""
    joint = fused(weights)
    for letter in "wb":
        order = (n_heads, -1, 3) if numbers_first else (n_heads, 3, -1)
        cut = joint[f"{letter}_qkv"].unflatten(0, order)
        cut = cut.transpose(1, 2) if numbers_first else cut  # (H, 3, d_k, ...)
        for i, name in enumerate("qkv"):
            joint[f"{letter}_{name}"] = cut[:, i].flatten(0, 1)
    return multi_head(joint, n_heads, x, keep)


def averaged(weights, n_heads, x, keep):
    """The right output, and the mean of the heads' weights (B, L, L)."""
    out, a = multi_head(weights, n_heads, x, keep)
    return out, a.mean(dim=1)


def one_head(weights, n_heads, x, keep):
    """The projections are not split: one head as wide as the model."""
    return multi_head(weights, 1, x, keep)


def with_input(weights, n_heads, x, keep):
    """The input is added to the output."""
    out, a = multi_head(weights, n_heads, x, keep)
    return out + (x if keep is None else torch.where(keep[..., None], x, 0.0)), a


def input_hidden(weights, n_heads, x, keep):
    """The padding of the input is set to 0, and its keys keep their weight."""
    if keep is None:
        return multi_head(weights, n_heads, x, keep)
    x = torch.where(keep[..., None], x, 0.0)
    return at_real(*multi_head(weights, n_heads, x, None), keep)


# --- running a learner's module -------------------------------------------------------------------


def joint_map(module, names):
    """What the module calls its one map for queries, keys and values, or None.

    Under an unknown name it is the only one that makes three times as many numbers as it reads.
    """
    linear = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    wide = [name for name, m in linear if m.out_features == 3 * m.in_features]
    return names.get("w_qkv") or own_name(module, "w_qkv") or (wide[0] if len(wide) == 1 else None)


def found_by_shape(module, names, weights):
    """The names with those of ``w_qkv`` and ``w_o`` added, where shapes tell which is meant."""
    size = tuple(weights["w_o"].shape)
    square = [name for name, m in module.named_modules()
              if isinstance(m, nn.Linear) and tuple(m.weight.shape) == size]  # fmt: skip
    found = {"w_qkv": joint_map(module, names)} | names
    if own_name(module, "w_o") is None and len(square) == 1:
        found.setdefault("w_o", square[0])
    return found


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
        names = dict(self.names or {})
        if not (names.get("w_q") or own_name(module, "w_q")) and joint_map(module, names):
            names, weights = found_by_shape(module, names, weights), fused(weights)
        self.missing = set_by_name(module, weights, names)

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
        return with_mask(forward, alone, (x,), keep)


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
        name = (names or {}).get(key) or own_name(module, key)
        held = key if name else "w_qkv"
        name = name or joint_map(module, names or {})
        if name is not None and not has_bias(module, name, held):
            draw.without.add("b" + key[1:])
    return f


def loud_padding(draw):
    """As ``batch``, scores of real tokens near -67, of padding near 0."""
    weights, n_heads, x, keep = batch(draw, 2, 12, (5, 3), 5)
    for name, size in (("w_q", 4.0), ("w_k", -4.0)):
        weights[name] *= 0.1
        weights[name][0, 0] = weights[name][6, 6] = size  # the first number of either head
    x[..., [0, 6]] = torch.where(keep, 3.2, 0.0)[..., None]
    return weights, n_heads, x, keep


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


def one_map(evidence):
    """None of the three maps has a known name, and beside w_o there is at most one of its size."""
    module = made(evidence.f.attempt, 24, 4)
    sizes = [tuple(m.weight.shape) for m in module.modules() if isinstance(m, nn.Linear)]
    return set(NAMES[:3]) <= set(evidence.f.missing) and sizes in ([(24, 24)], [(24, 24)] * 2)


def slices_input(evidence):
    """The query map is d_k by d_k."""
    module = made(evidence.f.attempt, 24, 4)
    name = (evidence.f.names or {}).get("w_q") or own_name(module, "w_q")
    target, bare = parts(module, name)
    return (target if bare else target.weight).shape == (6, 6)


SHARED = ("Queries, keys and values come from one and the same projection: what a word asks for, "
          "what it offers and what it hands over are then one thing. There should be "
          "three.")  # fmt: skip
BATCH = ("The sentences of a batch influence each other: attention, or its softmax, runs over the "
         "batch axis, so the first sentence gives another result alone than beside "
         "others.")  # fmt: skip
SPLIT = (
    "The heads were split without a transpose: the numbers are cut in the order in which they lie "
    "in memory, so head 0 sees only the first tokens instead of some numbers of every token."
)
MIXED = ("Shuffled words do not give the shuffled result, so some step treats the places of a "
         "sentence unequally. Usually a split or a merge has its axes in another order than it "
         "should; a mask of the future would do it, too.")  # fmt: skip
MERGE = ("The heads were merged without a transpose: the rows of one head are glued together, so "
         "the output of a token holds numbers of other tokens.")  # fmt: skip
SLICED = ("The maps of your heads are d_k by d_k: each head is given a slice of the input. A head "
          "is a slice of the projections; its map reads all D numbers of a token.")  # fmt: skip
ROLES = ("The maps have changed their roles: the rows that should make queries, keys or values "
         "make something else. In w_qkv the D rows of all queries come first, then the keys, then "
         "the values; it is not cut head by head.")  # fmt: skip
ORDERS = tuple(
    functools.partial(multi_head, maps=(*(f"w_{letter}" for letter in order), "w_o"))
    for order in ("vkq", "qvk", "kvq", "vqk")
)
CUTS = (
    ("badsplit", SPLIT, (dict(cut="view"), dict(cut="view", join="view"))),
    ("badmerge", MERGE, (dict(join="view"),)),
    ("layouts_mixed", "Splitting and merging do not go together: one of them takes the numbers of "
                      "a head as neighbours, the other every H-th number.",
     (dict(cut="interleaved"), dict(join="interleaved"))),
    ("no_oproj", "The output projection is missing: the heads stand side by side, and nothing "
                 "mixes them.", (dict(maps=("w_q", "w_k", "w_v", "")),)),
    ("no_vproj", "The values are not projected: the input itself is averaged instead of its "
                 "values.",
     (dict(maps=("w_q", "w_k", "", "w_o")),)),
    ("shared_qkv", SHARED, tuple(dict(maps=(m, m, m, "w_o")) for m in ("w_q", "w_k", "w_v"))),
    ("shared_qk", "Queries and keys come from the same projection, so the scores are symmetric.",
     (dict(maps=("w_q", "w_q", "w_v", "w_o")), dict(maps=("w_k", "w_k", "w_v", "w_o")))),
    ("mask_B_L_broadcast", "The mask (B, L) meets the scores (B, H, L, L) without axes of its own: "
                           "where B = L (or B = H) it is taken for a mask of query rows (or of "
                           "heads) and the masks of the sentences are mixed up. It needs the shape "
                           "(B, 1, 1, L).",
     (dict(mask_axes="batch"), dict(mask_axes="batch if square"), dict(mask_axes="heads"))),
)  # fmt: skip


OTHERS = (
    Misconception("averaged_weights", "The weights are averaged over the heads: the shape "
                                      "should be (B, H, L, L), a map for every "
                                      "head.", averaged),
    Misconception("roles_mixed", ROLES, (per_head, lambda *args: per_head(*args, True),
                                         *ORDERS)),
    Misconception("one_head", "The heads are missing: the projections are not split, and one "
                              "head as wide as the model does all the work.", one_head),
    Misconception("residual_inside", "The input is added inside. That is done once, outside "
                                     "of attention (chapter 07); done inside, too, it would "
                                     "be added twice.", with_input),
    Misconception("mask_input", "The padding of the input is set to 0 instead of being hidden "
                                "as keys: a key of zeros (or of the bias) has a score, too, "
                                "and still gets weight.", input_hidden),
    Misconception("wrong_weights", WRONG_WEIGHTS, signs=wrong_weights),
    Misconception("shared_qkv", SHARED, signs=one_map),
    Misconception("names", "Not all of the maps were found whose weights the check sets: call "
                           "them w_qkv and w_o (or w_q, w_k, w_v and w_o), or say how yours "
                           "are called: names={\"w_o\": ...}.",
                  signs=lambda e: bool(e.f.missing)),
)  # fmt: skip
LAST = (
    Misconception("batch_attn", BATCH, signs=mixes_samples),
    Misconception("mixes_positions", MIXED, signs=mixes_positions),
)


def misconceptions():
    """What the check of multi-head attention recognises, the special before the general."""
    found = [
        Misconception(
            "sliced_input", SLICED, signs=slices_input, reread="Then one projection and a split"
        ),
        Misconception("mask_ignored", said("mask_ignored"), signs=ignores_mask),
        Misconception("mask_query", said("mask_query"), signs=masks_queries),
    ]
    for key, text, ways in CUTS:
        forms = tuple(functools.partial(multi_head, **way) for way in ways)
        found.append(Misconception(key, text, forms))
    for key, text, ways in WRONG_STEPS:
        forms = tuple(functools.partial(multi_head, steps=steps) for steps in ways)
        found.append(Misconception(key, BATCH if key == "batch_attn" else text, forms))
    return (*found, *OTHERS, *pairs(), *LAST)


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


def notes(evidence):
    """Whether biases are missing: one without them is right, but it is not the book's module."""
    weights = evidence.trials[0].args[0]
    if all(weights[name].any() for name in weights if name.startswith("b")):
        return ()
    return ("not all of your maps have a bias; the book's have",)


multi_head_attention = AttentionChecker(
    name="multi_head_attention",
    number="5.5",
    component="multi-head attention",
    right=multi_head,
    reread="The finished module",
    inputs=("the weights", "n_heads", "x", "keep_mask"),
    outputs=("the output", "the weights"),
    gradient=(2,),
    adapt=learner,
    notes=notes,
    misconceptions=misconceptions(),
    variants=(
        ("a valid layout, but not torch's: your heads are interleaved (head h takes every H-th "
         "number), so trained weights cannot be exchanged without reordering them",
         functools.partial(multi_head, cut="interleaved", join="interleaved")),
        ("a valid layout with other names: your w_q makes the keys and your w_k the queries (q and "
         "k swapped), so trained weights cannot be exchanged without renaming them",
         functools.partial(multi_head, maps=("w_k", "w_q", "w_v", "w_o"))),
    ),
    cases=(
        Case("four heads, no mask", lambda draw: batch(draw, 4, 24, (5, 5), 5, masked=False)),
        Case("padding of three lengths, garbage in it",
             lambda draw: batch(draw, 4, 24, (5, 3, 2), 5)),
        Case("batch as large as the length", lambda draw: batch(draw, 2, 12, (3, 2, 1), 3)),
        Case("batch as large as the number of heads", lambda draw: batch(draw, 2, 12, (3, 2), 4)),
        Case("one head", lambda draw: batch(draw, 1, 6, (4, 2), 4)),
        Case("padding with far larger scores than all real tokens", loud_padding),
    ),
)  # fmt: skip


# --- splitting and merging ------------------------------------------------------------------------


def from_tokens(x, n_heads):
    """(B, L, D) -> (B, H, L // H, D): the sentence is cut, not the features."""
    size = x.size(1) // n_heads
    return x[:, : n_heads * size].unflatten(1, (n_heads, size))


def listed(evidence):
    """The heads came one by one, (B, L, d_k) each, in a list or a tuple."""
    return all(
        isinstance(trial.got, tuple | list) and len(trial.got) == trial.args[1]
        and trial.got[0].shape == trial.want[:, 0].shape for trial in evidence.trials
    )  # fmt: skip


def glued(evidence):
    """The heads came in one piece: side by side, in the batch, or one after the other."""
    x, n_heads = evidence.trials[0].args
    b, length, d_k = x.size(0), x.size(1), x.size(2) // n_heads
    pieces = (x.shape, (b * n_heads, length, d_k), (b, n_heads * length, d_k))
    return evidence.trials[0].got.shape in pieces


split_heads = Checker(
    name="split_heads",
    number="5.3",
    component="multi-head attention",
    right=split,
    reread="Then one projection and a split",
    inputs=("x", "n_heads"),
    gradient=(0,),
    misconceptions=(
        Misconception(
            "badsplit",
            SPLIT,
            functools.partial(split, how="view"),
            reread="Break it: a split that has the right shape",
        ),
        Misconception(
            "interleaved",
            "A valid layout, but not this one: your head h has every H-th number, from h on. Here "
            "the numbers of a head are neighbours, as the stacked projections wrote them.",
            functools.partial(split, how="interleaved"),
        ),
        Misconception(
            "heads_last",
            "The numbers are cut rightly, but the heads still stand behind the tokens, (B, L, H, "
            "d_k), or at the very end. Attention works on the last two axes: these must be the "
            "tokens and the features.",
            (
                lambda x, n: x.unflatten(-1, (n, -1)),
                lambda x, n: x.unflatten(-1, (n, -1)).transpose(2, 3),
            ),
        ),
        Misconception(
            "heads_first",
            "The heads are right, but they stand in front of the batch: (H, B, L, d_k). The batch "
            "stays the first axis, the heads are the second.",
            lambda x, n: split(x, n).transpose(0, 1),
        ),
        Misconception(
            "too_far",
            "The tokens have become the last axis, (B, H, d_k, L). That is the shape of transposed "
            "keys; only the heads should move.",
            lambda x, n: split(x, n).transpose(2, 3),
        ),
        Misconception(
            "sizes_swapped",
            "The number of heads and the width of a head are swapped: there are d_k heads of H "
            "numbers each.",
            (
                lambda x, n: split(x, x.size(-1) // n),
                lambda x, n: split(x, x.size(-1) // n, "interleaved"),
            ),
        ),
        Misconception(
            "cuts_tokens",
            "Your function cuts the sentence: each head gets some of the tokens with all their "
            "features. It should get some features of every token.",
            from_tokens,
            reread="Break it: a split that has the right shape",
        ),
        Misconception(
            "whole_input",
            "Each head gets all D numbers. The heads share them out: of the projected numbers each "
            "one gets its own d_k.",
            lambda x, n: x[:, None].expand(-1, n, -1, -1),
        ),
        Misconception(
            "list_of_heads",
            "The heads are right to come one by one, but all of them should be one tensor (B, H, "
            "L, d_k), so that attention takes them as one batch.",
            signs=listed,
        ),
        Misconception(
            "no_axis",
            "The heads have no axis of their own: they stand side by side, one after the other, or "
            "in the batch. The result has four axes, (B, H, L, d_k).",
            signs=glued,
        ),
    ),
    cases=(
        Case("four heads", lambda draw: (draw.normal(2, 8, 12), 4)),
        Case("as many tokens as heads", lambda draw: (draw.normal(3, 4, 8), 4)),
        Case("as many heads as numbers in a head", lambda draw: (draw.normal(2, 6, 9), 3)),
        Case("one head", lambda draw: (draw.normal(2, 5, 4), 1)),
        Case("one sentence of one word", lambda draw: (draw.normal(1, 1, 6), 2)),
    ),
)

MERGE_AXES = ((0, 1, 3, 2), (0, 3, 2, 1), (0, 3, 1, 2), (0, 2, 3, 1), (1, 0, 2, 3), (2, 0, 1, 3),
              (2, 1, 0, 3), (1, 2, 0, 3))  # fmt: skip


def merged_by(x, axes):
    """The numbers of (B, H, L, d_k) in the order of the given axes, cut into (B, L, D)."""
    return x.permute(axes).reshape(x.size(0), x.size(2), -1)


merge_heads = Checker(
    name="merge_heads",
    number="5.4",
    component="multi-head attention",
    right=merge,
    reread="Then one projection and a split",
    inputs=("x",),
    gradient=(0,),
    misconceptions=(
        Misconception(
            "badmerge",
            MERGE,
            functools.partial(merge, how="view"),
            reread="Break it: a split that has the right shape",
        ),
        Misconception(
            "interleaved",
            "A valid layout, but not this one: your output takes number 0 of all heads, then "
            "number 1 of all heads. Here the d_k numbers of a head stay neighbours, head after "
            "head.",
            functools.partial(merge, how="interleaved"),
        ),
        Misconception(
            "not_merged",
            "Heads and numbers are still two axes, (B, L, H, d_k); together they are the D numbers "
            "of a token.",
            (lambda x: x.transpose(1, 2), lambda x: x.permute(0, 2, 3, 1)),
        ),
        Misconception(
            "added",
            "The heads are added up or averaged, so nobody can tell them apart any more. They are "
            "put side by side: D = H d_k numbers.",
            (lambda x: x.sum(1), lambda x: x.mean(1), lambda x: x.amax(1)),
        ),
        Misconception(
            "along_length",
            "The heads are put one behind the other along the sentence, (B, H L, d_k), or along "
            "the batch, instead of side by side in each token.",
            (
                lambda x: x.flatten(1, 2),
                lambda x: x.transpose(1, 2).flatten(1, 2),
                lambda x: x.flatten(0, 1),
                lambda x: x.transpose(0, 1).flatten(0, 1),
            ),
        ),
        Misconception(
            "wrong_axes",
            "The axes are in another order than (B, L, H, d_k) when you glue the last two, so "
            "numbers of other tokens (or sentences) come in.",
            tuple(functools.partial(merged_by, axes=axes) for axes in MERGE_AXES),
        ),
    ),
    cases=(
        Case("four heads", lambda draw: (draw.normal(2, 4, 5, 3),)),
        Case("as many tokens as heads", lambda draw: (draw.normal(3, 4, 4, 2),)),
        Case("as many heads as numbers in a head", lambda draw: (draw.normal(2, 3, 6, 3),)),
        Case("one head", lambda draw: (draw.normal(2, 1, 5, 4),)),
        Case("one sentence of one word", lambda draw: (draw.normal(1, 2, 1, 3),)),
    ),
)


# --- what each head adds to the output ------------------------------------------------------------


def pieces(weight, n_heads):
    """The output map (D, D), stored as nn.Linear does, cut into one (d_k, D) for each head."""
    return weight.T.unflatten(0, (n_heads, -1))


def contributions(heads, weight):
    """(B, H, L, d_k), (D, D) -> (B, H, L, D): each head's own part of the output."""
    return heads @ pieces(weight, heads.size(1))


def every_hth(heads, weight):
    """Parts in which head h uses every H-th column of the weight, from h on."""
    return heads @ weight.T.unflatten(0, (-1, heads.size(1))).transpose(0, 1)


def one_at_a_time(heads, weight, join="view", use=True):
    """Each head alone, zeros for the others, merged (by ``join``) and sent through the map."""
    found = []
    for h in range(heads.size(1)):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]
        found.append(merge(alone, join) @ weight.T if use else merge(alone, join))
    return torch.stack(found, dim=1)


head_contributions = Checker(
    name="head_contributions",
    number="5.2",
    component="multi-head attention",
    right=contributions,
    reread="First as a list of heads",
    inputs=("heads", "w_o_weight"),
    gradient=(0, 1),
    misconceptions=(
        Misconception(
            "not_transposed",
            "You cut the rows of the weight. `nn.Linear` stores it transposed, (out, in): what it "
            "reads from a head are columns.",
            (
                lambda heads, w: contributions(heads, w.T),
                lambda heads, w: one_at_a_time(heads, w.T, "right"),
            ),
        ),
        Misconception(
            "interleaved",
            "Your head h is given every H-th number of the map's input. The heads were put side by "
            "side: the first d_k numbers belong to head 0.",
            every_hth,
        ),
        Misconception(
            "added",
            "The parts are right, but already added up: leave the heads apart, as an axis of the "
            "result.",
            (
                lambda heads, w: contributions(heads, w).sum(1),
                lambda heads, w: contributions(heads, w).mean(1),
            ),
        ),
        Misconception(
            "averaged",
            "Each part is divided by the number of heads. The output is the sum of its parts, not "
            "their mean.",
            lambda heads, w: contributions(heads, w) / heads.size(1),
        ),
        Misconception(
            "cuts_output",
            "You cut the output of the map into H pieces. Every head writes to all D numbers of "
            "the output; it is the input of the map that is divided.",
            lambda heads, w: split(merge(heads) @ w.T, heads.size(1)),
        ),
        Misconception(
            "one_piece",
            "All heads are sent through the same piece of the map. Each head has d_k columns of "
            "its own.",
            lambda heads, w: heads @ w.T[: heads.size(-1)],
        ),
        Misconception(
            "badmerge", MERGE, one_at_a_time, reread="Break it: a split that has the right shape"
        ),
        Misconception(
            "no_oproj",
            "The output map is not used: the heads stand at their places, with zeros beside them, "
            "and nothing is mixed.",
            lambda heads, w: one_at_a_time(heads, w, "right", use=False),
        ),
        Misconception(
            "heads_last",
            "The numbers are right, but the heads stand behind the tokens, with an axis of their "
            "own or without: the result should have the shape (B, H, L, D).",
            (
                lambda heads, w: contributions(heads, w).transpose(1, 2),
                lambda heads, w: contributions(heads, w).transpose(1, 2).flatten(2),
            ),
        ),
    ),
    cases=(
        Case("four heads", lambda draw: (draw.normal(2, 4, 5, 3), draw.normal(12, 12))),
        Case(
            "as many tokens as heads", lambda draw: (draw.normal(2, 3, 3, 4), draw.normal(12, 12))
        ),
        Case(
            "as many heads as numbers in a head",
            lambda draw: (draw.normal(3, 3, 2, 3), draw.normal(9, 9)),
        ),
        Case("one head", lambda draw: (draw.normal(2, 1, 4, 5), draw.normal(5, 5))),
    ),
)
