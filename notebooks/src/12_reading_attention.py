# %% [markdown]
# # Reading attention
#
# *You will be able to:* find the heads that look at a neighbour by measuring, tell a weight from its effect, remove heads and see what is lost, and say what an attention map does and does not explain.
# *You need:* chapters 03, 05 and 11. *Time:* {{ time }}.

# %% tags=["setup"]
import random
import torch
import matplotlib.pyplot as plt
from torch.nn import functional as F
from encoder_lib.datasets import load_couplets, load_definitions, load_gap
from encoder_lib.plotting import plot_attention, plot_heatmap, plot_lines, use_style
from encoder_lib.widgets import attention_grid
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## A picture that persuades
#
# In chapters 03 and 05 we drew attention maps of untrained heads, and whatever one saw in them was chance. Now we have a trained model, and its maps have something to show. One looks at them, sees a word that looks at another, and thinks: *that is why*. Is it?
#
# The model is MiniLM from chapter 11: 6 layers of 12 heads, 72 maps for each sentence.
#
# > **Borrowed.** From chapter 11, `load_minilm`, `minilm_folder`, `HOW_TO_GET_MINILM` and `WordPiece`; `hidden_states` returns what stands between the layers, and the weights. From torch, `F.normalize`, `F.cross_entropy`, `F.cosine_similarity`.

# %%
from encoder_lib.encoder import TransformerEncoder, masked_mean
from encoder_lib.pretrained import HOW_TO_GET_MINILM, WordPiece, hidden_states
from encoder_lib.pretrained import load_minilm, minilm_folder

# %%
real = minilm_folder() is not None
print("MiniLM is here." if real else HOW_TO_GET_MINILM + "; until then, a random BERT.")


def expect(value, low, high):                  # for bounds that only MiniLM's weights promise
    assert not real or low <= value <= high, value

# %%
gap = [example.text.replace("_", example.word) for example in load_gap("test")]
if real:
    model, tokenizer = load_minilm()
else:                                          # the same form, words at random
    words = sorted({word for text in gap for word in text.split()} | set("明月出天山"))
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    _ = torch.manual_seed(0)
    model = TransformerEncoder(len(tokenizer.tokens), 48, 12, 96, 6, max_len=64, norm="post",
                               activation="gelu", positions="learned", scale=False,
                               n_types=2, embedding_norm=True).eval()
n_layers, n_heads = len(model.encoder.layers), model.encoder.layers[0].attention.n_heads
print(n_layers, "layers of", n_heads, "heads")

# %% [markdown]
# > **Note.** Without the package all cells run too, on a BERT of random weights. What is said below about the heads is said about MiniLM, and so are the stored outputs.
#
# ## The whole model at a glance
#
# Every small map is a head. Click one, or walk there with the keyboard; then point at a word. Take some time before you read on: which kinds of heads do you see?

# %%
bank = "that bank holds the mortgage on my home"
assert bank in gap
ids = tokenizer.encode([bank])
_, weights = hidden_states(model, ids)         # N times (1, H, L, L)
attention_grid(weights, tokenizer.decode(ids[0]), key="all-heads", start=(0, 0))

# %% [markdown]
# There are diagonals, there are flat maps, and there is one dark column in most of them. But one sentence is an anecdote. Let us measure, on 24 sentences.
#
# ## Find heads by measure
#
# Ask every word how much of its attention goes to the token before it, the one after it, itself, `[CLS]`, `[SEP]`; then take the mean over all words. First with loops, for one head:

# %%
random.seed(0)
sentences = random.sample([text for text in gap if 8 <= len(text.split()) <= 14], 24)
ids = tokenizer.encode(sentences)                               # (B, L)
keep_mask = ids != tokenizer.pad_id                             # (B, L), True = real token
states, weights = hidden_states(model, ids, keep_mask)
weights = torch.stack(weights)                                  # (N, B, H, L, L)

# %%
def previous_with_loops(layer, head):
    shares = [weights[layer, b, head, i, i - 1] for b in range(len(ids))
              for i in range(1, keep_mask[b].sum() - 1)]        # not [CLS], not [SEP]
    return sum(shares) / len(shares)

# %% [markdown]
# Then all heads and all five places at once. A place is a mask of shape (B, L, L): True where the key is what the query is asked about.

# %%
last = keep_mask.sum(1, keepdim=True) - 1                       # (B, 1): where [SEP] stands
position = torch.arange(ids.size(1))                            # (L,)
word = (position > 0) & (position < last)                       # (B, L): neither [CLS] nor [SEP]
step = (position - position.unsqueeze(1)).expand(len(ids), -1, -1)  # (B, L, L): key minus query

# %%
def over_words(x):                                              # (N, B, H, L) -> (N, H)
    return x.transpose(2, 3)[:, word].mean(1)


def share(place):                                               # (B, L, L) -> (N, H)
    return over_words((weights * place.unsqueeze(1)).sum(-1))

# %%
places = {"previous": step == -1, "next": step == 1, "itself": step == 0,
          "[CLS]": (position == 0).expand_as(step),
          "[SEP]": (position == last).unsqueeze(1).expand_as(step)}
shares = {name: share(place) for name, place in places.items()}  # each (N, H)
torch.testing.assert_close(shares["previous"][3, 5], previous_with_loops(3, 5))

# %%
def strongest(x, n=3):
    top = x.flatten().topk(n)
    return [(*divmod(i, n_heads), v) for i, v in zip(top.indices.tolist(), top.values.tolist())]

# %% [markdown]
# > **Predict, then run.** An even head gives each of about 13 tokens 0.08. The strongest head for the previous token: 0.2, 0.5 or nearly 1? And for itself?

# %%
for name, x in shares.items():
    heads = ", ".join(f"{v:.2f} (layer {n}, head {h})" for n, h, v in strongest(x))
    print(f"{name:9s} {heads}")

