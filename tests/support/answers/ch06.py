"""Answers to the exercises of chapter 06."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import encoder_lib
from answers import right, wrong

WRONG_VALUES = {"6.1": {"usual": 2048, "as_wide": 512, "half": 256, "weights": 1048576}}

# --- 6.2, feed_forward ----------------------------------------------------------------------------

CHECK = "feed_forward"
right(CHECK)(encoder_lib.FeedForward)


@right(CHECK)
class TwoMaps(nn.Module):
    """Right; the wrong ones below change one line each."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w_2(torch.where(self.w_1(x) > 0, self.w_1(x), 0.0))


@right(CHECK)
class InSequence(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

    def forward(self, x):
        return self.net(x)


@right(CHECK)
class Convolutions(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.conv1 = nn.Conv1d(d_model, d_ff, kernel_size=1)
        self.conv2 = nn.Conv1d(d_ff, d_model, kernel_size=1)

    def forward(self, x):
        return self.conv2(self.conv1(x.mT).relu()).mT


@right(CHECK)
class BareParameters(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W1, self.b1 = nn.Parameter(torch.randn(d_model, d_ff)), nn.Parameter(torch.ones(d_ff))
        self.W2 = nn.Parameter(torch.randn(d_ff, d_model))
        self.b2 = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return torch.clamp(x @ self.W1 + self.b1, min=0) @ self.W2 + self.b2


@right(CHECK)
class UnitByUnit(TwoMaps):
    def forward(self, x):
        out = self.w_2.bias.expand_as(x)
        for key, bias, value in zip(self.w_1.weight, self.w_1.bias, self.w_2.weight.T, strict=True):
            out = out + (x @ key + bias).relu()[..., None] * value
        return out


def plain(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))


right(CHECK)(plain)


def into_rows(module, weights):
    with torch.no_grad():
        module.table.copy_(torch.cat([weights["w_1"], weights["w_2"].T], dim=1))
        module.biases[0].copy_(weights["b_1"])
        module.biases[1].copy_(weights["b_2"])


@right(CHECK, adapter=into_rows)
class OneTable(nn.Module):
    """Keys and values of all units in one table (d_ff, 2 D)."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(d_ff, 2 * d_model))
        self.biases = nn.ParameterList([torch.zeros(d_ff), torch.zeros(d_model)])

    def forward(self, x):
        keys, values = self.table.chunk(2, dim=1)
        return F.relu(x @ keys.T + self.biases[0]) @ values + self.biases[1]


wrong(CHECK, "names")(OneTable)


@wrong(CHECK, "no_activation")
class WithoutABend(TwoMaps):
    def forward(self, x):
        return self.w_2(self.w_1(x))


@wrong(CHECK, "activation_moved")
class BendAtTheEnd(TwoMaps):
    def forward(self, x):
        return torch.relu(self.w_2(self.w_1(x)))


@wrong(CHECK, "output_activated")
class BendTwice(TwoMaps):
    def forward(self, x):
        return F.relu(self.w_2(F.relu(self.w_1(x))))


@wrong(CHECK, "gelu")
class AsBertDoes(TwoMaps):
    def forward(self, x):
        return self.w_2(nn.GELU()(self.w_1(x)))


@wrong(CHECK, "softmax")
class UnitsCompete(TwoMaps):
    def forward(self, x):
        return self.w_2(self.w_1(x).softmax(-1))


@wrong(CHECK, "other_activation")
class Sigmoids(TwoMaps):
    def forward(self, x):
        return self.w_2(1 / (1 + (-self.w_1(x)).exp()))


@wrong(CHECK, "other_activation")
class SizeOnly(TwoMaps):
    def forward(self, x):
        return self.w_2(self.w_1(x).abs())


@wrong(CHECK, "other_activation")
class CutAtSix(TwoMaps):
    def forward(self, x):
        return self.w_2(F.relu6(self.w_1(x)))


@wrong(CHECK, "relu_parts")
class NotHalved(TwoMaps):
    def forward(self, x):
        z = self.w_1(x)
        return self.w_2(z + abs(z))


@wrong(CHECK, "relu_parts")
class TheNegativePart(TwoMaps):
    def forward(self, x):
        z = self.w_1(x)
        return self.w_2((z - z.abs()) / 2)


@wrong(CHECK, "nan_at_0")
class DividesByTheSize(TwoMaps):
    def forward(self, x):
        z = self.w_1(x)
        return self.w_2(z * (1 + z / torch.abs(z)) / 2)


@wrong(CHECK, "tied")
class SameWeightsBack(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)

    def forward(self, x):
        return F.relu(self.w_1(x)) @ self.w_1.weight


@wrong(CHECK, "no_bias")
class WithoutBiases(TwoMaps):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.w_1 = nn.Linear(d_model, d_ff, bias=False)
        self.w_2 = nn.Linear(d_ff, d_model, bias=False)


@wrong(CHECK, "residual_inside")
class AddsItsInput(TwoMaps):
    def forward(self, x):
        return super().forward(x) + x


@wrong(CHECK, "norm_inside")
class NormFirst(TwoMaps):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return super().forward(self.norm(x))


@wrong(CHECK, "over_length")
class AlongTheSentence(TwoMaps):
    def forward(self, x):
        return super().forward(x.transpose(-1, -2)).transpose(-1, -2)


@wrong(CHECK, "sizes_swapped")
class DownAndUp(TwoMaps):
    def __init__(self, d_model, d_ff):
        super().__init__(d_ff, d_model)


@wrong(CHECK, "one_layer")
class OneMap(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x).relu()


@wrong(CHECK, "one_layer")
class StopsHalfway(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)

    def forward(self, x):
        return self.w_1(x).relu()


@wrong(CHECK, "no_hidden")
class AlwaysAsWide(TwoMaps):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_model)


@wrong(CHECK, "mixes_positions")
class SharesHiddenUnits(TwoMaps):
    def forward(self, x):
        hidden = self.w_1(x).relu()
        return self.w_2(hidden - hidden.mean(1, keepdim=True))


@wrong(CHECK, "random")
class DropoutAlwaysOn(TwoMaps):
    def forward(self, x):
        return self.w_2(F.dropout(F.relu(self.w_1(x)), 0.5))


# --- 6.5, gelu_slope ------------------------------------------------------------------------------

CHECK = "gelu_slope"


@right(CHECK)
def by_distribution(z):
    normal = torch.distributions.Normal(0.0, 1.0)
    return normal.cdf(z) + z * normal.log_prob(z).exp()


@right(CHECK)
def by_autograd(z):
    z = z.clone().requires_grad_()
    F.gelu(z).sum().backward()
    return z.grad


@right(CHECK)
def number_by_number(z):
    def one(v):
        return 0.5 * math.erfc(-v / 2**0.5) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi)

    return torch.tensor([one(v) for v in z.flatten().tolist()]).view(z.shape)


def phi(z):
    return torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def big_phi(z):
    return 0.5 * (1 + torch.erf(z / math.sqrt(2)))


@wrong(CHECK, "only_cdf")
def z_differentiated_alone(z):
    return 0.5 * (1 + torch.erf(z / math.sqrt(2)))


@wrong(CHECK, "not_cdf")
def not_halved(z):
    return 1 + torch.erf(z / math.sqrt(2)) + z * phi(z)


@wrong(CHECK, "not_cdf")
def erf_for_a_probability(z):
    return torch.erf(z / math.sqrt(2)) + z * phi(z)


@wrong(CHECK, "density")
def square_of_minus_z(z):
    return big_phi(z) + z * torch.exp((-z) ** 2 / 2) / math.sqrt(2 * math.pi)


@wrong(CHECK, "sigmoid")
def sigmoid_for_a_probability(z):
    return torch.sigmoid(1.702 * z) + z * phi(z)


@wrong(CHECK, "dtype")
def in_float64(z):
    return by_distribution(z.double())


@wrong(CHECK, "only_density")
def phi_differentiated_alone(z):
    return z * phi(z)


@wrong(CHECK, "no_z")
def sum_rule(z):
    return big_phi(z) + phi(z)


@wrong(CHECK, "minus")
def wrong_sign(z):
    return big_phi(z) - z * phi(z)


@wrong(CHECK, "no_root_two")
def erf_of_z(z):
    return 0.5 * (1 + torch.erf(z)) + z * phi(z)


@wrong(CHECK, "no_root_two")
def erf_of_z_throughout(z):
    return 0.5 * (1 + torch.erf(z)) + z * torch.exp(-(z**2)) / math.sqrt(math.pi)


@wrong(CHECK, "density")
def no_number_in_front(z):
    return big_phi(z) + z * torch.exp(-(z**2) / 2)


@wrong(CHECK, "density")
def two_forgotten_in_the_exponent(z):
    return big_phi(z) + z * torch.exp(-(z**2)) / math.sqrt(2 * math.pi)


@wrong(CHECK, "not_the_slope")
def value_of_gelu(z):
    return z * big_phi(z)


@wrong(CHECK, "tanh")
def slope_of_the_approximation(z):
    z = z.clone().requires_grad_()
    c = math.sqrt(2 / math.pi)
    y = 0.5 * z * (1 + torch.tanh(c * (z + 0.044715 * z**3)))
    return torch.autograd.grad(y.sum(), z)[0]


@wrong(CHECK, "sigmoid")
def slope_of_silu(z):
    s = torch.sigmoid(z)
    return s + z * s * (1 - s)


@wrong(CHECK, "sigmoid")
def slope_of_the_coarse_one(z):
    s = torch.sigmoid(1.702 * z)
    return s * (1 + 1.702 * z * (1 - s))


@wrong(CHECK, "relu")
def a_step(z):
    return (z > 0).float()


@wrong(CHECK, "difference")
def a_difference_quotient(z):
    return (F.gelu(z + 0.01) - F.gelu(z)) / 0.01
