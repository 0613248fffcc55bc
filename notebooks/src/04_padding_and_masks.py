# %% [markdown]
# # Padding and masks
#
# *You will be able to:* hide padding from attention, convert between the three mask conventions, predict what a wrong mask does, and write the one test that finds almost all of them.
# *You need:* chapters 01 to 03. *Time:* {{ time }}.

# %% tags=["setup"]
import math
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.attention import scaled_dot_product_attention
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.embedding import InputEmbedding, require_ids, require_int
from encoder_lib.plotting import plot_heatmap, plot_lines, use_style
from encoder_lib.text import Vocabulary, pad_batch, tokenize
from encoder_lib.widgets import mask_explorer
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## Does my answer depend on my neighbours?
#
# Sentences have different lengths, a tensor has one. So short rows are filled up with id 0, **padding**. How much is filled up depends on the longest sentence in the batch, that is, on chance.

# %%
sentences = ["a ginger kitten", "every dog has his day", "a movie with a bittersweet ending"]
assert set(sentences) <= {e.text.replace("_", e.word) for e in load_gap("test")}
tokens = [tokenize(sentence) for sentence in sentences]
vocabulary = Vocabulary(tokens)
rows = [vocabulary.encode(words) for words in tokens]
ids = pad_batch(rows)                                  # (B, L)
print(ids)

# %% [markdown]
# Let chapter 03's attention, with random projections, read the kitten twice: alone, and in this batch.
#
# > **Borrowed.** From chapter 01: `Vocabulary`, `pad_batch`, `tokenize`, `require_ids`, `require_int`. From chapter 02: `InputEmbedding`. From chapter 03: `scaled_dot_product_attention`. From torch, for comparison: `nn.MultiheadAttention`, `F.scaled_dot_product_attention` (SDPA below), `F.linear`. `F.pad` adds columns on the right.

# %%
_ = torch.manual_seed(0)
embed = InputEmbedding(len(vocabulary), d_model=16, dropout=0.0)
w_q, w_k, w_v = (nn.init.xavier_uniform_(torch.empty(16, 16)) for _ in range(3))


def project(ids):
    x = embed(ids).detach()                            # (B, L, D)
    return x @ w_q.T, x @ w_k.T, x @ w_v.T             # (B, L, D) each

# %% [markdown]
# > **Predict, then run.** Three paddings stand behind the kitten in the batch. By how many per cent do the outputs of its three words change: 0, 2 or 15?

# %%
alone, _ = scaled_dot_product_attention(*project(ids[:1, :3]))
in_batch, _ = scaled_dot_product_attention(*project(ids))
change = (in_batch[:1, :3] - alone).norm() / alone.norm()
print(f"changed by {change:.0%}")
record("B25", "change of a sentence by the padding of its batch, no mask", change, 0.05, 0.5)

# %% [markdown]
# Padding has an id, the id has a vector (zeros, after chapter 01), to the vector a position is added, and attention takes the sum for a word. In another batch the same sentence would get another answer.
#
# > **Key idea.** A sentence's answer must not depend on how much padding stands behind it. This is an invariance, so it can be tested, for any model and without knowing any right answer.
#
# ## Which tokens are real?
#
# The book has one kind of mask: `keep_mask`, bool, shape $(B, L)$, **True = real token**. It can come from the ids or from the lengths. First with loops:

# %%
def keep_mask_with_loops(lengths, max_len):
    keep = torch.zeros(len(lengths), max_len, dtype=torch.bool)
    for b, n in enumerate(lengths):
        for i in range(n):
            keep[b, i] = True
    return keep


lengths = [len(row) for row in rows]
print(keep_mask_with_loops(lengths, max_len=6).long())

# %% [markdown]
# Without loops it is a single comparison: position $i$ of row $b$ is real if $i < n_b$. The finished functions spend most of their lines on refusing what cannot be right.

# %% tags=["library"]
def keep_mask_from_ids(ids, pad_id=0):
    require_ids(ids)
    require_int(pad_id=pad_id)
    return ids != pad_id


def keep_mask_from_lengths(lengths, max_len=None):
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"lengths must be integers, got {lengths!r}") from error
    if lengths.dim() != 1 or lengths.numel() == 0:
        raise ValueError(f"lengths must have shape (B,), B >= 1, got {tuple(lengths.shape)}")
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.long()
    longest = int(lengths.max())
    max_len = longest if max_len is None else max_len
    require_int(max_len=max_len)
    if int(lengths.min()) < 0 or longest > max_len:
        raise ValueError(f"lengths must lie in 0 to max_len={max_len}, got {lengths.tolist()}")
    position = torch.arange(max_len, device=lengths.device)  # (L,)
    return position < lengths.unsqueeze(1)                   # (B, L)

# %%
keep_mask = keep_mask_from_lengths(lengths)                  # (B, L)
assert torch.equal(keep_mask, keep_mask_with_loops(lengths, max_len=6))
assert torch.equal(keep_mask, keep_mask_from_ids(ids))

# %% [markdown]
# The two agree as long as the padding id never stands for a real token. People who reuse the end-of-text token as padding lose its real occurrence, too:

# %%
END = vocabulary.encode(["day"])[0]                          # suppose "day" were the end token
reused = pad_batch(rows, pad_id=END)
print("real tokens by lengths:", keep_mask_from_lengths(lengths).sum(1).tolist())
print("real tokens by ids:    ", keep_mask_from_ids(reused, pad_id=END).sum(1).tolist())

# %% [markdown]
# The dog has lost its day. Where you have the lengths, use them.
#
# ## Where does the mask go?
#
# What is right needs no mask at all: cut each sentence to its length and attend alone.

# %%
def one_by_one(q, k, v, lengths):
    out = torch.zeros_like(v)
    for b, n in enumerate(lengths):
        out[b, :n] = scaled_dot_product_attention(q[b, :n], k[b, :n], v[b, :n])[0]
    return out


q, k, v = project(ids)                                       # (B, L, D) each
truth = one_by_one(q, k, v, lengths)                         # (B, L, D)

# %% [markdown]
# For the whole batch at once, let $m_j$ be 1 for a real key and 0 for padding. The padded keys must disappear from the numerator *and* from the sum below it:
#
# $$
# w_{ij} = \frac{m_j\, e^{s_{ij}}}{\sum_l m_l\, e^{s_{il}}} \tag{4.1}
# $$
#
# Since $e^{-\infty} = 0$, writing $-\infty$ into the scores of padded keys before an ordinary softmax does just that.

# %%
def scores_of(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))   # (B, L, L)


hidden = ~keep_mask[:, None, :]                              # (B, 1, L): the same for all queries
weights = scores_of(q, k).masked_fill(hidden, -math.inf).softmax(dim=-1)
torch.testing.assert_close((weights @ v)[keep_mask], truth[keep_mask])
print(weights[0, 2])                                         # how "kitten" divides its attention

