# %% [markdown]
# # Post-LN or Pre-LN
#
# *You will be able to:* build both layers from the same parts, say what the place of the norm does to the size of the stream, of the gradients and of the differences between tokens, name the initialisation with every such verdict, and refute "Post-LN gradients vanish towards the input".
# *You need:* chapters 03 to 07. *Time:* {{ time }}.

# %% tags=["setup"]
import copy
import math
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_gradient_norms, plot_lines, use_style
from encoder_lib.widgets import depth_explorer
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## A figure and a code that disagree
#
# Attention and the feed-forward network are each wrapped in a residual connection and a LayerNorm. Where does the norm go: behind the addition, or in front of the sub-layer $f$?
#
# $$
# \text{Post-LN:}\quad x \leftarrow \operatorname{LN}\bigl(x + f(x)\bigr) \tag{8.1}
# $$
#
# $$
# \text{Pre-LN:}\quad x \leftarrow x + f\bigl(\operatorname{LN}(x)\bigr) \tag{8.2}
# $$
#
# If you learned the first from a figure and found the second in a code, you read both correctly.
#
# - The paper writes and draws (8.1): [Vaswani et al. (2017)](../book/bibliography.md), section 3.1 and figure 1.
# - The authors' own code, tensor2tensor ([Vaswani et al. (2018)](../book/bibliography.md)), soon moved the norm to the front.
# - The Annotated Transformer ([Rush (2018)](../book/bibliography.md)) quotes the paper beside code with (8.2) and one more norm at the end of the stack.
# - BERT ([Devlin et al. (2019)](../book/bibliography.md)) and RoBERTa are Post-LN. ModernBERT ([Warner et al. (2024)](../book/bibliography.md)) is Pre-LN.
# - The names Post-LN and Pre-LN, and the comparison this chapter repeats, are those of [Xiong et al. (2020)](../book/bibliography.md).
#
# So the question is not which one is right. It is what the place of the norm changes.

# %% [markdown]
# ## Both by hand, from the same parts
#
# Eight real sentences, a width of 128, and one set of parts.

# %%
from encoder_lib import FeedForward, InputEmbedding, LayerNorm, MultiHeadAttention
from encoder_lib.masks import keep_mask_from_ids
from encoder_lib.text import Vocabulary, pad_batch, tokenize

sentences = [tokenize(e.text.replace("_", e.word)) for e in load_gap("test")]
vocabulary = Vocabulary(sentences)
D, H = 128, 4


def some_sentences(seed, n=8):
    draw = torch.Generator().manual_seed(seed)
    picked = [sentences[i] for i in torch.randperm(len(sentences), generator=draw)[:n].tolist()]
    ids = pad_batch([vocabulary.encode(s) for s in picked])         # (B, L)
    return ids, keep_mask_from_ids(ids)                             # (B, L), (B, L)

# %%
_ = torch.manual_seed(0)
ids, keep_mask = some_sentences(seed=0)
x = InputEmbedding(len(vocabulary), D, dropout=0.0)(ids).detach()  # (B, L, D)
attention, feed_forward = MultiHeadAttention(D, H), FeedForward(D, 4 * D)
norm_1, norm_2 = LayerNorm(D), LayerNorm(D)

# %%
def post_ln(x):
    x = norm_1(x + attention(x, keep_mask))
    return norm_2(x + feed_forward(x))


def pre_ln(x):
    x = x + attention(norm_1(x), keep_mask)
    return x + feed_forward(norm_2(x))

# %% [markdown]
# > **Predict, then run.** A token comes out of each. Its mean and its root mean square (RMS): 0 and 1 for both, for one, or for none?

# %%
def rms(x, keep_mask):
    return x[keep_mask].square().mean().sqrt().item()


for name, layer in (("post", post_ln), ("pre", pre_ln)):
    out = layer(x)
    means = out[keep_mask].mean(-1).abs().max()
    print(f"{name:4s} RMS {rms(out, keep_mask):.2f}, largest mean of a token {means:.2f}")
print(f"in   RMS {rms(x, keep_mask):.2f}")

# %%
largest = {layer: layer(x)[keep_mask].mean(-1).abs().max() for layer in (post_ln, pre_ln)}
record("A1", "largest mean of a token, norm behind the addition", largest[post_ln], 0, 1e-5)
record("A1", "largest mean of a token, norm inside the branch", largest[pre_ln], 0.1, 2)

# %% [markdown]
# The last thing a Post-LN layer does is to normalise, so its tokens have mean 0 and RMS 1. Nothing normalises the stream of a Pre-LN layer: things are added to it, and that is all.
#
# ## The finished layer
#
# One class for both, and one argument apart. Dropout acts on what each part returns, before the addition (section 5.4 of the paper). `residual_scale` is 1 and does nothing here; DeepNorm, a start for very deep Post-LN stacks ([Wang et al. (2022)](../book/bibliography.md)), sets it to something else.
#
# > **Borrowed.** `initialize`, for other initial weights, is built in chapter 09. `copy_from_torch` copies the weights of torch's module into ours. From torch: `nn.Dropout`, `nn.ModuleList`, the twin `nn.TransformerEncoderLayer`, `F.cross_entropy` and `F.normalize`.

# %%
from encoder_lib import initialize
from encoder_lib.embedding import require_dropout
from encoder_lib.torch_parity import copy_from_torch

# %% tags=["library"]
NORM_POSITIONS = ("pre", "post")


def require_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


class EncoderLayer(nn.Module):
    def __init__(
        self, d_model, n_heads, d_ff, dropout=0.1, norm="pre", activation="relu", eps=1e-5
    ):
        super().__init__()
        require_choice("norm", norm, NORM_POSITIONS)
        require_dropout(dropout)
        self.norm = norm
        # A buffer is saved with the weights; other than 1 only after initialize(..., "deepnorm").
        self.register_buffer("residual_scale", torch.ones(()))
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation)
        self.norm_1, self.norm_2 = LayerNorm(d_model, eps), LayerNorm(d_model, eps)
        self.dropout = nn.Dropout(dropout)

    def add(self, x, change):
        return x * self.residual_scale + self.dropout(change)

    def attend(self, x, keep_mask, return_weights):
        out = self.attention(x, keep_mask, return_weights)
        return out if return_weights else (out, None)

    def forward(self, x, keep_mask=None, return_weights=False):
        if self.norm == "pre":
            change, weights = self.attend(self.norm_1(x), keep_mask, return_weights)
            x = self.add(x, change)
            x = self.add(x, self.feed_forward(self.norm_2(x)))
        else:
            change, weights = self.attend(x, keep_mask, return_weights)
            x = self.norm_1(self.add(x, change))
            x = self.norm_2(self.add(x, self.feed_forward(x)))
        return (x, weights) if return_weights else x

