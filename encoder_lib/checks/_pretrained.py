"""Checks of chapter 11: pieces of words, cosines, the names of a checkpoint."""

import torch
from torch.nn import functional as F

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, as_function
from encoder_lib.checks.report import Misconception
from encoder_lib.pretrained import LAYER_NAMES, bert_names

__all__ = ["checkpoint_name", "cosine_similarity", "word_pieces"]

# --- pieces of words ------------------------------------------------------------------------------

MOST_QUESTIONS = 3000  # a word of 8 letters needs fewer than 40
UNKNOWN = ["[UNK]"]


class Known(set):
    """A set of pieces that stops whoever asks it without end.

    Raises: Trouble when ``in`` is asked too often.
    """

    asked = 0

    def __contains__(self, piece):
        self.asked += 1
        if self.asked > MOST_QUESTIONS:
            raise Trouble("your loop stands still", "endless")
        return super().__contains__(piece)


def cuts_words(attempt, draw):
    """The answer as f(word, pieces), which hands it the pieces as a set."""
    f = as_function(attempt)
    return lambda word, known: f(word, Known(known))


def ends(word, start, order="longest"):
    """Where a piece that begins at ``start`` may end, in the order of trying."""
    found = range(start + 1, len(word) + 1)
    return found if order == "shortest" else reversed(found)


def cut(word, known, order="longest", stuck="unknown", marked=True):
    """The pieces of a word from left to right, or what is made of it where nothing fits.

    stuck: "unknown" gives up the whole word, "partial" keeps what was found and adds [UNK], "drop"
    keeps only what was found, "skip" leaves a letter out, "letter" puts [UNK] for a letter.
    """
    found, start = [], 0
    while start < len(word):
        mark = "##" if start and marked else ""
        end = next((e for e in ends(word, start, order) if mark + word[start:e] in known), None)
        if end is None:
            if stuck in ("unknown", "partial", "drop"):
                return {"unknown": UNKNOWN, "partial": found + UNKNOWN, "drop": found}[stuck]
            found += UNKNOWN if stuck == "letter" else []
            end = start + 1
        else:
            found.append(mark + word[start:end])
        start = end
    return found


def cut_searching(word, known):
    """The first cut that goes through, longer pieces first: a search with return."""

    def go(start):
        if start == len(word):
            return []
        for end in ends(word, start):
            piece = ("##" if start else "") + word[start:end]
            if piece in known and (rest := go(end)) is not None:
                return [piece, *rest]
        return None

    return go(0) or UNKNOWN


def cut_from_the_end(word, known):
    """The longest piece that fits the end first, then what stands before it."""
    found, end = [], len(word)
    while end > 0:
        starts = [s for s in range(end) if ("##" if s else "") + word[s:end] in known]
        if not starts:
            return UNKNOWN
        found.insert(0, ("##" if starts[0] else "") + word[starts[0] : end])
        end = starts[0]
    return found


def unmarked(word, known):
    """Pieces looked up without ``##``."""
    return cut(word, known, marked=False)


def marked_afterwards(word, known):
    """Pieces looked up without ``##`` and marked in the result."""
    found = unmarked(word, known)
    return found if found == UNKNOWN else found[:1] + ["##" + piece for piece in found[1:]]


def bare(word, known):
    """The right pieces without their marks."""
    return [piece.removeprefix("##") for piece in cut(word, known)]


def all_looked_up_marked(word, known):
    """``##`` at the first piece, too, when it is looked up and in the result."""
    found = cut("_" + word, {"_", *known})
    return found[1:] if len(found) > 1 else UNKNOWN


def all_marked(word, known):
    """The right pieces, all of them with ``##``."""
    found = cut(word, known)
    return found if found == UNKNOWN else ["##" + piece.removeprefix("##") for piece in found]


def spelt(word, *known):
    """A case: word and pieces with other letters at every draw, (word, pieces)."""

    def make(draw):
        letters = [chr(ord("a") + i) for i in draw.permutation(26).tolist()]
        table = str.maketrans({chr(ord("a") + i): letter for i, letter in enumerate(letters)})
        return word.translate(table), tuple(piece.translate(table) for piece in known)

    return make


def right_but(evidence, others):
    """Whether some case in ``others`` is wrong and all the rest is right."""
    wrong = [t for t in evidence.trials if t.got != t.want and tuple(t.want) != tuple(
             t.got if isinstance(t.got, tuple | list) else ())]  # fmt: skip
    return bool(wrong) and all(others(trial) for trial in wrong)


