# %% [markdown]
# # Multi-head attention
#
# *You will be able to:* split attention into heads and merge them again, count what heads cost, name the bias that does nothing, and catch a wrong split that no shape test sees.
# *You need:* chapters 01 to 04. *Time:* {{ time }}.

# %% tags=["setup"]
import time
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.attention import scaled_dot_product_attention
from encoder_lib.claims import record
from encoder_lib.datasets import load_gap
from encoder_lib.plotting import plot_attention, plot_heatmap, use_style
from encoder_lib.widgets import attention_explorer
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## One mixture or two?
#
# In chapter 03 *cut* listened to *boat* and to *water*, with equal weights, and became (nearly) the average of their values. What does *cut* now know? Let the value of a word be its own axis, and swap the two words.

# %%
value = {"boat": torch.tensor([1.0, 0.0]), "water": torch.tensor([0.0, 1.0])}


def average(left, right, share=0.5):
    return share * value[left] + (1 - share) * value[right]


print("the boat cut the water:", average("boat", "water"))
print("the water cut the boat:", average("water", "boat"))

# %% [markdown]
# The same. *Cut* knows that a boat and a water are about, but not which of them cuts. Two ways out:
#
# - Listen **unequally**. With shares 0.7 and 0.3 the two sentences differ.
# - Make **two** mixtures, and put the results side by side.

# %%
def side_by_side(left, right):
    return torch.cat([average(left, right, share=1.0), average(left, right, share=0.0)])


for left, right in (("boat", "water"), ("water", "boat")):
    unequal, both = average(left, right, share=0.7), side_by_side(left, right)
    print(f"the {left} cut the {right}: 0.7 and 0.3 {unequal}, side by side {both}")

# %% [markdown]
# So it would be too much to say that one softmax *cannot* tell the two apart. But it must write two answers into the same numbers, and whoever reads them has to tell more from less. Two mixtures keep the answers apart. Each of them is called a **head**. How much easier that makes it is measured below.
#
# ## First as a list of heads
#
# A head is attention as in chapter 03, with its own three projections from $D$ down to $d_k = D / H$ numbers. A sentence to work with:
#
# > **Borrowed.** `nn.Linear`, `F.linear`, `nn.ModuleList` and `F.cross_entropy` are torch's, and so are the twins for comparison: `nn.MultiheadAttention`, and `F.scaled_dot_product_attention` as in chapter 03. `FlopCounterMode` counts the floating-point operations of matrix products (a multiplication and an addition are two). `copy_to_torch` and `copy_from_torch` carry weights between our module and its twin; they are bookkeeping, read them in `encoder_lib.torch_parity`.

# %%
from encoder_lib.embedding import InputEmbedding
from encoder_lib.text import Vocabulary, pad_batch

tokens = "she nibbled daintily at her cake".split()
assert "she nibbled _ at her cake" in {example.text for example in load_gap("test")}
vocabulary = Vocabulary([tokens])
_ = torch.manual_seed(0)
embed = InputEmbedding(len(vocabulary), 64, dropout=0.0)
with torch.no_grad():
    x = embed(torch.tensor([vocabulary.encode(tokens)]))         # (B, L, D), B = 1

# %%
n_heads, d_k = 4, 16
projections = nn.ModuleList(
    nn.ModuleList(nn.Linear(64, d_k) for _ in range(3)) for _ in range(n_heads)
)


@torch.no_grad()
def heads_in_a_list(x):
    heads = []
    for w_q, w_k, w_v in projections:
        out, _ = scaled_dot_product_attention(w_q(x), w_k(x), w_v(x))  # (B, L, d_k)
        heads.append(out)
    return torch.cat(heads, dim=-1)                              # (B, L, H * d_k) = (B, L, D)

# %% [markdown]
# Put side by side the heads are $D$ numbers again, but each number has heard of one head only. One more linear map mixes them:
#
# $$
# \operatorname{MultiHead}(X) = [\,\text{head}_0, \dots, \text{head}_{H-1}\,]\, W_O, \qquad \text{head}_h = \operatorname{Attention}(X W_Q^h,\; X W_K^h,\; X W_V^h) \tag{5.1}
# $$
#
# ([Vaswani et al. (2017)](../book/bibliography.md), section 3.2.2). Tokens are rows here, and biases are left out. `nn.Linear` stores the transpose: $W_O$ is `w_o.weight.T`.
#
# ## Then one projection and a split
#
# The four query projections all read the same $x$, so their weights can be stacked into one `nn.Linear`: the first $d_k$ outputs belong to head 0, the next to head 1. One large product takes the place of four small ones.

# %%
def stacked(which):
    weight = torch.cat([head[which].weight for head in projections])  # (D, D)
    bias = torch.cat([head[which].bias for head in projections])      # (D,)
    return F.linear(x, weight, bias)                                  # (B, L, D)


print("queries of all heads at once:", tuple(stacked(0).shape))

# %% [markdown]
# Now the numbers of one head are neighbours in $D$. `unflatten` cuts the last axis into $H$ pieces, and the transposition brings the heads before the tokens, so that all heads are one batch for the function of chapter 03.

# %%
with torch.no_grad():
    q, k, v = (stacked(i).unflatten(-1, (n_heads, d_k)) for i in range(3))  # (B, L, H, d_k)
    q, k, v = (y.transpose(1, 2) for y in (q, k, v))                   # (B, H, L, d_k)
    out, weights = scaled_dot_product_attention(q, k, v)               # (B, H, L, d_k)
    merged = out.transpose(1, 2).flatten(2)                            # (B, L, D)
torch.testing.assert_close(merged, heads_in_a_list(x))
print("weights:", tuple(weights.shape), " merged:", tuple(merged.shape))

# %% [markdown]
# > **Key idea.** A head is a slice of the projections, not of the input: $W_Q^h$ reads all $D$ numbers of a token and writes $d_k$.
#
# ## The finished module
#
# Three things are added. Padding is hidden from all heads by one mask of shape (B, 1, 1, L), as chapter 04 built it. The start is Xavier-uniform, each of the four matrices alone (chapter 03). And nobody wants the weights while training, so there are two paths: the readable one returns them, the other uses torch's fused kernel.

