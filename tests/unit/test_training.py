"""Training: exact schedules, losses over what is real, runs that stop, resume and repeat."""

import math
import os
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib import text
from encoder_lib.encoder import (
    EncoderClassifier,
    TokenClassifier,
    TransformerEncoder,
    masked_mean,
)
from encoder_lib.training import (
    LinearSchedule,
    WarmupSchedule,
    classification_loss,
    clip_gradients,
    evaluate,
    in_mode,
    linear_rate,
    load_checkpoint,
    noam_rate,
    save_checkpoint,
    set_seed,
    split_batch,
    stratified_split,
    token_loss,
    train,
    train_step,
)

IDS = [[2 + (3 * i + 5 * j) % 7 for j in range(2 + i % 4)] for i in range(24)]
LABELS = [i % 3 for i in range(24)]


def small_model(dropout=0.3, n_layers=1):
    encoder = TransformerEncoder(10, 8, 2, 16, n_layers, dropout=dropout)
    return EncoderClassifier(encoder, 3, dropout=dropout)


def shuffled(epoch):
    return text.batches(IDS, LABELS, 5, shuffle=True, seed=epoch)  # 5 batches an epoch


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr)


def one_weight(value=0.0):
    """A model with logits (x w, 0): one number to follow by pencil."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
        model.weight[0] = value
    return model


class Constant(nn.Module):
    """Logits that do not depend on the input: always the same class."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, ids, keep_mask=None):
        return self.logits.expand(len(ids), -1)


class Told(nn.Module):
    """The input is the answer: ids are the logits."""

    def forward(self, logits, keep_mask=None):
        return logits


# --- Schedules ------------------------------------------------------------------------------


def test_f01_the_noam_schedule_is_exact():
    assert noam_rate(1, 512, 4000) == pytest.approx(1.7469281e-7, rel=1e-7)
    assert noam_rate(4000, 512, 4000) == pytest.approx(6.98771e-4, rel=1e-6)
    assert noam_rate(4000, 512, 4000) == pytest.approx((512 * 4000) ** -0.5, rel=1e-12)
    rates = [noam_rate(step, 512, 4000) for step in range(1, 8001)]
    assert rates.index(max(rates)) + 1 == 4000 and rates.count(max(rates)) == 1
    assert noam_rate(16000, 512, 4000) == pytest.approx(rates[3999] / 2, rel=1e-12)
    assert noam_rate(2000, 512, 4000) == pytest.approx(rates[3999] / 2, rel=1e-12)
    assert noam_rate(4000, 256, 4000) == pytest.approx(9.882118e-4, rel=1e-6)
    assert noam_rate(100, 64, 100) == pytest.approx(0.0125, rel=1e-12)
    assert noam_rate(1, 64, 1) == 0.125


@pytest.mark.parametrize("step", [0, -1])
def test_f01_there_is_no_step_before_the_first(step):
    with pytest.raises(ValueError, match=f"step counts from 1, the first update; got {step}"):
        noam_rate(step, 512, 4000)
    with pytest.raises(ValueError, match="step counts from 1"):
        linear_rate(step, 1e-3, 10, 100)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((1, 0, 5), ValueError, "d_model must be at least 1, got 0"),
        ((1, 5, 0), ValueError, "warmup must be at least 1, got 0"),
        ((1, 5, -3), ValueError, "warmup"),
        ((1.5, 5, 5), TypeError, "step must be a whole number"),
        ((True, 5, 5), TypeError, "step"),
        ((1, 5, 4e3), TypeError, "warmup"),
    ],
)
def test_noam_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        noam_rate(*arguments)


def test_the_linear_schedule_by_pencil():
    rates = [linear_rate(step, 1.0, 4, 9) for step in range(1, 13)]
    assert rates == pytest.approx([1/4, 2/4, 3/4, 1, 5/6, 4/6, 3/6, 2/6, 1/6, 0, 0, 0])  # fmt: skip
    assert rates[3] == 1.0 and rates[8] > 0 and rates[9:] == [0, 0, 0]
    no_warmup = [linear_rate(step, 1.0, 0, 4) for step in range(1, 6)]
    assert no_warmup == [linear_rate(step, 1.0, 1, 4) for step in range(1, 6)]
    assert no_warmup == [1, 0.75, 0.5, 0.25, 0]
    assert [linear_rate(step, 2.0, 2, 2) for step in (1, 2, 3)] == [1, 2, 0]


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((1, 1.0, 11, 10), ValueError, "warmup must lie in 0 to total=10, got 11"),
        ((1, 1.0, -1, 10), ValueError, "warmup"),
        ((1, 1.0, 0, 0), ValueError, "total must be at least 1"),
        ((1, 0.0, 1, 10), ValueError, "peak must be positive and finite, got 0"),
        ((1, math.nan, 1, 10), ValueError, "peak"),
        ((1, math.inf, 1, 10), ValueError, "peak"),
        ((1, 1.0, 0.1, 10), TypeError, "warmup"),
    ],
)
def test_linear_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        linear_rate(*arguments)


@pytest.mark.parametrize(
    "make, rate_at",
    [
        (lambda o: WarmupSchedule(o, 512, 4000), lambda step: noam_rate(step, 512, 4000)),
        (lambda o: LinearSchedule(o, 1e-3, 2, 6), lambda step: linear_rate(step, 1e-3, 2, 6)),
    ],
)
def test_a_schedule_uses_each_rate_once_beginning_with_the_first(make, rate_at):
    model = nn.Linear(1, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 7.0}]
    optimizer = torch.optim.SGD(groups, lr=5.0)
    schedule, used = make(optimizer), []
    for _ in range(8):
        assert [group["lr"] for group in optimizer.param_groups] == [schedule.rate] * 2
        used.append(schedule.rate)
        optimizer.step()
        schedule.step()
    assert used == [rate_at(step) for step in range(1, 9)]


def test_f04_the_wrong_order_warns_once_and_skips_the_first_rate():
    optimizer = sgd(nn.Linear(1, 1))
    schedule, used = WarmupSchedule(optimizer, 512, 4000), []
    with pytest.warns(UserWarning, match="before the first optimizer.step") as caught:
        for _ in range(3):
            schedule.step()
            used.append(schedule.rate)
            optimizer.step()
    assert len(caught) == 1 and caught[0].filename == __file__
    assert used == pytest.approx([3.4938562e-7, 5.2407843e-7, 6.9877124e-7], rel=1e-7)