word_pieces = Checker(
    name="word_pieces",
    number="11.5",
    component="tokens",
    right=cut,
    reread="From words to pieces",
    inputs=("the word", "the pieces"),
    adapt=cuts_words,
    cases=(
        Case("a word of several pieces, longer and shorter ones fit",
             spelt("abcdef", "a", "ab", "abc", "##b", "##bc", "##c", "##d", "##de", "##e", "##f",
                   "##cdef", "d", "de", "f", "def")),
        Case("a word of four pieces", spelt("abcd", "a", "##b", "##c", "##d", "c", "d")),
        Case("a word that is one piece", spelt("abc", "abc", "a", "ab", "##b", "##c", "##bc", "c")),
        Case("a piece that occurs twice", spelt("ababab", "ab", "##ab", "##abab", "##a", "##b")),
        Case("a beginning that is known only as a continuation",
             spelt("abc", "##a", "##ab", "c", "##c", "bc", "##bc")),
        Case("an end that is known only as a beginning", spelt("abcd", "ab", "cd", "##c", "d")),
        Case("an unknown letter in the middle", spelt("abxcd", "ab", "##cd", "cd", "##c", "##d")),
        Case("a dead end: the longest beginning leads nowhere", spelt("abcd", "ab", "abc", "##cd")),
    ),
    misconceptions=(
        Misconception("endless", "Your loop never ends: where no piece fits, it asks again and "
                      "again. What moves on when not even one letter is known?",
                      signs=lambda e: any(isinstance(t.got, Trouble) and (t.got.key == "endless" or
                                          "RecursionError" in t.got.text) for t in e.trials)),
        Misconception("unknown_bare", "For a word that cannot be cut you return the text "
                      "\"[UNK]\". It is a list in this case, too, with one piece in it.",
                      signs=lambda e: any(t.got == "[UNK]" for t in e.answers())),
        Misconception("shortest_first", "You take the shortest piece that fits: single letters win "
                      "wherever they are known. It should be the longest one.",
                      lambda word, known: cut(word, known, "shortest")),
        Misconception("without_marks", "You look pieces up without `##` behind the beginning. A "
                      "piece that continues a word is another one than the same letters at its "
                      "start.",
                      (unmarked, marked_afterwards)),
        Misconception("marks_dropped", "Your cut is right, but the pieces come back without `##`, "
                      "so nobody can tell a continuation from a beginning.", bare),
        Misconception("all_marked", "Your first piece is marked with `##`, too: it begins the word "
                      "and continues nothing.", (all_marked, all_looked_up_marked)),
        Misconception("partial_unknown", "Where no piece fits you keep what was found and add "
                      "[UNK]. One unknown letter makes the whole word unknown.",
                      lambda word, known: cut(word, known, stuck="partial")),
        Misconception("drops_rest", "Where no piece fits you stop and return what was found: the "
                      "rest of the word is lost without a trace.",
                      lambda word, known: cut(word, known, stuck="drop")),
        Misconception("unknown_letter", "An unknown letter becomes an [UNK] between the other "
                      "pieces, or is left out. It makes the whole word unknown.",
                      (lambda word, known: cut(word, known, stuck="letter"),
                       lambda word, known: cut(word, known, stuck="skip"))),
        Misconception("searches", "You try shorter pieces when the longest one leads nowhere. That "
                      "finds more cuts, but it is not WordPiece: the rule never goes "
                      "back.", cut_searching),
        Misconception("from_the_end", "You begin at the end of the word, so that the last piece is "
                      "the longest one. The rule runs from left to right.", cut_from_the_end),
        Misconception("unknown_otherwise", "Only words that cannot be cut come out wrong. For them "
                      "the result is a list with one piece, \"[UNK]\".",
                      signs=lambda e: right_but(e, lambda trial: trial.want == UNKNOWN)),
    ),
)  # fmt: skip

# --- cosines --------------------------------------------------------------------------------------


def cosines(a, b, power=1.0, p=2.0, axis=-1, sides="ab"):
    """Cosines (m, n) of all rows of a (m, D) with all of b (n, D), or with another norm."""
    if "a" in sides:
        a = a / a.norm(p, dim=axis, keepdim=True) ** power
    if "b" in sides:
        b = b / b.norm(p, dim=axis, keepdim=True) ** power
    return a @ b.T


def rows(draw, m, n, d, low=0.5, high=2.0):
    """a (m, D) and b (n, D) with rows of unequal lengths."""
    a, b = draw.normal(m, d), draw.normal(n, d)
    return a * draw.uniform(low, high, m, 1), b * draw.uniform(low, high, n, 1)