# %% [markdown]
# The comparison is made at the real tokens. What the padded rows hold is a question of its own, and comes below.
#
# ## Five ways
#
# The internet knows more ways to hide a key. Which of them solve equation (4.1)?

# %%
ways = {
    "-inf before softmax": lambda s, h: s.masked_fill(h, -math.inf).softmax(-1),
    "-1e9 before softmax": lambda s, h: s.masked_fill(h, -1e9).softmax(-1),
    "finfo.min before softmax": lambda s, h: s.masked_fill(h, torch.finfo(s.dtype).min).softmax(-1),
    "0 before softmax": lambda s, h: s.masked_fill(h, 0.0).softmax(-1),
    "0 after softmax": lambda s, h: s.softmax(-1).masked_fill(h, 0.0),
}

# %% [markdown]
# > **Predict, then run.** Two of the five are wrong. In which of them does *kitten* still listen to padding? In which does its row no longer add up to 1?

# %%
print(f"{'':26s}on padding  row sum  error of the output")
for name, way in ways.items():
    w = way(scores_of(q, k), hidden)                         # (B, L, L)
    error = ((w @ v - truth)[0, :3].norm() / truth[0, :3].norm()).item()
    on_padding = w[0, 2, 3:].sum().item()
    print(f"{name:26s}{on_padding:10.2f}{w[0, 2].sum().item():9.2f}{error:12.2f}")
    assert (error < 1e-5) == (name not in ("0 before softmax", "0 after softmax"))

# %%
row = {name: way(scores_of(q, k), hidden)[0, 2] for name, way in ways.items()}   # (L_k,) each
record("N15", "sum of a row, 0 after the softmax", row["0 after softmax"].sum(), 0.5, 0.9)
record("N16", "weight on padding, 0 before", row["0 before softmax"][3:].sum(), 0.1, 0.4)

# %% [markdown]
# A score of 0 is not "no attention", since $e^0 = 1$: it is a rather ordinary score. Zeros *after* the softmax do hide the keys, but the padding stays in the sum of equation (4.1), so every output is too small, by an amount that depends on the padding.
#
# Three ways are right here. They part in half precision, and where no key is left.

# %%
every_key = torch.tensor([[False, False, True], [True, True, True]])   # second row: all hidden
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for name in list(ways)[:3]:
        scores = torch.tensor([[1.0, 2.0, 3.0]] * 2, dtype=dtype)      # (L_q, L_k)
        try:
            one, none = ways[name](scores, every_key).float()
            result = f"{one[2]:.2f} on the hidden key; all hidden: {none[0]:.2f}"
        except RuntimeError as error:
            result = f"RuntimeError: {error}"
        print(f"{str(dtype)[6:]:9s} {name:25s} {result}")

# %%
raised = 0
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    try:
        of_padding = ways["-1e9 before softmax"](torch.zeros(3, dtype=dtype), torch.ones(3).bool())
    except RuntimeError:
        raised += 1
record("B24", "number types of 3 in which -1e9 raises an error", raised, 1, 1)
record("B24", "weight on each of 3 hidden keys, if all are hidden", of_padding[0].float(), 0.3, 0.4)

# %% [markdown]
# - `-1e9` does not exist in float16, whose largest number is 65504. A model written with it works in float32 and bfloat16, and stops the day somebody chooses float16.
# - `finfo.min` exists in every dtype. With all keys hidden all scores are equal, and the result is the **uniform** distribution over padding: 0.33, no matter what was asked.
# - `-inf` exists in every dtype as well. With all keys hidden it is 0/0.
#
# Masks that are *added* have one more trap. Two of them, one for padding and one for something else, may meet at the same key, and twice the most negative number is no number any more:

# %%
lowest = torch.tensor(torch.finfo(torch.float16).min, dtype=torch.float16)
print("twice the lowest float16:", lowest + lowest)
print("a row of them:", (lowest + lowest).expand(3).softmax(-1))

# %% [markdown]
# Boolean masks are combined by `&` and cannot overflow. That is one reason why the book's masks are boolean.
#
# ### Not in place
#
# "Zeros after softmax" is sometimes written to save memory, in place. Autograd needs the softmax's own result for its gradient, equation (3.1), and finds it altered:

# %% tags=["raises-exception"]
q_grad = q.clone().requires_grad_()
weights = scores_of(q_grad, k).softmax(-1)
weights.masked_fill_(hidden, 0.0)
(weights @ v).sum().backward()

# %% [markdown]
# This error is a friendly one: it stops you. Most errors in this chapter do not.
#
# ## A row of nothing but padding
#
# An empty text, or a batch filled up to a fixed number of rows, gives a row without any real token. What should a query get that may listen to nobody? Let us ask everyone, with the kitten real and the second row empty.

# %%
x = embed(ids[:2]).detach()                                  # (B, L, D)
half = keep_mask_from_lengths([3, 0], max_len=6)             # (B, L)
attend_to = half[:, None, :].expand(2, 6, 6)                 # (B, L_q, L_k)


def added(lowest):
    return torch.zeros(2, 6, 6).masked_fill(~attend_to, lowest)

# %%
sdpa, least = F.scaled_dot_product_attention, torch.finfo(torch.float32).min
results = {
    "ours": scaled_dot_product_attention(x, x, x, attend_to)[0],
    "SDPA, bool": sdpa(x, x, x, attend_to),
    "SDPA, -inf added": sdpa(x, x, x, added(-math.inf)),
    "SDPA, finfo.min added": sdpa(x, x, x, added(least)),
}
for name, out in results.items():
    first = " ".join(f"{value:6.2f}" for value in out[1, 0, :3])
    print(f"{name:22s} {first}   mean of all values: {torch.allclose(out[1, 0], x[1].mean(0))}")

# %%
written_out = added(-math.inf).softmax(-1) @ x               # (B, L, D)
record("N18", "NaN of 192 numbers, written out", written_out.isnan().sum(), 96, 96)
record("N18", "NaN of 192 numbers, fused", results["SDPA, bool"].isnan().sum(), 0, 0)

# %% [markdown]
# Three give zeros (SDPA in older versions of torch gave NaN). `finfo.min` gives the mean of six values in a row that has none.
#
# > **Predict, then run.** `nn.MultiheadAttention` takes the same batch. The loss uses the **first** sentence only, which is perfectly fine. What share of the gradient of the projection matrix is NaN: none, half (one sentence of two) or all?