# %%
from encoder_lib.embedding import require_dropout, require_features, require_positive
from encoder_lib.masks import as_keep_mask, keep_mask_from_ids
from encoder_lib.masks import to_attention_mask, to_key_padding_mask

# %% tags=["library"]
def fused_attention(q, k, v, mask, dropout_p):
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)
    empty = ~mask.any(dim=-1, keepdim=True)  # older versions of torch give NaN for such rows
    out = F.scaled_dot_product_attention(q, k, v, mask | empty, dropout_p)
    return out.masked_fill(empty, 0.0)


@torch.no_grad()
def xavier_linear_(linear):
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        linear.bias.zero_()

# %% tags=["library"]
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0, bias=True):
        super().__init__()
        require_positive(d_model=d_model, n_heads=n_heads)
        require_dropout(dropout)
        if d_model % n_heads != 0:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout
        self.w_q = nn.Linear(d_model, d_model, bias=bias)
        self.w_k = nn.Linear(d_model, d_model, bias=bias)
        self.w_v = nn.Linear(d_model, d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        for linear in (self.w_q, self.w_k, self.w_v, self.w_o):
            xavier_linear_(linear)

    def split(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def forward(self, x, keep_mask=None, return_weights=False):
        require_features(x, self.d_model)
        mask = None
        if keep_mask is not None:
            mask = to_attention_mask(as_keep_mask(keep_mask, x.shape[:2]))   # (B, 1, 1, L)
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))  # (B, H, L, d_k)
        dropout = self.dropout if self.training else 0.0
        if return_weights:
            out, weights = scaled_dot_product_attention(q, k, v, mask, dropout)
            return self.w_o(self.merge(out)), weights            # (B, L, D), (B, H, L, L)
        return self.w_o(self.merge(fused_attention(q, k, v, mask, dropout)))  # (B, L, D)

# %% [markdown]
# At once a check: with the stacked weights of our list and $W_O = I$ the module must return the list's result.

# %%
attention = MultiHeadAttention(64, n_heads)
with torch.no_grad():
    for i, linear in enumerate((attention.w_q, attention.w_k, attention.w_v)):
        linear.weight.copy_(torch.cat([head[i].weight for head in projections]))
        linear.bias.copy_(torch.cat([head[i].bias for head in projections]))
    attention.w_o.weight.copy_(torch.eye(64))
    torch.testing.assert_close(attention(x), heads_in_a_list(x))

# %%
try:
    MultiHeadAttention(d_model=10, n_heads=3)
except ValueError as error:
    print(error)

# %% [markdown]
# The two paths must give the same numbers, or looking at the weights would change the model. We take a batch of three sentences with padding, and one row that is nothing but padding.

# %%
sentences = [tokens, "the boat cut the water".split(), "every dog has his day".split(), []]
vocabulary = Vocabulary(sentences)
ids = pad_batch([vocabulary.encode(s) for s in sentences])       # (B, L)
keep_mask = keep_mask_from_ids(ids)                              # (B, L), True = real token
_ = torch.manual_seed(0)
_ = nn.init.normal_(attention.w_o.bias)
with torch.no_grad():
    batch = InputEmbedding(len(vocabulary), 64, dropout=0.0)(ids)  # (B, L, D)
readable, weights = attention(batch, keep_mask, return_weights=True)
torch.testing.assert_close(attention(batch, keep_mask), readable)
torch.testing.assert_close(readable[3], attention.w_o.bias.expand(6, 64))
print("weights", tuple(weights.shape), " on padding:", weights[1:3, ..., -1].max().item())

# %% [markdown]
# The row of padding alone has no key to attend to. Its heads are 0, and what comes out is the bias of $W_O$: finite, and nobody will read it.
#
# ## Check against torch
#
# `nn.MultiheadAttention` keeps $W_Q, W_K, W_V$ in one packed matrix of $3D$ rows; apart from that it is the same thing. We copy our weights into it, **with all biases drawn at random**: at their start they are 0, and a comparison with zeros would not notice a bias in the wrong place.

# %%
from encoder_lib.torch_parity import copy_from_torch, copy_to_torch


def twins(dtype):
    _ = torch.manual_seed(1)
    ours = MultiHeadAttention(64, 4).to(dtype)
    with torch.no_grad():
        for linear in (ours.w_q, ours.w_k, ours.w_v, ours.w_o):
            linear.bias.normal_()
    theirs = nn.MultiheadAttention(64, 4, batch_first=True, dtype=dtype)
    return ours, copy_to_torch(ours, theirs)

# %%
def torch_gradients(theirs):  # in our order: q, k, v, output
    packed = zip(theirs.in_proj_weight.grad.chunk(3), theirs.in_proj_bias.grad.chunk(3))
    return [g for pair in packed for g in pair] + [p.grad for p in theirs.out_proj.parameters()]

# %% [markdown]
# Compared are the output, the weights of every head, the gradient of the input and of all eight parameters, for a random upstream gradient. Torch's weights are by default the **mean** over the heads, of shape (B, L, L); `average_attn_weights=False` gives those of each head.
#
# The gradient of a weight is a sum over all tokens and can be large, and float32 keeps about seven digits. So the tolerance is meant for numbers up to 1; for a tensor with larger entries it grows with the largest. The row that is padding only stays out: torch's layer gives NaN there (chapter 04).

