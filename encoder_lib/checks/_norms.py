"""Checks of chapter 07: LayerNorm, RMSNorm, LayerNorm's backward pass."""

import dataclasses
import functools

import torch

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._compare import apart
from encoder_lib.checks._learner import NotAttempted, Trouble, as_function
from encoder_lib.checks.report import Misconception

__all__ = ["layer_norm", "layer_norm_backward", "rms_norm"]

HALF = torch.float16
ALL = "all"  # every axis, also of a single token
WRONG_AXES = ((-2,), (1,), (0,))  # the axes that a learner means by "the length"
USUAL_EPS = (1e-5, 1e-6, 1e-8)  # smaller ones cannot be told from 0


def mean(x, axes=(-1,)):
    """The mean over the given axes, of size 1, or over everything."""
    return x.mean() if axes == ALL else x.mean(dim=axes, keepdim=True)


def variance(x, axes=(-1,), correction=0):
    """The variance over the given axes, of size 1, or over everything."""
    return x.var() if axes == ALL else x.var(dim=axes, correction=correction, keepdim=True)


# --- LayerNorm, right and wrong -------------------------------------------------------------------


def normed(x, eps=1e-5, axes=(-1,), correction=0, outside=False, root=True, centre=True):
    """x (..., D) without mean and with variance 1, where each argument may make a mistake.

    Returns: the same shape.
    """
    spread = variance(x, axes, correction)
    if outside:
        divisor = spread.sqrt() + eps
    else:
        divisor = (spread + eps).sqrt() if root else spread + eps
    return (x - mean(x, axes) if centre else x) / divisor


def normalise(x, gain, bias, eps, **way):
    """LayerNorm of x (..., D) with the given mistakes; returns the same shape."""
    return normed(x, eps, **way) * gain + bias


def over_size(x, eps, outside=False):
    """x (..., D) without mean, divided by its length; returns the same shape."""
    centred = x - mean(x)
    squares = centred.square().sum(-1, keepdim=True)
    return centred / (squares.sqrt() + eps if outside else (squares + eps).sqrt())


def clamped(x, eps):
    """x (..., D) normalised, where eps is the smallest variance; returns the same shape."""
    return (x - mean(x)) / variance(x).clamp(min=eps).sqrt()


def over_tokens(x, gain, bias, eps):
    """BatchNorm's axes: each of the D numbers over all tokens of x (..., D); returns that shape."""
    return normed(x.reshape(-1, x.size(-1)), eps, axes=(0,)).view_as(x) * gain + bias


