"""Checks of chapter 10: the rate, the accuracy, clipping, a step on a batch in parts."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, as_function
from encoder_lib.checks.report import Misconception

__all__ = ["accumulated_step", "clip_gradients", "token_accuracy", "warmup_rate"]


# --- the rate -------------------------------------------------------------------------------------


def rate(step, peak, warmup):
    """Linear to ``peak`` at step == warmup, then as step^-0.5."""
    return peak * min(step / warmup, math.sqrt(warmup / step))


def jumping(step, peak, warmup):
    """The decay forgets that it has to begin at the peak."""
    return peak * step / warmup if step <= warmup else peak * step**-0.5


def shifted(step, peak, warmup, by):
    """As if the steps were counted from another number."""
    return peak * min((step + by) / warmup, math.sqrt(warmup / max(step + by, 0.5)))


def late_fall(step, peak, warmup, first=0, scale=False):
    """The decay counts its own steps, from 1 or from the step number ``first``."""
    if step <= warmup:
        return peak * step / warmup
    return peak * math.sqrt((warmup if scale else 1) / (step - warmup + first))


WIDTHS = (64, 128, 256, 512, 768)  # that a learner may take from elsewhere
RATES = (
    ("max_for_min", "The larger of the two branches is taken: your rate is huge at first, then "
     "falls, and rises again without end. The smaller one is wanted.",
     lambda t, peak, w: peak * max(t / w, math.sqrt(w / t))),
    ("not_scaled", "This is formula (10.1) times the peak. But (10.1) has a height of its own, "
     "which depends on the warm-up; the rate should be exactly `peak` at its highest.",
     lambda t, peak, w: peak * min(t**-0.5, t * w**-1.5)),
    ("jump", "The two branches do not meet: behind the warm-up your rate drops at once, since the "
     "decay does not begin at the peak.",
     (jumping, *(functools.partial(late_fall, first=f, scale=s)
                 for f in (0, 1) for s in (False, True)))),
    ("peak_ignored", "Your rate does not depend on `peak`: it should be `peak` at its highest.",
     (lambda t, peak, w: min(t / w, math.sqrt(w / t)), lambda t, peak, w: min(t**-0.5, t * w**-1.5),
      *(lambda t, peak, w, d=d: d**-0.5 * min(t**-0.5, t * w**-1.5) for d in WIDTHS))),
    ("rounded", "Your warm-up knows only two values: step // warmup divides without a remainder, "
     "so the rate stays 0 until the peak.",
     lambda t, peak, w: peak * min(t // w, math.sqrt(w / t))),
    ("counts_otherwise", "Your steps are shifted by one: the first update is step 1, and the peak "
     "comes at the step number `warmup`.",
     tuple(functools.partial(shifted, by=by) for by in (-1, 1))),
    ("falls_too_fast", "Behind the warm-up the rate falls as 1 / step. Four times the steps should "
     "halve it, not quarter it.", lambda t, peak, w: peak * min(t / w, w / t)),
    ("never_falls", "Behind the warm-up your rate stays at the peak; it should fall.",
     lambda t, peak, w: peak * min(t / w, 1.0)),
    ("no_warmup", "There is no warm-up: your first steps are as long as, or longer than, the one "
     "at the peak.", (lambda t, peak, w: peak, lambda t, peak, w: peak * min(1.0, math.sqrt(w / t)),
                   lambda t, peak, w: peak * t**-0.5, lambda t, peak, w: peak * math.sqrt(w / t))),
    ("root_rise", "The rate rises with the root of the step; it should rise in a straight line.",
     lambda t, peak, w: peak * min(math.sqrt(t / w), math.sqrt(w / t))),
)  # fmt: skip


def at(place):
    """A case's arguments (step, peak, warmup), where place(warmup, draw) -> step."""

    def make(draw):
        warmup = draw.integer(20, 200)
        return place(warmup, draw), float(draw.uniform(0.5, 2.0, 1)), warmup

    return make