# %%
def compare(dtype, keep_mask, readable, tolerance):
    ours, theirs = twins(dtype)
    mask = None if keep_mask is None else to_key_padding_mask(keep_mask)
    a, b = (batch[:3].to(dtype, copy=True).requires_grad_() for _ in range(2))  # (B, L, D)
    out_a = ours(a, keep_mask, return_weights=readable)
    out_b, weights_b = theirs(b, b, b, key_padding_mask=mask, average_attn_weights=False)
    out_a, weights_a = out_a if readable else (out_a, weights_b)    # fused: none to compare
    upstream = torch.randn(out_a.shape, dtype=dtype)
    ((out_a * upstream).sum() + (out_b * upstream).sum()).backward()
    pairs = [(out_a, out_b), (weights_a, weights_b), (a.grad, b.grad)]
    pairs += zip([p.grad for p in ours.parameters()], torch_gradients(theirs), strict=True)
    for x_a, x_b in pairs:
        allowed = tolerance * max(1.0, x_b.abs().max().item())
        torch.testing.assert_close(x_a, x_b, atol=allowed, rtol=0)
    return max(x_b.abs().max().item() for _, x_b in pairs)

# %%
for mask in (None, keep_mask[:3]):
    for readable in (True, False):
        compare(torch.float32, mask, readable, tolerance=1e-5)
        largest = compare(torch.float64, mask, readable, tolerance=1e-10)
print("output, weights of each head, nine gradients: 1e-5 in float32, 1e-10 in float64")
print(f"largest entry of all: {largest:.0f}")
assert largest > 10

# %% [markdown]
# And back: torch's weights, with biases that are not 0, give torch's output in our module.

# %%
theirs = nn.MultiheadAttention(64, 4, batch_first=True)
with torch.no_grad():
    theirs.in_proj_bias.normal_()
    theirs.out_proj.bias.normal_()
ours = copy_from_torch(MultiHeadAttention(64, 4), theirs)
torch.testing.assert_close(ours(batch), theirs(batch, batch, batch)[0], atol=1e-5, rtol=0)

# %% [markdown]
# One thing is left out of the comparison: dropout on the weights, a choice of the first published code. It takes weights away from a row and enlarges the rest, so in training the shares of a row no longer add up to 1, only on average.

# %%
_ = torch.manual_seed(0)
some = torch.randn(2, 500, 16, 16)                               # q and k: (n, L, d_k)
row_sums, _ = scaled_dot_product_attention(*some, torch.ones(500, 16, 1), dropout_p=0.1)
record("B34", "mean of the sums of a row", row_sums.mean(), 0.98, 1.02)
record("B34", "standard deviation of the sums", row_sums.std(), 0.03, 0.3)

# %% [markdown]
# ## Look: four maps of nothing
#
# Four heads, untrained, look at a sentence. They differ because their projections were drawn differently, and for no other reason.

# %% mystnb={"image": {"alt": "Four heat maps of six by six attention weights for 'she nibbled daintily at her cake', one for each untrained head. Each has other bright cells, and none has a pattern one could name."}}
_ = torch.manual_seed(0)
_, weights = MultiHeadAttention(64, 4)(x, return_weights=True)   # (B, H, L, L)
fig, axes = plot_attention(weights[0], tokens, annotate=False,
                           title="Four untrained heads: whatever you see is chance")
plt.show()

# %% [markdown]
# Hover over a word, or move with the keyboard, and see where it looks in each head.

# %%
attention_explorer(weights, tokens, key="untrained-heads")

# %% [markdown]
# ## Does a second head help? Two look-ups
#
# A task that needs exactly two answers. The input is a string of twelve letters from a to f, drawn at random so that nothing can be guessed. At each place the model must name the letter **one to the left** and the letter **two to the right**, in this order: 36 classes.

# %%
LETTERS = "abcdef"


def strings(n, generator):
    ids = torch.randint(6, (n, 12), generator=generator)         # (B, L)
    return ids, 6 * ids[:, :-3] + ids[:, 3:]                     # classes of places 1 to 9


ids, pairs = strings(1, torch.Generator().manual_seed(0))
print("".join(LETTERS[i] for i in ids[0]))
first = pairs[0, 0].item()
print(f"place 1 ({LETTERS[ids[0, 1]]}) must answer: {LETTERS[first // 6]}, {LETTERS[first % 6]}")

# %% [markdown]
# The model is as small as it can be: embedding, attention, one linear map to the 36 classes. Whatever it can do, attention does.

