"""Norms, similarities, entropies and checks: right numbers, clear messages, nothing touched."""

import contextlib
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.diagnostics import (
    activation_rms,
    attention_entropy,
    check_attention_spread,
    check_attention_weights,
    check_batch_independence,
    check_eval_is_deterministic,
    check_finite,
    check_fully_padded_row,
    check_gradients_reach_all_parameters,
    check_initial_loss,
    check_inputs_unchanged,
    check_keeps_mode,
    check_layers_independent,
    check_loss_function,
    check_loss_ignores_padding,
    check_modules_registered,
    check_order_matters,
    check_overfits_one_batch,
    check_padding_invariance,
    check_permutation_equivariance,
    check_returns_logits,
    check_tokens_communicate,
    check_tokens_stay_apart,
    check_train_equals_eval,
    check_training_step,
    cross_entropy,
    diagnose,
    gradient_norms,
    layer_gradient_norms,
    token_similarity,
    untouched,
)
from encoder_lib.encoder import Encoder, EncoderClassifier, TransformerEncoder
from encoder_lib.masks import keep_mask_from_lengths
from encoder_lib.plotting import plot_gradient_norms
from encoder_lib.text import Batch
from encoder_lib.training import evaluate, token_loss


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


# --- Looking -------------------------------------------------------------------------------------


def test_activation_rms_is_that_of_the_real_tokens_of_each_layer():
    model = Encoder(2, 8, 2, 16, 0.0)
    x, keep = torch.randn(2, 5, 8), keep_mask_from_lengths([5, 2])
    with torch.no_grad():
        one = model.layers[0](x, keep)
        two = model.layers[1](one, keep)
    wanted = [h[keep].square().mean().sqrt().item() for h in (one, two)]
    assert activation_rms(model, x, keep) == pytest.approx(wanted, rel=1e-5)


def test_activation_rms_leaves_no_hooks_behind():
    model = Encoder(2, 8, 2, 16, 0.0)
    with pytest.raises(ValueError, match="d_model"):
        activation_rms(model, torch.randn(2, 5, 7))
    assert not any(layer._forward_hooks for layer in model.layers)
    with pytest.raises(TypeError, match="model.*dict"):
        activation_rms({}, torch.randn(2, 5, 8))


def test_token_similarity_by_pencil():
    h = torch.tensor([[[1.0, 0], [0, 2], [3, 0], [-9, -9]], [[2.0, 2], [1, 1], [5, 5], [0, 1]],
                      [[1.0, 0], [0, 1], [1, 1], [1, 1]]])  # fmt: skip
    keep = keep_mask_from_lengths([3, 3, 1], 4)
    # text 0: cosines 0, 1, 0; text 1: all 1; text 2 has one token and is left out
    assert token_similarity(h, keep) == pytest.approx((1 / 3 + 1) / 2)
    assert math.isnan(token_similarity(h[2:], keep[2:]))
    with pytest.raises(ValueError, match="keep_mask"):
        token_similarity(h, keep[:2])


def test_attention_entropy_by_pencil():
    keep = keep_mask_from_lengths([4, 2, 1])
    even = keep[:, None, None, :] / keep.sum(1)[:, None, None, None]
    even = even.expand(3, 1, 4, 4)
    sure = torch.zeros(3, 1, 4, 4)
    sure[..., 0] = 1.0
    entropy = attention_entropy(torch.cat([even, sure], dim=1), keep)
    # even: four queries of ln 4, two of ln 2, one of ln 1; the last has no share
    wanted = (4 * math.log(4) + 2 * math.log(2)) / 7
    torch.testing.assert_close(entropy.nats, torch.tensor([wanted, 0.0]).double())
    torch.testing.assert_close(entropy.share, torch.tensor([1.0, 0.0]).double())


