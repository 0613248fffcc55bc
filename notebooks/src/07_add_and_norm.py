# %% [markdown]
# # Add and norm
#
# *You will be able to:* say what a residual connection does to the gradient and what it does not do, build LayerNorm and find the usual mistakes with two small rows, derive what it forgets, compare it fairly with BatchNorm, and put dropout where it belongs.
# *You need:* chapters 01, 02, 04 and 06. *Time:* {{ time }}.

# %% tags=["setup"]
import math
import time
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_lines, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## How deep can you stack?
#
# We have two parts that return as many numbers per token as they take: attention and the feed-forward network. An encoder is a stack of them; the paper calls them sub-layers. Twelve layers are 24 parts, one on top of the other. Does the first part still learn anything when the loss stands 24 parts above it?
#
# We take the simpler part, the feed-forward network, and real words. It treats every token alone, so sentences need not be kept apart and padding can be left out.
#
# > **Borrowed.** `keep_mask_from_ids` was built in chapter 04 and `FeedForward` in chapter 06. From torch we take, to compare with: `nn.BatchNorm1d`, `F.layer_norm`, `nn.LayerNorm`, `nn.RMSNorm`; and `F.dropout`, `F.normalize` and `F.cosine_similarity`, which we do not rebuild.

# %%
from encoder_lib import FeedForward, InputEmbedding
from encoder_lib.embedding import require_positive
from encoder_lib.masks import keep_mask_from_ids
from encoder_lib.text import Vocabulary, pad_batch, tokenize

sentences = [tokenize(e.text.replace("_", e.word, 1)) for e in load_gap("test")]
vocabulary = Vocabulary(sentences)
d_model = 64

# %%
_ = torch.manual_seed(0)
embed = InputEmbedding(len(vocabulary), d_model, dropout=0.0)
ids = pad_batch([vocabulary.encode(s) for s in sentences[:32]])      # (B, L)
keep_mask = keep_mask_from_ids(ids)                                  # (B, L)
x = embed(ids).detach()                                              # (B, L, D)
words = x[keep_mask].unsqueeze(0)                                    # (1, n, D)
print(f"{ids.size(0)} sentences, {words.size(1)} real tokens of {ids.numel()} places")

# %% [markdown]
# The measure: we send a random gradient in at the top and ask how much of it arrives at the input. A stack that does nothing gives 1.

# %%
def gradients_by_depth(step, parts, x):
    x0 = x.clone().requires_grad_()
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    h, ratios = x0, []
    for f in parts:
        h = step(h, f)
        gradient, = torch.autograd.grad((h * upstream).sum(), x0, retain_graph=True)
        ratios.append((gradient.norm() / upstream.norm()).item())
    return ratios, h.detach()

# %%
def xavier(seed=0, depth=24):
    _ = torch.manual_seed(seed)
    return [FeedForward(d_model, 4 * d_model) for _ in range(depth)]  # starts as Xavier-uniform


def plain(x, f):
    return f(x)

# %% [markdown]
# > **Predict, then run.** 24 feed-forward networks in a row, started as in chapter 06 (Xavier). What share of the gradient arrives at the input: about a half, a thousandth, or a millionth?

# %%
ratios, top = gradients_by_depth(plain, xavier(), words)
for depth in (1, 6, 12, 24):
    print(f"depth {depth:2d}: {ratios[depth - 1]:.0e}")
per_part = ratios[-1] ** (1 / 24)
print(f"per part: {per_part:.2f}")
assert 0.5 < per_part < 0.62

# %% [markdown]
# Each part passes on a little more than half, and over 24 parts that is about a millionth. The ReLU takes half of the square ($\sqrt{1/2} = 0.71$ of the norm); Xavier's variance $2 / (D + 4D)$, a compromise between two widths, takes another factor of 0.8. So this is no law about depth: it follows from the **start**. Another one makes up for both ([He et al. (2015)](../book/bibliography.md)), so that the factor should be near 1.

# %%
def matched(seed=0, depth=24):
    parts = xavier(seed, depth)
    for f in parts:
        nn.init.kaiming_normal_(f.w_1.weight, nonlinearity="relu")    # a ReLU follows
        nn.init.kaiming_normal_(f.w_2.weight, nonlinearity="linear")  # none follows
    return parts


def similarity(h):
    unit = F.normalize(h.flatten(0, -2), dim=-1)                      # (n, D)
    n = len(unit)
    return (((unit @ unit.T).sum() - n) / (n * (n - 1))).item()       # mean cosine of two tokens

# %%
ratios, top = gradients_by_depth(plain, matched(), words)
print(f"24 parts, matched start: gradient {ratios[-1]:.1f}")
print(f"cosine of two tokens: input {similarity(words):.2f}, top {similarity(top):.2f}")
assert 0.3 < ratios[-1] < 3 and similarity(top) > 0.85

# %%
record("N32", "gradient at the input over that at the top", ratios[-1], 0.3, 3)
record("N32", "cosine of two tokens at the top", similarity(top), 0.85, 1)

# %% [markdown]
# So "deep plain stacks have vanishing gradients" needs its condition: with a matched start the gradient arrives. Something else is lost. At the top all tokens point almost the same way; every word looks like every other.
#
# ## Add: keep what you had
#
# Let each part compute a **change** instead of a new vector ([He et al. (2016)](../book/bibliography.md)):
#
# $$
# x_{l+1} = x_l + f_l(x_l) \tag{7.1}
# $$
#
# A pencil first. Let every $f$ be "times 0.1", and stack 24. Without the addition the derivative is $0.1^{24}$; with it, every factor is $1 + 0.1$.

# %%
a = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
without, added = a, a
for _ in range(24):
    without = 0.1 * without
    added = added + 0.1 * added
slopes = [torch.autograd.grad(top, a)[0].item() for top in (without, added)]
print(f"without the addition {slopes[0]:.0e}, with it {slopes[1]:.1f}")