# %%
before, after = strongest(shares["previous"])[0], strongest(shares["next"])[0]
expect(before[2], 0.95, 1)
expect(after[2], 0.6, 0.8)
expect(strongest(shares["itself"])[0][2], 0.1, 0.25)

# %% [markdown]
# One head in the first layer does nothing but look at the previous token, whatever the words are. One looks mostly at the next. [Clark et al. (2019)](../book/bibliography.md) found such heads in BERT. No head looks mainly at itself; the residual connection carries a word to itself anyway.
#
# The numbers of the heads are this model's own: another training would put them elsewhere, and so the code above does not contain them. It searches.

# %% mystnb={"image": {"alt": "Attention map of 'that bank holds the mortgage on my home' for the head with the largest share on the previous token: a clean line of ones below the diagonal."}}
here, (_, maps) = tokenizer.encode([bank]), hidden_states(model, tokenizer.encode([bank]))
tokens = tokenizer.decode(here[0])
n, h, _ = before
fig, ax = plot_attention(maps[n][0, h], tokens,
                         title=f"Layer {n}, head {h}: the token before")
plt.show()

# %% [markdown]
# ## Is it a rule of the words, or of the places?
#
# A head that follows places should do so in a language of which the model has hardly read anything. Few Chinese characters are in its vocabulary, but this line of Li Bai can be written with them: 明月出天山, *the bright moon rises over the Tianshan*.

# %%
line = "明月出天山"
assert line in {couplet.first for couplet in load_couplets("train")}
moon = tokenizer.encode([line])
assert tokenizer.ids["[UNK]"] not in moon
_, moon_maps = hidden_states(model, moon)
n, h, _ = before
follows = moon_maps[n][0, h].diagonal(-1)[:5].mean()            # the five characters' own rows
print(f"share on the previous token, Chinese: {follows:.2f}")
expect(follows, 0.95, 1)

# %%
n, h, _ = after
ahead = moon_maps[n][0, h].diagonal(1)[1:6].mean()              # the same five rows
print(f"share on the next token, Chinese: {ahead:.2f}")
expect(ahead, 0.15, 0.45)

# %%
attention_grid(moon_maps, tokenizer.decode(moon[0]), key="chinese-line", start=before[:2])

# %% [markdown]
# The first one follows places. The second gives the next character less than half of what it gave the next English token; on five characters, that is no more than a warning. What the other heads do with them we have not measured: do not read a story into it.
#
# ## The column on the left
#
# > **Predict, then run.** `[CLS]` is no word of the sentence. What share of all attention goes to it, averaged over words and heads: 1/13, a quarter or half?

# %% mystnb={"image": {"alt": "Heat map of 6 layers by 12 heads: mean share of a word's attention on [CLS]. Layer 0 is darkest, 0.03 to 0.34; most heads of layers 1 to 4 lie between 0.4 and 0.9; layer 5 lies between."}}
fig, ax = plot_heatmap(shares["[CLS]"], xlabel="head", ylabel="layer", limits=(0, 1),
                       title="Where half of the attention goes: the share on [CLS]",
                       value_label="mean share of a word's attention")
plt.show()

# %%
on_cls = shares["[CLS]"].mean(1)                                # (N,)
print("share on [CLS], by layer:", " ".join(f"{x:.2f}" for x in on_cls))
print(f"over all heads: {on_cls.mean():.2f}, on [SEP]: {shares['[SEP]'].mean():.2f}")
expect(on_cls.mean(), 0.4, 0.55)
expect(shares["[SEP]"].mean(), 0, 0.08)

# %% [markdown]
# Nearly half. A softmax must give away 1, even where a head has found nothing. A token that all can see and that means nothing is a good place to leave it: an **attention sink** ([Xiao et al. (2024)](../book/bibliography.md); [Gu et al. (2025)](../book/bibliography.md) ask when sinks arise). In BERT, [Clark et al. (2019)](../book/bibliography.md) found `[SEP]` in that part; here it is `[CLS]`.
#
# A map whose colours are taken by `[CLS]` shows little else. One may leave the column out of the picture, but not silently: the title says how much is missing, and nothing is rescaled. For the head with the largest sink, what is left is nearly black, and that is the honest picture: it has little else.

# %% mystnb={"image": {"alt": "Attention map of one head for 'that bank holds the mortgage on my home' with the column of [CLS] left out. All remaining cells are dark, below 0.1; the title says that 0.79 to 0.94 of a row is not shown."}}
n, h, _ = strongest(shares["[CLS]"])[0]
fig, ax = plot_attention(maps[n][0, h], tokens, hide=["[CLS]"],
                         title=f"Layer {n}, head {h}, without [CLS]")
plt.show()

# %% [markdown]
# ## Does it do anything there?
#
# A weight says how much is *taken*. How much that is depends on what there is to take. Exercise 5.2 wrote attention as a sum over heads; over heads and tokens it is
#
# $$
# \text{out}_i = b + \sum_{h} \sum_j a^h_{ij}\, f_h(x_j), \qquad f_h(x) = (x W_V^h + b_V^h)\, W_O^h \tag{12.1}
# $$
#
# so what token $j$ sends to token $i$ through head $h$ has the length $\lVert a^h_{ij} f_h(x_j) \rVert$, a weight **times a norm** ([Kobayashi et al. (2020)](../book/bibliography.md)).

# %%
@torch.no_grad()
def sent(layer, x):                                             # (B, L, D) -> (B, H, L, D)
    a = layer.attention
    pieces = a.w_o.weight.T.unflatten(0, (n_heads, -1))         # (H, d_k, D)
    return a.split(a.w_v(x)) @ pieces