def root_mean_square(x, gain, bias, eps):
    """RMSNorm with a shift, x (..., D); returns the same shape."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain + bias


def ways(*kinds):
    """LayerNorm with each of these mistakes; returns functions of (x, gain, bias, eps)."""
    return tuple(functools.partial(normalise, **kind) for kind in kinds)


def fixed_eps(form, values=(0.0, *USUAL_EPS)):
    """The form with each of these numbers in place of its last argument; returns functions."""
    return tuple(lambda *args, e=eps: form(*args[:-1], e) for eps in values)


def whatever_eps(misconceptions):
    """The misconceptions, recognised also in answers that ignore eps; returns a tuple.

    Close to 0, eps outside of the root cannot be told from no eps at all.
    """
    found = []
    for one in misconceptions:
        values = (1e-5, 1e-6) if "eps_outside" in one.key else (0.0, *USUAL_EPS)
        fixed = tuple(f for form in one.forms for f in fixed_eps(form, values))
        found.append(dataclasses.replace(one, form=(*one.forms, *fixed)))
    return tuple(found)


OUTSIDE = ("You add eps to the standard deviation: it belongs to the variance, under the root. For "
           "tokens with small numbers the two differ a lot.")  # fmt: skip
UNBIASED = ("You divide the squares by D - 1: that is the estimate for a sample, which `std()` and "
            "`var()` give unless told otherwise. LayerNorm divides by D.")  # fmt: skip
LENGTH = ("Your mean and variance run over the tokens of a sentence (or of the batch) instead of "
          "over the D numbers of one token, so tokens influence each other.")  # fmt: skip
TOGETHER = ("Your mean and variance run over all numbers of a sentence or of the batch at once; "
            "every token has a mean and a variance of its own.")  # fmt: skip
FIXED = ("Your result does not depend on the eps that is handed in: it is left out, or a fixed "
         "number stands in its place.")  # fmt: skip

LAYER_NORM = (
    Misconception("unbiased+eps_outside", f"{UNBIASED} And: {OUTSIDE}",
                  ways(dict(correction=1, outside=True)), reread="Break it: two usual mistakes"),
    Misconception("unbiased", UNBIASED, ways(dict(correction=1)),
                  reread="Break it: two usual mistakes"),
    Misconception("eps_outside", OUTSIDE, ways(dict(outside=True)),
                  reread="Break it: two usual mistakes"),
    Misconception("over_length", LENGTH, ways(*(dict(axes=axes) for axes in WRONG_AXES)),
                  reread="Which axis"),
    Misconception("over_both", TOGETHER,
                  ways(dict(axes=ALL), dict(axes=(-2, -1)), dict(axes=(1, 2))),
                  reread="Which axis"),
    Misconception("over_batch", "You normalise each of the D numbers over all tokens: that is "
                  "BatchNorm in training. LayerNorm looks at one token alone.", over_tokens,
                  reread="LayerNorm or BatchNorm, fairly"),
    Misconception("variance", "You divide by the variance itself: the root is missing, so the "
                  "result does not have variance 1.", ways(dict(root=False))),
    Misconception("not_centred", "Your token keeps its mean: it is divided by its size, but the "
                  "mean is not subtracted from what is divided.",
                  (*ways(dict(centre=False)), root_mean_square)),
    Misconception("not_divided", "You subtract the mean and do not divide by the standard "
                  "deviation.",
                  lambda x, gain, bias, eps: (x - mean(x)) * gain + bias),
    Misconception("affine", "Gain or shift is missing: the normalised numbers are to be multiplied "
                  "by the gain and then moved by the shift.",
                  (lambda x, gain, bias, eps: normed(x, eps),
                   lambda x, gain, bias, eps: normed(x, eps) * gain,
                   lambda x, gain, bias, eps: normed(x, eps) + bias)),
    Misconception("shift_first", "You add the shift before you multiply, so the gain scales the "
                  "shift, too.", lambda x, gain, bias, eps: (normed(x, eps) + bias) * gain),
    Misconception("affine_inside", "Gain and shift act on the token before it is normalised, and "
                  "the normalisation takes most of their effect away again.",
                  lambda x, gain, bias, eps: normed(x * gain + bias, eps)),
    Misconception("gain_swapped", "Gain and shift are exchanged: you multiply by the shift and add "
                  "the gain.", lambda x, gain, bias, eps: normed(x, eps) * bias + gain),
    Misconception("one_plus_gain", "You multiply by 1 + gain. Some models store their gain that "
                  "way; equation (7.4) multiplies by the gain itself.",
                  lambda x, gain, bias, eps: normed(x, eps) * (1 + gain) + bias),
    Misconception("length", "You divide by the length of the centred token, the root of the *sum* "
                  "of its squares. Asked for is the root of their mean.",
                  (lambda x, gain, bias, eps: over_size(x, eps, outside=True) * gain + bias,
                   lambda x, gain, bias, eps: over_size(x, eps) * gain + bias)),
    Misconception("eps_fixed", FIXED, fixed_eps(normalise)),
    Misconception("eps_elsewhere", "eps is squared, or serves as the smallest variance. It is "
                  "added to the variance as it is, under the root.",
                  (lambda x, gain, bias, eps: normed(x, eps**2) * gain + bias,
                   lambda x, gain, bias, eps: clamped(x, eps) * gain + bias)),
)  # fmt: skip


TORCHS = ("LayerNorm", "GroupNorm", "BatchNorm", "RmsNorm", "RMSNorm")


def behind(node):
    """The names of all steps of a graph, from its last one back; returns a set."""
    names, seen, waiting = set(), set(), [node]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.add(node.name())
            waiting += [before for before, _ in node.next_functions]
    return names


def own_norm_notes(evidence):
    """Whether torch's own norm did the work; returns sentences."""
    x, gain, bias = (torch.ones(3, 4).requires_grad_() for _ in range(3))
    try:
        out = evidence.f(x, gain[0], bias[0], 1e-5)
    except (Trouble, NotAttempted):
        return ()
    if any(own in name for name in behind(out.grad_fn) for own in TORCHS):
        return ("the numbers are right, but torch's own norm computed them, and that does not "
                "count here: write it yourself",)  # fmt: skip
    return ()


