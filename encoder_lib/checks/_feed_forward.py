"""Checks of chapter 06: the feed-forward network, the slope of GELU."""

import functools
import math

import torch
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, answer, call, kind, made
from encoder_lib.checks._weights import MAPS, own_name, set_by_name
from encoder_lib.checks.report import Misconception

__all__ = ["feed_forward", "gelu_slope"]

WANTS = "a class, or a function that makes a module from (d_model, d_ff)"


# --- the network, right and wrong -----------------------------------------------------------------


def same(z):
    """No bend at all."""
    return z


def network(weights, x, bend=F.relu, last=same, without=(), tied=False):
    """W_2 bend(W_1 x + b_1) + b_2, with one step done otherwise; x (B, L, D).

    bend, last: activation of the hidden units, and of the output; without: biases left out;
    tied: the second map is the first one, transposed.
    """
    b_1, b_2 = (None if name in without else weights[name] for name in ("b_1", "b_2"))
    hidden = bend(F.linear(x, weights["w_1"], b_1))  # (B, L, d_ff)
    return last(F.linear(hidden, weights["w_1"].T if tied else weights["w_2"], b_2))


def over_length(weights, x):
    """The positions are treated as features; an error unless L = D."""
    return network(weights, x.transpose(1, 2)).transpose(1, 2)


def standard(x):
    """x (..., n) with mean 0 and variance 1 in its last axis."""
    return F.layer_norm(x, x.shape[-1:])


def first_map(weights, x, bend):
    """The first of the two maps alone, (B, L, d_ff)."""
    return bend(F.linear(x, weights["w_1"], weights["b_1"]))


class Learner:
    """A learner's network as f(weights, x) -> output; ``missing`` as in ``_heads.Learner``."""

    def __init__(self, attempt, names=None, adapter=None):
        self.attempt, self.names, self.adapter = attempt, dict(names or {}), adapter
        self.missing = []

    def load(self, module, weights):
        """Copy the weights by adapter, by name, or where there are two maps by their shapes."""
        if self.adapter is not None:
            call(self.adapter, module, weights)
            return
        names = dict(self.names)
        for key in ("w_1", "w_2"):
            fitting = [name for name, m in maps(module) if shape(m) == tuple(weights[key].shape)]
            if key not in names and own_name(module, key) is None and len(fitting) == 1:
                names[key] = fitting[0]
        self.missing = set_by_name(module, weights, names)

    def __call__(self, weights, x):
        module = made(self.attempt, *reversed(weights["w_1"].shape), wants=WANTS)
        self.load(module, weights)
        out = answer(module, x)
        if not isinstance(out, torch.Tensor):
            raise Trouble(f"forward should return one tensor; what came is {kind(out)}", "type")
        return out


def maps(module):
    """(dotted name, map) of all linear maps in a module."""
    return [(name, m) for name, m in module.named_modules() if isinstance(m, MAPS)]


def shape(linear):
    """(out, in) of a linear map, or of a convolution over one position."""
    return tuple(linear.weight.shape[:2])


def learner(attempt, draw, names=None, adapter=None):
    """The answer as a function of a case's arguments. Options of the check as in ``_weights``."""
    made(attempt, 6, 10, wants=WANTS)
    return Learner(attempt, names, adapter)


# --- signs ----------------------------------------------------------------------------------------


def found_maps(evidence):
    """The shapes of the learner's linear maps for d_model 6 and d_ff 10."""
    return [shape(m) for _, m in maps(made(evidence.f.attempt, 6, 10))]


def sizes_swapped(evidence):
    """The first map goes from d_ff to d_model."""
    return found_maps(evidence)[0] == (6, 10) and len(found_maps(evidence)) == 2


def one_layer(evidence):
    """There is a single map, and it has not the shape of the first."""
    return len(found_maps(evidence)) == 1


def narrow(evidence):
    """There are two maps, neither of them from or to d_ff numbers."""
    return len(found_maps(evidence)) == 2 and {n for s in found_maps(evidence) for n in s} == {6}