# %%
class TwoLookUps(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed = InputEmbedding(6, 64, max_len=12, pad_id=None, dropout=0.0)
        self.attention, self.classify = attention, nn.Linear(64, 36)

    def forward(self, ids):
        out = self.attention(self.embed(ids))                    # (B, L, D)
        return self.classify(out)[:, 1:-2]                       # (B, L - 3, 36)


@torch.no_grad()
def accuracy(model):
    ids, pairs = strings(500, torch.Generator().manual_seed(999))
    return (model(ids).argmax(-1) == pairs).float().mean().item()

# %%
def train(n_heads, seed=0, steps=300, kind=MultiHeadAttention, dtype=torch.float32):
    _ = torch.manual_seed(seed)
    model = TwoLookUps(kind(64, n_heads)).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(100 + seed)
    for _ in range(steps):
        ids, pairs = strings(64, generator)
        loss = F.cross_entropy(model(ids).flatten(0, 1), pairs.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model

# %% [markdown]
# > **Predict, then run.** Who finds both letters but has to guess their order is right in $\frac16 + \frac56 \cdot \frac12 = 0.58$ of the cases. After 300 steps: where is one head, where are two, where are eight?

# %% tags=["nbval-ignore-output"]
models = {n: [train(n, seed) for seed in range(3)] for n in (1, 2, 8)}
print("heads  d_k  accuracy of three seeds")
for n, trained in models.items():
    scores = [accuracy(model) for model in trained]
    print(f"{n:5d} {64 // n:4d}  " + "  ".join(f"{s:.2f}" for s in scores))
    assert 0.25 < min(scores) and max(scores) < 0.7 if n == 1 else min(scores) > 0.98

# %% tags=["nbval-ignore-output"]
best = {n: [accuracy(model) for model in trained] for n, trained in models.items()}
record("B12", "one head, best of three seeds", max(best[1]), 0.25, 0.7)
record("B12", "two heads, worst of three seeds", min(best[2]), 0.98, 1)
record("B12", "eight heads, worst of three seeds", min(best[8]), 0.98, 1)

# %% [markdown]
# The same number of parameters and the same steps: two and eight heads are done, and one head is still near or below 0.58, the value for both letters in a guessed order. Is it that one head cannot? We give it four times the steps.

# %% tags=["nbval-ignore-output"]
patients = [train(1, seed, steps=1200) for seed in range(3)]
late = [accuracy(model) for model in patients]
print("one head, 1200 steps:", "  ".join(f"{share:.2f}" for share in late))
assert min(late) > max(accuracy(model) for model in models[1]) + 0.15
patient = patients[0]
record("N21", "one head, 1200 steps, worst of three seeds", min(late), 0.65, 1)

# %% [markdown]
# It gets on, slowly, and how far depends on the seed. And how? Let us see how much weight each head gives to the two places, on average over fresh strings.

# %%
@torch.no_grad()
def weight_on_places(model, left=-1, right=2):
    ids, _ = strings(200, torch.Generator().manual_seed(7))
    _, w = model.attention(model.embed(ids), return_weights=True)  # (B, H, L, L)
    w = w[:, :, 1:-2]                                            # places that have both
    return [w.diagonal(1 + place, -2, -1).mean((0, 2)) for place in (left, right)]  # (H,) each

# %% tags=["nbval-ignore-output"]
for name, model in (("one head, 1200 steps", patient), ("two heads, 300 steps", models[2][0])):
    for h, (a, b) in enumerate(zip(*weight_on_places(model))):
        print(f"{name}, head {h}: one to the left {a:.2f}, two to the right {b:.2f}")
a, b = weight_on_places(patient)
assert a > 1.5 * b and b > 0.1  # unequal shares
for model in models[2]:
    shares = torch.stack(weight_on_places(model))                # (2 places, H)
    assert shares.amax(0).min() > 0.5 and shares.amin(0).max() < 0.1
    assert set(shares.argmax(0).tolist()) == {0, 1}              # the heads share the work

# %% tags=["nbval-ignore-output"]
record("B10", "weight of one head on its first place", a, 0.3, 0.8)
record("B10", "weight of the same head on its second place", b, 0.1, 0.4)

# %% [markdown]
# One head found the first way out, unequal shares. Two heads divided the work: each looks at one place and leaves the other alone. It is so for all three seeds, though which head takes which place is not the same in each.

# %% mystnb={"image": {"alt": "Two heat maps of twelve by twelve attention weights over a random string of letters, one for each trained head. In one the bright cells form a line just left of the diagonal, in the other a line two to the right of it."}}
ids, _ = strings(1, torch.Generator().manual_seed(0))
two = models[2][0]
with torch.no_grad():
    _, weights = two.attention(two.embed(ids), return_weights=True)
fig, axes = plot_attention(weights[0], [LETTERS[i] for i in ids[0]], annotate=False,
                           title="Two trained heads: one place each")
plt.show()

# %% [markdown]
# The same two heads to move through, for this string: choose a query with the mouse or the arrow keys.

# %% tags=["nbval-ignore-output"]
attention_explorer(weights, [LETTERS[i] for i in ids[0]], key="trained-heads")

# %% [markdown]
# At the ends of the string a place has no left or no right neighbour. There the heads were never asked, and what they do means nothing.
#
# The mean over the heads, which torch returns by default, hides the division of labour:

# %% tags=["nbval-ignore-output"]
mean = [share.mean().item() for share in weight_on_places(two)]
print(f"mean of two heads: one to the left {mean[0]:.2f}, two to the right {mean[1]:.2f}")
assert min(mean) > 0.25
record("N24", "mean weight on the less attended of two places", min(mean), 0.25, 0.6)

# %% [markdown]
# > **Mind the condition.** The task was made for two heads. How many heads a real task wants is another question, and in large trained models many can be removed without much loss ([Michel et al. (2019)](../book/bibliography.md), [Voita et al. (2019)](../book/bibliography.md)). Chapter 12 will try it.
#
# ## What heads cost
#
# > **Predict, then run.** Width 256, 128 tokens. From 1 head to 32 heads, by what factor do these grow: the parameters, the multiplications, the number of scores?

# %%
from torch.utils.flop_counter import FlopCounterMode

x_long = torch.randn(1, 128, 256)                                # (B, L, D)
print("heads  d_k  parameters  million FLOPs  numbers in the scores")
costs = []
for n in (1, 2, 4, 8, 16, 32):
    module = MultiHeadAttention(256, n)
    with FlopCounterMode(display=False) as counter:
        _, w = module(x_long, return_weights=True)
    costs.append((sum(p.numel() for p in module.parameters()), counter.get_total_flops()))
    print(f"{n:5d} {256 // n:4d} {costs[-1][0]:11,d} {costs[-1][1] / 1e6:14.1f} {w.numel():14,d}")
assert len(set(costs)) == 1

# %%
record("B13", "parameters at 32 heads minus those at 1", costs[-1][0] - costs[0][0], 0, 0)
record("B11", "operations at 32 heads minus those at 1", costs[-1][1] - costs[0][1], 0, 0)

# %% [markdown]
# Parameters and matrix products stay where they are. The four maps have $4(D^2 + D)$ parameters for any $H$, and $H$ score matrices of $L^2 d_k$ products each are $L^2 D$ products together. What grows with $H$ are the scores themselves: $H L^2$ numbers, to be stored and sent through a softmax. So "the same FLOPs" is not "the same time".

# %% tags=["nbval-ignore-output"]
def milliseconds(n, repeats=7):
    module, x_8 = MultiHeadAttention(256, n), torch.randn(8, 128, 256)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        module(x_8, return_weights=True)[0].sum().backward()
        times.append(1000 * (time.process_time() - start))
    return min(times)


spent = {n: milliseconds(n) for n in (1, 8, 32)}
print("  ".join(f"H = {n}: {t:.0f} ms" for n, t in spent.items()))
assert spent[32] > 1.1 * spent[1]
record("B11", "time at 32 heads over time at 1", spent[32] / spent[1], 1.1, 8)

# %% [markdown]
# ## What small heads cannot do
#
# The scores of a head are $QK^\top$ with $Q$ and $K$ of width $d_k$. A product of two such matrices has **rank** at most $d_k$: with fewer numbers per head than tokens, not every score matrix can be written ([Bhojanapalli et al. (2020)](../book/bibliography.md)).

# %%
long = next(e for e in load_gap("test") if len(e.text.split()) == 18)
words = long.text.replace("_", long.word).split()
_ = torch.manual_seed(0)
words_vocabulary = Vocabulary([words])
with torch.no_grad():
    y = InputEmbedding(len(words_vocabulary), 64, dropout=0.0)(
        torch.tensor([words_vocabulary.encode(words)])).double()   # (B, L, D)
    for n in (1, 2, 4, 8, 16, 32):
        head = MultiHeadAttention(64, n).double()
        q, k = head.split(head.w_q(y)), head.split(head.w_k(y))  # (B, H, L, d_k)
        rank = torch.linalg.matrix_rank(q @ k.transpose(-2, -1))[0, 0]
        print(f"{len(words)} tokens, d_k = {64 // n:2d}: rank of the scores {rank}")
        assert rank <= min(64 // n, len(words))
record("B35", "rank of the scores of 18 tokens at d_k 2", rank, 2, 2)

# %% [markdown]
# Whether that hurts depends on the pattern. Our two look-ups were fully solved by heads of 8 numbers over 12 tokens: to point at one place does not take full rank.
#
# ## Which bias is dead?
#
# Four linear maps, four biases.
#
# > **Predict, then run.** We add noise of size 10 to each bias in turn. Which outputs stay? And which gradients are zero?

# %%
ours, _ = twins(torch.float64)
y = batch[:3].double()                                           # (B, L, D)
before = ours(y, keep_mask[:3])
(before * torch.randn_like(before)).sum().backward()
for name in ("w_q", "w_k", "w_v", "w_o"):
    changed, _ = twins(torch.float64)
    with torch.no_grad():
        getattr(changed, name).bias.add_(10 * torch.randn(64, dtype=torch.float64))
    change = (changed(y, keep_mask[:3]) - before).abs().max().item()
    slope = getattr(ours, name).bias.grad.norm().item()
    print(f"bias of {name}: output changes by {change:6.2f}, norm of its gradient {slope:6.2f}")
    assert (name == "w_k") == (max(change, slope) < 1e-9)

# %% [markdown]
# Why the one of the keys? It adds the same $b$ to every key, and
#
# $$
# q \cdot (k_j + b) = q \cdot k_j + q \cdot b \tag{5.2}
# $$
#
# where $q \cdot b$ does not depend on $j$. It shifts all scores of a query by the same number, and exercise 3.2 has shown what a softmax makes of that: nothing. (The bias of the queries adds $b \cdot k_j$, which does depend on $j$.)
#
# The key bias is dead, whatever the other weights are. That does not mean that it stays where it was. We trained two heads above, and $b_K$ began at 0:

# %% tags=["nbval-ignore-output"]
ids, pairs = strings(64, torch.Generator().manual_seed(0))
F.cross_entropy(two(ids).flatten(0, 1), pairs.flatten()).backward()
for name in ("w_q", "w_k"):
    bias = getattr(two.attention, name).bias
    print(f"bias of {name}: norm {bias.norm():.2f}, its gradient {bias.grad.norm():.0e}")
with torch.no_grad():
    with_bias, moved = two(ids), two.attention.w_k.bias.clone()
    two.attention.w_k.bias.zero_()
    change = (two(ids) - with_bias).abs().max().item()
    two.attention.w_k.bias.copy_(moved)
print("without the key bias the outputs change by less than 1e-3:", change < 1e-3)
assert moved.norm() > 0.01 and change < 1e-3
record("N22", "norm of the key bias, trained in float32", moved.norm(), 0.01, 3)

# %% [markdown]
# It has moved, and it is still without effect. Its true gradient is 0, but float32 leaves a rounding error, and Adam divides each gradient by its usual size (plus $10^{-8}$): noise can become steps as long as any other. If that is the reason, it must stop in float64, where rounding errors are far smaller than that $10^{-8}$.

# %% tags=["nbval-ignore-output"]
double = train(2, seed=0, dtype=torch.float64)
still = double.attention.w_k.bias.norm().item()
print(f"trained in float64: accuracy {accuracy(double):.2f}, norm of the key bias {still:.0e}")
assert accuracy(double) > 0.98 and still < 1e-5
record("N22", "norm of the key bias, trained in float64", still, 0, 1e-5)

# %% [markdown]
# It does. So do not conclude from the size of a trained weight that the weight does something.
#
# The value bias is alive, but it says nothing of its own: weights add up to 1, so every query gets $b_V$ once, whatever it attends to. The output shifts by the constant $b_V W_O$, which the bias of $W_O$ could have done.

# %%
with torch.no_grad():
    no_b_v, _ = twins(torch.float64)
    no_b_v.w_v.bias.zero_()
    shift = ours(y, keep_mask[:3]) - no_b_v(y, keep_mask[:3])    # (B, L, D)
    torch.testing.assert_close(shift, (ours.w_o.weight @ ours.w_v.bias).expand_as(shift))

# %%
def bias_matters(name):
    other, _ = twins(torch.float64)
    with torch.no_grad():
        getattr(other, name).bias.add_(3)
        return (other(y, keep_mask[:3]) - before).abs().max()


record("A20", "change of the output by another bias, keys", bias_matters("w_k"), 0, 1e-9)
record("A20", "change of the output by another bias, queries", bias_matters("w_q"), 0.1, 20)
spread = (shift - shift[:1, :1]).abs().max()
record("A20", "difference of the value bias's effect between tokens", spread, 0, 1e-9)

# %% [markdown]
# > **Mind the condition.** In a row of nothing but padding the weights are all 0 and $b_V$ does not arrive.
#
# ## Break it: a split that has the right shape
#
# The shape (B, H, L, $d_k$) can be had with a single `view`, without a transposition. It runs. What does head 0 get? We ask the gradient: which entries of the projected (L, D) does each head depend on?

# %%
def right_split(x, n_heads=4):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)        # (B, H, L, d_k)


def view_split(x, n_heads=4):
    return x.view(x.size(0), n_heads, x.size(1), -1)             # (B, H, L, d_k), or so it seems


def head_of_each_entry(split, length=4, d_model=8, n_heads=4):
    found = torch.full((length, d_model), -1)
    for h in range(n_heads):
        x = torch.zeros(1, length, d_model, requires_grad=True)
        split(x, n_heads)[0, h].sum().backward()
        found[x.grad[0] != 0] = h
    return found                                                 # (L, D)

# %% [markdown]
# > **Predict, then run.** Four tokens, eight numbers each, four heads. From which tokens does head 0 get its queries after `view_split`?

# %% mystnb={"image": {"alt": "Two grids of four tokens by eight features; each cell holds the number of the head it reaches. With the right split the heads are columns: features 0 and 1 of every token reach head 0. With view alone the heads are rows: all features of token 0 reach head 0."}}
fig, axes = plt.subplots(1, 2, figsize=(7, 2.6))
for ax, (name, split) in zip(axes, {"Right split": right_split, "view alone": view_split}.items()):
    _ = plot_heatmap(head_of_each_entry(split), xlabel="feature", ylabel="token", ax=ax,
                     title=f"{name}: head reached", value_label="head", limits=(0, 3))
for colour_bar in fig.axes[2:]:
    colour_bar.remove()  # the numbers stand in the cells
plt.show()

# %%
assert head_of_each_entry(right_split).unique(dim=0).tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]]
assert head_of_each_entry(view_split).unique(dim=1).tolist() == [[0], [1], [2], [3]]