def test_f04_a_schedule_that_runs_ahead_warns_once_only():
    schedule = WarmupSchedule(sgd(nn.Linear(1, 1)), 512, 4000)
    with pytest.warns(UserWarning, match="rate of step 1 is never used") as caught:
        schedule.step()
        schedule.step()
    assert len(caught) == 1 and schedule.rate == noam_rate(3, 512, 4000)


def test_f04_the_right_order_and_the_loop_do_not_warn():
    model = small_model()
    optimizer = sgd(model)
    schedule = WarmupSchedule(optimizer, 8, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = train(model, shuffled, optimizer, schedule=schedule, epochs=2)
    assert history["rate"] == [noam_rate(step, 8, 3) for step in range(1, 11)]
    assert schedule.rate == noam_rate(11, 8, 3)


def test_a_schedule_goes_back_to_where_its_state_was():
    optimizer = sgd(nn.Linear(1, 1))
    schedule = WarmupSchedule(optimizer, 16, 3)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    state = schedule.state_dict()
    assert state == {"step_number": 5, "d_model": 16, "warmup": 3}
    other = sgd(nn.Linear(1, 1))
    fresh = WarmupSchedule(other, 16, 3)
    fresh.load_state_dict(state)
    assert fresh.rate == other.param_groups[0]["lr"] == noam_rate(5, 16, 3)
    assert state["step_number"] == 5
    with pytest.raises(ValueError, match="'warmup': 3}, not .*'warmup': 4"):
        WarmupSchedule(other, 16, 4).load_state_dict(state)
    with pytest.raises(ValueError, match="schedule"):
        LinearSchedule(other, 1.0, 3, 4).load_state_dict(state)


def test_a_schedule_needs_an_optimizer_and_right_settings():
    with pytest.raises(TypeError, match="must be a torch.optim.Optimizer, got Linear"):
        WarmupSchedule(nn.Linear(1, 1), 8, 3)
    with pytest.raises(ValueError, match="warmup"):
        WarmupSchedule(sgd(nn.Linear(1, 1)), 8, 0)
    with pytest.raises(ValueError, match="total"):
        LinearSchedule(sgd(nn.Linear(1, 1)), 1.0, 5, 4)


# --- Chance ---------------------------------------------------------------------------------


def test_f14_a_seed_starts_every_generator():
    import numpy

    drawn = []
    for _ in range(2):
        assert set_seed(123) is None
        drawn.append((random.random(), torch.rand(2).tolist(), numpy.random.rand(2).tolist()))
    assert drawn[0] == drawn[1]
    set_seed(124)
    other = (random.random(), torch.rand(2).tolist(), numpy.random.rand(2).tolist())
    assert all(a != b for a, b in zip(drawn[0], other, strict=True))


def test_f14_dropout_repeats_on_one_machine_with_one_thread_or_two():
    drawn = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        set_seed(123)
        drawn.append(nn.Dropout(0.5)(torch.ones(6, 6)))
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
    assert set(drawn[0].flatten().tolist()) == {0.0, 2.0}
    if sys.platform == "linux":  # other systems draw other masks
        assert drawn[0][0].tolist() == [2, 2, 0, 2, 2, 0]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed must lie in 0 to .* got {seed}"):
        set_seed(seed)
    with pytest.raises(TypeError, match="seed"):
        set_seed(1.0)


@pytest.mark.parametrize("labels", [[0] * 95 + [1] * 5, [0] * 50 + [1] * 50])
def test_f13_a_split_has_every_class_in_both_parts(labels):
    train_part, test_part = stratified_split(labels, 0.2, seed=0)
    assert sorted(train_part + test_part) == list(range(100))
    assert {labels[i] for i in train_part} == {labels[i] for i in test_part} == {0, 1}
    assert sum(labels[i] for i in test_part) == round(0.2 * sum(labels))
    assert set(([0] * 50 + [1] * 50)[80:]) == {1}  # what a contiguous split would test on
    for part in (train_part, test_part):  # shuffled, not class after class
        drawn = [labels[i] for i in part]
        assert drawn not in (sorted(drawn), sorted(drawn, reverse=True))


def test_a_split_repeats_with_its_seed_and_leaves_other_generators_alone():
    before = torch.get_rng_state()
    split = stratified_split(torch.tensor(LABELS), 0.25, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert split == stratified_split(LABELS, 0.25, seed=3)
    assert split != stratified_split(LABELS, 0.25, seed=4)
    assert [len(part) for part in split] == [18, 6]
    tiny = stratified_split(["a", "a", "b", "b"], 0.01)
    assert [len(part) for part in tiny] == [2, 2]  # at least one of each class
    assert [len(part) for part in stratified_split([0, 0, 1, 1], 0.99)] == [2, 2]


@pytest.mark.parametrize(
    "labels, fraction, error, words",
    [
        ([0, 0, 1], 0.5, ValueError, "class 1 has one example"),
        ([0, 0], 0.0, ValueError, "test_fraction must lie between 0 and 1, got 0"),
        ([0, 0], 1.0, ValueError, "test_fraction"),
        ([0, 0], math.nan, ValueError, "test_fraction"),
        ([], 0.5, ValueError, "labels is empty"),
        ([[0], [1]], 0.5, TypeError, "a label must be an int or a str"),
        ([0.5, 0.5], 0.5, TypeError, "a label"),
    ],
)
def test_a_split_refuses(labels, fraction, error, words):
    with pytest.raises(error, match=words):
        stratified_split(labels, fraction)


# --- Losses ---------------------------------------------------------------------------------


def test_losses_by_pencil():
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])      # probabilities 3/4, 1/2
    wanted = (math.log(4 / 3) + math.log(2)) / 2
    assert classification_loss(logits, torch.tensor([0, 1])).item() == pytest.approx(wanted)
    assert classification_loss(logits, torch.tensor([0, -100])).item() == pytest.approx(
        math.log(4 / 3)
    )
    tokens, labels = logits[None], torch.tensor([[0, 1]])          # (1, 2, 2), (1, 2)
    assert token_loss(tokens, labels).item() == pytest.approx(wanted)
    keep = torch.tensor([[False, True]])
    assert token_loss(tokens, labels, keep).item() == pytest.approx(math.log(2))
    assert token_loss(tokens, labels, keep.int()).item() == pytest.approx(math.log(2))
    assert token_loss(tokens, labels, ignore_index=1).item() == pytest.approx(math.log(4 / 3))
    assert labels.tolist() == [[0, 1]]


