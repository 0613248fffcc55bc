# %% [markdown]
# # The whole encoder
#
# *You will be able to:* say what an encoder is for, follow the shapes from text to answer, and read a model's answers next to a baseline.
# *You need:* Python and a first look at PyTorch tensors. *Time:* {{ time }}.

# %% tags=["setup"]
import torch
import matplotlib.pyplot as plt
from torch import nn
from torch.nn import functional as F
from encoder_lib.claims import record
from encoder_lib.plotting import plot_heatmap, use_style
torch.set_num_threads(1)
use_style()

# %% [markdown]
# ## A question that needs the whole sentence
#
# One word has been taken out of each sentence. What kind of word was it: an adjective, an adverb, a noun or a verb?

# %%
from encoder_lib.datasets import GAP_LABELS, load_gap

train, test = load_gap("train"), load_gap("test")
print(f"{len(train)} sentences to learn from, {len(test)} for the test\n")
chosen = ("there was a _ at every corner", "the boat _ the water",
          "she nibbled _ at her cake", "the _ motion of a cat", "the _ of the nail")
some = [example for example in test if example.text in chosen]
for example in some:
    print(example.text)

# %% [markdown]
# You answered without knowing the word. Two of them begin with *the _*: what stands **before** the gap cannot tell these apart, what comes **after** it does. In *the boat _ the water* you needed both sides. And *dog bites man* is not *man bites dog*: the order counts too.
#
# So we want a machine that gives the gap a description made from **all** the words around it, on both sides, in their order. That is what an encoder does, for every word at once:
#
# > **Key idea.** An encoder turns a sentence of $L$ tokens into $L$ vectors. Each vector describes its token *in this sentence*.
#
# Whatever you need is then read from these vectors: here the class of the missing word, elsewhere the topic of a text, the name of a person in it, or how close two sentences are in meaning. (A *decoder* writes text from left to right, so each of its vectors may look to the left only. This book is about encoders.)
#
# The sentences are example sentences of WordNet ([Miller (1995)](../book/bibliography.md)). Here are the right answers.

# %%
for example in some:
    print(f"{GAP_LABELS[example.label]:10s} {example.word:11s} {example.text}")

# %% [markdown]
# ## From text to numbers
#
# > **Borrowed.** This chapter looks at the finished thing from outside, so it borrows ahead. From chapter 01: `tokenize`, `Vocabulary`, `batches`, `keep_mask_from_ids`. From chapters 01 and 02: `InputEmbedding`. From torch, until the book has built its own: `nn.TransformerEncoderLayer`, `nn.TransformerEncoder`, `nn.LayerNorm`, `nn.Linear`, `nn.EmbeddingBag`, `nn.Identity`, `F.cross_entropy`, `F.normalize`, `F.pad`.
#
# A model sees whole numbers, not words. A **vocabulary** numbers every token that occurs at least twice in the training sentences.

# %%
from encoder_lib import InputEmbedding, keep_mask_from_ids
from encoder_lib.text import Vocabulary, batches, tokenize

train_tokens = [tokenize(example.text) for example in train]
vocabulary = Vocabulary(train_tokens, min_count=2)
gap_id = vocabulary.encode(["_"])[0]
print(len(vocabulary), "tokens; the gap has id", gap_id)

# %%
def to_batches(examples, batch_size, shuffle=False, seed=0):
    sequences = [vocabulary.encode(tokenize(example.text)) for example in examples]
    labels = [example.label for example in examples]
    return batches(sequences, labels, batch_size, shuffle, seed)


ids, keep_mask, labels = to_batches(some[:3], batch_size=3)[0]
print(ids)        # (B, L)
print(keep_mask)  # (B, L)

# %% [markdown]
# Three sentences, one row each. The shorter ones are filled up with id 0, **padding**, because a tensor needs rows of equal length. `keep_mask` says which tokens are real. Padding is no small print in an encoder; it comes back below.

