"""Answers to the exercises of chapter 10."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from answers import right, wrong
from encoder_lib.training import classification_loss, evaluate, noam_rate, token_loss

WRONG_VALUES = {"10.1": {"perfect": 0, "chance": math.log(2), "other_class": math.log(1 + math.e),
                         "share": math.e / (1 + math.e),
                         "log_base": math.log2(1 + math.exp(-1))}}  # fmt: skip


# --- the rate -------------------------------------------------------------------------------------

RATE = "warmup_rate"


@right(RATE)
def two_cases(step, peak, warmup):
    if step < warmup:
        return peak / warmup * step
    return peak * (warmup / step) ** 0.5


@right(RATE)
def paper_over_its_peak(step, peak, warmup):
    return peak * noam_rate(step, 7, warmup) / noam_rate(warmup, 7, warmup)


@right(RATE)
def as_a_tensor(step, peak, warmup):
    t = torch.tensor(float(step))
    return peak * warmup**0.5 * torch.minimum(t**-0.5, t * warmup**-1.5)


@right(RATE)
def of_numpy(step, peak, warmup):
    return np.float32(peak) * np.minimum(step / warmup, np.sqrt(warmup / step))


@wrong(RATE, "peak_ignored")
def formula_with_a_width(step, peak, warmup):
    return 512**-0.5 * min(step**-0.5, step * warmup**-1.5)


@wrong(RATE, "peak_ignored")
def between_0_and_1(step, peak, warmup):
    return step / warmup if step < warmup else (warmup / step) ** 0.5


@wrong(RATE, "rounded")
def whole_numbers(step, peak, warmup):
    return peak * min(step // warmup, (warmup / step) ** 0.5)


@wrong(RATE, "no_warmup")
def always_the_peak(step, peak, warmup):
    return peak


@wrong(RATE, "jump")
def fall_begins_anew(step, peak, warmup):
    return peak * step / warmup if step <= warmup else peak * (warmup / (step - warmup)) ** 0.5


@wrong(RATE, "max_for_min")
def the_larger_one(step, peak, warmup):
    return peak * warmup**0.5 * max(step**-0.5, step * warmup**-1.5)


@wrong(RATE, "not_scaled")
def paper_times_peak(step, peak, warmup):
    return peak * min(step**-0.5, step * warmup**-1.5)


@wrong(RATE, "jump")
def falls_from_one(step, peak, warmup):
    if step <= warmup:
        return peak * step / warmup
    return peak / math.sqrt(step)


@wrong(RATE, "jump")
def counts_the_fall_anew(step, peak, warmup):
    if step <= warmup:
        return peak * step / warmup
    return peak / math.sqrt(step - warmup)


@wrong(RATE, "counts_otherwise")
def from_zero(step, peak, warmup):
    return two_cases(step + 1, peak, warmup)


@wrong(RATE, "falls_too_fast")
def one_over_step(step, peak, warmup):
    return peak * min(step / warmup, warmup / step)


@wrong(RATE, "never_falls")
def up_and_stays(step, peak, warmup):
    return peak * step / warmup if step < warmup else peak


@wrong(RATE, "no_warmup")
def down_only(step, peak, warmup):
    return peak if step <= warmup else peak * math.sqrt(warmup / step)


@wrong(RATE, "root_rise")
def root_both_ways(step, peak, warmup):
    return peak * math.sqrt(min(step / warmup, warmup / step))


# --- the accuracy ---------------------------------------------------------------------------------

ACCURACY = "token_accuracy"


@right(ACCURACY)
def all_tokens_in_a_row(batches, ignore):
    found = torch.cat([logits.argmax(-1).flatten() for logits, _ in batches])
    labels = torch.cat([targets.flatten() for _, targets in batches])
    hits = (found == labels)[labels != ignore].float()
    return hits.mean() if len(hits) else 0


@right(ACCURACY)
def with_loops(batches, ignore):
    hits = total = 0
    for logits, targets in batches:
        for rows, labels in zip(logits.tolist(), targets.tolist(), strict=True):
            for row, label in zip(rows, labels, strict=True):
                if label != ignore:
                    total += 1
                    hits += row.index(max(row)) == label
    return hits / max(total, 1)


class Says(nn.Module):
    """A model that returns its input."""

    def forward(self, ids):
        return ids


@right(ACCURACY)
def evaluated(batches, ignore):
    relabelled = [(x, t.masked_fill(t == ignore, -100)) for x, t in batches]
    return evaluate(Says(), relabelled, token_loss)["accuracy"]


def of_one(logits, targets, ignore):
    real = targets != ignore
    return (logits.argmax(-1)[real] == targets[real]).float().mean()


@wrong(ACCURACY, "class_excluded")
def never_says_the_ignored(batches, ignore):
    batches = [(x.clone(), t) for x, t in batches]
    for x, _ in batches:
        if 0 <= ignore < x.size(-1):
            x[..., ignore] = -1e9
    return with_loops(batches, ignore)


@wrong(ACCURACY, "wrong_axis")
def no_axis_at_all(batches, ignore):
    hits = sum(((x.argmax() == t) & (t != ignore)).sum().item() for x, t in batches)
    return hits / max(sum((t != ignore).sum().item() for _, t in batches), 1)


@wrong(ACCURACY, "other_measure")
def per_cent(batches, ignore):
    return 100 * with_loops(batches, ignore)


@wrong(ACCURACY, "other_measure")
def how_many(batches, ignore):
    return sum(((x.argmax(-1) == t) & (t != ignore)).sum().item() for x, t in batches)


@wrong(ACCURACY, "first_batch")
def returns_too_early(batches, ignore):
    for batch in batches:
        return with_loops([batch], ignore)


@wrong(ACCURACY, "batch_means")
def mean_of_batches(batches, ignore):
    return sum(of_one(x, t, ignore) for x, t in batches) / len(batches)


@wrong(ACCURACY, "batch_means")
def mean_of_batches_that_count(batches, ignore):
    found = [of_one(x, t, ignore) for x, t in batches if (t != ignore).any()]
    return torch.stack(found).mean() if found else 0.0


@wrong(ACCURACY, "batch_means_padding")
def mean_of_all_places_of_batches(batches, ignore):
    hits = [((x.argmax(-1) == t) & (t != ignore)).float().mean() for x, t in batches]
    return torch.stack(hits).mean()


@wrong(ACCURACY, "padding_counted")
def all_places(batches, ignore):
    right_ones = sum(((x.argmax(-1) == t) & (t != ignore)).sum().item() for x, t in batches)
    return right_ones / sum(t.numel() for _, t in batches)


@wrong(ACCURACY, "padding_counted")
def forgets_to_ignore(batches, ignore):
    return torch.cat([(x.argmax(-1) == t).flatten() for x, t in batches]).float().mean().item()


@wrong(ACCURACY, "ignore_fixed")
def minus_one_hundred(batches, ignore):
    return with_loops(batches, -100)


@wrong(ACCURACY, "wrong_axis")
def second_axis_as_for_images(batches, ignore):
    hits = total = 0
    for logits, targets in batches:
        real = targets != ignore
        hits += (logits.argmax(1) == targets)[real].sum().item()
        total += real.sum().item()
    return hits / max(total, 1)


@wrong(ACCURACY, "sentence_means")
def mean_of_sentences(batches, ignore):
    found = [of_one(a, b, ignore) for x, t in batches for a, b in zip(x, t, strict=True)]
    found = [value for value in found if not value.isnan()]
    return sum(found) / max(len(found), 1)


@wrong(ACCURACY, "whole_sentences")
def without_a_mistake(batches, ignore):
    found = [of_one(a, b, ignore) for x, t in batches for a, b in zip(x, t, strict=True)]
    found = [value == 1 for value in found if not value.isnan()]
    return sum(found) / max(len(found), 1)


@wrong(ACCURACY, "balanced")
def mean_of_classes(batches, ignore):
    relabelled = [(x, t.masked_fill(t == ignore, -100)) for x, t in batches]
    return evaluate(Says(), relabelled, token_loss)["balanced_accuracy"]


@wrong(ACCURACY, "last_batch")
def sets_back_inside(batches, ignore):
    for logits, targets in batches:
        hits = total = 0
        real = targets != ignore
        hits += (logits.argmax(-1) == targets)[real].sum().item()
        total += real.sum().item()
    return hits / max(total, 1)


@wrong(ACCURACY, "nothing_counts")
def nan_for_nothing(batches, ignore):
    hits = torch.cat([(x.argmax(-1) == t)[t != ignore] for x, t in batches])
    return hits.float().mean().item()


@wrong(ACCURACY, "nothing_counts")
def divides_by_zero(batches, ignore):
    real = [t != ignore for _, t in batches]
    hits = sum((x.argmax(-1) == t)[m].sum().item() for (x, t), m in zip(batches, real, strict=True))
    return hits / sum(m.sum().item() for m in real)


# --- clipping -------------------------------------------------------------------------------------

CLIP = "clip_gradients"


@right(CLIP)
def by_torch(gradients, max_norm):
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.clone()
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    return [p.grad for p in parameters], norm


@right(CLIP)
def one_long_vector(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    scale = torch.clamp(max_norm / (norm + 1e-8), max=1.0)
    return tuple(g * scale for g in gradients), norm


@right(CLIP)
def norm_of_norms(gradients, max_norm):
    norm = math.hypot(*(g.norm().item() for g in gradients))
    if norm <= max_norm:
        return gradients, norm
    return [g / norm * max_norm for g in gradients], norm


@right(CLIP)
def for_each(gradients, max_norm):
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return torch._foreach_mul(gradients, torch.clamp(max_norm / (norm + 1e-9), max=1.0)), norm


@right(CLIP)
def numpy_norm(gradients, max_norm):
    norm = np.sqrt(sum((g.numpy() ** 2).sum() for g in gradients))
    return [g * float(max_norm / norm) if norm > max_norm else g for g in gradients], norm


@wrong(CLIP, "other_length")
def absolute_values(gradients, max_norm):
    norm = sum(g.abs().sum() for g in gradients).item()
    return [g * min(1.0, max_norm / (norm + 1e-9)) for g in gradients], norm


@wrong(CLIP, "other_length")
def longest_tensor(gradients, max_norm):
    norm = max(g.norm().item() for g in gradients)
    return [g * min(1.0, max_norm / (norm + 1e-9)) for g in gradients], norm


@wrong(CLIP, "upside_down")
def stretches(gradients, max_norm):
    norm = math.hypot(*(g.norm().item() for g in gradients))
    return [g * (norm / max_norm) if norm > max_norm else g for g in gradients], norm


@wrong(CLIP, "type")
def a_generator(gradients, max_norm):
    """It cannot be compared; that does not make it random."""
    found, norm = norm_of_norms(gradients, max_norm)
    return (g for g in found), norm


@wrong(CLIP, "type")
def no_norm_comes_back(gradients, max_norm):
    return norm_of_norms(gradients, max_norm)[0]


@wrong(CLIP, "per_tensor")
def each_for_itself(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    return [g if g.norm() <= max_norm else g * max_norm / g.norm() for g in gradients], norm


@wrong(CLIP, "values_clipped")
def clamps(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    return [g.clamp(min=-max_norm, max=max_norm) for g in gradients], norm


@wrong(CLIP, "always_rescaled")
def always_of_this_length(gradients, max_norm):
    norm = sum((g**2).sum() for g in gradients).sqrt()
    return [g * max_norm / norm for g in gradients], norm


@wrong(CLIP, "always_rescaled")
def always_with_an_epsilon(gradients, max_norm):
    norm = sum((g**2).sum() for g in gradients).sqrt()
    return [g * (max_norm / (norm + 1e-6)) for g in gradients], norm


@wrong(CLIP, "sum_of_norms")
def adds_lengths(gradients, max_norm):
    norm = sum(g.norm() for g in gradients)
    return [g * min(1.0, max_norm / (norm + 1e-9)) for g in gradients], norm


@wrong(CLIP, "no_root")
def squares(gradients, max_norm):
    norm = sum((g * g).sum().item() for g in gradients)
    return [g * (max_norm / norm) if norm > max_norm else g for g in gradients], norm


@wrong(CLIP, "largest_entry")
def largest_number(gradients, max_norm):
    norm = max(g.abs().max().item() for g in gradients)
    return [g * (max_norm / norm) if norm > max_norm else g for g in gradients], norm


@wrong(CLIP, "never_clipped")
def forgets_to_multiply(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    scale = min(1.0, max_norm / (norm.item() + 1e-9))
    for g in gradients:
        g = g * scale
    return gradients, norm


@wrong(CLIP, "norm_after")
def says_the_new_length(gradients, max_norm):
    found, _ = norm_of_norms(gradients, max_norm)
    return found, math.hypot(*(g.norm().item() for g in found))


@wrong(CLIP, "zero_gradients")
def zero_by_zero(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    return [g / norm * torch.clamp(norm, max=max_norm) for g in gradients], norm


@wrong(CLIP, "mutates")
def in_place(gradients, max_norm):
    norm = math.hypot(*(g.norm().item() for g in gradients))
    for g in gradients:
        g.mul_(min(1.0, max_norm / (norm + 1e-9)))
    return gradients, norm


# --- a step on a batch in parts -------------------------------------------------------------------

STEP = "accumulated_step"


@right(STEP)
def weighted_means(model, parts, optimizer):
    n = sum(len(y) for _, y in parts)
    optimizer.zero_grad()
    total = 0.0
    for x, y in parts:
        loss = classification_loss(model(x), y) * len(y) / n
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@right(STEP)
def sums_then_divides(model, parts, optimizer):
    model.zero_grad(set_to_none=False)
    n = total = 0
    for x, y in parts:
        loss = F.cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        n, total = n + len(y), total + loss.detach()
    for p in model.parameters():
        p.grad /= n
    optimizer.step()
    return total / n


@right(STEP, note="graph")
def still_on_the_graph(model, parts, optimizer):
    optimizer.zero_grad()
    n, total = sum(len(y) for _, y in parts), 0
    for x, y in parts:
        loss = F.cross_entropy(model(x), y, reduction="sum") / n
        loss.backward()
        total = total + loss
    optimizer.step()
    return total


@right(STEP)
def example_by_example(model, parts, optimizer):
    single = [(x[i : i + 1], y[i : i + 1]) for x, y in parts for i in range(len(y))]
    return weighted_means(model, single, optimizer)


@right(STEP)
def gradients_by_hand(model, parts, optimizer):
    weights, total = list(model.parameters()), 0.0
    held, n = [torch.zeros_like(p) for p in weights], sum(len(y) for _, y in parts)
    for x, y in parts:
        loss = F.nll_loss(model(x).log_softmax(-1), y, reduction="sum") / n
        for h, g in zip(held, torch.autograd.grad(loss, weights), strict=True):
            h += g
        total += loss.item()
    for p, h in zip(weights, held, strict=True):
        p.grad = h
    optimizer.step()
    return torch.tensor(total).numpy()[()]


@right(STEP)
def measures_first(model, parts, optimizer):
    n = sum(len(y) for _, y in parts)
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in parts) / n
    weighted_means(model, parts, optimizer)
    return total


@wrong(STEP, "together")
def all_graphs_held(model, parts, optimizer):
    n = sum(len(y) for _, y in parts)
    optimizer.zero_grad()
    loss = sum(F.cross_entropy(model(x), y) * len(y) / n for x, y in parts)
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong(STEP, "raised")
def has_a_typo(model, parts, optimizer):
    """An error is no sign of a missing step."""
    optimizer.zero_grad()
    return sum(F.cross_entropy(model(x), y).items() for x, y in parts)


@wrong(STEP, "summed")
def sums_over_examples(model, parts, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for x, y in parts:
        loss = F.cross_entropy(model(x), y, reduction="sum")
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total / sum(len(y) for _, y in parts)


@wrong(STEP, "backward_twice")
def a_growing_sum(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0
    optimizer.zero_grad()
    for x, y in parts:
        total = total + F.cross_entropy(model(x), y) * len(y) / n
        total.backward(retain_graph=True)
    optimizer.step()
    return total.item()


@wrong(STEP, "clipped")
def as_in_the_chapter(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0.0
    optimizer.zero_grad()
    for x, y in parts:
        loss = F.cross_entropy(model(x), y) * len(y) / n
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


@wrong(STEP, "softmax_twice")
def probabilities_first(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0.0
    optimizer.zero_grad()
    for x, y in parts:
        loss = F.cross_entropy(F.softmax(model(x), dim=1), y, reduction="sum") / n
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@wrong(STEP, "together")
def all_at_once(model, parts, optimizer):
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@right(STEP, note="evaluation mode")
def leaves_it_in_eval(model, parts, optimizer):
    model.eval()
    return weighted_means(model, parts, optimizer)


@wrong(STEP, "equal_shares")
def mean_of_means(model, parts, optimizer):
    optimizer.zero_grad()
    loss = sum(F.cross_entropy(model(x), y) for x, y in parts) / len(parts)
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong(STEP, "summed")
def adds_the_means(model, parts, optimizer):
    optimizer.zero_grad()
    losses = []
    for x, y in parts:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
    return sum(losses) / len(losses)


@wrong(STEP, "step_each")
def a_step_for_each(model, parts, optimizer):
    total = 0.0
    for x, y in parts:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(parts)


@wrong(STEP, "zero_between")
def sets_back_between(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0.0
    for x, y in parts:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * len(y) / n
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@wrong(STEP, "no_zero_grad")
def never_sets_back(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0.0
    for x, y in parts:
        loss = F.cross_entropy(model(x), y) * len(y) / n
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@wrong(STEP, "nothing_moves")
def sets_back_before_the_step(model, parts, optimizer):
    n, total = sum(len(y) for _, y in parts), 0.0
    for x, y in parts:
        loss = F.cross_entropy(model(x), y) * len(y) / n
        loss.backward()
        total += loss.item()
    optimizer.zero_grad()
    optimizer.step()
    return total


@wrong(STEP, "step_too_early")
def steps_before_backward(model, parts, optimizer):
    n = sum(len(y) for _, y in parts)
    loss = sum(F.cross_entropy(model(x), y) * len(y) / n for x, y in parts)
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


@wrong(STEP, "wrong_loss")
def says_the_last_part(model, parts, optimizer):
    optimizer.zero_grad()
    n = sum(len(y) for _, y in parts)
    for x, y in parts:
        loss = F.cross_entropy(model(x), y)
        (loss * len(y) / n).backward()
    optimizer.step()
    return loss.item()


@wrong(STEP, "wrong_loss")
def says_the_loss_afterwards(model, parts, optimizer):
    weighted_means(model, parts, optimizer)
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item()