# %% [markdown]
# The same parts in it give what we did by hand, and `norm` is the only difference.

# %%
layer = EncoderLayer(D, H, 4 * D, dropout=0.0, norm="post")
layer.attention, layer.feed_forward = attention, feed_forward
torch.testing.assert_close(layer(x, keep_mask), post_ln(x), atol=1e-5, rtol=0)
layer.norm = "pre"
torch.testing.assert_close(layer(x, keep_mask), pre_ln(x), atol=1e-5, rtol=0)

# %% [markdown]
# ## Check against torch
#
# `nn.TransformerEncoderLayer` knows both, too: `norm_first` is False or True. We copy its weights, send the same input and the same random upstream gradient through both, and compare outputs, the input's gradient and the gradient of every parameter. The last is done with a trick: a layer whose *weights* are the gradients can be copied by the function that copies weights.

# %%
@torch.no_grad()
def gradients_as_weights(layer):
    holder = copy.deepcopy(layer)
    for weight, original in zip(holder.parameters(), layer.parameters()):
        weight.copy_(original.grad)
    return holder


def torch_layer(norm, activation="relu", d_model=32, d_ff=64):
    return nn.TransformerEncoderLayer(d_model, H, d_ff, dropout=0.0, activation=activation,
                                      norm_first=norm == "pre", batch_first=True)

# %%
def both(norm, activation, dtype, training):
    theirs = torch_layer(norm, activation).to(dtype).train(training)
    with torch.no_grad():
        for weight in theirs.parameters():  # biases away from 0, norms away from 1
            weight += 0.1 * torch.randn_like(weight)
    ours = EncoderLayer(32, H, 64, 0.0, norm, activation).to(dtype).train(training)
    return copy_from_torch(ours, theirs), theirs

# %%
def compare(norm, activation, dtype, training, keep_mask, tolerance):
    _ = torch.manual_seed(0)
    ours, theirs = both(norm, activation, dtype, training)
    x, upstream = torch.randn(2, 3, 7, 32, dtype=dtype)             # (B, L, D) each
    upstream = upstream * keep_mask.unsqueeze(-1)                   # real tokens only
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    a, b = ours(inputs[0], keep_mask), theirs(inputs[1], src_key_padding_mask=~keep_mask)
    (a * upstream).sum().backward()
    (b * upstream).sum().backward()
    wanted = copy_from_torch(copy.deepcopy(ours), gradients_as_weights(theirs))
    pairs = [(a[keep_mask], b[keep_mask]), (inputs[0].grad, inputs[1].grad)]
    pairs += [(p.grad, q) for p, q in zip(ours.parameters(), wanted.parameters())]
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=0)

# %%
padded = torch.arange(7) < torch.tensor([[7], [4], [1]])            # (B, L), True = real token
cases = [(norm, activation, training, mask) for norm in NORM_POSITIONS
         for activation in ("relu", "gelu") for training in (True, False)
         for mask in (padded, torch.ones_like(padded))]
for norm, activation, training, mask in cases:
    compare(norm, activation, torch.float32, training, mask, tolerance=1e-5)
    compare(norm, activation, torch.float64, training, mask, tolerance=1e-10)
