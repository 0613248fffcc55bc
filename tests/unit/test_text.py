"""From text to padded batches: fixed examples, determinism, and nothing lost on the way."""

import random
import unicodedata

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_lib import keep_mask_from_ids
from encoder_lib.datasets import SPLITS, load_couplets, load_gap
from encoder_lib.text import PAD, UNK, Batch, Vocabulary, batches, pad_batch, tokenize

repeatable = settings(max_examples=100, deadline=None, derandomize=True, database=None)

VISIBLE = st.characters(exclude_categories=["C"])
WORDS = st.lists(st.text("abcdé好", min_size=1, max_size=3), max_size=8)


def spaceless(text):
    return "".join(unicodedata.normalize("NFC", text).lower().split())


# --- Tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("The boy walked the dog.", ["the", "boy", "walked", "the", "dog", "."]),
        ("Don't stop!", ["don't", "stop", "!"]),
        ("don’t", ["don’t"]),
        ("a well-known, one", ["a", "well-known", ",", "one"]),
        ("rock'n'roll", ["rock'n'roll"]),
        ("'quoted' \"x\"", ["'", "quoted", "'", '"', "x", '"']),
        ("the dogs' bone", ["the", "dogs", "'", "bone"]),
        ("wait... what?!", ["wait", ".", ".", ".", "what", "?", "!"]),
        ("a--b -c d-", ["a", "-", "-", "b", "-", "c", "d", "-"]),
        ("e.g. 3.14 1,000", ["e.g", ".", "3.14", "1", ",", "000"]),
        ("$5 @me #tag 50%", ["$", "5", "@", "me", "#", "tag", "50", "%"]),
        ("(x) [y]", ["(", "x", ")", "[", "y", "]"]),
        ("the _ of a_b", ["the", "_", "of", "a_b"]),
        ("x² ½ ٣٤", ["x²", "½", "٣٤"]),
    ],
)
def test_words_and_punctuation(text, tokens):
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("你好，世界。", ["你", "好", "，", "世", "界", "。"]),
        ("我love你2次", ["我", "love", "你", "2", "次"]),
        ("白日依山尽", ["白", "日", "依", "山", "尽"]),
        ("㐀豈", ["㐀", "\u8c48"]),  # a compatibility character becomes the ordinary one
        ("呈𬸚𬸦𠀀", ["呈", "𬸚", "𬸦", "𠀀"]),  # rare characters beyond the first plane
    ],
)
def test_every_chinese_character_is_a_token(text, tokens):
    assert tokenize(text) == tokens


@pytest.mark.parametrize("word", ["café", "Ärger", "naïve", "Tiếng", "Ελλάδα", "й", "각"])
def test_composed_and_decomposed_accents_give_the_same_token(word):
    composed, decomposed = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert tokenize(composed) == tokenize(decomposed) == [composed.lower()]


@pytest.mark.parametrize("word", ["ẹ́kọ́", "ǭ̀", "m̃b", "İstanbul"])
def test_accents_without_a_composed_form_stay_in_their_word(word):
    for form in ("NFC", "NFD"):
        assert len(tokenize(unicodedata.normalize(form, word))) == 1


@pytest.mark.parametrize("text", ["👍", "a👍b", "👍👍"])
def test_emoji_are_tokens_of_their_own(text):
    assert tokenize(text) == list(text)


def test_emoji_made_of_parts_lose_no_part():
    assert {"👩", "👧"} <= set(tokenize("👩\u200d👧"))
    assert tokenize("👍🏽") == ["👍", "🏽"]


def test_control_characters_separate_words():
    assert tokenize("a\tb\nc\rd\x0be\x0cf\x85g\u2028h\xa0i\u3000j") == list("abcdefghij")
    for invisible in "\x00\x07\x1b\x7f\u200b\ufeff":
        tokens = tokenize(f"one{invisible}two")
        assert tokens[0] == "one" and tokens[-1] == "two"


@pytest.mark.parametrize("text", ["", " ", " \t\n\u3000\xa0"])
def test_text_without_tokens_gives_an_empty_list(text):
    assert tokenize(text) == []


@pytest.mark.parametrize("text", [None, 1, b"bytes", ["a", "list"], ("a",)])
def test_what_is_not_a_str_is_refused(text):
    with pytest.raises(TypeError, match=f"text must be a str, got {type(text).__name__}"):
        tokenize(text)