# %%
_ = torch.manual_seed(0)
mha = nn.MultiheadAttention(16, num_heads=1, batch_first=True)
out, _ = mha(x, x, x, key_padding_mask=~half)                # (B, L, D)
out[0].sum().backward()
print("NaN in the output of the two rows:", out.isnan().any(dim=-1).any(dim=-1).tolist())
print(f"NaN in the gradient: {mha.in_proj_weight.grad.isnan().float().mean():.0%}")
gradient = mha.in_proj_weight.grad                           # (3 D, D)
record("N17", "share of NaN in the gradient", gradient.isnan().float().mean(), 0.99, 1)

# %% [markdown]
# All of it (measured with torch 2.13; later versions may give zeros). The empty row's output has gradient 0, but on the way back $0 \cdot \text{NaN} = \text{NaN}$, and the projection is shared by all rows. One empty text, one step, and the model is gone. Nor is it reliably so. (A *head* is one of several attentions that run side by side; chapter 05 builds them. Here they are one more axis, $H$.)

# %%
def has_nan(n_heads, need_weights, training):
    layer = nn.MultiheadAttention(16, n_heads, batch_first=True).train(training)
    with torch.set_grad_enabled(training):
        out, _ = layer(x, x, x, key_padding_mask=~half, need_weights=need_weights)
    return out[1].isnan().any().item()


print("NaN in the empty row?      1 head  2 heads")
for need_weights in (True, False):
    for training in (True, False):
        name = f"need_weights={need_weights}, {'train' if training else 'eval'}"
        cells = [str(has_nan(n_heads, need_weights, training)) for n_heads in (1, 2)]
        print(f"{name:26s} {cells[0]:7s} {cells[1]}")

# %% [markdown]
# Whether torch's layer returns NaN depends on whether you ask for the weights, on the mode, and even on the number of heads, because each combination takes another path through the code. With two heads and without weights it trains cleanly and gives NaN in use.
#
# Our function has one contract: a query without keys gets weights 0, output 0 and finite gradients. It lifts the mask of such a row *before* the softmax and writes zeros after it, so that no 0/0 ever exists, not even in the backward pass.

# %%
ours = [x.clone().requires_grad_() for _ in range(3)]
out, weights = scaled_dot_product_attention(*ours, attend_to)
kitten = x[:1, :3]                                           # alone, without any padding
torch.testing.assert_close(out[:1, :3], scaled_dot_product_attention(kitten, kitten, kitten)[0])
out.sum().backward()
print("weights of the empty row:", weights[1, 0].tolist())
assert all(t.grad.isfinite().all() for t in ours)

# %% [markdown]
# ## The finished functions
#
# Refusing comes first. A float mask is refused, because it is unclear whether its zeros hide or do nothing. Integers that hold only 0 and 1 are fine.

# %% tags=["library"]
KEEP = "True = real token; write mask != 0 if 1.0 means real, mask == 0 if 0.0 means real"
IGNORE = "True = ignore; write mask == 0 if 1.0 means real, mask != 0 if 0.0 means real"


def as_keep_mask(mask, shape=None, name="keep_mask", meaning=KEEP):
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{name} must be a bool tensor of shape (B, L), got {type(mask).__name__}")
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"{name} must be bool, got {mask.dtype}. It needs {meaning}")
    if mask.dim() != 2:
        raise ValueError(f"{name} must have shape (B, L), got {tuple(mask.shape)}")
    if shape is not None and tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, but (B, L) is {tuple(shape)}")
    if mask.dtype == torch.bool:
        return mask
    if ((mask != 0) & (mask != 1)).any():
        raise ValueError(f"an integer {name} may hold only 0 and 1, got {mask.unique().tolist()}")
    return mask != 0

# %% tags=["raises-exception"]
as_keep_mask(keep_mask.float())

# %% [markdown]
# Three conventions are in use, so there are three pairs of conversions, each with the convention in its name. One never has to write `~` by hand, and never has to remember for whom.

# %% tags=["library"]
def to_key_padding_mask(keep_mask):
    return ~as_keep_mask(keep_mask)


def from_key_padding_mask(key_padding_mask):
    return ~as_keep_mask(key_padding_mask, name="key_padding_mask", meaning=IGNORE)


def to_attention_mask(keep_mask):
    return as_keep_mask(keep_mask)[:, None, None, :]


def from_attention_mask(attention_mask):
    if not isinstance(attention_mask, torch.Tensor):
        kind = type(attention_mask).__name__
        raise TypeError(f"attention_mask must be a bool tensor (B, 1, 1, L), got {kind}")
    shape = tuple(attention_mask.shape)
    if len(shape) != 4 or shape[1:3] != (1, 1):
        raise ValueError(f"attention_mask must have shape (B, 1, 1, L), got {shape}")
    return as_keep_mask(attention_mask[:, 0, 0, :], name="attention_mask")


def to_huggingface_mask(keep_mask):
    return as_keep_mask(keep_mask).long()


def from_huggingface_mask(attention_mask):
    return as_keep_mask(attention_mask, name="attention_mask")

# %%
there_and_back = [
    (to_key_padding_mask, from_key_padding_mask),
    (to_attention_mask, from_attention_mask),
    (to_huggingface_mask, from_huggingface_mask),
]
for there, back in there_and_back:
    assert torch.equal(back(there(keep_mask)), keep_mask)

# %% [markdown]
# ### Shapes that fit by accident
#
# Attention takes a mask for the scores, $(B, L_q, L_k)$, or with heads $(B, H, L_q, L_k)$. A `keep_mask` has shape $(B, L)$. Broadcasting aligns axes from the **right**, so it would take $B$ for $L_q$, and fail. Unless the two happen to be equal (or $B = 1$, where it is right by luck).

# %%
square = keep_mask_from_lengths([3, 2, 1])                   # (B, L) with B = L = 3
equal_scores = torch.zeros(3, 3, 3)                          # (B, L_q, L_k)
wrong = equal_scores.masked_fill(~square, -math.inf).softmax(-1)
right = equal_scores.masked_fill(~square[:, None, :], -math.inf).softmax(-1)
print("second sentence, right:", right[1], sep="\n")
print("second sentence, wrong:", wrong[1], sep="\n")
record("N19", "largest weight on padding, second sentence", wrong[1, :, 2].max(), 0.3, 0.4)

# %% [markdown]
# The second sentence has two tokens, so every query should see keys 0 and 1. With the wrong broadcast, its *first query* follows the first sentence's mask, its second the second's, and so on. No error here. With $B = 2$ and $L = 5$ the same line stops with a shape error; with $B = L$ it runs, so a test needs that case too.
#
# With heads, a mask $(B, 1, L)$ over scores $(B, H, L, L)$ is just as treacherous: its $B$ is taken for $H$.

# %%
two_heads = torch.zeros(2, 2, 4, 4)                          # (B, H, L_q, L_k) with B = H = 2
per_sentence = keep_mask_from_lengths([3, 2], max_len=4)[:, None, :]     # (B, 1, L)
by_accident = two_heads.masked_fill(~per_sentence, -math.inf).softmax(-1)
for head in (0, 1):
    print(f"first sentence, head {head}:", by_accident[0, head, 0])

