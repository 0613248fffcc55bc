"""Checks of chapter 08: the encoder layer with its two places of the norm, norms of gradients."""

import functools
import inspect

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.attention import MultiHeadAttention
from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, answer, as_function, kind, made
from encoder_lib.checks.report import Misconception
from encoder_lib.feed_forward import FeedForward
from encoder_lib.normalization import LayerNorm

__all__ = ["encoder_layer", "gradient_norms"]

WIDTH, HEADS, HIDDEN = 8, 2, 12
WANTS = "a class made from (attention, feed_forward, norm_1, norm_2, place)"


# --- the parts, with weights that a case has drawn ------------------------------------------------


def fresh_parts():
    """New (attention, feed_forward, norm_1, norm_2) in evaluation mode; returns a tuple."""
    with torch.random.fork_rng(devices=[]):
        parts = (MultiHeadAttention(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN),
                 LayerNorm(WIDTH), LayerNorm(WIDTH))  # fmt: skip
    return tuple(part.eval() for part in parts)


@functools.cache
def own_parts():
    """The check's own parts, made once: making takes longer than running. Returns a tuple."""
    return fresh_parts()


def filled(parts, weights):
    """The parts with the given weights, a flat list; returns them."""
    held = [p for part in parts for p in part.parameters()]
    with torch.no_grad():
        for parameter, weight in zip(held, weights, strict=True):
            parameter.copy_(weight)
    return parts


def weight_shapes():
    """The shapes of all weights of the parts, in order, each with whether it is a gain."""
    return [(tuple(p.shape), isinstance(part, LayerNorm) and name == "weight")
            for part in own_parts() for name, p in part.named_parameters()]  # fmt: skip


def drawn(draw, place, lengths, length):
    """(place, weights, x (B, L, D), keep (B, L) or None) with loud parts and unequal norms."""
    weights = [draw.uniform(0.5, 2.0, *shape) if gain else 0.6 * draw.normal(*shape)
               for shape, gain in weight_shapes()]  # fmt: skip
    x = 1.5 * draw.normal(len(lengths), length, WIDTH)  # (B, L, D)
    keep = draw.keep(lengths, length) if min(lengths) < length else None
    return place, weights, x, keep


def at_real(out, keep):
    """out (B, L, D) with padded tokens set to 0: nobody says what stands there."""
    return out if keep is None else torch.where(keep[..., None], out, 0.0)


# --- the layer, right and wrong -------------------------------------------------------------------


def pre(x, f, norm):
    """x + f(LN(x)), all (B, L, D)."""
    return x + f(norm(x))


def post(x, f, norm):
    """LN(x + f(x)), all (B, L, D)."""
    return norm(x + f(x))


def on_stream(x, f, norm):
    """LN(x) + f(LN(x)), all (B, L, D)."""
    return norm(x) + f(norm(x))


def on_branch(x, f, norm):
    """x + LN(f(x)), all (B, L, D)."""
    return x + norm(f(x))


def both_ends(x, f, norm):
    """LN(x + f(LN(x))), all (B, L, D)."""
    return norm(x + f(norm(x)))


def around_branch(x, f, norm):
    """x + LN(f(LN(x))), all (B, L, D)."""
    return x + norm(f(norm(x)))


def bare_pre(x, f, norm):
    """f(LN(x)), all (B, L, D)."""
    return f(norm(x))


def bare_post(x, f, norm):
    """LN(f(x)), all (B, L, D)."""
    return norm(f(x))


def no_norm(x, f, norm):
    """x + f(x), all (B, L, D)."""
    return x + f(x)


