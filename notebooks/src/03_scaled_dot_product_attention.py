# %% [markdown]
# # Scaled dot-product attention
#
# *You will be able to:* compute attention with a pencil, write it in four lines, say what the scale repairs and under which condition, and refute "attention is linear".
# *You need:* chapters 01 and 02. *Time:* {{ time }}.

# %% tags=["setup"]
import math
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_attention, plot_lines, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## Who should listen to whom?
#
# In *the boat cut the water* the word *cut* is not about scissors: the boat and the water say so. The vector of *cut* should therefore take something from *boat* and from *water*, and little from *the*. How does a word find out whom to listen to?
#
# Attention lets every word ask and answer. Each word has three vectors: a **query** (what am I looking for?), a **key** (what am I good for?) and a **value** (what do I have to say?). A query is compared with all keys by a dot product; the better the match, the more of that word's value is taken.
#
# Three words, two numbers each, so that a pencil is enough.

# %%
words = ["boat", "cut", "water"]
q = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])  # (L, d_k)
k = torch.tensor([[0.0, 2.0], [0.0, 0.0], [2.0, 0.0]])  # (L, d_k)
v = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])  # (L, d_k)

# %% [markdown]
# Take *cut*. Its query is $(1, 1)$; its dot products with the three keys are $2, 0, 2$. They become shares by the softmax: $e^2, e^0, e^2$ divided by their sum, about 0.47, 0.06, 0.47. The new vector of *cut* is that mixture of the values.
#
# ## First with loops

# %%
def attention_with_loops(q, k, v):
    out = torch.zeros(len(q), v.size(1))
    for i in range(len(q)):
        scores = torch.tensor([q[i] @ k[j] for j in range(len(k))])
        weights = scores.exp() / scores.exp().sum()
        out[i] = sum(weights[j] * v[j] for j in range(len(v)))
    return out

# %%
print(attention_with_loops(q, k, v))

# %% [markdown]
# The second row is the one we did by hand. The third word asked for nothing, all its scores are 0, and it got the plain average.
#
# ## Then without
#
# All dot products at once are one matrix product, and all mixtures are another.

# %%
def unscaled_attention(q, k, v):
    scores = q @ k.transpose(-2, -1)    # (..., L_q, L_k)
    weights = scores.softmax(dim=-1)    # (..., L_q, L_k)
    return weights @ v, weights         # (..., L_q, d_k), (..., L_q, L_k)


out, weights = unscaled_attention(q, k, v)
torch.testing.assert_close(out, attention_with_loops(q, k, v))
print(weights.round(decimals=2))

# %% [markdown]
# Row $i$ says how query $i$ divides its attention. The softmax runs over the **last** axis, the keys, so every row adds up to 1. That is easy to get wrong and hard to see, because square matrices hide it. Two queries and five keys show it, and so does a single key: whoever may listen to one word only must listen to it fully.

# %%
_ = torch.manual_seed(0)
two, five = torch.randn(2, 4), torch.randn(5, 4)
_, weights = unscaled_attention(two, five, five)
print("rows add up to", weights.sum(dim=-1), " columns to", weights.sum(dim=0).round(decimals=2))
print("one key:", unscaled_attention(two, five[:1], five[:1])[1].flatten())

# %% [markdown]
# ## Why a scale
#
# Real queries have 64 numbers, not two. What happens to the scores?
#
# > **Predict, then run.** The entries of $q$ and $k$ are independent with mean 0 and variance 1. What is the variance of $q \cdot k$ for $d_k = 64$: 1, 8 or 64? And of 16 weights, how large is the largest, on average?

# %%
def draw(d_k, n=1000, length=16):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, n, length, d_k, generator=generator)  # q and k


for d_k in (4, 64, 1024):
    q_big, k_big = draw(d_k)
    scores = q_big @ k_big.transpose(-2, -1)                      # (n, L, L)
    top = scores.softmax(-1).amax(-1).mean()
    print(f"d_k = {d_k:4d}: variance {scores.var():6.0f}, mean largest weight {top:.2f}")