def angles(evidence):
    """The angles themselves came; near 0 they are not exact."""
    pairs = [(t.got, t.want.clamp(-1, 1).acos()) for t in evidence.answers()]
    return bool(pairs) and all(torch.allclose(got, angle, atol=5e-3) for got, angle in pairs)


def alike(draw):
    """b holds the rows of a, in other lengths, so that the diagonal is 1."""
    a = draw.normal(4, 6)
    return a, a * draw.uniform(0.2, 5.0, 4, 1)


cosine_similarity = Checker(
    name="cosine_similarity",
    number="11.2",
    component="sentence vectors",
    right=cosines,
    reread="One vector per text",
    inputs=("a", "b"),
    gradient=(0, 1),
    cases=(
        Case("more rows in a than in b", lambda draw: rows(draw, 5, 3, 8)),
        Case("as many rows in both, and as many as numbers in a row",
             lambda draw: rows(draw, 4, 4, 4)),
        Case("the same directions in other lengths: 1 on the diagonal", alike),
        Case("lengths from 0.1 to 1000", lambda draw: rows(draw, 3, 6, 5, 0.1, 400.0)),
    ),
    misconceptions=(
        Misconception("no_norm", "You return dot products: a long vector gets large numbers. A "
                      "cosine does not depend on lengths.", lambda a, b: a @ b.T),
        Misconception("one_side", "Only one of the two is brought to length 1, so the length of "
                      "the other still counts.", (lambda a, b: cosines(a, b, sides="a"),
                                        lambda a, b: cosines(a, b, sides="b"))),
        Misconception("norm_axis", "The norm runs over the texts instead of over the numbers of a "
                      "text: columns get length 1, not rows.", lambda a, b: cosines(a, b, axis=0)),
        Misconception("whole_norm", "You divide by the norm of the whole matrix, one number for "
                      "all texts. Every row has a length of its own.",
                      lambda a, b: a @ b.T / (a.norm() * b.norm())),
        Misconception("no_root", "You divide by squared lengths: a root is missing.",
                      lambda a, b: cosines(a, b, power=2.0)),
        Misconception("other_norm", "You divide by the sum of the absolute values. The length of a "
                      "vector is the root of the sum of its "
                      "squares.", lambda a, b: cosines(a, b, p=1.0)),
        Misconception("pairs_only", "You compare row i of a with row i of b only. Asked for is "
                      "every row with every row, (m, n).",
                      (lambda a, b: F.cosine_similarity(a, b), lambda a, b: cosines(a, b).diagonal()
                       if len(a) == len(b) else F.cosine_similarity(a, b))),
        Misconception("transposed", "Rows and columns are exchanged: the rows of the result belong "
                      "to a, its columns to b.", lambda a, b: cosines(b, a)),
        Misconception("no_negative", "Your cosines are never negative: opposite directions have "
                      "-1, and that is another thing than a right angle.",
                      (lambda a, b: cosines(a, b).abs(), lambda a, b: cosines(a, b).clamp(min=0))),
        Misconception("angle", "You return angles. Asked for are their cosines, 1 for the same "
                      "direction.", signs=angles),
        Misconception("centred", "You subtract the mean of each row first: that is a correlation. "
                      "A cosine takes the rows as they are.",
                      lambda a, b: cosines(a - a.mean(1, True), b - b.mean(1, True))),
        Misconception("distance", "You return 1 minus the cosine: a distance, small for what is "
                                  "alike.",
                      lambda a, b: 1 - cosines(a, b)),
    ),
)  # fmt: skip

# --- names of a checkpoint ------------------------------------------------------------------------

LAYERS = 24
THEIRS = {ours: theirs for theirs, ours in bert_names(LAYERS).items()}
PARTS = {ours: theirs for theirs, ours in LAYER_NAMES.items()}


def name_by_name(attempt, draw):
    """The answer as f(names) -> their names, one call for each name."""
    f = as_function(attempt)
    return lambda names: [f(name) for name in names]


def bert_name(names, parts=None, entrance=True, digits=2, plural=False, bias="bias"):
    """BERT's names for ours, with ``parts`` in the place of some of the right parts."""
    table, found = PARTS | (parts or {}), []
    for name in names:
        if not name.startswith("encoder."):
            found.append(THEIRS[name] if entrance else name)
            continue
        n, rest = name.removeprefix("encoder.layers.").split(".", 1)
        part, _, kind = rest.rpartition(".")
        kind = bias if kind == "bias" else kind
        found.append(f"encoder.layer{'s' * plural}.{n[:digits]}.{table[part]}.{kind}")
    return found


