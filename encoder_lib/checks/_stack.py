"""Checks of chapter 09: counting parameters, pooling, the stack."""

import functools
import itertools
import math

import torch
from torch import nn

from encoder_lib.checks._attention import takes
from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import NotAttempted, Trouble, answer, made
from encoder_lib.checks.report import Misconception
from encoder_lib.encoder import masked_max, masked_mean
from encoder_lib.normalization import LayerNorm

__all__ = ["encoder_parameters", "encoder_stack", "mean_and_max"]


# --- counting parameters --------------------------------------------------------------------------


def parameters(vocab_size, d_model, n_heads, d_ff, n_layers, *, tables=1, rows=0, maps=4,
               matrices=2, norms=2, heads=lambda n: 1, stacked=True, biases=True,
               wide_biases=True, final=True):  # fmt: skip
    """The number of parameters of a Pre-LN encoder with sinusoids, or of a wrong count of it.

    tables, maps, matrices, norms: how many of them; rows: of the table, too many or too few;
    heads: number of heads -> how often the attention is counted; wide_biases: those of the
    feed-forward network.
    """
    b = 1 if biases else 0
    attention = maps * (d_model * d_model + b * d_model) * heads(n_heads)
    feed_forward = matrices * d_model * d_ff + b * wide_biases * (d_ff + d_model)
    layer = attention + feed_forward + 2 * norms * d_model
    embedding = (tables * vocab_size + rows) * d_model
    return embedding + (n_layers if stacked else 1) * layer + (2 * d_model if final else 0)


COUNTS = (
    ("formula", "This is formula (9.2), or nearly: it leaves out all biases and the two LayerNorms "
     "of each layer.", (dict(norms=0, biases=False),)),
    ("tables", "A second table is counted, for a way back to words. This encoder has no such "
     "thing: it ends in vectors.", (dict(tables=2),)),
    ("heads_counted", "The attention is counted again for every head. The heads divide the same "
     "four maps among themselves, so their number does not occur.",
     (dict(heads=lambda n: n), dict(maps=3, heads=lambda n: n))),
    ("positions_counted", "A table of positions is counted. Sinusoids are computed, not learned: "
     "they are no parameters.", tuple(dict(rows=n) for n in (5000, 512, 1024, 2048))),
    ("padding_row", "One row of the table is left out. The row of padding starts at zero, but it "
     "is part of the parameter like all others.", (dict(rows=-1),)),
    ("no_table", "The embedding table is missing, the largest part of many "
                 "models.", (dict(tables=0),)),
    ("one_layer", "Only one layer is counted: each layer of a stack has weights of its own.",
     (dict(stacked=False),)),
    ("three_maps", "The attention has three maps in your count. Queries, keys and values are "
     "three, and behind the heads stands a fourth.", (dict(maps=3),)),
    ("one_matrix", "The feed-forward network has one matrix in your count; it goes up to d_ff and "
     "comes back.", (dict(matrices=1),)),
    ("norms_miscounted", "The LayerNorms of the layers are not counted right: a layer has two, "
     "each with a gain and a bias. (Without the biases of attention the number is the same.)",
     (dict(norms=0), dict(norms=1), dict(norms=4, biases=True))),
    ("no_biases", "The biases are missing. Each of the four maps of attention and both maps of the "
     "feed-forward network have one; formula (9.2) forgets them.", (dict(biases=False),
                                                      dict(wide_biases=False))),
    ("no_final_norm", "The norm behind the last layer is missing: a Pre-LN stack ends in one.",
     (dict(final=False),)),
)  # fmt: skip


def miscounts():
    """Wrong counts; each also with the biases or the final norm left out."""
    found = []
    for key, text, ways in COUNTS:
        also = [dict(biases=b, final=f) for b, f in itertools.product((True, False), repeat=2)]
        forms = [functools.partial(parameters, **{**more, **way}) for way in ways for more in also]
        found.append(Misconception(key, text, tuple(forms)))
    return tuple(found)


