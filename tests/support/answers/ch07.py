"""Answers to the exercises of chapter 07, as learners write them."""

import torch
from torch import nn
from torch.nn import functional as F

from answers import right, wrong

WRONG_VALUES = {
    "7.1": {"sample": 1.16189, "variance": 0.6, "rms": 1.46059, "length": 0.67082, "centred": 3},
}

NORM, RMS, BACK = "layer_norm", "rms_norm", "layer_norm_backward"


# --- LayerNorm ------------------------------------------------------------------------------------


@right(NORM, note="torch's own norm")
def torchs_function(x, gain, bias, eps):
    return F.layer_norm(x, (x.shape[-1],), gain, bias, eps)


@right(NORM)
def mean_of_squares_minus_square_of_mean(x, weight, shift, epsilon):
    wide = x.float() if x.dtype is torch.float16 else x
    m = wide.mean(-1, True)
    v = (wide**2).mean(-1, True) - m**2
    return ((wide - m) * torch.rsqrt(v + epsilon) * weight + shift).to(x.dtype)


@right(NORM)
def with_matrices(x, gain, bias, eps):
    d = x.size(-1)
    centred = x @ (torch.eye(d) - torch.full((d, d), 1 / d))
    return torch.addcmul(
        bias, centred / (centred.norm(dim=-1, keepdim=True) ** 2 / d + eps) ** 0.5, gain
    )


@right(NORM, note="float16")
def token_by_token(x, gain, bias, eps):
    rows = []
    for row in x.reshape(-1, x.size(-1)):
        var, mean = torch.var_mean(row, correction=0)
        rows.append((row - mean) / torch.sqrt(var + eps) * gain + bias)
    return torch.stack(rows).reshape(x.shape)


@right(NORM)
class AsAModule(nn.Module):
    def forward(self, x, gain, bias, eps):
        norm = nn.LayerNorm(x.size(-1), eps, elementwise_affine=False)
        return norm(x) * gain + bias


@wrong(NORM, "unbiased")
def var_as_it_comes(x, gain, bias, eps):
    return gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + eps) + bias


@wrong(NORM, "eps_outside")
def eps_beside_the_root(x, gain, bias, eps):
    mean, std = x.mean(-1, keepdim=True), x.std(-1, correction=0, keepdim=True)
    return gain * (x - mean) / (std + eps) + bias


@wrong(NORM, "unbiased+eps_outside")
def std_as_it_comes(x, a_2, b_2, eps):
    return a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) + b_2


@wrong(NORM, "over_length")
def along_the_sentence(x, gain, bias, eps):
    var, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gain + bias


@wrong(NORM, "over_length")
def along_the_batch(x, gain, bias, eps):
    var, mean = torch.var_mean(x, dim=0, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gain + bias


@wrong(NORM, "gain_swapped")
def shift_times_gain(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], bias, gain, eps)


@wrong(NORM, "one_plus_gain")
def gain_from_zero(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], gain + 1, bias, eps)


@wrong(NORM, "length")
def length_of_one(x, gain, bias, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.norm(dim=-1, keepdim=True) + eps) * gain + bias


@wrong(NORM, "eps_elsewhere")
def never_less_than_eps(x, gain, bias, eps):
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / torch.maximum(var, torch.tensor(eps)).sqrt() * gain + bias


@wrong(NORM, "over_both")
def whole_sentence(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[1:], eps=eps) * gain + bias


@wrong(NORM, "over_both")
def whole_sentence_with_torchs_eps(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[1:]) * gain + bias


@wrong(NORM, "unbiased")
def std_without_eps(x, gain, bias, eps):
    return gain * (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) + bias


@wrong(NORM, "eps_outside")
def own_eps_beside_the_root(x, gain, bias, eps):
    std = x.std(-1, correction=0, keepdim=True)
    return gain * ((x - x.mean(-1, keepdim=True)) / (std + 1e-6)) + bias


@wrong(NORM, "over_both")
def whole_batch(x, gain, bias, eps):
    return (x - x.mean()) / torch.sqrt(x.var() + eps) * gain + bias


@wrong(NORM, "over_batch")
def batch_norm(x, gain, bias, eps):
    flat = x.reshape(-1, x.shape[-1])
    flat = (flat - flat.mean(0)) / torch.sqrt(flat.var(0, correction=0) + eps)
    return flat.reshape(x.shape) * gain + bias


@wrong(NORM, "variance")
def root_forgotten(x, gain, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + eps) * gain + bias


@wrong(NORM, "not_centred")
def mean_stays(x, gain, bias, eps):
    return x / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps) * gain + bias


@wrong(NORM, "not_centred")
def rms_norm_with_shift(x, gain, bias, eps):
    return F.rms_norm(x, x.shape[-1:], gain, eps) + bias


