# %% [markdown]
# # Positional encoding
#
# *You will be able to:* show that attention alone cannot see order, derive the sinusoids from clocks, prove that a shift is a rotation, and say what the popular arguments for sinusoids do and do not give you.
# *You need:* chapter 01. *Time:* {{ time }}.

# %% tags=["setup"]
import math
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.plotting import plot_dot_product_by_offset, plot_heatmap
from encoder_lib.plotting import plot_positional_encoding, use_style
from encoder_lib.widgets import positional_encoding_explorer
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## What attention sees
#
# Why does an encoder need to be told where a word stands? The words stand in order in the batch, after all. Let us test whether the part that mixes the words, **attention**, notices.
#
# > **Borrowed.** Attention is built in chapters 03 to 05. Until then we use torch's: `nn.MultiheadAttention`. Torch also gives us small things we do not rebuild: `nn.Dropout`, `nn.Identity`, `nn.Embedding` as a twin to compare with, `F.pad`. From chapter 01 we use `TokenEmbedding`, `Vocabulary`, `tokenize` and the size check `require_positive`.

# %%
from encoder_lib import TokenEmbedding
from encoder_lib.embedding import require_positive
from encoder_lib.datasets import load_gap
from encoder_lib.text import Vocabulary, tokenize

vocabulary = Vocabulary(
    tokenize(example.text.replace("_", example.word, 1)) for example in load_gap("train"))
tokens = tokenize("the dog saw a cat in the garden")
ids = torch.tensor([vocabulary.encode(tokens)])  # (1, L)

# %%
_ = torch.manual_seed(0)
d_model = 64
embed = TokenEmbedding(len(vocabulary), d_model)
attention = nn.MultiheadAttention(d_model, num_heads=4, batch_first=True)

x = embed(ids)                       # (1, L, D)
out = attention(x, x, x)[0]          # (1, L, D)

# %% [markdown]
# > **Predict, then run.** We shuffle the words and run attention again. Compared with the first output, is the new one (a) equal, (b) the old one in the new order, (c) something else?

# %%
order = torch.tensor([4, 1, 7, 0, 2, 6, 5, 3])
shuffled = x[:, order]
out_shuffled = attention(shuffled, shuffled, shuffled)[0]

for name, old in (("the old one", out), ("the old one, reordered", out[:, order])):
    print(f"{name:24s}equal: {torch.allclose(out_shuffled, old, atol=1e-5)}")
record("B14", "distance to P f(x)", (out_shuffled - out[:, order]).abs().max(), 0, 1e-5)
record("B14", "distance to f(x)", (out_shuffled - out).abs().max(), 0.1, 2)

# %% [markdown]
# It is (b). Up to rounding, each word gets the vector it had before; only the rows have changed places. With $P$ the matrix that reorders rows,
#
# $$
# f(PX) = P\,f(X) \tag{2.1}
# $$
#
# and such an $f$ is called **permutation equivariant**. One often reads that shuffling "gives the same result". It does not: the results are shuffled along. But nothing in the vector of *cat* says whether it came before or after *dog*.
#
# What follows for a whole sentence? Average the vectors, as a classifier would.

# %%
def pooled(words, positions=None):
    x = embed(torch.tensor([vocabulary.encode(words.split())]))  # (1, L, D)
    x = x if positions is None else positions(x)
    return attention(x, x, x)[0].mean(dim=1)                     # (1, D)


difference = pooled("the dog chased the cat") - pooled("the cat chased the dog")
assert difference.abs().max() < 1e-6
print("who chased whom? largest difference below one in a million")
record("B15", "encoder without positions, difference", difference.abs().max(), 0, 1e-6)

# %% [markdown]
# > **Key idea.** Without positions an encoder reads a *bag* of words. Order must be put in by hand.
#
# (This is about encoders. A decoder that looks only to the left can count what it sees, and so learns something of order without any encoding: [Haviv et al. (2022)](../book/bibliography.md). Here is the same attention, looking to the left only.)

# %%
def pooled_to_the_left(words):
    x = embed(torch.tensor([vocabulary.encode(words.split())]))  # (1, L, D)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)          # True = ignore
    return attention(x, x, x, attn_mask=hidden)[0].mean(dim=1)   # (1, D)


left = pooled_to_the_left("the dog chased the cat") - pooled_to_the_left("the cat chased the dog")
record("B15", "looking to the left only, difference", left.abs().max(), 0.01, 2)

# %% [markdown]
# ## Three ideas that almost work
#
# We want a function from position $p$ to a vector of $D$ numbers that we can add to the token.
#
# **Add the position number itself.** It grows without bound. Tokens have RMS 1; at position 100 the addend is 100 and the token is gone.
#
# **Divide by the last position**, so that it runs from 0 to 1. Now the same step means something else in every sentence: one word further is 0.5 in a sentence of 3 and 0.02 in one of 51.
#
# **Write the position in binary.** Bounded, and the same in every sentence.

