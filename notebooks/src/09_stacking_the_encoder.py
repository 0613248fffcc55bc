# %% [markdown]
# # Stacking: the whole encoder
#
# *You will be able to:* stack layers without sharing or losing their weights, build the whole model and count its parameters, check it against torch's, gradients included, name three traps in torch's, and test a model you have not written.
# *You need:* chapter 08 and the chapters before it. *Time:* {{ time }}.

# %% tags=["setup"]
import copy
import math
import warnings
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_bars, plot_heatmap, plot_lines, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## Why more than one layer?
#
# One layer already lets every word look at every other word. So what is a second layer for?
#
# > **Borrowed.** From torch, for this chapter: `nn.ModuleList`, which registers the modules in it, `nn.Identity`, `nn.Linear`, `nn.Dropout`, `F.cross_entropy`, `F.normalize`, and as twins for comparison `nn.TransformerEncoderLayer`, `nn.TransformerEncoder`, `nn.LayerNorm`. `copy_to_torch` copies the weights of our modules into torch's.

# %%
from encoder_lib.attention import xavier_linear_
from encoder_lib.embedding import (InputEmbedding, LearnedPositionalEmbedding, TokenEmbedding,
                                   require_dropout, require_ids, require_positive)
from encoder_lib.encoder import EncoderLayer, require_choice
from encoder_lib.masks import as_keep_mask, keep_mask_from_ids
from encoder_lib.normalization import LayerNorm, RMSNorm
from encoder_lib.text import Vocabulary, pad_batch
from encoder_lib.torch_parity import copy_to_torch

# %%
train, test = load_gap("train"), load_gap("test")
vocabulary = Vocabulary([example.text.split() for example in train], min_count=2)
bank, tooth = "that bank holds the mortgage on my home", "the baby cut a tooth"
restored = {example.text.replace("_", example.word) for example in test}
assert {bank, tooth} <= restored


def encode(*sentences, length=None):
    return pad_batch([vocabulary.encode(s.split()) for s in sentences], length=length)  # (B, L)


print(encode(bank, tooth))

# %% [markdown]
# The sentences are those of the gap task, with the missing word put back. In *that bank holds the mortgage on my home*, compare how much *holds* listens to *that* with how much it listens to *home*. Now replace a third word: *bank* becomes *man*.
#
# > **Predict, then run.** Does the **ratio** of the two weights change, in the first layer and in the second?

# %%
_ = torch.manual_seed(0)
embedding = InputEmbedding(len(vocabulary), d_model=64, dropout=0.0)
layers = [EncoderLayer(64, 4, 128, dropout=0.0) for _ in range(2)]


@torch.no_grad()
def ratio_per_layer(sentence):
    x, ratios = embedding(encode(sentence)), []                # (1, L, D)
    for layer in layers:
        x, weights = layer(x, return_weights=True)             # (1, L, D), (1, H, L, L)
        ratios.append(weights[0, :, 2, 0] / weights[0, :, 2, 7])   # (H,): holds-that, holds-home
    return ratios

# %%
changes = [(b / a - 1).abs().max().item() for a, b in
           zip(ratio_per_layer(bank), ratio_per_layer(bank.replace("bank", "man")))]
assert changes[0] < 1e-5 < 0.1 < changes[1]
print(f"largest change of the ratio: layer 1 {changes[0]:.3f}, layer 2 {changes[1]:.1f}")

# %%
record("N45", "change of the comparison, layer 1", changes[0], 0, 1e-5)
record("N45", "change of the comparison, layer 2", changes[1], 0.1, 2)

# %% [markdown]
# In the first layer a weight compares two words as the embedding gives them, each with its place: *home* is as interesting to *holds* as it is, whoever does the holding. (The weights themselves change, because all words share one unit of attention; their ratio does not.) In the second layer *holds* and *home* have both read *bank*, and the comparison is one of words **in this sentence**.
#
# > **Key idea.** The first layer compares words. Each later layer compares what the words have become.
#
# How many layers a task needs is a question for an experiment, not for this argument. Chapter 10 does experiments.

# %% [markdown]
# ## A stack, and two ways to get it wrong
#
# $$
# x^{(n)} = \operatorname{Layer}_n\!\left(x^{(n-1)}\right), \qquad n = 1, \dots, N \tag{9.1}
# $$
#
# The paper says "a stack of $N = 6$ identical layers" ([Vaswani et al. (2017)](../book/bibliography.md), section 3.1). Identical is their **form**; each has weights of its own. As a function it is a loop.

# %%
def run_stack(layers, x, keep_mask=None):
    for layer in layers:
        x = layer(x, keep_mask)                                # (B, L, D)
    return x


def make_layer():
    return EncoderLayer(64, 4, 128, dropout=0.0)


def count(module):
    return sum(p.numel() for p in module.parameters())


print("one layer:", count(make_layer()), "parameters")

# %% [markdown]
# The loop must live in a module, so that its weights can be found: by the optimizer, by `.to(device)`, by `.eval()`, by `state_dict()`. Here are three modules that run the same loop over three layers.
#
# > **Predict, then run.** How many parameters does each have?