# %% [markdown]
# In general each factor is a matrix, the identity plus what the part does:
#
# $$
# \frac{\partial x_{l+1}}{\partial x_l} = I + \frac{\partial f_l}{\partial x_l} \tag{7.2}
# $$
#
# Multiply 24 of them: one term of the product is the identity, whatever the parts do. But the other terms are there too.
#
# > **Predict, then run.** The same 24 Xavier networks, now with the addition. Is the share that arrives near 1, near 5, or near 25?

# %%
def residual(x, f):
    return x + f(x)


for start in (xavier, matched):
    ratios, top = gradients_by_depth(residual, start(), words)
    rms = top.square().mean().sqrt()
    print(f"{start.__name__:8s} gradient {ratios[-1]:8.2g}, RMS at the top {rms:8.2g}")
    assert 15 < ratios[-1] < 50 if start is xavier else ratios[-1] > 1000

# %%
grown = gradients_by_depth(residual, xavier(), words)[0][-1]
record("C9", "gradient at the input over that at the top, Xavier", grown, 15, 50)
record("C9", "the same, matched start", ratios[-1], 1000, 1e5)

# %% [markdown]
# Nothing vanishes any more. Instead it **grows**: between 15 and 50 times with the one start, more than a thousand times with the other, which was the good one without the addition. Every part adds its share, and nobody makes the sum smaller again. (RMS: root mean square, chapter 01.)
#
# > **Mind the condition.** "Residual connections solve vanishing and exploding gradients" is half true. With both starts they stop the vanishing. (No guarantee: a part that has learned $f(x) = -x$ cuts the path.) Against the growth something else is needed, and that is what **norm** in "add and norm" is for.

# %% [markdown]
# ## The residual stream
#
# Written out, equation (7.1) says that the top is the input plus all changes:
#
# $$
# x_N = x_0 + \sum_{l=0}^{N-1} f_l(x_l) \tag{7.3}
# $$
#
# So one can picture a **residual stream**: every token has one, $D$ numbers wide, and each part reads from it and adds to it. Nothing is overwritten.

# %%
parts = xavier(depth=6)
h, changes = words, []
for f in parts:
    changes.append(f(h))                                              # (1, n, D)
    h = h + changes[-1]
torch.testing.assert_close(h, words + sum(changes))
print("the top is the input plus six changes")

# %% [markdown]
# This is why every part must return $D$ numbers per token. It would be good if an addition of other shapes failed. It does not always.
#
# > **Predict, then run.** A part forgets an axis and returns one vector per sentence, (2, 1, 8) instead of (2, 5, 8). Is adding it to the stream an error?

# %%
stream = torch.zeros(2, 5, 8)                                         # (B, L, D)
print(tuple((stream + torch.ones(2, 1, 8)).shape))
moved = (stream + torch.ones(2, 1, 8) != stream).any(dim=-1).sum()
record("A12", "tokens of 10 moved by a change of 2", moved, 10, 10)

# %% tags=["raises-exception"]
stream + torch.ones(2, 5, 4)

# %% [markdown]
# A wrong width is refused. A length of 1 is **broadcast**: every token gets the same change, and the shape of the sum looks right. A line such as `assert change.shape == x.shape` guards against it.
#
# ## Norm: by hand
#
# LayerNorm ([Ba et al. (2016)](../book/bibliography.md)) takes **one token** and gives its $D$ numbers the mean 0 and the variance 1:
#
# $$
# \operatorname{LN}(x)_j = \frac{x_j - \mu}{\sqrt{\sigma^2 + \varepsilon}}\, g_j + b_j, \qquad \mu = \frac1D \sum_i x_i, \qquad \sigma^2 = \frac1D \sum_i (x_i - \mu)^2 \tag{7.4}
# $$
#
# The gain $g$ and the shift $b$ are learned, start as ones and zeros, and are the same for all tokens. The small $\varepsilon$ keeps the root away from 0.
#
# > **Predict, then run.** With a pencil: what becomes of $(1, 0, 0, 0)$? (The mean is 1/4, the variance 3/16.)

# %%
def layer_norm_with_loops(x, eps=1e-5):
    out = torch.zeros_like(x)
    for i, row in enumerate(x.tolist()):
        mean = sum(row) / len(row)
        variance = sum((v - mean) ** 2 for v in row) / len(row)
        for j, v in enumerate(row):
            out[i, j] = (v - mean) / math.sqrt(variance + eps)
    return out

# %%
one_hot = torch.tensor([[1.0, 0.0, 0.0, 0.0]])                        # (1, D)
print(layer_norm_with_loops(one_hot))

# %% [markdown]
# $\tfrac34 / \sqrt{3/16} = \sqrt3$, the $\varepsilon$ aside. Without loops it is three lines, and the axes before the last may be anything.

# %%
def layer_norm(x, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)                        # (..., D)
    variance = centred.square().mean(dim=-1, keepdim=True)            # (..., 1)
    return centred / (variance + eps).sqrt()                          # (..., D)


torch.testing.assert_close(layer_norm(one_hot), layer_norm_with_loops(one_hot))
torch.testing.assert_close(layer_norm(words[0]), layer_norm_with_loops(words[0]))
print("equal, by hand and for", words.size(1), "real tokens")

# %% [markdown]
# Do all numbers lie between -1 and 1 afterwards? No. A row with a single 1 has its largest number near $\sqrt{D-1}$, and that is the largest possible. (If one number is $z$, the others add up to $-z$ and their squares to at least $z^2 / (D-1)$; all squares add up to at most $D$, so $z^2 \le D - 1$.)

# %%
print(f"one 1 among 64 numbers becomes {layer_norm(torch.eye(64))[0, 0]:.2f}")
record("N33", "largest number after it", layer_norm(torch.eye(64)).max(), 7.8, 8)

# %% [markdown]
# ## Break it: two usual mistakes
#
# `x.std()` divides by $D - 1$, not by $D$. And many write $\varepsilon$ outside the root. Both look right and run.