def layer(place, weights, x, keep, pre=pre, post=post, masked=True, parts=(0, 1), norms=(2, 3),
          second=None, change=None):  # fmt: skip
    """One layer; ``pre`` and ``post`` are the steps, the other arguments make other mistakes.

    masked: whether the mask reaches attention, or "inverted".
    second: the step of the feed-forward network where it is another than attention's.
    change: another way through the whole layer, for the places it names. Returns (B, L, D).
    """
    held = filled(own_parts(), weights)

    def attend(y):
        inverted = masked == "inverted" and keep is not None
        return held[0](y, ~keep if inverted else keep if masked else None)

    fs = [attend, held[1]]
    step = pre if place == "pre" else post
    if change is not None and place in change:
        return at_real(change[place](x, *fs, held[2], held[3]), keep)
    y = step(x, fs[parts[0]], held[norms[0]])
    return at_real((second or {}).get(place, step)(y, fs[parts[1]], held[norms[1]]), keep)


def parallel_pre(x, attend, feed, norm_1, norm_2):
    """Both parts read the layer's input, norm in front; (B, L, D)."""
    return x + attend(norm_1(x)) + feed(norm_2(x))


def parallel_post(x, attend, feed, norm_1, norm_2):
    """Both parts read the layer's input, norm behind; (B, L, D)."""
    return norm_2(norm_1(x + attend(x)) + feed(x))


def once_pre(x, attend, feed, norm_1, norm_2):
    """One residual connection around both parts, norm in front; (B, L, D)."""
    return x + feed(norm_2(attend(norm_1(x))))


def once_post(x, attend, feed, norm_1, norm_2):
    """The second residual connection alone, norm behind; (B, L, D)."""
    return norm_2(x + feed(norm_1(attend(x))))


def old_pre(x, attend, feed, norm_1, norm_2):
    """The second addition starts again from the layer's input, norm in front; (B, L, D)."""
    return x + feed(norm_2(x + attend(norm_1(x))))


def old_post(x, attend, feed, norm_1, norm_2):
    """The second addition starts again from the layer's input, norm behind; (B, L, D)."""
    return norm_2(x + feed(norm_1(x + attend(x))))


def normed_pre(x, attend, feed, norm_1, norm_2):
    """Pre-LN, and the second norm again behind it all; (B, L, D)."""
    return norm_2(pre(pre(x, attend, norm_1), feed, norm_2))


def around_pre(x, attend, feed, norm_1, norm_2):
    """Pre-LN with one more residual connection around the layer; (B, L, D)."""
    return x + pre(pre(x, attend, norm_1), feed, norm_2)


def around_post(x, attend, feed, norm_1, norm_2):
    """Post-LN with one more residual connection around the layer; (B, L, D)."""
    return x + post(post(x, attend, norm_1), feed, norm_2)


def only(half, part):
    """One half of the layer, for attention (0) or the feed-forward network (1); a change."""
    return lambda x, attend, feed, *norms: half(x, (attend, feed)[part], norms[part])


def new_norm(half):
    """The step with a norm that has no gain and no shift; a step."""
    return lambda x, f, norm: half(x, f, lambda y: F.layer_norm(y, (WIDTH,)))


def forms(*kinds):
    """The layer with each of these mistakes; returns functions of a case's arguments."""
    return tuple(functools.partial(layer, **kind) for kind in kinds)


def one_or_both(first, second):
    """The mistake in one place of the norm, in the other, in both; returns arguments of layer."""
    return dict(pre=first), dict(post=second), dict(pre=first, post=second)


def through(first, second):
    """The same for a mistake in the way through the whole layer; returns arguments of layer."""
    return tuple(dict(change=change) for change in one_or_both(first, second))


STREAM = ("Your norm stands on the stream: what is added to is the normalised token. In Pre-LN the "
          "norm belongs inside the branch, and the token itself goes on untouched.")  # fmt: skip