# %% [markdown]
# $q \cdot k$ adds up $d_k$ independent products of variance 1, so its variance is $d_k$. At 1024 nearly all the weight sits on one key.
#
# Is that bad? Not for the output: listening to one word may be right. It is bad for **learning**. How much the weights $w$ change when the scores $s$ change is the Jacobian of the softmax,
#
# $$
# \frac{\partial w_i}{\partial s_j} = w_i(\delta_{ij} - w_j) \tag{3.1}
# $$
#
# and when one weight is nearly 1 and the others nearly 0, every entry is nearly 0. A decided softmax passes no gradient on.

# %%
def jacobian_norm(weights):
    outer = weights.unsqueeze(-1) * weights.unsqueeze(-2)        # (..., L, L)
    jacobian = torch.diag_embed(weights) - outer                 # (..., L, L)
    return jacobian.flatten(-2).norm(dim=-1).mean().item()


s = torch.randn(5, dtype=torch.float64)
by_torch = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), s)
assert math.isclose(jacobian_norm(s.softmax(-1)), by_torch.norm().item())

# %% [markdown]
# Divide the scores by $\sqrt{d_k}$ and their variance is 1 again, whatever $d_k$:
#
# $$
# \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right) V \tag{3.2}
# $$
#
# ([Vaswani et al. (2017)](../book/bibliography.md), equation 1).
#
# > **Predict, then run.** Without the scale, by what factor does the Jacobian's norm fall from $d_k = 4$ to $d_k = 1024$: 2, 7 or 250? And with it?

# %%
print("        without scale              with scale")
print(" d_k    largest weight  Jacobian   largest weight  Jacobian")
for d_k in (4, 64, 1024):
    q_big, k_big = draw(d_k)
    scores = q_big @ k_big.transpose(-2, -1)
    row = f"{d_k:5d}"
    for s in (scores, scores / math.sqrt(d_k)):
        w = s.softmax(-1)
        row += f"{w.amax(-1).mean():12.2f}{jacobian_norm(w):14.2f}"
    print(row)

# %% mystnb={"image": {"alt": "Two lines over d_k from 1 to 1024 on a logarithmic axis: the norm of the softmax Jacobian. Without the scale it falls from about 0.3 towards zero after d_k = 4; with the scale it stays flat near 0.3."}}
sizes = [4**i for i in range(6)]
lines = {"without scale": [], "with scale": []}
for d_k in sizes:
    q_big, k_big = draw(d_k, n=200)
    scores = q_big @ k_big.transpose(-2, -1)
    lines["without scale"].append(jacobian_norm(scores.softmax(-1)))
    lines["with scale"].append(jacobian_norm((scores / math.sqrt(d_k)).softmax(-1)))
fig, ax = plot_lines(lines, x=sizes, xlabel="$d_k$ (numbers in a query)",
                     ylabel="norm of the Jacobian",
                     title="How much gradient a softmax over 16 keys lets through")
ax.set_xscale("log", base=4)
ax.set_xticks(sizes, sizes)
plt.show()

# %%
q_big, k_big = draw(64)
record("B21", "variance of q · k at d_k 64", (q_big @ k_big.transpose(-2, -1)).var(), 60, 70)
for name, bound in (("without scale", (0.05, 0.25)), ("with scale", (0.8, 1.2))):
    falls_to = lines[name][-1] / lines[name][1]
    record("B21", f"Jacobian at d_k 1024 over d_k 4, {name}", falls_to, *bound)

# %% [markdown]
# Is there a row of weights that the missing scale made *flatter*? We count.

# %%
flatter = 0
for d_k in sizes[1:]:
    q_big, k_big = draw(d_k, n=200)
    scores = q_big @ k_big.transpose(-2, -1)
    top, scaled_top = (s.softmax(-1).amax(-1) for s in (scores, scores / math.sqrt(d_k)))
    flatter += (top < scaled_top - 1e-6).sum().item()