# %%
for p in range(8):
    print(p, [(p >> i) & 1 for i in range(3)])

# %% [markdown]
# Read the columns (the lowest bit stands first). The first flips at every step, the next at every second, the third at every fourth: each bit is a square wave, twice as slow as the one before. What is not nice are the jumps. From 3 to 4 all three bits change at once, although the positions are neighbours.
#
# So make the waves smooth.

# %% [markdown]
# ## A row of clocks
#
# A smooth, bounded thing that comes back is a clock hand. Its tip is $(\cos\omega p, \sin\omega p)$, and $\omega$ says how far it turns per step. One clock that turns slowly tells far positions apart but hardly moves from one to the next; a fast one repeats. So take many, from fast to slow: pair $i$ of the dimensions is a clock with the speed $\omega_i = 10000^{-2i/d_\text{model}}$, and
#
# $$
# \mathrm{PE}_{p,\,2i} = \sin(\omega_i\, p), \qquad \mathrm{PE}_{p,\,2i+1} = \cos(\omega_i\, p) \tag{2.2}
# $$
#
# ([Vaswani et al. (2017)](../book/bibliography.md), section 3.5). First with loops, number by number.

# %%
def table_with_loops(length, d_model):
    table = torch.zeros(length, d_model, dtype=torch.float64)
    for p in range(length):
        for dimension in range(d_model):
            i = dimension // 2
            angle = p / 10000 ** (2 * i / d_model)
            wave = math.sin if dimension % 2 == 0 else math.cos
            table[p, dimension] = wave(angle)
    return table

# %%
print(table_with_loops(2, 4))

# %% [markdown]
# Small enough to check with a pencil. Row 0 is $\sin 0, \cos 0$ twice. Row 1 is $\sin 1, \cos 1$ and then, a hundred times slower, $\sin 0.01, \cos 0.01$.
#
# Then without loops: all angles are one outer product.

# %% tags=["library"]
def sinusoidal_table(length, d_model):
    require_positive(length=length, d_model=d_model)
    position = torch.arange(length, dtype=torch.float64)              # (L,)
    pair = torch.arange(d_model, dtype=torch.float64).div(2).floor()  # (D,)  0 0 1 1 2 2 ...
    frequency = 10000.0 ** (-2 * pair / d_model)                      # (D,)
    angle = torch.outer(position, frequency)                          # (L, D)
    table = angle.sin()
    table[:, 1::2] = angle[:, 1::2].cos()
    return table

# %%
torch.testing.assert_close(sinusoidal_table(60, 10), table_with_loops(60, 10))
torch.testing.assert_close(sinusoidal_table(60, 7), table_with_loops(60, 7))
print("equal, for an even and for an odd number of dimensions")

# %% [markdown]
# With 7 dimensions the last clock shows its sine only. Code that takes as many cosines as sines crashes there.

# %%
def usual_table(length, d_model):
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)   # (L, 1)
    speed = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    table = torch.zeros(length, d_model, dtype=torch.float64)           # (L, D)
    table[:, 0::2], table[:, 1::2] = (position * speed).sin(), (position * speed).cos()
    return table


crashed = []
for width in range(2, 18):
    try:
        torch.testing.assert_close(usual_table(60, width), sinusoidal_table(60, width))
    except RuntimeError:
        crashed.append(width)
record("B16", "widths from 2 to 17 at which it crashes", len(crashed), 8, 8)

# %% mystnb={"image": {"alt": "Heat map of the sinusoidal table: 60 positions downwards, 64 dimensions to the right. Fine stripes at the left, where the clocks are fast, become broad bands and then constant columns at the right."}}
fig, ax = plot_positional_encoding(
    sinusoidal_table(60, 64), title="Fast clocks on the left, slow ones on the right")
plt.show()

# %% [markdown]
# The first clock comes round after $2\pi \approx 6.3$ positions. The last of 64 dimensions needs tens of thousands.

# %%
for i in (0, 8, 16, 24, 31):
    turn = 2 * math.pi * 10000 ** (2 * i / 64)
    print(f"pair {i:2d}: one turn in {turn:8,.0f} positions")

# %% [markdown]
# Turn the clocks yourself. Choose a position $p$, a pair $i$ and an offset $k$: the row, the wave and the hands at $p$ and $p + k$ belong together. Then step the position and watch the angle between the two hands.

# %%
positional_encoding_explorer(d_model=32, length=48, key="pe-explorer")

# %% [markdown]
# ## Break it: the exponent doubled
#
# A frequent bug: the loop index already runs 0, 2, 4, … and is multiplied by 2 once more, and the cosine gets a frequency of its own. Which check finds it?

# %%
def doubled(length, d_model):
    position = torch.arange(length, dtype=torch.float64)                      # (L,)
    dimension = torch.arange(d_model, dtype=torch.float64)                    # (D,)
    angle = torch.outer(position, 10000.0 ** (-2 * dimension / d_model))      # (L, D)
    return torch.where(dimension % 2 == 0, angle.sin(), angle.cos())