# %%
with torch.no_grad():                                           # equation 12.1, checked
    for layer, x, w in zip(model.encoder.layers, states, weights):
        total = (w @ sent(layer, x)).sum(1) + layer.attention.w_o.bias  # (B, L, D)
        torch.testing.assert_close(total, layer.attention(x, keep_mask), atol=1e-5, rtol=0)

# %% [markdown]
# > **Predict, then run.** `[CLS]` gets about half of the weight in layers 1 to 4. What share of the **effect** does it have, by weight times norm?

# %%
norms = torch.stack([sent(layer, x).norm(dim=-1)
                     for layer, x in zip(model.encoder.layers, states)])  # (N, B, H, L)
effect = weights * norms.unsqueeze(3)                           # (N, B, H, L, L)
effect_on_cls = over_words(effect[..., 0] / effect.sum(-1)).mean(1)       # (N,)
norm_cls, norm_word = norms[..., 0].mean((1, 2)), over_words(norms).mean(1)

# %%
print("layer   share of weight   share of effect   |f([CLS])|   |f(word)|")
for n in range(n_layers):
    print(f"{n:5d}{on_cls[n]:18.2f}{effect_on_cls[n]:18.2f}"
          f"{norm_cls[n]:13.1f}{norm_word[n]:12.1f}")

# %%
expect((norm_word / norm_cls).min(), 3, 10)
expect(effect_on_cls.max(), 0.05, 0.15)
expect((effect_on_cls / on_cls)[1:].max(), 0.1, 0.25)

# %% [markdown]
# About a tenth. The model has made what `[CLS]` sends so short that looking at it is nearly the same as not looking. Is that so? The proof is to take that part away, which the next section but one does.
#
# > **Key idea.** A weight is a share of *something*. Before you read a map, ask how much that something is.
#
# ## Are deeper layers more global?
#
# One often reads that lower layers look at neighbours and higher ones at the whole sentence. How far does a word look, on average? There are two honest ways to count: all tokens, or the real words among themselves (their weights made to add up to 1). And how even is a row, by its entropy?

# %%
distance = step.abs().unsqueeze(1).float()                      # (B, 1, L, L)
among = weights * word[:, None, None, :]                        # keys that are words
among = among / among.sum(-1, keepdim=True).clamp(min=1e-9)
even = word[:, None, None, :] / word.sum(1)[:, None, None, None]

# %%
far_all = over_words((weights * distance).sum(-1)).mean(1)      # (N,)
far_words = over_words((among * distance).sum(-1)).mean(1)      # (N,)
back = over_words((weights * distance)[..., 0]).mean(1) / far_all  # the part that is [CLS]
far_even = (even * distance).sum(-1).squeeze(1)[word].mean()
entropy = over_words(torch.special.entr(weights).sum(-1)).mean(1)

# %% mystnb={"image": {"alt": "Three lines over layers 0 to 5. Distance over all tokens rises from 3.9 to about 5 and falls a little. Distance among words is 3.1, falls to 2.4 in layer 1 and rises to 3.5 in layer 5. A flat line at 3.7 marks even weights among words."}}
fig, ax = plot_lines({"all tokens": far_all, "words only": far_words,
                      "words, even weights": far_even.expand(n_layers)},
                     xlabel="layer", ylabel="mean distance (tokens)", direct_labels=False,
                     title="How far a word looks")
plt.show()

# %%
for name, x in (("all tokens", far_all), ("words only", far_words), ("entropy", entropy)):
    print(f"{name:11s}", " ".join(f"{v:5.2f}" for v in x))
print("even weights among words:", f"{far_even:.2f}")
print("part of the way that leads to [CLS]:", " ".join(f"{v:.2f}" for v in back))

# %%
expect(far_words.argmin(), 1, 1)
expect(entropy.argmax(), 0, 0)
expect(far_words[-1] - far_words[1], 0.8, 1.6)
expect(far_even - far_words.max(), 0.05, 0.4)
expect(back[1:].min(), 0.45, 0.65)
expect(far_words[0] - far_words[2], 0.2, 0.9)
expect(far_all[0] - far_all[1:].min(), -1.2, -0.2)

# %% [markdown]
# It depends on what is counted. Over all tokens every layer looks farther than the first, but from layer 1 on half of that distance or more is the way back to `[CLS]`, which the last words have far to. Among words the first layer looks **farther** than the next two; from layer 1 to 5 the distance rises, with one step back. By entropy the first layer is the most even of all. So there is a tendency from layer 1 to 5, in this model; "local below, global above" is no law. (Nothing in the architecture asks for it: every layer may look anywhere.)
#
# ## Take heads away
#
# What a head is good for shows when it is missing. We need a forward pass in which the weights can be changed on the way:

# %%
def finish(layer, x, w):                                        # a Post-LN layer with weights w
    a = layer.attention
    x = layer.norm_1(x + a.w_o(a.merge(w @ a.split(a.w_v(x)))))  # (B, L, D)
    return layer.norm_2(x + layer.feed_forward(x))

# %%
def run(ids, edit=lambda n, w: w):
    keep_mask, x = ids != tokenizer.pad_id, model.embed(ids)
    for n, layer in enumerate(model.encoder.layers):
        _, w = layer.attention(x, keep_mask, return_weights=True)  # (B, H, L, L)
        x = finish(layer, x, edit(n, w))
    return x                                                    # (B, L, D)

# %% [markdown]
# ## Check against the model
#
# With nothing edited, it must be the model itself.

# %%
with torch.no_grad():
    torch.testing.assert_close(run(ids)[keep_mask], model(ids)[keep_mask], atol=1e-5, rtol=0)
    removed = run(ids, lambda n, w: w * 0)[keep_mask]
    changed = (removed - model(ids)[keep_mask]).norm() / removed.norm()
print(f"without any attention the vectors change by {changed:.2f} of their length")

