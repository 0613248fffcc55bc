# %% [markdown]
# # The debugging clinic
#
# *You will be able to:* go from a symptom to its cause with a test of three lines, check a model you have not written, say which check finds which fault, and which faults no check finds.
# *You need:* chapters 04, 05, 09 and 10; each case names the chapter it comes from. *Time:* {{ time }}.

# %% tags=["setup"]
import contextlib
import copy
import math
import textwrap
import torch
import matplotlib.pyplot as plt
from types import SimpleNamespace
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_heatmap, plot_lines, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## The loss goes down. Is the model right?
#
# A wrong model rarely says so. It has the right shapes, it trains, it is only worse than it should be, and nobody knows how good it should be. This chapter is a ward of such models: small, real, each with one fault that people have really made. For each there is a symptom, a test of about three lines, a cause and a fix.
#
# It is a guide to look things up in, not a text to read from end to end. Read the next four sections, then what you need.
#
# > **Borrowed.** From chapters 01 to 10: whatever the patients are made of, such as `EncoderClassifier`, `Batch`, `LinearSchedule`, `classification_loss`, `token_loss`, `evaluate`. From torch: `nn.Linear`, `nn.Dropout`, `nn.BatchNorm1d`, `nn.Identity`, `F.pad`, `F.one_hot`, `F.cross_entropy`, `F.normalize`, `F.embedding`, `F.scaled_dot_product_attention`, `nn.TransformerEncoderLayer`, `nn.TransformerEncoder`, `nn.MultiheadAttention`, `nn.utils.clip_grad_norm_`. The checks come from `encoder_lib.diagnostics`: `check_attention_spread`, `check_attention_weights`, `check_batch_independence`, `check_eval_is_deterministic`, `check_finite`, `check_fully_padded_row`, `check_gradients_reach_all_parameters`, `check_initial_loss`, `check_inputs_unchanged`, `check_keeps_mode`, `check_layers_independent`, `check_loss_function`, `check_loss_ignores_padding`, `check_modules_registered`, `check_order_matters`, `check_overfits_one_batch`, `check_permutation_equivariance`, `check_returns_logits`, `check_tokens_communicate`, `check_tokens_stay_apart`, `check_train_equals_eval`, `check_training_step`, and with them `diagnose`, `attention_entropy`, `token_similarity`.

# %%
from encoder_lib.attention import MultiHeadAttention
from encoder_lib.diagnostics import (
    attention_entropy, check_attention_spread, check_attention_weights, check_batch_independence,
    check_eval_is_deterministic, check_finite, check_fully_padded_row,
    check_gradients_reach_all_parameters, check_initial_loss, check_inputs_unchanged,
    check_keeps_mode, check_layers_independent, check_loss_function, check_loss_ignores_padding,
    check_modules_registered, check_order_matters, check_overfits_one_batch)
from encoder_lib.diagnostics import (
    check_permutation_equivariance, check_returns_logits, check_tokens_communicate,
    check_tokens_stay_apart, check_train_equals_eval, check_training_step, diagnose,
    token_similarity)

# %%
from encoder_lib.embedding import InputEmbedding, SinusoidalPositionalEncoding
from encoder_lib.encoder import EncoderClassifier, EncoderLayer, TransformerEncoder
from encoder_lib.feed_forward import FeedForward
from encoder_lib.normalization import LayerNorm
from encoder_lib.text import Batch, Vocabulary, pad_batch
from encoder_lib.training import LinearSchedule, classification_loss, evaluate, token_loss

# %% [markdown]
# ## From symptom to case
#
# | what you see | look at |
# |---|---|
# | another answer when the text stands in another batch | [1](#1-padding-leaks), [3](#3-mask-on-the-wrong-axis), [5](#5-pooling-counts-padding), [11](#11-positions-on-the-batch-axis) |
# | words do not notice each other | [2](#2-mask-inverted) |
# | an error in some batches, none in others | [3](#3-mask-on-the-wrong-axis), [12](#12-texts-longer-than-the-table) |
# | NaN at once | [4](#4-nan-from-an-empty-text), [24](#24-nan-at-once) |
# | the loss falls, then NaN | [23](#23-falls-then-nan) |
# | high accuracy per token, useless output | [6](#6-padding-counted-in-the-loss) |
# | attention on one token | [7](#7-attention-on-one-token) |
# | attention flat | [8](#8-attention-flat) |
# | columns of the attention map add up to 1 | [9](#9-softmax-over-the-queries) |
# | everything looks right, results are poor | [10](#10-heads-mixed), [14](#14-layers-in-a-plain-list), [18](#18-a-part-without-gradient), [29](#29-what-no-check-finds) |
# | word order makes no difference | [11](#11-positions-on-the-batch-axis), [12](#12-texts-longer-than-the-table) |
# | fewer parameters than expected | [13](#13-layers-shared), [14](#14-layers-in-a-plain-list) |
# | all words of a text become alike | [15](#15-residual-missing) |
# | a second look at the same features differs | [16](#16-input-changed-in-place) |
# | `RuntimeError`: modified by an inplace operation | [17](#17-weights-changed-in-place) |
# | two calls in evaluation mode differ | [19](#19-dropout-that-never-stops) |
# | works in training, not in evaluation | [20](#20-training-and-evaluation-disagree) |
# | dropout is off after the first validation | [21](#21-evaluation-mode-stays) |
# | the loss stops far above 0 | [22](#22-softmax-twice) |
# | the loss stays where it began, at about $\ln C$ | [25](#25-weights-never-move); with many classes also [22](#22-softmax-twice) |
# | the loss falls, but slowly | [26](#26-weights-unknown-to-the-optimizer), [27](#27-the-rate-never-moves) |
# | the loss does not start near $\ln C$ | [28](#28-the-start-is-not-ln-c) |
#
# ## The patients
#
# All patients have the same body: two layers of width 32, four heads, and a head for the gap task (which part of speech is missing?). They see twelve sentences of 4 to 13 words.

# %%
examples = [e for e in load_gap("train") if len(e.text.split()) >= 4][:12]
vocabulary = Vocabulary([e.text.split() for e in examples])
ids = pad_batch([vocabulary.encode(e.text.split()) for e in examples])     # (B, L)
keep = ids != vocabulary.pad_id                                            # (B, L)
labels = torch.tensor([e.label for e in examples])                         # (B,)
print(tuple(ids.shape), f"padding {1 - keep.float().mean():.0%},", "for instance:")
print(examples[7].text, "|", examples[3].text)

# %%
def training_step(p):
    loss = p.loss(p.model(p.ids, p.keep), p.labels)
    p.optimizer.zero_grad()
    loss.backward()
    p.optimizer.step()
    p.schedule.step()
    return loss.item()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=3e-3)

# %% [markdown]
# A fault is a function that changes one thing about a healthy patient: a class, a weight, the loss, the training step.

# %%
def patient(fault=None, seed=0, peak=3e-3, warmup=10):
    _ = torch.manual_seed(seed)
    body = TransformerEncoder(len(vocabulary), 32, 4, 64, n_layers=2, max_len=64, dropout=0.0)
    p = SimpleNamespace(
        body=body, layers=body.encoder.layers, model=EncoderClassifier(body, 4, dropout=0.0),
        ids=ids, keep=keep, labels=labels, loss=classification_loss, step=training_step,
        make_optimizer=adam, token_loss=token_loss,
        evaluate=lambda model: evaluate(model, [Batch(ids, keep, labels)]))
    if fault is not None:
        fault(p)
    p.optimizer = p.make_optimizer(p.model)
    p.schedule = LinearSchedule(p.optimizer, peak, warmup, total=10_000)
    return p

# %% [markdown]
# Many faults sit in the middle of attention. So we open it: the same attention in three small methods, each of which a fault can replace.