def sizes(draw, n_heads, n_layers):
    """(vocab_size, d_model, n_heads, d_ff, n_layers), no two numbers in a fixed proportion."""
    d_model = n_heads * draw.integer(3, 12)
    d_ff = d_model + draw.integer(5, 200)
    return draw.integer(600, 9000), d_model, n_heads, d_ff, n_layers


encoder_parameters = Checker(
    name="encoder_parameters",
    number="9.2",
    component="the whole model",
    right=parameters,
    reread="Where do ten million parameters sit?",
    inputs=("vocab_size", "d_model", "n_heads", "d_ff", "n_layers"),
    tolerance=1e-9,
    misconceptions=miscounts(),
    cases=(
        Case("four heads, three layers", lambda draw: sizes(draw, 4, 3)),
        Case("one head, one layer", lambda draw: sizes(draw, 1, 1)),
        Case("eight heads, six layers", lambda draw: sizes(draw, 8, 6)),
        Case("the sizes of the article", lambda draw: (30_000, 256, 8, 1024, 4)),
    ),
)


# --- pooling --------------------------------------------------------------------------------------


def pooled(h, keep_mask):
    """Mean and maximum over the real tokens, side by side: (B, L, D), (B, L) -> (B, 2 D)."""
    return torch.cat([masked_mean(h, keep_mask), masked_max(h, keep_mask)], dim=-1)


def share(h, among, by):
    """The sum of the vectors ``among`` (B, L), divided by the counts ``by`` (B,)."""
    return (h * among.unsqueeze(-1)).sum(dim=1) / by.unsqueeze(-1)


def largest(h, among, fill=-math.inf):
    """The maximum over the positions ``among`` (B, L); the others count as ``fill``."""
    return h.masked_fill(~among.unsqueeze(-1), fill).amax(dim=1)


MEAN, MAX = 0, 1
HALVES = (
    ("padding_in_mean", "The mean takes the padding in: at padded positions, too, stand vectors of "
     "full size.", MEAN, lambda h, keep: h.mean(dim=1)),
    ("divides_by_length", "The sum is right, but it is divided by the length of the batch instead "
     "of the number of real tokens, so a short text gets a short vector.",
     MEAN, lambda h, keep: share(h, keep, torch.full((len(h),), h.size(1)))),
    ("sum_not_mean", "The first half is a sum: it is not divided by the number of real tokens.",
     MEAN, lambda h, keep: share(h, keep, torch.ones(len(h)))),
    ("inverted", "The mask is the wrong way round: padding is pooled and real tokens are left out. "
     "True means a real token.", MEAN, lambda h, keep: share(h, ~keep, (~keep).sum(dim=1))),
    ("inverted", "The mask is the wrong way round in the maximum: padding is pooled and real "
     "tokens are left out.", MAX, lambda h, keep: largest(h, ~keep)),
    ("padding_in_max", "The maximum looks at the padding, too, and takes what it finds there.",
     MAX, lambda h, keep: h.amax(dim=1)),
    ("zeros_win", "Padding is set to 0 before the maximum. Where all real numbers are negative, "
     "that 0 is the largest and wins.", MAX, lambda h, keep: (h * keep.unsqueeze(-1)).amax(dim=1)),
    *(("small_fill", "Padding is set to a number before the maximum that is not small enough: real "
       "numbers may be smaller still, and then it wins.",
       MAX, functools.partial(largest, fill=fill)) for fill in (-1.0, -10.0, -100.0, -1e3)),
    ("divides_by_all", "The sum is right, but it is divided by the number of real tokens of the "
     "whole batch: each row has a number of its own.",
     MEAN, lambda h, keep: share(h, keep, keep.sum().expand(len(h)))),
    ("swapped_halves", "The two halves are swapped: first the mean, then the maximum.",
     MEAN, masked_max),
)  # fmt: skip


def half_fits(evidence, half, way):
    """Whether one half of all results is that of ``way``, in every row that says something."""
    compared = 0
    for trial in evidence.answers():
        h, keep = trial.args
        would, came = way(h, keep), trial.got.chunk(2, dim=-1)[half]
        rows = would.isfinite().all(dim=-1) & keep.any(dim=-1)
        if came.shape != would.shape or not torch.allclose(
            came[rows], would[rows], atol=1e-4, rtol=1e-4
        ):
            return False
        compared += int(rows.sum())
    return compared > 0