# %% [markdown]
# ## Break it: take away what looks largest
#
# Now the promised proof. Set all weights on `[CLS]` to 0, in every layer and head, nearly half of all attention. Once leave the rest as it is, once blow it up so that the rows add up to 1 again.
#
# > **Predict, then run.** The cosine between the sentence vectors before and after: which of the two does more harm?

# %%
def drop_cls(n, w):
    return w * (position[: w.size(-1)] > 0)


def rescaled(n, w):
    left = drop_cls(n, w)
    return left / left.sum(-1, keepdim=True).clamp(min=1e-6)

# %%
def stays(edit):                                                # cosine with the model's vectors
    return F.cosine_similarity(masked_mean(run(ids, edit), keep_mask),
                               masked_mean(model(ids), keep_mask)).mean().item()

# %%
with torch.no_grad():
    dropped, blown_up = stays(drop_cls), stays(rescaled)
    nothing = stays(lambda n, w: w * 0)
    halved = stays(lambda n, w: torch.cat([w[..., :1], w[..., 1:] / 2], -1))
print(f"dropped {dropped:.2f}, dropped and rescaled {blown_up:.2f}, all weights 0 {nothing:.2f}")
print(f"[CLS] as it is, everything else halved: {halved:.2f}")

# %%
expect(dropped, 0.985, 1)
expect(blown_up, 0.5, 0.7)
expect(nothing, 0.45, 0.65)
expect(blown_up - nothing, -0.05, 0.15)
expect(halved, 0.85, 0.95)

# %% [markdown]
# Take nearly half of all attention away, and hardly anything changes. Halve the weights on everything else instead, about a quarter of all attention, and the answer turns visibly more. Give the half of `[CLS]` to the words, and the result is hardly better than with no attention at all. So the sink does have a purpose: not what it says, but what it keeps the words from saying. It is how a head turns itself down, and whoever rescales a map after hiding `[CLS]` draws a model that does not work.
#
# ## A task, and heads to remove
#
# WordNet's definitions have a category each (animal, food, act, ...), 12 in all. A definition is assigned to the category whose mean vector is nearest; the means come from ten definitions per category, the score from twenty others, short ones only. Guessing gives 0.08.

# %%
def pick(split, n):                                             # short ones: it is quicker
    short = [e for e in load_definitions(split) if len(e.text.split()) <= 7]
    chosen = [e for c in range(12) for e in [e for e in short if e.label == c][:n]]
    labels = torch.tensor([e.label for e in chosen])
    return tokenizer.encode([e.text for e in chosen]), labels

# %%
(known, known_labels), (asked, asked_labels) = pick("train", 10), pick("test", 20)
print(tokenizer.decode(asked[0][asked[0] != tokenizer.pad_id]))

# %%
def vectors(ids, edit=lambda n, w: w):                          # (B, L) -> (B, D), length 1
    return F.normalize(masked_mean(run(ids, edit), ids != tokenizer.pad_id), dim=-1)


def means(x):                                                   # (B, D) -> (12, D)
    return F.normalize(x.unflatten(0, (12, -1)).mean(1), dim=-1)

# %%
@torch.no_grad()
def accuracy(edit=lambda n, w: w):
    guess = (vectors(asked, edit) @ means(vectors(known, edit)).T).argmax(-1)
    return (guess == asked_labels).float().mean().item()

# %% [markdown]
# Which heads are needed? Trying all sets is out of the question. [Michel et al. (2019)](../book/bibliography.md) put a factor $\xi = 1$ before each head and ask how much the loss reacts to it, $|\partial \mathcal L / \partial \xi|$, in the mean over examples and relative to the layer. One backward pass answers for all heads. We ask with the known definitions and remove with the others.

# %%
gates = [torch.ones(len(known), n_heads, 1, 1, requires_grad=True) for _ in range(n_layers)]
x = vectors(known, lambda n, w: w * gates[n])                   # (B, D)
logits = x @ means(x.detach()).T / 0.1
loss = F.cross_entropy(logits, known_labels, reduction="sum")
slopes = torch.stack(torch.autograd.grad(loss, gates)).squeeze()  # (N, B, H)
importance = slopes.abs().mean(1)                               # (N, H)
importance = importance / importance.norm(dim=1, keepdim=True)

# %% [markdown]
# > **Predict, then run.** Of the 72 heads we remove the 36 that react least, without any training afterwards. The full model is right in two of three cases. And then: 0.65, 0.5 or 0.2? What if **all** 72 go?

# %%
def without(order, count):
    kept = torch.ones(n_layers * n_heads)
    kept[order[:count]] = 0
    kept = kept.view(n_layers, 1, n_heads, 1, 1)
    return accuracy(lambda n, w: w * kept[n])

# %%
counts, least = [0, 18, 36, 54, 72], importance.flatten().argsort()
by_lot = torch.randperm(72, generator=torch.Generator().manual_seed(0))
orders = {"least important first": least, "at random": by_lot,
          "most important first": least.flip(0)}

# %%
full, none = accuracy(), without(least, 72)
curves = {name: [full] + [without(order, n) for n in counts[1:-1]] + [none]
          for name, order in orders.items()}

# %% tags=["nbval-ignore-output"]
print("heads removed         ", " ".join(f"{n:5d}" for n in counts))
for name, curve in curves.items():
    print(f"{name:22s}", " ".join(f"{v:5.2f}" for v in curve))

# %%
expect(full - curves["least important first"][2], -0.06, 0.04)
expect(full - curves["most important first"][2], 0.08, 0.25)
expect(none, 0.45, 0.65)
expect(full, 0.58, 0.74)

# %% tags=["nbval-ignore-output"] mystnb={"image": {"alt": "Accuracy over the number of removed heads, 0 to 72. Removing the least important first, the line stays near 0.65 up to 36 heads and then sinks; removing the most important first it falls at once; all end between 0.5 and 0.65, far above 0.08 for guessing."}}
fig, ax = plot_lines({**curves, "guessing": [1 / 12] * 5}, x=counts, xlabel="heads removed",
                     ylabel="accuracy", title="Which heads can go?", direct_labels=False)