def test_attention_entropy_refuses_other_shapes():
    with pytest.raises(ValueError, match=r"\(B, H, L, L\), got \(2, 3, 3\)"):
        attention_entropy(torch.ones(2, 3, 3))
    with pytest.raises(ValueError, match="keep_mask"):
        attention_entropy(torch.ones(2, 1, 3, 3) / 3, torch.ones(2, 4).bool())


# --- Nothing is touched --------------------------------------------------------------------------


IDS = torch.tensor([[2, 3, 4, 5], [6, 7, 0, 0], [8, 2, 9, 0]])
KEEP = IDS != 0
BATCH = Batch(IDS, KEEP, torch.tensor([0, 1, 2]))


def classifier(positions="sinusoidal", dropout=0.0):
    body = TransformerEncoder(10, 16, 2, 32, 2, max_len=20, dropout=dropout, positions=positions)
    return EncoderClassifier(body, 3, dropout=dropout)


def used(model):
    """The model with gradients, a mixture of modes and a buffer that a forward call changes."""
    model.head = nn.Sequential(nn.BatchNorm1d(16), model.head)
    model.train().encoder.encoder.layers[0].eval()
    cross_entropy(model(IDS, KEEP), BATCH.labels).backward()
    return model


def state(model):
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "modes": [m.training for m in model.modules()],
        "hooks": [len(m._forward_hooks) for m in model.modules()],
        "random": torch.random.get_rng_state().tolist(),
        "values": {name: t.detach().tolist() for name, t in named.items()},
        "same": {name: id(t) for name, t in named.items()},
        "gradients": {name: id(p.grad) for name, p in model.named_parameters()},
        "gradient values": {name: p.grad.tolist() for name, p in model.named_parameters()
                            if p.grad is not None},
    }  # fmt: skip


def run_step(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(IDS, KEEP), BATCH.labels).backward()
        optimizer.step()

    check_training_step(step, model, optimizer)


def turn_off(model):
    torch.rand(3)
    model.eval()


def weights_of(model):
    return model.encoder(IDS, KEEP, return_weights=True)[1]


CHECKS = {
    "activation_rms": lambda m: activation_rms(m, IDS, KEEP),
    "modules_registered": check_modules_registered,
    "layers_independent": check_layers_independent,
    "padding_invariance": lambda m: check_padding_invariance(m, IDS, KEEP),
    "tokens_communicate": lambda m: check_tokens_communicate(m.encoder, IDS, KEEP),
    "fully_padded_row": lambda m: check_fully_padded_row(m, IDS, KEEP),
    "batch_independence": lambda m: check_batch_independence(m, IDS, KEEP),
    "permutation": lambda m: check_permutation_equivariance(m.encoder, IDS, KEEP),
    "order_matters": lambda m: check_order_matters(m, IDS, KEEP),
    "finite": lambda m: check_finite(m, IDS, KEEP),
    "eval_is_deterministic": lambda m: check_eval_is_deterministic(m, IDS, KEEP),
    "train_equals_eval": lambda m: check_train_equals_eval(m, IDS, KEEP),
    "inputs_unchanged": lambda m: check_inputs_unchanged(m, IDS, KEEP),
    "keeps_mode": lambda m: check_keeps_mode(turn_off, m),
    "tokens_stay_apart": lambda m: check_tokens_stay_apart(m.encoder, IDS, KEEP),
    "returns_logits": lambda m: check_returns_logits(m, IDS, KEEP),
    "initial_loss": lambda m: check_initial_loss(m, BATCH, 3),
    "gradients": lambda m: check_gradients_reach_all_parameters(m, BATCH),
    "training_step": run_step,
    "overfits_one_batch": lambda m: check_overfits_one_batch(m, BATCH, steps=3),
    "diagnose": lambda m: diagnose(m, BATCH, 3),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_leaves_everything_as_it_was_whether_it_passes_or_fails(name):
    model = used(classifier(dropout=0.3))
    before = state(model)
    with contextlib.suppress(AssertionError):
        CHECKS[name](model)
    assert state(model) == before


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_leaves_everything_as_it_was_when_the_model_breaks(name):
    model = used(classifier())
    before = state(model)

    def broken(module, args):
        torch.rand(1)
        module.train()
        raise KeyError("broken")

    hook = model.encoder.encoder.layers[1].register_forward_pre_hook(broken)
    with contextlib.suppress(KeyError, AssertionError):
        CHECKS[name](model)
    hook.remove()
    assert state(model) == before


def test_untouched_puts_back_what_was_replaced_and_does_not_hide_the_exception():
    model = used(classifier())
    before = state(model)
    with pytest.raises(KeyError, match="inside"), untouched(model, None, len):
        assert all(p.grad is None for p in model.parameters())
        for p in model.parameters():
            p.data.add_(1.0)
            p.grad = torch.ones_like(p)
        model.head[0].running_mean = torch.full((16,), torch.nan)
        model.head[0].eval()
        torch.rand(5)
        raise KeyError("inside")
    assert state(model) == before


def test_a_training_step_is_taken_back_with_optimizer_and_schedule():
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    before = optimizer.state_dict(), schedule.state_dict(), state(model)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(IDS, KEEP), BATCH.labels).backward()
        optimizer.step()
        schedule.step()

    check_training_step(step, model, optimizer, schedule)
    assert (optimizer.state_dict(), schedule.state_dict(), state(model)) == before