# %% [markdown]
# ## The whole encoder in a few lines
#
# Four parts, one after the other. The **input embedding** gives each id a vector and adds its position. The **encoder** is a stack of layers that let the vectors exchange information. We pick the vector **at the gap**. The **head**, a linear map, turns it into four scores.

# %%
class GapReader(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers, n_classes):
        super().__init__()
        self.embed = InputEmbedding(vocab_size, d_model, dropout=0.0)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, d_ff, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(
            layer, n_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, ids):
        ignore = ~keep_mask_from_ids(ids)                               # (B, L)
        h = self.encoder(self.embed(ids), src_key_padding_mask=ignore)  # (B, L, D)
        return self.head(h[ids == gap_id])                              # (B, n_classes)

# %% [markdown]
# Look at the `~`. Torch's layer wants True where a token is to be *ignored*; this book has True where a token is *real*. Chapter 04 is about such traps.
#
# Now the shapes, all the way through. The book writes them at the end of a line: $B$ sentences in the batch, $L$ tokens in each, $D = d_\text{model}$ numbers per token.

# %%
_ = torch.manual_seed(0)
model = GapReader(
    len(vocabulary), d_model=64, n_heads=4, d_ff=128, n_layers=2, n_classes=4)

x = model.embed(ids)                                   # (B, L, D)
h = model.encoder(x, src_key_padding_mask=~keep_mask)  # (B, L, D)
at_gap = h[ids == gap_id]                              # (B, D)
scores = model.head(at_gap)                            # (B, 4)
for name in ("ids", "x", "h", "at_gap", "scores"):
    print(f"{name:8s}{tuple(globals()[name].shape)}")

# %% [markdown]
# `x` and `h` have the same shape. An encoder does not shorten, widen or summarise: one vector per token goes in, one per token comes out. Only their content changes.

# %% [markdown]
# ## Before it has learnt anything
#
# The model has random weights. How well does it do? A number means nothing without a **baseline** next to it, so we also ask a rule that looks at no word at all: *always answer with the most frequent class*.

# %%
@torch.no_grad()
def accuracy(model, examples):
    model.eval()
    right = [model(ids).argmax(-1) == labels
             for ids, _, labels in to_batches(examples, batch_size=256)]
    return torch.cat(right).float().mean().item()


majority = max(range(4), key=[example.label for example in train].count)
majority_accuracy = sum(e.label == majority for e in test) / len(test)
print(f"always '{GAP_LABELS[majority]}': {majority_accuracy:.3f}")

# %%
assert accuracy(model, test) < majority_accuracy + 0.05
print("the untrained model is no better than a guess")

# %% [markdown]
# ## Two passes over the sentences
#
# Training shows the model a batch, measures how wrong it was, and moves every weight a little towards less wrong. The learning rate rises for 50 steps and then falls to zero. Chapter 10 takes this loop apart; here, two passes are enough.

# %%
def train_two_passes(model, examples, rate=3e-3):
    plan = to_batches(examples, 64, shuffle=True, seed=0)
    plan += to_batches(examples, 64, shuffle=True, seed=1)
    optimizer = torch.optim.AdamW(model.parameters())
    model.train()
    for step, (ids, _, labels) in enumerate(plan):
        warm_up, decay = min(1, (step + 1) / 50), 1 - step / len(plan)
        optimizer.param_groups[0]["lr"] = rate * warm_up * decay
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %% tags=["nbval-ignore-output"]
train_two_passes(model, train)
whole = accuracy(model, test)
assert whole > 0.73
print(f"right on sentences it has never seen: {whole:.2f}")

# %% [markdown]
# > **Note.** Training adds up millions of rounded products, and another processor rounds a few of them differently. So the trained numbers on your machine may differ in the second decimal. Beside trained numbers the chapter asserts bounds with room to spare.
#
# Is that good? *Always the same answer* is a low bar. A fairer rival knows every word of the sentence but not their order: a **bag of words** adds up four scores per word, wherever the word stands. It is trained in the same way.