@repeatable
@given(st.text(VISIBLE))
def test_only_white_space_is_lost(text):
    tokens = tokenize(text)
    assert "".join(tokens) == spaceless(text)
    assert all(token and not any(char.isspace() for char in token) for token in tokens)


@repeatable
@given(st.text(st.one_of(st.sampled_from("aB1.-'’_ é\u0301好，👍!"), VISIBLE)))
def test_tokens_are_tokens_again(text):
    tokens = tokenize(text)
    assert [tokenize(token) for token in tokens] == [[token] for token in tokens]


@repeatable
@given(st.text(), st.text())
def test_white_space_separates(left, right):
    assert tokenize(f"{left} {right}") == tokenize(left) + tokenize(right)


@pytest.mark.parametrize("split", SPLITS)
def test_every_gap_sentence_is_split_at_its_spaces(split):
    sentences = [example.text for example in load_gap(split)]
    assert len(sentences) > 1000
    assert [s for s in sentences if tokenize(s) != s.split()] == []


@pytest.mark.parametrize("split", SPLITS)
def test_every_line_of_verse_is_split_into_characters(split):
    lines = [line for couplet in load_couplets(split) for line in couplet]
    assert len(lines) > 1000
    assert [line for line in lines if tokenize(line) != list(line)] == []


# --- Vocabulary -----------------------------------------------------------------------------


def test_ids_follow_falling_counts_then_spelling():
    vocabulary = Vocabulary([["b", "a", "d"], ["b", "c", "d"], ["b"]])
    assert vocabulary.tokens == ["<pad>", "<unk>", "b", "d", "a", "c"]
    assert (vocabulary.pad_id, vocabulary.unk_id, len(vocabulary)) == (0, 1, 6)
    assert vocabulary.encode(["c", "b", "never", "a"]) == [5, 2, 1, 4]
    assert vocabulary.decode([5, 2, 1, 0]) == ["c", "b", "<unk>", "<pad>"]
    assert "a" in vocabulary and "never" not in vocabulary


def test_spelling_is_compared_by_code_point_on_every_machine():
    words = ["é", "z", "好", "Z", "a", "👍", "-"]
    assert Vocabulary([words]).tokens[2:] == ["-", "Z", "a", "z", "é", "好", "👍"]


@repeatable
@given(st.lists(WORDS, max_size=8), st.integers(0, 99))
def test_the_order_of_the_texts_changes_nothing(sentences, seed):
    shuffled = [random.Random(seed).sample(s, len(s)) for s in sentences]
    random.Random(seed).shuffle(shuffled)
    vocabulary = Vocabulary(sentences)
    assert vocabulary.tokens == Vocabulary(shuffled).tokens
    assert vocabulary.tokens == Vocabulary(tuple(s) for s in shuffled).tokens  # read once


@repeatable
@given(st.lists(WORDS, max_size=8), st.integers(1, 4))
def test_counts_fall_and_rare_tokens_are_left_out(sentences, min_count):
    flat = [token for sentence in sentences for token in sentence]
    tokens = Vocabulary(sentences, min_count).tokens
    assert set(tokens[2:]) == {token for token in flat if flat.count(token) >= min_count}
    assert len(set(tokens)) == len(tokens)
    keys = [(-flat.count(token), token) for token in tokens[2:]]
    assert keys == sorted(keys)


@repeatable
@given(st.lists(WORDS, max_size=6))
def test_known_tokens_come_back(sentences):
    vocabulary = Vocabulary(sentences)
    for sentence in sentences:
        ids = vocabulary.encode(sentence)
        assert all(i >= 2 for i in ids)
        assert vocabulary.decode(ids) == sentence
        assert vocabulary.decode(torch.tensor(ids, dtype=torch.int32)) == sentence


def test_min_count_is_the_smallest_count_that_stays():
    texts = [["a", "a", "a", "b", "b", "c"]]
    assert Vocabulary(texts, min_count=2).tokens == [PAD, UNK, "a", "b"]
    assert Vocabulary(texts, min_count=4).tokens == [PAD, UNK]
    assert Vocabulary(texts, min_count=2).encode(["c"]) == [1]