def test_layers_that_hide_in_a_list_get_no_gradients_from_the_checks():
    model = classifier()
    layers = list(model.encoder.encoder.layers)
    del model.encoder.encoder.layers
    model.encoder.encoder.layers = layers
    diagnose(model, BATCH, 3)
    assert all(p.grad is None for layer in layers for p in layer.parameters())


# --- What the checks say -------------------------------------------------------------------------


def test_padding_of_features_is_filled_with_numbers_that_are_noticed():
    encoder = Encoder(1, 8, 2, 16, 0.0)
    x = torch.randn(2, 4, 8)
    keep = keep_mask_from_lengths([4, 2])
    check_padding_invariance(encoder, x, keep)
    with pytest.raises(AssertionError, match="7 more columns"):
        check_padding_invariance(lambda x, keep: encoder(x), x, keep)
    with pytest.raises(AssertionError, match="7 more columns"):
        check_padding_invariance(lambda x, keep: x + x.sum(1, keepdim=True), x, keep)


def test_a_square_batch_is_tried_whatever_the_batch():
    sizes = []
    keep = keep_mask_from_lengths([5, 2, 4])
    check_batch_independence(lambda x, _: sizes.append(tuple(x.shape)) or x,
                             torch.randn(3, 5, 2), keep)  # fmt: skip
    assert sizes == [(1, 5, 2)] * 3 + [(5, 5, 2), (3, 5, 2)]


def test_nan_is_a_difference():
    with pytest.raises(AssertionError, match="by inf"):
        check_padding_invariance(lambda x, keep: x * torch.nan, torch.randn(2, 4, 8), KEEP[:2])


def test_a_function_that_edits_its_input_gets_a_copy():
    x, keep = torch.ones(2, 5, 3), KEEP.new_ones(2, 5)

    def edits(x, keep_mask):
        keep_mask.logical_not_()
        return x.mul_(2)

    check_permutation_equivariance(edits, x, keep)
    assert x.eq(1).all() and keep.all()


def test_permutation_needs_no_mask_and_no_module():
    check_permutation_equivariance(lambda x: x.square(), torch.randn(2, 5, 3))
    with pytest.raises(AssertionError, match="order"):
        check_permutation_equivariance(lambda x: x.cumsum(1), torch.randn(2, 5, 3))


def test_order_of_a_bag_of_words_does_not_matter():
    bag = nn.Embedding(10, 4)
    with pytest.raises(AssertionError, match="words 2 and 3 have changed places"):
        check_order_matters(lambda ids, keep: bag(ids).mean(1), IDS, KEEP)
    with pytest.raises(ValueError, match="two different tokens"):
        check_order_matters(lambda ids, keep: bag(ids), torch.full((1, 3), 4), KEEP[:1, :3])