# %%
def unbiased(x, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt()


def eps_outside(x, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + eps)


tiny = torch.tensor([[1e-3, -1e-3, 1e-3, -1e-3]])                     # (1, D)
for f in (layer_norm, unbiased, eps_outside):
    print(f"{f.__name__:12s} [1,0,0,0] -> {f(one_hot)[0, 0]:.4f}   1e-3 -> {f(tiny)[0, 0]:.4f}")

# %%
torchs = F.layer_norm(one_hot, (4,))[0, 0]
record("C11", "divided by D, off by", (layer_norm(one_hot)[0, 0] - torchs).abs(), 0, 1e-5)
record("C11", "divided by D - 1, off by", (unbiased(one_hot)[0, 0] - torchs).abs(), 0.2, 0.3)

# %% [markdown]
# The one-hot row finds the first mistake, the tiny row the second. Note the last number of the first line: for a token whose numbers are as small as $\sqrt\varepsilon \approx 0.003$, even the correct LayerNorm does **not** give variance 1.
#
# Would a test with real tokens have found them?

# %%
_ = torch.manual_seed(0)
for width in (4, 64, 512):
    tokens = InputEmbedding(len(vocabulary), width, dropout=0.0)(ids[:8])  # (B, L, D)
    tokens = tokens.detach().double()
    right = layer_norm(tokens)
    off = [((f(tokens) - right).norm() / right.norm()).item() for f in (unbiased, eps_outside)]
    print(f"D = {width:3d}: unbiased off by {off[0]:.1%}, eps outside by {off[1]:.4%}")
    assert off[1] < 1e-5

# %% [markdown]
# At the paper's width of 512 the first is off by a tenth of a percent, and the second by less than a thousandth of a percent at every width. A loose tolerance lets both pass. Test a formula where it is **sensitive**: few numbers for the one, small numbers for the other.
#
# ## The finished module
#
# Two checks first, then the module. Half precision is widened inside; why, we see with RMSNorm below.

# %% tags=["library"]
def require_width(x, d_model):
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor (..., {d_model}), got {kind}")
    if x.dim() == 0 or x.size(-1) != d_model:
        raise ValueError(f"the last axis of x must be d_model={d_model}, got {tuple(x.shape)}")

# %% tags=["library"]
def require_eps(eps):
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps must be a small positive number such as 1e-5, got {eps!r}")
    if not 0 < eps < math.inf:
        raise ValueError(f"eps must be a small positive number such as 1e-5, got {eps}")

# %% tags=["library"]
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        require_positive(d_model=d_model)
        require_eps(eps)
        self.d_model, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.empty(d_model))
        self.bias = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        require_width(x, self.d_model)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        centred = wide - wide.mean(dim=-1, keepdim=True)             # (..., D)
        variance = centred.square().mean(dim=-1, keepdim=True)       # (..., 1)
        normal = centred * (variance + self.eps).rsqrt()             # (..., D)
        return (normal * self.weight + self.bias).to(x.dtype)

# %%
norm = LayerNorm(d_model)
torch.testing.assert_close(norm(words), layer_norm(words))
torch.testing.assert_close(LayerNorm(4)(tiny), layer_norm_with_loops(tiny))
means, variances = norm(words).mean(-1), norm(words).var(-1, correction=0)   # (1, n)
assert means.abs().max() < 1e-5 and (variances - 1).abs().max() < 1e-3
print("every token: mean 0, variance 1")

# %% [markdown]
# ## Check against torch
#
# Against `nn.LayerNorm` with a gain and a shift that are not ones and zeros: otherwise a module that forgets them passes. Output and the gradients of input, gain and shift must agree, for a padded batch, where no gradient comes from the padding, and for one without. The gradient sent in is random, for the reason below.

# %%
def compare(ours, theirs, dtype, padded, tolerance):
    generator = torch.Generator().manual_seed(0)
    start = (x[:4] if padded else words[:, :20]).to(dtype)            # (B, L, D)
    upstream = torch.randn(start.shape, generator=generator, dtype=dtype)
    upstream = upstream * keep_mask[:4].unsqueeze(-1) if padded else upstream
    results = []
    for module in (ours.to(dtype), theirs.to(dtype)):
        for seed, p in enumerate(module.parameters()):
            nn.init.normal_(p, mean=1.0, generator=torch.Generator().manual_seed(seed))
        leaves = [start.clone().requires_grad_(), *module.parameters()]
        out = module(leaves[0])
        results.append([out, *torch.autograd.grad((out * upstream).sum(), leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=0)

# %%
for padded in (False, True):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        compare(LayerNorm(d_model), nn.LayerNorm(d_model), dtype, padded, tolerance)
for row in (one_hot, tiny):
    torch.testing.assert_close(LayerNorm(4)(row), F.layer_norm(row, (4,)), atol=1e-6, rtol=0)
print("output and three gradients agree: 1e-5 in float32, 1e-10 in float64")

# %% [markdown]
# > **Predict, then run.** A usual shortcut is `out.sum().backward()`. What is the gradient of the input then, for gain 1?

# %%
leaf = words.clone().requires_grad_()                                 # (1, n, D)
gradient, = torch.autograd.grad(LayerNorm(d_model)(leaf).sum(), leaf)
assert gradient.abs().max() < 1e-5
print("zero, up to rounding")

# %% [markdown]
# The $D$ numbers of a normalised token always sum to 0, so their sum has no gradient. A test with it compares zeros, and a wrong backward pass can agree.
#
# ## Look: the plane and the circle
#
# What does LayerNorm do to the *geometry* of tokens? With $D = 3$ one can see it. Subtracting the mean projects onto the plane through the origin that is perpendicular to $(1, 1, 1)$. Dividing by the standard deviation moves every point to the distance $\sqrt D$ from the origin. A plane and a sphere meet in a circle.

# %%
_ = torch.manual_seed(0)
three = InputEmbedding(len(vocabulary), 3, dropout=0.0)(ids).detach()[keep_mask]   # (n, 3)
plane = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])
plane = F.normalize(plane, dim=-1)                                    # (2, 3), its two axes
before, after = three @ plane.T, layer_norm(three) @ plane.T          # (n, 2)
torch.testing.assert_close(after.norm(dim=-1), torch.full((len(after),), 3**0.5), atol=0.02, rtol=0)