# %%
class Times(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList([make_layer()] * n)


class PlainList(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = [make_layer() for _ in range(n)]

# %%
class Independent(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList(make_layer() for _ in range(n))


stacks = [make(3) for make in (Times, PlainList, Independent)]
for stack in stacks:
    print(f"{type(stack).__name__:12s}{count(stack):7d} parameters,"
          f" {len(stack.state_dict()):2d} entries to save")
assert count(stacks[2]) == 3 * count(stacks[0]) == 3 * count(make_layer())

# %%
record("A13", "parameters, plain list", count(stacks[1]), 0, 0)
distinct = count(stacks[0]) // count(make_layer())
record("A13", "layers' worth of parameters, [layer] * 3", distinct, 1, 1)

# %% [markdown]
# `[layer] * 3` is a list that holds **one** layer three times: the weights are shared, and saved three times under three names. (Sharing can be a decision. Here it would be an accident.) A plain list holds three layers, but `nn.Module` does not look into plain lists: nothing would be trained, moved or saved. Neither raises an error.

# %%
stacks[1].eval()
print("after eval(), is the plain list's layer still training?", stacks[1].layers[0].training)

# %% [markdown]
# ## The finished stack
#
# A Pre-LN stack ends in a LayerNorm of its own, because nothing else has normalised its output; a Post-LN stack has just done so (chapter 08). If asked, the stack returns the attention weights of every layer.

# %% tags=["library"]
class Encoder(nn.Module):
    def __init__(
        self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm="pre", activation="relu",
        eps=1e-5,
    ):
        super().__init__()
        require_positive(n_layers=n_layers)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, dropout, norm, activation, eps)
            for _ in range(n_layers)
        )
        self.final_norm = LayerNorm(d_model, eps) if norm == "pre" else nn.Identity()

    def forward(self, x, keep_mask=None, return_weights=False):
        all_weights = []
        for layer in self.layers:
            x = layer(x, keep_mask, return_weights)
            if return_weights:
                x, weights = x
                all_weights.append(weights)
        x = self.final_norm(x)
        return (x, all_weights) if return_weights else x

# %%
_ = torch.manual_seed(0)
encoder = Encoder(3, 64, 4, 128, dropout=0.0)
x, keep_mask = embedding(encode(bank, tooth)), encode(bank, tooth) != 0   # (B, L, D), (B, L)
by_hand = encoder.final_norm(run_stack(encoder.layers, x, keep_mask))
torch.testing.assert_close(encoder(x, keep_mask), by_hand)
first, last = encoder.layers[0].feed_forward.w_1.weight, encoder.layers[2].feed_forward.w_1.weight
assert not torch.equal(first, last)
print([tuple(w.shape) for w in encoder(x, keep_mask, return_weights=True)[1]])  # N of (B, H, L, L)

# %% [markdown]
# ## The whole model
#
# By hand it is three lines: find the padding, embed, run the stack. As a class it also checks its arguments and accepts a mask of your own. Its last four arguments are there for chapter 11: a BERT does not scale its embeddings, has another $\varepsilon$, adds a vector for the type of each token, and normalises the sum. Without them, `embed` is the embedding and nothing else.

# %% tags=["library"]
class TransformerEncoder(nn.Module):
    def __init__(
        self, vocab_size, d_model, n_heads, d_ff, n_layers, max_len=5000, pad_id=0, dropout=0.1,
        norm="pre", activation="relu", positions="sinusoidal", scale=True, eps=1e-5, n_types=0,
        embedding_norm=False,
    ):
        super().__init__()
        self.d_model, self.pad_id = d_model, pad_id
        if n_types != 0:
            require_positive(n_types=n_types)
        bert = n_types != 0 or embedding_norm  # then dropout comes last, behind types and norm
        self.embedding = InputEmbedding(
            vocab_size, d_model, max_len, pad_id, positions, 0.0 if bert else dropout, scale
        )
        self.types = TokenEmbedding(n_types, d_model, None, scale) if n_types != 0 else None
        self.embedding_norm = LayerNorm(d_model, eps) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout if bert else 0.0)
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, dropout, norm, activation, eps)

    def mask_of(self, ids, keep_mask=None):
        require_ids(ids)
        if keep_mask is not None:
            return as_keep_mask(keep_mask, ids.shape)
        return None if self.pad_id is None else keep_mask_from_ids(ids, self.pad_id)

    def embed(self, ids, types=None):
        x = self.embedding(ids)                                        # (B, L, D)
        if types is not None and self.types is None:
            raise ValueError("types were given to a model without types; build it with n_types")
        if self.types is not None:
            x = x + self.types(torch.zeros_like(ids) if types is None else types)
        return self.dropout(self.embedding_norm(x))                    # (B, L, D)

    def forward(self, ids, keep_mask=None, return_weights=False, types=None):
        keep_mask = self.mask_of(ids, keep_mask)
        return self.encoder(self.embed(ids, types), keep_mask, return_weights)

# %%
_ = torch.manual_seed(0)
model = TransformerEncoder(len(vocabulary), 64, 4, 128, n_layers=3, dropout=0.0)
ids = encode(bank, tooth)                                      # (B, L)
keep_mask = keep_mask_from_ids(ids)                            # (B, L)
x = model.embedding(ids).detach()                              # (B, L, D)
h = model.encoder(x, keep_mask)                                # (B, L, D)
torch.testing.assert_close(model(ids), h)
print(tuple(ids.shape), "->", tuple(x.shape), "->", tuple(h.shape))

# %% [markdown]
# ## Look: how far a word reaches
#
# Once more *bank* becomes *man*. Now we look at **all** words, after the embedding and after each layer: by how much does each vector change, relative to its length?
#
# > **Predict, then run.** After the embedding, how many of the eight vectors change? After the first layer?

# %%
@torch.no_grad()
def states(sentence):
    x = model.embedding(encode(sentence))                      # (1, L, D)
    found = [x]
    for layer in model.encoder.layers:
        x = layer(x)                                           # (1, L, D)
        found.append(x)
    return torch.cat(found)                                    # (N + 1, L, D)


before, after = states(bank), states(bank.replace("bank", "man"))
change = (after - before).norm(dim=-1) / before.norm(dim=-1)   # (N + 1, L)
assert change[0].nonzero().tolist() == [[1]] and change[1:].min() > 0.01
assert change.argmax(dim=1).eq(1).all()

# %%
record("B2", "least change of a word after layer 1", change[1].min(), 0.01, 1)

# %% mystnb={"image": {"alt": "Heat map with four rows, embedding and layers 1 to 3, and eight columns, the words of the sentence. In the embedding row only 'bank' has changed; from layer 1 on every word has, the others by much less than 'bank'."}}
fig, ax = plot_heatmap(change, row_labels=["embedding", "layer 1", "layer 2", "layer 3"],
                       column_labels=bank.split(), xlabel="word", ylabel="after",
                       title="What changes when 'bank' is replaced by 'man' (untrained weights)",
                       value_label="relative change of the vector")
plt.show()

# %% [markdown]
# One layer carries the news to everybody. *bank* itself still differs the most, as one expects when the residual connection carries every word past the layers. The weights are random here; training decides what is worth passing on.