def only_empty_rows(evidence):
    """Everything is right but the rows without any real token."""
    for trial in evidence.answers():
        rows = trial.args[1].any(dim=-1)
        if not torch.allclose(trial.got[rows], trial.want[rows], atol=1e-4, rtol=1e-4):
            return False
    return len(evidence.answers()) > 1


def assumes_the_end(evidence):
    """Everything is right but the case with padding before the text."""
    right = [torch.is_tensor(t.got) and t.got.shape == t.want.shape
             and torch.allclose(t.got, t.want, rtol=1e-4, atol=1e-4) for t in evidence.trials
             if t.case.name != BEFORE]  # fmt: skip
    return all(right)


BEFORE = "padding before the text"
EMPTY = Misconception("empty_row", "A row without any real token should give zeros. Nothing "
                      "divided by nothing is NaN, and the maximum of nothing is minus infinity.",
                      signs=only_empty_rows)  # fmt: skip


def half_notes(evidence):
    """What a right answer does when a padded position holds an infinity."""
    h, keep = (part.clone() for part in evidence.trials[0].args)
    h[~keep] = math.inf
    try:
        spoiled = not evidence.ask(h, keep).isfinite().all()
    except (Trouble, NotAttempted):
        spoiled = True
    return ("an infinity in the padding spoils your result, since 0 times infinity is NaN; filling "
            "with 0 instead of multiplying by 0 does not",) if spoiled else ()  # fmt: skip


def padded(draw, lengths, length, width):
    """h (B, L, D) with loud garbage in the padding, and keep_mask (B, L)."""
    keep = draw.keep(lengths, length)
    h = draw.normal(len(lengths), length, width) * torch.where(keep, 1.0, 4.0).unsqueeze(-1)
    return h, keep


def negative(draw):
    """Real tokens all of whose numbers are negative."""
    h, keep = padded(draw, (4, 2), 5, 3)
    return torch.where(keep.unsqueeze(-1), -1500 - 1e3 * h.abs(), h), keep


def padded_left(draw):
    """Padding before the text."""
    h, keep = padded(draw, (5, 3, 1), 6, 4)
    return h.flip(1), keep.flip(1)


mean_and_max = Checker(
    name="mean_and_max",
    number="9.3",
    component="pooling",
    right=pooled,
    reread="From a vector per token to an answer",
    inputs=("h", "keep_mask"),
    gradient=(0,),
    notes=half_notes,
    misconceptions=(
        EMPTY,
        Misconception("at_the_end", "You take the first tokens of each row for the real ones. "
                      "Padding may stand anywhere; the mask says where.", signs=assumes_the_end),
        *(Misconception(key, text, signs=functools.partial(half_fits, half=half, way=way))
          for key, text, half, way in HALVES),
    ),
    cases=(
        Case("padding of three lengths, loud garbage in it",
             lambda draw: padded(draw, (5, 3, 2), 6, 4)),
        Case("all real numbers negative", negative),
        Case(BEFORE, padded_left),
        Case("no padding", lambda draw: padded(draw, (4, 4), 4, 5)),
        Case("batch, length and width equal", lambda draw: padded(draw, (3, 2, 1), 3, 3)),
        Case("a row without any real token", lambda draw: padded(draw, (3, 0), 4, 5)),
    ),
)  # fmt: skip


# --- the stack ------------------------------------------------------------------------------------

WIDTH = 8
WANTS = "a class, or a function that makes a module from (make_layer, n_layers, final_norm)"


class SmallLayer(nn.Module):
    """A layer that is made quickly: each vector is changed by itself and by the mean of all."""

    def __init__(self, own, others):
        super().__init__()
        self.own, self.others = nn.Parameter(own), nn.Parameter(others)  # (D, D) each

    def forward(self, x, keep_mask=None):
        """(B, L, D) -> (B, L, D); the mean is over what keep_mask (B, L) keeps."""
        keep = torch.ones(x.shape[:2]) if keep_mask is None else keep_mask.float()
        mean = torch.einsum("bld,bl->bd", x, keep) / keep.sum(dim=1, keepdim=True).clamp(min=1)
        return x + torch.tanh(x @ self.own + (mean @ self.others).unsqueeze(1))