@wrong(NORM, "not_divided")
def only_centred(x, gain, bias, eps):
    return gain * (x - x.mean(-1, keepdim=True)) + bias


@wrong(NORM, "affine")
def nothing_learned(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps)


@wrong(NORM, "affine")
def shift_forgotten(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], gain, eps=eps)


@wrong(NORM, "shift_first")
def shift_before_gain(x, gain, bias, eps):
    return gain * (F.layer_norm(x, x.shape[-1:], eps=eps) + bias)


@wrong(NORM, "affine_inside")
def learned_part_first(x, gain, bias, eps):
    return F.layer_norm(gain * x + bias, x.shape[-1:], eps=eps)


@wrong(NORM, "eps_fixed")
def eps_of_torch(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], gain, bias)


@wrong(NORM, "eps_fixed")
def no_eps(x, gain, bias, eps):
    return gain * (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True) + bias


@wrong(NORM, "mutates")
def in_place(x, gain, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain + bias


@wrong(NORM, "gradient")
def no_gradient_through_the_statistics(x, gain, bias, eps):
    with torch.no_grad():
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gain + bias


# --- RMSNorm --------------------------------------------------------------------------------------


@right(RMS)
def torchs_rms(x, gain, eps):
    return F.rms_norm(x.float(), x.shape[-1:], gain, eps).to(x.dtype)


@right(RMS)
def by_the_length(x, gain, eps):
    dtype, x = x.dtype, x.to(torch.float32)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (gain * x / torch.sqrt(length**2 / x.shape[-1] + eps)).to(dtype)


@right(RMS)
def narrow_before_the_gain(x, gain, eps):
    wide = x.float()
    wide = wide * torch.rsqrt(
        torch.einsum("...d,...d->...", wide, wide)[..., None] / x.size(-1) + eps
    )
    return wide.type_as(x) * gain.type_as(x)


@right(RMS)
def in_double(x, gain, eps):
    wide = x.double()
    return (wide / (wide.pow(2).mean(-1, True) + eps) ** 0.5 * gain.double()).type_as(x)


@wrong(RMS, "half_inside")
def never_widened(x, gain, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


@wrong(RMS, "half_inside")
def widened_too_late(x, gain, eps):
    mean_square = (x * x).mean(-1, keepdim=True).float()
    return (x.float() / torch.sqrt(mean_square + eps) * gain).to(x.dtype)


@wrong(RMS, "stays_wide")
def type_not_restored(x, gain, eps):
    x = x.float()
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


@wrong(RMS, "centred")
def layer_norm_without_shift(x, gain, eps):
    return F.layer_norm(x.float(), x.shape[-1:], gain, eps=eps).to(x.dtype)


@wrong(RMS, "centred")
def centred_and_never_widened(x, gain, eps):
    x = x - x.mean(-1, keepdim=True)
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "std")
def by_the_deviation(x, gain, eps):
    wide = x.float()
    return (wide / torch.sqrt(wide.var(-1, correction=0, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "std")
def by_std(x, gain, eps):
    wide = x.float()
    return (wide / (wide.std(-1, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "eps_outside")
def eps_beside_the_rms(x, gain, eps):
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps) * gain).to(x.dtype)


@wrong(RMS, "sum")
def unit_length(x, gain, eps):
    return (F.normalize(x.float(), dim=-1, eps=eps) * gain).to(x.dtype)


@wrong(RMS, "sum")
def sum_of_squares(x, gain, eps):
    wide = x.float()
    return (wide / torch.sqrt((wide * wide).sum(-1, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "sum")
def unit_length_never_widened(x, gain, eps):
    return gain * x / torch.sqrt((x**2).sum(dim=-1, keepdim=True) + eps)


@wrong(RMS, "no_root")
def rms_root_forgotten(x, gain, eps):
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "mean_of_abs")
def absolute_values(x, gain, eps):
    wide = x.float()
    return (wide / (wide.abs().mean(-1, keepdim=True) + eps) * gain).to(x.dtype)


@wrong(RMS, "no_gain")
def rms_without_gain(x, gain, eps):
    return F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


@wrong(RMS, "over_length")
def rms_of_all_numbers(x, gain, eps):
    wide = x.float()
    return (wide / torch.sqrt(wide.square().mean() + eps) * gain).to(x.dtype)


@wrong(RMS, "eps_fixed")
def usual_eps(x, gain, eps):
    wide = x.float()
    return (wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * gain).to(x.dtype)


# --- the backward pass ----------------------------------------------------------------------------


@right(BACK)
def with_the_whole_jacobian(x, upstream, eps):
    d = x.shape[-1]
    s = torch.sqrt(x.var(-1, correction=0) + eps)[..., None, None]
    z = F.layer_norm(x, (d,), eps=eps)
    jacobian = (torch.eye(d) - 1 / d - z[..., :, None] * z[..., None, :] / d) / s
    return torch.einsum("...i,...ij->...j", upstream, jacobian)


@right(BACK)
def as_frameworks_write_it(x, dy, eps):
    n = x.size(-1)
    rstd = torch.rsqrt(x.var(-1, correction=0, keepdim=True) + eps)
    xhat = (x - x.mean(-1, keepdim=True)) * rstd
    return rstd / n * (n * dy - dy.sum(-1, True) - xhat * (dy * xhat).sum(-1, True))


@right(BACK)
def step_by_step(x, upstream, eps):
    n, c = x.shape[-1], x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    to_s = -(upstream * c).sum(-1, keepdim=True) / s**2
    to_c = upstream / s + to_s / (2 * s) * 2 * c / n
    return to_c - to_c.mean(-1, keepdim=True)


@wrong(BACK, "autograd")
def asks_autograd(x, upstream, eps):
    x = x.clone().requires_grad_()
    F.layer_norm(x, x.shape[-1:], eps=eps).backward(upstream)
    return x.grad


def statistics(x, eps):
    mean, sigma = x.mean(-1, keepdim=True), torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps)
    return (x - mean) / sigma, sigma


@wrong(BACK, "constants")
def divides_only(x, upstream, eps):
    return upstream / statistics(x, eps)[1]


@wrong(BACK, "no_mean_term")
def forgets_the_mean(x, upstream, eps):
    z, sigma = statistics(x, eps)
    return (upstream - z * (upstream * z).mean(-1, keepdim=True)) / sigma


@wrong(BACK, "no_mean_term")
def forgets_mean_and_eps(x, upstream, eps):
    z, sigma = statistics(x, 0.0)
    return (upstream - z * (upstream * z).mean(-1, keepdim=True)) / sigma


@wrong(BACK, "no_projection")
def forgets_sigma(x, upstream, eps):
    return (upstream - upstream.mean(-1, keepdim=True)) / statistics(x, eps)[1]


@wrong(BACK, "no_sigma")
def forgets_the_division(x, upstream, eps):
    z, _ = statistics(x, eps)
    return upstream - upstream.mean(-1, True) - z * (upstream * z).mean(-1, True)


@wrong(BACK, "variance")
def divides_twice(x, upstream, eps):
    z, sigma = statistics(x, eps)
    return (upstream - upstream.mean(-1, True) - z * (upstream * z).mean(-1, True)) / sigma**2


@wrong(BACK, "multiplied")
def multiplies(x, upstream, eps):
    z, sigma = statistics(x, eps)
    return (upstream - upstream.mean(-1, True) - z * (upstream * z).mean(-1, True)) * sigma


@wrong(BACK, "sum_for_mean")
def sums(x, upstream, eps):
    z, sigma = statistics(x, eps)
    return (upstream - upstream.sum(-1, True) - z * (upstream * z).sum(-1, True)) / sigma


@wrong(BACK, "plus")
def adds_the_projection(x, upstream, eps):
    z, sigma = statistics(x, eps)
    return (upstream - upstream.mean(-1, True) + z * (upstream * z).mean(-1, True)) / sigma


@wrong(BACK, "diagonal")
def each_number_alone(x, upstream, eps):
    d, (z, sigma) = x.size(-1), statistics(x, eps)
    return upstream * ((d - 1) / d - z * z / d) / sigma


@wrong(BACK, "not_normalised")
def projects_along_x(x, upstream, eps):
    _, sigma = statistics(x, eps)
    return (upstream - upstream.mean(-1, True) - x * (upstream * x).mean(-1, True)) / sigma


@wrong(BACK, "unbiased")
def std_of_a_sample(x, upstream, eps):
    sigma = torch.sqrt(x.var(-1, keepdim=True) + eps)
    z = (x - x.mean(-1, keepdim=True)) / sigma
    return (upstream - upstream.mean(-1, True) - z * (upstream * z).mean(-1, True)) / sigma


@wrong(BACK, "over_length")
def back_along_the_sentence(x, upstream, eps):
    sigma = torch.sqrt(x.var(1, correction=0, keepdim=True) + eps)
    z = (x - x.mean(1, keepdim=True)) / sigma
    return (upstream - upstream.mean(1, True) - z * (upstream * z).mean(1, True)) / sigma


@wrong(BACK, "forward")
def forward_again(x, upstream, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps)


@wrong(BACK, "eps_fixed")
def exact_formula_of_the_chapter(x, upstream, eps):
    z, sigma = statistics(x, 0.0)
    return (upstream - upstream.mean(-1, True) - z * (upstream * z).mean(-1, True)) / sigma