record("B42", "rows of 16,000 that are flatter without the scale", flatter, 0, 0)

# %% [markdown]
# > **Mind the condition.** "The scale brings the variance to 1" holds if queries and keys have variance 1. In a model they come from linear maps, so it depends on how those start.

# %%
def score_variance(fill, d_model=256, n_heads=4):
    _ = torch.manual_seed(0)
    x = torch.randn(400, d_model)                                # (n, D), variance 1
    w_q, w_k = (fill(torch.empty(3 * d_model, d_model)) for _ in range(2))
    q, k = (x @ w[:d_model].T for w in (w_q, w_k))               # (n, D)
    q, k = (y.unflatten(-1, (n_heads, -1)).transpose(0, 1) for y in (q, k))  # (H, n, d_k)
    return ((q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))).var().item()


def xavier(fan_out):
    def fill(w):
        return nn.init.uniform_(w, -(bound := math.sqrt(6 / (256 + fan_out))), bound)
    return fill

# %%
starts = {
    "Xavier, each matrix alone (this book)": xavier(256),
    "Xavier, three packed (nn.MultiheadAttention)": xavier(3 * 256),
    "nn.Linear's default": lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5)),
    "Kaiming normal": lambda w: nn.init.kaiming_normal_(w),
}
variances = [score_variance(fill) for fill in starts.values()]
for name, variance in zip(starts, variances):
    print(f"{name:46s} variance {variance:.2f}")

# %%
record("B22", "score variance, Xavier for each matrix", variances[0], 0.85, 1.15)
record("B22", "score variance, Xavier for three packed", variances[1], 0.2, 0.3)
record("B22", "score variance, nn.Linear's default", variances[2], 0.09, 0.14)
record("B43", "score variance, Kaiming normal", variances[3], 3.4, 4.6)

# %% [markdown]
# Three usual starts, three answers: about 1, about 1/4, about 1/9. With a small variance attention starts almost uniform, which is no fault, but it is another model at step 0. Chapter 08 shows that verdicts about whole architectures turn on it. Kaiming's factor, made for ReLU layers, starts too sharp: there is no ReLU between query and key.

# %% [markdown]
# ## The finished function
#
# Two more things belong to it. It refuses inputs that do not fit each other. And it takes a **mask**, True where a query may attend to a key: the forbidden scores become $-\infty$ before the softmax, so that their weights are exactly 0. A query that may attend to nothing at all gets zeros. Why it is done this way and not in one of four others is the subject of chapter 04.
#
# > **Borrowed.** `as_score_mask`, which checks the mask's shape, is built in chapter 04; `require_dropout` was built in chapter 02. `F.dropout` is torch's, and so is our twin for comparison, `F.scaled_dot_product_attention`. The experiments below use `F.layer_norm`, `F.normalize` and `nn.Linear`.

# %%
from encoder_lib.attention import as_score_mask
from encoder_lib.embedding import require_dropout

# %% tags=["library"]
def require_qkv(q, k, v):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a floating-point tensor (..., L, d_k), got {kind}")
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.dim() < 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same axes before the last two, got {shapes}")
    if q.size(-1) != k.size(-1) or k.size(-2) != v.size(-2):
        raise ValueError(f"q and k must share d_k, and k and v their length, got {shapes}")


def scaled_dot_product_attention(q, k, v, mask=None, dropout_p=0.0):
    require_qkv(q, k, v)
    require_dropout(dropout_p)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))   # (..., L_q, L_k)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        mask = as_score_mask(mask, scores.shape)
        empty = ~mask.any(dim=-1, keepdim=True)                # queries without any key
        # A row of -inf alone gives 0/0, and NaN weights make NaN gradients: those rows wait.
        scores = scores.masked_fill(~(mask | empty), -math.inf)
        weights = scores.softmax(dim=-1).masked_fill(empty, 0.0)
    return F.dropout(weights, dropout_p) @ v, weights          # (..., L_q, d_v), (..., L_q, L_k)