ax.set_ylim(0, 0.8)
plt.show()

# %% [markdown]
# Half of the heads can go, if they are the right ones; if they are the wrong ones, it hurts. (With 240 definitions a difference of 0.03 may be chance. That a few heads can be worse than none may be more than chance: each was trained beside the others.) [Michel et al. (2019)](../book/bibliography.md) and [Voita et al. (2019)](../book/bibliography.md) found the like in other models.
#
# But look at the right end. **Without a single head** the model is still right in about half of the cases, where guessing gives 0.08. Then no word hears of another one, and the mean of the words alone says *animal* or *food*. "The heads are not needed" is partly a statement about the task: it does not ask for much attention.
#
# > **Mind the condition.** A head that can go on *this* task may be needed on another. And two heads that do the same can each go, but not both: removing one head at a time misses that.
#
# ## Rollout, and a judge
#
# A map of layer 5 speaks of the *vectors* in layer 5, and these are mixtures already. **Attention rollout** ([Abnar and Zuidema (2020)](../book/bibliography.md)) multiplies the layers: with $\bar A_n$ the mean over the heads of layer $n$, and half of the weight for the residual connection,
#
# $$
# R_n = \tfrac12 (\bar A_n + I)\, R_{n-1}, \qquad R_{-1} = I \tag{12.2}
# $$
#
# and row $i$ of $R_5$ divides output $i$ among the input tokens. That sounds better than a single map. Is it? It needs a judge that is not itself made of attention: replace one token (a word, or a piece of one) by `[MASK]` and see how far the vector of the sentence turns. That is called **leave one out**.

# %%
def sentence_vector(ids):
    return F.normalize(model(ids).mean(1), dim=-1)              # (B, D); no padding here

# %%
@torch.no_grad()
def leave_one_out(ids):                                         # (1, L) -> (L - 2,)
    masked = ids.repeat(ids.size(1) - 2, 1)
    place = torch.arange(len(masked))
    masked[place, place + 1] = tokenizer.ids["[MASK]"]
    return 1 - (sentence_vector(masked) @ sentence_vector(ids).T).squeeze(1)

# %%
ids_bank = tokenizer.encode([bank])
turns = leave_one_out(ids_bank)
print(", ".join(f"{t} {v:.2f}" for t, v in zip(tokens[1:-1], turns.tolist())))
small, large = (turns[[tokens.index(t) - 1 for t in pair]]
                for pair in (("the", "on"), ("bank", "mortgage"))) if real else (turns, turns)
expect(large.min() - small.max(), 0.1, 1)

# %% [markdown]
# *Bank* and *mortgage* matter most, *the* and *on* least. Now the candidates, each one number per word. "Weight times norm" adds up the heads' messages before it takes the length. "Gradient" is how strongly the sentence vector reacts to a small change of the word's embedding.

# %%
def rollout(maps):                                              # (N, L, L) -> (L, L)
    total = torch.eye(maps.size(-1))
    for a in maps:
        total = 0.5 * (a + torch.eye(len(a))) @ total
    return total

# %%
def reaction(ids, draws=8):                                     # slope of the sentence vector
    x = model.embed(ids).detach().requires_grad_()              # (1, L, D)
    out = F.normalize(model.encoder(x).mean(1), dim=-1).flatten()  # (D,)
    ways = torch.randn(draws, len(out), generator=torch.Generator().manual_seed(0))
    slopes = [torch.autograd.grad(out @ way, x, retain_graph=True)[0][0] for way in ways]
    return torch.stack(slopes).norm(dim=(0, 2))                 # (L,)

# %%
def candidates(ids):
    states, maps = hidden_states(model, ids)
    heads = torch.stack(maps)[:, 0]                             # (N, H, L, L)
    arrives = torch.stack([(w[0].unsqueeze(-1) * sent(layer, x)[0].unsqueeze(1)).sum(0).norm(dim=-1)
                           for layer, x, w in zip(model.encoder.layers, states, maps)])
    part = arrives / arrives.sum(-1, keepdim=True)              # (N, L, L), rows add up to 1
    return {"attention, last layer": heads[-1].mean((0, 1)),
            "attention, all layers": heads.mean((0, 1, 2)),
            "weight times norm, all layers": arrives.mean((0, 1)),
            "rollout": rollout(heads.mean(1)).mean(0),
            "rollout of weight times norm": rollout(part).mean(0),
            "gradient": reaction(ids),
            "number of letters": torch.tensor([len(t.removeprefix("##"))
                                               for t in tokenizer.decode(ids[0])]),
            "drawn by lot": torch.rand(ids.size(1))}

# %% [markdown]
# Do they put the words in the same **order** as leave one out? A rank correlation is 1 for the same order, $-1$ for the reverse, about 0 for chance.
#
# > **Predict, then run.** Which of the eight comes closest? And is rollout better than the plain weights?

# %%
def rank_correlation(a, b):
    a, b = (x.float().unsqueeze(1) for x in (a, b))
    ranks = [(x > x.T).sum(1) + 0.5 * (x == x.T).sum(1) for x in (a, b)]  # ties share a rank
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()

# %%
_ = torch.manual_seed(0)
found = {}
for text in sentences:
    one = tokenizer.encode([text])
    truth = leave_one_out(one)
    for name, x in candidates(one).items():
        found.setdefault(name, []).append(rank_correlation(x[1:-1], truth))

# %% tags=["nbval-ignore-output"]
mean = {name: sum(values) / len(values) for name, values in found.items()}
for name, values in found.items():
    print(f"{name:30s} mean {mean[name]:5.2f}, lowest {min(values):5.2f}")