# %% mystnb={"image": {"alt": "Scatter plot in the plane perpendicular to (1,1,1). The embeddings of about 200 words form a cloud around the origin; after LayerNorm the same words all lie on one circle with radius 1.73, in the same directions as before."}}
fig, ax = plt.subplots(figsize=(6.2, 4.2), dpi=100, layout="constrained")
ax.plot(*before.T, "x", alpha=0.6, label="before")
ax.plot(*after.T, "o", markersize=4, label="after LayerNorm")
ax.set(aspect="equal", xlabel="first axis of the plane", ylabel="second axis of the plane",
       title="LayerNorm moves words onto a circle ($D = 3$)")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# > **Key idea.** LayerNorm forgets two things about a token, its mean and its length. What is left is a direction in a space of $D - 1$ dimensions.
#
# ## What it forgets
#
# > **Predict, then run.** Multiply all numbers of a token by 3 and add 5. By how much does its LayerNorm change?

# %%
change = (layer_norm(3 * words + 5) - layer_norm(words)).abs().max().item()
assert change < 1e-3
print("LN(3x + 5) and LN(x) differ by less than 0.001")
record("N34", "difference of LN(3x + 5) and LN(x)", change, 0, 1e-3)

# %% [markdown]
# By nothing but $\varepsilon$ and rounding. Where a function does not change, its gradient is zero: LayerNorm passes on no gradient along $(1, \dots, 1)$ and none along the token itself. Its Jacobian, for gain 1 and $\varepsilon = 0$ and with $z = \operatorname{LN}(x)$, is
#
# $$
# \frac{\partial z}{\partial x} = \frac{1}{\sigma}\left(I - \frac{1}{D}\mathbf{1}\mathbf{1}^\top - \frac{1}{D} z z^\top\right) \tag{7.5}
# $$
#
# a projection that removes two directions, divided by $\sigma$. So it has rank $D - 2$, and its norm is $1/\sigma$: **ten times larger inputs, ten times smaller gradients**.

# %%
def jacobian(f, token):
    return torch.autograd.functional.jacobian(f, token.double())      # (D, D)


token = words[0, 0]                                                   # (D,)
sigma, z = token.double().std(correction=0), layer_norm(token.double(), eps=0.0)
formula = (torch.eye(d_model) - 1 / d_model - torch.outer(z, z) / d_model) / sigma   # (D, D)
torch.testing.assert_close(jacobian(lambda t: layer_norm(t, eps=0.0), token), formula)

# %%
for scale in (0.1, 1, 10):
    values = torch.linalg.svdvals(jacobian(layer_norm, scale * token))
    rank, sigma = (values > 1e-2 * values[0]).sum(), (scale * token).std(correction=0)
    print(f"{scale:4} x token: norm {values[0]:.3f}, 1/sigma {1 / sigma:.3f}, "
          f"rank {rank} of {d_model}")

# %%
record("C13", "norm of the Jacobian, token ten times louder", values[0], 0.05, 0.2)
record("C13", "rank of the Jacobian, of 64", rank, 62, 62)

# %% [markdown]
# (Values below a hundredth of the norm count as zero here: with $\varepsilon$ the second direction keeps a trace of about $\varepsilon / \sigma^2$.)

# %% mystnb={"image": {"alt": "Norm of LayerNorm's Jacobian against the standard deviation of the token, both axes logarithmic. It follows the straight line one over sigma down to sigma of about 0.01 and flattens at 316 for smaller tokens, where epsilon takes over."}}
sigmas = torch.logspace(-4, 2, 13)
unit = (token - token.mean()) / token.std(correction=0)
norms = [torch.linalg.matrix_norm(jacobian(layer_norm, s * unit), 2).item() for s in sigmas]
assert max(norms) < 317
fig, ax = plot_lines({"measured": norms, "$1/\\sigma$": 1 / sigmas}, x=sigmas, direct_labels=False,
                     xlabel="$\\sigma$, standard deviation of the token",
                     ylabel="norm of the Jacobian", title="A loud token gets little gradient")
ax.set(xscale="log", yscale="log")
plt.show()

# %% [markdown]
# On the left $\varepsilon$ takes over: the gradient is never multiplied by more than $1/\sqrt\varepsilon \approx 316$.
#
# ## Back to the stack
#
# Now put the norm in front of every part, inside the branch: $x + f(\operatorname{LN}(x))$. However large the stream has grown, the part sees variance 1, so each adds the same amount instead of the same *share*. And on the way back, the branch's gradient is divided by the stream's $\sigma$.

# %%
def normed_residual(x, f):
    return x + f(layer_norm(x))


runs = {
    "plain, Xavier": gradients_by_depth(plain, xavier(), words),
    "plain, matched": gradients_by_depth(plain, matched(), words),
    "x + f(x), Xavier": gradients_by_depth(residual, xavier(), words),
    "x + f(LN(x)), Xavier": gradients_by_depth(normed_residual, xavier(), words),
}
for name, (ratios, top) in runs.items():
    rms = top.square().mean().sqrt()
    print(f"{name:21s} gradient {ratios[-1]:7.2g}, RMS {rms:7.2g}, cosine {similarity(top):.2f}")

# %%
ratios, top = runs["x + f(LN(x)), Xavier"]
assert 1 < ratios[-1] < 6 and top.square().mean() < 5**2
assert similarity(top) < 0.7 < 0.85 < similarity(runs["plain, Xavier"][1])

# %% mystnb={"image": {"alt": "Share of the gradient that arrives at the input against depth from 1 to 24, logarithmic. The plain Xavier stack falls in a straight line to a millionth; the plain matched one stays near 1; with residual it climbs to about 25; with LayerNorm inside the branch it rises to only about 3."}}
fig, ax = plot_lines({name: ratios for name, (ratios, _) in runs.items()}, x=range(1, 25),
                     xlabel="feed-forward networks in the stack",
                     ylabel="gradient at the input / at the top", direct_labels=False,
                     title="How much gradient reaches the input, untrained")
ax.set_yscale("log")
plt.show()