def test_tokens_communicate_wants_tokens():
    with pytest.raises(ValueError, match=r"\(B, L, D\), got shape \(3, 3\)"):
        check_tokens_communicate(classifier(), IDS, KEEP)
    with pytest.raises(ValueError, match="two different tokens"):
        check_tokens_communicate(classifier().encoder, KEEP.long(), KEEP)


def test_frozen_models_can_be_checked():
    model = classifier().requires_grad_(False)
    check_fully_padded_row(model, IDS, KEEP)
    model.head.requires_grad_(True)
    check_fully_padded_row(model, IDS, KEEP)
    check_gradients_reach_all_parameters(model, BATCH)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0]], None),
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], "100% .*the mask is inverted"),
        ([[0.4, 0.4, 0.2], [0.3, 0.4, 0.3], [1.0, 0.0, 0.0]], "25% .*missing, too weak"),
        ([[0.5, 0.9, 0.0], [0.5, 0.1, 0.0], [0.0, 0.0, 0.0]], "not shares.*changes the weights"),
        ([[0.5, 1.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]], "over the queries"),
        ([[1.5, -0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], "not shares"),
    ],
)
def test_attention_weights(weights, message):
    keep = torch.tensor([[True, True, False]])
    expected = contextlib.nullcontext()
    if message is not None:
        expected = pytest.raises(AssertionError, match=message)
    with expected:
        check_attention_weights([torch.tensor([[weights]])], keep)


def test_attention_spread():
    keep = keep_mask_from_lengths([3], 4)
    even = torch.full((1, 1, 4, 4), 0.25)
    with pytest.raises(AssertionError, match="more keys than are real"):
        check_attention_spread(even, keep)
    with pytest.raises(AssertionError, match="flat"):
        check_attention_spread(even)
    with pytest.raises(AssertionError, match="0% .*decided"):
        check_attention_spread([torch.eye(4).expand(1, 1, 4, 4)])
    check_attention_spread(torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(1, 1, 4, 4))


def test_tied_weights_may_be_named():
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    check_layers_independent(model)
    model.b.weight = model.a.weight
    with pytest.raises(AssertionError, match="a.weight and b.weight are one and the same"):
        check_layers_independent(model)
    check_layers_independent(model, tied=["b.weight"])


def test_copies_are_found_and_equal_norms_are_not():
    one = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(AssertionError, match="start with equal values.*deep copies"):
        check_layers_independent(nn.TransformerEncoder(one, 2, enable_nested_tensor=False))
    check_layers_independent(Encoder(3, 8, 2, 16))


@pytest.mark.parametrize("kind", [list, tuple, lambda parts: dict(enumerate(parts))])
def test_modules_in_plain_containers_are_found_and_data_is_not(kind):
    model = nn.Module()
    model.sizes = [1, 2]
    model.inner = nn.Module()
    check_modules_registered(model)
    model.inner.parts = kind([nn.Linear(1, 1)])
    with pytest.raises(AssertionError, match="'inner.parts'"):
        check_modules_registered(model)


def test_f09_losses_with_known_faults():
    check_loss_function(F.cross_entropy, 8)
    check_loss_function(cross_entropy, 2)
    with pytest.raises(AssertionError, match="equal logits cost 0.260, not ln 8 = 2.079"):
        check_loss_function(lambda x, y: F.cross_entropy(x, y) / 8, 8)
    with pytest.raises(AssertionError, match="not finite"):
        check_loss_function(lambda x, y: F.nll_loss(x.softmax(-1).log(), y))


def test_f06_token_losses():
    check_loss_ignores_padding(cross_entropy)
    check_loss_ignores_padding(token_loss)
    with pytest.raises(AssertionError, match="padding behind the labels"):
        check_loss_ignores_padding(
            lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="sum") / y.numel())