print(len(cases), "cases agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# > **Mind the condition.** They agree at dropout 0. Above it they are two models: torch also drops attention weights and hidden units of the feed-forward network, which the paper does not mention. `nn.TransformerEncoderLayer(..., dropout=0.1)` sets four places at once, we drop at two.

# %%
theirs = nn.TransformerEncoderLayer(32, H, 64, dropout=0.1)
print("torch:", theirs.self_attn.dropout, theirs.dropout.p, theirs.dropout1.p, theirs.dropout2.p)
ours = EncoderLayer(32, H, 64, dropout=0.1)
print("ours: ", ours.attention.dropout, ours.feed_forward.dropout.p, ours.dropout.p, ours.dropout.p)

# %% [markdown]
# ## Break it: two mistakes that raise no error
#
# **The norm on the stream.** A frequent slip when "moving the norm to the front" is $\operatorname{LN}(x) + f(\operatorname{LN}(x))$: the norm is put in front of the residual connection as well. There is a test for it that needs no reference. Silence both parts, so that they return exactly 0.
#
# > **Predict, then run.** Exercise 7.3 asked what such layers leave of $x$. Is it *exactly* $x$ for Pre-LN? And can this test tell the slip from Post-LN?

# %%
def silent(part):
    part = copy.deepcopy(part)
    nn.init.zeros_(part.w_o.weight if hasattr(part, "w_o") else part.w_2.weight)
    return part


class Slip(EncoderLayer):
    def forward(self, x, keep_mask=None):
        x = self.norm_1(x) + self.attention(self.norm_1(x), keep_mask)
        return self.norm_2(x) + self.feed_forward(self.norm_2(x))

# %%
def after_twelve(layer):
    layer.attention, layer.feed_forward = silent(attention), silent(feed_forward)
    out = x
    for _ in range(12):
        out = layer(out, keep_mask)
    return out


normed = LayerNorm(D)(x)
for name, kind, norm in (("pre", EncoderLayer, "pre"), ("post", EncoderLayer, "post"),
                         ("slip", Slip, "pre")):
    out = after_twelve(kind(D, H, 4 * D, dropout=0.0, norm=norm))
    print(f"{name:5s} away from x: {(out - x).abs().max():.2f}   "
          f"away from LN(x): {(out - normed).abs().max():.2f}")
    assert torch.equal(out, x) if name == "pre" else (out - normed).abs().max() < 1e-3

# %%
record("B37", "LN(x) + f(LN(x)), silent branches, away from x", (out - x).abs().max(), 0.5, 5)

# %% [markdown]
# A silent Pre-LN stack is the identity, exactly. Post-LN gives $\operatorname{LN}(x)$, and the slip gives the same, because it is Post-LN but for two norms: every norm on the stream can be read as the end of the addition before it. Only the very first one is too many, and the last one is missing. With them evened out, the two agree:

# %%
slip = Slip(D, H, 4 * D, dropout=0.0)
slip.attention, slip.feed_forward = attention, feed_forward
torch.testing.assert_close(LayerNorm(D)(slip(x, keep_mask)), post_ln(normed), atol=1e-4, rtol=0)

# %% [markdown]
# **The wrong switch.** Both kinds have the same parameters with the same names. What happens if weights of a Post-LN model are loaded into a Pre-LN one?

# %%
def begin(depth, norm):
    return nn.ModuleList(
        EncoderLayer(D, H, 4 * D, dropout=0.0, norm=norm) for _ in range(depth))


def run(layers, x, keep_mask):
    states = [x]
    for layer in layers:
        states.append(layer(states[-1], keep_mask))
    return states                                              # N + 1 times (B, L, D)

# %%
_ = torch.manual_seed(0)
saved, loaded = begin(6, "post"), begin(6, "pre")
print(loaded.load_state_dict(saved.state_dict()))
with torch.no_grad():
    a, b = run(saved, x, keep_mask)[-1], LayerNorm(D)(run(loaded, x, keep_mask)[-1])
difference = ((a - b)[keep_mask].norm() / a[keep_mask].norm()).item()
print(f"outputs differ by {difference:.2f} of their size")
assert difference > 0.5
record("N41", "difference of the outputs, relative", difference, 0.5, 2)

# %% [markdown]
# No error, and another function. The place of the norm is stored nowhere in the weights, so it has to be known. (Chapter 11 loads BERT, and needs `norm="post"`.)

# %% [markdown]
# ## How do the weights start?
#
# Everything below is measured **at initialisation**, before any training. Then the first thing to say is which initialisation. Chapter 03 found three usual ones, which differ in the variance of the attention scores. Here they are as whole layers, on real sentences. (Torch's encoder layer draws Q, K and V with a packed Xavier and all other matrices with `nn.Linear`'s default, so not only its scores are smaller.)

# %%
def xavier(layers):
    """Xavier, each matrix alone: what our layers do by themselves."""


def torchs_layer(layers):
    for layer in layers:
        copy_from_torch(layer, torch_layer(layer.norm, d_model=D, d_ff=4 * D))


def plain_linear(layers):
    initialize(layers, "torch")


STARTS = {"Xavier (this book)": xavier, "torch's encoder layer": torchs_layer,
          "nn.Linear's default": plain_linear}

# %%
def score_variance(layer, x, keep_mask):
    h, attention = LayerNorm(D)(x), layer.attention
    q, k = (attention.split(w(h)) for w in (attention.w_q, attention.w_k))  # (B, H, L, d_k)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))         # (B, H, L, L)
    pairs = keep_mask[:, None, :, None] & keep_mask[:, None, None]   # (B, 1, L, L)
    return scores[pairs.expand_as(scores)].var().item()

# %% [markdown]
# And how loud is what a part adds, compared with the stream it is added to?

# %%
@torch.no_grad()
def branch_sizes(layer, x, keep_mask):
    pre = layer.norm == "pre"
    change_1 = layer.attention(layer.norm_1(x) if pre else x, keep_mask)
    y = x + change_1 if pre else layer.norm_1(x + change_1)
    change_2 = layer.feed_forward(layer.norm_2(y) if pre else y)
    return [rms(change_1, keep_mask) / rms(x, keep_mask),
            rms(change_2, keep_mask) / rms(y, keep_mask)]

# %% [markdown]
# > **Predict, then run.** "Each sub-layer makes a small correction to the stream." Twelve layers, Xavier. How large is attention's correction in the last layer, relative to the stream: for Post-LN 0.1, 0.5 or 1? And for Pre-LN?

# %%
first_last, variances = {}, []
print("start                  scores  norm  layer 1: attention, FFN   layer 12: attention, FFN")
for name, restart in STARTS.items():
    for norm in ("post", "pre"):
        _ = torch.manual_seed(0)
        layers = begin(12, norm)
        restart(layers)
        states = run(layers, x, keep_mask)
        first_last[name, norm] = [branch_sizes(layers[i], states[i], keep_mask) for i in (0, 11)]
        (a, b), (c, d) = first_last[name, norm]
        variances.append(score_variance(layers[0], x, keep_mask))
        print(f"{name:22s} {variances[-1]:5.2f}  {norm:4s}  {a:13.2f}{b:9.2f}{c:17.2f}{d:9.2f}")

# %%
for found, expected in zip(variances[::2], (1, 1 / 4, 1 / 9)):
    assert abs(found / expected - 1) < 0.25
assert 0.6 < first_last["Xavier (this book)", "post"][0][0] < 0.9
assert first_last["Xavier (this book)", "post"][1][0] > 0.9
assert first_last["Xavier (this book)", "pre"][1][0] < 0.4
for (name, _), sizes in first_last.items():
    assert name == "Xavier (this book)" or max(map(max, sizes)) < 0.45

# %%
post, pre = (first_last["Xavier (this book)", norm] for norm in ("post", "pre"))
torchs = first_last["torch's encoder layer", "post"]
record("C8", "attention over stream, layer 12, Post-LN, Xavier", post[1][0], 0.75, 2)
record("C8", "the same, torch's start", torchs[1][0], 0.1, 0.45)
shrinks = pre[1][0] / pre[0][0]
record("C18", "attention over stream, layer 12 over layer 1, Pre-LN", shrinks, 0.3, 0.7)

# %% [markdown]
# The variances are those of chapter 03: about 1, 1/4 and 1/9. With Xavier and Post-LN, attention's "correction" is about three quarters of the stream in the first layer and about as loud as the stream in the last. The norm resets the stream to RMS 1 each time, and attention gets louder: averages of tokens that are already alike lose nothing (we come to that). In Pre-LN the stream has grown and the same branch weighs less and less. With the two other starts every correction is well below half of the stream, wherever the norm stands.
#
# > **Key idea.** "Post-LN does this" is half a sentence. At initialisation, the start of the weights matters as much as the place of the norm. In this chapter Xavier is meant unless another start is named.

# %% [markdown]
# ## The stream grows, and the final norm
#
# Follow equation (8.2) through $N$ layers, that is $2N$ sub-layers:
#
# $$
# x_{2N} = x_0 + \sum_{i=1}^{2N} f_i\bigl(\operatorname{LN}(x_{i-1})\bigr) \tag{8.3}
# $$
#
# Every $f_i$ sees an input of RMS 1, so the terms are of similar size, and random weights make them nearly independent. Independent things add in squares.
#
# > **Predict, then run.** The RMS after 2 layers is about 1.6. After 48: 2.5, 8 or 42? And what does that do to the first loss, if a head reads the stream as it is?
#
# To have a loss we do as Xiong et al.: a random head, and for every token a random word as its target. We compute in float64, because some numbers below become very small.

# %%
def loss_of(out, keep_mask, targets):
    head = torch.randn(D, len(vocabulary), dtype=out.dtype) / math.sqrt(D)
    return F.cross_entropy((out @ head)[keep_mask], targets[keep_mask])


def start_up(depth, norm, seed, restart=xavier):
    _ = torch.manual_seed(seed)
    ids, keep_mask = some_sentences(seed)
    x = InputEmbedding(len(vocabulary), D, dropout=0.0)(ids).detach()  # (B, L, D)
    layers = begin(depth, norm)
    restart(layers)
    return layers.double(), x.double(), ids, keep_mask

# %%
depths = (2, 6, 12, 24, 48)
final_norm = LayerNorm(D).double()
print(f"ln of the vocabulary size: {math.log(len(vocabulary)):.1f}")
for depth in depths:
    layers, x64, ids, keep = start_up(depth, "pre", seed=0)
    with torch.no_grad():
        out = run(layers, x64, keep)[-1]
        targets = torch.randint(2, len(vocabulary), ids.shape)
        without, with_norm = (loss_of(y, keep, targets) for y in (out, final_norm(out)))
    print(f"{depth:2d} layers: RMS {rms(out, keep):.1f} (root of 1 + N: {(1 + depth) ** 0.5:.1f}), "
          f"loss {without:.0f}, with a final norm {with_norm:.1f}")
    assert with_norm < 9.8 < without and abs(rms(out, keep) / (1 + depth) ** 0.5 - 1) < 0.2

# %%
record("C20", "RMS of the stream after 48 layers", rms(out, keep), 5, 9)
record("A14", "first loss at 48 layers, without a final norm", without, 15, 60)
record("A14", "first loss at 48 layers, with a final norm", with_norm, 8.5, 9.8)

# %% [markdown]
# One layer adds about 1 to the mean square, so the RMS is about $\sqrt{1 + N}$. The head, made for inputs of RMS 1, becomes sure of itself without a reason, and the loss of a wrong and sure answer is large. A Pre-LN stack therefore ends in a **final norm**, one for the whole stack ($2D$ parameters), not one per layer. Post-LN needs none: its last act is a norm already.
#
# With another start the branches are quieter and so the stream grows more slowly. The final norm is about scale, and how much scale there is depends on the start.

# %% [markdown]
# ## How large are the gradients?
#
# Now the experiment of [Xiong et al. (2020)](../book/bibliography.md). At initialisation, what is the norm of the gradient that the matrix $W_2$ of each layer's feed-forward network gets? For the **last** layer of $N$ they prove upper bounds. As functions of the depth these are
#
# $$
# \text{Post-LN: } \Bigl\lVert \frac{\partial \mathcal{L}}{\partial W_2} \Bigr\rVert \sim N^{0}, \qquad \text{Pre-LN: } \Bigl\lVert \frac{\partial \mathcal{L}}{\partial W_2} \Bigr\rVert \sim N^{-1/2} \tag{8.4}
# $$
#
# up to factors of the width. A bound need not be reached; is it? In a plot with two logarithmic axes these are straight lines of slope 0 and $-\tfrac{1}{2}$.
#
# We measure five seeds, each with its own sentences, embeddings, weights and targets. Along the way we note two more things for later: the gradients of the projections $W_Q$ and $W_K$, and how similar the tokens of a sentence are (the mean cosine between two of them).

# %%
def token_similarity(h, keep_mask):
    h = F.normalize(h, dim=-1) * keep_mask.unsqueeze(-1)             # (B, L, D)
    n = keep_mask.sum(1)                                             # (B,)
    all_pairs = h.sum(1).square().sum(-1)                            # (B,), a token with itself too
    return ((all_pairs - n) / (n * (n - 1))).mean().item()


def norms_of(weights):
    return [weight.grad.norm().item() for weight in weights]

# %%
def measure(depth, norm, seed, restart=xavier, own_word=False):
    layers, x, ids, keep_mask = start_up(depth, norm, seed, restart)
    states = run(layers, x, keep_mask)
    out = final_norm(states[-1]) if norm == "pre" else states[-1]
    targets = ids if own_word else torch.randint(2, len(vocabulary), ids.shape)
    loss_of(out, keep_mask, targets).backward()
    return {"gradient": norms_of(layer.feed_forward.w_2.weight for layer in layers),
            "query": norms_of(layer.attention.w_q.weight for layer in layers),
            "key": norms_of(layer.attention.w_k.weight for layer in layers),
            "cosine": [token_similarity(state.detach(), keep_mask) for state in states[1:]],
            "rms": [rms(state.detach(), keep_mask) for state in states[1:]]}

# %%
SEEDS = range(5)
runs = {(norm, depth): [measure(depth, norm, seed) for seed in SEEDS]
        for norm in ("post", "pre") for depth in depths}

# %%
def mean_over_seeds(several, what):
    return [sum(values) / len(values) for values in zip(*(one[what] for one in several))]

# %% [markdown]
# > **Predict, then run.** From 6 layers to 24, the last layer's gradient in Pre-LN gets smaller by a factor of 1, 2 or 4? And in Post-LN?

# %%
print("depth          ", *(f"{depth:6d}" for depth in depths))
for norm in ("post", "pre"):
    last = [mean_over_seeds(runs[norm, depth], "gradient")[-1] for depth in depths]
    print(f"{norm:4s} last layer", *(f"{value:6.2f}" for value in last))

# %%
def slope(several, deep=(6, 12, 24, 48)):
    log_depth = torch.tensor(deep, dtype=torch.float64).log()
    log_norm = torch.tensor(several, dtype=torch.float64).log()
    centred = log_depth - log_depth.mean()
    return (centred @ log_norm / (centred @ centred)).item()


theory = {"post": 0.0, "pre": -0.5}
for norm in ("post", "pre"):
    slopes = [slope([runs[norm, d][seed]["gradient"][-1] for d in (6, 12, 24, 48)])
              for seed in SEEDS]
    print(f"{norm:4s} theory {theory[norm]:4.1f}, measured {sum(slopes) / len(slopes):5.2f}; "
          "each seed", *(f"{value:.2f}" for value in slopes))
    assert all(abs(value - theory[norm]) < 0.15 for value in slopes)

# %%
slopes = {norm: slope([mean_over_seeds(runs[norm, d], "gradient")[-1] for d in depths[1:]])
          for norm in ("post", "pre")}
record("N42", "slope, Post-LN, Xavier", slopes["post"], -0.15, 0.15)
record("N42", "slope, Pre-LN, Xavier", slopes["pre"], -0.65, -0.45)

# %% mystnb={"image": {"alt": "Gradient norm of W_2 in the last layer against depth 2 to 48, both axes logarithmic. Post-LN is flat near 1.2. Pre-LN falls along a straight line from about 0.9 to about 0.2, on top of a dashed theory line of slope minus one half."}}
lines = {f"{norm.capitalize()}-LN, measured":
         [mean_over_seeds(runs[norm, depth], "gradient")[-1] for depth in depths]
         for norm in ("post", "pre")}
at_6 = {norm: mean_over_seeds(runs[norm, 6], "gradient")[-1] for norm in theory}
lines |= {f"theory, slope {s:g}": [at_6[norm] * (depth / 6) ** s for depth in depths]
          for norm, s in theory.items()}
fig, ax = plot_lines(lines, x=depths, xlabel="number of layers", direct_labels=False,
                     ylabel="gradient norm of $W_2$", title="The last layer, at initialisation")
ax.set(xscale="log", yscale="log")
ax.set_xticks(depths, depths)
ax.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
ax.minorticks_off()
plt.show()

# %% [markdown]
# The gradients follow the bounds, on every seed. (The theory gives slopes only; its lines are drawn through the measured point at 6 layers.) Why? In Pre-LN the gradient of the last layer passes one thing on its way down, the final norm. A norm divides by the RMS of what comes in, and so does its Jacobian (chapter 07). Then **gradient times RMS** should not depend on the depth at all.

# %%
products = [sum(one["gradient"][-1] * one["rms"][-1] for one in runs["pre", depth]) / len(SEEDS)
            for depth in depths]
print("Pre-LN, gradient x RMS:", *(f"{value:.2f}" for value in products))
assert max(products) / min(products) < 1.2

# %% [markdown]
# So the slope of $-\tfrac12$ is the growth of the stream, read backwards. And a start that lets the stream grow more slowly must give another slope.
#
# > **Predict, then run.** With torch's own start the branches are quieter. Is Pre-LN's slope between 6 and 24 layers steeper than $-0.5$ or flatter? And Post-LN's?

# %%
others = {}
for name, restart in list(STARTS.items())[1:]:
    for norm in ("post", "pre"):
        several = {d: [measure(d, norm, seed, restart) for seed in range(3)] for d in (6, 12, 24)}
        others[name, norm] = several
        slopes = [slope([several[d][s]["gradient"][-1] for d in several], tuple(several))
                  for s in range(3)]
        print(f"{name:22s} {norm:4s} slopes", *(f"{value:5.2f}" for value in slopes))
        stream = sum(one["rms"][-1] for one in several[24]) / 3
        print(f"{'':22s}      RMS of the stream after 24 layers {stream:.1f}")
        low, high = (-0.2, 0.2) if norm == "post" else (-0.45, -0.1)
        assert low < sum(slopes) / 3 < high

# %%
plain = others["nn.Linear's default", "pre"]
plain = slope([mean_over_seeds(plain[d], "gradient")[-1] for d in plain], tuple(plain))
record("N42", "slope, Pre-LN, nn.Linear's default", plain, -0.45, -0.1)

# %% [markdown]
# Post-LN stays flat. On average over the three seeds Pre-LN falls more slowly than $N^{-1/2}$, because its stream grows more slowly: about 2 after 24 layers instead of 5, and the embedding it began with, 1.2, is still a good part of that. The theorem is not wrong; the start is among its assumptions.
#
# > **Mind the condition.** This is step 0. Xiong et al. conclude from the larger gradients near the output that Post-LN needs a warm-up of the learning rate. Whether it does, for which start and which rate, is a question about training; chapter 10 trains.

# %% [markdown]
# ## Do gradients vanish towards the input?
#
# One often reads that they do in Post-LN, with the argument of the appendix of [Xiong et al. (2020)](../book/bibliography.md): on the way down the norms of each layer shrink the gradient by about $\sqrt{2/3}$, so that layer $l$ of $N$ receives a share of about
#
# $$
# \Bigl(\frac{2}{3}\Bigr)^{(N - l)/2} \tag{8.5}
# $$
#
# > **Predict, then run.** For 48 layers (8.5) says 0.00007. What is the first layer's gradient divided by the last one's, in Post-LN: 0.00007, 0.1 or 1?

# %%
def first_over_last(several):
    return [one["gradient"][0] / one["gradient"][-1] for one in several]


for norm in ("post", "pre"):
    for depth in depths[1:]:
        ratios = first_over_last(runs[norm, depth])
        print(f"{norm:4s} {depth:2d} layers:", *(f"{value:5.2f}" for value in ratios),
              f"   formula {(2 / 3) ** ((depth - 1) / 2):.5f}" if norm == "post" else "")
        assert min(ratios) > (0.2 if norm == "post" else 1.2)
        assert norm == "pre" or 0.6 < sum(ratios) / len(ratios) < 1.6

# %%
ratios = {norm: first_over_last(runs[norm, 48]) for norm in ("post", "pre")}
record("B5", "first over last layer of 48, Post-LN", sum(ratios["post"]) / len(SEEDS), 0.6, 1.6)
record("C14", "first over last layer of 48, Pre-LN", sum(ratios["pre"]) / len(SEEDS), 3, 12)

# %% mystnb={"image": {"alt": "Two panels, gradient norm of W_2 by layer on a logarithmic axis, one line for 6, 12, 24 and 48 layers each. Left, Post-LN: all lines are level, between 1 and 1.5, from the first layer to the last. Right, Pre-LN: all lines begin near 1.2 at the input and fall along the same curve towards the output, to 0.18 at layer 48."}}
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(7.0, 3.4))
for ax, norm in zip(axes, ("post", "pre")):
    curves = {f"{depth} layers": mean_over_seeds(runs[norm, depth], "gradient")
              for depth in (48, 24, 12, 6)}
    plot_gradient_norms(curves, title=f"{norm.capitalize()}-LN", ax=ax,
                        ylabel="gradient norm of $W_2$" if norm == "post" else "")