def layer_of(seed, i):
    """The layer number i of a case."""
    generator = torch.Generator().manual_seed(100 * seed + i)
    return SmallLayer(*torch.randn(2, WIDTH, WIDTH, generator=generator) / 2)


def norm_of(normed):
    """The final norm of a case, which is no norm of the layers, or None."""
    if not normed:
        return None
    norm = LayerNorm(WIDTH)
    with torch.no_grad():
        for part, low, high in zip(norm.parameters(), (0.5, -1.0), (1.5, 1.0), strict=True):
            part.copy_(torch.linspace(low, high, WIDTH))
    return norm


def size(module):
    """The number of parameters that a module knows of."""
    return sum(p.numel() for p in module.parameters())


def at_real(out, keep):
    """out (B, L, D) with padded tokens set to 0: nobody says what stands there."""
    return out if keep is None else torch.where(keep[..., None], out, 0.0)


def stack(seed, n, normed, x, keep, *, which=lambda i, n: i, more=0, mask=lambda i, keep: keep,
          first=False, norms="end", around="", owned=True):  # fmt: skip
    """(output, number of parameters) of a stack, or of a wrong one.

    which: place, n -> number of the layer there; more: layers too many; mask: place, keep -> the
    mask that gets there; first: each layer reads the input; norms: "end", "never", "each", "twice"
    or "start"; around: a residual connection around "all" or "each"; owned: the norm is registered.
    """
    layers = [layer_of(seed, which(i, n)) for i in range(n + more)]
    norm = norm_of(normed) or (lambda y: y)
    y = norm(x) if norms == "start" else x
    for i, layer in enumerate(layers):
        before = x if first else y
        y = layer(before, None if keep is None else mask(i, keep))
        y = y + before if around == "each" else y
        y = norm(y) if norms == "each" else y
    for _ in range({"end": 1, "twice": 2}.get(norms, 0)):
        y = norm(y)
    found = sum(size(layer) for layer in layers) + (size(norm) if normed and owned else 0)
    return at_real(y + x if around == "all" else y, keep), found


class Learner:
    """A learner's stack as f(seed, n, normed, x, keep) -> (output, number of parameters)."""

    def __init__(self, attempt):
        self.attempt = attempt

    def __call__(self, seed, n, normed, x, keep):
        number = itertools.count()
        sizes = lambda: layer_of(seed, next(number)), n, norm_of(normed)
        module = made(self.attempt, *sizes, wants=WANTS)
        short = takes(module.forward, 1) and not takes(module.forward, 2)
        out = answer(module, x) if short else answer(module, x, keep)
        out = out[0] if isinstance(out, tuple | list) and out else out
        alike = isinstance(out, torch.Tensor) and out.shape == x.shape
        return (at_real(out, keep) if alike else out), size(module)


def hides_layers(evidence):
    """The module knows of less than one layer's parameters."""
    least = size(layer_of(0, 0))
    return bool(evidence.answers()) and all(t.got[1] < least for t in evidence.answers())


def same_size(evidence):
    """The number of parameters of stacks of different heights, where it is the same; or 0."""
    normed = [trial for trial in evidence.answers() if trial.args[2]]
    found = {trial.args[1]: trial.got[1] for trial in normed}  # number of layers -> parameters
    return found.popitem()[1] if len(found) > 1 and len(set(found.values())) == 1 else 0


def does_not_grow(evidence):
    """Three layers have as many parameters as one layer and the norm."""
    return 0 < same_size(evidence) <= size(layer_of(0, 0)) + size(norm_of(True))


def has_a_fixed_height(evidence):
    """The number of layers, more than one, does not depend on n_layers."""
    return same_size(evidence) > size(layer_of(0, 0)) + size(norm_of(True))