for function in (sinusoidal_table, doubled):
    print(function.__name__, function(2, 4), sep="\n")

# %% [markdown]
# Shapes agree, the range agrees, and **position 0 agrees**. A test that looks at the first row alone passes. Look at row 1.

# %% [markdown]
# ## What the code is good for
#
# ### No position is louder, none comes twice
#
# Each pair contributes $\sin^2 + \cos^2 = 1$, so every row has the norm $\sqrt{d_\text{model}/2}$. And no two rows are close: the nearest ones are neighbours.

# %%
table = sinusoidal_table(2000, 64)            # (2000, D)
norms = table.norm(dim=1)
distance = torch.cdist(table, table).fill_diagonal_(torch.inf)
print(f"norms from {norms.min():.3f} to {norms.max():.3f}; sqrt(32) = {math.sqrt(32):.3f}")
print(f"the two nearest of 2000 rows are {distance.min():.2f} apart")
print(f"the two nearest neighbours   are {distance.diagonal(1).min():.2f} apart")

# %%
far = sinusoidal_table(10_002, 64)
record("B17", "distance of the two nearest of 2000 positions", distance.min(), 1, 2)
record("N10", "distance of positions 1 and 10,001", (far[1] - far[10_001]).norm(), 5, 12)

# %% [markdown]
# ### A shift is a rotation
#
# Move every clock on by $k$ positions. Each hand turns by $\omega_i k$, **whatever it showed before**. Turning a hand is a rotation of the pair, so there is one matrix $M_k$, made of $2\times 2$ blocks. The addition theorems say it for the pair $i$:
#
# $$
# \sin \omega_i(p+k) = \cos(\omega_i k) \sin \omega_i p + \sin(\omega_i k) \cos \omega_i p
# $$
#
# $$
# \cos \omega_i(p+k) = -\sin(\omega_i k) \sin \omega_i p + \cos(\omega_i k) \cos \omega_i p
# $$
#
# and, with $\mathrm{PE}_p$ as a column,
#
# $$
# \mathrm{PE}_{p+k} = M_k\, \mathrm{PE}_p \quad\text{for every } p. \tag{2.3}
# $$

# %%
def shift_matrix(k, d_model):
    blocks = []
    for i in range(d_model // 2):
        angle = k * 10000 ** (-2 * i / d_model)
        cos, sin = math.cos(angle), math.sin(angle)
        blocks.append(torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64))
    return torch.block_diag(*blocks)  # (D, D)

# %%
for k in (1, 7, 100):
    moved = table[:1500] @ shift_matrix(k, 64).T     # (1500, D)
    error = (moved - table[k : 1500 + k]).abs().max().item()
    assert error < 1e-10
print("one matrix per shift moves 1500 positions at once, with errors below 1e-10")
record("B18", "largest error of one matrix for 1500 positions", error, 0, 1e-10)

# %% [markdown]
# Note what is claimed. The *shifted code* is linear in the code. The **difference** $\mathrm{PE}_{p+k} - \mathrm{PE}_p$ still depends on $p$. And the paper says only that the authors *hypothesised* that this makes relative positions easy to learn.

# %%
step = table[1:] - table[:-1]  # (1999, D)
print("the difference between neighbours at p = 0 and p = 3, first pair:")
print(step[0, :2].round(decimals=2).tolist(), step[3, :2].round(decimals=2).tolist())
record("B18", "distance of these two differences", (step[0] - step[3]).norm(), 1, 4)

# %% [markdown]
# ### The dot product knows the distance
#
# Rotations keep angles, so $\mathrm{PE}_p \cdot \mathrm{PE}_q = \sum_i \cos(\omega_i (p-q))$: it depends on the offset alone.
#
# > **Predict, then run.** The dot product is largest at offset 0. At $d_\text{model} = 64$, is it larger at offset 5 or at offset 6? Does it fall all the way?

# %%
dots = table @ table.T  # (2000, 2000)
assert dots.diagonal(5).std() < 1e-10
for offset in (0, 1, 5, 6, 10, 20):
    print(f"offset {offset:2d}: {dots[0, offset]:.2f}")
record("N11", "dot product at offset 6 minus that at 5", dots[0, 6] - dots[0, 5], 0.02, 5)

# %% mystnb={"image": {"alt": "Dot product against offset for positions 0, 30 and 60. Where their offsets overlap the three curves lie on top of each other: a peak at offset zero, then a wavy decline on both sides."}}
fig, ax = plot_dot_product_by_offset(table[:61], positions=(0, 30, 60))
plt.show()

# %% [markdown]
# The three curves are one: only the offset counts. And it rises again after offset 5, so "the nearer, the larger" is true close by and false in detail.
#
# Now the sentence that stands in many explanations: *so the attention score tells the distance*. But attention never takes this dot product. It first multiplies one side by $W_Q$ and the other by $W_K$. We do the same, with random matrices as at the start of training.