warmup_rate = Checker(
    name="warmup_rate",
    number="10.2",
    component="the learning rate",
    right=rate,
    reread="The rate",
    inputs=("step", "peak", "warmup"),
    misconceptions=tuple(Misconception(*row) for row in RATES),
    cases=(
        Case("the first step", at(lambda w, draw: 1)),
        Case("within the warm-up", at(lambda w, draw: draw.integer(2, w))),
        Case("the last step of the warm-up has the peak", at(lambda w, draw: w)),
        Case("one step later", at(lambda w, draw: w + 1)),
        Case("half the peak after four times the warm-up", at(lambda w, draw: 4 * w)),
        Case("far behind", at(lambda w, draw: 30 * w + draw.integer(0, 9))),
        Case("a warm-up of one step", lambda draw: (draw.integer(2, 9), 0.9, 1)),
    ),
)


# --- the accuracy ---------------------------------------------------------------------------------


def counts(logits, targets, ignore):
    """(how many tokens are right, how many count) of one batch."""
    real = targets != ignore
    return int(((logits.argmax(dim=-1) == targets) & real).sum()), int(real.sum())


def all_counts(batches, ignore):
    """(how many tokens are right, how many count) of all batches."""
    right, n = zip(*(counts(logits, targets, ignore) for logits, targets in batches), strict=True)
    return sum(right), sum(n)


def accuracy(batches, ignore, slots=False, fixed=None):
    """The share of right tokens; slots: padding counts as a token; fixed: the ignored label."""
    total = seen = 0
    for logits, targets in batches:
        right, n = counts(logits, targets, ignore if fixed is None else fixed)
        total, seen = total + right, seen + (targets.numel() if slots else n)
    return total / seen if seen else 0.0


def batch_means(batches, ignore, slots=False, empty=None):
    """The mean of the batches' accuracies; an empty batch is left out, or counts as ``empty``."""
    found = []
    for logits, targets in batches:
        right, n = counts(logits, targets, ignore)
        n = targets.numel() if slots else n
        if n or empty is not None:
            found.append(right / n if n else empty)
    return sum(found) / len(found) if found else 0.0


def sentence_means(batches, ignore):
    """The mean of the sentences' accuracies, over all batches."""
    rows = [(logits[i : i + 1], targets[i : i + 1]) for logits, targets in batches
            for i in range(len(targets))]  # fmt: skip
    return batch_means(rows, ignore)


def whole_sentences(batches, ignore):
    """The share of sentences in which all tokens are right; those without tokens left out."""
    found = [counts(logits[i], targets[i], ignore) for logits, targets in batches
             for i in range(len(targets))]  # fmt: skip
    found = [right == n for right, n in found if n]
    return sum(found) / len(found) if found else 0.0


def balanced(batches, ignore):
    """The mean of the accuracies of the classes that occur."""
    labels = {int(t) for _, targets in batches for t in targets.flatten()} - {ignore}
    shares = []
    for label in labels:
        pairs = [((x.argmax(-1) == label) & (t == label), t == label) for x, t in batches]
        shares.append(sum(int(a.sum()) for a, _ in pairs) / sum(int(b.sum()) for _, b in pairs))
    return sum(shares) / len(shares) if shares else 0.0


def padding_compared(batches, ignore):
    """All slots are compared, so an ignored label may even be right."""
    pairs = [(x.argmax(dim=-1) == t) for x, t in batches]
    slots = sum(p.numel() for p in pairs)
    return sum(int(p.sum()) for p in pairs) / slots if slots else 0.0


def among_all(batches, ignore):
    """The largest number is looked for among all of the batch."""
    pairs = [((x.argmax() == t) & (t != ignore), t != ignore) for x, t in batches]
    seen = sum(int(real.sum()) for _, real in pairs)
    return sum(int(right.sum()) for right, _ in pairs) / seen if seen else 0.0


def without_ignored(batches, ignore):
    """A class whose number is ignored cannot be chosen."""
    found = []
    for logits, targets in batches:
        classes = torch.arange(logits.size(-1))
        found.append((logits.masked_fill(classes == ignore, -math.inf), targets))
    return accuracy(found, ignore)