# %% [markdown]
# The first sentence has three tokens. Its second head got the mask of the second sentence.
#
# So the last function accepts only shapes that say what they mean: $(L_q, L_k)$ for all, or as many axes as the scores have.

# %% tags=["library"]
def as_score_mask(mask, scores_shape):
    if not isinstance(mask, torch.Tensor) or mask.is_floating_point() or mask.is_complex():
        kind = mask.dtype if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a bool tensor with True = attend, got {kind}")
    shape, wanted = tuple(mask.shape), tuple(scores_shape)
    same_axes = len(shape) == len(wanted)
    fits = same_axes and all(s in (1, w) for s, w in zip(shape, wanted, strict=True))
    if shape != wanted[-2:] and not fits:
        raise ValueError(
            f"mask must have shape (L_q, L_k) = {wanted[-2:]}, or one axis for each of the "
            f"scores' {wanted}, equal to it or 1; got {shape}"
        )
    if mask.dtype != torch.bool:
        if ((mask != 0) & (mask != 1)).any():
            raise ValueError(f"an integer mask may hold only 0 and 1, got {mask.unique().tolist()}")
        mask = mask != 0
    return mask

# %%
assert as_score_mask(to_attention_mask(square), (3, 2, 3, 3)).shape == (3, 1, 1, 3)
try:
    as_score_mask(square[:, None, :], (3, 3, 3, 3))          # B = H = L: everything would fit
except ValueError as error:
    print(error)

# %% [markdown]
# > **Mind the condition.** One ambiguity is left. A `keep_mask` of shape $(B, L)$ with $B = L$ given *directly* to `scaled_dot_product_attention` is a legal $(L_q, L_k)$ mask. Nobody can know. Always go through `to_attention_mask`, as the finished layers do.
#
# ## Check against torch
#
# With one head, `nn.MultiheadAttention` is our function between two linear maps. We use its own parameters and compare the output and every gradient, with padding and without.

# %%
def ours_like(mha, x, keep_mask):
    q, k, v = F.linear(x, mha.in_proj_weight, mha.in_proj_bias).chunk(3, dim=-1)  # (B, L, D) each
    mask = None if keep_mask is None else to_attention_mask(keep_mask)[:, 0]      # (B, 1, L)
    return mha.out_proj(scaled_dot_product_attention(q, k, v, mask)[0])           # (B, L, D)


def theirs(mha, x, keep_mask):
    ignore = None if keep_mask is None else to_key_padding_mask(keep_mask)
    return mha(x, x, x, key_padding_mask=ignore)[0]

# %%
def compare(dtype, keep_mask, tolerance):
    _ = torch.manual_seed(1)
    layer = nn.MultiheadAttention(16, num_heads=1, batch_first=True, dtype=dtype)
    x = embed(ids).detach().to(dtype).requires_grad_()           # (B, L, D)
    upstream = torch.randn(x.shape, dtype=dtype)
    pairs = []
    for f in (ours_like, theirs):
        out = f(layer, x, keep_mask)
        pairs.append([out, *torch.autograd.grad(out, [x, *layer.parameters()], upstream)])
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=0)
    return len(pairs[0])

# %%
for mask in (None, keep_mask):
    compare(torch.float32, mask, tolerance=1e-5)
    count = compare(torch.float64, mask, tolerance=1e-10)