# %%
class OpenAttention(MultiHeadAttention):
    def score(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))              # (B, H, L, L)

    def hide(self, scores, keep_mask):
        return scores.masked_fill(~keep_mask[:, None, None, :], -math.inf)

    def share(self, scores):
        return scores.softmax(dim=-1).nan_to_num(0.0)                      # an empty text: zeros

    def forward(self, x, keep_mask=None, return_weights=False):
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        weights = self.share(self.hide(self.score(q, k), keep_mask))        # (B, H, L, L)
        out = self.w_o(self.merge(weights @ v))                             # (B, L, D)
        return (out, weights) if return_weights else out

# %%
def become(p, part, kind):
    for layer in p.layers:
        getattr(layer, part).__class__ = kind                              # keeps the weights


def opened(p):
    become(p, "attention", OpenAttention)


torch.testing.assert_close(patient(opened).model(ids, keep), patient().model(ids, keep))

# %% [markdown]
# ## Learning by heart proves little
#
# The usual advice is to let the model learn one batch by heart. Here are three patients that do. One of them mixes up its heads, one reads the padding.
#
# > **Predict, then run.** Which is the healthy one?

# %%
class Forgetful(OpenAttention):
    def hide(self, scores, keep_mask):
        return scores


def forgets_the_mask(p):
    become(p, "attention", Forgetful)

# %%
class Mixed(OpenAttention):
    def split(self, x):
        return x.reshape(x.size(0), self.n_heads, x.size(1), -1)           # no transpose


def mixes_heads(p):
    become(p, "attention", Mixed)

# %% mystnb={"image": {"alt": "Three lines of training loss over 80 steps, for a healthy model, one that mixes its heads and one that forgets its mask. All three fall from about 1.5 to nearly 0 and can hardly be told apart."}} tags=["nbval-ignore-output"]
curves = {}
for name, fault in {"A": mixes_heads, "B": None, "C": forgets_the_mask}.items():
    p = patient(fault)
    curves[name] = [p.step(p) for _ in range(80)]
    assert curves[name][-1] < 0.1
fig, ax = plot_lines(curves, xlabel="step", ylabel="training loss",
                     title="Twelve sentences by heart: one of these models is right")
plt.show()

# %% tags=["nbval-ignore-output"]
record("B55", "loss after 80 steps, mask forgotten", curves["C"][-1], 1e-6, 0.1)
record("N23", "loss after 80 steps, heads mixed", curves["A"][-1], 1e-6, 0.1)

# %% [markdown]
# B is; A mixes its heads, C reads the padding. You cannot see it, and no threshold on the loss could. What tells them apart is a property that a right model has whatever its weights: **an invariance**. That is what most checks below are: change something that must not matter, and look whether the answer changes; or change something that must.
#
# > **Key idea.** A check needs no right answer. It needs two calls, and the knowledge of what must stay equal between them.
#
# ## How a check is made
#
# A check returns nothing, or raises an `AssertionError` that names the likely cause. And it must not touch what it measures: not the mode, not the random numbers, not the gradients, not the weights, not even when it fails. Otherwise the check is the next fault.

# %% tags=["library"]
@contextlib.contextmanager
def untouched(*things):
    modules = [m for thing in things if isinstance(thing, nn.Module) for m in thing.modules()]
    modes = [(m, m.training) for m in modules]
    places = [(d, name, tensor, tensor.detach().clone(), tensor.grad if tensor.is_leaf else None)
              for m in modules for d in (m._parameters, m._buffers)
              for name, tensor in d.items() if tensor is not None]
    for _, _, tensor, _, gradient in places:
        if gradient is not None:
            tensor.grad = None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for m, mode in modes:
                m.training = mode
            for d, name, tensor, value, gradient in places:
                d[name] = tensor
                if not torch.equal(tensor.detach(), value):
                    tensor.data.copy_(value)
                if tensor.is_leaf:
                    tensor.grad = gradient

# %% [markdown]
# With it a check is short. Here is that of case 1 with all its helpers; the others look alike.

# %% tags=["library"]
@contextlib.contextmanager
def _evaluating(f):
    with untouched(f), torch.no_grad():
        if isinstance(f, nn.Module):
            f.eval()
        yield


def _call(f, x, keep_mask):
    out = f(x.clone()) if keep_mask is None else f(x.clone(), keep_mask.clone())
    return out[0] if isinstance(out, tuple) else out


def _real(out, keep_mask):
    return out[keep_mask] if out.dim() == 3 and keep_mask is not None else out


def _gap(a, b) -> float:
    if a.numel() == 0:
        return 0.0
    size = max(1.0, b.detach().abs().max().item())
    gap = (a - b).detach().abs().max().item() / size
    return gap if gap == gap else float("inf")


def _fail(what: str, likely: str):
    raise AssertionError(f"{what}. Likely: {likely}.")


def _require_same(a, b, tolerance, what, likely):
    if (gap := _gap(a, b)) > tolerance:
        _fail(f"{what} changes the answer by {gap:.1g}", likely)

# %% tags=["library"]
def check_padding_invariance(f, x, keep_mask, extra=7, pad_id=0, tolerance=1e-4) -> None:
    longer_keep = F.pad(keep_mask, (0, extra), value=False)              # (B, L + extra)
    if x.is_floating_point():
        longer = F.pad(x, (0, 0, 0, extra), value=100.0)                 # (B, L + extra, D)
    else:
        longer = F.pad(x, (0, extra), value=pad_id)                      # (B, L + extra)
    with _evaluating(f):
        short = _real(_call(f, x, keep_mask), keep_mask)
        long = _real(_call(f, longer, longer_keep), longer_keep)
    _require_same(long, short, tolerance, f"{extra} more columns of padding",
                  "no mask reaches attention, it is inverted, or pooling counts padding")

# %% [markdown]
# Does it leave no trace? We check it in the worst case, in training mode, with gradients there, and failing.

# %%
p = patient(forgets_the_mask)
p.loss(p.model(ids, keep), labels).backward()
before = copy.deepcopy(p.model.state_dict())
gradient, drawn = p.model.head.weight.grad.clone(), torch.random.get_rng_state()
try:
    check_padding_invariance(p.model, ids, keep)
except AssertionError as finding:
    print(textwrap.fill(str(finding), 95))
assert p.model.training and torch.equal(torch.random.get_rng_state(), drawn)
assert torch.equal(p.model.head.weight.grad, gradient)
assert all(torch.equal(before[name], w) for name, w in p.model.state_dict().items())

# %% [markdown]
# From here on every case ends with `examine`. It runs the case's check on the sick patient, where it must find something, and then on the patient with the fix, where it must find nothing. The fix is the book's own code.

# %%
CLINIC = {}


def examine(fault, check):
    CLINIC[fault.__name__] = fault, check
    try:
        check(patient(fault))
    except AssertionError as finding:
        print(textwrap.fill(f"sick:  {finding}", 95, subsequent_indent="       "))
    else:
        raise RuntimeError(f"{fault.__name__} was not found")
    check(patient())
    print("fixed: nothing found")

# %% [markdown]
# ## Padding and masks
#
# ### 1 padding leaks
#
# *the _ of mustard* gets one answer alone and another in a batch. The three-line test: **add padding, compare.**

# %%
p = patient(forgets_the_mask)
with torch.no_grad():
    alone, longer = p.model(ids[7:8, :4]), p.model(F.pad(ids[7:8, :4], (0, 7)))   # (1, C)
for name, logits in (("alone", alone), ("padded", longer)):
    print(f"{name:7s}", " ".join(f"{share:.2f}" for share in logits[0].softmax(-1)))
print(f"largest change of the logits {(longer - alone).abs().max():.2f}")

