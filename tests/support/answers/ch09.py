"""Answers to the exercises of chapter 09."""

import copy
import math

import torch
from torch import nn

import encoder_lib
from answers import right, wrong

WRONG_VALUES = {
    "9.1": {"rounded_down": 9, "no_feed_forward": 30, "no_attention": 15, "three_maps": 11}
}


# --- counting parameters --------------------------------------------------------------------------

COUNT = "encoder_parameters"


@right(COUNT)
def builds_it_and_counts(vocab_size, d_model, n_heads, d_ff, n_layers):
    model = encoder_lib.TransformerEncoder(vocab_size, d_model, n_heads, d_ff, n_layers)
    return sum(p.numel() for p in model.parameters())


@right(COUNT)
def from_shapes(vocab_size, d_model, n_heads, d_ff, n_layers):
    layer = [(d_model, d_model), (d_model,)] * 4 + [(d_model,)] * 4
    layer += [(d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)]
    shapes = [(vocab_size, d_model), (d_model,), (d_model,)] + layer * n_layers
    return torch.tensor(sum(math.prod(shape) for shape in shapes))


@wrong(COUNT, "no_biases")
def formula_of_the_article(vocab_size, d_model, n_heads, d_ff, n_layers):
    return vocab_size * d_model + n_layers * (4 * d_model**2 + 2 * d_model * d_ff + 4 * d_model)


@wrong(COUNT, "formula")
def only_matrices(vocab_size, d_model, n_heads, d_ff, n_layers):
    return vocab_size * d_model + n_layers * (4 * d_model**2 + 2 * d_model * d_ff)


@wrong(COUNT, "tables")
def with_a_way_back(vocab_size, d_model, n_heads, d_ff, n_layers):
    return builds_it_and_counts(2 * vocab_size, d_model, n_heads, d_ff, n_layers)


@wrong(COUNT, "no_biases")
def biases_of_attention_only(vocab_size, d_model, n_heads, d_ff, n_layers):
    found = builds_it_and_counts(vocab_size, d_model, n_heads, d_ff, n_layers)
    return found - n_layers * (d_ff + d_model)


@wrong(COUNT, "no_final_norm")
def the_article_with_biases(vocab_size, d_model, n_heads, d_ff, n_layers):
    biases = n_layers * (4 * d_model + d_ff + d_model)
    return formula_of_the_article(vocab_size, d_model, n_heads, d_ff, n_layers) + biases