axes[0].get_legend().remove()
plt.show()

# %%
sixth = [mean_over_seeds(runs["pre", depth], "gradient")[5] for depth in depths[1:]]
print("Pre-LN, layer 6 of 6, 12, 24, 48:", *(f"{value:.2f}" for value in sixth))
assert max(sixth) / min(sixth) < 1.25

# %% [markdown]
# In Post-LN the ratio scatters around 1 from seed to seed and has no trend; nothing like (8.5). In Pre-LN the gradient is *largest* next to the input and falls towards the output: what falls there falls at the other end. And the four curves lie on one another. What layer $l$ gets depends on $l$, not on how many layers stand above it; the $N^{-1/2}$ of (8.4) is this curve at $l = N$.
#
# What is missing in the argument? It counts the norms and forgets the branches. At each sub-layer the gradient also comes back through $f$ and is **added** to what came by the residual connection. Let us count both.

# %%
def two_factors(depth, seed):
    layers, x, ids, keep_mask = start_up(depth, "post", seed)
    sizes = []  # gradient norm behind and before each LayerNorm, from the output down
    for layer in layers:
        for norm in (layer.norm_1, layer.norm_2):
            norm.register_full_backward_hook(
                lambda module, g_in, g_out: sizes.append((g_out[0].norm(), g_in[0].norm())))
    targets = torch.randint(2, len(vocabulary), ids.shape)
    loss_of(run(layers, x.requires_grad_(), keep_mask)[-1], keep_mask, targets).backward()
    shrink = torch.stack([before / behind for behind, before in sizes])
    grow = torch.stack([nxt[0] / this[1] for this, nxt in zip(sizes, sizes[1:])])
    return shrink.log().mean().exp().item(), grow.log().mean().exp().item()