def over_length(batches, ignore):
    """The largest number is looked for along the sentence instead of among the classes."""
    total = seen = 0
    for logits, targets in batches:
        real = targets != ignore
        total += int(((logits.argmax(dim=1) == targets) & real).sum())
        seen += int(real.sum())
    return total / seen if seen else 0.0


def fails_on_nothing(evidence):
    """Only batches in which nothing counts give another result."""
    wrong = [t for t in evidence.trials if not t.case.name.startswith("nothing")
             and not (isinstance(t.got, float | int | torch.Tensor)
                      and abs(float(t.got) - t.want) < 1e-5)]  # fmt: skip
    return not wrong


ACCURACIES = (
    ("batch_means", "Each batch has the same weight: you take the mean of the batches' accuracies. "
     "A token in a small batch then counts more than one in a large batch.",
     tuple(functools.partial(batch_means, empty=e) for e in (None, 0.0, math.nan, 1.0))),
    ("batch_means_padding", "Two things: padding is counted as tokens, and the accuracies of the "
     "batches are averaged as if all had the same number of tokens.",
     functools.partial(batch_means, slots=True)),
    ("padding_counted", "You divide by all places, padding included. A label that is ignored is "
     "neither right nor wrong.", (functools.partial(accuracy, slots=True), padding_compared)),
    ("wrong_axis", "You look for the largest number along the sentence. The classes are the last "
                   "axis.",
     (over_length, among_all)),
    ("class_excluded", "Your model cannot choose the class whose number is ignored. Only a target "
     "is ignored; a model that says this class for a token that counts is wrong.", without_ignored),
    ("other_measure", "That is another measure: asked for is the share of right tokens, from 0 to "
     "1, not a percentage, a number of tokens or the share of errors.",
     (lambda bs, i: 100 * accuracy(bs, i), lambda bs, i: 1 - accuracy(bs, i),
      lambda bs, i: 1 - accuracy(bs, i) if all_counts(bs, i)[1] else 0.0,
      lambda bs, i: all_counts(bs, i)[0])),
    ("first_batch", "Only the first batch decides: does a return stand inside the loop?",
     (lambda bs, i: batch_means(bs[:1], i, empty=0.0),
      lambda bs, i: batch_means(bs[:1], i, empty=math.nan))),
    ("ignore_fixed", "The ignored label is fixed in your code; it should be the one that is handed "
     "over.", functools.partial(accuracy, fixed=-100)),
    ("sentence_means", "Each sentence has the same weight: a token in a short sentence counts more "
     "than one in a long sentence.", sentence_means),
    ("whole_sentences", "You count sentences without any mistake; asked for is the share of right "
     "tokens.", whole_sentences),
    ("balanced", "You average over the classes, the balanced accuracy. Asked for is the share of "
     "all tokens, so frequent classes weigh more.", balanced),
    ("last_batch", "Only the last batch decides: are the counts set back inside the loop?",
     (lambda batches, ignore: batch_means(batches[-1:], ignore, empty=0.0),
      lambda batches, ignore: batch_means(batches[-1:], ignore, empty=math.nan))),
)  # fmt: skip


def batch(draw, lengths, boost, ignore=-100, n_classes=4):
    """(logits (B, L, C), targets (B, L)); ``boost`` says how often the model is right."""
    keep = draw.keep(lengths, max(max(lengths), 2))
    targets = draw.integers(1, n_classes, *keep.shape)  # a label 0 can then be the ignored one
    logits = draw.normal(*keep.shape, n_classes) + boost * F.one_hot(targets, n_classes)
    return logits, targets.masked_fill(~keep, ignore)


def tempting(draw, *lengths):
    """A batch for the ignored label 0, where class 0 is often the first choice, the target next."""
    logits, targets = batch(draw, lengths, 3.0, 0)
    logits[:, 0, 0] = logits[:, 0].amax(-1) + 1.0
    return logits, targets