def mixes_positions(evidence):
    """The output of a word changes when another word of its sentence does."""
    weights, x = evidence.trials[0].args
    other = x.clone()
    other[:, -1] += 1.0
    before, after = evidence.ask(weights, x), evidence.ask(weights, other)
    return not torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)


# --- the check ------------------------------------------------------------------------------------


def by_parts(a, b):
    """a z + b |z|, of which ReLU is the case of a = b = 1/2."""
    return lambda z: a * z + b * z.abs()


def step(z):
    """1 for positive z, 0 for negative."""
    return (z > 0).to(z.dtype)


PARTS = (by_parts(1.0, 1.0), by_parts(0.5, -0.5), by_parts(-0.5, 0.5), by_parts(0.5, 1.0),
         by_parts(1.0, 0.5), by_parts(-0.5, -0.5))  # fmt: skip
OTHER_BENDS = (F.silu, torch.tanh, torch.sigmoid, F.leaky_relu, F.elu, F.softplus, torch.abs,
               torch.square, functools.partial(F.leaky_relu, negative_slope=0.1),
               functools.partial(F.leaky_relu, negative_slope=0.2), F.relu6,
               F.hardswish, step)  # fmt: skip


def with_form(**steps):
    """The network with these steps done otherwise."""
    return functools.partial(network, **steps)


GELU = (F.gelu, functools.partial(F.gelu, approximate="tanh"))
MISCONCEPTIONS = (
    Misconception(
        "no_activation",
        "There is no bend between the two maps. Two linear maps in a row are one, and the hidden "
        "units are wasted.",
        with_form(bend=same),
        reread="Break it: without one",
    ),
    Misconception(
        "activation_moved",
        "The activation comes after the second map and not between the two: the hidden units stay "
        "linear, and no output is below 0.",
        with_form(bend=same, last=F.relu),
    ),
    Misconception(
        "output_activated",
        "The output goes through the activation, too. It is to be added to the input, up or down: "
        "a bend would cut off all that is below 0.",
        with_form(last=F.relu),
    ),
    Misconception(
        "gelu",
        "Your bend is GELU; asked for is ReLU, which is exactly 0 for all that is below 0.",
        tuple(with_form(bend=g) for g in GELU),
        reread="ReLU and GELU",
    ),
    Misconception(
        "softmax",
        "A softmax makes the hidden units compete, as attention does with words. Here any number "
        "of units may fire, each for itself.",
        with_form(bend=functools.partial(torch.softmax, dim=-1)),
        reread="Keys and values",
    ),
    Misconception(
        "relu_parts",
        "Your bend is put together of z and |z| in another way than ReLU: for a positive z it "
        "should give z itself, for a negative one 0. Try it with 3 and with -3.",
        tuple(with_form(bend=bend) for bend in PARTS),
        reread="ReLU and GELU",
    ),
    Misconception(
        "nan_at_0",
        "Right, except where the match of a unit is exactly 0: there something is divided by 0.",
        (
            with_form(bend=lambda z: z * (z / z.abs() + 1) / 2),
            with_form(bend=lambda z: (z + z.abs()) / (2 * z) * z),
        ),
    ),
    Misconception(
        "other_activation",
        "Your bend is not ReLU: the hidden units have other values than max(0, z), below 0 or "
        "above it.",
        tuple(with_form(bend=bend) for bend in OTHER_BENDS),
    ),
    Misconception(
        "tied",
        "The second map is the first one, transposed: each unit writes the row that it reads. The "
        "values are weights of their own.",
        tuple(with_form(tied=True, without=w) for w in ((), ("b_2",))),
        reread="Keys and values",
    ),
    Misconception(
        "no_bias",
        "A bias is missing. Without the first one every unit bends where its match is 0 (the "
        "second unit of equation 6.2 bends at 1); without the last one the output is 0 where no "
        "unit fires.",
        tuple(with_form(without=w) for w in (("b_1",), ("b_2",), ("b_1", "b_2"))),
        reread="By hand: two hidden units",
    ),
    Misconception(
        "residual_inside",
        "The input is added inside. That is done once, outside of the network (chapter 07); done "
        "inside, too, it would be added twice.",
        lambda w, x: x + network(w, x),
    ),
    Misconception(
        "norm_inside",
        "There is a normalisation inside (of the input, of the hidden units or of the output). The "
        "network itself has none; chapter 07 adds it.",
        (
            lambda w, x: network(w, standard(x)),
            with_form(last=standard),
            with_form(bend=lambda z: F.relu(standard(z))),
            with_form(bend=lambda z: standard(F.relu(z))),
            lambda w, x: standard(x + network(w, x)),
        ),
    ),
    Misconception(
        "over_length",
        "Your maps run over the words instead of the features: with L = D that is no error, but "
        "the words of a sentence are mixed.",
        over_length,
        reread="It never looks sideways",
    ),
    Misconception(
        "sizes_swapped",
        "The sizes are swapped: the first map should go up from d_model to d_ff, the second back "
        "down.",
        signs=sizes_swapped,
    ),
    Misconception(
        "one_layer",
        "There is only one map. The hidden units need a second one that says what each of them "
        "writes.",
        (functools.partial(first_map, bend=F.relu), functools.partial(first_map, bend=same)),
        one_layer,
    ),
    Misconception(
        "no_hidden",
        "Both maps go from d_model to d_model: d_ff, the number of hidden units, is not used.",
        signs=narrow,
    ),
    Misconception(
        "mixes_positions",
        "The output of a word changes when another word does: something in your network runs over "
        "the words.",
        signs=mixes_positions,
        reread="It never looks sideways",
    ),
    Misconception(
        "names",
        "Not both maps were found whose weights the check sets: call them w_1 and w_2, or say how "
        'yours are called: names={"w_1": ...}.',
        signs=lambda e: bool(e.f.missing),
    ),
)