def test_special_tokens_in_the_text_get_no_second_id():
    vocabulary = Vocabulary([["<unk>", "a", "<pad>", "<pad>", "<PAD>"]])
    assert vocabulary.tokens == ["<pad>", "<unk>", "<PAD>", "a"]
    assert vocabulary.encode(["<pad>", "<unk>"]) == [0, 1]
    assert tokenize("<pad>") == ["<", "pad", ">"]  # typed text cannot pass for padding


def test_no_texts_leave_the_special_tokens():
    for nothing in ([], [[]], iter([])):
        vocabulary = Vocabulary(nothing)
        assert vocabulary.tokens == [PAD, UNK] and vocabulary.encode(["a"]) == [1]
    assert vocabulary.encode([]) == [] and vocabulary.decode([]) == []


@pytest.mark.parametrize("sentences", ["a text", ["a text"], [["a"], "text"], [["a"], 3], None, 3])
def test_texts_that_are_not_token_lists_are_refused_saying_what_to_do(sentences):
    with pytest.raises(TypeError, match=r"expected .*list.* of tokens.*tokenize"):
        Vocabulary(sentences)


@pytest.mark.parametrize("sentence", [[1, "a"], ["a", None], [["a"]], b"abc"], ids=repr)
def test_tokens_that_are_not_str_are_refused(sentence):
    for use in (lambda: Vocabulary([sentence]), lambda: Vocabulary([["a"]]).encode(sentence)):
        with pytest.raises(TypeError, match="token"):
            use()


@pytest.mark.parametrize("tokens", ["a text", "", None, 3])
def test_encode_refuses_what_is_not_a_token_list(tokens):
    with pytest.raises(TypeError, match=r"expected a list of tokens.*tokenize\(text\)"):
        Vocabulary([["a"]]).encode(tokens)


@pytest.mark.parametrize("min_count", [0, -1])
def test_a_min_count_below_1_is_refused(min_count):
    with pytest.raises(ValueError, match=f"min_count must be at least 1, got {min_count}"):
        Vocabulary([["a"]], min_count)


@pytest.mark.parametrize("min_count", [1.5, "2", None, True])
def test_a_min_count_that_is_not_an_int_is_refused(min_count):
    with pytest.raises(TypeError, match="min_count must be"):
        Vocabulary([["a"]], min_count)


@pytest.mark.parametrize("ids", [[3], [-1], [0, 99], torch.tensor([2, 3])])
def test_decode_refuses_ids_outside_the_vocabulary(ids):
    with pytest.raises(ValueError, match="ids must lie in 0 to 2, got"):
        Vocabulary([["a"]]).decode(ids)


@pytest.mark.parametrize("ids", [[1.7], ["2"], "21", [True], torch.tensor([1.7]), None, 3],
                         ids=repr)  # fmt: skip
def test_decode_refuses_what_are_not_ids(ids):
    with pytest.raises(TypeError, match="ids must be"):
        Vocabulary([["a"]]).decode(ids)


@pytest.mark.parametrize("ids", [torch.tensor([[2, 1]]), torch.tensor(2)], ids=["2-D", "0-D"])
def test_decode_refuses_tensors_of_other_shapes(ids):
    with pytest.raises(ValueError, match="ids must"):
        Vocabulary([["a"]]).decode(ids)


# --- Padding --------------------------------------------------------------------------------


def test_shorter_sequences_are_filled_up_at_the_end():
    ids = pad_batch([[5, 6, 7], [], [8]])
    assert ids.dtype == torch.int64
    assert ids.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert pad_batch([[5], [6, 7]], pad_id=-100).tolist() == [[5, -100], [6, 7]]
    assert pad_batch([[5]], length=3).tolist() == [[5, 0, 0]]
    assert pad_batch([(1, 2), range(3)]).tolist() == [[1, 2, 0], [0, 1, 2]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_sequences_may_be_tensors(dtype):
    ids = pad_batch([torch.tensor([1, 2], dtype=dtype), torch.tensor([3], dtype=dtype)])
    assert ids.dtype == torch.int64 and ids.tolist() == [[1, 2], [3, 0]]


@repeatable
@given(
    st.lists(st.lists(st.integers(1, 50), max_size=7), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 4)),
)
def test_padding_loses_and_invents_nothing(sequences, more):
    longest = max(map(len, sequences))
    ids = pad_batch(sequences, length=None if more is None else longest + more)
    assert ids.shape == (len(sequences), longest + (more or 0))
    for row, sequence in zip(ids.tolist(), sequences, strict=True):
        assert row == sequence + [0] * (ids.size(1) - len(sequence))
    assert [row[row != 0].tolist() for row in ids] == sequences


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="sequences is empty.*at least one"):
        pad_batch([])