# %%
reached = [(head_of_each_entry(split) == 0).any(dim=1).sum() for split in (right_split, view_split)]
record("B27", "tokens of 4 that reach head 0, right split", reached[0], 4, 4)
record("B27", "tokens of 4 that reach head 0, view alone", reached[1], 1, 1)

# %% [markdown]
# With `view` alone head 0 has *all* features of the first $L / H$ tokens and none of the others. Here a head is one token that talks to itself. `view` only writes new borders into the same row of numbers; it cannot move the heads before the tokens. That takes the transposition.
#
# The way back has the same trap: a `reshape` without transposition. We fill a tensor of shape (B, H, L, $d_k$) with the number of the token.

# %%
by_token = torch.arange(4).view(1, 1, 4, 1).expand(1, 4, 4, 2)   # (B, H, L, d_k)
print("right merge, row of token 0:  ", by_token.transpose(1, 2).flatten(2)[0, 0].tolist())
print("reshape alone, row of token 0:", by_token.reshape(1, 4, 8)[0, 0].tolist())

# %% [markdown]
# After the transposition the numbers no longer stand in the order of the axes. `reshape` copies them, `view` never copies.

# %%
refused = []
for merge in (torch.Tensor.view, torch.Tensor.reshape):
    try:
        merge(torch.zeros(1, 4, 6, 16).transpose(1, 2), (1, 6, 64))   # (B, L, H, d_k) to (B, L, D)
    except RuntimeError:
        refused.append(merge.__name__)