def sizes(draw, batch, length, d_model, d_ff, loud=1.5):
    """(weights, x (B, L, D)) with biases that are not 0, but for a unit whose match always is."""
    weights = {
        "w_1": draw.normal(d_ff, d_model) / math.sqrt(d_model), "b_1": draw.normal(d_ff),
        "w_2": draw.normal(d_model, d_ff) / math.sqrt(d_ff), "b_2": draw.normal(d_model),
    }  # fmt: skip
    weights["w_1"][0] = weights["b_1"][0] = 0.0
    return weights, loud * draw.normal(batch, length, d_model)


feed_forward = Checker(
    name="feed_forward",
    number="6.2",
    component="feed-forward network",
    right=network,
    reread="Then without",
    inputs=("the weights", "x"),
    gradient=(1,),
    adapt=learner,
    misconceptions=MISCONCEPTIONS,
    cases=(
        Case(
            "two sentences, more hidden units than features", lambda draw: sizes(draw, 2, 5, 6, 24)
        ),
        Case("fewer hidden units than features", lambda draw: sizes(draw, 3, 4, 8, 3)),
        Case("as many words as features", lambda draw: sizes(draw, 2, 6, 6, 10)),
        Case("large numbers", lambda draw: sizes(draw, 2, 3, 5, 20, loud=15.0)),
        Case("one sentence of one word", lambda draw: sizes(draw, 1, 1, 4, 16)),
    ),
)


# --- the slope of GELU ----------------------------------------------------------------------------


def cdf(z):
    """The probability that a standard normal number is smaller than z."""
    return torch.special.ndtr(z)


def density(z, exponent=0.5, square=2 * math.pi):
    """The standard normal density, or with another exponent, or divided by another root."""
    return (-exponent * z.square()).exp() / square**0.5


def slope_of(f):
    """The slope of an activation f, by automatic differentiation."""

    def slope(z):
        z = z.detach().clone().requires_grad_()
        return torch.autograd.grad(f(z).sum(), z)[0]

    return slope


def sum_of(cdf=cdf, density=density, sign=1.0):
    """cdf(z) + z density(z), or the same of wrong parts."""
    return lambda z: cdf(z) + sign * z * density(z)