def test_initial_loss_has_two_sides():
    def model(scale):
        return lambda ids, keep: scale * F.one_hot(BATCH.labels, 3).float()

    check_initial_loss(model(0.0), BATCH, 3)
    for scale, start in ((5.0, "0.01"), (-5.0, "5.70")):
        with pytest.raises(AssertionError, match=f"starts at {start}, but ln 3 is 1.10"):
            check_initial_loss(model(scale), BATCH, 3)


def test_gradients_that_are_none_nan_or_zero():
    class Head(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f, self.used, self.other = f, nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, ids, keep):
            x = F.one_hot(ids % 4, 4).float().mean(1)
            return self.used(x) + self.f(self.other(x))

    check_gradients_reach_all_parameters(Head(lambda y: y), BATCH)
    for f, message in ((torch.detach, "no gradient reaches other.weight, other.bias. "),
                       (lambda y: y * torch.nan, "not finite"),
                       (lambda y: y * 0.0, "gradient of other.weight is zero")):  # fmt: skip
        with pytest.raises(AssertionError, match=message):
            check_gradients_reach_all_parameters(Head(f), BATCH)
    frozen = Head(torch.detach)
    frozen.other.requires_grad_(False)
    check_gradients_reach_all_parameters(frozen, BATCH)


def test_a_rate_of_zero_is_named():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step():
        cross_entropy(model(IDS, KEEP), BATCH.labels).backward()
        optimizer.step()

    with pytest.raises(AssertionError, match="the learning rate is 0"):
        check_training_step(step, model, optimizer)


def test_f10_a_right_model_learns_a_batch_and_one_without_gradient_does_not():
    check_overfits_one_batch(classifier(), BATCH, steps=60)
    model = classifier()
    model.encoder.register_forward_hook(lambda m, args, out: torch.zeros_like(out))
    with pytest.raises(AssertionError, match="after 20 steps on one batch the loss is 1"):
        check_overfits_one_batch(model, BATCH, steps=20)
    with pytest.raises(AssertionError, match="the loss is nan at step 0"):
        check_overfits_one_batch(classifier(), BATCH, loss=lambda x, y: x.sum() * torch.nan)


def test_f11_a_careful_evaluation_passes_and_a_careless_one_does_not():
    model = classifier()
    check_keeps_mode(lambda m: evaluate(m, [BATCH]), model)
    with pytest.raises(AssertionError, match="came in training mode and left in evaluation"):
        check_keeps_mode(nn.Module.eval, model)
    with pytest.raises(AssertionError, match="came in evaluation mode and left in training"):
        check_keeps_mode(nn.Module.train, model)


def test_inputs_are_compared_and_given_back():
    x = torch.ones(1, 2, 3)
    with pytest.raises(AssertionError, match="its own input"):
        check_inputs_unchanged(lambda x: x.mul_(2), x)
    assert x.eq(1).all()
    keep = torch.ones(1, 2).bool()
    with pytest.raises(AssertionError, match="its own input"):
        check_inputs_unchanged(lambda x, keep: keep.logical_not_(), x, keep)
    assert keep.all()
    check_inputs_unchanged(lambda x: x * 2, x)


def test_the_first_part_with_nan_is_named():
    model = classifier()
    with torch.no_grad():
        model.encoder.encoder.layers[1].feed_forward.w_1.bias[0] = torch.inf
    with pytest.raises(AssertionError, match="^encoder.encoder.layers.1.feed_forward.w_1 is"):
        check_finite(model, IDS, KEEP)


def test_diagnose_reports_other_errors_and_goes_on():
    model = classifier()
    model.head = nn.Linear(5, 3)
    found = diagnose(model, BATCH, 3)
    assert found["returns_logits"].startswith("RuntimeError: ")
    assert found["layers_independent"] is None and found["tokens_communicate"] is None
    with pytest.raises(ValueError, match="Linear holds no TransformerEncoder"):
        diagnose(nn.Linear(1, 1), BATCH, 3)