def half_note(evidence):
    """What a right LayerNorm does with loud numbers in half precision; returns sentences."""
    own = own_norm_notes(evidence)
    if own:
        return own
    loud, gain = torch.tensor([[300.0, -300.0] * 4]).to(HALF), torch.ones(8, dtype=HALF)
    try:
        out = evidence.ask(loud, gain, torch.zeros(8, dtype=HALF), 1e-5)
    except (Trouble, NotAttempted):
        return ("half precision (float16) raises an error; the library computes it in float32",)
    if isinstance(out, torch.Tensor) and abs(out.float().abs().max().item() - 1) < 0.1:
        return ()
    return ("in half precision (float16) a row of 300 and -300 is lost, because its squares "
            "overflow; the library computes in float32 inside",)  # fmt: skip


def affine(draw, x, eps):
    """(x, gain, bias, eps) with a gain and a shift that are not ones and zeros."""
    width = x.size(-1)
    return x, draw.uniform(0.5, 2.0, width), draw.normal(width), eps


layer_norm = Checker(
    name="layer_norm",
    number="7.2",
    component="normalisation",
    right=normalise,
    reread="Norm: by hand",
    inputs=("x", "the gain", "the shift", "eps"),
    gradient=(0, 1, 2),
    tolerance=5e-5,
    misconceptions=whatever_eps(LAYER_NORM),
    notes=half_note,
    cases=(
        Case("tokens (B, L, D), gain and shift",
             lambda draw: affine(draw, 2 * draw.normal(2, 3, 8) + 1, 1e-5)),
        Case("rows of four numbers, where D and D - 1 differ",
             lambda draw: affine(draw, 2 * draw.normal(2, 5, 4) - 1, 1e-5)),
        Case("numbers as small as a thousandth, where eps matters",
             lambda draw: affine(draw, 1e-3 * draw.normal(2, 3, 4), 1e-5)),
        Case("another eps", lambda draw: affine(draw, draw.normal(2, 3, 6), 0.1)),
        Case("a single token (D,)", lambda draw: affine(draw, draw.normal(6), 1e-5)),
    ),
)  # fmt: skip


# --- RMSNorm --------------------------------------------------------------------------------------