def no_root(z):
    """The cumulative distribution with erf(z) instead of erf(z / root 2)."""
    return (1 + torch.erf(z)) / 2


def nearly(evidence):
    """Close to the slope in every entry, but not to five digits."""
    return all(t.got.dtype == t.want.dtype for t in evidence.trials) and all(
        (t.got - t.want).abs().max() < 0.02 for t in evidence.trials
    )


BAD_DENSITIES = tuple(
    functools.partial(density, exponent=exponent, square=square)
    for exponent in (0.5, 1.0, -0.5)
    for square in (2 * math.pi, 1.0, 2.0, math.pi, 4 * math.pi**2)
)[1:]
ERF = functools.partial(density, exponent=1.0, square=math.pi)  # the slope of (1 + erf z) / 2

gelu_slope = Checker(
    name="gelu_slope",
    number="6.5",
    component="GELU",
    right=sum_of(),
    reread="ReLU and GELU",
    inputs=("z",),
    misconceptions=(
        Misconception(
            "only_cdf",
            "You have differentiated z only and held the probability fast. It depends on z as "
            "well: a product has two terms in its derivative.",
            cdf,
        ),
        Misconception(
            "only_density",
            "One term of the product is missing: z itself has a slope, too, and that one is "
            "multiplied by the probability.",
            lambda z: z * density(z),
        ),
        Misconception(
            "no_z",
            "Both terms are there, but in the second the factor z is missing: it is held fast "
            "while the probability is differentiated.",
            lambda z: cdf(z) + density(z),
        ),
        Misconception(
            "minus",
            "The sign of the second term is wrong: the probability grows with z, so its slope is "
            "positive.",
            sum_of(sign=-1.0),
        ),
        Misconception(
            "no_root_two",
            "erf is not yet the normal distribution: its argument has to be divided by the root of "
            "2.",
            (sum_of(cdf=no_root), no_root, sum_of(cdf=no_root, density=ERF)),
        ),
        Misconception(
            "density",
            "The slope of the probability is the standard normal density; yours has another "
            "exponent, or another number in front of it.",
            tuple(sum_of(density=bad) for bad in BAD_DENSITIES),
        ),
        Misconception(
            "not_cdf",
            "Your probability runs from -1 to 1, or from 0 to 2, as erf does. A probability lies "
            "between 0 and 1.",
            tuple(sum_of(cdf=f) for f in (lambda z: 2 * cdf(z), lambda z: 2 * cdf(z) - 1)),
        ),
        Misconception("not_the_slope", "This is GELU itself; asked for is its slope.", F.gelu),
        Misconception(
            "tanh",
            "This is the slope of the tanh approximation. It is close, but the exact GELU has the "
            "normal distribution in it.",
            slope_of(functools.partial(F.gelu, approximate="tanh")),
        ),
        Misconception(
            "sigmoid",
            "A sigmoid stands for the normal distribution: this is the slope of SiLU, or of z "
            "sigmoid(1.702 z).",
            (
                slope_of(F.silu),
                slope_of(lambda z: z * torch.sigmoid(1.702 * z)),
                sum_of(cdf=lambda z: torch.sigmoid(1.702 * z)),
                sum_of(cdf=torch.sigmoid),
            ),
        ),
        Misconception(
            "relu",
            "This is the slope of ReLU, a step from 0 to 1. GELU's dips below 0 on the left and "
            "rises above 1 on the right.",
            slope_of(F.relu),
        ),
        Misconception(
            "difference",
            "Close, but not exact: this looks like a difference quotient, or like rounded "
            "constants. Differentiate the formula.",
            signs=nearly,
        ),
    ),
    cases=(
        Case("small numbers", lambda draw: (draw.normal(4, 50),)),
        Case("numbers from -12 to 12", lambda draw: (draw.uniform(-12, 12, 3, 40),)),
        Case(
            "0, and where GELU is lowest",
            lambda draw: (torch.tensor([0.0, -0.7517916, 0.7517916, -1.0, 1.0]),),
        ),
    ),
)