# %% [markdown]
# Addition and norm together: the gradient arrives, grows only a little, and two tokens stay further apart than in the plain stack. (Here are feed-forward networks only, at the start of training. Attention adds an effect of its own, in chapter 08.)
#
# The paper puts the norm elsewhere, on the stream itself: $\operatorname{LN}(x + f(x))$. Then the identity path of (7.2) is multiplied by the Jacobian (7.5) at every step. Which of the two is better, and what of the folklore about them holds, is the subject of chapter 08.
#
# ## Which axis
#
# LayerNorm looks at the last axis of one token. Its name misleads: it is not over the whole layer, nor over the sentence. Torch's `F.layer_norm` can also do that, if one gives it two sizes.

# %%
for changed, what in ((2, "token 2"), (-1, "a padded place")):
    louder = x[:1].clone()
    louder[0, changed] *= 5
    for shape in ((d_model,), x.shape[1:]):
        moved = (F.layer_norm(louder, shape) - F.layer_norm(x[:1], shape))[0, 0].abs().max()
        print(f"{what:14s} is louder; over {str(tuple(shape)):8s} token 0 moves by {moved:.2f}")
        assert (moved == 0) == (len(shape) == 1)

# %%
louder = x[:1].clone()
louder[0, 2] *= 5
per_token, per_sentence = (
    (F.layer_norm(louder, shape) - F.layer_norm(x[:1], shape))[0, 0].abs().max()
    for shape in ((d_model,), x.shape[1:]))
record("C12", "move of another token, norm of a token", per_token, 0, 1e-6)
record("C12", "move of another token, norm of the sentence", per_sentence, 0.3, 5)

# %% [markdown]
# Over $(L, D)$ a word changes because another word did, padding included. Over $D$ it does not, and no other sentence matters either.

# %%
alone, together = norm(x[:1])[0], norm(x)[0]                          # (L, D)
assert (alone - together).abs().max() < 1e-5
print("LayerNorm: a sentence alone and in a batch of 32 gives the same")
record("B36", "difference, alone and in a batch", (alone - together).abs().max(), 0, 1e-5)

# %% [markdown]
# ## LayerNorm or BatchNorm, fairly
#
# BatchNorm ([Ioffe and Szegedy (2015)](../book/bibliography.md)) does the same arithmetic over the other axis: each of the $D$ features gets mean 0 and variance 1 over all tokens of the **batch**. In evaluation it uses averages stored during training instead. Why is it not used in encoders? Of the arguments one reads, some are true and one is not.

# %%
def batch_norm(module, x):
    return module(x.flatten(0, 1)).view_as(x)                         # over B * L tokens


bn = nn.BatchNorm1d(d_model)
with torch.no_grad():
    for _ in range(50):
        batch_norm(bn, x)                                             # fills the stored averages

# %% [markdown]
# > **Predict, then run.** "At inference there is one sentence, and its mean and variance are unstable." How much does BatchNorm in evaluation mode change when a sentence comes alone instead of with seven others?

# %%
def effect_of_companions(module):
    return (batch_norm(module, x[:8])[0] - batch_norm(module, x[:1])[0]).abs().max().item()


for training in (True, False):
    effect = effect_of_companions(bn.train(training))
    print(f"{'training' if training else 'evaluation':10s} differs by {effect:.1f}")
    assert effect > 0.5 if training else effect < 1e-5

# %%
record("C10", "effect of the other sentences, training", effect_of_companions(bn.train()), 0.5, 10)
record("C10", "effect of the other sentences, evaluation", effect_of_companions(bn.eval()), 0, 1e-5)

# %% [markdown]
# Not at all in evaluation: the stored averages know nothing of the batch. That argument is wrong. In **training** it is true: a word's vector depends on which sentences were drawn with it. A single token cannot be normalised at all.

# %% tags=["raises-exception"]
bn.train()(words[0, :1])

# %% [markdown]
# The second true problem is **padding**, which is counted unless one takes care. We look at the stored variance with the bare token embeddings, where padding is zeros.

# %%
bare = embed.tokens(ids).detach()                                     # (B, L, D), zeros at padding
padded, real = (nn.BatchNorm1d(d_model, momentum=None) for _ in range(2))
_ = padded(bare.flatten(0, 1)), real(bare[keep_mask])
print(f"stored variance: with padding {padded.running_var.mean():.2f}, "
      f"real tokens {real.running_var.mean():.2f}; real share {keep_mask.float().mean():.2f}")

# %%
share = padded.running_var.mean() / real.running_var.mean()
record("N35", "stored variance with padding over that of real tokens", share, 0.3, 0.7)

# %% [markdown]
# Half of the places are padding, so the variance is about half of what it should be. Is the share of padding really what counts? Three batches:

# %%
for i in (0, 32, 64):
    rows = pad_batch([vocabulary.encode(s) for s in sentences[i : i + 32]])   # (B, L)
    counted = nn.BatchNorm1d(d_model, momentum=None)
    _ = counted(embed.tokens(rows).detach().flatten(0, 1))
    share, variance = (rows != 0).float().mean(), counted.running_var.mean()
    print(f"real share {share:.2f}: stored variance {variance:.2f}")
    assert abs(variance - share) < 0.1

# %% [markdown]
# The stored variance follows the share of real tokens, batch by batch. It can be cured: `bare[keep_mask]` is all it takes. It must be remembered, that is the problem.
#
# The third: training normalises with the **batch's** numbers, evaluation with the **stored** ones. These are two functions. How different they are depends on how many tokens a batch has.

# %%
def train_eval_gap(batch_size, n=1024):
    module = nn.BatchNorm1d(d_model, momentum=None)                   # the plain average
    for i in range(0, n, batch_size):
        rows = pad_batch([vocabulary.encode(s) for s in sentences[i : i + batch_size]])
        tokens = embed(rows).detach()[rows != 0]                      # (n, D), real ones only
        in_training = module(tokens)
    return (in_training - module.eval()(tokens)).square().mean().sqrt().item()

# %%
gaps = {size: train_eval_gap(size) for size in (2, 8, 32, 128)}
for size, gap in gaps.items():
    print(f"{size:3d} sentences per batch: training and evaluation differ by {gap:.2f}")
assert gaps[2] > 0.2 > 0.1 > gaps[128]