# %%
for depth in (12, 24, 48):
    shrink, grow = two_factors(depth, seed=0)
    print(f"{depth} layers: a norm {shrink:.2f}, residual plus branch {grow:.2f}, "
          f"together {shrink * grow:.2f}, whole stack {(shrink * grow) ** (2 * depth - 1):.1f}, "
          f"by the norms alone {shrink ** (2 * depth - 1):.0e}")
    assert 0.1 < (shrink * grow) ** (2 * depth - 1) < 3 and shrink ** (2 * depth - 1) < 0.02

# %%
record("N43", "a norm multiplies the gradient by", shrink, 0.7, 0.9)
record("N43", "residual and branch multiply it by", grow, 1.1, 1.4)
record("N43", "together", shrink * grow, 0.94, 1.06)

# %% [markdown]
# A norm takes a fifth away, residual and branch together give nearly all of it back: over the whole stack the same order of size remains, where the norms alone would leave a hundredth or, with 48 layers, nothing. The two belong together: the branch makes the sum louder, therefore the norm has to shrink it, and the same branch makes the gradient larger.
#
# Random targets might be a special case. Here the target of each token is the token's own word, which the residual connection carries to the output.

# %%
for depth in (6, 24):
    several = [measure(depth, "post", seed, own_word=True) for seed in SEEDS]
    ratios = first_over_last(several)
    print(f"Post-LN, own word, {depth:2d} layers:", *(f"{value:.2f}" for value in ratios))
    assert min(ratios) > 0.2