token_accuracy = Checker(
    name="token_accuracy",
    number="10.3",
    component="the evaluation",
    right=accuracy,
    reread="The finished step and the finished evaluation",
    inputs=("batches", "ignore"),
    misconceptions=(
        Misconception("nothing_counts", "Where nothing counts your function gives NaN or an error; "
                      "it should give 0.", signs=fails_on_nothing),
        *(Misconception(*row) for row in ACCURACIES),
    ),
    cases=(
        Case("one batch with padding", lambda draw: ([batch(draw, (6, 3, 1), 1.0)], -100)),
        Case("batches of different sizes, one good and one bad",
             lambda draw: ([batch(draw, (7, 7, 6, 5), 3.0), batch(draw, (3,), -3.0)], -100)),
        Case("another ignored label, the 0",
             lambda draw: ([tempting(draw, 5, 2), batch(draw, (4, 1, 1), 0.5, 0)], 0)),
        Case("no padding at all", lambda draw: ([batch(draw, (4, 4, 4), 1.0)] * 2, -100)),
        Case("nothing counts in one of the batches",
             lambda draw: ([batch(draw, (0, 0), 1.0), batch(draw, (5, 3), 0.8)], -100)),
        Case("nothing counts anywhere", lambda draw: ([batch(draw, (0, 0), 1.0)], -100)),
    ),
)  # fmt: skip


# --- clipping -------------------------------------------------------------------------------------


def norm_of(gradients):
    """The length of all gradients together, a float."""
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradients))


def clip(gradients, max_norm, length=norm_of, always=False, upside_down=False):
    """(clipped gradients, norm), right or with another ``length``; always: short ones, too."""
    norm = length(gradients)
    factor = max_norm / norm if norm and (norm > max_norm or always) else 1.0
    factor = 1 / factor if upside_down else factor
    return [g * factor for g in gradients], norm


def each_alone(gradients, max_norm):
    """Each tensor clipped to ``max_norm`` for itself."""
    return [clip([g], max_norm)[0][0] for g in gradients], norm_of(gradients)


def always(gradients, max_norm, eps=0.0):
    """Scaled to length ``max_norm`` whatever the length was."""
    norm = torch.tensor(norm_of(gradients))
    return [g * (max_norm / (norm + eps)) for g in gradients], norm.item()


def largest(gradients):
    """The largest entry in size."""
    return max(float(g.abs().max()) for g in gradients)


def gradients_fit(evidence, form):
    """Whether the gradients, whatever is said about the norm, are those of ``form``."""
    for trial in evidence.answers():
        would = form(*trial.args)[0]
        if not all(torch.allclose(a, b, atol=1e-5, equal_nan=True)
                   for a, b in zip(trial.got[0], would, strict=True)):  # fmt: skip
            return False
    return len(evidence.answers()) > 3


def some_fit(evidence, ways):
    """Whether the gradients are those of one of several forms."""
    return any(gradients_fit(evidence, way) for way in ways)


def not_zeros(got):
    """Whether an error came, or gradients that are not 0."""
    return isinstance(got, Trouble) or not all(torch.equal(g, 0 * g) for g in got[0])


def zeros_break(evidence):
    """Everything is right but the case in which all gradients are 0."""
    trials = [t for t in evidence.answers() if norm_of(t.args[0])]
    zero = [t for t in evidence.trials if not norm_of(t.args[0])]
    spoiled = [t for t in zero if t.got is not None and not_zeros(t.got)]
    return bool(spoiled) and len(trials) > 3 and all(
        torch.allclose(a, b, atol=1e-5)
        for t in trials for a, b in zip(t.got[0], t.want[0], strict=True)
    ) and all(abs(float(t.got[1]) - t.want[1]) < 1e-3 for t in trials)  # fmt: skip