@pytest.mark.parametrize("garbage", [1.0, math.inf, math.nan])
def test_f05_a_loss_over_nothing_is_zero_with_zero_gradients(garbage):
    logits = torch.full((4, 3), garbage, requires_grad=True)
    loss = classification_loss(logits, torch.full((4,), -100))
    loss.backward()
    assert loss.item() == 0.0 and torch.equal(logits.grad, torch.zeros(4, 3))
    logits = torch.full((2, 4, 3), garbage, requires_grad=True)
    keep = torch.zeros(2, 4, dtype=torch.bool)
    loss = token_loss(logits, torch.ones(2, 4, dtype=torch.long), keep)
    loss.backward()
    assert loss.item() == 0.0 and torch.equal(logits.grad, torch.zeros(2, 4, 3))
    assert classification_loss(torch.ones(0, 3), torch.ones(0, dtype=torch.long)).item() == 0.0


def test_f05_torch_itself_gives_nan():
    assert F.cross_entropy(torch.zeros(4, 3), torch.full((4,), -100)).isnan()


def test_f06_the_token_loss_is_that_of_the_real_tokens():
    logits = torch.randn(2, 10, 4, requires_grad=True)
    labels, keep = torch.randint(4, (2, 10)), torch.arange(10) < torch.tensor([[3], [10]])
    loss = token_loss(logits, labels, keep)
    assert loss.item() == pytest.approx(F.cross_entropy(logits[keep], labels[keep]).item())
    assert loss.item() != pytest.approx(token_loss(logits, labels).item())
    loss.backward()
    assert not logits.grad[~keep].any() and logits.grad[keep].all()


def test_f06_accuracy_counts_each_real_token_once():
    logits, keep = torch.zeros(3, 10, 2), torch.ones(3, 10, dtype=torch.bool)
    logits[..., 0] = 1.0                                           # always class 0
    keep[0, 1:] = False                                            # 1 real token and 9 pads
    keep[2] = False                                                # nothing real
    labels = torch.tensor([0, 1, 0])[:, None].expand(3, 10)
    rows = [(logits[i : i + 1], keep[i : i + 1], labels[i : i + 1]) for i in range(3)]
    metrics = evaluate(Told(), rows, token_loss)
    assert metrics["accuracy"] == 1 / 11 and metrics["count"] == 11
    right, wrong = math.log(1 + math.e**-1), math.log(1 + math.e)
    assert metrics["loss"] == pytest.approx((right + 10 * wrong) / 11, rel=1e-6)
    assert evaluate(Told(), rows[:2], token_loss) == metrics       # the pads changed nothing
    assert evaluate(Told(), [(logits, keep, labels)], token_loss) == pytest.approx(metrics)
    marked = labels.masked_fill(~keep, -100)
    assert evaluate(Told(), [(logits, marked)], token_loss) == pytest.approx(metrics)


def test_f07_padding_never_reaches_a_mean_a_metric_or_a_gradient():
    h, keep = torch.tensor([[[1.0, 0], [1, 0], [0, 2], [0, 2]]]), torch.tensor([[1, 1, 0, 0]])
    assert masked_mean(h, keep).tolist() == [[1, 0]] and h.mean(dim=1).tolist() == [[0.5, 1]]
    model, seen = small_model(dropout=0.0), []
    for length in (5, 12):
        ids = text.pad_batch(IDS[:6], length=length)
        batch = (ids, ids != 0, torch.tensor(LABELS[:6]))
        optimizer = sgd(model, lr=0.0)
        seen.append([*train_step(model, batch, optimizer), evaluate(model, [batch])["loss"]])
    assert seen[0] == pytest.approx(seen[1], abs=1e-6)


def test_f09_the_loss_takes_logits_and_starts_at_ln_c():
    told = torch.tensor([[1.0, 0.0]])                              # probabilities as logits
    assert classification_loss(told, torch.tensor([0])).item() == pytest.approx(0.3133, abs=5e-5)
    zeros = torch.zeros(5, 8)
    assert classification_loss(zeros, torch.arange(5)).item() == pytest.approx(math.log(8))
    batch = (torch.randint(1, 20, (128, 10)), torch.randint(4, (128,)))
    losses = []
    for seed in range(8):  # the Xavier head starts a little above ln C, and single seeds vary
        torch.manual_seed(seed)
        encoder = TransformerEncoder(20, 64, 4, 64, 1)
        losses.append(evaluate(EncoderClassifier(encoder, 4), [batch])["loss"])
    assert sum(losses) / 8 == pytest.approx(math.log(4), abs=0.35) and min(losses) > 1.2
    logits = small_model().eval()(text.pad_batch(IDS))
    assert not torch.allclose(logits.sum(dim=-1), torch.ones(24))  # no softmax in the model


def test_half_precision_logits_do_not_overflow_the_sum():
    logits = torch.zeros(40_000, 8, dtype=torch.float16)
    loss = classification_loss(logits, torch.zeros(40_000, dtype=torch.int32))
    assert loss.item() == pytest.approx(math.log(8), rel=1e-4)


@pytest.mark.parametrize(
    "loss, logits, labels, error, words",
    [
        (classification_loss, (2, 3, 4), [[0, 0, 0]] * 2, ValueError, "use token_loss"),
        (token_loss, (2, 4), [0, 0], ValueError, "use classification_loss"),
        (classification_loss, (2, 4), [0, 0, 0], ValueError, r"\(2, 4\) and labels .*\(3,\)"),
        (classification_loss, (2, 4), [[0], [0]], ValueError, "do not belong together"),
        (classification_loss, (2, 4), [0, 4], ValueError, "labels must lie in 0 to 3, got 0 to 4"),
        (classification_loss, (2, 4), [-1, 0], ValueError, "labels must lie in 0 to 3"),
        (classification_loss, (2, 4), [0.0, 1.0], TypeError, "labels must be integers"),
        (classification_loss, (2, 4), [True, False], TypeError, "got torch.bool"),
    ],
)
def test_losses_refuse(loss, logits, labels, error, words):
    with pytest.raises(error, match=words):
        loss(torch.zeros(logits), torch.tensor(labels))


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(2, 3\)"):
        token_loss(torch.zeros(2, 3, 5), torch.zeros(2, 3).long(), torch.ones(2, 4).bool())
    with pytest.raises(TypeError, match="bool"):
        token_loss(torch.zeros(2, 3, 5), torch.zeros(2, 3).long(), torch.ones(2, 3))