def widened(x):
    """x in float32 if it is of half precision, else x; returns the same shape."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def root(x, eps):
    """The root mean square of x (..., D), of size (..., 1)."""
    return (mean(x.square()) + eps).sqrt()


def narrow(x, gain, eps, size=root, centre=False):
    """x (..., D) divided by its size, times the gain, in the types that come; returns (..., D)."""
    return (x - mean(x) if centre else x) / size(x, eps) * gain


def narrow_again(x, gain, eps, **way):
    """The same, but only the result is brought to the type of x; returns (..., D)."""
    return narrow(x, gain, eps, **way).to(x.dtype)


def rms(x, gain, eps, **way):
    """The same, computed in float32 for half precision; returns the shape and dtype of x."""
    return narrow(widened(x), gain, eps, **way).to(x.dtype)


def rms_ways(*sizes, **options):
    """RMSNorm with each of these divisors, however wide; returns functions of (x, gain, eps)."""
    return tuple(functools.partial(f, size=size, **options)
                 for size in sizes for f in (rms, narrow, narrow_again))  # fmt: skip


class HalfChecker(Checker):
    """In half precision right formulas differ in the last digits."""

    def apart(self, got, want):
        """The first difference, or None; 0.4 % is allowed in float16."""
        half = isinstance(want, torch.Tensor) and want.dtype == HALF
        return apart(got, want, 4e-3 if half else self.tolerance, "the result", self.dtype)


def reference_rms(x, gain, eps):
    """RMSNorm; returns no graph in half precision, where gradients differ in the last digits."""
    out = rms(x, gain, eps)
    return out.detach() if x.dtype == HALF else out


RMS_NORM = (
    Misconception("half_inside", "In half precision your squares overflow: 300 squared is more "
                  "than float16 can hold, the mean becomes infinite, and the token becomes 0.",
                  (narrow, narrow_again, lambda x, gain, eps: narrow(x, gain.to(x.dtype), eps)),
                  reread="Break it: half precision"),
    Misconception("stays_wide", "A token in half precision comes back as float32: the result "
                  "should have the dtype of x, whatever you compute with.",
                  lambda x, gain, eps: narrow(widened(x), gain, eps),
                  reread="Break it: half precision"),
    Misconception("centred", "You subtract the mean: that is LayerNorm's first half. RMSNorm "
                  "leaves the mean in.", rms_ways(
                      lambda x, eps: (variance(x) + eps).sqrt(),
                      lambda x, eps: root(x - mean(x), eps), root, centre=True)),
    Misconception("std", "You divide by the standard deviation, which is measured from the mean; "
                  "the root mean square is measured from 0.",
                  rms_ways(lambda x, eps: (variance(x) + eps).sqrt(),
                           lambda x, eps: (variance(x, correction=1) + eps).sqrt(),
                           lambda x, eps: variance(x, correction=1).sqrt() + eps)),
    Misconception("eps_outside", OUTSIDE.replace("the standard deviation", "the root mean square")
                  .replace("the variance", "the mean square"),
                  rms_ways(lambda x, eps: mean(x.square()).sqrt() + eps)),
    Misconception("sum", "You divide by the length of the token, the root of the *sum* of the "
                  "squares: the mean is asked for, so the result is too small by the root of D.",
                  rms_ways(lambda x, eps: (x.square().sum(-1, keepdim=True) + eps).sqrt(),
                           lambda x, eps: x.norm(dim=-1, keepdim=True) + eps,
                           lambda x, eps: x.norm(dim=-1, keepdim=True).clamp_min(eps))),
    Misconception("no_root", "You divide by the mean square itself: the root is missing.",
                  rms_ways(lambda x, eps: mean(x.square()) + eps)),
    Misconception("mean_of_abs", "You divide by the mean of the absolute values; the root mean "
                  "square squares first, so large numbers count more.",
                  rms_ways(lambda x, eps: mean(x.abs()) + eps)),
    Misconception("no_gain", "The gain is missing: the normalised numbers are to be multiplied "
                  "by it.",
                  (lambda x, gain, eps: rms(x, 1.0, eps),
                   lambda x, gain, eps: narrow(x, 1.0, eps))),
    Misconception("over_length", LENGTH.replace("mean and variance run", "mean square runs"),
                  rms_ways(*(lambda x, eps, axes=axes: (mean(x.square(), axes) + eps).sqrt()
                             for axes in (*WRONG_AXES, ALL)))),
    Misconception("eps_fixed", FIXED, (*fixed_eps(rms), *fixed_eps(narrow),
                                       *fixed_eps(narrow_again))),
)  # fmt: skip


def gained(draw, x, eps):
    """(x, gain, eps) with a gain that is not ones."""
    return x, draw.uniform(0.5, 2.0, x.size(-1)), eps


rms_norm = HalfChecker(
    name="rms_norm",
    number="7.5",
    component="normalisation",
    right=reference_rms,
    reread="RMSNorm: what can be left out",
    inputs=("x", "the gain", "eps"),
    gradient=(0, 1),
    misconceptions=whatever_eps(RMS_NORM),
    cases=(
        Case("tokens (B, L, D) with a mean",
             lambda draw: gained(draw, draw.normal(2, 3, 8) + 1, 1e-6)),
        Case("numbers as small as a thousandth, where eps matters",
             lambda draw: gained(draw, 1e-3 * draw.normal(2, 5, 4), 1e-5)),
        Case("another eps", lambda draw: gained(draw, draw.normal(2, 3, 6), 0.1)),
        Case("a single token (D,)", lambda draw: gained(draw, draw.normal(6), 1e-6)),
        Case("half precision, numbers near 300: right numbers, float16 again",
             lambda draw: gained(draw, (300 * draw.normal(2, 3, 8).sign()
                                        + 50 * draw.normal(2, 3, 8)).to(HALF), 1e-6)),
    ),
)  # fmt: skip


# --- the backward pass of LayerNorm ---------------------------------------------------------------


def backward(x, u, eps, axes=(-1,), minus_mean=1.0, minus_along=1.0, along="z", average=mean,
             divisor=lambda x, eps, axes: (variance(x, axes) + eps).sqrt()):  # fmt: skip
    """The gradient at x (..., D) from u (..., D) at the output, gain 1; returns (..., D)."""
    z = normed(x, eps, axes)
    direction = {"z": z, "x": x, "centred": x - mean(x, axes)}[along]
    part = minus_mean * average(u, axes) + minus_along * direction * average(u * direction, axes)
    return (u - part) / divisor(x, eps, axes)


def total(x, axes=(-1,)):
    """The sum over the given axes, of size 1."""
    return x.sum(dim=axes, keepdim=True)


def diagonal(x, u, eps):
    """Only the diagonal of the Jacobian, x and u (..., D); returns (..., D)."""
    z = normed(x, eps)
    return u * (1 - 1 / x.size(-1) - z.square() / x.size(-1)) / (variance(x) + eps).sqrt()


def back(*kinds):
    """The backward pass with each of these mistakes; returns functions of (x, upstream, eps)."""
    return tuple(functools.partial(backward, **kind) for kind in kinds)


def uses_autograd(evidence):
    """Nothing came, because a gradient was asked of autograd; returns True or False."""
    texts = [getattr(trial.got, "text", "") for trial in evidence.trials]
    return all("does not require grad" in text for text in texts)


BACKWARD = (
    Misconception("autograd", "Your function asks autograd for the gradient. The check runs it "
                  "where autograd is switched off: write down what autograd would compute.",
                  signs=uses_autograd),
    Misconception("constants", "You treat mean and standard deviation as constants: both depend on "
                  "every number of the token, and that adds two terms.",
                  back(dict(minus_mean=0, minus_along=0))),
    Misconception("no_mean_term", "The term of the mean is missing: a change that moves all "
                  "numbers of a token alike changes nothing, so your gradient should add up to 0.",
                  back(dict(minus_mean=0))),
    Misconception("no_projection", "The term of the standard deviation is missing: making the "
                  "token longer changes nothing, so no gradient may be left along it.",
                  back(dict(minus_along=0))),
    Misconception("no_sigma", "The division by the standard deviation is missing: ten times larger "
                  "tokens get ten times smaller gradients.",
                  back(dict(divisor=lambda x, eps, axes: 1.0))),
    Misconception("variance", "You divide by the variance; the Jacobian has one over the standard "
                  "deviation in front.",
                  back(dict(divisor=lambda x, eps, axes: variance(x, axes) + eps))),
    Misconception("multiplied", "You multiply by the standard deviation: on the way back it "
                  "divides, as it does on the way forth.",
                  back(dict(divisor=lambda x, eps, axes: (variance(x, axes) + eps).rsqrt()))),
    Misconception("sum_for_mean", "You subtract sums instead of means: the factor 1/D is missing "
                  "in front of both terms.", back(dict(average=total))),
    Misconception("plus", "The sign of a term is wrong: what goes along the ones and along the "
                  "normalised token is *removed* from the gradient.",
                  back(dict(minus_mean=-1, minus_along=-1), dict(minus_along=-1),
                       dict(minus_mean=-1))),
    Misconception("diagonal", "You use only the diagonal of the Jacobian: every input number moves "
                  "every output number, since all of them share mean and variance.", diagonal),
    Misconception("not_normalised", "The projection runs along the token as it came in; it should "
                  "run along the normalised token.", back(dict(along="x"), dict(along="centred"))),
    Misconception("unbiased", UNBIASED, (
        lambda x, u, eps: unbiased_backward(x, u, eps),
        functools.partial(
            backward, divisor=lambda x, eps, axes: (variance(x, axes, 1) + eps).sqrt()))),
    Misconception("over_length", LENGTH, back(*(dict(axes=axes) for axes in WRONG_AXES)),
                  reread="Which axis"),
    Misconception("forward", "You return the normalised token, the result of the forward pass. "
                  "Asked for is the gradient at x.", lambda x, u, eps: normed(x, eps)),
    Misconception("eps_fixed", FIXED, fixed_eps(backward)),
)  # fmt: skip


def unbiased_backward(x, u, eps):
    """The formula with the estimate of the variance for samples in all places; returns (..., D)."""
    z = normed(x, eps, correction=1)
    return (u - mean(u) - z * mean(u * z)) / (variance(x, correction=1) + eps).sqrt()


def without_autograd(attempt, draw):
    """The answer as a function that runs while autograd is switched off."""
    f = as_function(attempt)

    def run(*args):
        with torch.no_grad():
            return f(*args)

    return run


layer_norm_backward = Checker(
    name="layer_norm_backward",
    number="7.6",
    component="normalisation",
    right=backward,
    reread="What it forgets",
    inputs=("x", "upstream", "eps"),
    adapt=without_autograd,
    misconceptions=whatever_eps(BACKWARD),
    tolerance=2e-5,
    cases=(
        Case("tokens (B, L, D), a random upstream gradient",
             lambda draw: (2 * draw.normal(2, 3, 8) + 1, draw.normal(2, 3, 8), 1e-5)),
        Case("the same upstream gradient for all numbers, which must not come through",
             lambda draw: (3 * draw.normal(2, 5, 8), draw.normal(2, 5, 1).repeat(1, 1, 8), 1e-5)),
        Case("numbers as small as a thousandth, where eps matters",
             lambda draw: (1e-3 * draw.normal(2, 3, 4), draw.normal(2, 3, 4), 1e-5)),
        Case("another eps", lambda draw: (draw.normal(2, 3, 6), draw.normal(2, 3, 6), 0.1)),
        Case("a single token (D,)", lambda draw: (draw.normal(6), draw.normal(6), 1e-5)),
    ),
)  # fmt: skip