OTHER_LENGTHS = (
    lambda gs: sum(float(g.abs().sum()) for g in gs),
    lambda gs: norm_of(gs) / math.sqrt(sum(g.numel() for g in gs)),
    lambda gs: max(norm_of([g]) for g in gs),
    lambda gs: norm_of(gs[:1]),
    lambda gs: norm_of(gs[-1:]),
    lambda gs: sum(norm_of([g]) for g in gs) / len(gs),
)
CLIPS = (
    ("per_tensor", "Each gradient is shortened for itself. That changes the direction of the step: "
     "all gradients together are one vector with one length.", (each_alone,)),
    ("values_clipped", "Single numbers are cut off. That changes the direction of the step; "
     "clipping multiplies all gradients by one and the same factor.",
     (lambda gs, m: ([g.clamp(-m, m) for g in gs], 0.0),)),
    ("always_rescaled", "Short gradients are stretched to the limit. Only those longer than it "
     "should change.",
     (always, functools.partial(always, eps=1e-6), functools.partial(clip, always=True))),
    ("sum_of_norms", "The norms of the tensors are added up. Lengths add up by their squares, and "
     "the root comes at the end.",
     (functools.partial(clip, length=lambda gs: sum(norm_of([g]) for g in gs)),)),
    ("no_root", "Your norm is the sum of the squares: its root is missing.",
     (functools.partial(clip, length=lambda gs: norm_of(gs) ** 2),)),
    ("largest_entry", "You compare the largest single number with the limit; asked for is the "
     "length of all gradients together.", (functools.partial(clip, length=largest),)),
    ("other_length", "That is not the length of all gradients together, which is the root of the "
     "sum of **all** squares: no absolute values, no mean, no largest and no first tensor.",
     tuple(functools.partial(clip, length=way) for way in OTHER_LENGTHS)),
    ("upside_down", "Your factor is upside down: it makes long gradients longer.",
     (functools.partial(clip, upside_down=True),)),
    ("never_clipped", "Long gradients come back as they went in: the factor is never used, or "
                      "never smaller than 1.", (lambda gs, m: (list(gs), 0.0),)),
    ("norm_after", "The gradients are right, but the norm is not the one before clipping. After "
     "clipping it says nothing about how large the gradient was.", (clip,)),
)  # fmt: skip


def gradients(draw, factor, *shapes):
    """A list of gradients whose length is ``factor``."""
    found = [draw.normal(*shape) for shape in shapes]
    norm = norm_of(found)
    return [g * (factor / norm) for g in found]


clip_gradients = Checker(
    name="clip_gradients",
    number="10.5",
    component="the training step",
    right=clip,
    reread="The finished step and the finished evaluation",
    inputs=("gradients", "max_norm"),
    outputs=("the clipped gradients", "the norm"),
    misconceptions=(
        Misconception("zero_gradients", "Gradients that are all 0 give NaN or an error: the limit "
                      "is divided by a norm of 0.", signs=zeros_break),
        *(Misconception(key, text, signs=functools.partial(some_fit, ways=ways))
          for key, text, ways in CLIPS),
    ),
    cases=(
        Case("three long gradients of different shapes",
             lambda draw: (gradients(draw, 7.0, (3, 4), (4,), (2, 2, 2)), 1.0)),
        Case("short gradients stay as they are",
             lambda draw: (gradients(draw, 0.6, (2, 3), (3,)), 1.0)),
        Case("each is short, together they are long",
             lambda draw: ([gradients(draw, 0.8, (2, 2))[0] for _ in range(4)], 1.0)),
        Case("another limit", lambda draw: (gradients(draw, 5.0, (4, 3), (6,)), 2.5)),
        Case("one gradient", lambda draw: (gradients(draw, 30.0, (5,)), 0.5)),
        Case("all gradients 0", lambda draw: ([torch.zeros(3), torch.zeros(2, 2)], 1.0)),
    ),
)  # fmt: skip


# --- a step on a batch in parts -------------------------------------------------------------------

RATE = 0.5


def linear(weight, bias, left):
    """A model with these weights, and with a gradient left over from before."""
    model = nn.Linear(weight.size(1), weight.size(0))
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(bias)
    model.weight.grad = left.clone()
    model.bias.grad = left.sum(dim=1)
    return model, torch.optim.SGD(model.parameters(), lr=RATE)