print("refuses after the transposition:", refused)
record("B28", "of view and reshape, how many refuse", len(refused), 1, 1)

# %% [markdown]
# Which tests notice? We give three modules the same weights: the right one, one with a wrong split, and one with both traps.

# %%
class WrongSplit(MultiHeadAttention):
    def split(self, x):
        return view_split(x, self.n_heads)


class BothWrong(WrongSplit):
    def merge(self, x):
        return x.reshape(x.size(0), x.size(2), -1)

# %%
def probe(kind):
    _ = torch.manual_seed(0)
    module, order = kind(64, 2), torch.tensor([5, 3, 0, 1, 4, 2])
    out, weights = module(x, return_weights=True)
    rows = (weights.sum(-1) - 1).abs().max().item()
    round_trip = (module.merge(module.split(x)) - x).abs().max().item()
    shuffled = (module(x[:, order]) - out[:, order]).abs().max().item()
    keep = torch.tensor([[True] * 4 + [False] * 2])              # (B, L)
    garbage = torch.where(keep.unsqueeze(-1), x, x + 100)        # (B, L, D)
    leak = (module(garbage, keep) - module(x, keep))[:, :4].abs().max().item()
    return out.shape == x.shape, rows, round_trip, shuffled, leak

# %%
print("module              shape  rows add to 1  round trip  shuffled  garbage in padding")
for kind in (MultiHeadAttention, WrongSplit, BothWrong):
    with torch.no_grad():
        shape, *off = probe(kind)
    marks = ["ok" if value < 1e-4 else f"off {value:.2g}" for value in off]
    print(f"{kind.__name__:20s}{'ok' if shape else 'off':7s}"
          f"{marks[0]:15s}{marks[1]:12s}{marks[2]:10s}{marks[3]}")

# %% [markdown]
# Shapes and row sums notice nothing. With both traps even the round trip is perfect, because one wrong undoes the other. What notices are questions about *meaning*: shuffled words must give shuffled results (equation 2.1), and what stands in the padding must not matter.
#
# And the loss?
#
# > **Predict, then run.** The two look-ups, two heads, both traps: does training fail visibly?

# %% tags=["nbval-ignore-output"]
wrong = train(2, seed=0, kind=BothWrong)
print(f"right module {accuracy(two):.2f}, both traps {accuracy(wrong):.2f}, guessing {1 / 36:.2f}")
assert max(0.6, accuracy(models[1][0])) < accuracy(wrong) < 0.8
record("N23", "accuracy with both traps", accuracy(wrong), 0.6, 0.8)