# --- Batches and evaluation -----------------------------------------------------------------


def test_a_batch_is_split_into_inputs_and_labels():
    ids, keep = torch.tensor([[5, 0]]), torch.tensor([[True, False]])
    inputs, labels = split_batch((ids, torch.tensor([1])))
    assert len(inputs) == 1 and inputs[0] is ids and labels.tolist() == [1]
    inputs, labels = split_batch(text.Batch(ids, keep, torch.tensor([1])))
    assert len(inputs) == 2 and inputs[1] is keep and labels.tolist() == [1]
    tags = torch.tensor([[3, 3]])
    inputs, labels = split_batch((ids, keep, tags))
    assert labels.tolist() == [[3, -100]] and tags.tolist() == [[3, 3]]
    inputs, labels = split_batch((ids, None, tags))
    assert inputs[1] is None and labels.tolist() == [[3, 3]]


@pytest.mark.parametrize(
    "batch, error, words",
    [
        ({"ids": 1, "labels": 2}, TypeError, "got dict of 2"),
        (torch.ones(2, 3), TypeError, "got Tensor of 2"),
        ((torch.ones(1),), TypeError, "got tuple of 1"),
        (7, TypeError, "got 7"),
        ((torch.ones(1, 1), [0]), TypeError, "must hold tensors, got list"),
        (text.Batch(torch.ones(1, 1), torch.ones(1, 1), None), ValueError, "no labels"),
    ],
)
def test_other_batches_are_refused(batch, error, words):
    with pytest.raises(error, match=words):
        split_batch(batch)


def test_metrics_are_weighted_by_example_not_by_batch():
    model = Constant(1.0, 0.0)
    labels = torch.tensor([0, 1, 1, 1, 1])
    ids = torch.ones(5, 2, dtype=torch.long)
    whole = evaluate(model, [(ids, labels)])
    parts = evaluate(model, [(ids[:1], labels[:1]), (ids[1:], labels[1:])])
    assert whole == pytest.approx(parts)
    assert parts["accuracy"] == 0.2 and parts["count"] == 5
    assert parts["loss"] == pytest.approx((0.3132617 + 4 * 1.3132617) / 5, rel=1e-6)


def test_f13_a_dead_model_is_found_out_by_balanced_accuracy():
    labels = torch.tensor([0] * 95 + [1] * 5)
    metrics = evaluate(Constant(1.0, 0.0, 0.0), [(torch.ones(100, 1), labels)])
    assert metrics["accuracy"] == 0.95 and metrics["balanced_accuracy"] == 0.5


def test_metrics_over_nothing_are_zero():
    nothing = {"loss": 0.0, "accuracy": 0.0, "balanced_accuracy": 0.0, "count": 0}
    assert evaluate(Constant(1.0, 0.0), []) == nothing
    ignored = (torch.ones(2, 1), torch.tensor([-100, -100]))
    assert evaluate(Constant(1.0, 0.0), [ignored], F.cross_entropy) == nothing  # torch: NaN


class Faulty(nn.Module):
    def forward(self, ids):
        raise RuntimeError("broken")


@pytest.mark.parametrize("mode", [True, False])
def test_f11_evaluate_restores_the_mode_of_each_module(mode):
    model = small_model().train(mode)
    model.encoder.embedding.train(not mode)                        # a part of its own mind
    modes = [module.training for module in model.modules()]
    seen = []
    model.head.register_forward_hook(lambda *_: seen.extend(m.training for m in model.modules()))
    evaluate(model, shuffled(1))
    assert seen and not any(seen)
    assert [module.training for module in model.modules()] == modes
    broken = Faulty().train(mode)
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(broken, [GOOD])
    assert broken.training is mode


def test_evaluate_changes_nothing_and_repeats():
    model = small_model()
    before, state = weights_of(model), torch.get_rng_state()
    assert evaluate(model, shuffled(1)) == evaluate(model, shuffled(1))
    assert equal(before, weights_of(model)) and torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluate_builds_no_graph():
    seen = []

    def loss(logits, labels):
        seen.append(logits.requires_grad)
        return classification_loss(logits, labels)

    evaluate(small_model(), shuffled(1), loss)
    assert seen == [False] * 5


def test_in_mode_restores():
    model = nn.Sequential(nn.Dropout(), nn.Linear(1, 1).eval())
    with in_mode(model, training=False) as same:
        assert same is model and not any(m.training for m in model.modules())
    assert [m.training for m in model.modules()] == [True, True, False]


# --- Steps ----------------------------------------------------------------------------------


def with_gradients(*rows):
    model = nn.Linear(2, len(rows), bias=True)
    model.weight.grad = torch.tensor(rows)
    model.bias.grad = torch.zeros(len(rows))
    return model


def test_clipping_tells_the_norm_before_it():
    model = with_gradients([3.0, 0.0], [0.0, 4.0])
    assert clip_gradients(model, 1.0) == 5.0
    assert model.weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)
    assert model.weight.grad[0, 0].item() == pytest.approx(0.6, rel=1e-5)
    model = with_gradients([3.0, 0.0], [0.0, 4.0])
    assert clip_gradients(model, 6.0) == 5.0 and model.weight.grad.norm() == 5.0
    assert clip_gradients(model, None) == 5.0 and model.weight.grad.norm() == 5.0
    assert clip_gradients(nn.Linear(1, 1)) == 0.0                  # no gradients at all


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_b51_clipping_cannot_repair_and_does_not_try(bad):
    model = with_gradients([1.0, bad], [0.0, 2.0])
    model.bias.grad[1] = math.nan
    with pytest.raises(FloatingPointError, match="the gradient of weight is not finite"):
        clip_gradients(model)
    assert model.weight.grad[1].tolist() == [0, 2] and model.weight.grad[0, 0] == 1
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)        # torch alone
    assert model.weight.grad[1, 1].isnan()