def by_size(parts):
    """The share of each part in all examples."""
    n = sum(len(labels) for _, labels in parts)
    return [len(labels) / n for _, labels in parts]


def whole_step(weight, bias, left, parts, shares=by_size, zero="once", each=False,
               said=lambda logits: logits, clipped=0.0):  # fmt: skip
    """(loss, weight, bias, whether parts were in memory together) after a step, or a wrong one.

    shares: what each part's loss is multiplied by; zero: "once", "never" or "parts", before every
    part; each: a step after every part; said: of the logits, goes into the loss; clipped: to
    which norm, if any.
    """
    model, optimizer = linear(weight, bias, left)
    total = 0.0
    if zero == "once":
        optimizer.zero_grad()
    for share, (inputs, labels) in zip(shares(parts), parts, strict=True):
        if zero == "parts":
            optimizer.zero_grad()
        loss = share * F.cross_entropy(said(model(inputs)), labels)
        loss.backward()
        total += loss.item()
        if each:
            optimizer.step()
    if clipped:
        nn.utils.clip_grad_norm_(model.parameters(), clipped)
    if not each:
        optimizer.step()
    return total, model.weight.detach(), model.bias.detach(), False


class Memory:
    """How many examples wait for their backward pass at the same time: ``most``."""

    def __init__(self, model):
        self.now = self.most = 0
        model.register_forward_hook(self.forward)

    def forward(self, model, inputs, output):
        """Count what comes in, until its gradient comes back."""
        if output.requires_grad:
            self.now += len(output)
            self.most = max(self.most, self.now)
            output.register_hook(functools.partial(self.backward, n=len(output)))

    def backward(self, gradient, n):
        """Count what is done."""
        self.now -= n


class Learner:
    """A learner's step as f(weight, bias, left, parts), returns as ``whole_step``."""

    def __init__(self, attempt):
        self.f, self.graph, self.training = as_function(attempt), False, True

    def __call__(self, weight, bias, left, parts):
        model, optimizer = linear(weight, bias, left)
        memory = Memory(model)
        loss = self.f(model, parts, optimizer)
        self.graph = self.graph or isinstance(loss, torch.Tensor) and loss.requires_grad
        self.training = self.training and model.training
        together = memory.most > max(len(labels) for _, labels in parts)
        return loss, model.weight, model.bias, together


def moves(evidence, **way):
    """Whether the weights, whatever loss is returned, move as in a wrong step."""
    for trial in evidence.answers():
        would = whole_step(*trial.args, **way)[1:3]
        if not all(torch.allclose(a, b, atol=1e-5)
                   for a, b in zip(trial.got[1:3], would, strict=True)):  # fmt: skip
            return False
    return bool(evidence.answers())


def stays(evidence):
    """No weight moves."""
    return bool(evidence.answers()) and all(torch.equal(t.got[1], t.args[0])
                                            for t in evidence.answers())  # fmt: skip


def goes_astray(evidence):
    """The weights move along the gradients left over, or away from them, and nothing else."""
    moved = [(t.got[1], t.args[0] - RATE * t.args[2]) for t in evidence.answers()]
    return bool(moved) and all(torch.allclose(got, old, atol=1e-5) for got, old in moved)


def together(evidence):
    """Everything is right, but several parts wait for the backward pass together."""
    return moves(evidence) and any(t.got[3] for t in evidence.answers())


def ones(parts):
    """Every part's loss counts fully."""
    return [1.0] * len(parts)


def sizes(parts):
    """Every part's loss is a sum over its examples."""
    return [float(len(labels)) for _, labels in parts]


def twice(parts):
    """A growing sum goes back after every part: the first part counts most."""
    return [share * (len(parts) - i) for i, share in enumerate(by_size(parts))]


def equal(parts):
    """Every part has the same share."""
    return [1.0 / len(parts)] * len(parts)