# %%
expect(mean["weight times norm, all layers"], 0.65, 0.85)
expect(mean["gradient"], 0.6, 0.8)
expect(mean["attention, all layers"], 0.5, 0.72)
better = mean["weight times norm, all layers"] - mean["attention, all layers"]
expect(better, 0.04, 0.2)
expect(mean["rollout"], 0, 0.35)
expect(mean["rollout of weight times norm"], 0.5, 0.75)
expect(mean["weight times norm, all layers"] - mean["rollout of weight times norm"], 0, 0.25)
expect(mean["number of letters"], 0.4, 0.65)
expect(mean["drawn by lot"], -0.2, 0.2)

# %% [markdown]
# Four things to take away:
#
# - Raw attention is **not** unrelated to what matters: about 0.6 here.
# - But counting **letters** gets most of the way. Long words carry meaning, and a map that points at long words looks wise. Always ask what a silly rule would score.
# - Weight times norm does better than weight alone, as it should after what we saw of `[CLS]`.
# - **Rollout is the worst of the real candidates**, far behind the plain weights that it is made of. [Abnar and Zuidema (2020)](../book/bibliography.md) found the opposite in their models and tasks. Here it passes on the weights of the sink as if something arrived from there; fed with weight times norm instead, it is far better, though not better than the plain mean of the same numbers.
#
# ## The same answer with other weights
#
# [Jain and Wallace (2019)](../book/bibliography.md), *Attention is not Explanation*: if quite different weights lead to the same answer, then the weights are not *the* reason. Let us look for some: in the last layer, start from noise, move the weights away from the model's as far as possible, and keep the sentence vector.

# %%
def adversary(text, rounds=150):
    layer, ids = model.encoder.layers[-1], tokenizer.encode([text])
    states, maps = hidden_states(model, ids)
    x, w, target = states[-2], maps[-1], sentence_vector(ids).detach()
    noise = torch.randn(w.shape, generator=torch.Generator().manual_seed(0))
    scores = (w.clamp(min=1e-6).log() + noise).requires_grad_()  # (1, H, L, L)
    optimizer = torch.optim.Adam([scores], lr=0.05)
    for _ in range(rounds):
        other = scores.softmax(-1)
        turned = 1 - F.cosine_similarity(finish(layer, x, other).mean(1), target).mean()
        moved = (other - w).abs().sum(-1).mean() / 2             # share of weight that moved
        optimizer.zero_grad()
        (100 * turned - moved).backward()
        optimizer.step()
    return 1 - turned.item(), moved.item()

# %%
@torch.no_grad()
def moved_by_lot(text):                                         # moved as far, without a search
    layer, ids = model.encoder.layers[-1], tokenizer.encode([text])
    states, maps = hidden_states(model, ids)
    noise = torch.randn(maps[-1].shape, generator=torch.Generator().manual_seed(0))
    other = (maps[-1].clamp(min=1e-6).log() + 2 * noise).softmax(-1)
    turned = finish(layer, states[-2], other).mean(1)
    return (F.cosine_similarity(turned, sentence_vector(ids)).item(),
            (other - maps[-1]).abs().sum(-1).mean().item() / 2)

# %% tags=["nbval-ignore-output"]
for text in (bank, "the boat cut the water", "she nibbled daintily at her cake"):
    (same, moved), (lot, lot_moved) = adversary(text), moved_by_lot(text)
    print(f"{text}\n    searched for: cosine with the model's answer {same:.4f}, weight moved "
          f"{moved:.2f}; by lot: {lot:.4f}, {lot_moved:.2f}")
    expect(same, 0.998, 1)
    expect(lot, 0.85, 0.985)
    for share_moved in (moved, lot_moved):
        expect(share_moved, 0.35, 0.75)

# %% [markdown]
# About half of the weight moved to other tokens, and the answer has hardly turned: a cosine above 0.998. Moved about as far by lot, the weights turn it far more: such weights exist, but one must look for them. Whoever draws the first map and says "because" could as well have drawn the second.
#
# [Wiegreffe and Pinter (2019)](../book/bibliography.md), *Attention is not not Explanation*, answer: these weights belong to no model. They were made for one sentence by an optimiser that knew the answer; no query and no key produce them. The right question is whether the model **needs** its attention. So give it a plain one: every word looks evenly at all tokens, in all layers; and, as a second try, each head gets its neighbour's map.

# %%
def evenly(n, w):
    seen = (w.sum(2, keepdim=True) > 0).float()                 # keys that are not padding
    return (seen / seen.sum(-1, keepdim=True)).expand_as(w)

# %% [markdown]
# One thing more goes with even weights: the sink. Instead of half, `[CLS]` now gets a thirteenth, and we have seen what it does to blow up the rest. So there is a third try: each head keeps its mean share on `[CLS]`, **one number per head**, and spreads the rest evenly. No query and no key decides anything there.
#
# > **Predict, then run.** As trained, the model is right in two of three cases, without attention in about half. With even weights? And with even weights beside the sink?

# %%
def beside_the_sink(n, w):
    seen = (w.sum(2, keepdim=True) > 0).float()                 # (B, H, 1, L)
    seen[..., 0] = 0
    sink = w[..., :1].mean((0, 2, 3), keepdim=True)             # (1, H, 1, 1): one number per head
    at_cls = (torch.arange(w.size(-1)) == 0).float()            # (L,)
    rest = seen / seen.sum(-1, keepdim=True)
    return (sink * at_cls + (1 - sink) * rest).expand_as(w)

# %%
plain, sink_only = accuracy(evenly), accuracy(beside_the_sink)
swapped = accuracy(lambda n, w: w.roll(1, dims=1))

# %% tags=["nbval-ignore-output"]
print(f"as trained {full:.2f}, even beside the sink {sink_only:.2f}, even {plain:.2f}, "
      f"neighbour's map {swapped:.2f}, none {none:.2f}")

