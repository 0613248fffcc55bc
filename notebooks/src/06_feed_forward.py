# %% [markdown]
# # The position-wise feed-forward network
#
# *You will be able to:* build the feed-forward network by hand and with matrices, prove that it never looks sideways, say where an encoder needs it and where not, read it as keys and values, and count what it costs.
# *You need:* chapters 01 to 05. *Time:* {{ time }}.

# %% tags=["setup"]
import math
import string
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.attention import MultiHeadAttention
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_heatmap, plot_lines, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## What can a word do alone?
#
# In attention a word listens to others. What happens if there are none?
#
# Chapter 03 measured how far attention is from linear by $|f(x+y) - f(x) - f(y)|$, relative to $|f(x+y)|$.
#
# > **Predict, then run.** For a sentence of six words that number was about 0.7. What is it for a sentence of one word?

# %%
def additivity_error(f, length, n=50, d_model=64):
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, n, length, d_model, generator=generator)  # (n, L, D) each
    both = f(a + b)
    return ((both - f(a) - f(b)).norm() / both.norm()).item()


_ = torch.manual_seed(0)
attention = MultiHeadAttention(64, 4)
with torch.no_grad():
    for length in (6, 2, 1):
        print(f"{length} words: {additivity_error(attention, length):.2f}")

# %%
with torch.no_grad():
    six_words, one_word = (additivity_error(attention, n) for n in (6, 1))
record("N25", "error of additivity, attention, 6 words", six_words, 0.4, 1.2)
record("N25", "error of additivity, attention, 1 word", one_word, 0, 1e-5)

# %% [markdown]
# With a single key the softmax has nothing to divide: the weight is 1, whatever the query and the key say. What remains is the value and the output projection, two linear maps in a row. So alone, a word cannot do anything with attention but a linear map (plus a constant, once the biases have been trained). So here is something no linear map can do. *Does the word have an **a** or an **e**, but not both?*

# %%
words = "the boat cut the water".split()
pairs = torch.tensor([[float("a" in w), float("e" in w)] for w in words])  # (L, 2)
for word, pair in zip(words, pairs.tolist()):
    print(f"{word:6s} a, e = {pair}   one but not both: {pair[0] != pair[1]}")

# %% [markdown]
# This is the "exclusive or". For every linear map plus constant,
#
# $$
# f(1, 0) + f(0, 1) = f(1, 1) + f(0, 0) \tag{6.1}
# $$
#
# We want both on the left to be positive (*boat*, *the*) and both on the right to be negative (*water*, *cut*). That cannot be: at least one of the four is wrong.
#
# ## By hand: two hidden units
#
# A bend is what is missing. Take two **hidden units**, each a linear map followed by "negative becomes 0", and add them up:
#
# $$
# \max(0,\; a + e) \;-\; 2 \max(0,\; a + e - 1) \tag{6.2}
# $$
#
# With no letter both are 0. With one letter the first is 1, the second still 0. With two they are 2 and 1, and $2 - 2 \cdot 1 = 0$.
#
# In a feed-forward network the weights are these numbers: each hidden unit has a row that it is compared with, a bias, and a column that it writes. First with loops: position by position, unit by unit.

# %%
def feed_forward_with_loops(x, w_1, b_1, w_2, b_2):
    out = b_2.repeat(len(x), 1)                          # (L, D)
    for position in range(len(x)):
        for unit in range(len(w_1)):
            match = x[position] @ w_1[unit] + b_1[unit]
            out[position] += max(match, 0.0) * w_2[:, unit]
    return out

# %%
w_1 = torch.tensor([[1.0, 1.0], [1.0, 1.0]])             # (d_ff, D)
b_1 = torch.tensor([0.0, -1.0])                          # (d_ff,)
w_2 = torch.tensor([[1.0, -2.0], [0.0, 0.0]])            # (D, d_ff)
b_2 = torch.zeros(2)                                     # (D,)
answers = feed_forward_with_loops(pairs, w_1, b_1, w_2, b_2)
print(dict(zip(words, answers[:, 0].tolist())))

# %% [markdown]
# ## Then without
#
# All units at all positions are one matrix product, and all that they write is another.

# %%
def simple_feed_forward(x, w_1, b_1, w_2, b_2):
    hidden = (x @ w_1.T + b_1).clamp(min=0)              # (..., L, d_ff)
    return hidden @ w_2.T + b_2                          # (..., L, D)


torch.testing.assert_close(simple_feed_forward(pairs, w_1, b_1, w_2, b_2), answers)

# %% [markdown]
# This is the **position-wise feed-forward network**,
#
# $$
# \operatorname{FFN}(x) = W_2\, \sigma(W_1 x + b_1) + b_2 \tag{6.3}
# $$
#
# ([Vaswani et al. (2017)](../book/bibliography.md), equation 2, where $x$ is a row and stands on the left). The bend $\sigma$ is the **activation function**; theirs is $\operatorname{ReLU}(z) = \max(0, z)$. The number of hidden units is $d_{\mathrm{ff}}$, usually $4\, d_{\mathrm{model}}$. The output is as wide as the input, so that chapter 07 can add the two.
#
# ## The finished module
#
# It adds dropout on the hidden units, a choice of two activations, checked sizes, and the same start as attention's projections.
#
# > **Borrowed.** `nn.Linear`, `nn.ReLU`, `nn.GELU` and `nn.Dropout` are torch's. `xavier_linear_` and `MultiHeadAttention` come from chapter 05, `require_dropout`, `require_features` and `require_positive` from chapters 01 and 02.

# %%
from encoder_lib.attention import xavier_linear_
from encoder_lib.embedding import require_dropout, require_features, require_positive