LAYER = (
    Misconception("place_swapped", "The two places are exchanged: your \"pre\" normalises behind "
                  "the addition, your \"post\" in front of the part.",
                  forms(dict(pre=post, post=pre)),
                  reread="A figure and a code that disagree"),
    Misconception("place_ignored", "Your layer computes the same for \"pre\" and \"post\": the "
                  "place is not looked at.", forms(dict(pre=post), dict(post=pre)),
                  reread="A figure and a code that disagree"),
    Misconception("norm_on_stream", STREAM, forms(*one_or_both(on_stream, on_stream)),
                  reread="Break it: two mistakes that raise no error"),
    Misconception("norm_on_branch", "Your norm stands behind the part and before the addition, "
                  "x + LN(f(x)). That is a third place, neither Pre-LN nor Post-LN.",
                  forms(*one_or_both(on_branch, on_branch)),
                  reread="A figure and a code that disagree"),
    Misconception("norm_twice", "You normalise at two places at once, in front of the part and "
                  "behind it (or behind the addition).",
                  forms(*one_or_both(both_ends, both_ends),
                        *one_or_both(around_branch, around_branch)),
                  reread="A figure and a code that disagree"),
    Misconception("no_norm", "In one of the two places of the norm, nothing is normalised.",
                  forms(*one_or_both(no_norm, no_norm))),
    Misconception("no_residual", "The residual connection is missing: a part's result replaces the "
                  "token instead of being added to it.",
                  forms(*one_or_both(bare_pre, bare_post),
                        dict(second=dict(pre=bare_pre, post=bare_post)))),
    Misconception("one_residual", "There is one residual connection around both parts. Attention "
                  "and the feed-forward network have one each.",
                  forms(*through(once_pre, once_post))),
    Misconception("old_residual", "Your second addition goes back to the input of the layer, so "
                  "what attention added is lost from the stream. Add to what the first half gave.",
                  forms(*through(old_pre, old_post))),
    Misconception("parallel", "Your feed-forward network reads the input of the layer. It should "
                  "read what attention's half returned: the two parts come one after the other.",
                  forms(*through(parallel_pre, parallel_post))),
    Misconception("shared_norm", "One of the two norms is used for both parts: each part has a "
                  "norm with a gain and a shift of its own.",
                  forms(dict(norms=(2, 2)), dict(norms=(3, 3)))),
    Misconception("norms_exchanged", "The two norms are exchanged: norm_1 goes with attention, "
                  "norm_2 with the feed-forward network.", forms(dict(norms=(3, 2)))),
    Misconception("parts_exchanged", "The feed-forward network comes first in your layer; "
                  "attention should.", forms(dict(parts=(1, 0)), dict(parts=(1, 0), norms=(3, 2)))),
    Misconception("final_norm", "Your Pre-LN layer ends in a norm. That one belongs behind the "
                  "last layer of a stack: inside, the stream goes on as it is.",
                  forms(dict(change=dict(pre=normed_pre)))),
    Misconception("half_missing", "One half of the layer is missing: what comes back is that of "
                  "attention, or of the feed-forward network, alone.",
                  forms(*(kind for part in (0, 1)
                          for kind in through(only(pre, part), only(post, part))))),
    Misconception("around", "There is a third residual connection, around the whole layer. Each of "
                  "the two parts has one, that is all.",
                  forms(*through(around_pre, around_post))),
    Misconception("own_norms", "You normalise with new norms. Those that are handed over have a "
                  "gain and a shift that were learned.",
                  forms(*one_or_both(new_norm(pre), new_norm(post)))),
    Misconception("mask_inverted", "The mask reaches attention the wrong way round: True is for "
                  "real tokens, and attention takes it like that.",
                  forms(dict(masked="inverted"))),
    Misconception("mask_dropped", "The mask does not reach attention: real tokens listen to "
                  "padding.",
                  forms(dict(masked=False)),
                  reread="Both by hand, from the same parts"),
)  # fmt: skip


# --- running a learner's layer --------------------------------------------------------------------


UNREGISTERED = ("your layer computes, but does not own all of its parts: parameters() does not "
                "list their weights, so an optimiser would not train them. A part kept in a "
                "list, in a dict or in a function is not registered")  # fmt: skip