# %% [markdown]
# ## Where do ten million parameters sit?
#
# A widely read article counts the parameters of an encoder for a vocabulary of $V = 30\,000$ with $d = 256$, 8 heads, $d_{ff} = 1024$ and $N = 4$ layers. Its arithmetic is
#
# $$
# V d + N \left(4 d^2 + 2\, d\, d_{ff} + 4 d\right) \tag{9.2}
# $$
#
# the table; and per layer four projections, two feed-forward matrices and two LayerNorms.
#
# > **Predict, then run.** Which share of the total is the embedding table: 10 %, 40 % or 70 %? And is the formula right for the model above?

# %%
V, d, d_ff, N = 30_000, 256, 1024, 4
formula = V * d + N * (4 * d * d + 2 * d * d_ff + 4 * d)
biases = N * (4 * d + d_ff + d)                                # attention, then feed-forward
big = {norm: TransformerEncoder(V, d, 8, d_ff, N, norm=norm) for norm in ("post", "pre")}
print(f"formula {formula:,}, with biases {formula + biases:,}")
for norm, m in big.items():
    print(f"{norm}: {count(m):,}, of which the table {V * d / count(m):.0%}")
assert count(big["post"]) == formula + biases
assert count(big["pre"]) == formula + biases + 2 * d

# %%
record("B33", "parameters", count(big["post"]), 10_839_040, 10_839_040)
record("A15", "parameters of the final norm", count(big["pre"]) - count(big["post"]), 512, 512)
added = [count(Encoder(n + 1, 64, 4, 128)) - count(Encoder(n, 64, 4, 128)) for n in range(1, 6)]
record("B4", "different numbers of parameters that one more layer adds", len(set(added)), 1, 1)

# %% [markdown]
# The arithmetic is right, and the formula forgets the biases: 9,216 numbers, less than a thousandth. Pre-LN adds the final norm. The number of heads does not occur, nor does the length: sinusoids are not learned.
#
# What matters is the first term. Most of the model is a **lookup table**, and in each layer two thirds of the weights belong to the feed-forward network.

# %%
kinds = {"table": "embedding", "attention": ".attention.", "feed-forward": ".feed_forward.",
         "LayerNorms": "norm"}
named = dict(big["pre"].named_parameters())
share = {k: sum(p.numel() for n, p in named.items() if part in n) for k, part in kinds.items()}
assert sum(share.values()) == count(big["pre"])
in_layers = count(big["pre"].encoder.layers)
assert 0.66 < share["feed-forward"] / in_layers < 0.67
print(share)

# %% mystnb={"image": {"alt": "Bar chart of thousands of parameters by part for a four-layer encoder: embedding table 7,680, feed-forward networks about 2,100, attention about 1,050, LayerNorms about 5, too few to be seen."}}
fig, ax = plot_bars({"parameters": [n / 1e3 for n in share.values()]}, list(share),
                    xlabel="part of the model", ylabel="thousands of parameters",
                    title="Parameters by part (V = 30,000, d_model = 256, N = 4)")
plt.show()

# %% [markdown]
# ## Check against torch
#
# `nn.TransformerEncoder` is the same stack. We copy our weights into it and compare outputs and the gradients of the input and of **every** parameter, for Pre- and Post-LN, with padding and without, in training mode (dropout 0) and evaluation mode.
#
# Torch packs three projections into one matrix, so the gradients are arranged differently too. But a gradient has the shape of its weight, and the function that copies weights copies gradients as well.

# %%
def twins(norm, dtype, d=64, n_layers=3):
    ours = Encoder(n_layers, d, 4, 2 * d, dropout=0.0, norm=norm).to(dtype)
    layer = nn.TransformerEncoderLayer(
        d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=dtype)
    final = nn.LayerNorm(d, dtype=dtype) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, n_layers, norm=final, enable_nested_tensor=False)
    return ours, copy_to_torch(ours, theirs)


def gradients_as_torch_packs_them(ours, theirs):
    holder, target = copy.deepcopy(ours), copy.deepcopy(theirs)
    with torch.no_grad():
        for slot, p in zip(holder.parameters(), ours.parameters()):
            slot.copy_(p.grad)
    return dict(copy_to_torch(holder, target).named_parameters())

# %%
def compare(norm, dtype, padded, training, tolerance):
    _ = torch.manual_seed(0)
    ours, theirs = (m.train(training) for m in twins(norm, dtype))
    keep_mask = ids != 0 if padded else None                   # (B, L)
    a = model.embedding(ids).detach().to(dtype).requires_grad_()   # (B, L, D)
    b = a.detach().clone().requires_grad_()
    out = ours(a, keep_mask), theirs(b, src_key_padding_mask=~keep_mask if padded else None)
    upstream = torch.randn_like(out[0]) / out[0].numel() ** 0.5    # of length about 1
    for y in out:
        (y * upstream).sum().backward()
    pairs = [out, (a.grad, b.grad)]
    packed = gradients_as_torch_packs_them(ours, theirs)
    pairs += [(packed[name], p.grad) for name, p in theirs.named_parameters()]
    for mine, torchs in pairs:
        torch.testing.assert_close(mine, torchs, atol=tolerance, rtol=0)

# %%
cases = [(norm, padded, training) for norm in ("pre", "post")
         for padded in (False, True) for training in (True, False)]
for norm, padded, training in cases:
    compare(norm, torch.float32, padded, training, tolerance=1e-5)
    compare(norm, torch.float64, padded, training, tolerance=1e-10)