# %%
_ = torch.manual_seed(0)
w_q = nn.init.xavier_uniform_(torch.empty(64, 64, dtype=torch.float64))
w_k = nn.init.xavier_uniform_(torch.empty(64, 64, dtype=torch.float64))
short = table[:50]                                     # (50, D)
raw = short @ short.T                                  # (50, 50)
projected = (short @ w_q.T) @ (short @ w_k.T).T        # (50, 50)

# %% mystnb={"image": {"alt": "Two heat maps of 50 by 50 positions. Left, dot products of the positional codes: bright diagonal, the same along every diagonal. Right, the same after random query and key matrices: irregular blotches without any diagonal structure."}}
fig, axes = plt.subplots(1, 2, figsize=(8.6, 3.8), dpi=100, layout="constrained")
for ax, scores, title in zip(axes, (raw, projected), ("codes alone", "after $W_Q$, $W_K$")):
    plot_heatmap(scores, xlabel="position q", ylabel="position p", title=title,
                 value_label="dot product", ax=ax)
plt.show()

# %%
def spread_along_diagonals(scores):
    along = torch.stack([scores.diagonal(k).std() for k in range(-30, 31)])
    return (along.mean() / scores.std()).item()


print("spread along the diagonals, as a share of the overall spread")
print(f"codes alone {spread_along_diagonals(raw):.2f}")
print(f"projected   {spread_along_diagonals(projected):.2f}")
record("B19", "spread, codes alone", spread_along_diagonals(raw), 0, 1e-10)
record("B19", "spread, after random matrices", spread_along_diagonals(projected), 0.8, 1.2)

# %% [markdown]
# Along a diagonal the offset is constant. On the left nothing varies there. On the right it varies nearly as much along a diagonal as anywhere: the property is gone.
#
# > **Key idea.** "The dot product depends on the distance" is a property of the codes, not of attention. Random $W_Q$ and $W_K$ destroy it; training would have to restore it. Later encodings (rotary, ALiBi) put the offset into the score itself, after the projections.

# %% [markdown]
# ## Adding, not appending
#
# Does adding the code to the token spoil both? In high dimensions a random token is nearly perpendicular to every code, so both can be read from the sum. We add random tokens of RMS 1 and try to read each back by the largest match.

# %%
def read_back(d_model, n=2000):
    place, words = sinusoidal_table(50, d_model).float(), torch.randn(1000, d_model)
    p, w = torch.randint(50, (n,)), torch.randint(1000, (n,))
    x = words[w] + place[p]                                        # (n, D)
    word = (x @ words.T - words.square().sum(1) / 2).argmax(1)     # nearest word
    position = (x @ place.T).argmax(1)                             # nearest code
    return (word == w).float().mean(), (position - p).abs().float().mean()

# %%
_ = torch.manual_seed(0)
for width in (16, 64, 256, 512):
    word, off_by = read_back(width)
    print(f"d_model = {width:3d}: right word {word:6.1%}, position off by {off_by:.2f}")
record("N12", "words read back right from the sum at d_model 512", word, 0.99, 1)
record("N12", "the position is off by", off_by, 0.001, 0.5)

# %% [markdown]
# From 64 numbers on the word is not lost; the position is off by a step or so at 64 and by a fraction of one at 256 and more. Appending would keep them apart by construction, at the price of dimensions that every layer then has to carry.

# %% [markdown]
# ## The module
#
# Two checks come first. Without the second, torch reports two sizes but not the cause, or nothing at all.

# %% tags=["library"]
def require_features(x, d_model):
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor (B, L, {d_model}), got {kind}")
    if x.dim() != 3 or x.size(-1) != d_model:
        raise ValueError(
            f"x must have shape (B, L, d_model={d_model}), got {tuple(x.shape)}"
        )


def require_length(length, max_len):
    if length > max_len:
        raise ValueError(
            f"the sequence has length {length}, but max_len={max_len}: "
            f"build the module with max_len={length} or more, or cut the sequence"
        )


class SinusoidalPositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        require_positive(d_model=d_model, max_len=max_len)
        self.d_model, self.max_len = d_model, max_len
        table = sinusoidal_table(max_len, d_model).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)  # (max_len, D)

    def forward(self, x):
        require_features(x, self.d_model)
        require_length(x.size(1), self.max_len)
        if x.dtype == torch.float64:  # full precision, computed: some devices store no float64
            return x + sinusoidal_table(x.size(1), self.d_model).to(x.device)
        return x + self.table[: x.size(1)].to(x.dtype)  # (B, L, D) + (L, D)

# %%
positions = SinusoidalPositionalEncoding(d_model)
difference = (pooled("the dog chased the cat", positions)
              - pooled("the cat chased the dog", positions))
