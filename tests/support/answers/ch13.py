"""Answers to the exercises of chapter 13: tests of models, right ones and wrong ones."""

import math

import torch

from answers import right, wrong

WRONG_VALUES = {
    "13.1": {"guessing": 6.91, "zero": 0, "four_classes": 0.744, "sign": -5.91, "bits": 8.53,
             "difference": 0.998},
}  # fmt: skip

# --- does padding matter? -------------------------------------------------------------------------

PADDING = "padding_invariant"


def quiet(model, x, keep):
    """The output without dropout; puts the mode back."""
    mode = model.training
    model.eval()
    with torch.no_grad():
        out = model(x, keep)
    model.train(mode)
    return out


def garbage(x, keep, value=7.0):
    return torch.where(keep[..., None], x, value * torch.randn_like(x))


@right(PADDING)
def other_padding_same_words(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, keep), keep)
    return torch.allclose(a[keep], b[keep], atol=1e-5)


@right(PADDING)
def no_gradient_into_padding(model, x, keep):
    x, mode = x.clone().requires_grad_(), model.training
    out = model.eval()(x, keep)
    model.train(mode)
    (slope,) = torch.autograd.grad((out[keep] * torch.randn_like(out[keep])).sum(), x)
    return not slope[~keep].any()


@right(PADDING)
def raises_instead(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, keep), keep)
    assert (a - b)[keep].abs().max() < 1e-5, "padding leaks"


@right(PADDING)
def longer_padding(model, x, keep):
    longer = torch.nn.functional.pad(x, (0, 0, 0, 3), value=9.0)
    with_more = quiet(model, longer, torch.nn.functional.pad(keep, (0, 3)))[:, : x.size(1)]
    assert torch.allclose(with_more[keep], quiet(model, x, keep)[keep], atol=1e-4)
    return True


@right(PADDING, note="mode")
def leaves_evaluation_mode(model, x, keep):
    model.eval()
    return bool(
        torch.isclose(model(x, keep), model(x * keep[..., None], keep), atol=1e-5)[keep].all()
    )


@wrong(PADDING, "padded_rows")
def compares_everything(model, x, keep):
    return torch.allclose(quiet(model, x, keep), quiet(model, garbage(x, keep), keep), atol=1e-5)


@wrong(PADDING, "training_mode")
def leaves_dropout_on(model, x, keep):
    a, b = model(x, keep), model(garbage(x, keep), keep)
    return torch.allclose(a[keep], b[keep], atol=1e-5)


@wrong(PADDING, "nan")
def fills_with_nan(model, x, keep):
    y = x.masked_fill(~keep[..., None], float("nan"))
    return torch.allclose(quiet(model, x, keep)[keep], quiet(model, y, keep)[keep], atol=1e-5)


@wrong(PADDING, "too_loose")
def two_decimals(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, keep), keep)
    return torch.allclose(a[keep], b[keep], atol=0.1)


@wrong(PADDING, "passes_everything")
def compares_shapes(model, x, keep):
    return quiet(model, x, keep).shape == quiet(model, garbage(x, keep), keep).shape


@wrong(PADDING, "passes_everything")
def compares_the_same_call(model, x, keep):
    return torch.equal(quiet(model, x, keep), quiet(model, x, keep))


@wrong(PADDING, "fails_everything")
def changes_the_words(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, ~keep), keep)
    return torch.allclose(a[keep], b[keep], atol=1e-5)


@wrong(PADDING, "upside_down")
def true_when_it_leaks(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, keep), keep)
    return bool((a - b)[keep].abs().max() > 1e-5)


@wrong(PADDING, "mutates")
def writes_into_x(model, x, keep):
    a = quiet(model, x, keep)
    x[~keep] = 5.0
    return torch.allclose(a[keep], quiet(model, x, keep)[keep], atol=1e-5)


# --- do texts leak? -------------------------------------------------------------------------------

TEXTS = "texts_do_not_leak"


@right(TEXTS)
def gradients_between_texts(model, x, keep):
    x = x.clone().requires_grad_()
    out = model(x, keep)
    for b in range(len(x)):
        (slope,) = torch.autograd.grad(out[b].square().sum(), x, retain_graph=True)
        slope = torch.cat([slope[:b], slope[b + 1 :]])
        if slope.abs().max() > 0:
            return False
    return True


@right(TEXTS)
def each_alone(model, x, keep):
    together = model(x, keep)
    alone = torch.cat([model(x[b : b + 1], keep[b : b + 1]) for b in range(len(x))])
    return torch.allclose(together, alone, atol=1e-5)