SHARES = (by_size, equal, ones)
STEPS = (
    ("equal_shares", "All parts count the same, so an example in a small part counts more. Each "
     "part's loss is a mean over its own examples.", (dict(shares=equal),)),
    ("summed", "The losses of the parts, or of all examples, are added up as they are: the more of "
     "them, the longer the step. Together they should be one mean.",
     (dict(shares=ones), dict(shares=sizes))),
    ("backward_twice", "A growing sum of losses goes back after every part, so the first part goes "
     "back several times and counts more.", (dict(shares=twice),)),
    ("clipped", "You clip the gradients. Nobody asked for it, and the weights then move otherwise "
     "than for the whole batch at once.", tuple(dict(clipped=norm) for norm in (1.0, 0.5, 5.0))),
    ("softmax_twice", "The model gives logits, and the cross-entropy applies the softmax itself: "
     "you apply it twice.", (dict(said=lambda x: x.softmax(-1)),
                             dict(said=lambda x: x.log_softmax(-1).exp()))),
    ("step_each", "A step is taken after every part: the later parts see another model. One step "
     "is wanted, for all parts.", tuple(dict(each=True, shares=s, zero=z) for s in SHARES
                                    for z in ("once", "never", "parts"))),
    ("zero_between", "The gradients are set back before every part, so only the last part moves "
     "the weights.", tuple(dict(shares=s, zero="parts") for s in SHARES)),
    ("no_zero_grad", "Gradients that were there before go into your step: they add up until "
     "somebody sets them back.", tuple(dict(shares=s, zero="never") for s in SHARES)),
)  # fmt: skip


def wrong_steps():
    """What the check recognises by the weights after the step; first, where these are right."""
    found = [
        Misconception("together", "The weights move right, but two parts are in memory together, "
                      "and that is what there is no room for: let each part go back before the "
                      "next one comes.", signs=together),
        Misconception("wrong_loss", "The weights are right, but the loss you return is not the "
                      "mean over all examples before the step.", signs=moves),
        Misconception("nothing_moves", "No weight has moved: either no step is taken, or the "
                      "gradients are set back before it.", signs=stays),
        Misconception("step_too_early", "The step comes before the gradients of this batch are "
                      "there: the weights move along old ones.", signs=goes_astray),
    ]  # fmt: skip
    for key, text, ways in STEPS:
        signs = functools.partial(lambda e, ways: any(moves(e, **w) for w in ways), ways=ways)
        found.append(Misconception(key, text, signs=signs))
    return tuple(found)


def step_notes(evidence):
    """What a right step returns and leaves behind."""
    found = []
    if evidence.f.graph:
        found.append("the loss that came back still holds its graph; whoever keeps it keeps all of "
                     "the batch in memory, so a plain number is better")  # fmt: skip
    if not evidence.f.training:
        found.append("the model is in evaluation mode afterwards: dropout would be off from now on")
    return tuple(found)


def in_parts(draw, *lengths, loud=1.0):
    """(weight (C, D), bias (C,), a gradient left over (C, D), parts); loud: long gradients."""
    parts = [(loud * draw.normal(n, 4), draw.integers(0, 3, n)) for n in lengths]
    return draw.normal(3, 4), draw.normal(3), draw.normal(3, 4), parts


accumulated_step = Checker(
    name="accumulated_step",
    number="10.6",
    component="the training step",
    right=whole_step,
    reread="The finished step and the finished evaluation",
    inputs=("the weights", "the biases", "the gradients before", "parts"),
    outputs=(
        "the loss",
        "the weights after the step",
        "the biases after the step",
        "whether parts are in memory together",
    ),
    adapt=lambda attempt, draw: Learner(attempt),
    notes=step_notes,
    misconceptions=wrong_steps(),
    cases=(
        Case("two parts of different sizes", lambda draw: in_parts(draw, 6, 2)),
        Case("three parts", lambda draw: in_parts(draw, 1, 5, 3)),
        Case("one part: an ordinary step", lambda draw: in_parts(draw, 5)),
        Case("two equal parts", lambda draw: in_parts(draw, 4, 4, loud=8.0)),
    ),
)