PATHS = (
    ("copied", "Your layers are separate, but all start with the same weights: one layer was made "
     "and copied. Each should be drawn anew.", (dict(which=lambda i, n: 0),)),
    ("mask_ignored", "The mask does not reach the layers: with padding the real tokens get other "
     "vectors.", (dict(mask=lambda i, keep: None),)),
    ("inverted", "The mask reaches the layers the wrong way round: True is for real tokens, and a "
     "layer takes it like that.", (dict(mask=lambda i, keep: ~keep),)),
    ("mask_once", "Only the first layer gets the mask. Padding is there in the later ones, too.",
     (dict(mask=lambda i, keep: None if i else keep),)),
    ("same_input", "Every layer reads the input of the stack, so all but the last one work for "
     "nothing. Each should read what the one before it has made.", (dict(first=True),)),
    ("no_final_norm", "The final norm is not applied, though there was one.",
     (dict(norms="never"),)),
    ("norm_each", "The final norm is applied after every layer; it belongs behind the last one "
                  "only.",
     (dict(norms="each"),)),
    ("norm_twice", "The final norm is applied twice behind the last layer.",
     (dict(norms="twice"),)),
    ("norm_hidden", "The output is right, but the final norm is not registered in your module: an "
     "optimizer would not train it.", (dict(owned=False),)),
    ("norm_first", "The final norm stands before the layers instead of behind them.",
     (dict(norms="start"),)),
    ("off_by_one", "The number of layers is not n_layers: there is one too many or too few.",
     (dict(more=1), dict(more=-1))),
    ("reversed", "The layers run in the wrong order: the last one made comes first.",
     (dict(which=lambda i, n: n - 1 - i),)),
    ("around", "There is a residual connection too many, around each layer or around the whole "
     "stack; the layers have their own.", (dict(around="all"), dict(around="each"))),
)  # fmt: skip


def wrong_paths():
    """What the check of the stack recognises; first what its parameters show."""
    found = [
        Misconception("plain_list", "Your layers are not registered: nn.Module does not look into "
                      "plain lists, so nothing of them is trained, moved or saved.",
                      signs=hides_layers, reread="A stack, and two ways to get it wrong"),
        Misconception("shared", "There is only one layer in your stack, several times: whatever "
                      "n_layers is, the number of parameters stays that of one.",
                      signs=does_not_grow, reread="A stack, and two ways to get it wrong"),
        Misconception("fixed_height", "The number of your layers is fixed in the code: it does not "
                      "depend on n_layers.", signs=has_a_fixed_height),
    ]  # fmt: skip
    for key, text, ways in PATHS:
        forms = tuple(functools.partial(stack, **way) for way in ways)
        found.append(Misconception(key, text, forms))
    return tuple(found)


def stacked(draw, n, lengths, normed, masked=True):
    """(seed, n, whether a final norm, x (B, L, D), keep (B, L) or None)."""
    keep = draw.keep(lengths, max(lengths))
    x = draw.normal(len(lengths), max(lengths), WIDTH)
    return draw.integer(0, 1_000_000), n, normed, x, keep if masked else None


encoder_stack = Checker(
    name="encoder_stack",
    number="9.4",
    component="the stack",
    right=stack,
    reread="The finished stack",
    inputs=("the layers", "n_layers", "final_norm", "x", "keep_mask"),
    outputs=("the output", "the number of parameters"),
    gradient=(3,),
    adapt=lambda attempt, draw: Learner(attempt),
    variants=(("you call make_layer once more than there are layers",
               functools.partial(stack, which=lambda i, n: i + 1)),),
    misconceptions=wrong_paths(),
    cases=(
        Case("three layers and a final norm, no mask",
             lambda draw: stacked(draw, 3, (4, 4), True, masked=False)),
        Case("two layers and a final norm, padding", lambda draw: stacked(draw, 2, (5, 2), True)),
        Case("two layers without a final norm, padding",
             lambda draw: stacked(draw, 2, (4, 3, 1), False)),
        Case("one layer", lambda draw: stacked(draw, 1, (3, 2), True)),
    ),
)  # fmt: skip