print(f"output and {count - 1} gradients agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# And SDPA itself, with two heads and the mask of shape $(B, 1, 1, L)$:

# %%
heads = torch.randn(3, 3, 2, 6, 8).unbind()                      # q, k, v: (B, H, L, d_k)
mask = to_attention_mask(keep_mask)                              # (B, 1, 1, L)
torch.testing.assert_close(
    scaled_dot_product_attention(*heads, mask)[0],
    F.scaled_dot_product_attention(*heads, attn_mask=mask),
)

# %% [markdown]
# ## Three conventions, one table
#
# | | real token | padding | shape |
# |---|---|---|---|
# | this book | True | False | $(B, L)$ |
# | `F.scaled_dot_product_attention` | True | False | broadcast to $(B, H, L_q, L_k)$ |
# | `nn.MultiheadAttention`, `nn.TransformerEncoder` | **False** | **True** | $(B, L)$ |
# | Hugging Face's `attention_mask` | 1 | 0 | $(B, L)$, int64 |
#
# Two functions of the same library read the same boolean tensor in opposite ways. What happens when a mask made for one is handed to another? Four real tokens, two paddings, all scores equal: without a mask, 2/6 = 0.33 of the attention falls on padding. As values we take 1 for padding and 0 for a real token, so the output *is* the attention on padding.

# %%
keep = keep_mask_from_lengths([4], max_len=6)                    # (B, L) with B = 1
zero, is_padding = torch.zeros(1, 6, 4), (~keep).float().unsqueeze(-1)   # (B, L, D), (B, L, 1)
flat = nn.MultiheadAttention(4, num_heads=1, batch_first=True)
_ = nn.init.zeros_(flat.in_proj_weight)


def huggingface(mask):                                           # the formula its BERT long used
    lowest = (1.0 - mask.float()) * torch.finfo(torch.float32).min   # (B, L)
    return sdpa(zero, zero, is_padding, lowest[:, None, :])

# %%
readers = {
    "ours": lambda m: scaled_dot_product_attention(zero, zero, is_padding, m[:, None, :])[0],
    "SDPA": lambda m: sdpa(zero, zero, is_padding, m[:, None, :]),
    "MHA": lambda m: flat(zero, zero, zero, key_padding_mask=m)[1] @ is_padding,
    "HF": huggingface,
}
masks = {
    "bool, True = real": keep,
    "bool, True = ignore": to_key_padding_mask(keep),
    "int, 1 = real": to_huggingface_mask(keep),
    "float, 1.0 = real": keep.float(),
    "float, 0 / -inf": torch.zeros(1, 6).masked_fill(~keep, -math.inf),
}

# %% [markdown]
# > **Predict, then run.** One row of the table that follows gives 0.16 twice, which is neither "hidden" (0) nor "no mask" (0.33). Which row, and why?

# %%
def attention_on_padding(read, mask):
    try:
        return f"{read(mask).flatten()[0].item():.2f}"
    except (TypeError, RuntimeError, AssertionError) as error:
        return type(error).__name__


table = {m: [attention_on_padding(r, masks[m]) for r in readers.values()] for m in masks}
print(f"{'':21s}" + "".join(f"{name:>15s}" for name in readers))
for name, row in table.items():
    print(f"{name:21s}" + "".join(f"{cell:>15s}" for cell in row))
assert table["float, 1.0 = real"][1:3] == ["0.16", "0.16"]

# %%
in_mha = readers["MHA"](masks["float, 1.0 = real"]).flatten()[0]
record("A17", "attention on padding, float mask in nn.MultiheadAttention", in_mha, 0.1, 0.3)
refused = sum(cell.endswith("Error") for cell in table["int, 1 = real"])
record("A17", "readers of 4 that refuse an int mask", refused, 2, 2)

# %% [markdown]
# Read it by rows.
#
# - **The wrong polarity** gives 1.00: attention on padding *only*. No function can notice, ours included; the tensor is a legal mask. What helps is a name that says the polarity.
# - **A float mask of 0 and 1 is added to the scores** by torch. Real tokens get $e^1$, padding $e^0$: $2/(4e + 2) = 0.16$. It looks as if the mask worked a little. Ours refuses.
# - **Integers** are refused by torch, and mean what they say in ours and at Hugging Face.
# - A `0 / -inf` mask is right for torch. Hugging Face's formula expects 1 and 0; here it gives the right answer by accident, because all scores are equal: the lowest number is added to *real* tokens, and their own scores drown in it.
#
# Integers have one more surprise. `~` turns bits around, so what looks like "not" makes everything true:

# %%
from_tokenizer = torch.tensor([1, 1, 0])
print("~mask =", ~from_tokenizer, " as bool:", (~from_tokenizer).bool())

# %% [markdown]
# ## Look: the polarity
#
# The kitten once more, in its batch: how the query *kitten* divides its attention under the right mask, the inverted one, and none.

# %% mystnb={"image": {"alt": "Three rows of attention weights of 'kitten' over its three words and three paddings. With the right mask only the words have weight, with the inverted mask only the paddings, without a mask all six."}}
def row_of_kitten(mask):
    return scaled_dot_product_attention(q, k, v, mask)[1][0, 2]      # (L_k,)


by_mask = {
    "right mask": row_of_kitten(keep_mask[:, None, :]),
    "inverted mask": row_of_kitten(~keep_mask[:, None, :]),
    "no mask": row_of_kitten(None),
}
fig, ax = plot_heatmap(torch.stack(list(by_mask.values())), row_labels=list(by_mask),
                       column_labels=["a", "ginger", "kitten", "pad 1", "pad 2", "pad 3"],
                       xlabel="key", ylabel="mask", value_label="attention weight",
                       limits=(0, 1), title="Whom 'kitten' listens to")
plt.show()

# %%
on_padding = {name: round(row[3:].sum().item(), 2) for name, row in by_mask.items()}
print("on padding:", on_padding)
assert on_padding["right mask"] == 0 and on_padding["inverted mask"] == 1

# %%
inverted = by_mask["inverted mask"][3:].sum()
record("A16", "attention on padding, mask of the other meaning", inverted, 0.99, 1)

# %% [markdown]
# Move the padding yourself. The scores are those of the longest sentence; the slider says how many of its tokens are real, the buttons choose what is done about the rest. Watch the sums of the rows and what falls on padding.

# %%
mask_explorer(scores_of(q, k)[2], tokens[2], key="mask-explorer")

# %% [markdown]
# Of the two faults the missing mask is harder to notice: with little padding the change is small. How large it is depends on the batch:

# %%
changes = []
for n in (1, 3, 10, 30):
    unmasked, _ = scaled_dot_product_attention(*project(F.pad(ids[:1, :3], (0, n))))
    changes.append(((unmasked[:, :3] - alone).norm() / alone.norm()).item())
    print(f"{n:2d} paddings change the kitten by {changes[-1]:.0%}")
assert changes == sorted(changes)

# %% [markdown]
# ## Keys are hidden, queries are not
#
# The mask stands in the columns. A padded token is not *listened to*, but it still *listens*: its row of the output is an ordinary vector.

# %%
out, _ = scaled_dot_product_attention(q, k, v, keep_mask[:, None, :])    # (B, L, D)
print("norms of the kitten's six rows:", out[0].norm(dim=-1).round(decimals=2))
record("A8", "smallest norm at padding, mask given", out[0, 3:].norm(dim=-1).min(), 1, 10)

# %% [markdown]
# Put other words at the padded places: the real rows stay as they were, the padded ones, which have queries of their own, do not.

# %%
other_words = project(ids.masked_fill(~keep_mask, 3))                    # (B, L, D) each
moved = (scaled_dot_product_attention(*other_words, keep_mask[:, None, :])[0] - out).abs()
record("A7", "change at real tokens", moved[keep_mask].max(), 0, 1e-5)
record("A7", "change at padding", moved[~keep_mask].max(), 0.1, 20)

# %% [markdown]
# The last three are garbage, finite and harmless as long as nobody uses them. Whoever comes next must leave them out. Take the mean over a sentence:

# %%
keep_column = keep_mask.unsqueeze(-1)                                # (B, L, 1)
plain = out.mean(dim=1)                                              # (B, D)
masked = (out * keep_column).sum(dim=1) / keep_column.sum(dim=1)     # (B, D)
of_truth = truth[0, :3].mean(dim=0)                                  # (D,)
for name, pooled in (("plain", plain[0]), ("masked", masked[0])):
    print(f"{name:6s} mean: off by {(pooled - of_truth).norm() / of_truth.norm():.2f}")

# %%
off = [(pooled - of_truth).norm() / of_truth.norm() for pooled in (plain[0], masked[0])]
record("A9", "error of a sentence's vector, plain mean", off[0], 0.1, 0.5)
record("A9", "error of a sentence's vector, masked mean", off[1], 0, 1e-5)

# %% [markdown]
# The loss, too, must skip them wherever every token has an answer of its own.
#
# ### Break it: hide the queries as well
#
# "Padding stands in the rows too, so the mask should cover both axes." Then padded queries have nobody to listen to, and a hand-written $-\infty$ makes them NaN. They are rows nobody reads. Is that harmless?
#
# > **Predict, then run.** Two such layers in a row. What share of the outputs at **real** tokens of the kitten is NaN after the first, and after the second?

# %%
def both_axes(h):
    pair = keep_mask[:, :, None] & keep_mask[:, None, :]             # (B, L_q, L_k)
    weights = scores_of(h, h).masked_fill(~pair, -math.inf).softmax(-1)
    return weights @ h                                               # (B, L, D)


h = embed(ids).detach()
for layer in (1, 2):
    h = both_axes(h)
    print(f"after layer {layer}: {h[0, :3].isnan().float().mean():.0%} of the real rows")
record("N20", "share of NaN at real tokens, layer 2", h[0, :3].isnan().float().mean(), 0.99, 1)

# %% [markdown]
# A weight of exactly 0 does not protect from NaN, since $0 \cdot \text{NaN} = \text{NaN}$. In layer 2 the padded rows are *values*, and the whole sentence is lost.
#
# > **Key idea.** A mask makes a weight 0. It hides every finite value, but not NaN, nor infinity ($0 \cdot \infty$ is NaN, too). Padding must stay finite everywhere.
#
# ## The test to remember
#
# Nearly all faults of this chapter break the invariance we began with. So the test: add padding, and put rubbish into it. The outputs of real tokens must stay, up to rounding.

# %%
def assert_padding_invariant(f, ids, keep_mask, extra=5):
    expected = f(ids, keep_mask)[keep_mask]                          # (real tokens, D)
    for rubbish in (0, 3):                                           # padding, or a word's id
        filled = ids.masked_fill(~keep_mask, rubbish)                # the old padding, too
        more_ids = F.pad(filled, (0, extra), value=rubbish)          # (B, L + extra)
        more_keep = F.pad(keep_mask, (0, extra), value=False)
        found = f(more_ids, more_keep)[more_keep]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)