assert difference.abs().max() > 1e-2
print("with positions, the two sentences differ")

# %% [markdown]
# The position axis is axis **1**. Code written for `(L, B, D)` indexes axis 0, and on our batches it adds the code of the *sentence number*: same shape, no error, no order.

# %%
def indexed_by_batch(x, table):
    return x + table[: x.size(0), None]  # the wrong axis


zeros = torch.zeros(2, 3, 4)  # (B, L, D): two equal sentences
right = SinusoidalPositionalEncoding(4)(zeros)
wrong = indexed_by_batch(zeros, sinusoidal_table(9, 4))
for name, out in (("right", right), ("wrong", wrong)):
    print(f"{name}: words equal {torch.equal(out[:, 0], out[:, 1])},",
          f"sentences equal {torch.equal(out[0], out[1])}")

# %% [markdown]
# The table is a **buffer**: it moves with the model to another device or dtype, it is not trained, and, being *non-persistent*, it is not saved. It can always be computed again, and a checkpoint then fits a model with another `max_len`.

# %%
print("saved:", list(positions.state_dict()), " trained:", list(positions.parameters()))
shorter = SinusoidalPositionalEncoding(d_model, max_len=10)
print(shorter.load_state_dict(positions.state_dict()))

# %% [markdown]
# The addition itself takes a slice of the table. A slice is a view: it has the same address, nothing is computed or copied for it.

# %%
start = positions.table.data_ptr()                               # an address in memory
record("B48", "bytes from the table to its slice", positions.table[:5].data_ptr() - start, 0, 0)

# %% [markdown]
# What happens to a sentence that is too long? One hears that "the index runs out and the loss becomes NaN". The slice stops at the end of the table instead, and the addition fails, with one exception.

# %%
def without_check(x, table):
    return x + table[: x.size(1)]  # (B, L, D) + (at most max_len, D)


long = torch.zeros(1, 12, 4)
try:
    without_check(long, sinusoidal_table(10, 4))
except RuntimeError as error:
    print("max_len 10:", error)
broadcast = without_check(long, sinusoidal_table(1, 4))
print("max_len 1: ", tuple(broadcast.shape), "without a word")

# %%
def outcome(max_len):
    try:
        out = without_check(long, sinusoidal_table(max_len, 4))
    except RuntimeError:
        return "error"
    return "finite" if out.isfinite().all() else "inf or NaN"


outcomes = [outcome(max_len) for max_len in range(1, 12)]
record("B41", "tables of 1 to 11 rows that give inf or NaN", outcomes.count("inf or NaN"), 0, 0)
record("B59", "tables of 1 to 11 rows that raise an error", outcomes.count("error"), 10, 10)

# %% [markdown]
# A table of one row is broadcast to all positions without a word. Ours says what is wrong in every case.

# %% tags=["raises-exception"]
SinusoidalPositionalEncoding(4, max_len=1)(long)

# %% [markdown]
# ## Learned positions
#
# The alternative needs no idea at all: one row per position, learned like the rows of the tokens. [Gehring et al. (2017)](../book/bibliography.md) did so, BERT does, and in the paper's own comparison the two come out alike.

