"""Answers to the exercises of chapter 08, as learners write them."""

import copy
import functools

import torch
from torch import nn

from answers import right, wrong

WRONG_VALUES = {
    "8.1": {"post": 1, "no_norm": 90, "norm_on_stream": 3, "norm_on_branch": 31, "branch": 2},
}

LAYER, NORMS = "encoder_layer", "gradient_norms"


class Parts(nn.Module):
    """What most answers share: the parts, kept under their names."""

    def __init__(self, attention, feed_forward, norm_1, norm_2, place):
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.norm_1, self.norm_2, self.place = norm_1, norm_2, place


# --- the layer ------------------------------------------------------------------------------------


@right(LAYER)
class WrittenOut(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.attention(self.norm_1(x), keep_mask)
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_2(x + self.feed_forward(x))


@right(LAYER)
class NormOrNothing(nn.Module):
    def __init__(self, att, ffn, ln1, ln2, where):
        super().__init__()
        self.halves = nn.ModuleList([nn.ModuleList([att, ln1]), nn.ModuleList([ffn, ln2])])
        self.pre = where == "pre"

    def forward(self, h, mask):
        for i, (part, norm) in enumerate(self.halves):
            before, after = (norm, lambda y: y) if self.pre else ((lambda y: y), norm)
            h = after(torch.add(h, part(before(h), *[mask][: 1 - i])))
        return h * mask.unsqueeze(-1) if mask is not None else h


@right(LAYER)
class WithWeights(Parts):
    def half(self, x, f, norm):
        return x + f(norm(x)) if self.place != "post" else norm(x + f(x))

    def forward(self, x, keep_mask=None):
        def attend(y):
            out, self.weights = self.attention(y, keep_mask, True)
            return out

        x = self.half(x, attend, self.norm_1)
        return self.half(x, self.feed_forward, self.norm_2), self.weights


@right(LAYER)
def through_the_book(attention, feed_forward, norm_1, norm_2, place):
    from encoder_lib import EncoderLayer

    layer = EncoderLayer(8, 2, 12, dropout=0.1, norm=place)
    layer.attention, layer.feed_forward = attention, feed_forward
    layer.norm_1, layer.norm_2 = norm_1, norm_2
    return layer


@right(LAYER)
class InADict(nn.Module):
    def __init__(self, attention, feed_forward, norm_1, norm_2, place="pre", dropout=0.1):
        super().__init__()
        self.parts = nn.ModuleDict({"a": attention, "f": feed_forward, "1": norm_1, "2": norm_2})
        self.pre = place == "pre"

    def forward(self, x, keep_mask=None):
        attend = functools.partial(self.parts["a"], keep_mask=keep_mask)
        for f, norm in ((attend, self.parts["1"]), (self.parts["f"], self.parts["2"])):
            x = x + f(norm(x)) if self.pre else norm(x + f(x))
        return x


@right(LAYER)
class CopiesItsParts(WrittenOut):
    def __init__(self, *parts):
        super().__init__(*(copy.deepcopy(part) for part in parts))


@right(LAYER)
class AddsInPlace(WrittenOut):
    def forward(self, x, keep_mask=None):
        if self.place == "post":
            return super().forward(x, keep_mask)
        x = x.clone()
        x += self.attention(self.norm_1(x), keep_mask)
        x += self.feed_forward(self.norm_2(x))
        return x


@wrong(LAYER, "mask_inverted")
class TrueIsPadding(WrittenOut):
    def forward(self, x, keep_mask=None):
        return super().forward(x, None if keep_mask is None else ~keep_mask)


@wrong(LAYER, "final_norm")
class EndsInANorm(WrittenOut):
    def forward(self, x, keep_mask=None):
        x = super().forward(x, keep_mask)
        return self.norm_2(x) if self.place == "pre" else x


@wrong(LAYER, "around")
class ThirdResidual(WrittenOut):
    def forward(self, x, keep_mask=None):
        return x + super().forward(x, keep_mask)


@wrong(LAYER, "half_missing")
class AttentionOnly(WrittenOut):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            return x + self.attention(self.norm_1(x), keep_mask)
        return self.norm_1(x + self.attention(x, keep_mask))


@wrong(LAYER, "own_norms")
class NewNorms(WrittenOut):
    def __init__(self, attention, feed_forward, norm_1, norm_2, place):
        super().__init__(attention, feed_forward, nn.LayerNorm(8), nn.LayerNorm(8), place)


@wrong(LAYER, "place_swapped")
class TheOtherWayRound(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "post":
            x = x + self.attention(self.norm_1(x), keep_mask)
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_2(x + self.feed_forward(x))


@wrong(LAYER, "place_ignored")
class AlwaysPre(Parts):
    def forward(self, x, keep_mask=None):
        x = x + self.attention(self.norm_1(x), keep_mask)
        return x + self.feed_forward(self.norm_2(x))


@wrong(LAYER, "norm_on_stream")
class NormBeforeTheSplit(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = self.norm_1(x)
            x = x + self.attention(x, keep_mask)
            x = self.norm_2(x)
            return x + self.feed_forward(x)
        x = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_2(x + self.feed_forward(x))


@wrong(LAYER, "norm_on_branch")
class NormBehindThePart(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.attention(self.norm_1(x), keep_mask)
            return x + self.feed_forward(self.norm_2(x))
        x = x + self.norm_1(self.attention(x, keep_mask))
        return x + self.norm_2(self.feed_forward(x))


@wrong(LAYER, "norm_twice")
class NormInFrontAndBehind(Parts):
    def forward(self, x, keep_mask=None):
        normed = self.norm_1(x) if self.place == "pre" else x
        x = self.norm_1(x + self.attention(normed, keep_mask))
        normed = self.norm_2(x) if self.place == "pre" else x
        return self.norm_2(x + self.feed_forward(normed))


@wrong(LAYER, "no_norm")
class NormOnlyBehind(Parts):
    def forward(self, x, keep_mask=None):
        x = x + self.attention(x, keep_mask)
        x = self.norm_1(x) if self.place == "post" else x
        x = x + self.feed_forward(x)
        return self.norm_2(x) if self.place == "post" else x


@wrong(LAYER, "no_residual")
class NothingAdded(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            return self.feed_forward(self.norm_2(self.attention(self.norm_1(x), keep_mask)))
        return self.norm_2(self.feed_forward(self.norm_1(self.attention(x, keep_mask))))


@wrong(LAYER, "no_residual")
class SecondNotAdded(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            return self.feed_forward(self.norm_2(x + self.attention(self.norm_1(x), keep_mask)))
        return self.norm_2(self.feed_forward(self.norm_1(x + self.attention(x, keep_mask))))


@wrong(LAYER, "one_residual")
class AddedOnce(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            return x + self.feed_forward(self.norm_2(self.attention(self.norm_1(x), keep_mask)))
        return self.norm_2(x + self.feed_forward(self.norm_1(self.attention(x, keep_mask))))


@wrong(LAYER, "old_residual")
class AddsToTheInputAgain(Parts):
    def forward(self, x, keep_mask=None):
        pre = self.place == "pre"
        y = x + self.attention(self.norm_1(x) if pre else x, keep_mask)
        y = y if pre else self.norm_1(y)
        z = x + self.feed_forward(self.norm_2(y) if pre else y)
        return z if pre else self.norm_2(z)


@wrong(LAYER, "parallel")
class SideBySide(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            attended = self.attention(self.norm_1(x), keep_mask)
            return x + attended + self.feed_forward(self.norm_2(x))
        y = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_2(y + self.feed_forward(y))


@wrong(LAYER, "shared_norm")
class OneNormForBoth(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.attention(self.norm_1(x), keep_mask)
            return x + self.feed_forward(self.norm_1(x))
        x = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_1(x + self.feed_forward(x))


@wrong(LAYER, "norms_exchanged")
class NormsCrossed(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.attention(self.norm_2(x), keep_mask)
            return x + self.feed_forward(self.norm_1(x))
        x = self.norm_2(x + self.attention(x, keep_mask))
        return self.norm_1(x + self.feed_forward(x))


@wrong(LAYER, "parts_exchanged")
class FeedForwardFirst(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.feed_forward(self.norm_1(x))
            return x + self.attention(self.norm_2(x), keep_mask)
        x = self.norm_1(x + self.feed_forward(x))
        return self.norm_2(x + self.attention(x, keep_mask))


@wrong(LAYER, "mask_dropped")
class MaskForgotten(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x + self.attention(self.norm_1(x))
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


@wrong(LAYER, "mask_dropped")
class NoMaskAtAll(Parts):
    def forward(self, x):
        if self.place == "pre":
            x = x + self.attention(self.norm_1(x))
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


@wrong(LAYER, "unregistered")
class PartsInAList(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = parts

    def forward(self, x, keep_mask=None):
        attention, feed_forward, norm_1, norm_2, place = self.parts
        if place == "pre":
            x = x + attention(norm_1(x), keep_mask)
            return x + feed_forward(norm_2(x))
        x = norm_1(x + attention(x, keep_mask))
        return norm_2(x + feed_forward(x))


@wrong(LAYER, "random")
class DropoutAlwaysOn(Parts):
    def forward(self, x, keep_mask=None):
        x = x + nn.functional.dropout(self.attention(self.norm_1(x), keep_mask), 0.1)
        return x + nn.functional.dropout(self.feed_forward(self.norm_2(x)), 0.1)


@wrong(LAYER, "gradient")
class StreamDetached(Parts):
    def forward(self, x, keep_mask=None):
        if self.place == "pre":
            x = x.detach() + self.attention(self.norm_1(x), keep_mask)
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x, keep_mask))
        return self.norm_2(x + self.feed_forward(x))


# --- norms of gradients ---------------------------------------------------------------------------


@right(NORMS)
def with_a_loop(model):
    found = {}
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        found[name] = torch.sqrt((p.grad * p.grad).sum())
    return found


@right(NORMS)
def with_vector_norms(model):
    having = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {n: torch.linalg.vector_norm(g.double()).item() for n, g in having.items()}


@right(NORMS)
def as_pairs(model):
    return [(n, p.grad.norm()) for n, p in model.named_parameters() if p.grad is not None]


@right(NORMS)
class CallableObject:
    def __new__(cls, model):
        return dict(sorted(with_a_loop(model).items()))


@wrong(NORMS, "none")
def takes_every_gradient(model):
    return {name: p.grad.norm().item() for name, p in model.named_parameters()}


@wrong(NORMS, "none_as_zero")
def nothing_is_zero(model):
    return {n: 0.0 if p.grad is None else p.grad.norm() for n, p in model.named_parameters()}


@wrong(NORMS, "one_number")
def the_whole_model(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.stack([g.norm() for g in grads]).norm()


@wrong(NORMS, "of_weights")
def norms_of_the_weights(model):
    return {name: p.norm().item() for name, p in model.named_parameters()}


@wrong(NORMS, "relative")
def grad_to_weight(model):
    pairs = model.named_parameters()
    return {n: (p.grad.norm() / p.norm()).item() for n, p in pairs if p.grad is not None}


@wrong(NORMS, "last_names")
def names_without_a_path(model):
    found = {}
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if p.grad is not None:
                found[name] = p.grad.norm().item()
    return found


@wrong(NORMS, "matrices_only")
def only_matrices(model):
    named = model.named_parameters()
    return {n: p.grad.norm() for n, p in named if p.dim() == 2 and p.grad is not None}


@wrong(NORMS, "squared")
def root_forgotten(model):
    return {n: (p.grad**2).sum() for n, p in model.named_parameters() if p.grad is not None}


@wrong(NORMS, "mean")
def mean_size(model):
    return {n: p.grad.abs().mean() for n, p in model.named_parameters() if p.grad is not None}


@wrong(NORMS, "another_norm")
def largest_entry(model):
    return {n: p.grad.abs().max() for n, p in model.named_parameters() if p.grad is not None}


@wrong(NORMS, "mutates")
def clears_them_afterwards(model):
    found = with_a_loop(model)
    model.zero_grad()
    return found


@wrong(NORMS, "mutates")
def clips_with_it(model):
    found = with_a_loop(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return found