# %%
out, weights = scaled_dot_product_attention(q, k, v)
torch.testing.assert_close(out, unscaled_attention(q / math.sqrt(2), k, v)[0])
no_water = torch.tensor([[True, True, False]]).expand(3, 3)    # (L_q, L_k)
print(scaled_dot_product_attention(q, k, v, no_water)[1].round(decimals=2))

# %% [markdown]
# The column of *water* is 0, and the rows still add up to 1: what *water* would have got goes to the others.
#
# ## Check against torch
#
# `F.scaled_dot_product_attention` computes the same without ever storing the weights. Outputs and the gradients of all three inputs must agree, with a mask and without, in single and in double precision.

# %%
def compare(dtype, masked, tolerance):
    _ = torch.manual_seed(0)
    mask = (torch.rand(2, 1, 6, 6) > 0.3) | torch.eye(6, dtype=torch.bool) if masked else None
    ours = [torch.randn(2, 4, 6, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    upstream = torch.randn(2, 4, 6, 8, dtype=dtype)
    a, _ = scaled_dot_product_attention(*ours, mask)
    b = F.scaled_dot_product_attention(*theirs, attn_mask=mask)
    (a * upstream).sum().backward()
    (b * upstream).sum().backward()
    for x, y in [(a, b)] + [(x.grad, y.grad) for x, y in zip(ours, theirs)]:
        torch.testing.assert_close(x, y, atol=tolerance, rtol=0)

# %%
for masked in (False, True):
    compare(torch.float32, masked, tolerance=1e-5)
    compare(torch.float64, masked, tolerance=1e-10)
print("output and three gradients agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# ## Look: a map of nothing
#
# A picture of attention weights is called an **attention map**. Here is one for a real sentence, with random embeddings and random projections. Before you read meaning into it, remember that it was drawn by lot.

# %%
tokens = "she nibbled daintily at her cake".split()
assert "she nibbled _ at her cake" in {example.text for example in load_gap("test")}
_ = torch.manual_seed(0)
x = torch.randn(len(tokens), 64)                               # (L, D)
w_q, w_k, w_v = (nn.init.xavier_uniform_(torch.empty(64, 64)) for _ in range(3))
_, weights = scaled_dot_product_attention(x @ w_q.T, x @ w_k.T, x @ w_v.T)

# %% mystnb={"image": {"alt": "Heat map of six by six attention weights for 'she nibbled daintily at her cake' with random projections. Some cells are brighter than others, without any pattern."}}
fig, ax = plot_attention(weights, tokens, title="Random projections: whatever you see is chance")
plt.show()

# %% [markdown]
# Surely *nibbled* listens to *cake* more than to *at*? Not before training: over many draws its weight is one in six on average, and it may be anything.

# %%
def one_weight(seed, query=1, key=5):                          # "nibbled" and "cake"
    generator = torch.Generator().manual_seed(seed)
    a, b = (nn.init.xavier_uniform_(torch.empty(64, 64), generator=generator) for _ in range(2))
    words = torch.randn(len(tokens), 64, generator=generator)  # (L, D)
    return scaled_dot_product_attention(words @ a.T, words @ b.T, words)[1][query, key].item()


drawn = torch.tensor([one_weight(seed) for seed in range(1000)])
record("B9", "weight of nibbled on cake, mean of 1000 draws", drawn.mean(), 0.15, 0.18)
record("B9", "standard deviation of the draws", drawn.std(), 0.05, 0.3)

# %% [markdown]
# One number tells how even a row is: its **entropy**, from 0 (all on one key) to $\ln L$ (all equal).

# %%
def entropy_share(weights):
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1)
    return (entropy.mean() / math.log(weights.size(-1))).item()


print(f"this map: {entropy_share(weights):.2f} of the largest possible entropy")

# %% [markdown]
# ## Is attention linear?
#
# One often reads: "attention is a weighted average, a linear operation, so the feed-forward network must bring the non-linearity." A linear function satisfies $f(x + y) = f(x) + f(y)$.
#
# > **Predict, then run.** We measure $|f(x+y) - f(x) - f(y)|$, relative to $|f(x+y)|$, for attention as a function of its input. Near 0, near 0.1, or near 1?

# %%
def attend(x):
    return scaled_dot_product_attention(x @ w_q.T, x @ w_k.T, x @ w_v.T)[0]


def additivity_error(f, n=50):
    a, b = torch.randn(2, n, len(tokens), 64)                  # (n, L, D) each
    both = f(a + b)
    return ((both - f(a) - f(b)).norm() / both.norm()).item()


fixed = weights                                                # (L, L), held fast
bent, straight = additivity_error(attend), additivity_error(lambda x: fixed @ (x @ w_v.T))
print(f"attention:            {bent:.2f}")
print(f"with fixed weights:   {straight:.2f}")

# %%
record("C5", "error of additivity, attention", bent, 0.4, 1.2)
record("C5", "error of additivity, weights held fast", straight, 0, 1e-5)

# %% [markdown]
# Linear in the **values**, as long as the weights are held fast. But the weights are made from the input, through a softmax, and the whole is far from linear. What the feed-forward network adds is something else: a non-linearity inside each position. Chapter 06 looks at it.
#
# ## Break it: Q = K = V
#
# Some texts write "in self-attention $Q = K = V = \operatorname{LN}(x)$". The *inputs* of the three are equal. What if the three themselves were?
#
# > **Predict, then run.** Sixteen random tokens of 64 numbers, normalised, used as queries, keys and values at once. How much weight does a token give to itself: 1/16, 0.5 or 0.99?

# %%
_ = torch.manual_seed(0)
tokens_16 = F.layer_norm(torch.randn(200, 16, 64), (64,))      # (n, L, D)
_, literal = scaled_dot_product_attention(tokens_16, tokens_16, tokens_16)
_, projected = scaled_dot_product_attention(tokens_16 @ w_q.T, tokens_16 @ w_k.T, tokens_16)
for name, w in (("Q = K = V", literal), ("projected", projected)):
    print(f"{name:10s} weight on itself {w.diagonal(dim1=-2, dim2=-1).mean():.2f}")

# %%
on_itself = [w.diagonal(dim1=-2, dim2=-1).mean() for w in (literal, projected)]
record("A5", "weight on itself, Q, K and V equal", on_itself[0], 0.95, 1)
record("A5", "weight on itself, projected", on_itself[1], 0.03, 0.15)
one_way = (tokens_16 @ w_q.T) @ (tokens_16 @ w_k.T).transpose(-2, -1)  # (n, L, L)
asymmetry = (one_way - one_way.transpose(-2, -1)).norm() / one_way.norm()
record("C2", "asymmetry of the projected scores", asymmetry, 0.5, 2)

# %% [markdown]
# A normalised vector of 64 numbers has dot product 64 with itself and about 0 with a random other one; divided by 8, that is 8 against 0, and the softmax has decided. Everybody listens to themselves: an expensive identity. The projections $W_Q$ and $W_K$ are what lets a word look for something that it is not.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each is followed by its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests. Where numbers go in, the result has their dtype, and gradients reach them.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 3.1** (difficulty 1 of 5, 5 min, predict). Add a fourth word with key $(1, 1)$ and value $(5, 5)$ to the pencil example, and divide the scores by $\sqrt 2$. How much of its attention does *cut* give to the new word? A pencil is enough: $e^{\sqrt 2} \approx 4.113$.

# %% tags=["exercise"]
answer = ...  # a number, to three digits
checks.answer("3.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# The scores of *cut* are $2, 0, 2, 2$, divided by $\sqrt 2$. Three of them are equal and share nearly everything.
#
# ```python
# answer = math.exp(math.sqrt(2)) / (3 * math.exp(math.sqrt(2)) + 1)
# ```
#
# The function says the same:
#
# ```python
# k4, v4 = torch.cat([k, torch.ones(1, 2)]), torch.cat([v, torch.full((1, 2), 5.0)])
# _, w = scaled_dot_product_attention(q, k4, v4)
# assert math.isclose(w[1, 3].item(), answer, rel_tol=1e-5)
# ```
#
# </details>
#
# > **Exercise 3.2** (difficulty 2 of 5, 10 min, prove). Adding the same number to all scores of a query changes nothing. Show it, and conclude what a bias in the **key** projection does.
#
# <details>
# <summary>Solution</summary>
#
# The softmax divides $e^{s + c}$ by a sum that holds the same factor $e^c$. A key bias $b$ adds $q \cdot b$ to all scores of that query, the same number for every key: it does nothing. Chapter 05 comes back to it.
#
# ```python
# b = torch.randn(2) * 3
# torch.testing.assert_close(
#     scaled_dot_product_attention(q, k + b, v)[1], scaled_dot_product_attention(q, k, v)[1])
# ```
#
# </details>
#
# > **Exercise 3.3** (difficulty 2 of 5, 15 min, implement). Write the softmax with `exp`, without torch's: scores $(\ldots, L_k)$ in, weights of the same shape out, over the last axis. Scores in the thousands, positive or negative, must not give NaN, and a score of $-\infty$ gets weight 0. Exercise 3.2 tells you what you may do to the scores of a row.

# %% tags=["exercise"]
def my_softmax(scores):
    ...  # your code: return the weights


checks.softmax(my_softmax)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_softmax(scores):
#     shares = (scores - scores.amax(dim=-1, keepdim=True)).exp()
#     return shares / shares.sum(dim=-1, keepdim=True)
# ```
#
# $e^{1000}$ is infinite in float32, and $\infty / \infty$ is NaN. With the largest score of the row subtracted, the largest power is $e^0 = 1$: nothing overflows, and the sum is at least 1. The loops at the start of the chapter would fail here:
#
# ```python
# steep = torch.tensor([[1000.0, 0.0]])
# assert attention_with_loops(steep, torch.eye(2), torch.eye(2)).isnan().any()
# torch.testing.assert_close(my_softmax(steep), torch.tensor([[1.0, 0.0]]))
# ```
#
# </details>
#
# > **Exercise 3.4** (difficulty 3 of 5, 15 min, explore). Is attention with **permuted keys and values** (the same permutation for both) the same function? And with permuted queries?
#
# <details>
# <summary>Solution</summary>
#
# A sum does not depend on the order of its terms, so permuting keys and values together changes nothing in the output, only the columns of the weights. Permuting queries permutes the rows of the output.
#
# ```python
# order = torch.tensor([2, 0, 1])
# out, w = scaled_dot_product_attention(q, k, v)
# out_kv, w_kv = scaled_dot_product_attention(q, k[order], v[order])
# torch.testing.assert_close(out_kv, out)
# torch.testing.assert_close(w_kv, w[:, order])
# torch.testing.assert_close(scaled_dot_product_attention(q[order], k, v)[0], out[order])
# ```
#
# </details>
#
# > **Exercise 3.5** (difficulty 3 of 5, 15 min, implement). Scroll up no more: write scaled dot-product attention from memory, this time with `torch.einsum` instead of `@`. The function takes `q` $(\ldots, L_q, d_k)$, `k` $(\ldots, L_k, d_k)$, `v` $(\ldots, L_k, d_v)$ and a `mask` that is `None` or bool and broadcasts to $(\ldots, L_q, L_k)$, True = attend. It returns the output $(\ldots, L_q, d_v)$ and the weights $(\ldots, L_q, L_k)$. A forbidden key must not matter, however large its score. You need not check the inputs; every query of the check may attend to some key.

# %% tags=["exercise"]
def my_attention(q, k, v, mask=None):
    ...  # your code: return output, weights


checks.scaled_dot_product_attention(my_attention)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_attention(q, k, v, mask=None):
#     scores = torch.einsum("...id,...jd->...ij", q, k) / math.sqrt(q.size(-1))
#     if mask is not None:
#         scores = scores.masked_fill(~mask, -math.inf)
#     weights = scores.softmax(dim=-1)
#     return torch.einsum("...ij,...jd->...id", weights, v), weights
# ```
#
# The letters say what the transpose leaves unsaid: `d` is summed over in the scores, `j` (the keys) in the output. And with $d_k$ in place of $\sqrt{d_k}$? At $d_k = 64$ the variance of the scores falls to $64 / 64^2 = 1/64$, and attention is almost uniform:
#
# ```python
# q_big, k_big = draw(64)
# flat = q_big @ k_big.transpose(-2, -1) / 64
# assert abs(flat.var() * 64 - 1) < 0.1
# assert entropy_share(flat.softmax(-1)) > 0.99
# ```
#
# </details>
#
# > **Exercise 3.6** (difficulty 4 of 5, 20 min, implement). Go backward by hand. Given are the weights $w$ $(\ldots, L_k)$ that a softmax over the last axis returned, and the gradient $g$ of the loss with respect to them, of the same shape. Return the gradient with respect to the scores, from equation (3.1), without autograd and without building the Jacobian: no tensor may be larger than $w$.

# %% tags=["exercise"]
def my_softmax_backward(weights, upstream):
    ...  # your code: return the gradient of the scores


checks.softmax_backward(my_softmax_backward)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# By the chain rule and equation (3.1), $\sum_i g_i\, w_i (\delta_{ij} - w_j) = w_j \left(g_j - \sum_i w_i g_i\right)$: each score is pulled by how much better its own value would be than the average that came out.
#
# ```python
# def my_softmax_backward(weights, upstream):
#     average = (weights * upstream).sum(dim=-1, keepdim=True)
#     return weights * (upstream - average)
# ```
#
# It also shows the decided softmax once more: where a weight is 0, so is the gradient, and where it is 1, the bracket is 0.
#
# ```python
# decided = torch.tensor([1.0, 0.0, 0.0])
# assert my_softmax_backward(decided, torch.randn(3)).abs().max() == 0
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"A high score means that two words are similar."* The score compares a query with a key, two different projections. With random projections it is chance; trained ones compare whatever was useful.
#
# > **Misconception.** *"Dividing by $\sqrt{d_k}$ makes the variance 1."* If queries and keys have variance 1. With `nn.Linear`'s own start it is 1/9.
#
# > **Misconception.** *"Without the scale attention gets too sharp or too flat."* Leaving it out can only make scores larger, so only sharper. Flat comes from small weights or from dividing by too much.
#
# > **Misconception.** *"Attention is linear."* In the values, for fixed weights. Not in its input.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(3)

# %% [markdown]
# ## Summary
#
# - Attention compares each query with all keys, turns a row of scores into shares, and mixes the values by them. The softmax runs over the keys.
# - The variance of $q \cdot k$ is $d_k$; a decided softmax lets hardly any gradient through; $1/\sqrt{d_k}$ repairs that if the entries have variance 1.
# - How the projections start decides the variance: about 1, 1/4 or 1/9.
# - $Q = K = V$ attends to itself; the projections make attention useful.
# - The function equals torch's in output and gradients.
#
# ## Sources
#
# Attention and its scale: [Vaswani et al. (2017)](../book/bibliography.md), section 3.2.1. Xavier initialisation: [Glorot and Bengio (2010)](../book/bibliography.md). The sentence: WordNet, [Miller (1995)](../book/bibliography.md).