def old_names(names):
    """The spelling of very old checkpoints: gamma and beta."""
    found = bert_name(names)
    return [n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
            "LayerNorm.beta") for n in found]  # fmt: skip


def exchanged(*ours):
    """A form in which two parts have exchanged their names."""
    first, second = ours
    return lambda names: bert_name(names, {first: PARTS[second], second: PARTS[first]})


def of_layers(low, high, *parts):
    """Our names of the given parts in three layers, weight and bias of each."""

    def make(draw):
        layers = sorted(low + i for i in draw.permutation(high - low)[:3].tolist())
        return ([f"encoder.layers.{n}.{p}.{kind}" for n in layers for p in parts
                 for kind in ("weight", "bias")],)  # fmt: skip

    return make


def in_order(low, high):
    """As ``of_layers`` with all parts of a layer."""
    return of_layers(low, high, *PARTS)


def short_norm(names):
    """Attention's norm under the name of the feed-forward network's."""
    return bert_name(names, {"norm_1": "output.LayerNorm"})


def short_output(names):
    """Attention's output under the name of the feed-forward network's."""
    return bert_name(names, {"attention.w_o": "output.dense"})


def short_both(names):
    """Both of them."""
    return bert_name(names, {"attention.w_o": "output.dense", "norm_1": "output.LayerNorm"})


TWO_DIGITS = "layers with a number of two digits"
checkpoint_name = Checker(
    name="checkpoint_name",
    number="11.6",
    component="checkpoints",
    right=bert_name,
    reread="Two names for one thing",
    inputs=("the names",),
    adapt=name_by_name,
    cases=(
        Case("the maps of attention", of_layers(0, 10, "attention.w_q", "attention.w_k",
                                                "attention.w_v", "attention.w_o")),
        Case("the feed-forward network", of_layers(0, 10, "feed_forward.w_1", "feed_forward.w_2")),
        Case("the two norms of a layer", of_layers(0, 10, "norm_1", "norm_2")),
        Case(TWO_DIGITS, in_order(10, LAYERS)),
        Case("the entrance", lambda draw: ([n for n in THEIRS if not n.startswith("encoder.")],)),
    ),
    misconceptions=(
        Misconception("direction", "The names come back as they were. Given is **our** name; is "
                      "your table the other way round, from theirs to "
                      "ours?", lambda names: list(names)),
        Misconception("query_key", "Query and key are exchanged. Their shapes are equal, so no "
                      "error would ever say so.", exchanged("attention.w_q", "attention.w_k")),
        Misconception("norms_swapped", "The two norms are exchanged: norm_1 stands behind "
                      "attention, norm_2 behind the feed-forward "
                      "network.", exchanged("norm_1", "norm_2")),
        Misconception("outputs_swapped", "attention's w_o and the feed-forward network's w_2 are "
                      "exchanged; both are called output.dense, one of them inside attention.",
                      exchanged("attention.w_o", "feed_forward.w_2")),
        Misconception("ambiguous", "Two of our names become one and the same of theirs: of two "
                      "parts called output, the one behind attention has a longer name.",
                      (short_norm, short_output, short_both)),
        Misconception("one_digit", "Only the first digit of a layer's number arrives: layer 12 "
                      "becomes layer 1.", lambda names: bert_name(names, digits=1)),
        Misconception("plural", "BERT counts its layers as encoder.layer.0, encoder.layer.1: "
                                "without an s.",
                      lambda names: bert_name(names, plural=True)),
        Misconception("bias_lost", "Every name ends in weight: the biases are lost, or overwrite "
                      "the weights.", lambda names: bert_name(names, bias="weight")),
        Misconception("entrance", "The layers are right, but the names of the entrance come back "
                      "as they were: tokens, positions, types, and the norm behind them.",
                      lambda names: bert_name(names, entrance=False)),
        Misconception("few_layers", "Layers with small numbers are right, later ones are not. Any "
                      "number of layers should do: large BERT has 24.",
                      signs=lambda e: right_but(e, lambda t: t.case.name == TWO_DIGITS)),
        Misconception("prefix", "There is something in front of the name that nobody asked for. A "
                      "name here begins with encoder or embeddings.",
                      lambda names: ["bert." + name for name in bert_name(names)]),
        Misconception("old_names", "gamma and beta are the spelling of very old files; the "
                      "checkpoint says weight and bias.", old_names),
    ),
)  # fmt: skip