@wrong(COUNT, "heads_counted")
def a_set_of_maps_for_every_head(vocab_size, d_model, n_heads, d_ff, n_layers):
    attention = n_heads * 4 * (d_model + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    return vocab_size * d_model + n_layers * (attention + feed_forward + 4 * d_model) + 2 * d_model


@wrong(COUNT, "positions_counted")
def learned_positions(vocab_size, d_model, n_heads, d_ff, n_layers):
    return builds_it_and_counts(vocab_size + 5000, d_model, n_heads, d_ff, n_layers)


@wrong(COUNT, "padding_row")
def the_row_of_padding_is_no_parameter(vocab_size, d_model, n_heads, d_ff, n_layers):
    return from_shapes(vocab_size - 1, d_model, n_heads, d_ff, n_layers)


@wrong(COUNT, "no_table")
def the_layers_alone(vocab_size, d_model, n_heads, d_ff, n_layers):
    stack = encoder_lib.Encoder(n_layers, d_model, n_heads, d_ff)
    return sum(p.numel() for p in stack.parameters())


@wrong(COUNT, "one_layer")
def identical_layers_once(vocab_size, d_model, n_heads, d_ff, n_layers):
    return builds_it_and_counts(vocab_size, d_model, n_heads, d_ff, 1)


@wrong(COUNT, "three_maps")
def queries_keys_values(vocab_size, d_model, n_heads, d_ff, n_layers):
    output = d_model * d_model + d_model
    return builds_it_and_counts(vocab_size, d_model, n_heads, d_ff, n_layers) - n_layers * output


@wrong(COUNT, "one_matrix")
def up_only(vocab_size, d_model, n_heads, d_ff, n_layers):
    layer = 4 * d_model * (d_model + 1) + d_model * d_ff + d_ff + d_model + 4 * d_model
    return vocab_size * d_model + n_layers * layer + 2 * d_model


@wrong(COUNT, "norms_miscounted")
def gains_only(vocab_size, d_model, n_heads, d_ff, n_layers):
    right_count = builds_it_and_counts(vocab_size, d_model, n_heads, d_ff, n_layers)
    return right_count - n_layers * 2 * d_model


# --- pooling --------------------------------------------------------------------------------------

POOL = "mean_and_max"


@right(POOL)
def text_by_text(h, keep_mask):
    rows = []
    for vectors, keep in zip(h, keep_mask, strict=True):
        real = vectors[keep]
        if len(real) == 0:
            rows.append(torch.zeros(2 * h.size(-1)))
        else:
            rows.append(torch.cat([real.mean(0), real.max(0).values]))
    return torch.stack(rows)


@right(POOL, note="infinity")
def with_einsum_and_a_shift(h, keep_mask):
    keep = keep_mask.float()
    mean = torch.einsum("bld,bl->bd", h, keep) / keep.sum(1, keepdim=True).clamp(min=1)
    largest = (h - 1e9 * (1 - keep[..., None])).max(dim=1).values
    return torch.cat([mean, torch.where(keep_mask.any(1, keepdim=True), largest, 0.0)], dim=1)


@right(POOL)
class Pool(nn.Module):
    """A module instead of a function."""

    def forward(self, hidden, mask):
        gone = ~mask[:, :, None]
        mean = hidden.masked_fill(gone, 0).sum(1) / mask.sum(1).clamp(min=1)[:, None]
        top = hidden.masked_fill(gone, -torch.inf).amax(1)
        return torch.cat((mean, top.nan_to_num(neginf=0.0)), -1)


def halves(h, keep_mask):
    return text_by_text(h, keep_mask).chunk(2, dim=-1)


@wrong(POOL, "small_fill")
def minus_one_hundred(h, keep_mask):
    top = h.masked_fill(~keep_mask[..., None], -100.0).amax(1)
    return torch.cat([halves(h, keep_mask)[0], top * keep_mask.any(1, keepdim=True)], -1)


@wrong(POOL, "divides_by_all")
def one_number_for_all(h, keep_mask):
    total = h.masked_fill(~keep_mask.unsqueeze(-1), 0).sum(1)
    return torch.cat([total / keep_mask.sum(), halves(h, keep_mask)[1]], -1)


@wrong(POOL, "at_the_end")
def the_first_tokens(h, keep_mask):
    rows = []
    for vectors, n in zip(h, keep_mask.sum(1).tolist(), strict=True):
        real = vectors[:n] if n else torch.zeros(1, h.size(-1))
        rows.append(torch.cat([real.mean(0), real.amax(0)]))
    return torch.stack(rows)


@wrong(POOL, "padding_in_mean")
def plain_mean(h, keep_mask):
    return torch.cat([h.mean(1), halves(h, keep_mask)[1]], -1)


@wrong(POOL, "padding_in_mean")
def no_mask_at_all(h, keep_mask):
    return torch.cat([h.mean(1), h.amax(1)], -1)


@wrong(POOL, "divides_by_length")
def mean_of_what_was_zeroed(h, keep_mask):
    return torch.cat([(h * keep_mask[..., None]).mean(1), halves(h, keep_mask)[1]], -1)


@wrong(POOL, "sum_not_mean")
def adds_up(h, keep_mask):
    total = h.masked_fill(~keep_mask.unsqueeze(-1), 0).sum(1)
    return torch.cat([total, halves(h, keep_mask)[1]], -1)


@wrong(POOL, "inverted")
def true_means_padding(h, keep_mask):
    return text_by_text(h, ~keep_mask)


@wrong(POOL, "inverted")
def true_means_padding_in_the_maximum(h, keep_mask):
    top = h.masked_fill(keep_mask[..., None], -torch.inf).amax(1)
    return torch.cat([halves(h, keep_mask)[0], top], -1)


@wrong(POOL, "padding_in_max")
def plain_maximum(h, keep_mask):
    return torch.cat([halves(h, keep_mask)[0], h.max(dim=1)[0]], -1)


@wrong(POOL, "zeros_win")
def maximum_of_what_was_zeroed(h, keep_mask):
    m = keep_mask[..., None]
    return torch.cat([(h * m).sum(1) / m.sum(1), (h * m).amax(1)], -1)


@wrong(POOL, "swapped_halves")
def maximum_first(h, keep_mask):
    mean, top = halves(h, keep_mask)
    return torch.cat([top, mean], -1)


@wrong(POOL, "empty_row")
def nothing_by_nothing(h, keep_mask):
    gone = ~keep_mask[..., None]
    mean = h.masked_fill(gone, 0).sum(1) / keep_mask.sum(1, keepdim=True)
    return torch.cat([mean, h.masked_fill(gone, -torch.inf).amax(1)], -1)


@wrong(POOL, "empty_row")
def a_very_small_number(h, keep_mask):
    gone = ~keep_mask[..., None]
    mean = h.masked_fill(gone, 0).sum(1) / keep_mask.sum(1, keepdim=True).clamp(min=1)
    return torch.cat([mean, h.masked_fill(gone, -1e9).amax(1)], -1)


@wrong(POOL, "mutates")
def zeroes_in_place(h, keep_mask):
    result = text_by_text(h, keep_mask)
    h[~keep_mask] = 0
    return result


@wrong(POOL, "shape")
def stacked_instead_of_joined(h, keep_mask):
    return torch.stack(halves(h, keep_mask), dim=1)


@wrong(POOL, "gradient")
def detached(h, keep_mask):
    return text_by_text(h.detach(), keep_mask)


# --- the stack ------------------------------------------------------------------------------------

STACK = "encoder_stack"


@right(STACK)
class Appended(nn.Module):
    """Layers appended one by one, a norm that may be nothing."""

    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(n_layers):
            self.blocks.append(make_layer())
        self.norm = nn.Identity() if final_norm is None else final_norm

    def forward(self, h, m=None):
        for block in self.blocks:
            h = block(h, m)
        return self.norm(h)


@right(STACK)
class Named(nn.Module):
    """Layers as attributes of their own."""

    def __init__(self, make, n, last):
        super().__init__()
        self.n, self.last = n, last
        for i in range(n):
            self.add_module(f"layer_{i}", make())

    def forward(self, x, keep_mask):
        for i in range(self.n):
            x = getattr(self, f"layer_{i}")(x, keep_mask)
        return x if self.last is None else self.last(x)


@right(STACK)
def recursive(make_layer, n_layers, final_norm):
    """A stack of n layers is one layer, and a stack of n - 1 behind it."""

    class Rest(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.layer = make_layer()
            self.rest = Rest(n - 1) if n > 1 else final_norm

        def forward(self, x, keep_mask=None):
            x = self.layer(x, keep_mask)
            if isinstance(self.rest, Rest):
                return self.rest(x, keep_mask)
            return x if self.rest is None else self.rest(x)

    return Rest(n_layers)


@right(STACK)
class ZeroesPadding(Appended):
    """What stands at padded positions is nobody's business, before and after."""

    def forward(self, x, keep_mask=None):
        gone = torch.zeros(x.shape[:2]).bool() if keep_mask is None else ~keep_mask
        out = super().forward(x.masked_fill(gone[..., None], 0), keep_mask)
        return out.masked_fill(gone[..., None], 0)


@right(STACK, note="once more")
class LooksAtOneFirst(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        self_size = sum(p.numel() for p in make_layer().parameters())
        super().__init__(make_layer, n_layers, final_norm)
        assert self_size * n_layers == sum(p.numel() for p in self.blocks.parameters())


@right(STACK)
class ByKeyword(Appended):
    def forward(self, x, keep_mask=None, *, return_all=False):
        seen = []
        for layer in self.blocks:
            x = layer(x, keep_mask=keep_mask)
            seen.append(x)
        return self.norm(x), seen


@wrong(STACK, "raised")
class OtherKeyword(Appended):
    """An error is no sign of a plain list."""

    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            x = layer(x, src_key_padding_mask=keep_mask)
        return self.norm(x)


@wrong(STACK, "raised")
class NormIsNone(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, n_layers, final_norm)
        self.norm = final_norm


@wrong(STACK, "raised")
class TheMakerItself(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, 0, final_norm)
        self.blocks = nn.ModuleList([make_layer for _ in range(n_layers)])


@wrong(STACK, "inverted")
class MaskTheOtherWay(Appended):
    def forward(self, x, keep_mask=None):
        return super().forward(x, None if keep_mask is None else ~keep_mask)


@wrong(STACK, "norm_twice")
class NormInTheLoopAndBehind(Appended):
    def forward(self, x, keep_mask=None):
        return self.norm(super().forward(x, keep_mask))


@wrong(STACK, "norm_hidden")
class NormInAFunction(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, n_layers)
        self.last = lambda x: x if final_norm is None else final_norm(x)

    def forward(self, x, keep_mask=None):
        return self.last(super().forward(x, keep_mask))


@wrong(STACK, "around")
class ResidualAroundEach(Appended):
    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            x = x + layer(x, keep_mask)
        return self.norm(x)


@wrong(STACK, "fixed_height")
class AlwaysThree(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, 3, final_norm)


@wrong(STACK, "gradient")
class DetachesBetween(Appended):
    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            x = layer(x.detach(), keep_mask)
        return self.norm(x)


@wrong(STACK, "shared")
class OneLayerTimesN(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, 0, final_norm)
        self.blocks = nn.ModuleList([make_layer()] * n_layers)


@wrong(STACK, "shared")
class OneLayerInALoop(nn.Module):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__()
        self.layer, self.n, self.final_norm = make_layer(), n_layers, final_norm

    def forward(self, x, keep_mask=None):
        for _ in range(self.n):
            x = self.layer(x, keep_mask)
        return self.final_norm(x) if self.final_norm else x


@wrong(STACK, "plain_list")
class PlainList(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, 0, final_norm)
        del self.blocks
        self.blocks = [make_layer() for _ in range(n_layers)]


@wrong(STACK, "copied")
class Clones(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, 0, final_norm)
        layer = make_layer()
        self.blocks = nn.ModuleList([copy.deepcopy(layer) for _ in range(n_layers)])


@wrong(STACK, "mask_ignored")
class WithSequential(nn.Module):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__()
        parts = [make_layer() for _ in range(n_layers)]
        self.all = nn.Sequential(*parts, *([] if final_norm is None else [final_norm]))

    def forward(self, x, keep_mask=None):
        return self.all(x)


@wrong(STACK, "mask_ignored")
class TakesNoMask(WithSequential):
    def forward(self, x):
        return self.all(x)


@wrong(STACK, "mask_once")
class MaskForTheFirst(Appended):
    def forward(self, x, keep_mask=None):
        for i, layer in enumerate(self.blocks):
            x = layer(x, keep_mask) if i == 0 else layer(x)
        return self.norm(x)


@wrong(STACK, "same_input")
class AllReadTheInput(Appended):
    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            out = layer(x, keep_mask)
        return self.norm(out)


@wrong(STACK, "no_final_norm")
class ForgetsTheNorm(Appended):
    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            x = layer(x, keep_mask)
        return x


@wrong(STACK, "norm_each")
class NormAfterEach(Appended):
    def forward(self, x, keep_mask=None):
        for layer in self.blocks:
            x = self.norm(layer(x, keep_mask))
        return x


@wrong(STACK, "norm_first")
class NormBefore(Appended):
    def forward(self, x, keep_mask=None):
        x = self.norm(x)
        for layer in self.blocks:
            x = layer(x, keep_mask)
        return x


@wrong(STACK, "off_by_one")
class OneTooMany(Appended):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__(make_layer, n_layers + 1, final_norm)


@wrong(STACK, "reversed")
class Backwards(Appended):
    def forward(self, x, keep_mask=None):
        for layer in reversed(self.blocks):
            x = layer(x, keep_mask)
        return self.norm(x)


@wrong(STACK, "around")
class ResidualAroundAll(Appended):
    def forward(self, x, keep_mask=None):
        return x + super().forward(x, keep_mask)


@wrong(STACK, "random")
class AlwaysDropout(Appended):
    def forward(self, x, keep_mask=None):
        return nn.functional.dropout(super().forward(x, keep_mask), 0.1)