# %% [markdown]
# It learns, far better than guessing, and better than one right head did in as many steps. Whoever has only this model will think that the task is hard. But look at each place by itself.

# %% tags=["nbval-ignore-output"]
test, answers = strings(500, torch.Generator().manual_seed(999))
with torch.no_grad():
    by_place = (wrong(test).argmax(-1) == answers).float().mean(0)  # (L - 3,)
print("place   ", "   ".join(str(place) for place in range(1, 10)))
print("correct ", " ".join(f"{share:.1f}" for share in by_place))
assert by_place[[0, 1, 2, 6, 7, 8]].min() > 0.9 and by_place[3:6].max() < 0.35

# %% [markdown]
# With two heads, `view` cuts the twelve tokens into two halves that do not see each other. Places 4 and 5 need a letter from the right half, place 6 one from the left; there one of the two letters is guessed. Six places of nine right and three guessed once make $\frac69 + \frac39 \cdot \frac16 = 0.72$.
#
# > **Key idea.** A loss that goes down is no test. Ask a module questions whose answer you know: shuffle, pad, compare with a twin.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each is followed by its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests. Where numbers go in, the result has their dtype, and gradients reach them.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 5.1** (difficulty 1 of 5, 5 min, predict). How many parameters has attention with $D = 512$ and 8 heads, all biases included? Do it on paper, then say how many it has with 16 heads.