# %% [markdown]
# Here are eight attentions, one of them right. The last fault can only happen when $B = L$, so the batch is cut to three tokens for its three sentences.

# %%
def attention_with(hide):
    def f(ids, keep):
        q, k, v = project(ids)
        return hide(scores_of(q, k), keep) @ v                       # (B, L, D)
    return f


def fill(hidden, value=-math.inf):
    return lambda s, keep: s.masked_fill(hidden(keep), value).softmax(-1)

# %%
candidates = {
    "right": fill(lambda keep: ~keep[:, None, :]),
    "no mask": lambda s, keep: s.softmax(-1),
    "inverted": fill(lambda keep: keep[:, None, :]),
    "0 before softmax": fill(lambda keep: ~keep[:, None, :], 0.0),
    "0 after softmax": lambda s, keep: s.softmax(-1).masked_fill(~keep[:, None, :], 0.0),
    "queries instead of keys": fill(lambda keep: ~keep[:, :, None], -1e9),
    "float mask added": lambda s, keep: (s + keep.float()[:, None, :]).softmax(-1),
    "(B, L) broadcast": fill(lambda keep: ~keep, -1e9),
}
batch, batch_keep = ids[:, :3], keep_mask_from_lengths([3, 2, 1])    # B = L = 3

# %%
verdicts = {}
for name, hide in candidates.items():
    try:
        assert_padding_invariant(attention_with(hide), batch, batch_keep)
        verdicts[name] = "passes"
    except (AssertionError, RuntimeError) as error:
        verdicts[name] = f"fails: {type(error).__name__}"
    print(f"{name:24s} {verdicts[name]}")
assert [name for name, verdict in verdicts.items() if verdict == "passes"] == ["right"]

# %% [markdown]
# Seven faults, seven failures, and the test knows nothing about attention. (The last one fails with a shape error, as $L$ grows and $B$ does not.)
#
# What it does *not* find: fully padded rows, float16, NaN in padded rows (a single layer that masks both axes passes), and faults behind the encoder, such as the plain mean; for a classifier compare its answers, too. The candidate that passes gives NaN for the first, as the table of fill values showed. Ask for finite outputs there, and run the test in the dtype you use.
#
# ## What does forgetting cost?
#
# "Without the mask, results get much worse." Do they? We train a small encoder without a mask and look. The task: 3 to 12 tokens of eight kinds, drawn at random; which kind occurs most? Ties are left out. In training every row is filled up to 12.
#
# > **Borrowed.** The model comes ready made: `TransformerEncoder` and `EncoderClassifier` are built in chapter 09. The classifier takes the masked mean from above and applies a linear map. `F.one_hot` and `F.cross_entropy` are torch's.

# %%
from encoder_lib.encoder import EncoderClassifier, TransformerEncoder


def majority_batch(n, generator):
    keep = keep_mask_from_lengths(torch.randint(3, 13, (n,), generator=generator), max_len=12)
    ids = torch.randint(1, 9, (n, 12), generator=generator).masked_fill(~keep, 0)   # (B, L)
    counts = F.one_hot(ids, 9)[..., 1:].sum(dim=1)                                  # (B, 8)
    top = counts.topk(2).values                                                     # (B, 2)
    clear = top[:, 0] > top[:, 1]
    return ids[clear], keep[clear], counts.argmax(dim=1)[clear]

# %% [markdown]
# To switch the mask off we say that everything is real. In a fourth arm attention has its mask, but the mean after it is the plain one.

# %%
def answers(model, ids, keep, arm, extra=0):
    ids, keep = F.pad(ids, (0, extra)), F.pad(keep, (0, extra))      # (B, L + extra)
    if arm.startswith("no mask"):
        keep = torch.ones_like(keep)
    if arm == "mask, plain mean":
        return model.head(model.encoder(ids, keep).mean(dim=1))      # (B, 8)
    return model(ids, keep)                                          # (B, 8)