# %% tags=["library"]
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0, activation="relu"):
        super().__init__()
        require_positive(d_model=d_model, d_ff=d_ff)
        require_dropout(dropout)
        if activation not in tuple(ACTIVATIONS):
            raise ValueError(f"activation must be one of {tuple(ACTIVATIONS)}, got {activation!r}")
        self.d_model = d_model
        self.w_1 = nn.Linear(d_model, d_ff)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.reset_parameters()

    def reset_parameters(self):
        xavier_linear_(self.w_1)
        xavier_linear_(self.w_2)

    def forward(self, x):
        require_features(x, self.d_model)
        hidden = self.dropout(self.activation(self.w_1(x)))  # (B, L, d_ff)
        return self.w_2(hidden)                              # (B, L, D)

# %%
by_hand = FeedForward(2, 2)
with torch.no_grad():
    by_hand.w_1.weight.copy_(w_1)
    by_hand.w_1.bias.copy_(b_1)
    by_hand.w_2.weight.copy_(w_2)
torch.testing.assert_close(by_hand(pairs.unsqueeze(0)), answers.unsqueeze(0))  # (1, L, D)

# %% [markdown]
# ## Check against torch
#
# The twin is three modules of torch in a row. We compare outputs and all gradients, of the input and of the four parameters, for both activations. The batch is a real one, padded; a network without a mask treats padding like any other position, so the padded rows must agree too.
#
# > **Borrowed.** `nn.Sequential` builds the twin. `Vocabulary` and `pad_batch` are from chapter 01, `InputEmbedding` from chapter 02.

# %%
from encoder_lib.embedding import InputEmbedding
from encoder_lib.text import Vocabulary, pad_batch

sentences = ["she nibbled daintily at her cake".split(), words]
vocabulary = Vocabulary(sentences)
ids = pad_batch([vocabulary.encode(s) for s in sentences])        # (B, L) = (2, 6)
_ = torch.manual_seed(0)
embedding = InputEmbedding(len(vocabulary), 64, dropout=0.0)
x = embedding(ids).detach()                                       # (B, L, D)