@pytest.mark.parametrize("length", [2, 0, -1])
def test_sequences_longer_than_length_are_refused_not_cut(length):
    with pytest.raises(ValueError, match=f"has 3 ids, but length={length}; cut it first"):
        pad_batch([[1], [1, 2, 3]], length=length)


@pytest.mark.parametrize(
    "sequences",
    [[[1.5, 2.0]], [["a"]], ["12"], [[True]], [torch.tensor([1.5])], [1, 2], [[1], None], None],
    ids=repr,
)
def test_sequences_that_do_not_hold_integers_are_refused(sequences):
    with pytest.raises(TypeError, match="sequences must"):
        pad_batch(sequences)


@pytest.mark.parametrize("pad_id", [True, 0.5, None, "0"])
def test_a_pad_id_that_is_not_an_int_is_refused(pad_id):
    with pytest.raises(TypeError, match="pad_id must be"):
        pad_batch([[1], [2, 3]], pad_id=pad_id)


# --- Batches --------------------------------------------------------------------------------


def numbered(n, seed=0):
    """n sequences, each with its own first id, and labels that follow from it."""
    draw = random.Random(seed)
    sequences = [[i + 1] * draw.randint(1, 20) for i in range(n)]
    return sequences, [3 * (i + 1) for i in range(n)]


def cells_of_padding(made):
    return sum(int((~batch.keep_mask).sum()) for batch in made)


def firsts(made):
    return [int(i) for batch in made for i in batch.ids[:, 0]]


def test_a_batch_by_hand():
    (first, second) = batches([[4, 5], [6], [7, 8, 9]], labels=[1, 0, 2], batch_size=2)
    assert isinstance(first, Batch)
    assert first.ids.tolist() == [[4, 5], [6, 0]]
    assert first.keep_mask.tolist() == [[True, True], [True, False]]
    assert first.labels.tolist() == [1, 0]
    assert (first.ids.dtype, first.keep_mask.dtype, first.labels.dtype) == (
        torch.int64, torch.bool, torch.int64,
    )  # fmt: skip
    assert second.ids.tolist() == [[7, 8, 9]] and second.labels.tolist() == [2]


@repeatable
@given(
    n=st.integers(0, 70),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**32),
    labelled=st.booleans(),
)
def test_every_example_comes_once_with_its_own_label(n, batch_size, shuffle, seed, labelled):
    sequences, labels = numbered(n)
    made = batches(sequences, labels if labelled else None, batch_size, shuffle, seed)
    assert sorted(firsts(made)) == list(range(1, n + 1))
    assert all(len(batch.ids) <= batch_size for batch in made)
    assert sum(len(batch.ids) < batch_size for batch in made) <= 1
    for batch in made:
        for row, keep in zip(batch.ids, batch.keep_mask, strict=True):
            assert row[keep].tolist() == sequences[int(row[0]) - 1]
        assert torch.equal(batch.keep_mask, keep_mask_from_ids(batch.ids))
        assert batch.keep_mask.any(0).all()  # no column of padding alone
        if labelled:
            assert batch.labels.tolist() == (3 * batch.ids[:, 0]).tolist()
        else:
            assert batch.labels is None


def test_masks_come_from_lengths_so_pad_ids_inside_a_text_stay():
    (batch,) = batches([[7, 0, 7], [7]])
    assert batch.keep_mask.tolist() == [[True, True, True], [True, False, False]]


def test_pad_id_fills_the_batches():
    (batch,) = batches([[1, 2], [3]], pad_id=9)
    assert batch.ids.tolist() == [[1, 2], [3, 9]]
    assert batch.keep_mask.tolist() == [[True, True], [True, False]]


def test_empty_sequences_become_fully_padded_rows():
    (batch,) = batches([[], [5, 6]], labels=[1, 2])
    assert batch.ids.tolist() == [[0, 0], [5, 6]]
    assert batch.keep_mask.tolist() == [[False, False], [True, True]]