# %%
def train(arm, seed, steps=300, most_extra=0):
    _ = torch.manual_seed(seed)
    positions = None if arm.endswith("no positions") else "sinusoidal"
    encoder = TransformerEncoder(9, 32, 4, 64, n_layers=2, dropout=0.0, positions=positions)
    model = EncoderClassifier(encoder, n_classes=8, dropout=0.0)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        ids, keep, kinds = majority_batch(64, generator)
        extra = torch.randint(0, most_extra + 1, (), generator=generator).item()
        loss = F.cross_entropy(answers(model, ids, keep, arm, extra), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()

# %%
@torch.no_grad()
def accuracy(model, arm, extra):
    ids, keep, kinds = majority_batch(600, torch.Generator().manual_seed(999))
    right = answers(model, ids, keep, arm, extra).argmax(dim=1) == kinds
    return right.float().mean().item()

# %% [markdown]
# > **Predict, then run.** The test sentences are the same every time, filled up to 12, 16, ... 40. How many points does the model *without* a mask lose at 12? At 40? And one without a mask *and* without positions?

# %% tags=["nbval-ignore-output"]
arms = ["mask", "mask, plain mean", "no mask", "no mask, no positions"]
models = {arm: [train(arm, seed) for seed in (0, 1)] for arm in arms}
filled_to = [12, 16, 20, 24, 32, 40]
curves = {}
for arm in arms:
    seeds = torch.tensor([[accuracy(m, arm, n - 12) for n in filled_to] for m in models[arm]])
    curves[arm] = seeds.mean(dim=0)                                  # (6,)
    print(f"{arm:22s} at 12: {seeds[:, 0].mean():.2f}   at 40: {seeds[:, -1].mean():.2f}")

# %%
assert all(curve[0] > 0.95 for curve in curves.values())
assert curves["mask"][-1] > 0.98 and curves["mask, plain mean"][-1] > 0.93
assert curves["no mask"][0] - curves["no mask"][-1] > 0.3
assert curves["no mask, no positions"][-1] > 0.93

# %% tags=["nbval-ignore-output"]
record("B39", "no mask, padded as in training", curves["no mask"][0], 0.95, 1)
record("B39", "no mask, more padding", curves["no mask"][-1], 0.1, 0.7)
record("B39", "mask, more padding", curves["mask"][-1], 0.98, 1)

# %% mystnb={"image": {"alt": "Four lines of accuracy against the length to which test sentences are filled up, from 12 to 40. Three stay near 1. The line of the model without a mask starts at 1 as well and falls below one half."}}
fig, ax = plot_lines(curves, x=filled_to, xlabel="length the test sentences are filled up to",
                     ylabel="accuracy (mean of two seeds)", direct_labels=False,
                     title="Trained at 12: the missing mask shows only when the padding changes")
ax.set_ylim(0, 1.05)
ax.set_xticks(filled_to)
plt.show()

# %% [markdown]
# At the padding of the training all four stay above 0.95: a model can learn to live with padding that is always the same. So "much worse" is wrong, and the truth is less comfortable: **a score measured at the padding of the training does not show the fault.** It shows in use, when a batch has another length, and at 40 more than 30 points are gone.
#
# And it needs positions. Without them all paddings enter as one and the same vector, which the model can learn to disregard. With them, place 30 brings a vector that it has never seen. Is that the whole reason? We can add 28 paddings that all carry places it knows as padding (6 to 11).

# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def accuracy_with_known_places(model):
    ids, _, kinds = majority_batch(600, torch.Generator().manual_seed(999))
    known = model.encoder.embedding(torch.zeros(1, 12, dtype=torch.long))[:, 6:]    # (1, 6, D)
    more = known.repeat(len(ids), 5, 1)[:, :28]                                     # (B, 28, D)
    h = model.encoder.encoder(torch.cat([model.encoder.embedding(ids), more], dim=1))
    return (model.head(h.mean(dim=1)).argmax(dim=1) == kinds).float().mean().item()


for model in models["no mask"]:
    new, known = accuracy(model, "no mask", 28), accuracy_with_known_places(model)
    print(f"28 more paddings at new places {new:.2f}, at known places {known:.2f}")
    assert new < known < 0.9

# %% [markdown]
# Known places do less harm, but they do harm: the number counts as well. With the mask, neither matters.
#
# The plain mean costs little here, a few points at most. It adds up garbage and divides by 40 instead of by the number of real tokens; that the garbage is mild is luck, not a property.
#
# The test to remember finds the fault in the trained encoder, without a label and before anybody is hurt:

# %%
def invariant(arm):
    def f(ids, keep):
        return model.encoder(ids, torch.ones_like(keep) if arm == "no mask" else keep)

    model, (some_ids, some_keep, _) = models[arm][0], majority_batch(8, torch.Generator())
    try:
        assert_padding_invariant(f, some_ids, some_keep)
    except AssertionError:
        return False
    return True


print({arm: invariant(arm) for arm in ("mask", "no mask")})

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you; the check below your code runs it on fresh random inputs and says what it found.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 4.1** (difficulty 1 of 5, 5 min, predict). Five real tokens, three paddings, all scores equal. Somebody hands the mask to `F.scaled_dot_product_attention` as floats, 1.0 for real and 0.0 for padding. How much of a query's attention falls on padding?

# %% tags=["exercise"]
answer = ...  # a number, to three digits
checks.answer("4.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# A float mask is added to the scores. Each real token counts $e^1$, each padding $e^0$.
#
# ```python
# answer = 3 / (5 * math.e + 3)
# ```
#
# Without a mask it would be 3/8, so the mask seems to work a little. It does not:
#
# ```python
# one, padding = torch.zeros(1, 8, 4), torch.tensor([0.0] * 5 + [1.0] * 3)
# found = sdpa(one, one, padding.view(1, 8, 1), (1 - padding).view(1, 1, 8))
# assert math.isclose(found[0, 0].item(), answer, rel_tol=1e-5)
# ```
#
# </details>
#
# > **Exercise 4.2** (difficulty 2 of 5, 15 min, implement). Some tokenizers pad on the **left**: a row of $n$ tokens fills the last $n$ places. Write its `keep_mask` without loops: `lengths` is an int64 tensor $(B,)$, `max_len` a whole number, at least the longest length. Return a bool tensor $(B, L)$ with $L$ = `max_len`, True = real token. Before you open the solution: does masked attention give a sentence the same result with padding on the left as without any? With positions, and with `InputEmbedding(..., positions=None)`?

# %% tags=["exercise"]
def my_left_keep_mask(lengths, max_len):
    ...  # your code: return the mask


checks.left_keep_mask(my_left_keep_mask)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_left_keep_mask(lengths, max_len):
#     position = torch.arange(max_len)
#     return position >= max_len - lengths.unsqueeze(1)
# ```
#
# The mask works on either side. But three paddings on the left move every word by three places, so its position code changes, and with it the result. Without positions it is invariant. Models that pad on the left count positions from the first real token.
#
# ```python
# def left_changes(positions):
#     _ = torch.manual_seed(0)
#     embed = InputEmbedding(len(vocabulary), 16, dropout=0.0, positions=positions)
#     def read(ids):
#         x = embed(ids).detach()
#         mask = keep_mask_from_ids(ids)[:, None, :]
#         return scaled_dot_product_attention(x @ w_q.T, x @ w_k.T, x, mask)[0]
#     kitten = ids[:1, :3]
#     return (read(F.pad(kitten, (3, 0)))[:, 3:] - read(kitten)).abs().max().item()
#
# assert left_changes(None) < 1e-5
# assert left_changes("sinusoidal") > 0.1
# ```
#
# </details>
#
# > **Exercise 4.3** (difficulty 2 of 5, 15 min, implement). The fourth convention: write the mask that is **added** to scores $(B, H, L_q, L_k)$. Given are `keep_mask`, bool, $(B, L)$, True = real token, and a floating-point `dtype`. Return a tensor $(B, 1, 1, L)$ of this dtype, 0 at real tokens, and at padding either $-\infty$ or the lowest number of the dtype. It must work for float32, float64, bfloat16 and float16.

# %% tags=["exercise"]
def my_additive_mask(keep_mask, dtype):
    ...  # your code: return the mask


checks.additive_mask(my_additive_mask)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_additive_mask(keep_mask, dtype):
#     mask = torch.zeros(keep_mask.shape, dtype=dtype)
#     return mask.masked_fill(~keep_mask, -math.inf)[:, None, None, :]
# ```
#
# The tempting formula $(1 - \text{mask}) \cdot (-\infty)$ gives NaN at every real token, since $0 \cdot \infty$ is no number. With the lowest number in place of $-\infty$ it is right, and that is the formula that Hugging Face's BERT long used. Both hide the padding:
#
# ```python
# added_by_hand = my_additive_mask(keep_mask, torch.float32)
# by_addition = (scores_of(q, k) + added_by_hand[:, 0]).softmax(-1)
# torch.testing.assert_close(by_addition @ v,
#                            scaled_dot_product_attention(q, k, v, keep_mask[:, None, :])[0])
# ```
#
# </details>
#
# > **Exercise 4.4** (difficulty 3 of 5, 15 min, implement). A decoder also hides the *future*: query $i$ may attend to key $j$ if $j \le i$ **and** $j$ is a real token (whether $i$ is one does not matter). Write the mask for a `keep_mask`, bool, $(B, L)$: a bool tensor $(B, 1, L, L)$, queries before keys, True = attend. What happens if the mask that many texts make for `nn.MultiheadAttention`, the strict upper triangle with True = ignore, goes to SDPA unchanged?

# %% tags=["exercise"]
def my_causal_mask(keep_mask):
    ...  # your code: return the mask


checks.causal_mask(my_causal_mask)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# Boolean masks with True = attend are combined by `&`.
#
# ```python
# def my_causal_mask(keep_mask):
#     length = keep_mask.size(1)
#     past = torch.ones(length, length, dtype=torch.bool).tril()
#     return past & keep_mask[:, None, None, :]
# ```
#
# The strict upper triangle, unchanged, shows exactly the future: token 0 attends to 1 and 2, and the last one has no future, so it gets zeros.
#
# ```python
# z, eye = torch.zeros(1, 3, 3), torch.eye(3)[None]
# future = torch.ones(3, 3, dtype=torch.bool).triu(1)
# wrong = F.scaled_dot_product_attention(z, z, eye, future)[0]
# torch.testing.assert_close(wrong, torch.tensor([[0, 0.5, 0.5], [0, 0, 1], [0, 0, 0]]))
# both = my_causal_mask(keep_mask_from_lengths([2], max_len=3))[:, 0]
# last = scaled_dot_product_attention(z, z, eye, both)[1][0, 2]
# torch.testing.assert_close(last, torch.tensor([0.5, 0.5, 0.0]))
# ```
#
# </details>
#
# > **Exercise 4.5** (difficulty 4 of 5, 20 min, implement). Write equation (4.1) with `exp`, without torch's softmax. `scores` are $(\ldots, L_q, L_k)$, `mask` is bool and broadcasts to them, True = attend. Return the weights. A query that may attend to nothing gets zeros; no gradient may be NaN; and a forbidden key must not matter even if its score is larger by 200 than all others. Is it enough to write zeros after an ordinary softmax, and to divide every row by its sum?

# %% tags=["exercise"]
def my_masked_softmax(scores, mask):
    ...  # your code: return the weights


checks.masked_softmax(my_masked_softmax)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_masked_softmax(scores, mask):
#     scores = scores.masked_fill(~mask, -math.inf)
#     largest = scores.amax(dim=-1, keepdim=True)
#     shares = (scores - largest.masked_fill(largest == -math.inf, 0.0)).exp()
#     total = shares.sum(dim=-1, keepdim=True)
#     return shares / total.masked_fill(total == 0, 1.0)
# ```
#
# The two extra `masked_fill` keep $-\infty - (-\infty)$ and 0/0 from ever being computed, in an empty row.
#
# Zeros after the softmax, then every row divided by its sum: on paper that is equation (4.1), since the common denominator cancels. In floating point it fails when padding has a much larger score than all real tokens. Their weights are rounded to 0 before the padding is removed, and 0/0 is left.
#
# ```python
# def renormalised(s, h):
#     w = s.softmax(-1).masked_fill(h, 0.0)
#     return w / w.sum(dim=-1, keepdim=True)
#
# s = scores_of(q, k)
# torch.testing.assert_close(renormalised(s, hidden), ways["-inf before softmax"](s, hidden))
# steep, last = torch.tensor([[0.0, 1.0, 200.0]]), torch.tensor([[False, False, True]])
# assert renormalised(steep, last).isnan().any()
# torch.testing.assert_close(
#     my_masked_softmax(steep, ~last)[0, :2], torch.tensor([0.0, 1.0]).softmax(-1))
# ```
#
# </details>
#
# > **Exercise 4.6** (difficulty 4 of 5, 20 min, explore). Can training repair a missing mask? Train the arm "no mask" with up to 28 extra paddings, a new number in every step. How does it do at 40, and at 60? What do you conclude?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# varied = train("no mask", seed=0, most_extra=28)
# at_40, at_60 = accuracy(varied, "no mask", 28), accuracy(varied, "no mask", 48)
# print(round(at_40, 2), round(at_60, 2))
# assert at_40 > 0.85 and at_40 - at_60 > 0.1
# ```
#
# It learns every padding that it has seen, and fails again beyond. The mask costs one line and holds for all of them, without training.
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"In PyTorch, True means masked."* In `nn.MultiheadAttention`. In `F.scaled_dot_product_attention` it means the opposite.
#
# > **Misconception.** *"A float mask of zeros and ones works."* It is added to the scores: padding got 0.16 of the attention instead of 0.
#
# > **Misconception.** *"-1e9 is as good as $-\infty$."* Not in float16, where it raises, and not for a row of padding only, where it gives the average of the padding.
#
# > **Misconception.** *"Masked query rows are zero."* The mask hides keys. The rows of padded queries hold ordinary numbers, and pooling and loss must skip them.
#
# > **Misconception.** *"Without the mask, training goes wrong."* Training went well. Another padding at test time was the trouble, and without positions hardly even that.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(4)

# %% [markdown]
# ## Summary
#
# - `keep_mask`: bool, $(B, L)$, True = real. Every other convention is reached through a function that names it.
# - Hide keys with $-\infty$ *before* the softmax. Zeros before it or after it are wrong.
# - A query with no key gets zeros and finite gradients here; torch's `nn.MultiheadAttention` may give NaN, and its gradient then ruins the whole batch.
# - Shapes that fit by accident ($B = L$, $B = H$) mix sentences or heads without an error.
# - The test to remember: more padding, with rubbish in it, must not change the real rows. It found seven faults of seven.
# - A missing mask is nearly invisible until the padding changes; then it cost more than 30 points, with positions.
#
# ## Sources
#
# Masking with $-\infty$ before the softmax: [Vaswani et al. (2017)](../book/bibliography.md), section 3.2.3, there for the future. Computing without padding instead of hiding it: [Zeng et al. (2022)](../book/bibliography.md). The layers compared with: [Paszke et al. (2019)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 05, [multi-head attention](05_multi_head_attention.ipynb).