# %% tags=["library"]
class LearnedPositionalEmbedding(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        require_positive(d_model=d_model, max_len=max_len)
        self.d_model, self.max_len = d_model, max_len
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        self.weight.normal_(std=0.5**0.5)

    def forward(self, x):
        require_features(x, self.d_model)
        require_length(x.size(1), self.max_len)
        return x + self.weight[: x.size(1)].to(x.dtype)  # (B, L, D) + (L, D)

# %% [markdown]
# Check against torch: the same as `nn.Embedding` asked for rows 0, 1, 2, …, forward and gradient. The rows start with variance $\tfrac12$, as loud as the sinusoids.

# %%
learned, twin = LearnedPositionalEmbedding(d_model), nn.Embedding(512, d_model)
twin.weight.data.copy_(learned.weight.data)
x, upstream = embed(ids).detach(), torch.randn(1, len(tokens), d_model)
ours, theirs = learned(x), x + twin(torch.arange(len(tokens)))
assert torch.equal(ours, theirs)

(ours * upstream).sum().backward()
(theirs * upstream).sum().backward()
torch.testing.assert_close(learned.weight.grad, twin.weight.grad)
print("forward and gradient agree")

# %% [markdown]
# A learned table must be an `nn.Parameter`. A plain tensor gets a gradient as well, but `parameters()` does not list it, so the optimiser is never given it.

# %%
class Forgotten(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.randn(512, d_model, requires_grad=True)  # no nn.Parameter


def offered(module):
    return sum(p.numel() for p in module.parameters())


record("B49", "numbers given, plain tensor", offered(Forgotten()), 0, 0)
record("B49", "numbers given, nn.Parameter", offered(learned), 512 * d_model, 512 * d_model)

# %% [markdown]
# ## The input of the encoder, complete
#
# Tokens, positions, dropout: this is all that happens before the first layer. Which kind of position is a switch of its own; without positions the scaling of the tokens stays as it is, so that an experiment changes one thing at a time.

# %% tags=["library"]
POSITION_KINDS = ("sinusoidal", "learned", None)


def require_dropout(dropout):
    if not isinstance(dropout, int | float):
        raise TypeError(f"dropout must be a number from 0 to below 1, got {dropout!r}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


class InputEmbedding(nn.Module):
    def __init__(
        self, vocab_size, d_model, max_len=5000, pad_id=0, positions="sinusoidal", dropout=0.1,
        scale=True,
    ):
        super().__init__()
        require_positive(max_len=max_len)
        require_dropout(dropout)
        if positions not in POSITION_KINDS:
            raise ValueError(f"positions must be one of {POSITION_KINDS}, got {positions!r}")
        self.tokens = TokenEmbedding(vocab_size, d_model, pad_id, scale)
        self.positions = nn.Identity()
        if positions == "sinusoidal":
            self.positions = SinusoidalPositionalEncoding(d_model, max_len)
        if positions == "learned":
            self.positions = LearnedPositionalEmbedding(d_model, max_len)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        return self.dropout(self.positions(self.tokens(ids)))

# %%
module = InputEmbedding(len(vocabulary), d_model).eval()
padded = F.pad(ids, (0, 3))                       # (1, L + 3)
x = module(padded)                                # (1, L + 3, D)
assert torch.equal(x[0, -3:], module.positions.table[len(tokens) : len(tokens) + 3])

print("at a padded place:", x[0, -1, :4].detach().round(decimals=2))
record("N14", "RMS at a padded place", x[0, -1].square().mean().sqrt(), 0.6, 0.8)

# %% [markdown]
# This surprises many: the code itself, not zeros. The padding row is zero, but a position is added to it as to every other. That is fine, because padding is kept out by **masks**, not by zeros: chapter 04 makes sure of it.

# %% [markdown]
# ## What happens beyond the training length?
#
# Sinusoids have a value at every position, learned rows end. So sinusoids should go on working on longer sentences; the paper hopes so. We test it.
#
# The task: *say the previous word*. Random words, so that nothing but position helps. Trained on 12 words, tested on places 2 to 12, and then on places 13 to 24 of longer sequences.
#
# > **Borrowed.** Layers from torch again: `nn.TransformerEncoderLayer`, `nn.TransformerEncoder`, `nn.LayerNorm`, `nn.Linear`, `nn.Sequential`, `F.cross_entropy`.

# %%
def previous_word_model(kind, d_model=64):
    layer = nn.TransformerEncoderLayer(
        d_model, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(
        layer, 2, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
    for weight in encoder.parameters():
        if weight.dim() > 1:
            nn.init.xavier_uniform_(weight)
    embed = InputEmbedding(13, d_model, max_len=24, positions=kind, dropout=0.0)
    return nn.Sequential(embed, encoder, nn.Linear(d_model, 13))

# %%
@torch.no_grad()
def previous_word_accuracy(model, length):
    ids = torch.randint(1, 13, (500, length))
    right = model(ids)[:, 1:].argmax(-1) == ids[:, :-1]  # (500, L - 1)
    return right.float().mean(0)                         # (L - 1,), places 2 to L

# %%
def train_previous_word(kind, seed, steps=200, shortest=12, longest=12):
    _ = torch.manual_seed(seed)
    model = previous_word_model(kind)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 2e-3 * min(1, (step + 1) / 50)
        length = torch.randint(shortest, longest + 1, (1,)).item()
        ids = torch.randint(1, 13, (64, length))  # (B, L)
        scores = model(ids)[:, 1:]                # (B, L - 1, 13)
        loss = F.cross_entropy(scores.flatten(0, 1), ids[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = previous_word_accuracy(model, 12).mean().item()
    return trained, previous_word_accuracy(model, 24)[11:].mean().item()

# %% [markdown]
# > **Predict, then run.** No positions, sinusoids, learned rows: who solves it at the trained places, and who beyond them? Pure guessing is right one time in twelve, 0.08.

# %% tags=["nbval-ignore-output"]
results = {kind: [train_previous_word(kind, seed) for seed in (0, 1)]
           for kind in (None, "sinusoidal", "learned")}
print("             places 2-12   places 13-24")
for kind, ((a, beyond_a), (b, beyond_b)) in results.items():
    print(f"{kind!s:12s}{a:6.2f}{b:6.2f}{beyond_a:9.2f}{beyond_b:6.2f}")

# %%
assert max(short for short, _ in results[None]) < 0.35
assert min(short for kind in ("sinusoidal", "learned") for short, _ in results[kind]) > 0.95
assert max(beyond for runs in results.values() for _, beyond in runs) < 0.35
print("both kinds solve the trained places; neither works beyond them")

# %% tags=["nbval-ignore-output"]
for kind, claim in (("learned", "B20"), ("sinusoidal", "N13")):
    trained, beyond = zip(*results[kind])
    record(claim, f"accuracy at trained places, {kind}", min(trained), 0.95, 1)
    record(claim, f"accuracy beyond them, {kind}", max(beyond), 0.05, 0.35)

# %% [markdown]
# Within the trained places the two are equal, and without positions the model is left with the bag. Beyond them, averaged over places 13 to 24, **neither** works. (0.24 and less without positions: the bag, as in chapter 01.) The rows of the learned table there are untouched noise; the sinusoids are well defined, and perhaps the layers have simply never seen those combinations of clock hands.
#
# > **Mind the condition.** This is one task, one model and twelve training places. It does not prove that sinusoids never extrapolate; it shows that they do not do so by themselves.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each ends with its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 2.1** (difficulty 2 of 5, 5 min, predict). Replace 10000 by 100 in equation (2.2). After how many positions does the slowest clock of 64 dimensions come round for the first time, to three digits? And guess: do two of 2000 rows come closer now than the nearest neighbours?

# %% tags=["exercise"]
answer = ...  # a number of positions, to three digits
checks.answer("2.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# The slowest clock is pair 31.
#
# ```python
# answer = 2 * math.pi * 100 ** (62 / 64)
# ```
#
# The nearest rows are still neighbours, because the clocks do not come round together: a repetition needs *all* of them.
#
# ```python
# def table_with_base(length, d_model, base):
#     pair = torch.arange(d_model, dtype=torch.float64).div(2).floor()
#     angle = torch.outer(torch.arange(length, dtype=torch.float64), base ** (-2 * pair / d_model))
#     return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos())
#
# for base in (10000.0, 100.0):
#     t = table_with_base(2000, 64, base)
#     d = torch.cdist(t, t).fill_diagonal_(torch.inf)
#     print(base, 2 * math.pi * base ** (62 / 64), d.min(), d.diagonal(1).min())
#     assert torch.isclose(d.min(), d.diagonal(1).min())
# ```
#
# </details>
#
# > **Exercise 2.2** (difficulty 2 of 5, 10 min, implement). From memory: what the modules of this chapter do in `forward`, as a function. `x` $(B, L, D)$ and `table` `(max_len, D)` are floating-point, not always of one dtype. Return a new tensor: every token plus the row of its position, in the dtype of `x`; gradients reach both. A table with fewer rows than there are tokens, be it a single row, is refused with a `ValueError`.

# %% tags=["exercise"]
def my_add_positions(x, table):
    ...  # your code: return x plus positions (B, L, D)


checks.add_positions(my_add_positions)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_add_positions(x, table):
#     length = x.size(1)
#     if length > table.size(0):
#         raise ValueError(f"{length} tokens, but the table has {table.size(0)} rows")
#     return x + table[:length].to(x.dtype)
# ```
#
# The slice $(L, D)$ is broadcast over the batch. Without the check a table of one row would be broadcast over the tokens as well. Without the conversion a table in float64 would make everything behind it float64:
#
# ```python
# x = torch.zeros(2, 3, 4)
# assert (x + sinusoidal_table(3, 4)).dtype == torch.float64
# assert my_add_positions(x, sinusoidal_table(9, 4)).dtype == torch.float32
# ```
#
# </details>
#
# > **Exercise 2.3** (difficulty 2 of 5, 15 min, implement). The table from memory, without a loop, with two freedoms more: the `base` (10000 in the paper) is handed in, and `d_model` may be odd. Return the table $(L, D)$ in float64, sine and cosine of a clock side by side. With an odd width the last clock shows its sine only.

# %% tags=["exercise"]
def my_sinusoidal_table(length, d_model, base):
    ...  # your code: return the table (L, D)


checks.sinusoidal_table(my_sinusoidal_table)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_sinusoidal_table(length, d_model, base):
#     n_clocks = (d_model + 1) // 2
#     speed = base ** (-2 * torch.arange(n_clocks, dtype=torch.float64) / d_model)
#     angle = torch.outer(torch.arange(length, dtype=torch.float64), speed)
#     hands = torch.stack([angle.sin(), angle.cos()], dim=-1)
#     return hands.flatten(1)[:, :d_model]
# ```
#
# `hands` $(L, n, 2)$ holds the tip of every clock; flattened, its two numbers are neighbours. An odd width drops the last cosine.
#
# ```python
# torch.testing.assert_close(my_sinusoidal_table(60, 7, 10000.0), sinusoidal_table(60, 7))
# ```
#
# </details>
#
# > **Exercise 2.4** (difficulty 3 of 5, 20 min, implement). The chapter's $M_k$ meets a code as a column. A table holds codes as rows. Write the matrix for rows: return $M$ $(D, D)$ in float64 with `table[p] @ M` equal to `table[p + k]` for every $p$, without `torch.block_diag`. `d_model` is even, and a negative `k` goes back. Then answer from the meaning: is $M_j M_k = M_{j+k}$, and what is the inverse of $M_k$?

# %% tags=["exercise"]
def my_shift_matrix(k, d_model):
    ...  # your code: return M (D, D)


checks.shift_matrix(my_shift_matrix)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_shift_matrix(k, d_model):
#     even = torch.arange(0, d_model, 2)
#     angle = k * 10000.0 ** (-even.double() / d_model)
#     m = torch.zeros(d_model, d_model, dtype=torch.float64)
#     m[even, even] = m[even + 1, even + 1] = angle.cos()
#     m[even + 1, even], m[even, even + 1] = angle.sin(), -angle.sin()
#     return m
# ```
#
# It is the transpose of the chapter's matrix. Turning by $j$ and then by $k$ is turning by $j + k$, so yes; and turning back is $M_{-k}$, which for rotations is also the transpose.
#
# ```python
# M = lambda k: my_shift_matrix(k, 64)
# torch.testing.assert_close(M(3), shift_matrix(3, 64).T)
# torch.testing.assert_close(M(3) @ M(8), M(11))
# torch.testing.assert_close(M(-8), M(8).T)
# torch.testing.assert_close(M(8) @ M(8).T, torch.eye(64, dtype=torch.float64))
# ```
#
# </details>
#
# > **Exercise 2.5** (difficulty 3 of 5, 15 min, explore). Choose $W_Q = W_K$ orthogonal instead of random. Does the spread along the diagonals vanish? And with $W_Q = M_k$, $W_K = I$: where is the largest score of each row?
#
# <details>
# <summary>Solution</summary>
#
# An orthogonal matrix applied to both sides keeps all dot products, so the diagonals are constant again. With $W_Q = M_k$ the query of position $p$ is the code of $p + k$, so every row has its maximum $k$ places ahead: a head that looks at the word $k$ steps away *can* be built from these codes. Training has to find it.
#
# ```python
# q, _ = torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64))
# assert spread_along_diagonals((short @ q.T) @ (short @ q.T).T) < 1e-10
# scores = (short @ shift_matrix(1, 64).T) @ short.T
# assert torch.equal(scores.argmax(dim=1)[:-1], torch.arange(1, 50))
# ```
#
# </details>
#
# > **Exercise 2.6** (difficulty 4 of 5, 20 min, explore). Train the *previous word* task on random lengths from 2 to 24 (one length per batch) with 400 steps. How do both kinds do at places 13 to 24 now, and what do you conclude about "sinusoids extrapolate"?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# for kind in ("sinusoidal", "learned"):
#     trained, beyond = train_previous_word(kind, seed=0, steps=400, shortest=2, longest=24)
#     print(kind, round(trained, 2), round(beyond, 2))
#     assert beyond > 0.9
# ```
#
# Both kinds now solve places 13 to 24, because they have seen them. What is needed at test time should be seen in training; for these two encodings the choice does not replace that.
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"Without positions, shuffling leaves the output unchanged."* It is permuted along with the words: equation (2.1).
#
# > **Misconception.** *"Position 10,001 repeats position 1."* Only a clock that turns in exactly 10,000 positions would do that, and all others would have to agree. No two of 2000 rows came closer than neighbours, and rows 1 and 10,001 are not close either (both measured above).
#
# > **Misconception.** *"Attention sees the distance, because the dot product of two codes depends on it."* After random $W_Q$ and $W_K$ it does not.
#
# > **Misconception.** *"Adding positions destroys the embedding, one should append."* At the usual widths the word was read back from the sum every time.
#
# > **Misconception.** *"A sequence longer than `max_len` gives inf and then NaN."* It gives a shape error, except for a table of one row, which is worse.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(2)

# %% [markdown]
# ## Summary
#
# - Attention is permutation equivariant: without positions an encoder reads a bag of words.
# - The sinusoids are clocks from fast to slow. Every row has norm $\sqrt{d_\text{model}/2}$, and no two of 2000 were equal.
# - A shift by $k$ is one rotation $M_k$ for all positions. The dot product depends on the offset, is not monotone, and loses the property under $W_Q$, $W_K$.
# - Learned rows are as good within the trained places. Averaged over the places beyond them neither kind worked here.
# - Padded places get positions too; masks keep them out.
#
# ## Sources
#
# Sinusoids, the rotation argument and the comparison with learned positions: [Vaswani et al. (2017)](../book/bibliography.md), section 3.5 and table 3 (E). Learned positions: [Gehring et al. (2017)](../book/bibliography.md), [Devlin et al. (2019)](../book/bibliography.md). Order without positions in decoders: [Haviv et al. (2022)](../book/bibliography.md). Offsets inside the score: [Su et al. (2021)](../book/bibliography.md), [Press et al. (2022)](../book/bibliography.md).