def takes_mask(module):
    """Whether forward takes a second argument; returns True when nobody can say."""
    try:
        inspect.signature(module.forward).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def learner(attempt, draw):
    """The answer as a function of a case's arguments; returns (B, L, D) without padded rows."""

    def run(place, weights, x, keep):
        parts = filled(fresh_parts(), weights)
        module = made(attempt, *parts, place, wants=WANTS)
        out = answer(module, x, keep) if takes_mask(module) else answer(module, x)
        if isinstance(out, tuple | list) and out:
            out = out[0]  # the weights may come, too
        if not isinstance(out, torch.Tensor) or out.shape != x.shape:
            raise Trouble(f"forward should return a tensor of the shape of x, {tuple(x.shape)}; "
                          f"what came is {kind(out)}", "shape")  # fmt: skip
        if sum(p.numel() for p in module.parameters()) < sum(w.numel() for w in weights):
            raise Trouble(UNREGISTERED, "unregistered")
        return at_real(out, keep)

    return run


encoder_layer = Checker(
    name="encoder_layer",
    number="8.2",
    component="encoder layer",
    right=layer,
    reread="Both by hand, from the same parts",
    inputs=("place", "the weights", "x", "keep_mask"),
    gradient=(2,),
    adapt=learner,
    misconceptions=LAYER,
    tolerance=2e-5,
    cases=(
        Case("Pre-LN, no padding", lambda draw: drawn(draw, "pre", (4, 4), 4)),
        Case("Post-LN, no padding", lambda draw: drawn(draw, "post", (4, 4), 4)),
        Case("Pre-LN, padding of three lengths", lambda draw: drawn(draw, "pre", (5, 3, 1), 5)),
        Case("Post-LN, padding of three lengths", lambda draw: drawn(draw, "post", (5, 3, 1), 5)),
    ),
)  # fmt: skip


# --- norms of gradients ---------------------------------------------------------------------------


def holder(weights, grads):
    """A model with parameters of the given dotted names, which hold the given gradients or None."""
    model = nn.Module()
    for name, weight in weights.items():
        *path, last = name.split(".")
        inner = model
        for part in path:
            if part not in inner._modules:
                inner.add_module(part, nn.Module())
            inner = inner._modules[part]
        parameter = nn.Parameter(weight)
        parameter.grad = grads[name]
        inner.register_parameter(last, parameter)
    return model


def with_model(attempt, draw):
    """The answer as a function of (weights, gradients); gradients it cleared are set to 0."""
    f = as_function(attempt)

    def run(weights, grads):
        model = holder(weights, grads)
        result = f(model)
        for name, parameter in model.named_parameters():
            if grads[name] is not None and parameter.grad is not grads[name]:
                grads[name].zero_()  # so that the change is seen
        return as_dict(result)

    return run


def as_dict(result):
    """The result, where pairs (name, norm) and generators of them count as a dict."""
    if isinstance(result, tuple | list) and result:
        pairs = all(isinstance(part, tuple | list) and len(part) == 2 for part in result)
        return dict(result) if pairs else result
    return result


def norms(weights, grads, size=lambda g: g.norm().item()):
    """{name: size of the gradient} of all parameters that have one; returns a dict."""
    return {name: size(g) for name, g in grads.items() if g is not None}


def sizes(*functions):
    """The same with another size; returns functions of (weights, gradients)."""
    return tuple(functools.partial(norms, size=size) for size in functions)


def of_weights(weights, grads):
    """The norms of the weights, of all and of those with a gradient; returns a dict."""
    return {name: weights[name].norm().item() for name, g in grads.items() if g is not None}


def of_all_weights(weights, grads):
    """The norms of all weights; returns a dict."""
    return {name: weight.norm().item() for name, weight in weights.items()}


def with_zeros(weights, grads):
    """Parameters without a gradient as 0; returns a dict."""
    return {name: 0.0 if g is None else g.norm().item() for name, g in grads.items()}


def with_nones(weights, grads):
    """Parameters without a gradient as None; returns a dict."""
    return {name: None if g is None else g.norm().item() for name, g in grads.items()}


def last_names(weights, grads):
    """The last part of every name, later ones over earlier ones; returns a dict."""
    return {name.split(".")[-1]: norm for name, norm in norms(weights, grads).items()}


def matrices(weights, grads):
    """Only gradients with two axes; returns a dict."""
    return {name: g.norm().item() for name, g in grads.items() if g is not None and g.dim() > 1}