print(len(cases), "cases agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# ## Three traps in the stack of torch
#
# **It starts with identical layers.** `nn.TransformerEncoder` takes one layer and copies it, weights included.

# %%
_ = torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
theirs = nn.TransformerEncoder(layer, 3)
one, three = theirs.layers[0].linear1.weight, theirs.layers[2].linear1.weight
print("same object:", one is three, "  same values:", torch.equal(one, three))
theirs(x)[..., 0].sum().backward()
print("same gradient:", torch.allclose(one.grad, three.grad))
equal = (one == three).float().mean()
record("B1", "share of equal weights, torch's stack at the start", equal, 0.99, 1)
record("B1", "share of equal weights, ours", (first == last).float().mean(), 0, 0.01)

# %% [markdown]
# Not shared, and their gradients differ, so the first step of training separates them. It is another starting point than the one of the paper and of this book, so before you compare trainings, draw torch's weights anew.
#
# **Evaluation without gradients takes another path.** Then torch may pack the sentences without padding into a *nested tensor*, and fill up afterwards. (So it is for `norm_first=False`, the default; a Pre-LN stack does not do it.)
#
# > **Predict, then run.** What stands at padded positions of the output, in the four combinations of train/eval and with/without gradients?

# %%
def padding_norm(encoder, training, grad):
    encoder.train(training)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")                        # "nested tensors: prototype stage"
        y = encoder(x, src_key_padding_mask=~keep_mask)        # (B, L, D)
    return y[~keep_mask].norm(dim=-1).mean().item()


for training in (True, False):
    for grad in (True, False):
        print(f"train={training!s:6}grad={grad!s:6}norm at padding "
              f"{padding_norm(theirs, training, grad):.1f}")

# %%
record("N47", "norm at padding, evaluation with gradients", padding_norm(theirs, False, True), 7, 9)
record("N47", "norm at padding, fast path", padding_norm(theirs, False, False), 0, 0.001)

# %% [markdown]
# Everywhere else a padded position is computed like any other, a query that looks at the real words, and LayerNorm gives it the norm $\sqrt{64} = 8$. In evaluation without gradients it is exactly 0. Real positions agree; whoever compares **all** positions finds a difference that is none.

# %%
theirs.eval()
with torch.no_grad(), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    fast = theirs(x, src_key_padding_mask=~keep_mask)          # (B, L, D)
slow = theirs(x, src_key_padding_mask=~keep_mask)              # (B, L, D)
torch.testing.assert_close(fast[keep_mask], slow[keep_mask], atol=1e-5, rtol=0)
assert not torch.allclose(fast, slow, atol=0.1)

# %% [markdown]
# Our stack agrees with torch's in this mode too, where it counts: at the real positions.

# %%
with torch.no_grad():
    for norm in ("post", "pre"):
        ours, fused = (m.eval() for m in twins(norm, torch.float32))
        a, b = ours(x, keep_mask), fused(x, src_key_padding_mask=~keep_mask)   # (B, L, D) each
        torch.testing.assert_close(a[keep_mask], b[keep_mask], atol=1e-5, rtol=0)

# %% [markdown]
# > **Tip.** `enable_nested_tensor=False` switches this path off, as in `twins` above. Better still, let nothing read the padded positions of an output.
#
# **A hook sees no weights.** Torch's layer calls its attention with `need_weights=False`. A hook that wants to look at the attention gets `None`.

# %%
seen = []
handle = theirs.layers[0].self_attn.register_forward_hook(
    lambda module, args, output: seen.append(output[1]))
_ = theirs(x, src_key_padding_mask=~keep_mask)
handle.remove()
print("what the hook saw:", seen)

# %% [markdown]
# Ours returns them when asked, and asking does not change the output.

# %%
out, weights = model(ids, return_weights=True)
torch.testing.assert_close(out, model(ids), atol=1e-5, rtol=0)
row_sums = torch.stack(weights).sum(-1)                        # (N, B, H, L)
torch.testing.assert_close(row_sums, torch.ones_like(row_sums))

# %% [markdown]
# ## Three tests to remember
#
# Parity needs a twin. These three need none, and find mistakes that no shape and no error message shows. First: **more padding changes nothing** at real positions.

# %%
model.eval()
longer = model(encode(bank, tooth, length=40))                 # (B, 40, D)
torch.testing.assert_close(longer[:, :8][keep_mask], h[keep_mask], atol=1e-5, rtol=0)

# %% [markdown]
# Second: **the neighbours in the batch change nothing.**

# %%
alone = model(encode(tooth))                                   # (1, 5, D)
torch.testing.assert_close(alone[0], h[1, :5], atol=1e-5, rtol=0)

# %% [markdown]
# Third: without positions, **a permuted sentence gives the permuted output** (chapter 02). And with positions it must not.

# %%
def order_error(positions):
    _ = torch.manual_seed(0)
    m = TransformerEncoder(
        len(vocabulary), 64, 4, 128, 3, dropout=0.0, positions=positions)
    order = torch.tensor([3, 0, 7, 5, 1, 2, 6, 4])
    straight, mixed = m(ids[:1]), m(ids[:1, order])            # (1, L, D)
    return (mixed - straight[:, order]).abs().max().item()


assert order_error(None) < 1e-5
assert order_error("sinusoidal") > 0.1

# %% [markdown]
# What do the tests find? Here is a model that forgets its mask.

# %%
forgetful = copy.deepcopy(model)
forgetful.pad_id = None                                        # no mask is made any more
difference = (forgetful(ids)[1, :5] - alone[0]).abs().max().item()
assert difference > 0.1
print(f"the first two tests would see a difference of {difference:.1f}")

# %% [markdown]
# **A fully padded row** is the border case: an empty text in a batch. It must not be `nan`, and it must not spoil its neighbours, in the gradient either.

# %%
with_empty = pad_batch([vocabulary.encode(bank.split()), []])  # (B, L)
probe = copy.deepcopy(model)
y, weights = probe(with_empty, return_weights=True)            # (B, L, D), N of (B, H, L, L)
assert torch.isfinite(y).all() and torch.stack(weights)[:, 1].eq(0).all()
torch.testing.assert_close(y[0], h[0], atol=1e-5, rtol=0)

# %%
upstream, found = torch.randn_like(y), []                      # (B, L, D)
for batch in (with_empty, with_empty[:1]):                     # with the empty text, and without
    probe.zero_grad()
    (probe(batch)[0] * upstream[0]).sum().backward()
    found.append([p.grad.clone() for p in probe.parameters()])
for with_it, without in zip(*found):
    torch.testing.assert_close(with_it, without, atol=1e-5, rtol=1e-5)
(probe(with_empty) * upstream).sum().backward()
assert all(torch.isfinite(p.grad).all() for p in probe.parameters())

# %% [markdown]
# ## Other number formats, another length
#
# The same classes run in half precision, and under autocast, where torch itself chooses the format of each operation.

# %%
@torch.no_grad()
def worst_error(dtype):
    y = copy.deepcopy(model).to(dtype)(ids)                    # (B, L, D)
    assert y.dtype == dtype
    return (y.float() - h)[keep_mask].abs().max().item()


errors = {dtype: worst_error(dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)}
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    errors["autocast"] = (model(ids).float() - h)[keep_mask].abs().max().item()

# %% tags=["nbval-ignore-output"]
for dtype, error in errors.items():
    print(f"{dtype!s:16s}largest difference to float32 {error:.0e}")
assert errors[torch.float64] < 1e-4 < errors[torch.float16] < errors[torch.bfloat16] < 0.1
assert 1e-4 < errors["autocast"] < 0.1

# %% tags=["nbval-ignore-output"]
record("B46", "largest difference under bfloat16 autocast", errors["autocast"], 0.002, 0.1)

# %% [markdown]
# bfloat16 keeps 8 binary digits and float16 keeps 11, and so the errors come in that order. The numbers themselves are of size 1.
#
# The sinusoids are no parameters and are not saved, so weights from a model for 5000 positions fit one for 10.

# %%
small = TransformerEncoder(len(vocabulary), 64, 4, 128, 3, max_len=10, dropout=0.0)
_ = small.load_state_dict(model.state_dict())
torch.testing.assert_close(small(ids), h)
print("positions in the state dict:", [k for k in model.state_dict() if "position" in k])

# %% [markdown]
# ## How the weights start
#
# Chapter 08 showed that verdicts about architectures depend on the start. Every module here starts with Xavier-uniform maps and zero biases. `initialize` draws all weights anew, by one of three schemes. "deepnorm" is for deep Post-LN stacks: it makes some maps smaller and the residual larger, depending on the number of layers ([Wang et al. (2022)](../book/bibliography.md)).

# %% tags=["library"]
SCHEMES = ("xavier", "torch", "deepnorm")
DRAWN = (nn.Linear, TokenEmbedding, LearnedPositionalEmbedding, LayerNorm, RMSNorm)


def initialize(module, scheme="xavier"):
    require_choice("scheme", scheme, SCHEMES)
    layers = [m for m in module.modules() if isinstance(m, EncoderLayer)]
    if scheme == "deepnorm" and {layer.norm for layer in layers} != {"post"}:
        raise ValueError('"deepnorm" is made for Post-LN: build the layers with norm="post"')
    for part in module.modules():
        if isinstance(part, nn.Linear) and scheme != "torch":
            xavier_linear_(part)
        elif isinstance(part, DRAWN):
            part.reset_parameters()
    for layer in layers:
        layer.residual_scale.fill_((2 * len(layers)) ** 0.25 if scheme == "deepnorm" else 1.0)
        if scheme == "deepnorm":
            _shrink(layer, (8 * len(layers)) ** -0.25)
    return module


@torch.no_grad()
def _shrink(layer, gain):
    attention, feed_forward = layer.attention, layer.feed_forward
    for linear in (attention.w_v, attention.w_o, feed_forward.w_1, feed_forward.w_2):
        linear.weight.mul_(gain)

# %%
def spread(linear):
    return linear.weight.std().item() * math.sqrt(linear.in_features)


_ = torch.manual_seed(0)
deep = TransformerEncoder(len(vocabulary), 64, 4, 128, n_layers=12, norm="post")
print("scheme      w_q    w_v   residual times")
for scheme in SCHEMES:
    layer = initialize(deep, scheme).encoder.layers[0]
    q_spread, v_spread = spread(layer.attention.w_q), spread(layer.attention.w_v)
    print(f"{scheme:10s}{q_spread:5.2f}{v_spread:7.2f}{float(layer.residual_scale):10.2f}")
    assert deep.embedding.tokens.weight[0].eq(0).all()
assert "encoder.layers.0.residual_scale" in deep.state_dict()

# %% [markdown]
# A spread of 1 means that a map keeps the size of its input. `nn.Linear`'s own start has $1/\sqrt 3 \approx 0.58$. DeepNorm for 12 layers leaves queries and keys alone, multiplies the values by $96^{-1/4} \approx 0.32$ and the residual by $24^{1/4} \approx 2.21$. The scale is saved with the weights: a checkpoint without it would be another model. The row of padding stays zero in all schemes.

# %% [markdown]
# ## From a vector per token to an answer
#
# A text has one label but $L$ vectors. **Pooling** makes one of many: the mean, the maximum, or the vector of the first token. The mean is easy to get wrong.
#
# > **Predict, then run.** We append padding to *the baby cut a tooth* and average over the length axis with `h.mean(dim=1)`. The model masks correctly, so the real vectors do not change. Does the mean?

# %% tags=["library"]
def as_pooling_mask(h, keep_mask):
    if not isinstance(h, torch.Tensor) or not h.is_floating_point():
        kind = h.dtype if isinstance(h, torch.Tensor) else type(h).__name__
        raise TypeError(f"h must be a floating-point tensor (B, L, D), got {kind}")
    if h.dim() != 3 or h.size(1) == 0:
        raise ValueError(f"h must have shape (B, L, D) with L >= 1, got {tuple(h.shape)}")
    return as_keep_mask(keep_mask, h.shape[:2]).unsqueeze(-1)      # (B, L, 1)


def masked_mean(h, keep_mask):
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    wide = torch.promote_types(h.dtype, torch.float32)
    total = h.masked_fill(~keep, 0.0).sum(dim=1, dtype=wide)       # (B, D)
    return (total / keep.sum(dim=1).clamp(min=1)).to(h.dtype)      # (B, D)


def masked_max(h, keep_mask):
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    largest = h.masked_fill(~keep, -math.inf).amax(dim=1)          # (B, D)
    return largest.masked_fill(~keep.any(dim=1), 0.0)              # (B, D)


def masked_first(h, keep_mask):
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    place = keep.int().argmax(dim=1, keepdim=True)                 # (B, 1, 1)
    first = h.take_along_dim(place, dim=1).squeeze(1)              # (B, D)
    return first.masked_fill(~keep.any(dim=1), 0.0)                # (B, D)


POOLINGS = {"mean": masked_mean, "max": masked_max, "first": masked_first}

# %% [markdown]
# The mean of half precision is summed in float32: 3000 tokens of 60 make 180,000, and float16 ends at 65,504.

# %%
long_text = torch.full((1, 3000, 1), 60.0, dtype=torch.float16)          # (1, L, D)
assert masked_mean(long_text, torch.ones(1, 3000, dtype=torch.bool)).item() == 60
two = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]])   # (1, L, D)
real = torch.tensor([[True, True, False, False]])                        # (1, L)
print("plain:", two.mean(dim=1), " masked:", masked_mean(two, real))
assert masked_mean(two, ~real).tolist() == [[0.0, 2.0]]
assert masked_mean(two, real & ~real).eq(0).all()              # a row without any real token

