"""Gradient norms: right numbers, and the gradients are as they were."""

import math

import pytest
import torch
from torch import nn

from encoder_lib.diagnostics import gradient_norms, layer_gradient_norms
from encoder_lib.encoder import Encoder
from encoder_lib.plotting import plot_gradient_norms


def with_gradients(model, value=1.0):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)
    return model


def test_norms_by_pencil():
    model = nn.Linear(2, 2)
    model.weight.grad = torch.full((2, 2), 3.0)
    assert gradient_norms(model) == {"weight": 6.0, "bias": None}


def test_k14_non_finite_gradients_are_shown_and_nothing_is_changed():
    model = nn.Linear(2, 2)
    model.weight.grad, model.bias.grad = torch.full((2, 2), torch.inf), torch.ones(2)
    assert gradient_norms(model) == {"weight": math.inf, "bias": pytest.approx(2**0.5)}
    assert model.weight.grad.isinf().all() and model.bias.grad.tolist() == [1, 1]
    model.bias.grad[0] = torch.nan
    assert math.isnan(gradient_norms(model)["bias"]) and model.bias.grad[1] == 1


def test_half_precision_gradients_do_not_overflow():
    model = nn.Linear(100, 100, bias=False).half()
    model.weight.grad = torch.full((100, 100), 600.0, dtype=torch.float16)
    assert gradient_norms(model)["weight"] == 60_000


def test_one_norm_per_layer_in_order():
    model = with_gradients(Encoder(3, 8, 2, 16), 0.0)
    for i, layer in enumerate(model.layers):
        layer.norm_1.weight.grad[0], layer.norm_2.bias.grad[0] = 3.0 * i, 4.0 * i
    assert layer_gradient_norms(model) == [0, 5, 10]
    for parameter in model.layers[1].parameters():
        parameter.grad = None
    assert layer_gradient_norms(model) == [0, None, 10]


def test_norms_are_those_of_backward():
    model, x = Encoder(2, 8, 2, 16, 0.0), torch.randn(2, 3, 8)
    model(x).square().sum().backward()
    whole = torch.cat([p.grad.flatten() for p in model.layers[1].parameters()]).norm().item()
    assert layer_gradient_norms(model)[1] == pytest.approx(whole, rel=1e-5)
    norms = gradient_norms(model)
    squares = [norms[name] ** 2 for name in norms if name.startswith("layers.1")]
    assert sum(squares) ** 0.5 == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("function", [gradient_norms, layer_gradient_norms])
def test_wrong_arguments_are_named(function):
    with pytest.raises(TypeError, match="model.*dict"):
        function({})
    with pytest.raises(ValueError, match="Linear.*EncoderLayer"):
        layer_gradient_norms(nn.Linear(1, 1))


def test_norms_of_a_model_without_gradients_can_be_drawn():
    _, ax = plot_gradient_norms({"model": layer_gradient_norms(Encoder(2, 8, 2, 16))}, title="t")
    assert [text.get_text() for text in ax.texts] == ["model: none or NaN at layer 1, 2"]