# %% [markdown]
# [Liu et al. (2020)](../book/bibliography.md) came to a similar verdict in another way: they found vanishing gradients only in Post-LN *decoders*, and repairing them there did not repair the training.

# %% [markdown]
# ## What does vanish: the differences between tokens
#
# Attention averages. Averages of a sentence's tokens are more alike than the tokens were, and the next layer averages again.
#
# > **Predict, then run.** The mean cosine between two tokens of a sentence is about 0.3 at the input (the next cell prints it first). After 24 layers of Post-LN and of Pre-LN: 0.5, 0.9 or 1?

# %%
print(f"input: {(start := token_similarity(x, keep_mask)):.2f}")
assert 0.2 < start < 0.4

# %%
for norm in ("post", "pre"):
    cosines = mean_over_seeds(runs[norm, 24], "cosine")
    shown = "   ".join(f"{i}: {cosines[i - 1]:.4f}" for i in (1, 6, 12, 24))
    print(f"{norm:4s} after layer {shown}")
assert mean_over_seeds(runs["post", 24], "cosine")[-1] > 0.999
pre = [1 - cosine for cosine in mean_over_seeds(runs["pre", 24], "cosine")]
assert pre[-1] > 0.05 and all(0.45 < pre[2 * i - 1] / pre[i - 1] < 0.75 for i in (6, 12))

# %%
alike = {norm: 1 - mean_over_seeds(runs[norm, 24], "cosine")[-1] for norm in ("post", "pre")}
record("C17", "1 minus the cosine after 24 layers, Post-LN", alike["post"], 0, 1e-3)
record("C17", "1 minus the cosine after 24 layers, Pre-LN", alike["pre"], 0.05, 0.3)

# %% mystnb={"image": {"alt": "Four lines over 24 layers on a logarithmic axis: one minus the mean cosine between two tokens. Post-LN with Xavier falls in a nearly straight line to below one millionth. Pre-LN with Xavier, Post-LN and Pre-LN with torch's start all stay above about 0.03."}}
lines = {}
for norm in ("post", "pre"):
    start = others["torch's encoder layer", norm][24]
    for name, several in (("Xavier", runs[norm, 24][:3]), ("torch's layer", start)):
        lines[f"{norm.capitalize()}-LN, {name}"] = [
            1 - cosine for cosine in mean_over_seeds(several, "cosine")]
fig, ax = plot_lines(lines, x=range(1, 25), xlabel="layer (1 = next to the input)",
                     ylabel="1 - cosine of two tokens", direct_labels=False,
                     title="How different the tokens of a sentence still are")
ax.set_yscale("log")
plt.show()
assert lines["Post-LN, Xavier"][-1] < 1e-5 and lines["Post-LN, torch's layer"][-1] > 0.01

# %% [markdown]
# With Xavier, a deep Post-LN stack hands out the same vector for every token of a sentence. What a branch adds is as loud as the stream (we measured that), so every layer replaces a good part of each token by an average. Pre-LN slows this down: from 6 layers to 12, and from 12 to 24, one minus the cosine falls to about 0.6 of what it was, so like a power of the depth, not exponentially. And again the start has a say: with torch's, the tokens of a Post-LN stack of 24 layers are still distinct. The effect is known as **rank collapse** ([Dong et al. (2021)](../book/bibliography.md) for attention alone, [Noci et al. (2022)](../book/bibliography.md) with residuals and norms).
#
# This has a consequence for learning. If all tokens are equal, it does not matter to whom one listens, so queries and keys have nothing to learn from (Noci et al.).
#
# > **Predict, then run.** The gradients of $W_Q$ and $W_K$ in a Post-LN stack of 24 layers. Where are they tiny: next to the input or next to the output?