# %%
@torch.no_grad()
def drift(pool, extra):
    short, long = encode(tooth), encode(tooth, length=5 + extra)   # (1, L)
    a, b = (pool(model(i), i != 0) for i in (short, long))         # (1, D)
    return ((b - a).norm() / a.norm()).item()


assert (h[~keep_mask].norm(dim=-1) - h.size(-1) ** 0.5).abs().max() < 0.01   # as loud as real
extras = [0, 2, 5, 10, 20, 40]
pools = {"plain mean": lambda h, keep: h.mean(dim=1), "masked mean": masked_mean,
         "masked max": masked_max}
drifts = {name: [drift(pool, n) for n in extras] for name, pool in pools.items()}
assert max(drifts["masked mean"] + drifts["masked max"]) < 1e-5 < 0.4 < drifts["plain mean"][-1]

# %% mystnb={"image": {"alt": "Lines over 0 to 40 padding tokens appended to a sentence of five: the relative change of the pooled vector. The plain mean rises to nearly one half, masked mean and masked maximum stay at zero."}}
fig, ax = plot_lines(drifts, x=extras, xlabel="padding tokens appended to five real ones",
                     ylabel="relative change of the pooled vector",
                     title="What padding does to a sentence's vector", direct_labels=False)
plt.show()

# %% [markdown]
# The mask inside the encoder protects real tokens from padding, but the padded positions still hold vectors of full size, and a plain mean takes them in. So the sentence's vector depends on the longest neighbour in its batch, and so does its similarity to other sentences.
#
# > **Predict, then run.** Sixty sentences, the mean cosine similarity of their vectors, batches of length 9 and of length 200. Does padding make the plain means more alike, or less?