# %% tags=["nbval-ignore-output"]
class BagOfWords(nn.Module):
    def __init__(self, vocab_size, n_classes):
        super().__init__()
        self.scores = nn.EmbeddingBag(vocab_size, n_classes, mode="sum", padding_idx=0)
        nn.init.zeros_(self.scores.weight)

    def forward(self, ids):
        return self.scores(ids)  # (B, n_classes)


bag = BagOfWords(len(vocabulary), 4)
train_two_passes(bag, train, rate=3e-2)
bag_accuracy = accuracy(bag, test)
assert majority_accuracy + 0.1 < bag_accuracy < whole - 0.05
print(f"bag of words: {bag_accuracy:.2f}")

# %% [markdown]
# And a second question: does the gain come from order, or from the larger model? The same encoder without positions answers it. It is trained alike and cannot know where a word stands (chapter 02 shows why).

# %% tags=["nbval-ignore-output"]
_ = torch.manual_seed(0)
orderless = GapReader(
    len(vocabulary), d_model=64, n_heads=4, d_ff=128, n_layers=2, n_classes=4)
orderless.embed.positions = nn.Identity()
train_two_passes(orderless, train)
without_order = accuracy(orderless, test)
assert without_order < whole - 0.05
print(f"the same encoder without positions: {without_order:.2f}")
record("N2", "accuracy lost without positions", whole - without_order, 0.05, 0.3)
record("N2", "accuracy lost by a bag of words", whole - bag_accuracy, 0.05, 0.3)

# %% [markdown]
# Here the gain comes from order.
#
# > **Note.** `record` checks that a number lies within its bound and enters it in the [claims ledger](../book/claims.md), where what people say about encoders stands beside what this book measured. You will meet it in every chapter; it changes nothing.
#
# > **Mind the condition.** The encoder is not here because it wins this task. A rival that scores the few words beside the gap, each with its place, is hard to beat on short sentences; [chapter 10](10_training.ipynb) measures it, and improves on both. We look at the encoder because the same four parts also work where neighbours are not enough.

# %% [markdown]
# ## Look at its answers
#
# The five sentences from above, and what the model says about each. They are test sentences: it has not seen them. (One word of them, *nibbled*, was not frequent enough for the vocabulary: it is the id 1 in the batch above, `<unk>` for unknown. Look how that sentence fares.)

# %% tags=["nbval-ignore-output"] mystnb={"image": {"alt": "Table-like heat map. Rows are five test sentences with a gap, columns the classes adjective, adverb, noun, verb; each cell holds the probability the trained model gives. In most rows one cell is far brighter than the others."}}
ids, _, _ = to_batches(some, 5)[0]          # (5, L)
with torch.no_grad():
    probabilities = model(ids).softmax(-1)  # (5, n_classes)
texts = [example.text for example in some]
fig, ax = plot_heatmap(
    probabilities, row_labels=texts, column_labels=GAP_LABELS, limits=(0, 1),
    xlabel="class of the missing word", ylabel="sentence",
    title="What could stand in the gap?", value_label="probability")
plt.show()

# %% [markdown]
# ### One row in, many vectors out
#
# All gaps enter as the **same** row of the embedding table, since the token `_` is the same everywhere. They leave as different vectors, because each has collected something else from its sentence. How alike are they, going in and coming out? We take the cosine between every two gaps of the test set, averaged over the pairs of each two classes.

# %%
@torch.no_grad()
def gap_vectors(examples, encoded):
    vectors, classes = [], []
    for ids, keep_mask, labels in to_batches(examples, 256):
        h = model.embed(ids)                                           # (B, L, D)
        h = model.encoder(h, src_key_padding_mask=~keep_mask) if encoded else h
        vectors.append(F.normalize(h[ids == gap_id], dim=-1))
        classes.append(labels)
    return torch.cat(vectors), torch.cat(classes)                      # (n, D), (n,)


def similarity_by_class(vectors, classes):
    means = torch.stack([vectors[classes == c].mean(0) for c in range(4)])  # (4, D)
    return means @ means.T                                                  # (4, 4)