def relative(weights, grads):
    """The gradient's norm over the weight's; returns a dict."""
    return {
        name: norm / weights[name].norm().item() for name, norm in norms(weights, grads).items()
    }


def one_number(evidence):
    """One number came instead of a dict; returns True or False."""
    return all(isinstance(t.got, float | torch.Tensor) for t in evidence.answers())


def stumbles(evidence):
    """The answer fails where a parameter has no gradient, and only there; returns True or False."""
    without = [t for t in evidence.trials if None in t.args[1].values()]
    failed = [t for t in evidence.trials if isinstance(t.got, Trouble)]
    return failed == without and all("NoneType" in t.got.text for t in failed)


GRADIENTS = (
    Misconception("none", "A parameter that took no part in the loss has no gradient: its `.grad` "
                  "is None, and your function stumbles over it.", signs=stumbles),
    Misconception("one_number", "You return one number for the whole model; asked for is one for "
                  "every parameter, under its name.",
                  signs=lambda e: bool(e.answers()) and one_number(e)),
    Misconception("none_as_zero", "You list parameters without a gradient, too. A gradient of 0 "
                  "and no gradient at all are two findings; leave the latter out.",
                  (with_zeros, with_nones)),
    Misconception("of_weights", "You measure the weights themselves, not their gradients.",
                  (of_weights, of_all_weights)),
    Misconception("relative", "You divide by the norm of the weights. That is a useful number, but "
                  "another one.", relative),
    Misconception("last_names", "Your names lack the path of the modules, so parameters with the "
                  "same last name overwrite each other.", last_names),
    Misconception("matrices_only", "Only matrices are listed: biases and gains have gradients, "
                  "too.",
                  matrices),
    Misconception("squared", "You return the sum of the squares: the root is missing.",
                  sizes(lambda g: g.square().sum().item())),
    Misconception("mean", "You average over the entries, so a large matrix looks like a small one. "
                  "The norm is the root of the *sum* of the squares.",
                  sizes(lambda g: g.square().mean().sqrt().item(),
                        lambda g: g.square().mean().item(),
                        lambda g: g.abs().mean().item(), lambda g: g.mean().item())),
    Misconception("another_norm", "You take another norm: the sum, or the largest, of the absolute "
                  "values (or the largest singular value).",
                  sizes(lambda g: g.abs().sum().item(), lambda g: g.abs().max().item(),
                        lambda g: torch.linalg.norm(g, 2).item(), lambda g: g.sum().item())),
)  # fmt: skip


def gradients(draw, shapes, without=(), scale=1.0):
    """(weights, gradients): dicts by dotted name, None for the names in ``without``."""
    weights = {name: draw.normal(1, *shape)[0] for name, shape in shapes.items()}
    grads = {name: None if name in without else scale * draw.normal(1, *shape)[0]
             for name, shape in shapes.items()}  # fmt: skip
    return weights, grads


SMALL = {"w_1.weight": (4, 3), "w_1.bias": (4,), "w_2.weight": (3, 4), "w_2.bias": (3,)}
STACK = {"scale": (), "layers.0.w.weight": (5, 5), "layers.0.norm.weight": (5,),
         "layers.1.w.weight": (5, 5), "layers.1.norm.weight": (5,)}  # fmt: skip

gradient_norms = Checker(
    name="gradient_norms",
    number="8.3",
    component="gradients",
    right=norms,
    reread="How large are the gradients?",
    inputs=("the weights", "the gradients"),
    adapt=with_model,
    misconceptions=GRADIENTS,
    cases=(
        Case("matrices and biases", lambda draw: gradients(draw, SMALL)),
        Case("layers in layers, a single number", lambda draw: gradients(draw, STACK)),
        Case("a parameter without a gradient",
             lambda draw: gradients(draw, STACK, ("layers.0.w.weight", "scale"))),
        Case("large gradients", lambda draw: gradients(draw, SMALL, scale=100.0)),
    ),
)  # fmt: skip