# %%
expect(none - plain, -0.01, 0.2)
expect(none - swapped, -0.01, 0.2)
expect(full - plain, 0.1, 0.3)
expect(sink_only - plain, 0.04, 0.2)
expect(full - sink_only, 0.01, 0.12)

# %% [markdown]
# With even weights, or with the maps of other heads, it does **no better than with no attention at all**. But leave each head its one number for `[CLS]`, and most of the loss is gone. So on this task much of what attention does is *how much* a head lets through, and less is *from where*. A part is: the trained weights are still better. Both sides are right about something.
#
# > **Key idea.** Attention weights are part of *how* the model computes: with even ones it fails, with even ones beside the sink it is somewhat worse. They are not a list of *reasons*: other weights give the same answer, half of the weight goes where there is nothing, and the number of letters agrees with leave one out not much less.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each is followed by its check, which runs what you wrote on fresh inputs and says what it found.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 12.1** (difficulty 1 of 5, 5 min, predict). A head puts 0.6 of a word's attention on `[CLS]` and 0.4 on the words. What `[CLS]` sends has length 0.5, what each word sends has length 3. By weight times norm, what share of the effect comes from `[CLS]`?

# %% tags=["exercise"]
answer = ...  # a number from 0 to 1, to three digits
checks.answer("12.1", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# answer = 0.6 * 0.5 / (0.6 * 0.5 + 0.4 * 3)
# ```
#
# A fifth, where the map shows three fifths. How the 0.4 are divided among the words makes no difference here, because all send equally long vectors. In MiniLM the lengths lie as far apart:
#
# ```python
# assert abs(answer - 0.2) < 1e-6
# expect((norm_word / norm_cls).min(), 3, 10)
# ```
#
# </details>
#
# > **Exercise 12.2** (difficulty 2 of 5, 10 min, implement). Write `my_entropy(weights, keep_mask)` for `weights` (B, H, L, L) and `keep_mask` (B, L), True = real token: for each head the mean entropy of the rows of **real** queries, in nats, (H,). It is the mean over all real queries of the batch. Padded keys have a weight of exactly 0. Do it without `torch.special.entr`.

# %% tags=["exercise"]
def my_entropy(weights, keep_mask):
    ...  # your code: return (H,)


checks.attention_entropy(my_entropy)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_entropy(weights, keep_mask):
#     logs = torch.where(weights > 0, weights, 1.0).log()        # log 1 = 0 in the place of log 0
#     rows = -(weights * logs).sum(-1)                           # (B, H, L)
#     return rows.transpose(1, 2)[keep_mask].mean(0)             # (n, H) -> (H,)
# ```
#
# $p \ln p$ goes to 0 with $p$, but $0 \cdot (-\infty)$ is NaN. So the 0 must go before the logarithm is taken. Which head is the most even one?
#
# ```python
# evenness = torch.stack([my_entropy(w, keep_mask) for w in weights])          # (N, H)
# n = keep_mask.sum(1)                                           # (B,)
# print(strongest(evenness, 1), f"even: {n.float().log().repeat_interleave(n).mean():.2f}")
# assert not real or strongest(evenness, 1)[0][0] == 0           # in the first layer
# ```
#
# </details>
#
# > **Exercise 12.3** (difficulty 2 of 5, 15 min, implement). Which heads look two tokens back? Write `my_offset_share(weights, keep_mask, offset)` for `weights` (B, H, L, L), `keep_mask` (B, L), True = real token, and a whole number `offset`, key minus query: $-1$ is the token before. It returns the mean weight for each head, (H,), over all pairs of the batch in which query and key are both real. A query without a real token at that place does not count at all; so `share` above will not do, which divides by all words.

# %% tags=["exercise"]
def my_offset_share(weights, keep_mask, offset):
    ...  # your code: return (H,)


checks.offset_share(my_offset_share)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_offset_share(weights, keep_mask, offset):
#     position = torch.arange(weights.size(-1))
#     place = position - position.unsqueeze(1) == offset         # (L, L): key minus query
#     pairs = place & keep_mask.unsqueeze(1) & keep_mask.unsqueeze(2)  # (B, L, L)
#     return weights.transpose(0, 1)[:, pairs].mean(1)           # (H, n) -> (H,)
# ```
#
# Two tokens back no head is nearly as sure as one token back: the best one gives less than a quarter.
#
# ```python
# for offset in (-3, -2, -1, 1, 2, 3):
#     found_shares = torch.stack([my_offset_share(w, keep_mask, offset) for w in weights])   # (N, H)
#     n, h, most = strongest(found_shares, 1)[0]
#     print(f"{offset:2d}: layer {n}, head {h}, {most:.2f}")
#     expect(most, 0.95 if offset == -1 else 0.05, 1)
#     expect(most, 0, {-2: 0.35, 2: 0.35}.get(offset, 1))
# ```
#
# </details>
#
# > **Exercise 12.4** (difficulty 2 of 5, 10 min, explore). In *the animal didn't cross the street because it was too tired*, *it* is the animal; with *wide* in the place of *tired*, it is the street. Find the head in which *it* looks most at *animal*. Does it move to *street* in the second sentence?
#
# <details>
# <summary>Solution</summary>
#
# It does not. The strongest head puts about two thirds on *animal*, and still half with *wide*. One sentence would have made a fine picture; the second one takes it back.
#
# ```python
# on = {}
# for end in ("tired", "wide"):
#     row = tokenizer.encode([f"the animal didn't cross the street because it was too {end}"])
#     names, maps_it = tokenizer.decode(row[0]), torch.stack(hidden_states(model, row)[1])[:, 0]
#     if real:
#         at = maps_it[:, :, names.index("it")]                   # (N, H, L)
#         on[end] = at[..., names.index("animal")], at[..., names.index("street")]
# if real:
#     n, h, most = strongest(on["tired"][0])[0]
#     assert most > 0.6
#     assert on["wide"][0][n, h] > 0.4 > 0.1 > on["wide"][1][n, h]
# ```
#
# </details>
#
# > **Exercise 12.5** (difficulty 3 of 5, 10 min, explore). Even weights in **one** layer at a time: how much accuracy does each cost? Compare with all layers at once.
#
# <details>
# <summary>Solution</summary>
#
# No single layer costs anything to speak of, all together cost much: the other five make up for one. "This layer does not matter", said of each, does not add up to "no layer matters".
#
# ```python
# costs = [full - accuracy(lambda n, w: evenly(n, w) if n == only else w)
#          for only in range(n_layers)]
# print([f"{cost:.2f}" for cost in costs])
# assert not real or -0.05 <= max(costs) <= 0.06
# assert not real or 0.1 <= full - plain <= 0.3
# ```
#
# </details>
#
# > **Exercise 12.6** (difficulty 3 of 5, 15 min, implement). How much goes past attention, half? Nobody knows, so make it an argument. Write `my_rollout(weights, kept)` for a list of N tensors (B, H, L, L), the first layer first, and `kept` from 0 to 1: the share that each layer takes from the residual connection, where equation (12.2) has $\tfrac12$. The heads of a layer count alike. It returns $R_{N-1}$, (B, L, L): row $i$ says where output $i$ comes from.

# %% tags=["exercise"]
def my_rollout(weights, kept):
    ...  # your code: return (B, L, L)


checks.rollout(my_rollout)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_rollout(weights, kept):
#     total = torch.eye(weights[0].size(-1))                     # (L, L), and (B, L, L) from then on
#     for w in weights:
#         total = kept * total + (1 - kept) * w.mean(1) @ total
#     return total
# ```
#
# $(cI + (1 - c)\bar A)R$ is $cR + (1 - c)\bar A R$: no identity matrix is needed. Half was a guess, and it matters:
#
# ```python
# half = my_rollout(list(weights), 0.5)                          # (B, L, L)
# torch.testing.assert_close(half[0], rollout(weights[:, 0].mean(1)))
# torch.testing.assert_close(half.sum(-1), torch.ones(half.shape[:2]))
# some = [tokenizer.encode([text]) for text in sentences[:12]]
# truths = [leave_one_out(one) for one in some]
#
#
# def agreement(kept):                                           # with leave one out
#     found = [my_rollout(hidden_states(model, one)[1], kept)[0].mean(0) for one in some]  # (L,)
#     return sum(rank_correlation(x[1:-1], y) for x, y in zip(found, truths)) / len(some)
#
#
# by_share = {kept: agreement(kept) for kept in (0.2, 0.5, 0.8, 0.95)}
# print({kept: f"{value:.1f}" for kept, value in by_share.items()})
# expect(by_share[0.95] - by_share[0.5], 0.15, 0.7)
# expect(by_share[0.5] - by_share[0.2], 0.1, 0.9)
# ```
#
# The more goes past attention, the better rollout agrees with leave one out, up to the 0.6 of the plain weights of all layers. That is no merit of rollout: with $c$ near 1 hardly anything is multiplied, and what is left of it is the sum of the maps.
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"An attention map shows why the model answers as it does."* It shows one factor of a product, in one layer, after other layers have mixed. Other weights gave the same answer.
#
# > **Misconception.** *"Attention explains nothing."* With even weights beside the sink the model was worse than with its own, and the order of the weights agreed with leave one out far better than chance.
#
# > **Misconception.** *"A lot of attention means a lot of influence."* `[CLS]` got nearly half of the weight and about a tenth of the effect.
#
# > **Misconception.** *"Lower layers look near, higher layers look far."* From layer 1 on, in this model. The first layer was the most even one.
#
# > **Misconception.** *"All heads are needed"*, and *"most heads are useless"*. Half could go on our task, but it was a task that needed little attention.
#
# > **Misconception.** *"Head 8 of layer 1 is the next-token head."* Of these weights. Search by measure.

# %% [markdown]
# ## Quiz
#
# Eight questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(12)

# %% [markdown]
# ## Summary
#
# - One head looks at the previous token, in a line of Chinese as well; one looks mostly at the next, in English. Nearly half of all attention rests on `[CLS]`, a sink.
# - Weight times norm says what arrives: from `[CLS]`, about a tenth. Its weights may go; given to the words, they ruin the result.
# - Half of the heads could go without loss on a task of categories; without any head about half of the answers were still right.
# - Against leave one out: weight times norm does better than raw weights; the gradient is about as good as either; the number of letters is not much worse; rollout is worst.
# - Other weights with the same answer exist, yet the model is worse with even ones, though much less so where each head keeps its share on `[CLS]`.
#
# ## Sources
#
# What BERT looks at: [Clark et al. (2019)](../book/bibliography.md). Weights and norms: [Kobayashi et al. (2020)](../book/bibliography.md). Sinks: [Xiao et al. (2024)](../book/bibliography.md), [Gu et al. (2025)](../book/bibliography.md). Removing heads: [Michel et al. (2019)](../book/bibliography.md), [Voita et al. (2019)](../book/bibliography.md). Rollout: [Abnar and Zuidema (2020)](../book/bibliography.md). Explanation: [Jain and Wallace (2019)](../book/bibliography.md), [Wiegreffe and Pinter (2019)](../book/bibliography.md). The model: [Wang et al. (2020)](../book/bibliography.md), [Reimers and Gurevych (2019)](../book/bibliography.md). Sentences and definitions: WordNet, [Miller (1995)](../book/bibliography.md). The verse: [chinese-poetry](../book/bibliography.md).
#
# Next: chapter 13, [the debugging clinic](13_debugging_clinic.ipynb).