@right(TEXTS)
def changes_each_in_turn(model, x, keep):
    before = model(x, keep)
    for b in range(len(x)):
        y = x.clone()
        y[b] = torch.randn_like(y[b])
        others = [i for i in range(len(x)) if i != b]
        assert (model(y, keep)[others] - before[others]).abs().max() < 1e-5


@wrong(TEXTS, "evaluation_only")
def alone_in_evaluation(model, x, keep):
    return each_alone(model.eval(), x, keep)


@wrong(TEXTS, "one_output")
def looks_at_the_first(model, x, keep):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x, keep)[0].square().sum(), x)
    return not slope[1:].any()


@wrong(TEXTS, "one_input")
def changes_the_first(model, x, keep):
    y = x.clone()
    y[0] = torch.randn_like(y[0])
    return torch.allclose(model(y, keep)[1:], model(x, keep)[1:], atol=1e-5)


@wrong(TEXTS, "shuffled")
def shuffles_texts(model, x, keep):
    order = torch.tensor([2, 0, 1])
    return torch.allclose(model(x[order], keep[order]), model(x, keep)[order], atol=1e-5)


@wrong(TEXTS, "too_loose")
def one_decimal(model, x, keep):
    alone = torch.cat([model(x[b : b + 1], keep[b : b + 1]) for b in range(len(x))])
    return torch.allclose(model(x, keep), alone, atol=0.05)


@wrong(TEXTS, "passes_everything")
def only_shapes(model, x, keep):
    return model(x[:1], keep[:1]).shape == model(x, keep)[:1].shape


@wrong(TEXTS, "fails_everything")
def gradient_of_the_same_text(model, x, keep):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x, keep).square().sum(), x)
    return not slope.any()


@wrong(TEXTS, "upside_down")
def true_for_a_leak(model, x, keep):
    return not each_alone(model, x, keep)


# --- is the scale right? --------------------------------------------------------------------------

SCALE = "finds_wrong_scale"


def variance(score, d_k, n=200):
    return score(torch.randn(n, d_k), torch.randn(n, d_k)).var().item()


@right(SCALE)
def variance_near_1(score, d_k):
    return 0.75 < score(torch.randn(20, 40, d_k), torch.randn(20, 40, d_k)).var() < 1.35


@right(SCALE)
def one_known_pair(score, d_k):
    one = torch.ones(1, d_k)
    assert abs(score(one, one).item() - math.sqrt(d_k)) < 1e-3


@right(SCALE)
def typical_size(score, d_k):
    scores = [score(torch.randn(2, 3, 8, d_k), torch.randn(2, 3, 8, d_k)) for _ in range(60)]
    return abs(torch.stack(scores).square().mean() - 1) < 0.2


@wrong(SCALE, "too_large_only")
def below_a_bound(score, d_k):
    return variance(score, d_k) < 2


@wrong(SCALE, "too_small_only")
def above_a_bound(score, d_k):
    return variance(score, d_k) > 0.75


@wrong(SCALE, "too_loose")
def wide_bounds(score, d_k):
    return 0.3 < variance(score, d_k) < 3


@wrong(SCALE, "too_loose")
def very_wide_bounds(score, d_k):
    return 0.09 < variance(score, d_k) < 9


@wrong(SCALE, "expects_no_scale")
def variance_of_the_width(score, d_k):
    return abs(variance(score, d_k) / d_k - 1) < 0.3


@wrong(SCALE, "not_standard")
def uniform_numbers(score, d_k):
    scores = score(torch.rand(200, d_k), torch.rand(200, d_k))
    return 0.75 < scores.var() < 1.35


@wrong(SCALE, "width_ignored")
def always_32(score, d_k):
    return 0.75 < variance(score, 32) < 1.35


@wrong(SCALE, "passes_everything")
def any_finite_number(score, d_k):
    return math.isfinite(variance(score, d_k))


@wrong(SCALE, "fails_everything")
def exactly_1(score, d_k):
    return variance(score, d_k) == 1.0


@wrong(SCALE, "upside_down")
def true_when_wrong(score, d_k):
    return not 0.75 < variance(score, d_k) < 1.35


@wrong(SCALE, "never_asks")
def looks_at_the_width(score, d_k):
    return d_k == 16


@wrong(SCALE, "luck")
def sixteen_numbers(score, d_k):
    return 0.75 < variance(score, d_k, 4) < 1.35