# %%
examine(forgets_the_mask, lambda p: check_padding_invariance(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** the mask never reaches the scores. **Fix:** hide padded keys before the softmax (chapter 04).
#
# ### 2 mask inverted
#
# Torch's `nn.MultiheadAttention` wants True = ignore, the book True = real token. With the wrong one the words listen to padding only. The test: **change the first word; do the others notice?**

# %%
class Inverted(OpenAttention):
    def hide(self, scores, keep_mask):
        return super().hide(scores, ~keep_mask)


def inverts_the_mask(p):
    become(p, "attention", Inverted)

# %%
p, other = patient(inverts_the_mask), ids.clone()
other[:, 0] = other[:, 0].roll(1)                                          # other first words
with torch.no_grad():
    change = (p.body(other) - p.body(ids))[:, 1:].abs().max()
print(f"the other words change by {change:.2f}")

# %%
examine(inverts_the_mask, lambda p: check_tokens_communicate(p.body, p.ids, p.keep))

# %% [markdown]
# **Cause:** the opposite convention. **Fix:** convert by name: `to_key_padding_mask`, `from_key_padding_mask`. A map of attention would show it as well: all weight on padding.
#
# ### 3 mask on the wrong axis
#
# A mask of shape (B, L) against scores (B, H, L, L) is an error, unless $B = L$. Then it hides by query and by other texts' lengths, silently. The test: **a batch with B = L against each text alone.**

# %%
class Broadcast(OpenAttention):
    def hide(self, scores, keep_mask):
        return scores.masked_fill(~keep_mask, -math.inf)                   # (B, L), no new axes


def broadcasts_the_mask(p):
    become(p, "attention", Broadcast)

# %%
p, square = patient(broadcasts_the_mask), torch.arange(13) % 12
try:
    p.model(ids, keep)
except RuntimeError as error:
    print(str(error)[:60], "...")
with torch.no_grad():
    alone, together = p.model(ids[7:8], keep[7:8]), p.model(ids[square], keep[square])[7]
print(f"B = L = 13: no error, and the answer changes by {(together - alone).abs().max():.2f}")

# %%
examine(broadcasts_the_mask, lambda p: check_batch_independence(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** broadcasting aligns axes from the right. **Fix:** `keep_mask[:, None, None, :]`, and no shape that is accepted by chance. A test on one text finds nothing, and one with $B \neq L$ stops with an error that does not name the cause.
#
# ### 4 NaN from an empty text
#
# One text of the batch is empty, and the softmax over nothing is 0/0. The pooling drops padded positions, so the logits and the loss are finite. The gradients are not. The test: **a row of padding; forward and backward.**

# %%
class PlainSoftmax(OpenAttention):
    def share(self, scores):
        return scores.softmax(dim=-1)


def ignores_empty_texts(p):
    become(p, "attention", PlainSoftmax)

# %%
p = patient(ignores_empty_texts)
empty = torch.zeros(1, 13, dtype=torch.long)
logits = p.model(torch.cat([ids, empty]))                                  # (B + 1, C)
logits[:12].sum().backward()                                               # of the others only
nan = sum(w.grad.isnan().any().item() for w in p.model.parameters())
print("output finite:", logits.isfinite().all().item(), "  weights with NaN gradients:", nan)

# %%
examine(ignores_empty_texts, lambda p: check_fully_padded_row(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** the backward pass multiplies 0 by NaN, which is NaN, in weights that all texts share. **Fix:** zeros where there is no key (chapter 03).
#
# > **Predict, then run.** "Clip the gradients" is the usual answer to NaN. What does clipping to norm 1 do when some of the gradients are NaN: nothing, repair them, or spread them?

# %%
bad = sum(w.grad.isnan().any().item() for w in p.model.parameters())
_ = nn.utils.clip_grad_norm_(p.model.parameters(), 1.0)
after = sum(w.grad.isnan().all().item() for w in p.model.parameters())
print(f"weights with NaN: {bad} before clipping; completely NaN after it: {after}")
assert bad < after == len(list(p.model.parameters()))
record("B51", "share of the weights with NaN, before", bad / after, 0.1, 0.99)
weights = len(list(p.model.parameters()))
record("B51", "share of the weights with NaN, after", after / weights, 0.995, 1)

# %% [markdown]
# It divides everything by the norm, and the norm is NaN. Clipping helps against large gradients, never against NaN.
#
# ### 5 pooling counts padding
#
# Attention is right, and the mean at the end is not. The symptom is that of case 1, so the test is the same. **Where** it leaks is a matter of testing the body alone.

# %%
class MeanOfAll(EncoderClassifier):
    def forward(self, ids, keep_mask=None):
        return self.head(self.encoder(ids, keep_mask).mean(dim=1))         # (B, C)


def averages_padding(p):
    p.model.__class__ = MeanOfAll


p = patient(averages_padding)
check_padding_invariance(p.body, ids, keep)
print("the body is invariant")

# %%
examine(averages_padding, lambda p: check_padding_invariance(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** padded positions of the output are not zero, and they count in the mean. **Fix:** `masked_mean` (chapter 09).
#
# ### 6 padding counted in the loss
#
# With one label per token, padding needs one too, often 0. A model that always says "padding" is then often right. The test: **more padding, same loss?**

# %%
tags = torch.where(keep, 1 + ids % 3, 0)                                   # (B, L), 0 = padding
always_padding = torch.tensor([5.0, 0, 0, 0]).expand(12, 13, 4)            # (B, L, C)
right = always_padding.argmax(-1) == tags                                  # (B, L)
print(f"accuracy of saying nothing: {right.float().mean():.0%}, of real tokens {right[keep].sum()}")


def counts_padding(p):
    p.token_loss = lambda logits, tags: F.cross_entropy(
        logits.flatten(0, 1), tags.clamp(min=0).flatten())

# %%
examine(counts_padding, lambda p: check_loss_ignores_padding(p.token_loss))

# %% [markdown]
# **Cause:** padding has a label and a place in the mean. **Fix:** label it $-100$ and average over the rest, in the loss and in every metric.
#
# ## Attention
#
# ### 7 attention on one token
#
# The map shows one bright cell per row, in an untrained model. The test: **the entropy of attention at the start,** as a share of the largest possible.

# %%
def draws_too_large(p):
    for layer in p.layers:
        for linear in (layer.attention.w_q, layer.attention.w_k):
            nn.init.normal_(linear.weight)                                 # torch.randn(D, D)


def spread(p):
    with torch.no_grad():
        weights = p.body(ids, keep, return_weights=True)[1]                # N of (B, H, L, L)
    return [attention_entropy(w, keep).share.mean().item() for w in weights]

# %%
print("sick: ", [f"{share:.2f}" for share in spread(patient(draws_too_large))])
print("fixed:", [f"{share:.2f}" for share in spread(patient())])


def weights_of(p):
    with torch.no_grad():
        return p.body(p.ids, p.keep, return_weights=True)[1]

# %%
examine(draws_too_large, lambda p: check_attention_spread(weights_of(p), p.keep))

# %% [markdown]
# **Cause:** weights of variance 1 make scores of variance $d_{model}^2$; the softmax has decided and lets hardly any gradient through (chapter 03). **Fix:** Xavier.
#
# ### 8 attention flat
#
# BERT draws its weights with standard deviation 0.02. It is 768 wide. Copied into a model of width 32, the scores are nearly 0.

# %%
def draws_too_small(p):
    for layer in p.layers:
        for linear in (layer.attention.w_q, layer.attention.w_k):
            nn.init.normal_(linear.weight, std=0.02)


print("sick: ", [f"{share:.4f}" for share in spread(patient(draws_too_small))])

# %%
examine(draws_too_small, lambda p: check_attention_spread(weights_of(p), p.keep))

# %% [markdown]
# **Cause:** a standard deviation is made for a width. **Fix:** one that scales with it. (It is no catastrophe: this patient learns its batch by heart like the others, as the figure at the end shows.)
#
# > **Mind the condition.** "A wrong scale makes attention too sharp or too flat" is a usual diagnosis. Here are three scales for $d_k = 8$. The check finds none of them; case 29 says what does, and where it would find the first.

# %%
class Unscaled(OpenAttention):
    def score(self, q, k):
        return q @ k.transpose(-2, -1)


class WrongScale(OpenAttention):
    def score(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_model)

# %%
for kind in (Unscaled, OpenAttention, WrongScale):
    p = patient()
    become(p, "attention", kind)
    shares = spread(p)
    assert all(0.4 < share < 0.99 for share in shares)
    print(f"{kind.__name__:14s}", [f"{share:.2f}" for share in shares])

# %% [markdown]
# ### 9 softmax over the queries
#
# `softmax(dim=-2)`: the columns add up to 1. It trains. The test: **add up a row.**

# %%
class OverQueries(OpenAttention):
    def hide(self, scores, keep_mask):
        return scores.masked_fill(~keep_mask[:, None, None, :], -1e9)

    def share(self, scores):
        return scores.softmax(dim=-2)


def softmax_over_queries(p):
    become(p, "attention", OverQueries)


rows = weights_of(patient(softmax_over_queries))[0][0, 0].sum(-1)          # (L,)
print("rows add up to", rows[:4].round(decimals=2))

# %%
examine(softmax_over_queries, lambda p: check_attention_weights(weights_of(p), p.keep))

# %% [markdown]
# **Cause:** the wrong axis; on a square matrix no shape complains. The check stops at the first thing it sees, and here that is padding: in a padded column all scores are $-10^9$, and a softmax *down* this column makes them all equal again. So its guess at the cause is wrong, and the sum of a row shows the right one. **Fix:** `dim=-1`, the keys.
#
# ### 10 heads mixed
#
# `view(B, H, L, d_k)` instead of a view and a transpose: a "head" becomes a stretch of neighbouring words. Shapes and row sums are right. The test: **permute the words; is the output permuted?** (Without positions it must be.)

# %%
order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
x = patient().body.embedding(ids).detach()                                 # (B, L, D)
for fault in (mixes_heads, opened):
    stack = patient(fault).body.encoder
    with torch.no_grad():
        mixed, straight = stack(x[:, order], keep[:, order]), stack(x, keep)[:, order]
    print(f"{fault.__name__:12s}{(mixed - straight)[keep[:, order]].abs().max():.2f}")

# %%
examine(mixes_heads, lambda p: check_permutation_equivariance(
    p.body.encoder, p.body.embedding(p.ids).detach(), p.keep))

# %% [markdown]
# **Cause:** memory order. **Fix:** split as (B, L, H, d_k), then swap L and H (chapter 05).
#
# ## Order and length
#
# ### 11 positions on the batch axis
#
# `table[:x.size(0)]` was right when the batch stood second. Now each **text** has a position, and its words have none. The test: **swap two words; does anything but their places change?**

# %%
class OnBatchAxis(SinusoidalPositionalEncoding):
    def forward(self, x):
        return x + self.table[:x.size(0)].unsqueeze(1)                     # (B, L, D) + (B, 1, D)


def numbers_the_batch(p):
    p.body.embedding.positions.__class__ = OnBatchAxis


p, swap = patient(numbers_the_batch), torch.tensor([1, 0, 2, 3])
with torch.no_grad():
    print(f"{(p.model(ids[7:8, swap]) - p.model(ids[7:8, :4])).abs().max():.6f}")

# %%
examine(numbers_the_batch, lambda p: check_order_matters(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** an axis taken for another. **Fix:** positions along axis 1. Batch independence finds it too.
#
# ### 12 texts longer than the table
#
# A table of 8 positions and a text of 13 words. One can read that a text longer than the table gives `inf`, and later a loss that is NaN. Does it?

# %%
table = SinusoidalPositionalEncoding(32, max_len=8).table                  # (8, D)
for read in (lambda: x + table[:13], lambda: F.embedding(torch.arange(13), table)):
    try:
        read()
    except (RuntimeError, IndexError) as error:
        print(f"{type(error).__name__}: {str(error)[:70]}")

# %% [markdown]
# An error at once, never `inf`. (Only a table of one row is broadcast in silence, chapter 02.) The dangerous form is the plaster against the error: clamp the position, so that all later words share the last one.

# %%
class Clamped(SinusoidalPositionalEncoding):
    def forward(self, x):
        return x + self.table[torch.arange(x.size(1)).clamp(max=7)]        # (B, L, D)


def clamps_positions(p):
    p.body.embedding.positions.__class__ = Clamped


examine(clamps_positions, lambda p: check_order_matters(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** the longest text is longer than the table. **Fix:** before training, run the longest text of **all** the data through the model once; the check swaps the last two words of the longest text for the same reason.
#
# ## The stack
#
# ### 13 layers shared
#
# `[layer] * 2`. The test: **count.** Each weight should have one name.

# %%
def shares_layers(p):
    p.layers[1] = p.layers[0]


for fault in (shares_layers, None):
    model = patient(fault).model
    named = dict(model.named_parameters(remove_duplicate=False))
    print(len(named), "names,", len({id(w) for w in named.values()}), "weights")

# %%
examine(shares_layers, lambda p: check_layers_independent(p.model))

# %% [markdown]
# **Cause:** one object in a list several times. **Fix:** make each layer anew (chapter 09).
#
# ### 14 layers in a plain list
#
# The layers run, and nobody trains, moves or saves them. The table and the head learn the batch all the same. The test: **which modules does the model know?**

# %%
def hides_layers(p):
    layers = list(p.body.encoder.layers)
    del p.body.encoder.layers
    p.body.encoder.layers = layers


known = {type(m).__name__ for m in patient(hides_layers).model.modules()}
print("EncoderLayer" in known, sorted(known))

# %%
examine(hides_layers, lambda p: check_modules_registered(p.model))

# %% [markdown]
# **Cause:** `nn.Module` does not look into lists. **Fix:** `nn.ModuleList`.
#
# ### 15 residual missing
#
# Attention averages. Without `x +` each layer brings the words of a text closer together. The test: **the mean cosine between two words of a text.**

# %%
class NoResidual(EncoderLayer):
    def add(self, x, change):
        return self.dropout(change)


def drops_residual(p):
    for layer in p.layers:
        layer.__class__ = NoResidual


for fault in (drops_residual, None):
    with torch.no_grad():
        print(f"{token_similarity(patient(fault).body(ids), keep):.2f}")

# %%
examine(drops_residual, lambda p: check_tokens_stay_apart(p.body, p.ids, p.keep))

# %% [markdown]
# **Cause:** the average is all that is left ([Noci et al. (2022)](../book/bibliography.md), chapter 08). **Fix:** the residual connection.
#
# ### 16 input changed in place
#
# `x += change` saves memory, and writes into the tensor of the caller. Training does not complain here. The test: **look at the input before and after.**

# %%
class InPlace(EncoderLayer):
    def add(self, x, change):
        x += change
        return x


def adds_in_place(p):
    for layer in p.layers:
        layer.__class__ = InPlace

# %%
p = patient(adds_in_place)
with torch.no_grad():
    y = x.clone()
    first, second = p.body.encoder(y, keep), p.body.encoder(y, keep)
print(f"the same features twice: {(second - first)[keep].abs().max():.2f} apart")

# %%
examine(adds_in_place, lambda p: check_inputs_unchanged(
    p.body.encoder, p.body.embedding(p.ids).detach(), p.keep))

# %% [markdown]
# **Cause:** `+=` on a tensor is not `x = x + change`. **Fix:** the second form.
#
# ### 17 weights changed in place
#
# The softmax needs its own result for the backward pass. Who edits it in place destroys it.

# %%
class EditedWeights(OpenAttention):
    def share(self, scores):
        weights = scores.softmax(dim=-1)
        weights[weights < 1e-3] = 0.0                                      # "only tidying up"
        return weights


def edits_weights(p):
    become(p, "attention", EditedWeights)

# %%
def check_backward(p):
    try:
        p.loss(p.model(p.ids, p.keep), p.labels).backward()
    except RuntimeError as error:
        raise AssertionError(str(error)[:95] + " ...") from error

# %%
examine(edits_weights, check_backward)

# %% [markdown]
# **Cause:** the tensor is needed as it was. **Fix:** `masked_fill` instead of `masked_fill_` and assignments. This fault is a friendly one: torch finds it.
#
# ### 18 a part without gradient
#
# A `torch.no_grad()` or `.detach()` from an experiment was left in. The rest learns the batch by heart. The test: **who has a gradient?**

# %%
class CutOff(InputEmbedding):
    def forward(self, ids):
        with torch.no_grad():
            return super().forward(ids)                                    # (B, L, D)


def cuts_gradient(p):
    p.body.embedding.__class__ = CutOff


p = patient(cuts_gradient)
p.loss(p.model(ids, keep), labels).backward()
print([name for name, w in p.model.named_parameters() if w.grad is None])

# %%
examine(cuts_gradient, lambda p: check_gradients_reach_all_parameters(
    p.model, Batch(p.ids, p.keep, p.labels)))

# %% [markdown]
# **Cause:** the graph ends there. **Fix:** take it out; to freeze on purpose use `requires_grad_(False)`, which the check respects.
#
# ## Modes
#
# ### 19 dropout that never stops
#
# `nn.Dropout` made inside `forward` is not part of the model, so `eval()` does not reach it. The test: **ask twice.**

# %%
class FreshDropout(FeedForward):
    def forward(self, x):
        return nn.Dropout(0.1)(super().forward(x))                         # (B, L, D)


def makes_dropout_in_forward(p):
    become(p, "feed_forward", FreshDropout)


model = patient(makes_dropout_in_forward).model.eval()
with torch.no_grad():
    print("equal:", torch.equal(model(ids), model(ids)))

# %%
examine(makes_dropout_in_forward, lambda p: check_eval_is_deterministic(p.model, p.ids))

# %% [markdown]
# **Cause:** a new module is in training mode. **Fix:** make it in `__init__`; with `F.dropout` pass `training=self.training`.
#
# ### 20 training and evaluation disagree
#
# With dropout 0 both modes must agree. With BatchNorm they do not: in training it uses the batch's mean, in evaluation a running one. The test: **one batch, two modes.**

# %%
class OverBatch(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x):
        return self.norm(x.flatten(0, 1)).view_as(x)                       # (B, L, D)


def normalises_over_batch(p):
    for layer in p.layers:
        layer.norm_1, layer.norm_2 = OverBatch(32), OverBatch(32)

# %%
p = patient(normalises_over_batch)
with torch.no_grad():
    print(f"{(p.model.train()(ids, keep) - p.model.eval()(ids, keep)).abs().max():.1f}")

# %%
examine(normalises_over_batch, lambda p: check_train_equals_eval(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** statistics over other texts, and over padding. **Fix:** LayerNorm (chapter 07). "Works in training, not in evaluation" has a second cause, dropout; so build the model with dropout 0 before you test.
#
# ### 21 evaluation mode stays
#
# After the first validation dropout is off for good. The test: **the mode before and after.**

# %%
def careless_evaluation(model):
    model.eval()
    with torch.no_grad():
        return (model(ids, keep).argmax(-1) == labels).float().mean()


def stays_in_eval(p):
    p.evaluate = careless_evaluation


p = patient(stays_in_eval)
_ = p.evaluate(p.model.train())
print("still training:", p.model.training)

# %%
examine(stays_in_eval, lambda p: check_keeps_mode(p.evaluate, p.model))

# %% [markdown]
# **Cause:** no `train()` afterwards, or an error before it. **Fix:** restore the mode that was found, in a `finally` (chapter 10).
#
# ## Loss and training
#
# ### 22 softmax twice
#
# The model ends in a softmax, and the loss has one too. With $C$ classes the most confident right answer is $(1, 0, \dots)$, and the loss takes these for logits. It cannot fall below
#
# $$
# -\ln \frac{e}{e + C - 1} = \ln\!\left(1 + \frac{C - 1}{e}\right) \tag{13.1}
# $$
#
# > **Predict, then run.** For four classes, is that floor about 0.1, 0.4 or 0.7? And does the **initial** loss give the fault away?

# %%
class Probabilities(EncoderClassifier):
    def forward(self, ids, keep_mask=None):
        return super().forward(ids, keep_mask).softmax(dim=-1)             # (B, C)


def softmax_twice(p):
    p.model.__class__ = Probabilities

# %% tags=["nbval-ignore-output"]
p = patient(softmax_twice)
losses = [p.step(p) for _ in range(80)]
floor = math.log(1 + 3 / math.e)
print(f"floor {floor:.2f}, loss after 80 steps {losses[-1]:.2f}, at the start {losses[0]:.2f}")
assert abs(losses[-1] - floor) < 0.02 and abs(losses[0] - math.log(4)) < 0.2
record("N46", "loss after learning by heart", losses[-1], 0.7, 0.8)

# %%
examine(softmax_twice, lambda p: check_overfits_one_batch(
    p.model, Batch(p.ids, p.keep, p.labels), p.loss))
examine(softmax_twice, lambda p: check_returns_logits(p.model, p.ids))

# %% [markdown]
# The start gives nothing away: it is near $\ln 4$, as it should be. **Cause:** `F.cross_entropy` takes logits. **Fix:** return logits. The second check needs no training.
#
# ### 23 falls, then NaN
#
# The usual explanation is "the learning rate is too large, the gradients explode". We take a rate 300 times too large, and twice the same model: with a loss written by hand as $-\ln(\operatorname{softmax})$, and with the book's.

# %%
def log_by_hand(p):
    p.loss = lambda logits, labels: -(
        F.one_hot(labels, 4) * logits.softmax(-1).log()).sum(-1).mean()


def losses_at(rate, fault, seed):
    p = patient(fault, seed, peak=rate, warmup=30)
    return torch.tensor([p.step(p) for _ in range(60)])

# %% [markdown]
# > **Predict, then run.** Which of the two becomes NaN?

# %% tags=["nbval-ignore-output"]
with_nan = []
for fault in (log_by_hand, None):
    for seed in range(3):
        losses = losses_at(1.0, fault, seed)
        finite = losses.isfinite()
        print("by hand" if fault else "logits ", f"lowest {losses[finite].min():.2f},",
              "NaN at step" if not finite.all() else "no NaN",
              "" if finite.all() else finite.int().argmin().item())
        assert finite.all() == (fault is None) and losses[finite].min() < 0.1
        with_nan.append(not finite.all().item())
record("B52", "runs of 3 with NaN, logarithm by hand", sum(with_nan[:3]), 3, 3)
record("B52", "runs of 3 with NaN, loss on logits", sum(with_nan[3:]), 0, 0)

# %% [markdown]
# Only the one by hand, in every run. The rate makes large logits. A probability falls below the smallest float and becomes 0, its logarithm $-\infty$, and $0 \cdot \infty$ is NaN. With the logarithm computed from the logits the same rate gives a rough ride and no NaN. The test needs no training: **extreme logits, finite loss?**

# %%
logits = torch.tensor([[200.0, 0, 0, 0]])
p = patient(log_by_hand)
print(p.loss(logits, torch.tensor([0])), classification_loss(logits, torch.tensor([0])))

# %%
examine(log_by_hand, lambda p: check_loss_function(p.loss))

# %% [markdown]
# **Cause:** `exp` and `log` one after the other. **Fix:** `F.cross_entropy` on logits, and a smaller rate as well.
#
# ### 24 NaN at once
#
# A LayerNorm without `eps`, in a model without positions. Padding is a row of zeros, its standard deviation is 0. The test: **the first module whose output is not finite.**

# %%
class NoEps(LayerNorm):
    def forward(self, x):
        x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)       # (B, L, D)
        return x * self.weight + self.bias


def norm_without_eps(p):
    p.body.embedding.positions = nn.Identity()
    for layer in p.layers:
        layer.norm_1.__class__ = layer.norm_2.__class__ = NoEps


logits = patient(norm_without_eps).model(ids, keep)                        # (B, C)
print("texts with NaN:", logits.isnan().any(1).sum().item(), "of 12")

# %%
examine(norm_without_eps, lambda p: check_finite(p.model, p.ids, p.keep))

# %% [markdown]
# **Cause:** 0/0 at a constant vector. **Fix:** `eps` inside the root (chapter 07). With positions the fault sleeps, because no row is constant:

# %%
def sleeping(p):
    norm_without_eps(p)
    p.body.embedding.positions = SinusoidalPositionalEncoding(32, 64)


print("finite:", patient(sleeping).model(ids, keep).isfinite().all().item())

# %% [markdown]
# ### 25 weights never move
#
# Three lines in the wrong order. The loss stays where it began, to the last digit. The test: **compare the weights before and after a step.**

# %%
def step_in_wrong_order(p):
    loss = p.loss(p.model(p.ids, p.keep), p.labels)
    loss.backward()
    p.optimizer.zero_grad()
    p.optimizer.step()
    return loss.item()


def zeroes_too_late(p):
    p.step = step_in_wrong_order


p = patient(zeroes_too_late)
print("different losses in 10 steps:", len({p.step(p) for _ in range(10)}))

# %%
def check_step(p):
    check_training_step(lambda: p.step(p), p.model, p.optimizer, p.schedule)


examine(zeroes_too_late, check_step)

# %% [markdown]
# **Cause:** the gradients are thrown away before the step. **Fix:** `zero_grad`, `backward`, `step`.
#
# ### 26 weights unknown to the optimizer
#
# The optimizer was made from a part of the model, or before a part was added. The loss falls, because the rest learns. The test: the same.

# %%
def trains_head_only(p):
    p.make_optimizer = lambda model: torch.optim.Adam(model.head.parameters(), lr=3e-3)


p = patient(trains_head_only)
held = {id(w) for group in p.optimizer.param_groups for w in group["params"]}
print(sum(id(w) in held for w in p.model.parameters()), "of", len(list(p.model.parameters())))

# %%
examine(trains_head_only, check_step)

# %% [markdown]
# **Cause:** the list of parameters. **Fix:** make the optimizer last, from `model.parameters()`.
#
# ### 27 the rate never moves
#
# A warm-up schedule whose `step` nobody calls stays at its first rate, the smallest of all. The test: **the rate of two steps.**

# %%
def step_without_schedule(p):
    loss = p.loss(p.model(p.ids, p.keep), p.labels)
    p.optimizer.zero_grad()
    loss.backward()
    p.optimizer.step()
    return loss.item()


def forgets_the_schedule(p):
    p.step = step_without_schedule


for p in (patient(forgets_the_schedule), patient()):
    print([f"{(p.step(p), p.schedule.rate)[1]:.4f}" for _ in range(3)])

# %%
examine(forgets_the_schedule, check_step)

# %% [markdown]
# **Cause:** no `schedule.step()`. **Fix:** once after each `optimizer.step()`, not per epoch, not before.
#
# ### 28 the start is not ln C
#
# "An untrained model has a loss of $\ln C$." A head that starts ten times too large does not. But how near is near?
#
# > **Predict, then run.** Thirty **healthy** patients, four classes, $\ln 4 = 1.39$. How many start within 0.3 of it: all, nearly all, about half?

# %%
def draws_large_head(p):
    with torch.no_grad():
        p.model.head.weight.mul_(10)


def initial_losses(fault):
    patients = [patient(fault, seed) for seed in range(30)]
    with torch.no_grad():
        return torch.stack([p.loss(p.model(ids, keep), labels) for p in patients])   # (30,)

# %%
start = initial_losses(None)
near = ((start - math.log(4)).abs() < 0.3).sum().item()
print(f"healthy: {start.min():.1f} to {start.max():.1f}, within 0.3: {near} of 30")
print(f"head 10 times too large: median {initial_losses(draws_large_head).median():.0f}")
assert 12 <= near <= 24
record("N48", "share of starts within 0.3 of ln C", near / 30, 0.4, 0.8)

# %% [markdown]
# About half. The texts share much of their pooled vector, so a random head leans to one class for most of them, and the loss depends on which:

# %%
with torch.no_grad():
    favourites = [patient(None, seed).model(ids, keep).argmax(-1).bincount().max()
                  for seed in range(30)]
print(f"texts that the favourite class gets: median {torch.tensor(favourites).median()} of 12")
assert 6 <= torch.tensor(favourites).median() <= 10

# %% [markdown]
# The check therefore allows 1.5 above and 0.5 below. Below is the more telling side: nobody knows anything yet.

# %%
examine(draws_large_head, lambda p: check_initial_loss(
    p.model, Batch(p.ids, p.keep, p.labels), 4, p.loss))

# %%
def averages_over_classes(p):
    p.loss = lambda logits, labels: (F.one_hot(labels, 4) * -logits.log_softmax(-1)).mean()


examine(averages_over_classes, lambda p: check_loss_function(p.loss))

# %% [markdown]
# The second one divides by the classes as well. With **equal** logits the loss must be exactly $\ln C$, and here no luck is involved.
#
# ### 29 what no check finds
#
# Labels that belong to the neighbouring text, and a wrong scale:

# %%
def shifts_labels(p):
    p.labels = p.labels.roll(1)


def forgets_the_scale(p):
    become(p, "attention", Unscaled)


def treat(p):
    return diagnose(p.model, Batch(p.ids, p.keep, p.labels), 4, p.loss,
                    lambda: p.step(p), p.optimizer, p.schedule)

# %%
for fault in (shifts_labels, forgets_the_scale, None):
    found = treat(patient(fault))
    name = fault.__name__ if fault else "healthy"
    print(f"{name:18s}{len(found)} checks, findings: {sum(v is not None for v in found.values())}")
    assert not any(found.values())

# %% [markdown]
# Both are valid models of something else. How many of the twelve labels are wrong, and does the patient mind?

# %%
p = patient(shifts_labels)
wrong = (p.labels != labels).sum().item()
last = [p.step(p) for _ in range(80)][-1]
print(f"wrong labels: {wrong} of 12, loss below 0.1 after 80 steps: {last < 0.1}")
assert wrong == 8 and last < 0.1

# %% [markdown]
# Neighbours often share a label, so eight are wrong. They are learned by heart like right ones; only **new** texts tell, against a baseline (chapter 10).
#
# Attention with another scale keeps every invariance. Is it always that well hidden? Our heads are narrow. With $d_k = 64$, as in BERT, the same fault:

# %%
_ = torch.manual_seed(0)
with torch.no_grad():
    _, wide = Unscaled(256, 4)(torch.randn(12, 13, 256), keep, return_weights=True)
try:
    check_attention_spread([wide], keep)
    found_wide = False
except AssertionError as finding:
    found_wide = True
    print(textwrap.fill(f"d_k = 64: {finding}", 95))
assert found_wide

# %% [markdown]
# With wide heads and no scale at all the spread gives it away. With $d_k = 8$ it did not here, and a mild fault hides at any width: only a **reference** tells for sure. That is the next section.
#
# > **Warning.** Passing every check means: no fault of these kinds. It does not mean: right.
#
# ## Check against torch
#
# A twin finds what invariances cannot. Five forms of attention against `F.scaled_dot_product_attention`, with the same weights: the largest difference of outputs and gradients.

# %%
def by_torch(a, y, mask):
    q, k, v = (w(y).unflatten(-1, (4, 8)).transpose(1, 2) for w in (a.w_q, a.w_k, a.w_v))
    out = F.scaled_dot_product_attention(q, k, v, mask[:, None, None])     # (B, H, L, d_k)
    return a.w_o(out.transpose(1, 2).flatten(2))                           # (B, L, D)

# %%
def differs_from_torch(kind, dtype=torch.float32, mask=keep):
    a = patient().layers[0].attention.to(dtype)
    a.__class__ = kind
    y = x.to(dtype).clone().requires_grad_()                               # (B, L, D)
    upstream = torch.randn(int(mask.sum()), 32, dtype=dtype) / 100
    ours, theirs = a(y, mask)[mask], by_torch(a, y, mask)[mask]            # (n, D)
    gaps = [ours - theirs]
    for g, h in zip(*(torch.autograd.grad((out * upstream).sum(), [y, *a.parameters()])
                      for out in (ours, theirs))):
        gaps.append(g - h)
    return max(gap.abs().max().item() for gap in gaps)

# %%
for kind in (OpenAttention, Unscaled, WrongScale, Mixed, Forgetful):
    print(f"{kind.__name__:16s}{differs_from_torch(kind):.2f}")
for mask in (keep, torch.ones_like(keep)):
    assert differs_from_torch(OpenAttention, torch.float32, mask) < 1e-5
    assert differs_from_torch(OpenAttention, torch.float64, mask) < 1e-10
assert min(differs_from_torch(kind) for kind in (Unscaled, WrongScale, Mixed, Forgetful)) > 0.01

# %% [markdown]
# The checks take any function, so they can examine torch's own encoder as well. Its mask says True = ignore, hence the wrapper.
#
# > **Predict, then run.** Does torch's encoder pass all six?

# %%
def of_torch():
    _ = torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Wrapped(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.stack = stack

    def forward(self, x, keep_mask):
        return self.stack(x, src_key_padding_mask=~keep_mask)              # (B, L, D)

# %%
torchs = Wrapped(of_torch())
for check in (check_padding_invariance, check_batch_independence, check_permutation_equivariance,
              check_train_equals_eval, check_inputs_unchanged, check_layers_independent):
    arguments = (torchs,) if check is check_layers_independent else (torchs, x, keep)
    try:
        check(*arguments)
        print("passes", check.__name__)
    except AssertionError as finding:
        print(textwrap.fill(f"FAILS  {check.__name__}: {finding}", 95, subsequent_indent="       "))

# %% [markdown]
# All but one: its layers are deep copies and start with equal values (chapter 09). Not a wrong result, but not what you would choose.
#
# ## In this order
#
# `diagnose` runs the checks in the order in which they are worth looking at: first what everything else depends on, training last. An early finding often explains the later ones.

# %%
found = treat(patient(norm_without_eps))
for i, (name, finding) in enumerate(found.items(), 1):
    print(f"{i:2d} {name:32s}", "passes" if finding is None else "FINDS SOMETHING")
assert sum(finding is not None for finding in found.values()) > len(found) / 2

# %% [markdown]
# One NaN makes more than half of the checks complain; the first of them names the module. Now the whole ward: every fault, every check.

# %%
in_routine = [name for name in CLINIC if name not in ("counts_padding", "stays_in_eval")]
silent = {"shifts_labels": shifts_labels, "forgets_the_scale": forgets_the_scale}
faults = {name: CLINIC[name][0] for name in in_routine} | silent
results = {name: treat(patient(fault)) for name, fault in faults.items()}
columns = list(results["mixes_heads"])


def grade(finding):
    return 0 if finding is None else 1 if "Error: " in finding else 2


matrix = torch.tensor([[grade(found[c]) for c in columns] for found in results.values()])

# %% mystnb={"image": {"alt": "Matrix of faults (rows) against checks (columns): dark cells where the check passes, bright ones where it finds the fault. Most faults are found by one to three checks. The two last rows, shifted labels and the forgotten scale, are empty; the column 'overfits one batch' has few bright cells."}}
fig, ax = plot_heatmap(
    matrix, row_labels=[name.replace("_", " ") for name in results],
    column_labels=[name.replace("_", " ").replace("all parameters", "all") for name in columns],
    xlabel="check", ylabel="fault",
    title="Which check finds which fault", annotate=False,
    value_label="")
fig.axes[-1].set_yticks([0, 1, 2], ["passes", "other\nerror", "finds it"])
plt.show()

# %%
found = matrix > 0                                                         # (faults, checks)
assert found[:-2].any(1).all() and not found[-2:].any()
by_check = dict(zip(columns, found.sum(0).tolist()))
print("faults that each check finds, or stops at with another error")
for name, n in sorted(by_check.items(), key=lambda item: -item[1]):
    print(f"{name:32s}{n:3d}  {'#' * n}")

# %%
only = [columns[row.int().argmax()] for row in found if row.sum() == 1]
print(f"{len(results)} faults; found by a single check: {len(only)}")
heart = columns.index("overfits_one_batch")
print(f"stopped or found by learning one batch by heart: {found[:, heart].sum()}, "
      f"of these found: {(matrix[:, heart] == 2).sum()}")
assert len(only) >= 8 and by_check["overfits_one_batch"] <= 6
assert "overfits_one_batch" not in only

# %%
learned = []
for fault, _ in CLINIC.values():
    try:
        p = patient(fault)
        learned.append([p.step(p) for _ in range(80)][-1] < 0.1)
    except RuntimeError:                                                   # some stop with an error
        learned.append(False)
print(f"learn the batch by heart with their own steps: {sum(learned)} of {len(learned)}")
assert 20 <= sum(learned) <= 26

# %%
record("N40", "findings of all checks, scale forgotten, d_k of 8", found[-1].sum(), 0, 0)
record("N40", "found by the spread of attention, d_k of 64", float(found_wide), 1, 1)

# %% [markdown]
# Read the figure by columns. No check finds everything. Learning by heart, the most popular one, finds few, and each of those is found by another check as well. Many faults have exactly one check, so leaving one out leaves a hole.
#
# > **Tip.** On your own model: run `diagnose(model, batch, n_classes)` before the first long training, with dropout 0, and after every change of the model.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. In the last three you write a **test**, and its check is a ward: it tries your test on healthy models and on sick ones.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 13.1** (difficulty 1 of 5, 5 min, predict). Equation (13.1) for 1000 classes: what is the lowest loss that a model with a doubled softmax can reach? And what does guessing cost?

# %% tags=["exercise"]
answer = ...  # the lowest loss, to three digits
checks.answer("13.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# answer = math.log(1 + 999 / math.e)
# ```
#
# 5.91, where guessing costs $\ln 1000 = 6.91$: between knowing nothing and knowing everything lies a difference of 1, so such a loss says next to nothing. With two classes it is 0.31 against 0.69.
#
# ```python
# for classes, floor in ((2, 0.3133), (1000, 5.9095)):
#     perfect = torch.eye(classes)[:1]
#     value = F.cross_entropy(perfect, torch.tensor([0])).item()
#     assert abs(value - math.log(1 + (classes - 1) / math.e)) < 1e-4
#     assert abs(value - floor) < 1e-3
# ```
#
# </details>
#
# > **Exercise 13.2** (difficulty 2 of 5, 10 min, break). Add a patient: its positions are there and multiplied by 0. Which checks find it? Guess first.
#
# <details>
# <summary>Solution</summary>
#
# One: nothing notices a swap of two words.
#
# ```python
# def silences_positions(p):
#     p.body.embedding.positions.table.zero_()
#
# found = {name for name, finding in treat(patient(silences_positions)).items() if finding}
# assert found == {"order_matters"}
# ```
#
# </details>
#
# > **Exercise 13.3** (difficulty 2 of 5, 10 min, explore). `check_overfits_one_batch` brings its own optimizer, so it does not find `trains_head_only`. Use the patient's own steps. After 80 of them, where do the healthy and the sick one stand?
#
# <details>
# <summary>Solution</summary>
#
# The healthy one is near 0; the head alone has learned a part.
#
# ```python
# def own_steps(fault):
#     p = patient(fault)
#     return [p.step(p) for _ in range(80)][-1]
#
# assert own_steps(None) < 0.1 < 0.25 < own_steps(trains_head_only)
# ```
#
# </details>
#
# > **Exercise 13.4** (difficulty 2 of 5, 15 min, implement). `check_padding_invariance` appends padding. Write a test that leaves the shape alone and changes what **stands** in the padding: `my_padding_test(model, x, keep)`, where `model(x, keep)` turns features `x` (B, L, D) into (B, L, D), and `keep` (B, L) is True for real tokens, some of which are followed by padding. It returns True when no part of the padding matters to any real token, else False. (A test that raises an `AssertionError` instead of returning False will do as well.) Some of the models have dropout and come in training mode, and one leaks only about 0.001. Leave `x` and the model as they were.

# %% tags=["exercise"]
def my_padding_test(model, x, keep):
    ...  # your code: return True for a healthy model, False for a sick one


checks.padding_invariant(my_padding_test)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_padding_test(model, x, keep):
#     other = torch.where(keep.unsqueeze(-1), x, 10 * torch.randn_like(x))    # (B, L, D)
#     mode = model.training
#     model.eval()
#     try:
#         with torch.no_grad():
#             gap = (model(x, keep) - model(other, keep))[keep]               # (n, D), real tokens
#     finally:
#         model.train(mode)
#     return gap.abs().max().item() < 1e-5
# ```
#
# Only real rows are compared: what comes out at a padded position may follow what went in. NaN would be too strong a garbage, because 0 times NaN is NaN.
#
# ```python
# features = patient().body.embedding(ids).detach()              # (B, L, D)
# assert my_padding_test(patient().body.encoder, features, keep)
# for fault in (forgets_the_mask, inverts_the_mask):
#     assert not my_padding_test(patient(fault).body.encoder, features, keep)
# ```
#
# </details>
#
# > **Exercise 13.5** (difficulty 3 of 5, 15 min, implement). Write `my_leak_test(model, x, keep)`, arguments as before, that returns True when **no** text of the batch has an effect on **any** other. Test the model in the mode in which it comes; nothing here has dropout. A leak may have a direction, from one text to another and not back, and it may be as small as 0.0005. Which patient of this chapter fails it in training mode, and in no other?

# %% tags=["exercise"]
def my_leak_test(model, x, keep):
    ...  # your code: return True for a healthy model, False for a sick one


checks.texts_do_not_leak(my_leak_test)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_leak_test(model, x, keep):
#     x = x.clone().requires_grad_()                                          # (B, L, D)
#     out = model(x, keep)                                                    # (B, L, D)
#     for b in range(len(x)):
#         (gradient,) = torch.autograd.grad(out[b].square().sum(), x, retain_graph=True)
#         gradient[b] = 0.0                              # a text may depend on itself
#         if gradient.any():
#             return False
#     return True
# ```
#
# The gradient needs no tolerance: where there is no path it is exactly 0. Comparing each text alone with the batch finds the same, up to rounding. BatchNorm in training mode lets texts see each other; in evaluation mode it does not.
#
# ```python
# stack = patient(normalises_over_batch).body.encoder
# assert my_leak_test(patient().body.encoder, x, keep)
# assert my_leak_test(stack.eval(), x, keep) and not my_leak_test(stack.train(), x, keep)
# ```
#
# </details>
#
# > **Exercise 13.6** (difficulty 4 of 5, 20 min, implement). `forgets_the_scale` keeps every invariance. But there is a test that needs no twin: for random `q` and `k` of mean 0 and variance 1 you can predict the variance of the scores (chapter 03). Write `my_scale_test(score, d_k)`, where `score(q, k)` turns `q` and `k` (..., L, `d_k`) into scores (..., L, L). It returns True for the right scale and False for every wrong one; the mildest of them divides by $\sqrt{2 d_k}$. Its verdict must not depend on luck.

# %% tags=["exercise"]
def my_scale_test(score, d_k):
    ...  # your code: return True for the right scale, False for a wrong one


checks.finds_wrong_scale(my_scale_test)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_scale_test(score, d_k):
#     q, k = torch.randn(100, 16, d_k), torch.randn(100, 16, d_k)
#     return 0.75 < score(q, k).var().item() < 1.35
# ```
#
# The variance is 1 with the right scale, $d_k$ without one, $1/2$ for $\sqrt{2 d_k}$. A hundred texts of sixteen tokens make it exact to a few per cent. A single known pair would do as well: two vectors of ones have the score $\sqrt{d_k}$.
#
# ```python
# def passes(kind):
#     p = patient()
#     become(p, "attention", kind)
#     return my_scale_test(p.layers[0].attention.score, 8)
#
#
# assert passes(OpenAttention) and not passes(Unscaled) and not passes(WrongScale)
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"The loss goes down, so the model is right."* About four in five of the patients of this chapter learned their twelve sentences by heart, with their own steps.
#
# > **Misconception.** *"NaN means that the learning rate is too large."* With a rate 300 times too large and a loss on logits there was no NaN in any run; with a logarithm by hand there was one in every run. The rate is the occasion, the arithmetic is the cause.
#
# > **Misconception.** *"Gradient clipping protects from NaN."* One NaN gradient makes the norm NaN, and clipping spreads it to every weight.
#
# > **Misconception.** *"An untrained classifier starts at $\ln C$."* Roughly. About half of the healthy ones here missed it by more than 0.3. Exactly $\ln C$ is the loss of equal logits.
#
# > **Misconception.** *"A text longer than `max_len` gives `inf` or NaN."* It gives an error, unless somebody has silenced it. Only a table of **one** row is broadcast without a word (chapter 02).

# %% [markdown]
# ## Quiz
#
# Seven questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(13)

# %% [markdown]
# ## Summary
#
# - Most faults keep shapes, run without errors and train. Learning one batch by heart finds few of them.
# - A check changes what must not matter (padding, company, mode, a second call) or what must (order, another word), and compares two calls. It names the likely cause and leaves no trace.
# - Test with dropout 0, with padding, with a batch where B = L, with an empty text, and with the longest text.
# - `diagnose` runs everything in order. An early finding explains later ones.
# - What keeps all invariances, such as a slightly wrong scale, needs a reference; what is right about wrong data needs a baseline.
#
# ## Sources
#
# The faults are reports of readers and users of public repositories, put into our own words and code. Scale and residual: [Vaswani et al. (2017)](../book/bibliography.md). Token collapse: [Noci et al. (2022)](../book/bibliography.md). Xavier: [Glorot and Bengio (2010)](../book/bibliography.md). BERT's standard deviation of 0.02: [Devlin et al. (2019)](../book/bibliography.md) and its published code. Torch: [Paszke et al. (2019)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