# %% tags=["exercise"]
answer = ...  # for 8 heads, a whole number
checks.answer("5.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# Four maps of $512 \cdot 512$ weights and 512 biases, whatever the number of heads.
#
# ```python
# answer = 4 * (512 * 512 + 512)
# ```
#
# ```python
# for n in (8, 16):
#     assert sum(p.numel() for p in MultiHeadAttention(512, n).parameters()) == 1_050_624
# ```
#
# </details>
#
# > **Exercise 5.2** (difficulty 2 of 5, 10 min, implement). "Put the heads side by side and multiply by $W_O$" is the same as "each head writes its own $D$ numbers, and they are added up". Write the second: a function of `heads` $(B, H, L, d_k)$ and `w_o_weight` $(D, D)$, stored as `nn.Linear` stores it, that returns what each head writes, $(B, H, L, D)$. The bias of $W_O$ belongs to no head; leave it out.

# %% tags=["exercise"]
def my_head_contributions(heads, w_o_weight):
    ...  # your code: return (B, H, L, D)


checks.head_contributions(my_head_contributions)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_head_contributions(heads, w_o_weight):
#     pieces = w_o_weight.T.unflatten(0, (heads.size(1), -1))  # (H, d_k, D)
#     return heads @ pieces                                    # (B, H, L, D)
# ```
#
# Cut $W_O$ into $H$ pieces, one for the numbers of each head. A product of a row of blocks with a column of blocks is the sum of the products:
#
# ```python
# _ = torch.manual_seed(0)
# module = MultiHeadAttention(64, 4)
# q, k, v = (module.split(w(x)) for w in (module.w_q, module.w_k, module.w_v))
# heads, _ = scaled_dot_product_attention(q, k, v)                 # (B, H, L, d_k)
# added = my_head_contributions(heads, module.w_o.weight).sum(dim=1) + module.w_o.bias
# torch.testing.assert_close(added, module(x))                     # (B, L, D)
# ```
#
# This sum is what makes it possible to remove one head and leave the others alone.
#
# </details>
#
# > **Exercise 5.3** (difficulty 2 of 5, 10 min, implement). Split into heads as one would say it: a loop over the heads that cuts slices, and one call that stacks them. No `view`, `reshape`, `unflatten` or transposition. `x` is $(B, L, D)$, the result $(B, H, L, d_k)$; head $h$ gets the numbers $h d_k$ to $(h + 1) d_k - 1$ of every token.

# %% tags=["exercise"]
def my_split_heads(x, n_heads):
    ...  # your code: return (B, H, L, d_k)


checks.split_heads(my_split_heads)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_split_heads(x, n_heads):
#     d_k = x.size(-1) // n_heads
#     heads = [x[..., h * d_k : (h + 1) * d_k] for h in range(n_heads)]  # (B, L, d_k) each
#     return torch.stack(heads, dim=1)                                   # (B, H, L, d_k)
# ```
#
# And if a colleague gives head $h$ every $H$-th number, from $h$ on? That is no trap like `view`: every head sees every token. It is another layout, and with the outputs of $W_Q, W_K, W_V$ and the inputs of $W_O$ in another order it computes the same. But weights cannot be exchanged with torch without reordering them.
#
# ```python
# class Interleaved(MultiHeadAttention):
#     def split(self, x):
#         return x.unflatten(-1, (-1, self.n_heads)).permute(0, 3, 1, 2)
#
#     def merge(self, x):
#         return x.permute(0, 2, 3, 1).flatten(2)
#
# _ = torch.manual_seed(0)
# ours, other = MultiHeadAttention(64, 4), Interleaved(64, 4)
# order = torch.arange(64).view(4, 16).T.flatten()  # place d * H + h holds our number h * d_k + d
# with torch.no_grad():
#     for name in ("w_q", "w_k", "w_v"):
#         getattr(other, name).weight.copy_(getattr(ours, name).weight[order])
#     other.w_o.weight.copy_(ours.w_o.weight[:, order])
# torch.testing.assert_close(other(x), ours(x))
# assert probe(Interleaved)[3] < 1e-4 and probe(Interleaved)[4] < 1e-4
# ```
#
# </details>
#
# > **Exercise 5.4** (difficulty 2 of 5, 10 min, implement). And back, without `flatten` and without a transposition: from $(B, H, L, d_k)$ to $(B, L, D)$, the heads side by side in each token, head 0 first. Do not trust a round trip: two wrong ones can undo each other.

# %% tags=["exercise"]
def my_merge_heads(x):
    ...  # your code: return (B, L, D)


checks.merge_heads(my_merge_heads)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_merge_heads(x):
#     return torch.cat([x[:, h] for h in range(x.size(1))], dim=-1)  # (B, L, H * d_k)
# ```
#
# The numbers of the tokens, as in the chapter, show it at once: after the merge each row holds one token only.
#
# ```python
# assert (my_merge_heads(by_token)[0] == torch.arange(4)[:, None]).all()
# torch.testing.assert_close(my_merge_heads(right_split(x)), x)
# ```
#
# </details>
#
# > **Exercise 5.5** (difficulty 3 of 5, 25 min, implement). Write multi-head attention from memory, as a class without any function of this book and with **one** map `w_qkv` from $D$ to $3D$ in place of three: first the $D$ rows of the queries, then those of the keys, then those of the values. The last map is called `w_o`; both have biases. `forward` takes `x` $(B, L, D)$ and `keep_mask`, which is `None` or $(B, L)$, True = real token, and returns the output $(B, L, D)$, or the output and the weights $(B, H, L, L)$. Padding must not matter, however large its scores; rows of padding are not compared.

# %% tags=["exercise"]
class MyMultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        ...  # your code

    def forward(self, x, keep_mask=None):
        ...  # your code: return the output


checks.multi_head_attention(MyMultiHeadAttention)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# class MyMultiHeadAttention(nn.Module):
#     def __init__(self, d_model, n_heads):
#         super().__init__()
#         self.n_heads = n_heads
#         self.w_qkv = nn.Linear(d_model, 3 * d_model)
#         self.w_o = nn.Linear(d_model, d_model)
#
#     def forward(self, x, keep_mask=None):
#         cut = self.w_qkv(x).unflatten(-1, (3, self.n_heads, -1))  # (B, L, 3, H, d_k)
#         q, k, v = cut.permute(2, 0, 3, 1, 4)                      # (B, H, L, d_k) each
#         scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5      # (B, H, L, L)
#         if keep_mask is not None:
#             scores = scores.masked_fill(~keep_mask[:, None, None, :], -float("inf"))
#         weights = scores.softmax(dim=-1)
#         return self.w_o((weights @ v).transpose(1, 2).flatten(2)), weights
# ```
#
# Torch keeps the three maps in one, too. Ours, put on top of each other, give the same numbers:
#
# ```python
# mine, ours = MyMultiHeadAttention(64, 4), MultiHeadAttention(64, 4)
# maps = (ours.w_q, ours.w_k, ours.w_v)
# with torch.no_grad():
#     mine.w_qkv.weight.copy_(torch.cat([w.weight for w in maps]))
#     mine.w_qkv.bias.copy_(torch.cat([w.bias for w in maps]))
# _ = mine.w_o.load_state_dict(ours.w_o.state_dict())
# torch.testing.assert_close(mine(x)[0], ours(x))
# ```
#
# </details>
#
# > **Exercise 5.6** (difficulty 4 of 5, 20 min, explore). Take one of the two trained heads away: set its part of $W_O$ to zero. What accuracy do you expect, and which of the two letters is still right?
#
# <details>
# <summary>Solution</summary>
#
# The letter of the remaining head stays, the other is a guess: about 1/6 of the pairs are right.
#
# ```python
# import copy
#
# place_of_head = torch.stack(weight_on_places(two)).argmax(0)     # 0 = left, 1 = right
# for h in (0, 1):
#     cut = copy.deepcopy(two)
#     with torch.no_grad():
#         cut.attention.w_o.weight[:, 32 * h : 32 * (h + 1)] = 0
#         guess = cut(test).argmax(-1)
#     right = [(guess // 6 == answers // 6).float().mean(), (guess % 6 == answers % 6).float().mean()]
#     lost = place_of_head[h]
#     assert right[lost] < 0.35 and right[1 - lost] > 0.8
#     assert accuracy(cut) < 0.35
# ```
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"More heads, more parameters, more computation."* Parameters and matrix products are the same from 1 to 32 heads. The number of scores grows, and at 32 heads the time had grown, too, though far less than the scores.
#
# > **Misconception.** *"One head can attend to one place only, so it cannot do two look-ups."* It can divide its weight unequally, and with four times the steps it had come much further. Two heads make it easy.
#
# > **Misconception.** *"Each head gets its slice of the word vector."* Each head gets a slice of the projections; every number of the input reaches every head.
#
# > **Misconception.** *"The shape is right, so the split is right."* `view` alone has the right shape, rows that add up to 1, and a loss that falls.
#
# > **Misconception.** *"`nn.MultiheadAttention` returns the weights of its heads."* By default it returns their mean, in which two heads that look at two places look like one that looks at both.

# %% [markdown]
# ## Quiz
#
# Seven questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(5)

# %% [markdown]
# ## Summary
#
# - A head is attention with its own projections to $d_k = D / H$ numbers. All heads together are one projection, one split, one merge and $W_O$.
# - With two heads the two look-ups were solved at once, one place per head; one head was on its way, slowly, by unequal shares.
# - Parameters and FLOPs do not depend on the number of heads; the number of scores does. The rank of a head's scores is at most $d_k$.
# - The key bias has no effect. The value bias is a constant that the last bias can take over.
# - Wrong splits have right shapes. Shuffling words and changing padding find them.
#
# ## Sources
#
# Several heads and their cost: [Vaswani et al. (2017)](../book/bibliography.md), section 3.2.2. The rank of small heads: [Bhojanapalli et al. (2020)](../book/bibliography.md). Removing heads: [Michel et al. (2019)](../book/bibliography.md), [Voita et al. (2019)](../book/bibliography.md). Xavier initialisation: [Glorot and Bengio (2010)](../book/bibliography.md). The fused kernel: [Dao et al. (2022)](../book/bibliography.md). The sentences: WordNet, [Miller (1995)](../book/bibliography.md).
#
# Next: chapter 06, [the feed-forward network](06_feed_forward.ipynb).