# %% tags=["nbval-ignore-output"] mystnb={"image": {"alt": "Two four by four heat maps of mean cosine similarity between gap vectors by class. Going in, all entries are high and nearly equal; coming out, the diagonal, same class with same class, is clearly higher than the rest."}}
fig, axes = plt.subplots(1, 2, figsize=(7.4, 3.4), layout="constrained")
for ax, encoded, title in ((axes[0], False, "going in"), (axes[1], True, "coming out")):
    similarity = similarity_by_class(*gap_vectors(test, encoded))
    plot_heatmap(similarity, row_labels=GAP_LABELS, column_labels=GAP_LABELS,
                 xlabel="class", ylabel="class", title=f"Gap vectors {title}",
                 value_label="mean cosine", limits=(0, 1), ax=ax)
plt.show()

# %%
diagonal = similarity.diagonal()
others = similarity[~torch.eye(4, dtype=torch.bool)]
assert diagonal.min() > others.max() + 0.05
print("coming out, gaps of one class are more alike than gaps of two")

# %% tags=["nbval-ignore-output"]
gap = diagonal.mean() - others.mean()
record("N3", "cosine of one gap and another, same class minus two classes", gap, 0.05, 1)

# %% [markdown]
# Going in, all gaps are nearly the same vector: they differ only by the place at which they stand. Coming out they have spread apart, gaps of one class less than gaps of two. Nobody told the encoder what a noun is; it was told which of four numbers to answer, and found out what the places of nouns have in common.

# %% [markdown]
# ## Break it: cover one side, shuffle the rest
#
# > **Predict, then run.** We cut off all words after the gap, then all words before it, then keep all words but shuffle their order. Write down your three guesses. Which drop in accuracy is the largest?

# %%
import random


def left_only(tokens):
    return tokens[: tokens.index("_") + 1]


def right_only(tokens):
    return tokens[tokens.index("_") :]


def shuffled(tokens):
    return random.Random(" ".join(tokens)).sample(tokens, len(tokens))

# %%
def change_all(examples, change):
    return [example._replace(text=" ".join(change(example.text.split())))
            for example in examples]


for change in (left_only, right_only, shuffled):
    print(f"{change.__name__:11s}", change_all(some, change)[0].text)

# %% tags=["nbval-ignore-output"]
print(f"{'whole':11s} {whole:.2f}")
for change in (left_only, right_only, shuffled):
    score = accuracy(model, change_all(test, change))
    assert score < whole - 0.05
    print(f"{change.__name__:11s} {score:.2f}")

# %% [markdown]
# Each of the three costs accuracy.
#
# > **Mind the condition.** The model was trained on whole sentences, so half a sentence, and a shuffled one, is also *unusual* for it. Part of the drop comes from that, and the three numbers must not be ranked. The fair experiment trains one model per condition; it is exercise 0.5.

# %% [markdown]
# ## The same sentence in other company
#
# A sentence is almost never alone in its batch, and its neighbours decide how much padding it gets.
#
# > **Predict, then run.** We take 256 test sentences and put 20 more paddings behind each, once to a model that masks and once to one that never does. How many of the 256 answers change?

# %%
@torch.no_grad()
def ask(examples, n_padding, use_mask=True):
    ids, _, _ = to_batches(examples, len(examples))[0]   # (B, L)
    ids = F.pad(ids, (0, n_padding))                     # (B, L + n_padding)
    ignore = ~keep_mask_from_ids(ids) if use_mask else None
    h = model.encoder(model.embed(ids), src_key_padding_mask=ignore)
    return model.head(h[ids == gap_id]).softmax(-1)      # (B, n_classes)

# %% tags=["nbval-ignore-output"]
for use_mask in (True, False):
    before = ask(test[:256], n_padding=0, use_mask=use_mask)
    after = ask(test[:256], n_padding=20, use_mask=use_mask)
    changed = (after.argmax(-1) != before.argmax(-1)).sum().item()
    print(f"mask {use_mask!s:6s} {changed} of 256 answers changed")
    largest = (after - before).abs().max()
    assert (largest < 1e-5) if use_mask else (changed > 20)