# %% [markdown]
# BatchNorm's outputs have RMS 1, so the gap of small batches is large and that of 128 sentences small. This holds as long as nothing else moves. In training the weights move as well and the stored averages lag behind; [Shen et al. (2020)](../book/bibliography.md) found that in language the batch's numbers also fluctuate more than in images. We have not measured that part here.
#
# LayerNorm has none of the three: no batch, no padding, no second mode. These three hold. Whether they cost accuracy we have not measured; that BatchNorm fails on single sentences is not among them.
#
# ## Where dropout goes
#
# In training, dropout sets each number to 0 with probability $p$ and divides the others by $1 - p$, so that the **expectation** stays.

# %%
_ = torch.manual_seed(0)
draws = F.dropout(token.expand(20000, -1), p=0.1)                     # (n, D)
assert (draws.mean(0) - token).abs().max() < 0.05
growth = draws.square().mean() / token.square().mean()
print(f"mean: within 0.05 of the token; mean square: {growth:.2f} times, 1 / 0.9 = {1 / 0.9:.2f}")
record("N36", "growth of the mean square at rate 0.1", growth, 1.05, 1.2)

# %% [markdown]
# The mean square does not stay; it grows by $1/(1-p)$.
#
# The paper drops from the **output of each part, before it is added** ([Vaswani et al. (2017)](../book/bibliography.md), section 5.4): $x + \operatorname{drop}(f(x))$. What if one wrote $\operatorname{drop}(x + f(x))$ instead?
#
# > **Predict, then run.** 24 parts that have learned nothing yet and return zeros, $p = 0.1$. Which share of the input's numbers is left at the top, in the paper's place and in the wrong one?

# %%
_ = torch.manual_seed(0)
silence = torch.zeros_like(words)
branch = stream = words
for _ in range(24):
    branch = branch + F.dropout(silence, 0.1)
    stream = F.dropout(stream + silence, 0.1)
for name, h in (("x + drop(f(x))", branch), ("drop(x + f(x))", stream)):
    cosine = F.cosine_similarity(h, words, dim=-1).mean()
    print(f"{name}: {(h != 0).float().mean():.2f} left, cosine with the input {cosine:.2f}")

# %%
record("N37", "cosine with the input after 24 steps", cosine, 0.1, 0.5)

# %% [markdown]
# All of it, against $0.9^{24} \approx 0.08$. On the stream, what one part drops is gone for all later ones. On the branch, one change is incomplete and the stream stays whole.
#
# There is one place where the paper does drop from the stream: right at its start, on the sum of embeddings and positions. `InputEmbedding` from chapter 02 does that, once.
#
# ## RMSNorm: what can be left out
#
# RMSNorm ([Zhang and Sennrich (2019)](../book/bibliography.md)) divides by the root mean square. It does not subtract the mean and has no shift:
#
# $$
# \operatorname{RMSNorm}(x)_j = \frac{x_j}{\sqrt{\frac1D \sum_i x_i^2 + \varepsilon}}\; g_j \tag{7.6}
# $$

# %% tags=["library"]
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        require_positive(d_model=d_model)
        require_eps(eps)
        self.d_model, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        require_width(x, self.d_model)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean_square = wide.square().mean(dim=-1, keepdim=True)       # (..., 1)
        return (wide * (mean_square + self.eps).rsqrt() * self.weight).to(x.dtype)

# %%
rms_norm = RMSNorm(d_model)
by_hand = torch.tensor([[3.0, 4.0]])                                  # root mean square sqrt(12.5)
torch.testing.assert_close(RMSNorm(2)(by_hand), by_hand / math.sqrt(12.5))
for padded in (False, True):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        compare(RMSNorm(d_model), nn.RMSNorm(d_model, eps=1e-6), dtype, padded, tolerance)
print("by hand and as torch's, output and two gradients")

# %% [markdown]
# Torch's needs the same `eps` to be written out. Left out, it is the step from 1 to the next number of the format, 1.2e-7 in float32, and small rows come out differently.

# %%
small = torch.full((1, 4), 1e-4)
for eps in (None, 1e-6, 1e-5):
    print(f"eps {str(eps):5s}: 1e-4 becomes {nn.RMSNorm(4, eps=eps)(small)[0, 0]:.4f}")

# %% [markdown]
# > **Predict, then run.** Which of these is RMSNorm blind to: multiplying by 3, adding 5? What is the rank of its Jacobian?

# %%
for name, changed in (("3x", 3 * words), ("x + 5", words + 5)):
    print(f"{name:5s} changes it by up to {(rms_norm(changed) - rms_norm(words)).abs().max():.1f}")
values = torch.linalg.svdvals(jacobian(RMSNorm(d_model).double(), token))
print("rank", (values > 1e-3 * values[0]).sum().item(), "of", d_model)
centred = words - words.mean(-1, keepdim=True)
torch.testing.assert_close(RMSNorm(d_model, eps=1e-5)(centred), LayerNorm(d_model)(words))

# %%
by_mean_square = RMSNorm(d_model, eps=1e-5)
same = (by_mean_square(centred) - LayerNorm(d_model)(words)).abs().max()
other = (by_mean_square(words + 5) - LayerNorm(d_model)(words + 5)).abs().max()
record("N39", "difference on centred tokens", same, 0, 1e-4)
record("N39", "difference on tokens with mean 5", other, 0.5, 10)

# %% [markdown]
# It forgets the length only, one direction instead of two. The last line says how the two are related: **LayerNorm is RMSNorm of the centred token**, with the same $\varepsilon$ and without shift. On rows that are centred anyway they are equal.
#
# The authors report 7 % to 64 % less running time for whole models. How much is left depends on the program that computes the norm, not only on the formula. One such comparison: torch's LayerNorm is a single fused function, our RMSNorm a line of several operations.

# %% tags=["nbval-ignore-output"]
def milliseconds(module, repeats=9):
    inputs, spent = torch.randn(16, 128, 256, requires_grad=True), []  # (B, L, D)
    for _ in range(repeats):
        start = time.process_time()
        module(inputs).sum().backward()
        spent.append(1000 * (time.process_time() - start))
    return min(spent)