def test_gradients_that_overflow_together_are_an_error_too():
    model = with_gradients([3e38, 3e38], [3e38, 3e38])
    with pytest.raises(FloatingPointError, match="non-finite"):
        clip_gradients(model)


def test_a_step_by_pencil():
    model = one_weight()
    batch = (torch.tensor([[2.0]]), torch.tensor([0]))
    loss, norm = train_step(model, batch, sgd(model, lr=1.0), clip=None)
    # p = 1/2; d loss / d w = (p - 1) x = -1 and +1, d loss / d b = -1/2 and +1/2
    assert loss == pytest.approx(math.log(2)) and norm == pytest.approx(2.5**0.5)
    assert model.weight.flatten().tolist() == [1, -1] and model.bias.tolist() == [0.5, -0.5]
    model = one_weight()
    assert train_step(model, batch, sgd(model, lr=1.0), clip=0.5)[1] == pytest.approx(2.5**0.5)
    assert model.weight[0].item() == pytest.approx(0.5 / 2.5**0.5, rel=1e-4)


def test_gradients_do_not_add_up_over_steps():
    model, batch = one_weight(), (torch.tensor([[2.0]]), torch.tensor([0]))
    norms = [train_step(model, batch, sgd(model, lr=0.0))[1] for _ in range(3)]
    assert norms == pytest.approx([2.5**0.5] * 3)


GOOD = (torch.tensor([[1.0]]), torch.tensor([0]))
BAD = (torch.tensor([[math.nan]]), torch.tensor([0]))


def test_a_step_with_nan_leaves_the_weights_and_names_step_and_parameter():
    model = one_weight()
    optimizer = sgd(model)
    train(model, [GOOD, GOOD], optimizer)
    before = weights_of(model)
    with pytest.raises(FloatingPointError, match=r"step 1: the gradient of weight .*loss is nan"):
        train(model, [BAD, GOOD], optimizer)
    assert equal(before, weights_of(model)) and model.training
    with pytest.raises(FloatingPointError, match="step 3: the gradient of weight"):
        train(model, [GOOD, GOOD, BAD], optimizer)


def test_a_nan_loss_with_finite_gradients_stops_too():
    model, before = one_weight(), weights_of(one_weight())
    with pytest.raises(FloatingPointError, match="step 1: the loss is nan"):
        train(model, [GOOD], sgd(model), loss=lambda x, y: classification_loss(x, y) + math.nan)
    assert equal(before, weights_of(model))


def test_skipping_leaves_out_the_update_and_its_rate():
    model = one_weight()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = WarmupSchedule(optimizer, 8, 3)
    history = train(model, [GOOD, BAD, GOOD], optimizer, schedule=schedule, nonfinite="skip")
    assert history["skipped"] == [2] and history["step"] == [1, 2, 3]
    assert math.isnan(history["loss"][1]) and math.isnan(history["gradient_norm"][1])
    assert history["rate"] == [noam_rate(step, 8, 3) for step in (1, 2, 2)]
    other = one_weight()
    optimizer = torch.optim.Adam(other.parameters())
    schedule = WarmupSchedule(optimizer, 8, 3)
    train(other, [GOOD, GOOD], optimizer, schedule=schedule)
    assert equal(weights_of(model), weights_of(other))