# %% [markdown]
# With the mask, no probability moved by more than 0.00001. Without it, the model reads the padding as if it were text, silently: no error, no warning, a different answer. The book checks every part for this, and [notation](../book/notation.md) fixes what True means.

# %% [markdown]
# ## Where the parameters are
#
# > **Predict, then run.** A model with 30,000 tokens, $d_\text{model} = 256$, 8 heads, $d_\text{ff} = 1024$ and 4 layers: are most of its parameters in the layers or in the embedding table?

# %%
with torch.device("meta"):  # counts without using memory
    large = GapReader(
        30_000, d_model=256, n_heads=8, d_ff=1024, n_layers=4, n_classes=4)
counts = {name: sum(p.numel() for p in part.parameters())
          for name, part in large.named_children()}
for name, count in counts.items():
    print(f"{name:8s}{count:>10,d}  {count / sum(counts.values()):6.1%}")
record("N1", "share of the layers", counts["encoder"] / sum(counts.values()), 0.25, 0.35)

# %% [markdown]
# Seven in ten parameters sit in the table. A sentence touches only a handful of its rows. The layers, three in ten parameters, work on every token.

# %% [markdown]
# ## Exercises
#
# Code cells with `...` are for you. Each ends with its check, which runs what you wrote on fresh random inputs and says what it found. As often as you like: there are no hidden tests.

# %%
from encoder_lib import checks

# %% [markdown]
# > **Exercise 0.1** (difficulty 1 of 5, 5 min, explore). Write a sentence of your own with a gap `_` and ask the model. Find one on which it is sure and wrong.
#
# <details>
# <summary>Solution</summary>
#
# Any sentence will do; words that are not in the vocabulary become `<unk>`.
#
# ```python
# sentence = "she sang very _"
# ids = torch.tensor([vocabulary.encode(tokenize(sentence))])
# print(dict(zip(GAP_LABELS, model(ids).softmax(-1)[0].tolist())))
# ```
#
# Sentences in which a whole phrase is missing, or in which the gap could be two classes, are where it is sure and wrong most often.
#
# </details>
#
# > **Exercise 0.2** (difficulty 1 of 5, 5 min, predict). One of these four changes the number of parameters of `GapReader`, the others do not: more sentences in the *batch*, a greater *length* of the sentences, more *heads*, more *layers*. Which one? Answer before you count.

# %% tags=["exercise"]
answer = ...  # one word: "batch", "length", "heads" or "layers"
checks.answer("0.2", answer)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# answer = "layers"
# ```
#
# Batch size and length are sizes of the *data*. Heads divide the same matrices into more slices: `n_heads=2` and `n_heads=8` give the same count.
#
# ```python
# sizes = {}
# for n_heads, n_layers in ((1, 2), (8, 2), (4, 3)):
#     m = GapReader(len(vocabulary), 64, n_heads, 128, n_layers, 4)
#     sizes[n_heads, n_layers] = sum(p.numel() for p in m.parameters())
# assert sizes[1, 2] == sizes[8, 2] < sizes[4, 3]
# ```
#
# </details>
#
# > **Exercise 0.3** (difficulty 2 of 5, 10 min, implement). Write the baseline of the chapter as a function of labels alone. `train_labels` $(n,)$ and `test_labels` $(m,)$ are int64 tensors of class numbers, of any two lengths; the rule always answers with the most frequent class of the training labels (there is exactly one). Return its accuracy on the test labels, a number from 0 to 1.

# %% tags=["exercise"]
def my_majority_baseline(train_labels, test_labels):
    ...  # your code: return the accuracy


checks.majority_baseline(my_majority_baseline)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_majority_baseline(train_labels, test_labels):
#     classes, counts = train_labels.unique(return_counts=True)
#     return (test_labels == classes[counts.argmax()]).float().mean().item()
# ```
#
# The test labels are used once, to see how good the rule is; they have no say in which class it answers. On the sentences of this chapter it gives the number from above:
#
# ```python
# train_labels, test_labels = (torch.tensor([e.label for e in part]) for part in (train, test))
# assert abs(my_majority_baseline(train_labels, test_labels) - majority_accuracy) < 1e-6
# ```
#
# </details>
#
# > **Exercise 0.4** (difficulty 2 of 5, 10 min, implement). Count the parameters of any `nn.Module` by hand: walk through `module.modules()` and look at what each of them holds itself, `part.parameters(recurse=False)`. Every number in a parameter counts, frozen or not (`requires_grad=False`); a parameter that several modules share counts once; buffers do not count. Return the number.