# %%
known = [s for s in sorted(restored) if 4 <= len(s.split()) <= 9
         and vocabulary.unk_id not in vocabulary.encode(s.split())][:60]


@torch.no_grad()
def mean_similarity(seed, pool, length):
    _ = torch.manual_seed(seed)
    m = TransformerEncoder(len(vocabulary), 64, 4, 128, n_layers=3, dropout=0.0)
    padded = encode(*known, length=length)                     # (B, L)
    p = F.normalize(pool(m(padded), padded != 0), dim=-1)      # (B, D)
    return ((p @ p.T).sum() - len(p)).item() / (len(p) * (len(p) - 1))

# %%
for seed in (0, 1):
    for name in ("plain mean", "masked mean"):
        short, long = (mean_similarity(seed, pools[name], length) for length in (9, 200))
        print(f"seed {seed}  {name:12s} {short:.2f} at length 9, {long:.2f} at length 200")
        change = long - short
        assert name == "plain mean" or abs(change) < 1e-4
        assert name != "plain mean" or (change > 0.03 if seed else change < -0.01)

# %% [markdown]
# It depends on the weights: with seed 0 the plain means drift apart, with seed 1 together, and other seeds give less of either. "Padding makes sentences alike" is no law; that the answer depends on padding is. (And two sentences that have nothing to do with each other have a cosine well above zero: an untrained model says nothing about meaning.)

# %% [markdown]
# ## Two heads
#
# A head is a linear map on top: one answer per text, or one per token. Both return **logits**, never probabilities, because torch's loss applies the softmax itself.

# %% tags=["library"]
def require_encoder(encoder):
    if not (hasattr(encoder, "d_model") and hasattr(encoder, "mask_of")):
        kind = type(encoder).__name__
        raise TypeError(f"encoder must be a TransformerEncoder, which takes ids; got {kind}")


class EncoderClassifier(nn.Module):
    def __init__(self, encoder, n_classes, pooling="mean", dropout=0.1):
        super().__init__()
        require_encoder(encoder)
        require_positive(n_classes=n_classes)
        require_choice("pooling", pooling, tuple(POOLINGS))
        require_dropout(dropout)
        self.encoder, self.pooling = encoder, pooling
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.d_model, n_classes)
        xavier_linear_(self.head)

    def forward(self, ids, keep_mask=None):
        h = self.encoder(ids, keep_mask)                           # (B, L, D)
        keep_mask = self.encoder.mask_of(ids, keep_mask)
        if keep_mask is None:
            keep_mask = torch.ones_like(ids, dtype=torch.bool)     # (B, L)
        pooled = POOLINGS[self.pooling](h, keep_mask)              # (B, D)
        return self.head(self.dropout(pooled))                     # (B, n_classes)

# %% tags=["library"]
class TokenClassifier(nn.Module):
    def __init__(self, encoder, n_classes):
        super().__init__()
        require_encoder(encoder)
        require_positive(n_classes=n_classes)
        self.encoder = encoder
        self.head = nn.Linear(encoder.d_model, n_classes)
        xavier_linear_(self.head)

    def forward(self, ids, keep_mask=None):
        return self.head(self.encoder(ids, keep_mask))

# %%
_ = torch.manual_seed(0)
per_text = {pooling: EncoderClassifier(model, 4, pooling).eval() for pooling in POOLINGS}
per_token = TokenClassifier(model, 4).eval()
for m in per_text.values():
    a, b = m(ids), m(encode(bank, tooth, length=40))           # (B, n_classes)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
print(tuple(per_text["mean"](ids).shape), tuple(per_token(ids).shape))