def test_without_shuffle_the_order_is_that_of_the_input():
    sequences, labels = numbered(100)
    made = batches(sequences, labels, batch_size=7)
    assert firsts(made) == list(range(1, 101))
    again = batches(sequences, labels, batch_size=7, seed=99)
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(made, again, strict=True))


def test_shuffling_is_decided_by_the_seed_alone():
    sequences, labels = numbered(300)

    def order(seed):
        return firsts(batches(sequences, labels, 8, shuffle=True, seed=seed))

    first = order(1)
    torch.manual_seed(123)
    random.seed(123)
    assert order(1) == first
    assert len({tuple(order(seed)) for seed in range(10)}) == 10
    assert first != sorted(first)


@pytest.mark.parametrize("n", [64, 2000])  # one pool of 50 batches, and several
def test_another_seed_gives_other_neighbours(n):
    sequences = [[i, i] for i in range(1, n + 1)]  # all of one length: chance alone decides
    first, second = (
        {frozenset(firsts([batch])) for batch in batches(sequences, None, 8, True, seed)}
        for seed in (1, 2)
    )
    assert len(first & second) <= 1


def test_the_two_shuffles_are_independent():
    """A permutation applied twice leaves two examples at their place, a fair one leaves one."""
    sequences = [[i] for i in range(50)]
    stayed = sum(
        place == example
        for seed in range(200)
        for place, example in enumerate(firsts(batches(sequences, None, 1, True, seed)))
    )
    assert 140 < stayed < 260


@pytest.mark.parametrize("seed", [None, "1", 1.5])
def test_a_seed_that_is_not_an_int_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be"):
        batches([[1], [2]], shuffle=True, seed=seed)


@pytest.mark.parametrize("length", [2.0, "2", True])
def test_a_length_that_is_not_an_int_is_refused(length):
    with pytest.raises(TypeError, match="length must be"):
        pad_batch([[1]], length=length)


def test_shuffling_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    batches(numbered(50)[0], shuffle=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_sequences_and_labels_are_left_as_they_were():
    sequences, labels = numbered(60)
    batches(sequences, labels, 8, shuffle=True)
    assert (sequences, labels) == numbered(60)


def test_bucketing_saves_nine_tenths_of_the_padding():
    sequences, _ = numbered(2000)
    plain = cells_of_padding(batches(sequences, batch_size=16))
    bucketed = cells_of_padding(batches(sequences, batch_size=16, shuffle=True))
    assert plain > 15_000
    assert bucketed < plain / 10


@pytest.mark.parametrize("n", [800, 3000])  # one pool of 50 batches, and several
def test_lengths_are_mixed_over_the_epoch(n):
    made = batches(numbered(n)[0], batch_size=16, shuffle=True)
    longest = [batch.ids.size(1) for batch in made]
    half = len(longest) // 2
    assert abs(sum(longest[:half]) / half - sum(longest[half:]) / (len(longest) - half)) < 4
    for batch in made:  # while a batch holds sentences of similar length
        lengths = batch.keep_mask.sum(1)
        assert int(lengths.max() - lengths.min()) <= 3


def test_batches_of_real_sentences_hold_the_sentences():
    examples = load_gap("validation")[:500]
    tokens = [tokenize(example.text) for example in examples]
    vocabulary = Vocabulary(tokens)
    made = batches(
        [vocabulary.encode(t) for t in tokens], [e.label for e in examples], 32, shuffle=True
    )
    seen = [
        (" ".join(vocabulary.decode(row[keep])), int(label))
        for batch in made
        for row, keep, label in zip(*batch, strict=True)
    ]
    assert sorted(seen) == sorted((e.text, e.label) for e in examples)


@pytest.mark.parametrize("labels", [[1], [1, 2, 3], []])
def test_labels_of_another_number_are_refused_naming_both(labels):
    with pytest.raises(ValueError, match=f"2 sequences, but {len(labels)} labels"):
        batches([[1], [2]], labels)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_1_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch_size must be at least 1, got {batch_size}"):
        batches([[1]], batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1.5, "2", None, True])
def test_a_batch_size_that_is_not_an_int_is_refused(batch_size):
    with pytest.raises(TypeError, match="batch_size must be"):
        batches([[1], [2]], batch_size=batch_size)


def test_no_sequences_make_no_batches():
    assert batches([]) == [] and batches([], [], shuffle=True) == []
