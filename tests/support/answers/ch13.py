"""Answers to the exercises of chapter 13: tests of models, right ones and wrong ones."""

import copy
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


@right(PADDING)
def same_dropout_twice(model, x, keep):
    """Dropout may stay on when it drops the same numbers in both calls."""
    y = garbage(x, keep)
    torch.manual_seed(3)
    a = model(x, keep)
    torch.manual_seed(3)
    return torch.equal(a[keep], model(y, keep)[keep])


@right(PADDING)
def a_copy_of_the_model(model, x, keep):
    model = copy.deepcopy(model).eval()
    gap = model(x, keep) - model(garbage(x, keep), keep)
    return (gap * keep.unsqueeze(-1)).detach().abs().numpy().max() < 1e-5


@right(PADDING)
def cut_to_its_length(model, x, keep):
    together = quiet(model, x, keep)
    for b, n in enumerate(keep.sum(1).tolist()):
        alone = quiet(model, x[b : b + 1, :n], keep[b : b + 1, :n])
        torch.testing.assert_close(alone[0], together[b, :n])


@right(PADDING, note="dropout")
def takes_dropout_out(model, x, keep):
    model.dropout.p = 0.0
    return torch.allclose(model(x, keep)[keep], model(garbage(x, keep), keep)[keep], atol=1e-6)


@wrong(PADDING, "part_only")
def changes_the_last_place(model, x, keep):
    y = x.clone()
    y[:, -1] = torch.where(keep[:, -1:], y[:, -1], torch.randn_like(y[:, -1]))
    return torch.allclose(quiet(model, x, keep)[keep], quiet(model, y, keep)[keep], atol=1e-5)


@wrong(PADDING, "part_only")
def looks_at_the_first_token(model, x, keep):
    a, b = quiet(model, x, keep), quiet(model, garbage(x, keep), keep)
    return torch.allclose(a[:, 0], b[:, 0], atol=1e-5)


@wrong(PADDING, "part_only")
def changes_the_first_padded_place(model, x, keep):
    y = x.clone()
    for b, n in enumerate(keep.sum(1).tolist()):
        y[b, n : n + 1] = torch.randn_like(y[b, n : n + 1])
    return torch.allclose(quiet(model, x, keep)[keep], quiet(model, y, keep)[keep], atol=1e-5)


@wrong(PADDING, "constant_padding")
def zeros_and_sevens(model, x, keep):
    a, b = (quiet(model, x.masked_fill(~keep[..., None], c), keep) for c in (0.0, 7.0))
    return torch.allclose(a[keep], b[keep], atol=1e-5)


@wrong(PADDING, "luck")
def one_text_by_chance(model, x, keep):
    b = torch.randint(len(x), ()).item()
    y = x.clone()
    y[b] = garbage(x, keep)[b]
    return torch.allclose(quiet(model, x, keep)[keep], quiet(model, y, keep)[keep], atol=1e-5)


@wrong(PADDING, "never_asks")
def looks_at_the_input(model, x, keep):
    return bool((x[~keep] == 0).all())


@wrong(PADDING, "no_verdict")
def returns_false_or_nothing(model, x, keep):
    if not other_padding_same_words(model, x, keep):
        return False


@wrong(PADDING, "no_verdict")
def returns_true_or_nothing(model, x, keep):
    if other_padding_same_words(model, x, keep):
        return True


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


@right(TEXTS)
def jacobian_between_texts(model, x, keep):
    slopes = torch.autograd.functional.jacobian(lambda x: model(x, keep).sum((1, 2)), x)
    return float(sum(slopes[i, j].abs().sum() for i in range(3) for j in range(3) if i != j)) == 0


@right(TEXTS)
def nan_spreads(model, x, keep):
    for b in range(len(x)):
        y = x.clone()
        y[b] = math.nan
        out = model(y, keep)
        if torch.cat([out[:b], out[b + 1 :]]).isnan().any():
            return False
    return True


@wrong(TEXTS, "one_input")
def changes_the_second(model, x, keep):
    y = x.clone()
    y[1] = torch.randn_like(y[1])
    return torch.allclose(model(y, keep)[[0, 2]], model(x, keep)[[0, 2]], atol=1e-5)


@wrong(TEXTS, "one_output")
def looks_at_the_second(model, x, keep):
    y = torch.randn_like(x)
    y[1] = x[1]
    return torch.allclose(model(y, keep)[1], model(x, keep)[1], atol=1e-5)


@wrong(TEXTS, "one_direction")
def changes_the_last(model, x, keep):
    y = x.clone()
    y[-1] = torch.randn_like(y[-1])
    return torch.allclose(model(y, keep)[:-1], model(x, keep)[:-1], atol=1e-5)


@wrong(TEXTS, "one_direction")
def looks_at_the_last(model, x, keep):
    y = torch.randn_like(x)
    y[-1] = x[-1]
    return torch.allclose(model(y, keep)[-1], model(x, keep)[-1], atol=1e-5)


@wrong(TEXTS, "one_direction")
def each_and_the_next(model, x, keep):
    before = model(x, keep)
    for b in range(len(x) - 1):
        y = x.clone()
        y[b] = torch.randn_like(y[b])
        if not torch.allclose(model(y, keep)[b + 1], before[b + 1], atol=1e-5):
            return False
    return True


@wrong(TEXTS, "first_only")
def first_against_the_rest(model, x, keep):
    before, y, z = model(x, keep), torch.randn_like(x), torch.randn_like(x)
    y[0], z[1:] = x[0], x[1:]
    one, two = model(y, keep)[0], model(z, keep)[1:]
    return torch.allclose(one, before[0], atol=1e-5) and torch.allclose(two, before[1:], atol=1e-5)


@wrong(TEXTS, "luck")
def one_text_of_three(model, x, keep):
    b = torch.randint(len(x), ()).item()
    y, others = x.clone(), [i for i in range(len(x)) if i != b]
    y[b] = torch.randn_like(y[b])
    return torch.allclose(model(y, keep)[others], model(x, keep)[others], atol=1e-5)


@wrong(TEXTS, "never_asks")
def believes_it(model, x, keep):
    return True


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


@right(SCALE)
def by_numpy(score, d_k):
    scores = score(torch.randn(60, 20, d_k), torch.randn(60, 20, d_k)).numpy()
    return 0.85 < scores.std() < 1.15


@right(SCALE)
def slope_of_the_score(score, d_k):
    """The gradient at q is k, divided by the scale."""
    q, k = torch.randn(1, d_k, requires_grad=True), torch.randn(1, d_k)
    (slope,) = torch.autograd.grad(score(q, k).sum(), q)
    return torch.allclose(slope, k / d_k**0.5, rtol=1e-3)


@wrong(SCALE, "q_is_k")
def with_itself(score, d_k):
    q = torch.randn(100, 16, d_k)
    return 0.75 < score(q, q).var() < 1.35


@wrong(SCALE, "luck")
def seven_vectors(score, d_k):
    return 0.6 < variance(score, d_k, 7) < 1.5


@wrong(SCALE, "value")
def a_pair_without_a_scale(score, d_k):
    one = torch.ones(1, d_k)
    return score(one, one).item() == 1.0


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


@wrong(PADDING, "raised")
def has_a_typo(model, x, keep):
    """An error is no sign of a test that asks nothing."""
    return modell(x, keep)  # noqa: F821