# %% tags=["exercise"]
def my_parameter_count(module):
    ...  # your code: return a whole number


checks.parameter_count(my_parameter_count)

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def my_parameter_count(module):
#     sizes = {}
#     for part in module.modules():
#         for p in part.parameters(recurse=False):
#             sizes[id(p)] = p.numel()
#     return sum(sizes.values())
# ```
#
# A shared table is one tensor under two names, so it is kept under its identity. `module.parameters()` walks in the same way and also leaves out what it has seen:
#
# ```python
# assert my_parameter_count(model) == sum(p.numel() for p in model.parameters())
# twice = nn.Sequential(model.head, model.head)
# assert my_parameter_count(twice) == my_parameter_count(model.head)
# ```
#
# </details>
#
# > **Exercise 0.5** (difficulty 3 of 5, 15 min, explore). Make the experiment with the covered sides fair: train one model on `left_only` sentences and test it on `left_only` sentences, one on `right_only`. And one on `shuffled`. Is the drop still there?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# for change in (left_only, right_only, shuffled):
#     _ = torch.manual_seed(0)
#     one_sided = GapReader(len(vocabulary), 64, 4, 128, 2, 4)
#     train_two_passes(one_sided, change_all(train, change))
#     score = accuracy(one_sided, change_all(test, change))
#     print(change.__name__, round(score, 2))
#     assert score < whole - 0.03
# ```
#
# All three stay clearly below the model that sees both sides in their order.
#
# </details>

# %% [markdown]
# ## Misconceptions
#
# > **Misconception.** *"An encoder compresses the sentence into one vector."* It returns one vector per token. Whoever wants a single one must pick or pool, and must then leave out the padding.
#
# > **Misconception.** *"The N identical layers share their weights."* They are built alike and hold different numbers after training. (Torch's class copies one layer, so its layers even *start* equal; chapter 09 shows why that matters.)
#
# > **Misconception.** *"Encoders are the old thing before chat models."* Search engines, classifiers and taggers need a description of a given text, not a continuation of it; for that, one pass that sees both sides is the shorter way.

# %% [markdown]
# ## Quiz
#
# Seven questions on what is easily mistaken here.

# %% tags=["hide-input"]
from encoder_lib.widgets import quiz

quiz(0)

# %% [markdown]
# ## Summary
#
# - An encoder maps $(B, L)$ ids to $(B, L, D)$ vectors: one per token, made from the whole sentence.
# - It uses words on both sides and their order; take any of these away and the answers get worse.
# - Padding must be masked, or a sentence's answer depends on its neighbours in the batch.
# - A trained number means something only beside a baseline and with a bound.
#
# ## The map of the book
#
# Every box you just used as a black one gets opened, built from tensors and compared with torch's.
#
# | part of the model | built in |
# |---|---|
# | tokens, ids, padded batches, the embedding table | [01 Tokens and embeddings](01_tokens_and_embeddings.ipynb) |
# | positions | [02 Positional encoding](02_positional_encoding.ipynb) |
# | attention, masks, several heads | chapters 03 to 05 |
# | feed-forward network, residuals and norms, where the norm goes | chapters 06 to 08 |
# | the stack, equal to torch's | chapter 09 |
# | training, real pretrained weights, reading attention, finding faults | chapters 10 to 13 |
#
# ## Sources
#
# The encoder is the left half of the model in [Vaswani et al. (2017)](../book/bibliography.md), section 3. Reading an encoder's vectors for many tasks was made popular by [Devlin et al. (2019)](../book/bibliography.md). The sentences come from WordNet, [Miller (1995)](../book/bibliography.md).