# %% [markdown]
# ## Can it learn anything at all?
#
# Training belongs to chapter 10. A quick check of the whole machine is to let it learn a dozen sentences **by heart**: the gap task, four parts of speech. A model that cannot is broken.

# %%
examples = train[:12]
few = pad_batch([vocabulary.encode(e.text.split()) for e in examples])    # (12, L)
labels = torch.tensor([e.label for e in examples])                        # (12,)

# %%
def learn_by_heart(damage=None, steps=150, seed=0):
    _ = torch.manual_seed(seed)
    body = TransformerEncoder(len(vocabulary), 32, 4, 64, n_layers=2, dropout=0.0)
    m = EncoderClassifier(body, n_classes=4, dropout=0.0)
    if damage is not None:
        damage(body)
    optimizer = torch.optim.Adam(m.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = F.cross_entropy(m(few), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return F.cross_entropy(m(few), labels).item()

# %%
loss = learn_by_heart()
assert loss < 0.02
print(f"guessing: {math.log(4):.2f}    after 150 steps: below 0.02")

# %% [markdown]
# ## Break it: four damaged models
#
# "It can overfit a batch, so it is right" is a common conclusion. Here are the mistakes of this chapter, put into the model on purpose.
#
# > **Predict, then run.** Which of the four fails to learn the dozen sentences?

# %%
def share_layers(body):
    body.encoder.layers[1] = body.encoder.layers[0]


def plain_list(body):
    layers = list(body.encoder.layers)
    del body.encoder.layers
    body.encoder.layers = layers

# %%
def no_mask(body):
    body.pad_id = None


def no_positions(body):
    body.embedding.positions = nn.Identity()

# %% tags=["nbval-ignore-output"]
losses = []
for damage in (share_layers, plain_list, no_mask, no_positions):
    losses.append(learn_by_heart(damage))
    assert losses[-1] < 0.02
    print(f"{damage.__name__:18s}loss {losses[-1]:.3f}")
record("N49", "largest loss of four wrong models", max(losses), 1e-5, 0.02)

# %% [markdown]
# None. Even with layers that are never trained, the table and the head learn twelve sentences by heart. Overfitting a batch finds models that cannot learn; it does not find models that are wrong. What does?

# %%
def findings(damage):
    _ = torch.manual_seed(0)
    body = TransformerEncoder(len(vocabulary), 32, 4, 64, n_layers=2, dropout=0.0)
    wanted, order = count(body), torch.tensor([2, 0, 4, 1, 3])
    damage(body)
    h = body(encode(tooth))                                    # (1, L, D)
    padded, mixed = body(encode(tooth, length=20))[:, :5], body(encode(tooth)[:, order])
    return (count(body) == wanted, torch.allclose(padded, h, atol=1e-5),
            not torch.allclose(mixed, h[:, order], atol=1e-5))

# %%
print(f"{'passes':15s}{'count':>8s}{'padding':>9s}{'order':>8s}")
for damage in (share_layers, plain_list, no_mask, no_positions):
    passed = findings(damage)
    assert sum(passed) == 2
    print(f"{damage.__name__:15s}{passed[0]!s:>8s}{passed[1]!s:>9s}{passed[2]!s:>8s}")

# %% [markdown]
# Each fault is found by exactly one of three tests, and none of these trains anything.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each is followed by its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 9.1** (difficulty 1 of 5, 5 min, predict). With the sizes above ($V = 30\,000$, $d = 256$, $d_{ff} = 1024$), how many layers does it take until the layers hold more parameters than the table?

# %% tags=["exercise"]
answer = ...  # a whole number
checks.answer("9.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# A layer holds 789,760 parameters, biases included, and the table 7,680,000.
#
# ```python
# answer = math.ceil(30_000 * 256 / (4 * 256**2 + 2 * 256 * 1024 + 9 * 256 + 1024))
# ```
#
# Nine layers fall short, ten are more:
#
# ```python
# per_layer = count(big["post"].encoder.layers[0])
# assert per_layer == 789_760
# assert 9 * per_layer < V * d < 10 * per_layer
# ```
#
# </details>
#
# > **Exercise 9.2** (difficulty 2 of 5, 15 min, implement). Formula (9.2) is not the whole truth. Write a function that gives the **exact** number of parameters of `TransformerEncoder(vocab_size, d_model, n_heads, d_ff, n_layers)` as this chapter builds it by default: Pre-LN, sinusoidal positions, biases in all linear maps. It takes the five numbers in this order and returns a whole number, by arithmetic: build no model.

# %% tags=["exercise"]
def my_parameters(vocab_size, d_model, n_heads, d_ff, n_layers):
    ...  # your code: return a whole number


checks.encoder_parameters(my_parameters)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_parameters(vocab_size, d_model, n_heads, d_ff, n_layers):
#     attention = 4 * (d_model + 1) * d_model
#     feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
#     norm = 2 * d_model
#     return vocab_size * d_model + n_layers * (attention + feed_forward + 2 * norm) + norm
# ```
#
# A linear map with a bias has one row more than its matrix. The number of heads does not occur, and the last term is the final norm.
#
# ```python
# assert my_parameters(V, d, 8, d_ff, N) == my_parameters(V, d, 1, d_ff, N) == count(big["pre"])
# ```
#
# </details>
#
# > **Exercise 9.3** (difficulty 2 of 5, 15 min, implement). Some models pool twice. Write a function that takes `h` $(B, L, D)$ and `keep_mask` $(B, L)$, bool, True = real token, and returns $(B, 2D)$: the mean over the real tokens, and beside it their maximum. Padding may stand anywhere and may hold large numbers. A row without any real token gives zeros. The model learns through it, so its gradient counts, too.

# %% tags=["exercise"]
def my_mean_and_max(h, keep_mask):
    ...  # your code: return a tensor (B, 2 D)


checks.mean_and_max(my_mean_and_max)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_mean_and_max(h, keep_mask):
#     gone = ~keep_mask.unsqueeze(-1)                            # (B, L, 1)
#     n = keep_mask.sum(dim=1, keepdim=True)                     # (B, 1)
#     mean = h.masked_fill(gone, 0.0).sum(dim=1) / n.clamp(min=1)
#     largest = h.masked_fill(gone, -math.inf).amax(dim=1)       # (B, D)
#     return torch.cat([mean, largest.masked_fill(n == 0, 0.0)], dim=-1)
# ```
#
# What is neutral depends on the operation: 0 changes no sum, but it can be the largest number of all; $-\infty$ changes no maximum. (Chapter 04 used it for the same reason.)
#
# ```python
# both = torch.cat([masked_mean(h, keep_mask), masked_max(h, keep_mask)], dim=-1)
# torch.testing.assert_close(my_mean_and_max(h, keep_mask), both)
# ```
#
# </details>
#
# > **Exercise 9.4** (difficulty 3 of 5, 20 min, implement). Write the stack from memory, for layers of any kind. The class is made from three things: `make_layer()`, which makes a **new** layer with weights of its own each time it is called (what is made first runs first); `n_layers`; and `final_norm`, a module, or `None` where there is none. Its `forward` takes `x` $(B, L, D)$ and a `keep_mask` $(B, L)$ or `None`, True = real token, and returns $(B, L, D)$. A layer is called as `layer(x, keep_mask)`. The check looks at the output for the real tokens, and counts the parameters that the module knows of.

# %% tags=["exercise"]
class MyStack(nn.Module):
    def __init__(self, make_layer, n_layers, final_norm=None):
        super().__init__()
        ...  # your code

    def forward(self, x, keep_mask=None):
        ...  # your code: return a tensor (B, L, D)


checks.encoder_stack(MyStack)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# class MyStack(nn.Module):
#     def __init__(self, make_layer, n_layers, final_norm=None):
#         super().__init__()
#         self.layers = nn.ModuleList(make_layer() for _ in range(n_layers))
#         self.final_norm = nn.Identity() if final_norm is None else final_norm
#
#     def forward(self, x, keep_mask=None):
#         for layer in self.layers:
#             x = layer(x, keep_mask)
#         return self.final_norm(x)
# ```
#
# `nn.Sequential` would register the layers as well, but it hands only one thing from layer to layer, and the mask is lost. A test that finds both wrong stacks of this chapter without knowing the size of a layer counts what one more layer adds:
#
# ```python
# def grows_by_one_layer(make):
#     return count(make(4)) - count(make(3)) == count(make_layer())
#
# stacks = (Times, PlainList, Independent, lambda n: MyStack(make_layer, n))
# assert [grows_by_one_layer(m) for m in stacks] == [False, False, True, True]
# ```
#
# </details>
#
# > **Exercise 9.5** (difficulty 3 of 5, 15 min, explore). Padding at the **left** shifts the sentence to later positions. Which poolings of the model give the same vector as with padding at the right, with sinusoids, and with `positions=None`?
#
# <details>
# <summary>Solution</summary>
#
# With sinusoids none: the words stand at other positions, so their vectors differ. Without positions all of them, even a plain mean, because both have three paddings; with another number it changes.
#
# ```python
# left = torch.cat([torch.zeros(1, 3, dtype=torch.long), encode(tooth)], dim=1)
# right = encode(tooth, length=8)
# for positions, equal in (("sinusoidal", False), (None, True)):
#     _ = torch.manual_seed(0)
#     m = TransformerEncoder(len(vocabulary), 64, 4, 128, 3, dropout=0.0, positions=positions)
#     for pool in POOLINGS.values():
#         a, b = (pool(m(i), i != 0) for i in (left, right))
#         assert torch.allclose(a, b, atol=1e-5) == equal
# ```
#
# </details>
#
# > **Exercise 9.6** (difficulty 4 of 5, 20 min, explore). Sharing on purpose: what is the gradient of a weight that three layers share, compared with the gradients in three separate layers of equal values? Guess, then check with `Times` and `Independent`.
#
# <details>
# <summary>Solution</summary>
#
# The sum: each use of the weight contributes what it would contribute alone. A shared stack computes as much as a separate one, and saves parameters only.
#
# ```python
# shared, separate = Times(3), Independent(3)
# for layer in separate.layers:
#     layer.load_state_dict(shared.layers[0].state_dict())
# for stack in (shared, separate):
#     run_stack(stack.layers, x.detach())[..., 0].sum().backward()
# for name, p in shared.layers[0].named_parameters():
#     total = sum(layer.get_parameter(name).grad for layer in separate.layers)
#     torch.testing.assert_close(p.grad, total, atol=1e-4, rtol=1e-4)
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"An encoder is N identical layers."* Identical in form. Their weights are independent, at the start and afterwards; in torch's stack they are equal at the start only.
#
# > **Misconception.** *"Most parameters are in the layers."* With 30,000 tokens and four layers of width 256, 71 % are the embedding table.
#
# > **Misconception.** *"The attention mask makes padding harmless."* It protects the real tokens. What reads the output afterwards, a mean for instance, needs the mask again.
#
# > **Misconception.** *"Padded positions of the output are zero."* In the fast path of torch's Post-LN stack they are. In its other modes, and in our model, they hold vectors as long as the real ones.
#
# > **Misconception.** *"If it can overfit one batch, it is right."* Four wrong models did.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken in this chapter.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(9)

# %% [markdown]
# ## Summary
#
# - The first layer compares words, the later ones compare words in their sentence.
# - A stack needs N separate layers in an `nn.ModuleList`. `[layer] * N` shares, a plain list hides; neither raises an error.
# - Our stack equals `nn.TransformerEncoder` in outputs and in all gradients, Pre and Post, padded and not. Torch's starts with equal layers, may zero padded positions in evaluation, and shows hooks no weights.
# - Padding length, batch neighbours, permutation: three tests for any encoder. Learning a batch by heart is necessary, not sufficient.
# - Pool over real tokens only.
#
# ## Sources
#
# The stack: [Vaswani et al. (2017)](../book/bibliography.md), section 3.1. The final norm of Pre-LN: [Xiong et al. (2020)](../book/bibliography.md). DeepNorm: [Wang et al. (2022)](../book/bibliography.md). Xavier initialisation: [Glorot and Bengio (2010)](../book/bibliography.md). Torch's stack: [Paszke et al. (2019)](../book/bibliography.md), version as installed. The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 10, training.