times = [milliseconds(module) for module in (nn.LayerNorm(256), RMSNorm(256))]
print(f"torch's LayerNorm {times[0]:.1f} ms, our RMSNorm {times[1]:.1f} ms")
record("C21", "time of RMSNorm over that of LayerNorm", times[1] / times[0], 1.1, 30)

# %% [markdown]
# ## Break it: half precision
#
# The largest number in float16 is 65504. The square of 300 is 90000.

# %%
loud = torch.tensor([[300.0, -300.0] * (d_model // 2)]).half()                    # (1, D)
naive = loud * (loud.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
print("mean square:", loud.square().mean().item())
outputs = {"naive": naive, "naive LN": layer_norm(loud),
           "RMSNorm": rms_norm(loud), "LayerNorm": norm(loud)}
for name, out in outputs.items():
    print(f"{name:9s}", out.dtype, out[0, :4].tolist())

# %%
record("N38", "largest number, squares in float16", naive.float().abs().max(), 0, 0.5)
record("N38", "largest number, squares in float32", rms_norm(loud).float().abs().max(), 0.9, 1.1)

# %% [markdown]
# No error and no NaN: one over infinity is 0, and the token is gone. That is why both modules compute in float32 inside and return the type they were given.

# %% [markdown]
# ## Exercises
#
# Cells with `...` are for you. Write your answer over the dots and run the cell: the check below it says what it found. Every check is public, and you may try as often as you like.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 7.1** (difficulty 1 of 5, 5 min, predict). Compute LayerNorm of $(2, 4, 6, 8)$ with a pencil, for $\varepsilon = 0$, gain 1 and shift 0. What is its last number? A pocket calculator may take the root.

# %% tags=["exercise"]
answer = ...  # a number, to three digits
checks.answer("7.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# The mean is 5, the variance 5: $(-3, -1, 1, 3)/\sqrt5$.
#
# ```python
# answer = 3 / math.sqrt(5)
# ```
#
# RMSNorm of the same row divides by the root of the mean square, which is 30.
#
# ```python
# row = torch.tensor([[2.0, 4.0, 6.0, 8.0]])
# torch.testing.assert_close(
#     layer_norm(row), torch.tensor([[-3.0, -1.0, 1.0, 3.0]]) / 5**0.5, atol=1e-4, rtol=0)
# torch.testing.assert_close(RMSNorm(4)(row), row / 30**0.5, atol=1e-4, rtol=0)
# ```
#
# </details>
#
# > **Exercise 7.2** (difficulty 2 of 5, 15 min, implement). Write LayerNorm from memory, and this time the whole of equation (7.4) in one function. It takes `x` $(\ldots, D)$ with any number of axes before the last, `gain` and `bias` $(D)$ and a number `eps`, and returns a tensor of the shape of `x`. Torch's own norms do not count.

# %% tags=["exercise"]
def my_layer_norm(x, gain, bias, eps):
    ...  # your code: return the normalised tokens, scaled and shifted


checks.layer_norm(my_layer_norm)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_layer_norm(x, gain, bias, eps):
#     variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
#     return (x - mean) / torch.sqrt(variance + eps) * gain + bias
# ```
#
# `correction=0` divides by $D$; left out, it is $D - 1$. What remains of a token when $D$ is as small as 1 or 2? One number minus its mean is 0. Two numbers are as far from their mean as each other: only the sign of their difference is left. No gradient passes, as the rank $D - 2$ says.
#
# ```python
# ten, one, zero = torch.linspace(1.0, 10.0, 10), torch.ones(()), torch.zeros(())
# assert my_layer_norm(ten.unsqueeze(-1), one, zero, 1e-5).abs().max() == 0
# pairs = torch.stack([ten, -ten], dim=-1)
# out = my_layer_norm(pairs, one, zero, 1e-5)
# torch.testing.assert_close(out, torch.sign(pairs), atol=1e-4, rtol=0)
# assert jacobian(lambda v: my_layer_norm(v, one, zero, 0.0), pairs[0]).abs().max() < 1e-12
# ```
#
# </details>
#
# > **Exercise 7.3** (difficulty 3 of 5, 15 min, explore). Let all parts return zeros. What do $x + f(\operatorname{LN}(x))$, $\operatorname{LN}(x + f(x))$ and the frequent mistake $\operatorname{LN}(x) + f(\operatorname{LN}(x))$ give after 6 layers? Which two can this test not tell apart, and what would?
#
# <details>
# <summary>Solution</summary>
#
# The first is the identity. The other two give LayerNorm applied again and again, which changes nothing after the first time. A part that returns $x$ itself tells them apart: $\operatorname{LN}(2x)$ has RMS 1, $2\operatorname{LN}(x)$ has 2.
#
# ```python
# def six(step, f):
#     h = words
#     for _ in range(6):
#         h = step(h, f)
#     return h
#
#
# pre, post = normed_residual, lambda x, f: layer_norm(x + f(x))
# mistake = lambda x, f: layer_norm(x) + f(layer_norm(x))
# assert torch.equal(six(pre, torch.zeros_like), words)
# for step in (post, mistake):
#     torch.testing.assert_close(
#         six(step, torch.zeros_like), layer_norm(words), atol=1e-3, rtol=0)
# same = lambda x: x
# assert abs(six(post, same).square().mean() - 1) < 0.01
# assert abs(six(mistake, same).square().mean() - 4) < 0.01
# ```
#
# </details>
#
# > **Exercise 7.4** (difficulty 3 of 5, 15 min, explore). The expectation of dropout is the input. Let $z$ be a normalised token. Is the expectation of $\operatorname{LN}(\operatorname{drop}(z))$ again $z$? Measure it for $p = 0.5$ and explain the factor.
#
# <details>
# <summary>Solution</summary>
#
# Dropout makes the variance of the $D$ numbers $1/(1-p)$ times as large, and LayerNorm divides by its root. So the average is about $\sqrt{1-p} \approx 0.7$ times $z$: expectation and normalisation cannot change places.
#
# ```python
# _ = torch.manual_seed(0)
# z = layer_norm(token)
# average = layer_norm(F.dropout(z.expand(20000, -1), p=0.5)).mean(0)
# factor = (average @ z) / (z @ z)
# assert 0.65 < factor < 0.77
# ```
#
# </details>
#
# > **Exercise 7.5** (difficulty 3 of 5, 15 min, implement). Write RMSNorm as a function of `x` $(\ldots, D)$, `gain` $(D)$ and a number `eps`. The result has the shape and the dtype of `x`. Numbers near 300 in half precision must come out right. The class above squares and averages; here, start from the length of the token, $\lVert x \rVert$.

# %% tags=["exercise"]
def my_rms_norm(x, gain, eps):
    ...  # your code: return a tensor of the shape and dtype of x


checks.rms_norm(my_rms_norm)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# The mean square is $\lVert x \rVert^2 / D$. Half precision is widened before the length is computed, and the result made narrow again.
#
# ```python
# def my_rms_norm(x, gain, eps):
#     wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
#     length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
#     return (wide / torch.sqrt(length.square() / x.size(-1) + eps) * gain).to(x.dtype)
# ```
#
# </details>
#
# > **Exercise 7.6** (difficulty 4 of 5, 25 min, implement). Derive equation (7.5). Then write LayerNorm's backward pass, for gain 1 and shift 0: from the token `x` $(\ldots, D)$ and the gradient `upstream` $(\ldots, D)$ at the output, return the gradient at `x`, $(\ldots, D)$. Autograd is switched off during the check. With $\varepsilon$, (7.5) still holds if $\sigma$ stands for $\sqrt{\sigma^2 + \varepsilon}$ everywhere. You need no $D \times D$ matrix.

# %% tags=["exercise"]
def my_layer_norm_backward(x, upstream, eps):
    ...  # your code: return the gradient at x


checks.layer_norm_backward(my_layer_norm_backward)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# With $c = x - \mu$: $\partial c_i/\partial x_j = \delta_{ij} - 1/D$, and $\partial\sigma/\partial x_j = c_j/(D\sigma) = z_j/D$. Hence $\partial (c_i/\sigma)/\partial x_j = (\delta_{ij} - 1/D)/\sigma - c_i z_j/(D\sigma^2)$, which is (7.5) because $c_i/\sigma = z_i$. The matrix is symmetric, so the backward pass multiplies by it: subtract the mean of the upstream gradient $u$, subtract $z$ times the mean of $uz$, divide by $\sigma$.
#
# ```python
# def my_layer_norm_backward(x, upstream, eps):
#     sigma = (x.var(dim=-1, correction=0, keepdim=True) + eps).sqrt()
#     z = (x - x.mean(dim=-1, keepdim=True)) / sigma
#     along_z = z * (upstream * z).mean(dim=-1, keepdim=True)
#     return (upstream - upstream.mean(dim=-1, keepdim=True) - along_z) / sigma
# ```
#
# On real tokens, in double precision:
#
# ```python
# _ = torch.manual_seed(0)
# real = words[0].double().requires_grad_()
# u = torch.randn_like(real)
# expected, = torch.autograd.grad((layer_norm(real) * u).sum(), real)
# by_hand = my_layer_norm_backward(real.detach(), u, 1e-5)
# torch.testing.assert_close(by_hand, expected, atol=1e-10, rtol=0)
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"Residual connections solve vanishing and exploding gradients."* At the start they stop the vanishing. Our untrained stack of 24 multiplied the gradient by more than 15 with one start and by more than a thousand with another.
#
# > **Misconception.** *"Deep stacks without residual connections have no gradient."* It depends on the start. With a matched one the gradient arrives; what is lost is the difference between tokens.
#
# > **Misconception.** *"BatchNorm fails on a single sentence at inference."* In evaluation mode it does not look at the batch. Its problems are the dependence on the batch in training, padding in its averages, and two modes that differ.
#
# > **Misconception.** *"LayerNorm normalises the sentence"*, or *"the layer"*. It normalises one token over its $D$ numbers.
#
# > **Misconception.** *"After LayerNorm all numbers lie between -1 and 1."* $(1, 0, 0, 0)$ gives 1.73, and with $D$ numbers up to $\sqrt{D-1}$ is possible. Mean and variance are set, the shape is not, and gain and shift may change both again.
#
# > **Misconception.** *"Dropout changes nothing on average."* In the mean. The mean square grows, and after a normalisation the mean is another one too (exercise 7.4).

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(7)

# %% [markdown]
# ## Summary
#
# - A residual connection adds a change to a stream. The gradient then has a path on which nothing is multiplied; the other paths can still make it grow.
# - The addition broadcasts: a change with the wrong length 1 is added without a word.
# - LayerNorm sets mean 0 and variance 1 for each token, over the last axis, with the biased variance and $\varepsilon$ inside the root. $(1,0,0,0)$ and a row of $\pm 10^{-3}$ find the usual mistakes.
# - It forgets mean and length. Its Jacobian has rank $D - 2$ and norm $1/\sigma$.
# - It needs no batch, no mask and no second mode; BatchNorm needs all three.
# - Dropout acts on a part's output, before the addition.
# - RMSNorm leaves out the centring and the shift. In half precision both must be computed in float32.
#
# ## Sources
#
# The place of add, norm and dropout: [Vaswani et al. (2017)](../book/bibliography.md), sections 3.1 and 5.4. Residual connections: [He et al. (2016)](../book/bibliography.md); the start that matches the ReLU: [He et al. (2015)](../book/bibliography.md). LayerNorm: [Ba et al. (2016)](../book/bibliography.md). Its Jacobian and what follows from it: [Xiong et al. (2020)](../book/bibliography.md). BatchNorm: [Ioffe and Szegedy (2015)](../book/bibliography.md), and in transformers [Shen et al. (2020)](../book/bibliography.md). RMSNorm: [Zhang and Sennrich (2019)](../book/bibliography.md). Dropout: [Srivastava et al. (2014)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 08, [Post-LN or Pre-LN](08_post_ln_vs_pre_ln.ipynb).