# %%
def compare(x, activation, dtype, tolerance):
    _ = torch.manual_seed(0)
    ours = FeedForward(64, 256, activation=activation).to(dtype)
    nn.init.normal_(ours.w_1.bias)                     # zero biases could hide a mistake
    nn.init.normal_(ours.w_2.bias)
    bend = nn.ReLU() if activation == "relu" else nn.GELU()
    theirs = nn.Sequential(nn.Linear(64, 256), bend, nn.Linear(256, 64)).to(dtype)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values())))
    results, upstream = [], torch.randn(x.shape, dtype=dtype)
    for module in (ours, theirs):
        inputs = x.to(dtype, copy=True).requires_grad_()
        out = module(inputs)
        (out * upstream).sum().backward()
        results.append([out, inputs.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*results, atol=tolerance, rtol=0)

# %%
for batch in (x, x[:1]):                               # with padding and without
    for activation in ACTIVATIONS:
        compare(batch, activation, torch.float32, tolerance=1e-5)
        compare(batch, activation, torch.float64, tolerance=1e-10)
print("output and five gradients agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# ## It never looks sideways
#
# "Position-wise" means: the same function at every position, and no position sees another. How could one test that? A popular test is to shuffle the words: a position-wise function gives the same vectors, shuffled.
#
# > **Predict, then run.** Which pass this test: the feed-forward network, attention, or both?

# %%
_ = torch.manual_seed(0)
feed_forward = FeedForward(64, 256)
six = x[:1]                                            # (1, L, D), no padding
order = torch.tensor([3, 0, 5, 1, 4, 2])
for f in (feed_forward, attention):
    gap = (f(six[:, order]) - f(six)[:, order]).abs().max()
    print(f"{type(f).__name__:18s} shuffled alike: {bool(gap < 1e-5)}")

# %%
record("N26", "attention, shuffled words", gap, 0, 1e-5)

# %% [markdown]
# Both. Attention mixes all positions, but without preferring any (chapter 02). So this test cannot tell them apart. What can is the **Jacobian**: how much does the output at position $i$ change if the input at position $j$ does? That is a 64 by 64 matrix for each pair of positions; we take its norm.

# %%
def influence(f, x):
    jacobian = torch.autograd.functional.jacobian(lambda x: f(x)[0], x)  # (L, D, 1, L, D)
    return jacobian.squeeze(2).norm(dim=(1, 3))                          # (L, L)


from_ffn, from_attention = influence(feed_forward, six), influence(attention, six)
off_diagonal = ~torch.eye(6, dtype=torch.bool)
assert (from_ffn[off_diagonal] == 0).all()
print(f"attention, smallest off the diagonal: {from_attention[off_diagonal].min():.1f}")

# %%
least = from_attention[off_diagonal].min()
record("C1", "least effect of a word on another, attention", least, 0.1, 5)
record("C1", "largest, feed-forward network", from_ffn[off_diagonal].max(), 0, 1e-9)

# %% mystnb={"image": {"alt": "Two heat maps, six output words by six input words of 'she nibbled daintily at her cake'. Feed-forward network: only the diagonal is bright, all else is exactly 0. Attention: no cell is 0, though the column of 'at' is dark."}}
fig, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
panels = {"feed-forward network": from_ffn, "attention": from_attention}
for ax, (name, values) in zip(axes, panels.items()):
    plot_heatmap(values / values.max(), row_labels=sentences[0], column_labels=sentences[0],
                 xlabel="input word", ylabel="output word", title=name, annotate=False,
                 value_label="norm of the Jacobian (largest = 1)", limits=(0, 1), ax=ax)
fig.suptitle("How much each input word moves each output word")
plt.show()

# %% [markdown]
# Exactly 0 off the diagonal, not merely small: the Jacobian of the feed-forward network is **block-diagonal**, one 64 by 64 block for each word. Attention's is dense.
#
# > **Key idea.** Attention moves information between positions; the feed-forward network works on it where it lies. It needs no mask: whatever stands at a padded position stays there.

# %%
garbage = x.clone()
garbage[1, 5] = 1e6                                    # the padded position of "the boat cut ..."
torch.testing.assert_close(feed_forward(garbage)[1, :5], feed_forward(x)[1, :5])
print(f"largest output at the padded position: {feed_forward(x)[1, 5].max():.1f}")

# %% [markdown]
# Padded positions do get an output, and it is not 0. Nobody reads it, as long as attention and pooling mask it (chapter 04).
#
# ### Two convolutions
#
# [Vaswani et al. (2017)](../book/bibliography.md) say it in another way: two convolutions with kernel size 1. A convolution slides a window over the positions; a window of one position sees one position.
#
# > **Borrowed.** `nn.Conv1d` is torch's; it wants the positions last, (B, D, L).

# %%
conv_1, conv_2 = nn.Conv1d(64, 256, kernel_size=1), nn.Conv1d(256, 64, kernel_size=1)
with torch.no_grad():
    for conv, linear in ((conv_1, feed_forward.w_1), (conv_2, feed_forward.w_2)):
        conv.weight.copy_(linear.weight.unsqueeze(-1))           # (out, in, 1)
        conv.bias.copy_(linear.bias)
by_convolution = conv_2(conv_1(x.transpose(1, 2)).relu()).transpose(1, 2)  # (B, L, D)
torch.testing.assert_close(by_convolution, feed_forward(x))
apart = (by_convolution - feed_forward(x)).abs().max()
record("A10", "largest difference of the two", apart, 0, 1e-5)

# %% [markdown]
# ## The bend
#
# ### Break it: without one
#
# > **Predict, then run.** Leave out the activation. The network still has 256 hidden units and 32,768 weights. How many numbers does one need to write down the same function, biases aside?

# %%
w_1, w_2 = feed_forward.w_1.weight, feed_forward.w_2.weight      # (d_ff, D), (D, d_ff)
product = w_2 @ w_1                                              # (D, D)
torch.testing.assert_close((x @ w_1.T) @ w_2.T, x @ product.T, atol=1e-5, rtol=0)
print(f"{w_1.numel() + w_2.numel()} weights do what {product.numel()} can do")
apart, at_once = (x @ w_1.T) @ w_2.T, x @ product.T              # (B, L, D)
record("N27", "difference of two maps and their product", (apart - at_once).abs().max(), 0, 1e-5)

# %% [markdown]
# Two linear maps in a row are one. Seven eighths of the weights are wasted, and for a word alone the exclusive or is out of reach again.
#
# ### ReLU and GELU
#
# ReLU has a corner. BERT and many encoders after it use the **GELU** ([Hendrycks and Gimpel (2016)](../book/bibliography.md)), which multiplies $z$ by the probability $\Phi(z)$ that a standard normal number is smaller than $z$:
#
# $$
# \operatorname{GELU}(z) = z\, \Phi(z) = \frac{z}{2}\left(1 + \operatorname{erf}\frac{z}{\sqrt 2}\right) \tag{6.4}
# $$
#
# > **Borrowed.** `F.gelu` is the same function in torch; `F.relu` its neighbour.

# %%
def gelu(z):
    return z / 2 * (1 + torch.erf(z / math.sqrt(2)))


z = torch.linspace(-6, 6, 200_001, dtype=torch.float64, requires_grad=True)
torch.testing.assert_close(gelu(z), F.gelu(z))
slope, = torch.autograd.grad(gelu(z).sum(), z)
low = gelu(z).argmin()
print(f"lowest {gelu(z)[low]:.5f} at {z[low]:.4f};  steepest {slope.max():.3f};"
      f"  slope at -6: {slope[0]:.0e}")

# %%
record("C6", "lowest value of GELU", gelu(z)[low], -0.18, -0.16)
record("C6", "size of the slope at -6", slope[0].abs(), 1e-9, 1e-6)
assert (slope[z > 0.76] >= 1).all()

# %% mystnb={"image": {"alt": "ReLU, GELU and the slope of GELU from -4 to 4. ReLU is 0 up to 0 and then rises straight. GELU dips to -0.17 near -0.75 and joins ReLU at both ends. Its slope is slightly negative on the left and is above 1 to the right of 0.75."}}
some = z.detach()[::2500][13:-13]                                # from about -4 to about 4
fig, ax = plot_lines({"ReLU": F.relu(some), "GELU": gelu(some),
                      "slope of GELU": slope[::2500][13:-13]},
                     x=some, xlabel="input $z$", ylabel="output", direct_labels=False,
                     title="GELU dips below 0 before it rises")
plt.show()

# %% [markdown]
# GELU is smooth, but it is not monotone: from the left it first falls, down to $z = -0.75$. Right of $0.75$ its slope is above 1. And far on the left its slope vanishes as ReLU's does, only softly.
#
# There is a second GELU in circulation, an approximation by tanh from times when erf was slow. Checkpoints were trained with one or the other, and torch has both.

# %%
exact = F.gelu(z)
by_tanh, by_sigmoid = F.gelu(z, approximate="tanh"), z * torch.sigmoid(1.702 * z)
print(f"tanh approximation:    off by up to {(by_tanh - exact).abs().max():.1e}")
print(f"sigmoid approximation: off by up to {(by_sigmoid - exact).abs().max():.1e}")
record("N29", "z times sigmoid(1.702 z), off by", (by_sigmoid - exact).abs().max(), 0.015, 0.025)

# %% [markdown]
# The tanh form is close, but not to $10^{-5}$: a check of copied weights fails, and the fault seems to be elsewhere. (The sigmoid form, from the same paper, is 40 times coarser; torch has no function for it.) `FeedForward` means the exact form.
#
# ### Break it: dead units
#
# A ReLU unit that is negative for every token gives 0 and gets gradient 0: its own weights learn nothing more, unless the layers below send other inputs. "GELU repairs this" is a frequent claim. We push all biases down and measure the gradient of $W_1$, relative to the one at bias 0.
#
# > **Predict, then run.** By which factor is GELU's gradient smaller at bias $-3$: 2, 20 or 2,000? And at $-10$?

# %%
def gradient_norm(activation, bias):
    _ = torch.manual_seed(0)
    module = FeedForward(64, 256, activation=activation).double()
    nn.init.constant_(module.w_1.bias, bias)
    inputs, upstream = torch.randn(2, 16, 32, 64, dtype=torch.float64)  # (B, L, D) each
    (module(inputs) * upstream).sum().backward()
    return module.w_1.weight.grad.norm().item()


for bias in (-1.0, -3.0, -10.0):
    shares = [gradient_norm(a, bias) / gradient_norm(a, 0.0) for a in ("relu", "gelu")]
    print(f"bias {bias:5.1f}   ReLU {shares[0]:.0e}   GELU {shares[1]:.0e}")
    assert bias > -3 or shares[0] == 0 < shares[1]

# %%
record("N28", "gradient at bias -10 over that at 0", shares[1], 1e-18, 1e-9)

# %% [markdown]
# At $-3$ all ReLU units are dead with this seed: not one match is positive for any of the 1,024 random tokens. (With others a few units live.) GELU keeps about 6 % of its gradient there. At $-10$ it keeps less than a billionth. So the repair is real near 0, and gone far away.
#
# ## Let it learn
#
# Now the exclusive or with real words. Each word is given as 26 numbers, one per letter: is it in the word? We train on words of the gap sentences and test on words that do not occur in them, and average over the four cases (none, *e*, *a*, both), so that a guess scores 0.5 and whatever is linear in the two letters at most 0.75.

# %%
def pack(sentences):
    longest = max(map(len, sentences))
    padded = [s + [""] * (longest - len(s)) for s in sentences]
    x = torch.tensor([[[float(c in w) for c in string.ascii_lowercase] for w in s] for s in padded])
    case = torch.tensor([[2 * ("a" in w) + ("e" in w) for w in s] for s in padded])
    keep_mask = torch.tensor([[w != "" for w in s] for s in padded])
    return x, case, keep_mask                          # (B, L, 26), (B, L), (B, L)


def read(split, n):
    texts = [e.text.replace("_", e.word) for e in load_gap(split)]
    return [t.split() for t in texts if t.isascii()][:n]

# %%
train, test = read("train", 4000), read("test", 1000)
seen = {w for s in train for w in s}
new = sorted({w for s in test for w in s} - seen)
alone_train, alone_test = pack([[w] for w in sorted(seen)]), pack([[w] for w in new])
print(len(seen), "words to learn from,", len(new), "new ones:", new[400:405])

# %% [markdown]
# The part under test stands between a word's letters and a linear answer. What it computes is added to the letters, as in the encoder.
#
# > **Borrowed.** The loss `F.binary_cross_entropy_with_logits` and the optimiser are explained in chapter 10, the addition in chapter 07.

# %%
class Tagger(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.answer = part, nn.Linear(26, 1)

    def forward(self, x, keep_mask):
        uses_mask = isinstance(self.part, MultiHeadAttention)
        change = self.part(x, keep_mask) if uses_mask else self.part(x)  # (B, L, 26)
        return self.answer(x + change).squeeze(-1)                       # (B, L)

# %%
def fit(make, data, seed, steps=400):
    _ = torch.manual_seed(seed)
    tagger = Tagger(make())
    optimizer = torch.optim.Adam(tagger.parameters(), lr=3e-3)
    x, case, keep_mask = data
    target = ((case == 1) | (case == 2)).float()
    for _ in range(steps):
        i = torch.randint(len(x), (64,))
        logits, keep = tagger(x[i], keep_mask[i]), keep_mask[i]
        loss = F.binary_cross_entropy_with_logits(logits[keep], target[i][keep])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tagger

# %%
@torch.no_grad()
def accuracy(tagger, data, only=True):
    x, case, keep_mask = data
    right = (tagger(x, keep_mask) > 0) == ((case == 1) | (case == 2))    # (B, L)
    cases = [right[keep_mask & only & (case == c)] for c in range(4)]
    return sum(r.float().mean().item() for r in cases) / 4


# %% tags=["nbval-ignore-output"]
makers = {"linear map": lambda: nn.Linear(26, 26), "attention": lambda: MultiHeadAttention(26, 2)}
makers |= {f"FFN, d_ff = {n}": lambda n=n: FeedForward(26, n) for n in (1, 4, 16)}
results = {}
for name, make in makers.items():
    results[name] = [accuracy(fit(make, alone_train, s), alone_test) for s in range(3)]
    print(f"{name:14s}", *(f"{score:.2f}" for score in results[name]))
assert max(results["linear map"] + results["attention"]) < 0.6
assert min(results["FFN, d_ff = 16"]) > 0.99 and min(results["FFN, d_ff = 1"]) < 0.9

# %% tags=["nbval-ignore-output"]
record("N30", "words alone, attention, best of three", max(results["attention"]), 0.4, 0.6)
record("N30", "words alone, FFN, worst of three", min(results["FFN, d_ff = 16"]), 0.99, 1)

# %% [markdown]
# Three seeds each. A word alone gets nowhere with attention, and 16 hidden units solve the task for words never seen. $d_{\mathrm{ff}}$ is the knob of capacity: one unit is not reliably enough.
#
# ### And in a sentence?
#
# That experiment was made for the feed-forward network to win. Let the words stand in their sentences, in training and in the test. We score new words only, as before, and then the same trained models on the same words alone.
#
# > **Predict, then run.** The answer for a word still depends on its own two letters only; the neighbours are no help. Attention without a feed-forward network: 0.5, 0.7 or 0.9?

# %%
in_sentences, test_sentences = pack(train), pack(test)
padded = [s + [""] * (test_sentences[0].size(1) - len(s)) for s in test]
is_new = torch.tensor([[w not in seen for w in s] for s in padded])

# %% tags=["nbval-ignore-output"]
inside, outside = {}, {}
for name in ("linear map", "attention", "FFN, d_ff = 16"):
    taggers = [fit(makers[name], in_sentences, seed) for seed in range(3)]
    inside[name] = [accuracy(t, test_sentences, is_new) for t in taggers]
    outside[name] = [accuracy(t, alone_test) for t in taggers]
    print(f"{name:14s} in sentences", *(f"{score:.2f}" for score in inside[name]),
          "  alone", *(f"{score:.2f}" for score in outside[name]))
assert max(inside["linear map"]) < 0.6 and min(inside["FFN, d_ff = 16"]) > 0.99
assert min(inside["attention"]) > 0.8 and max(outside["attention"]) < 0.8

# %% tags=["nbval-ignore-output"]
record("N30", "new words in sentences, attention, worst of three", min(inside["attention"]), 0.8, 1)

# %% [markdown]
# Attention gets most of the new words right in their sentences, and far fewer of the same words alone. The neighbours need not say anything about the answer; with them the softmax has something to divide: how a word shares out its attention depends on its letters, and not linearly. That is a bend. Alone, the model is linear, so equation 6.1 keeps it near or below 0.75.
#
# > **Mind the condition.** "Only the feed-forward network can compute a non-linear function of a word" is true for a word alone. In company attention manages too, though not as well as 16 hidden units.
#
# ## Does the encoder need it?
#
# "Remove the feed-forward networks and the model collapses" can be meant in two ways: *trained without them*, or *deleted after training*. The whole encoder on the gap sentences, with one layer, both ways, two seeds.
#
# > **Predict, then run.** The whole model gets about 70 % of the test sentences right. What do the other two get?
#
# > **Borrowed.** The whole model, `TransformerEncoder` with `EncoderClassifier`, is built in chapter 09, and `F.cross_entropy` explained in chapter 10. `batches` is from chapter 01.

# %%
from encoder_lib.encoder import EncoderClassifier, TransformerEncoder
from encoder_lib.text import batches

gap_words = {split: [e.text.split() for e in load_gap(split)] for split in ("train", "test")}
labels = {split: [e.label for e in load_gap(split)] for split in ("train", "test")}
assert max(map(len, gap_words["train"] + gap_words["test"])) == 24
gap_vocabulary = Vocabulary(gap_words["train"], min_count=2)
gap_ids = {s: [gap_vocabulary.encode(t) for t in gap_words[s]] for s in ("train", "test")}


class Nothing(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)                     # added to x, it changes nothing

# %%
def train_on_gaps(seed, with_ffn, epochs=3):
    _ = torch.manual_seed(seed)
    encoder = TransformerEncoder(len(gap_vocabulary), 32, 4, 128, n_layers=1)
    model = EncoderClassifier(encoder, 4)
    if not with_ffn:
        encoder.encoder.layers[0].feed_forward = Nothing()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(epochs):
        for batch in batches(gap_ids["train"], labels["train"], 64, True, 10 * seed + epoch):
            loss = F.cross_entropy(model(batch.ids), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()

# %%
@torch.no_grad()
def gap_accuracy(model):
    right = 0
    for batch in batches(gap_ids["test"], labels["test"], 256):
        right += (model(batch.ids).argmax(-1) == batch.labels).sum().item()
    return right / len(labels["test"])

# %% tags=["nbval-ignore-output"]
gaps = {"whole": [], "trained without": [], "deleted afterwards": []}
for seed in (0, 1):
    model = train_on_gaps(seed, with_ffn=True)
    gaps["whole"].append(gap_accuracy(model))
    model.encoder.encoder.layers[0].feed_forward = Nothing()
    gaps["deleted afterwards"].append(gap_accuracy(model))
    gaps["trained without"].append(gap_accuracy(train_on_gaps(seed, with_ffn=False)))
for name, scores in gaps.items():
    print(f"{name:20s}", *(f"{score:.2f}" for score in scores))

# %%
for whole, without, deleted in zip(*gaps.values()):
    assert abs(whole - without) < 0.03 and deleted < min(without, whole - 0.01) and deleted > 0.6

# %% tags=["nbval-ignore-output"]
lost = {name: (sum(gaps["whole"]) - sum(scores)) / 2 for name, scores in gaps.items()}
record("B31", "accuracy lost, trained without", lost["trained without"], -0.02, 0.03)
record("B31", "accuracy lost, deleted afterwards", lost["deleted afterwards"], 0.01, 0.1)

# %% [markdown]
# Trained without, the model is less than three points away from the whole one, with fewer weights (a standard error, with 3,445 test sentences, is 0.8 points). Deleted afterwards, it loses more, with both seeds: the rest has learned to rely on it. Neither is a collapse: always naming the most frequent class would give about 35 % (chapter 00).
#
# So the two questions have two answers, and an ablation must say which one it asks. Mind also what was asked of the model: which word class fits a gap is a question about its neighbours, and fetching from neighbours is attention's work. [Sukhbaatar et al. (2019)](../book/bibliography.md) go further and build language models without feed-forward networks, giving attention learned keys and values instead.
#
# ## Keys and values
#
# Look again at the loop at the beginning: for each hidden unit, compare the word with the unit's row, bend the match, and add that much of the unit's column. Call the row of $W_1$ a **key** $k_i$ and the column of $W_2$ a **value** $v_i$:
#
# $$
# \operatorname{FFN}(x) = \sum_{i=1}^{d_{\mathrm{ff}}} \sigma(x \cdot k_i + b_i)\, v_i + b \tag{6.5}
# $$
#
# This is attention's form, with differences. The keys and values are parameters and do not come from the sentence. No softmax makes the matches compete: any number of units can fire. Each match has a bias. And there is no query projection and no scale: the word is compared as it is.

# %%
def as_memory(module, x):
    keys, values = module.w_1.weight, module.w_2.weight.T         # (d_ff, D) each
    out = module.w_2.bias.expand_as(x)                            # (B, L, D)
    for key, bias, value in zip(keys, module.w_1.bias, values):
        match = module.activation(x @ key + bias)                 # (B, L)
        out = out + match.unsqueeze(-1) * value                   # (B, L, D)
    return out


for activation in ACTIVATIONS:
    memory = FeedForward(64, 256, activation=activation)
    torch.testing.assert_close(as_memory(memory, x), memory(x), atol=1e-5, rtol=0)

# %%
apart = (as_memory(memory, x) - memory(x)).abs().max()
record("C7", "sum over keys and values, random weights, off by", apart, 0, 1e-5)

# %% [markdown]
# Equal for random weights: the reading is algebra and claims nothing about meaning. Whether a key *means* something is a question about trained weights. In our letter task we can answer it, because each of the 26 inputs has a name.

# %%
def what_units_read(module):
    keys, values = module.w_1.weight.detach(), module.w_2.weight.detach().T   # (d_ff, D) each
    return keys * values.norm(dim=1, keepdim=True)     # who writes nothing counts for nothing


def share_on_a_and_e(module):
    size = what_units_read(module).square()            # (d_ff, 26)
    return ((size[:, 0] + size[:, 4]).sum() / size.sum()).item()

# %% tags=["nbval-ignore-output"]
tagger = fit(lambda: FeedForward(26, 8), alone_train, seed=0, steps=1000)
_ = torch.manual_seed(0)
before, after = share_on_a_and_e(FeedForward(26, 8)), share_on_a_and_e(tagger.part)
print(f"share of a and e in the squares: {before:.2f} at random, {after:.2f} trained")
assert before < 0.2 and after > 0.7

# %% tags=["nbval-ignore-output"]
record("C7", "share of the two letters that matter, random weights", before, 0.03, 0.2)
record("C7", "share of the two letters that matter, trained", after, 0.7, 1)

# %% mystnb={"image": {"alt": "Heat map of what 8 hidden units read of the letters a to z, after training on 'a or e but not both'. The columns a and e are strong, positive or negative; the other 24 are near 0."}}
units = what_units_read(tagger.part)
units = units[units.norm(dim=1).argsort(descending=True)]         # (d_ff, 26)
fig, ax = plot_heatmap(units, column_labels=list(string.ascii_lowercase), diverging=True,
                       xlabel="letter", ylabel="hidden unit, strongest first",
                       title="What the trained units look for",
                       value_label="key, times length of value")
plt.show()

# %% [markdown]
# The keys have become detectors for the two letters that matter. With this seed the strongest are easy to name, such as *a without e* and *e without a*; with other seeds others are the strongest. It is easy because each input has a name; the features inside an encoder have none.
#
# [Geva et al. (2021)](../book/bibliography.md) read a trained 16-layer language model in this way: they found patterns of the text that make a key match, and that values, in the upper layers above all, point to words likely to come next. That model was causal, it predicts the next word; for an encoder the sum is the same, but the findings are not shown by it.
#
# ## What it costs
#
# Per layer, attention has four square matrices, $4 d^2$ weights. The feed-forward network with $d_{\mathrm{ff}} = 4d$ has two of $4 d^2$: two thirds of the layer.
#
# > **Predict, then run.** Two thirds of the weights. Also two thirds of the work?

# %%
def count(module):
    return sum(p.numel() for p in module.parameters() if p.dim() == 2)


with torch.device("meta"):                             # shapes without numbers: we only count
    big = {"attention": MultiHeadAttention(512, 8), "FFN": FeedForward(512, 2048)}
counts = {name: count(module) for name, module in big.items()}
print(counts, f"share {counts['FFN'] / sum(counts.values()):.4f}")
record("B30", "share of the weights", counts["FFN"] / sum(counts.values()), 0.66, 0.67)

# %% [markdown]
# Later models use a *gated* network: a third matrix of the same size, whose product multiplies the hidden units ([Shazeer (2020)](../book/bibliography.md)). At equal $d_\text{ff}$ it is larger by half, which is why it is used with two thirds of the hidden units.

# %%
with torch.device("meta"):
    gated = nn.Sequential(*(nn.Linear(512, 2048, bias=False) for _ in range(3)))
record("B31b", "weights over those of the plain one", count(gated) / counts["FFN"], 1.49, 1.51)

# %% [markdown]
# Work we count, too, instead of timing it: torch has a counter for the multiplications and additions in matrix products.

# %%
from torch.utils.flop_counter import FlopCounterMode


def flops_per_token(f, length):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        f(torch.zeros(1, length, 512, device="meta"))
    return counter.get_total_flops() // length


def attend(x):
    return big["attention"](x, return_weights=True)    # the readable path: all products counted

# %%
for length in (16, 1024, 4096):
    ffn, attends = flops_per_token(big["FFN"], length), flops_per_token(attend, length)
    assert ffn == 4 * 512 * 2048 and attends == 8 * 512**2 + 4 * length * 512
    print(f"L = {length:4d}: the FFN does {ffn / (ffn + attends):.2f} of the work")

# %%
for length, bound in ((16, (0.3, 0.4)), (4096, (0.65, 0.8))):
    ffn, attends = flops_per_token(big["FFN"], length), flops_per_token(attend, length)
    record("N31", f"share of attention at L {length}", attends / (ffn + attends), *bound)

# %% [markdown]
# A multiplication and an addition per weight: $4\, d\, d_{\mathrm{ff}}$ for a token in the feed-forward network, whatever the length. Attention's four projections cost $8 d^2$, and the comparison of a token with all $L$ others, with the mixing, another $4 L d$. With $d_{\mathrm{ff}} = 4 d$ the two are equal at
#
# $$
# 16 d^2 = 8 d^2 + 4 L d \quad\Longleftrightarrow\quad L = 2 d \tag{6.6}
# $$

# %% mystnb={"image": {"alt": "Million operations per token over length from 16 to 4096 for width 512. The feed-forward network is flat at 4.2. Attention starts at half of that, meets it at length 1024 and reaches 10.5 at 4096."}}
lengths = [16, 512, 1024, 2048, 4096]
lines = {"attention": [flops_per_token(attend, n) / 1e6 for n in lengths],
         "feed-forward network": [flops_per_token(big["FFN"], n) / 1e6 for n in lengths]}
fig, ax = plot_lines(lines, x=lengths, xlabel="length $L$ (tokens)",
                     ylabel="million operations per token",
                     title="$d = 512$: attention is the larger part only beyond $L = 1024$")
plt.show()

# %% [markdown]
# The longest gap sentence has 24 words, far below $2d$ even for our model of width 32: there the feed-forward networks are the larger part of an encoder layer's work. Against the embedding table their weights can still be few: chapter 09 counts.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each is followed by its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests. Where numbers go in, the result has their dtype, and gradients reach them.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 6.1** (difficulty 1 of 5, 5 min, predict). For which $d_{\mathrm{ff}}$ do attention and the feed-forward network have equally many weights, biases aside? Give the number for $d = 512$. And at which length do the two then do equal work?

# %% tags=["exercise"]
answer = ...  # the number of hidden units, a whole number
checks.answer("6.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# $4 d^2 = 2\, d\, d_{\mathrm{ff}}$ gives $d_{\mathrm{ff}} = 2d$.
#
# ```python
# answer = 4 * 512**2 // (2 * 512)
# ```
#
# The work is then $8 d^2$ for a token, against $8 d^2 + 4 L d$: equal at no length, attention always does more.
#
# ```python
# half = FeedForward(512, 1024).to("meta")
# assert count(half) == count(big["attention"])
# assert flops_per_token(half, 1) < flops_per_token(attend, 1)
# ```
#
# </details>
#
# > **Exercise 6.2** (difficulty 2 of 5, 10 min, implement). Write the feed-forward network from memory, with a ReLU made of `+`, `-`, `*`, `/` and `abs` only: no `clamp`, `max`, `where`, or ReLU of torch. The two maps are called `w_1` and `w_2`, both with a bias; `x` and the result are $(B, L, D)$.

# %% tags=["exercise"]
class MyFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        ...  # your code

    def forward(self, x):
        ...  # your code: return (B, L, D)


checks.feed_forward(MyFeedForward)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# class MyFeedForward(nn.Module):
#     def __init__(self, d_model, d_ff):
#         super().__init__()
#         self.w_1 = nn.Linear(d_model, d_ff)
#         self.w_2 = nn.Linear(d_ff, d_model)
#
#     def forward(self, x):
#         z = self.w_1(x)                       # (B, L, d_ff)
#         return self.w_2((z + z.abs()) / 2)    # (B, L, D)
# ```
#
# $(z + |z|) / 2$ is $z$ for positive $z$ and 0 for negative. It also says what ReLU is: half linear, half a symmetric bend. With the weights of ours it gives the same:
#
# ```python
# mine = MyFeedForward(64, 256)
# _ = mine.load_state_dict(feed_forward.state_dict())
# torch.testing.assert_close(mine(x), feed_forward(x))
# ```
#
# </details>
#
# > **Exercise 6.3** (difficulty 2 of 5, 10 min, prove). In the encoder the output of the feed-forward network is *added* to its input. Show that one hidden unit is then enough for the exclusive or.
#
# <details>
# <summary>Solution</summary>
#
# The sum $a + e$ is linear, so the answer may take it from the input directly. One unit corrects the case of both: $a + e - 2 \max(0, a + e - 1)$. That one unit *can* do it does not mean that training finds it, as the table above shows.
#
# ```python
# one = FeedForward(2, 1)
# with torch.no_grad():
#     one.w_1.weight.fill_(1.0)
#     one.w_1.bias.fill_(-1.0)
#     one.w_2.weight.copy_(torch.tensor([[-2.0], [0.0]]))
#     by_one = (pairs + one(pairs.unsqueeze(0))[0]).sum(-1)
# assert by_one.tolist() == [1.0, 1.0, 0.0, 1.0, 0.0]
# ```
#
# </details>
#
# > **Exercise 6.4** (difficulty 2 of 5, 10 min, break). A colleague's network is `lambda x: f(x.transpose(1, 2)).transpose(1, 2)`, where `f` is a `FeedForward`. With $L = d_{\mathrm{model}}$ it runs. Which of the tests of this chapter notice: the shape, the shuffle, the Jacobian?
#
# <details>
# <summary>Solution</summary>
#
# The shape is right. The shuffle test notices, because the network now treats positions like features and prefers some. The Jacobian says what happened: it is full off the diagonal.
#
# ```python
# f = FeedForward(6, 24)
# wrong = lambda x: f(x.transpose(1, 2)).transpose(1, 2)
# square = torch.randn(1, 6, 6, generator=torch.Generator().manual_seed(0))
# assert wrong(square).shape == f(square).shape
# assert not torch.allclose(wrong(square[:, order]), wrong(square)[:, order], atol=1e-3)
# assert (influence(f, square)[off_diagonal] == 0).all()
# assert (influence(wrong, square)[off_diagonal] > 0).all()
# ```
#
# And two convolutions of kernel size 3 with padding 1? Each looks one position to each side, so the two look two: the Jacobian is a band.
#
# ```python
# wide = nn.Sequential(nn.Conv1d(64, 256, 3, padding=1), nn.ReLU(),
#                      nn.Conv1d(256, 64, 3, padding=1))
# band = influence(lambda x: wide(x.transpose(1, 2)).transpose(1, 2), six)
# distance = (torch.arange(6)[:, None] - torch.arange(6)).abs()
# assert ((band > 0) == (distance <= 2)).all()
# ```
#
# </details>
#
# > **Exercise 6.5** (difficulty 3 of 5, 15 min, implement). Work out the slope of GELU from equation (6.4) and write it as a function: $z$ of any shape in, the slope at each entry out, in the dtype of $z$, without autograd. You need that $\Phi$ grows at the rate of the standard normal density, $\Phi'(z) = e^{-z^2/2} / \sqrt{2 \pi}$.

# %% tags=["exercise"]
def my_gelu_slope(z):
    ...  # your code: return the slope, of the shape of z


checks.gelu_slope(my_gelu_slope)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# A product has two terms in its derivative: $\operatorname{GELU}'(z) = \Phi(z) + z\, \Phi'(z)$.
#
# ```python
# def my_gelu_slope(z):
#     below = (1 + torch.erf(z / math.sqrt(2))) / 2              # the probability
#     density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
#     return below + z * density
# ```
#
# The first term alone would be between 0 and 1. The second makes the slope negative on the left and larger than 1 on the right. It changes sign where GELU is lowest, and it is largest at $z = \sqrt 2$, which is where the 1.129 of the chapter comes from:
#
# ```python
# torch.testing.assert_close(my_gelu_slope(z.detach()), slope)
# assert my_gelu_slope(torch.tensor(-0.7518)).abs() < 1e-4
# root = torch.tensor(2.0, dtype=torch.float64).sqrt()
# torch.testing.assert_close(my_gelu_slope(root), slope.max())
# ```
#
# </details>
#
# > **Exercise 6.6** (difficulty 3 of 5, 15 min, prove). Multiply a key and its bias by 10 and divide its value by 10. For which activation does the network stay the same function? What follows for reading "long keys are important"?
#
# <details>
# <summary>Solution</summary>
#
# For ReLU, because $\max(0, 10 z) = 10 \max(0, z)$. So the length of a key alone says nothing about its unit; only key and value together do. (That is why our figure multiplies them.) GELU has no such freedom.
#
# ```python
# def rescaled(activation):
#     _ = torch.manual_seed(0)
#     f = FeedForward(64, 256, activation=activation)
#     before = f(x)
#     with torch.no_grad():
#         f.w_1.weight[0] *= 10
#         f.w_1.bias[0] *= 10
#         f.w_2.weight[:, 0] /= 10
#     return (f(x) - before).abs().max().item()
#
# assert rescaled("relu") < 1e-5 and rescaled("gelu") > 1e-3
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"The feed-forward network mixes the words of a sentence."* Its Jacobian is exactly 0 off the diagonal. It mixes the features of one word.
#
# > **Misconception.** *"It passes the shuffle test, so it is position-wise."* Attention passes it too.
#
# > **Misconception.** *"It is the only non-linear part of the encoder."* It is the only bend of a word alone. In a sentence attention bends too, and learned our task to more than 80 %.
#
# > **Misconception.** *"Without feed-forward networks the model collapses."* Trained without, ours lost hardly anything on the gap task. Deleted afterwards, it lost more.
#
# > **Misconception.** *"Its values store the facts the encoder knows."* That it can be written as keys and values is algebra, true for random weights. What the keys match has to be found out for each model.
#
# > **Misconception.** *"GELU is a smooth ReLU: it rises everywhere, and its units cannot die."* It falls left of $-0.75$, and at bias $-10$ its gradient is as good as gone.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(6)

# %% [markdown]
# ## Summary
#
# - The feed-forward network is two linear maps with a bend between, the same at every position: two convolutions of kernel size 1. The Jacobian is the test.
# - Without the bend, it is one linear map with eight times the weights.
# - A word alone needs it for anything non-linear; in company attention can stand in.
# - It is a sum over units, activation of the match with a key times a value, for any weights.
# - With $d_{\mathrm{ff}} = 4d$ it holds two thirds of a layer's weights, and it is the larger part of the work up to $L = 2d$.
# - GELU with erf and GELU with tanh differ by up to $5 \cdot 10^{-4}$.
#
# ## Sources
#
# The network and the two convolutions: [Vaswani et al. (2017)](../book/bibliography.md), section 3.3. GELU: [Hendrycks and Gimpel (2016)](../book/bibliography.md). Keys and values: [Geva et al. (2021)](../book/bibliography.md). An architecture without feed-forward networks, with learned keys and values inside attention: [Sukhbaatar et al. (2019)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 07, [add and norm](07_add_and_norm.ipynb).