# %%
for norm in ("post", "pre"):
    for what in ("query", "key"):
        sizes = mean_over_seeds(runs[norm, 24], what)
        shown = "   ".join(f"layer {i}: {sizes[i - 1]:.0e}" for i in (1, 6, 12, 18, 24))
        print(f"{norm:4s} {what:5s}", shown)
        assert norm == "pre" or sizes[-1] < 1e-4 * sizes[0]

# %%
sizes = mean_over_seeds(runs["post", 24], "query")
record("N44", "queries, last layer over first of 24", sizes[-1] / sizes[0], 1e-9, 1e-4)

# %% [markdown]
# So there *is* a vanishing gradient in deep Post-LN encoders with Xavier. It concerns queries and keys, not the whole layer, and it vanishes towards the **output**.
#
# > **Key idea.** Pre-LN: a stream that grows, branches that weigh less and less, gradients that fall with depth and towards the output. Post-LN: a stream of constant size, loud branches, gradients of $W_2$ that are level, and tokens that become alike. How strong each effect is depends on how the weights start.
#
# All depths at once: the gradient of $W_2$ and the similarity of tokens, layer by layer, means over the five seeds. Move the slider.

# %%
measured = {norm: {depth: {what: mean_over_seeds(runs[norm, depth], what)
                           for what in ("gradient", "cosine")}
                   for depth in depths} for norm in ("post", "pre")}
depth_explorer(measured, key="depth-explorer")

# %% [markdown]
# ## Exercises
#
# Cells with `...` are for you. Write your answer over the dots and run the cell: the check below it says what it found. Every check is public, and you may try as often as you like.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 8.1** (difficulty 1 of 5, 5 min, predict). A token is $(3, 1)$ and the only sub-layer doubles its input: $f(x) = 2x$. Compute Post-LN (8.1) and Pre-LN (8.2) by hand, for $\varepsilon = 0$. Then do the same for $(30, 10)$. Which of the two forgets how long the token was? Hand in the first number that Pre-LN makes of $(30, 10)$.