# --- Runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_f10_one_batch_can_be_learned_by_heart(norm):
    encoder = TransformerEncoder(20, 32, 4, 64, 2, dropout=0.0, norm=norm)
    model = EncoderClassifier(encoder, 4, dropout=0.0)
    batch = (torch.randint(1, 20, (32, 10)), torch.randint(4, (32,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    history = train(model, [batch], optimizer, steps=120)
    assert 1.2 < history["loss"][0] < 3                            # about ln 4 = 1.39 or above
    metrics = evaluate(model, [batch])
    assert metrics["loss"] < 0.05 and metrics["accuracy"] == 1.0


def test_tokens_are_learned_with_the_token_loss():
    model = TokenClassifier(TransformerEncoder(10, 16, 2, 32, 1, dropout=0.0), 2)
    ids = text.pad_batch(IDS)
    batch = (ids, ids != 0, ids % 2)                               # is the id odd?
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train(model, [batch], optimizer, steps=40, loss=token_loss)
    metrics = evaluate(model, [batch], token_loss)
    assert metrics["accuracy"] == 1.0 and metrics["count"] == sum(map(len, IDS))


def test_a_history_is_plain_and_whole():
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    history = train(model, shuffled, optimizer, epochs=2, validation=shuffled(0))
    assert list(history) == ["step", "loss", "rate", "gradient_norm", "skipped", "validation"]
    assert history["step"] == list(range(1, 11)) and history["rate"] == [0.01] * 10
    for name in ("loss", "gradient_norm"):
        assert len(history[name]) == 10
        assert all(type(value) is float and value > 0 for value in history[name])
    assert history["skipped"] == []
    assert [(v["step"], v["epoch"], v["count"]) for v in history["validation"]] == [
        (5, 1, 24), (10, 2, 24),
    ]  # fmt: skip
    last = {name: history["validation"][-1][name] for name in ("loss", "accuracy")}
    assert last.items() <= evaluate(model, shuffled(0)).items()


def test_each_epoch_gets_its_number_and_steps_may_end_inside_one():
    asked = []

    def source(epoch):
        asked.append(epoch)
        return shuffled(epoch)

    model = small_model()
    history = train(model, source, sgd(model), steps=12, validation=shuffled(0))
    assert asked == [1, 2, 3] and history["step"][-1] == 12
    assert [(v["step"], v["epoch"]) for v in history["validation"]] == [(5, 1), (10, 2), (12, 3)]
    history = train(model, source, sgd(model), epochs=2, validation=shuffled(0), every=4)
    assert [(v["step"], v["epoch"]) for v in history["validation"]] == [(4, 1), (8, 2), (10, 2)]
    history = train(model, source, sgd(model), steps=5, validation=shuffled(0))
    assert [v["step"] for v in history["validation"]] == [5]       # once, not twice
    assert len(train(model, shuffled(0), sgd(model))["step"]) == 5  # one epoch by default
    assert len(train(model, shuffled(0), sgd(model), epochs=3)["step"]) == 15


def test_a_source_without_end_works_with_steps():
    def endless(epoch):
        while True:
            yield GOOD

    model = one_weight()
    assert len(train(model, endless, sgd(model), steps=7)["step"]) == 7


def test_training_has_dropout_on_and_restores_the_mode():
    model, seen = small_model().eval(), []
    model.head.register_forward_hook(lambda *_: seen.append(model.dropout.training))
    train(model, shuffled(1)[:2], sgd(model), epochs=2, validation=shuffled(0)[:1])
    assert seen == [True, True, False] * 2
    assert not any(module.training for module in model.modules())


def test_the_same_seed_gives_the_same_run():
    runs = []
    for seed in (5, 5, 6):
        set_seed(seed)
        model = small_model()
        runs.append((train(model, shuffled, sgd(model)), weights_of(model)))
    assert runs[0][0] == runs[1][0] and equal(runs[0][1], runs[1][1])
    assert runs[0][0]["loss"] != runs[2][0]["loss"]


def worse_with_every_step():
    """Training pushes to class 0, validation wants class 1: the first look is the best."""
    model = one_weight()
    return model, [GOOD], [(torch.tensor([[1.0]]), torch.tensor([1]))]


def test_early_stopping_restores_the_best_weights():
    model, batches, validation = worse_with_every_step()
    history = train(model, batches, sgd(model), epochs=50, validation=validation, patience=3)
    looks = [v["loss"] for v in history["validation"]]
    assert len(looks) == 4 and looks == sorted(looks)              # the best and 3 worse ones
    assert evaluate(model, validation)["loss"] == looks[0]
    model, batches, validation = worse_with_every_step()
    history = train(model, batches, sgd(model), epochs=2, validation=validation, patience=9)
    assert evaluate(model, validation)["loss"] == history["validation"][0]["loss"]
    model, batches, validation = worse_with_every_step()
    history = train(model, batches, sgd(model), epochs=2, validation=validation)
    assert evaluate(model, validation)["loss"] == history["validation"][1]["loss"]


def test_patience_counts_looks_in_a_row():
    losses = iter([1.0, 2.0, 0.5, 0.6, 0.4, 0.7, math.nan, 0.1])
    model = one_weight()

    def loss(logits, labels):
        wanted = classification_loss(logits, labels)
        return wanted if logits.requires_grad else torch.tensor(next(losses))

    history = train(
        model, [GOOD], sgd(model), epochs=8, validation=[GOOD], patience=2, loss=loss
    )  # fmt: skip
    looks = [v["loss"] for v in history["validation"]]
    assert looks[:6] == pytest.approx([1, 2, 0.5, 0.6, 0.4, 0.7])
    assert len(looks) == 7                                         # NaN is no improvement


@pytest.mark.parametrize(
    "settings, error, words",
    [
        ({"epochs": 1, "steps": 2}, ValueError, "epochs or steps, not both; got 1 and 2"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"every": 0}, ValueError, "every must be at least 1"),
        ({"steps": 1.5}, TypeError, "steps"),
        ({"patience": 2}, ValueError, "patience needs validation"),
        ({"patience": 0, "validation": [GOOD]}, ValueError, "patience must be at least 1"),
        ({"clip": 0}, ValueError, "clip must be above 0"),
        ({"clip": math.nan}, ValueError, "clip"),
        ({"nonfinite": "ignore"}, ValueError, "nonfinite must be"),
        ({"resume": True}, ValueError, "resume needs the checkpoint"),
        ({"validation": iter([GOOD])}, TypeError, "validation can be read only once"),
        ({"checkpoint": "/nowhere/at/all.pt"}, FileNotFoundError, "/nowhere/at"),
    ],
)
def test_train_refuses_before_the_first_step(settings, error, words):
    model, before = one_weight(), weights_of(one_weight())
    with pytest.raises(error, match=words):
        train(model, [GOOD], sgd(model), **settings)
    assert equal(before, weights_of(model))


def test_train_refuses_what_does_not_belong_together():
    model, other = one_weight(), one_weight()
    with pytest.raises(ValueError, match="the optimizer holds no parameter of the model"):
        train(model, [GOOD], sgd(other))
    schedule = WarmupSchedule(sgd(model), 8, 3)
    with pytest.raises(ValueError, match="the schedule belongs to another optimizer"):
        train(model, [GOOD], sgd(model), schedule=schedule)
    with pytest.raises(TypeError, match="batches can be read only once"):
        train(model, (batch for batch in [GOOD]), sgd(model), epochs=2)
    with pytest.raises(ValueError, match="epoch 1 has no batches"):
        train(model, [], sgd(model), steps=3)
    with pytest.raises(ValueError, match="epoch 2 has no batches"):
        train(model, lambda epoch: [GOOD] * (2 - epoch), sgd(model), steps=3)


def test_schedules_of_torch_work_as_well():
    model = one_weight()
    optimizer = sgd(model, lr=1.0)
    halving = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    assert train(model, [GOOD] * 3, optimizer, schedule=halving)["rate"] == [1, 0.5, 0.25]


# --- Progress -------------------------------------------------------------------------------


class FakeBar:
    made = []

    def __init__(self, **settings):
        self.settings, self.steps = settings, 0
        self.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def update(self):
        self.steps += 1


def test_g04_nothing_is_written_unless_asked_for_and_never_without_a_terminal(capfd):
    model = one_weight()
    train(model, [GOOD], sgd(model))
    train(model, [GOOD], sgd(model), progress=True)                # stderr is a file here
    assert capfd.readouterr() == ("", "")


def test_the_bar_counts_steps(monkeypatch):
    made = []
    fake = type("tqdm", (), {"tqdm": type("Bar", (FakeBar,), {"made": made})})
    monkeypatch.setitem(sys.modules, "tqdm", fake)
    model = one_weight()
    train(model, [GOOD] * 3, sgd(model), epochs=2, progress=True)
    train(model, lambda epoch: [GOOD], sgd(model), epochs=2, progress=True)
    train(model, [GOOD], sgd(model), steps=4)
    assert [(bar.steps, bar.settings["total"]) for bar in made] == [(6, 6), (2, None)]
    assert all(bar.closed and bar.settings["disable"] is None for bar in made)


def test_without_tqdm_there_is_no_bar(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)                 # its import now fails
    model = one_weight()
    assert len(train(model, [GOOD], sgd(model), progress=True)["step"]) == 1


# --- Checkpoints ----------------------------------------------------------------------------


def parts(n_layers=1, warmup=4):
    model = small_model(n_layers=n_layers)
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, WarmupSchedule(optimizer, 8, warmup)


def run_to(epochs, path=None, source=shuffled, **settings):
    """A run with everything in it that a checkpoint has to hold."""
    torch.set_num_threads(1)
    set_seed(7)
    model, optimizer, schedule = parts()
    history = train(model, source, optimizer, schedule=schedule, epochs=epochs,
                    validation=shuffled(0), patience=99, checkpoint=path, **settings)  # fmt: skip
    return history, weights_of(model), optimizer.state_dict()["state"], torch.rand(3).tolist()


class Killed(BaseException):
    """What a Ctrl-C or a dying machine looks like from inside."""


def killing_source(after, kill, source=shuffled):
    """As source, but the process is killed when it draws batch number ``after`` + 1."""
    drawn = 0

    def killing(epoch):
        nonlocal drawn
        for batch in source(epoch):
            if drawn == after:
                kill()
            drawn += 1
            yield batch

    return killing


def stop():
    raise Killed


def same_run(a, b):
    histories = a[0] == b[0] and a[3] == b[3]
    moments = all(equal(a[2][i], b[2][i]) for i in a[2])
    return histories and a[2].keys() == b[2].keys() and moments and equal(a[1], b[1])


@pytest.mark.parametrize(
    "every, after", [(None, 0), (None, 4), (None, 5), (None, 8), (1, 7), (3, 8), (3, 14), (5, 12)]
)
def test_resuming_gives_the_same_run_bit_for_bit(tmp_path, every, after):
    path = tmp_path / "run.pt"
    whole = run_to(3, every=every)
    with pytest.raises(Killed):
        run_to(3, path, killing_source(after, stop), every=every)
    resumed = run_to(3, path, resume=True, every=every)
    assert same_run(whole, resumed)
    assert path.exists() and os.listdir(tmp_path) == ["run.pt"]


def test_resuming_a_finished_run_does_nothing_and_more_epochs_go_on(tmp_path):
    path = tmp_path / "run.pt"
    whole = run_to(3)
    first = run_to(2, path)
    again = run_to(2, path, resume=True)
    assert first[0] == again[0] and equal(first[1], again[1])
    assert same_run(whole, run_to(3, path, resume=True))


def test_resume_without_a_file_begins_and_without_resume_begins_again(tmp_path):
    path = tmp_path / "run.pt"
    assert same_run(run_to(1), run_to(1, path, resume=True))
    assert same_run(run_to(2), run_to(2, path))                    # not 1 + 2 epochs


def global_order(epoch):
    """Batches drawn from the global generator at the beginning of an epoch, as DataLoader does."""
    return [shuffled(0)[i] for i in torch.randperm(5)]


def test_an_order_from_the_global_generator_is_resumed_as_well(tmp_path):
    path = tmp_path / "run.pt"
    whole = run_to(2, source=global_order, every=3)
    with pytest.raises(Killed):
        run_to(2, path, killing_source(8, stop, global_order), every=3)
    assert same_run(whole, run_to(2, path, global_order, resume=True, every=3))


def test_early_stopping_is_resumed(tmp_path):
    path, looks = tmp_path / "run.pt", []
    for stop_at in (50, 3):
        model, batches, validation = worse_with_every_step()
        for epochs in (stop_at, 50):
            torch.manual_seed(1)
            model = worse_with_every_step()[0]
            history = train(
                model, batches, sgd(model), epochs=epochs, validation=validation, patience=3,
                checkpoint=path, resume=epochs != stop_at,
            )
        looks.append(history["validation"])
        assert evaluate(model, validation)["loss"] == history["validation"][0]["loss"]
    assert len(looks[0]) == 4 and looks[0] == looks[1]


KILLED_RUN = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import torch
import test_training as t
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
source = t.killing_source(12, kill) if sys.argv[1] == "kill" else t.shuffled
result = t.run_to(3, {path!r}, source, resume=True, every=4)
torch.save(result, {result!r})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill like that")
def test_a_killed_process_resumes_bit_for_bit(tmp_path):
    path, result = tmp_path / "run.pt", tmp_path / "result.pt"
    folder = str(Path(__file__).parent)
    code = KILLED_RUN.format(folder=folder, path=str(path), result=str(result))
    codes = [
        subprocess.run([sys.executable, "-c", code, how], cwd=Path(folder).parents[1]).returncode
        for how in ("kill", "resume")
    ]
    assert codes == [-signal.SIGKILL, 0]
    resumed = torch.load(result, weights_only=True)
    assert same_run(run_to(3, every=4), resumed)


def test_a_crash_while_saving_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    model, optimizer, schedule = parts()
    save_checkpoint(path, model, optimizer, schedule, note="old")
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, lambda *_: stop())
        with pytest.raises(Killed):
            save_checkpoint(path, model, optimizer, schedule, note="new")
        monkeypatch.undo()
        assert load_checkpoint(path, model)["note"] == "old"
        assert os.listdir(tmp_path) == ["run.pt"]
    save_checkpoint(path, model, note="new")
    assert load_checkpoint(path, model)["note"] == "new"


def test_a_round_trip(tmp_path):
    path = tmp_path / "run.pt"
    model, optimizer, schedule = parts()
    history = train(model, shuffled, optimizer, schedule=schedule)
    extra = {"note": "好", "best": {"weights": torch.ones(2)}, "list": [1, None, (True, 2.5)]}
    save_checkpoint(path, model, optimizer, schedule, history, **extra)
    drawn = (torch.rand(2).tolist(), random.random())
    fresh, adam, warm = parts()
    assert not equal(weights_of(fresh), weights_of(model))
    loaded = load_checkpoint(str(path), fresh, adam, warm)
    assert loaded.pop("best")["weights"].tolist() == [1, 1]
    assert loaded == {"history": history, "note": "好", "list": [1, None, (True, 2.5)]}
    assert equal(weights_of(fresh), weights_of(model)) and warm.rate == schedule.rate
    assert (torch.rand(2).tolist(), random.random()) == drawn


def test_the_generator_of_numpy_is_set_back_too(tmp_path):
    import numpy

    model, optimizer, _ = parts()
    save_checkpoint(tmp_path / "run.pt", model, optimizer)
    drawn = numpy.random.rand(2).tolist()
    load_checkpoint(tmp_path / "run.pt", model, optimizer)
    assert numpy.random.rand(2).tolist() == drawn


def test_weights_alone_leave_the_generators_alone(tmp_path):
    model, optimizer, schedule = parts()
    save_checkpoint(tmp_path / "run.pt", model, optimizer, schedule)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert load_checkpoint(tmp_path / "run.pt", model) == {"history": None}
    assert torch.equal(state, torch.get_rng_state())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint .*gone.pt"):
        load_checkpoint(tmp_path / "gone.pt", small_model())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_checkpoint(tmp_path / "nowhere" / "run.pt", small_model())


def test_a_damaged_file_is_named_and_changes_nothing(tmp_path):
    path = tmp_path / "run.pt"
    model, optimizer, schedule = parts()
    save_checkpoint(path, model, optimizer, schedule)
    whole, before = path.read_bytes(), weights_of(small_model())
    flipped = bytearray(whole)
    weights = model.head.weight.detach().numpy().tobytes()
    flipped[whole.index(weights)] ^= 1                             # one bit of one number
    broken = [b"", b"not a checkpoint", whole[:10], whole[: len(whole) // 2], whole[:-1], flipped]
    for content in broken:
        path.write_bytes(content)
        fresh, adam, warm = parts()
        before, rate = weights_of(fresh), warm.rate
        with pytest.raises(ValueError, match="run.pt is damaged or not a checkpoint"):
            load_checkpoint(path, fresh, adam, warm)
        assert equal(before, weights_of(fresh)) and not adam.state and warm.rate == rate


def test_other_files_of_torch_are_refused_without_running_code(tmp_path):
    path, model = tmp_path / "other.pt", small_model()
    torch.save(model.state_dict(), path)
    with pytest.raises(ValueError, match="other.pt was not written by save_checkpoint"):
        load_checkpoint(path, model)
    torch.save(model, path)                                        # a pickle that runs code
    with pytest.raises(ValueError, match="other.pt is damaged or not a checkpoint"):
        load_checkpoint(path, model)


def test_a_checkpoint_of_something_else_changes_nothing(tmp_path):
    path = tmp_path / "run.pt"
    saved = parts()
    train(saved[0], shuffled, saved[1], schedule=saved[2])
    save_checkpoint(path, *saved)

    def refuses(words, model, optimizer=None, schedule=None):
        before, rate = weights_of(model), optimizer and optimizer.param_groups[0]["lr"]
        with pytest.raises(ValueError, match=f"run.pt.*{words}"):
            load_checkpoint(path, model, optimizer, schedule)
        assert equal(before, weights_of(model))
        assert optimizer is None or (
            not optimizer.state and optimizer.param_groups[0]["lr"] == rate
        )

    refuses(r"layers.1.*missing in the file", parts(n_layers=2)[0])
    wider = EncoderClassifier(TransformerEncoder(10, 8, 2, 16, 1), 4)
    refuses(r"head.weight is \(4, 8\) here, \(3, 8\) in the file", wider)
    model = small_model()
    refuses("optimizer is SGD, the file holds Adam", model, sgd(model))
    model, optimizer, schedule = parts(warmup=5)
    refuses("does not fit the schedule: .*'warmup': 5", model, optimizer, schedule)
    refuses("schedule is LinearSchedule, the file holds WarmupSchedule", model, optimizer,
            LinearSchedule(optimizer, 1.0, 1, 2))  # fmt: skip
    two = torch.optim.Adam([{"params": [p]} for p in model.parameters()], lr=0.5)
    refuses("does not fit the optimizer", model, two)
    save_checkpoint(path, model)
    refuses("optimizer is Adam, the file holds none", model, optimizer)
    with pytest.raises(ValueError, match="optimizer is Adam, the file holds none"):
        train(model, shuffled, optimizer, checkpoint=path, resume=True)
    save_checkpoint(path, model, optimizer)
    with pytest.raises(ValueError, match="run.pt was not written by train"):
        train(model, shuffled, optimizer, checkpoint=path, resume=True)


def test_a_data_set_that_shrank_is_noticed(tmp_path):
    path = tmp_path / "run.pt"
    with pytest.raises(Killed):
        run_to(1, path, killing_source(4, stop), every=4)
    with pytest.raises(ValueError, match="epoch 1 has 3 batches, but 4 were used before"):
        run_to(1, path, lambda epoch: shuffled(epoch)[:3], resume=True, every=4)


@pytest.mark.parametrize(
    "extra, words",
    [
        ({"file": Path("x")}, r"extra\['file'\] is a \w*Path"),
        ({"deep": {"er": [0, {1, 2}]}}, r"extra\['deep'\]\['er'\]\[1\] is a set"),
        ({"code": small_model}, "function"),
    ],
)
def test_what_cannot_be_read_back_is_refused_when_saving(tmp_path, extra, words):
    with pytest.raises(TypeError, match=words):
        save_checkpoint(tmp_path / "run.pt", small_model(), **extra)
    assert os.listdir(tmp_path) == []


def test_schedules_of_torch_are_saved_too(tmp_path):
    losses = []
    for resume in (False, True, False):
        torch.manual_seed(3)
        model = small_model()
        optimizer = sgd(model)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        path = tmp_path / ("whole.pt" if losses and not resume else "run.pt")
        epochs = 1 if not losses else 2
        history = train(model, shuffled, optimizer, schedule=cosine, epochs=epochs,
                        checkpoint=path, resume=resume)  # fmt: skip
        losses.append((history["loss"], history["rate"]))
    assert losses[1] == losses[2] and len(losses[1][0]) == 10