# %% tags=["exercise"]
answer = ...  # a whole number
checks.answer("8.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# $\operatorname{LN}(3, 1) = (1, -1)$. Post-LN: $\operatorname{LN}(9, 3) = (1, -1)$, and the same for $(30, 10)$: it forgets. Pre-LN: $(3, 1) + (2, -2) = (5, -1)$, and $(32, 8)$.
#
# ```python
# answer = 30 + 2 * 1
# ```
#
# With the book's LayerNorm:
#
# ```python
# token, norm = torch.tensor([3.0, 1.0]), LayerNorm(2)
# for factor, pre in ((1, [5.0, -1.0]), (10, [32.0, 8.0])):
#     y = factor * token
#     torch.testing.assert_close(norm(y + 2 * y), torch.tensor([1.0, -1.0]), atol=1e-4, rtol=0)
#     torch.testing.assert_close(y + 2 * norm(y), torch.tensor(pre), atol=1e-4, rtol=0)
# ```
#
# </details>
#
# > **Exercise 8.2** (difficulty 2 of 5, 20 min, implement). Write the layer from memory, in another way: it gets its parts ready-made. `MyEncoderLayer(attention, feed_forward, norm_1, norm_2, place)` is an `nn.Module`; the parts are four modules, `place` is `"pre"` or `"post"`. Call `attention(x, keep_mask)`, the other parts with `x` alone; `norm_1` belongs to attention. `forward(x, keep_mask=None)` takes `x` $(B, L, D)$ and a mask $(B, L)$, True = real token, and returns $(B, L, D)$. No dropout. Can you write a half only once and use it for both parts?

# %% tags=["exercise"]
class MyEncoderLayer(nn.Module):
    ...  # your code: __init__(self, attention, feed_forward, norm_1, norm_2, place) and forward


checks.encoder_layer(MyEncoderLayer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# class MyEncoderLayer(nn.Module):
#     def __init__(self, attention, feed_forward, norm_1, norm_2, place):
#         super().__init__()
#         self.attention, self.feed_forward = attention, feed_forward
#         self.norm_1, self.norm_2, self.place = norm_1, norm_2, place
#
#     def half(self, x, part, norm, *mask):
#         if self.place == "pre":
#             return x + part(norm(x), *mask)
#         return norm(x + part(x, *mask))
#
#     def forward(self, x, keep_mask=None):
#         x = self.half(x, self.attention, self.norm_1, keep_mask)
#         return self.half(x, self.feed_forward, self.norm_2)
# ```
#
# Does one more norm behind a Post-LN stack change anything, as `nn.TransformerEncoder(..., norm=nn.LayerNorm(d))` has it? Not at the start: a norm of a normalised token changes nothing (up to eps) as long as the last norm's weight is 1 and its bias 0. After training it is not, and then the extra norm is another function. A Post-LN stack has $2N$ norms, a Pre-LN stack $2N + 1$.
#
# ```python
# layers, x64, ids, keep = start_up(3, "post", seed=0)
# out = run(layers, x64, keep)[-1][keep]
# torch.testing.assert_close(final_norm(out), out, atol=1e-4, rtol=0)
# nn.init.uniform_(layers[-1].norm_2.weight, 0.5, 2.0)
# out = run(layers, x64, keep)[-1][keep]
# assert (final_norm(out) - out).abs().max() > 0.1
# ```
#
# </details>
#
# > **Exercise 8.3** (difficulty 2 of 5, 10 min, implement). All measurements of this chapter needed the size of gradients. Write the tool: `my_gradient_norms(model)` returns a dict with the norm of the gradient of every parameter, under its name in the model, once a backward pass is done. The norm is the root of the sum of all squares, as a plain number. A parameter that took no part in the loss has no gradient; leave it out. The gradients stay as they are.

# %% tags=["exercise"]
def my_gradient_norms(model):
    ...  # your code: return {name: norm}


checks.gradient_norms(my_gradient_norms)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_gradient_norms(model):
#     found = {}
#     for name, parameter in model.named_parameters():
#         if parameter.grad is not None:
#             found[name] = parameter.grad.square().sum().sqrt().item()
#     return found
# ```
#
# It finds layers that are there but not used, which no loss will ever tell you:
#
# ```python
# layers, x64, ids, keep = start_up(3, "post", seed=0)
# loss_of(run(layers[:2], x64, keep)[-1], keep, ids).backward()
# found = my_gradient_norms(layers)
# assert {name.split(".")[0] for name in found} == {"0", "1"}
# first, = norms_of([layers[0].feed_forward.w_2.weight])
# assert math.isclose(found["0.feed_forward.w_2.weight"], first)
# ```
#
# </details>
#
# > **Exercise 8.4** (difficulty 3 of 5, 15 min, explore). Who makes the tokens alike? Silence attention (its $W_O$) in a Post-LN stack of 24 layers and look at the similarity of the tokens. Then silence the feed-forward network ($W_2$) instead.
#
# <details>
# <summary>Solution</summary>
#
# Without attention no token knows of another, and they stay apart: a cosine of about 0.7. (It is above the 0.3 of the input; ReLU's outputs are never negative, which gives all tokens a common direction. With `nn.Tanh` in its place you can check that.) Without the feed-forward network the tokens are as equal as with it: attention is the cause.
#
# ```python
# def similarity_without(pick):
#     layers, x64, ids, keep = start_up(24, "post", seed=0)
#     for layer in layers:
#         nn.init.zeros_(pick(layer).weight)
#     with torch.no_grad():
#         return token_similarity(run(layers, x64, keep)[-1], keep)
#
# assert similarity_without(lambda layer: layer.attention.w_o) < 0.9
# assert similarity_without(lambda layer: layer.feed_forward.w_2) > 0.999
# ```
#
# </details>
#
# > **Exercise 8.5** (difficulty 3 of 5, 15 min, explore). A third place: $x \leftarrow x + \operatorname{LN}(f(x))$, the norm on the branch ([Liu et al. (2022)](../book/bibliography.md) use it in Swin V2). Predict the mean square after $N$ layers from that of the input, then measure it for $N = 24$.
#
# <details>
# <summary>Solution</summary>
#
# Each of the $2N$ branches adds a vector of mean square exactly 1, nearly independent of the others: the mean square of the input plus $2N$.
#
# ```python
# layers, x64, ids, keep = start_up(24, "pre", seed=0)
# y = x64
# with torch.no_grad():
#     for layer in layers:
#         y = y + layer.norm_1(layer.attention(y, keep))
#         y = y + layer.norm_2(layer.feed_forward(y))
# assert abs(rms(y, keep) ** 2 / (rms(x64, keep) ** 2 + 48) - 1) < 0.2
# ```
#
# </details>
#
# > **Exercise 8.6** (difficulty 4 of 5, 25 min, explore). [Liu et al. (2020)](../book/bibliography.md) blame not the gradients but the **amplification**: how much the output changes when all weights change a little. Add to every weight matrix noise of 0.1 % of its standard deviation. By how many times 0.1 % does the normalised output change, for 24 layers of each kind?
#
# <details>
# <summary>Solution</summary>
#
# In Post-LN about twice as much as in Pre-LN: each loud branch passes the changes of all branches below it on.
#
# ```python
# @torch.no_grad()
# def amplification(norm, seed, depth=24):
#     layers, x64, ids, keep = start_up(depth, norm, seed)
#     before = final_norm(run(layers, x64, keep)[-1])[keep]
#     for weight in layers.parameters():
#         if weight.dim() == 2:
#             weight += 1e-3 * weight.std() * torch.randn_like(weight)
#     after = final_norm(run(layers, x64, keep)[-1])[keep]
#     return ((after - before).norm() / before.norm()).item() / 1e-3
#
# found = {norm: sum(amplification(norm, seed) for seed in range(3)) / 3 for norm in NORM_POSITIONS}
# assert 1.4 < found["post"] / found["pre"] < 3.5
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"In Post-LN the gradients vanish towards the input."* Not in an encoder at initialisation: first and last layer get gradients of $W_2$ of the same order up to 48 layers. The formula $(2/3)^{(N-l)/2}$ counts the norms and forgets the branches.
#
# > **Misconception.** *"In Pre-LN the gradient passes undiminished."* Its residual path is an identity. The gradients of the parameters do fall, towards the output and with the depth.
#
# > **Misconception.** *"Pre-LN's gradients fall as $N^{-1/2}$."* With Xavier. With torch's own start, more slowly.
#
# > **Misconception.** *"Sub-layers make small corrections."* In a Post-LN stack with Xavier, attention's is about as loud as the stream.
#
# > **Misconception.** *"Post-LN keeps the tokens more diverse."* In a deep stack at initialisation it is the other way round.
#
# > **Misconception.** *"To get Pre-LN, move the norm inside the layer."* And add one at the end of the stack, and leave the stream alone: $\operatorname{LN}(x) + f(\operatorname{LN}(x))$ is not Pre-LN.

# %% [markdown]
# ## Quiz
#
# Seven questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(8)

# %% [markdown]
# ## Summary
#
# - Post-LN normalises the sum, Pre-LN the input of the branch. Paper and figure show the first, much code the second; the parameters have the same names and shapes and load into each other without an error.
# - Verdicts about initialisation have to name the initialisation.
# - Pre-LN's stream grows like $\sqrt{1 + N}$ with Xavier, which is why the stack ends in a norm.
# - The last layer's gradient of $W_2$ does not depend on depth in Post-LN and falls as $N^{-1/2}$ in Pre-LN: the growth of the stream, read backwards.
# - No vanishing towards the input. What vanishes in deep Post-LN with Xavier is the difference between tokens, and with it the gradients of queries and keys, towards the output.
# - Both layers equal `nn.TransformerEncoderLayer` in output and every gradient.
#
# ## Sources
#
# Post-LN: [Vaswani et al. (2017)](../book/bibliography.md), section 3.1. Pre-LN in code: [Vaswani et al. (2018)](../book/bibliography.md), [Rush (2018)](../book/bibliography.md). Gradients at initialisation, Pre-LN's final norm: [Xiong et al. (2020)](../book/bibliography.md). Amplification, no vanishing in encoders: [Liu et al. (2020)](../book/bibliography.md). Token collapse: [Dong et al. (2021)](../book/bibliography.md), [Noci et al. (2022)](../book/bibliography.md). Xavier initialisation: [Glorot and Bengio (2010)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 09, [stacking the encoder](09_stacking_the_encoder.ipynb).
