"""Answers to the exercises of chapter 11."""

import re

import torch
from torch.nn import functional as F

from answers import right, wrong
from encoder_lib.pretrained import bert_names

WRONG_VALUES = {
    "11.1": {"no_entrance": 384, "no_biases": 196, "weights_of_layers_only": 197, "no_norms": 293,
             "pooler": 391, "position_ids": 390},
}  # fmt: skip

# --- pieces of words ------------------------------------------------------------------------------

PIECES = "word_pieces"


@right(PIECES)
def pieces_by_recursion(word, known, mark=""):
    if not word:
        return ()
    for end in range(len(word), 0, -1):
        if mark + word[:end] in known:
            rest = pieces_by_recursion(word[end:], known, "##")
            return ("[UNK]",) if "[UNK]" in rest else (mark + word[:end], *rest)
    return ("[UNK]",)


@right(PIECES)
def pieces_from_sorted_vocabulary(word, known):
    out, rest = [], word
    while rest:
        fit = [k for k in known if k.startswith("##") == bool(out)
               and rest.startswith(k.replace("##", ""))]  # fmt: skip
        if not fit:
            return ["[UNK]"]
        out.append(max(fit, key=len))
        rest = rest[len(out[-1].replace("##", "")) :]
    return out


@wrong(PIECES, "shortest_first")
def shortest_piece(word, known):
    out, start = [], 0
    while start < len(word):
        for end in range(start + 1, len(word) + 1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in known:
                out.append(piece)
                start = end
                break
        else:
            return ["[UNK]"]
    return out


@wrong(PIECES, "without_marks")
def forgets_the_marks(word, known):
    out = []
    while word:
        n = len(word)
        while n and word[:n] not in known:
            n -= 1
        if n == 0:
            return ["[UNK]"]
        out.append(word[:n])
        word = word[n:]
    return out


@wrong(PIECES, "without_marks")
def marks_only_the_result(word, known):
    out = forgets_the_marks(word, known)
    return out[:1] + ["##" + piece for piece in out[1:]]


@wrong(PIECES, "marks_dropped")
def returns_bare_pieces(word, known):
    return [piece.replace("##", "") for piece in pieces_by_recursion(word, known)]


@wrong(PIECES, "all_marked")
def marks_the_first_too(word, known):
    out, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and "##" + word[start:end] not in known:
            end -= 1
        if end == start:
            return ["[UNK]"]
        out.append("##" + word[start:end])
        start = end
    return out


@wrong(PIECES, "all_marked")
def marks_every_result(word, known):
    out = pieces_from_sorted_vocabulary(word, known)
    return out if out == ["[UNK]"] else ["##" + piece.replace("##", "") for piece in out]


def greedy(word, known, give_up):
    out, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and ("##" * (start > 0)) + word[start:end] not in known:
            end -= 1
        if end == start:
            if give_up(out):
                return out
            end = start + 1
        else:
            out.append(("##" * (start > 0)) + word[start:end])
        start = end
    return out


@wrong(PIECES, "partial_unknown")
def appends_unk_and_stops(word, known):
    return greedy(word, known, lambda out: out.append("[UNK]") or True)


@wrong(PIECES, "drops_rest")
def just_breaks(word, known):
    return greedy(word, known, lambda out: True)


@wrong(PIECES, "unknown_letter")
def unk_for_a_letter(word, known):
    return greedy(word, known, lambda out: out.append("[UNK]"))


@wrong(PIECES, "unknown_letter")
def leaves_a_letter_out(word, known):
    return greedy(word, known, lambda out: False)


@wrong(PIECES, "endless")
def stands_still(word, known):
    out, start = [], 0
    while start < len(word):
        end = len(word)
        while end > start and ("##" * (start > 0)) + word[start:end] not in known:
            end -= 1
        if end > start:
            out.append(("##" * (start > 0)) + word[start:end])
        start = end
    return out


@wrong(PIECES, "endless")
def recursion_without_end(word, known):
    for end in range(len(word), 0, -1):
        if word[:end] in known:
            return [word[:end], *recursion_without_end(word[end:], known)]
    return recursion_without_end(word, known)


@wrong(PIECES, "unknown_bare")
def a_text_for_unknown(word, known):
    out = pieces_by_recursion(word, known)
    return "[UNK]" if out == ("[UNK]",) else list(out)


@wrong(PIECES, "searches")
def goes_back(word, known, mark=""):
    for end in range(len(word), 0, -1):
        if mark + word[:end] in known:
            if end == len(word):
                return [mark + word]
            rest = goes_back(word[end:], known, "##")
            if rest != ["[UNK]"]:
                return [mark + word[:end], *rest]
    return ["[UNK]"]


@wrong(PIECES, "from_the_end")
def longest_ending(word, known):
    out = []
    while word:
        for start in range(len(word)):
            piece = word[start:] if start == 0 else "##" + word[start:]
            if piece in known:
                out = [piece, *out]
                word = word[:start]
                break
        else:
            return ["[UNK]"]
    return out


# --- cosines --------------------------------------------------------------------------------------

COSINE = "cosine_similarity"


@right(COSINE)
def torchs_own(a, b):
    return F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1)


@right(COSINE)
def with_einsum_and_outer_product(a, b):
    lengths = torch.outer(a.square().sum(1), b.square().sum(1)).sqrt()
    return torch.einsum("md,nd->mn", a, b) / lengths


@right(COSINE)
def with_loops(a, b):
    return torch.stack(
        [torch.stack([x @ y / (x @ x).sqrt() / (y @ y).sqrt() for y in b]) for x in a]
    )


@wrong(COSINE, "no_norm")
def dot_products(a, b):
    return torch.einsum("md,nd->mn", a, b)


@wrong(COSINE, "one_side")
def queries_of_length_one(a, b):
    return F.normalize(a, dim=-1) @ b.T


@wrong(COSINE, "norm_axis")
def normalises_columns(a, b):
    return F.normalize(a, dim=0) @ F.normalize(b, dim=0).T


@wrong(COSINE, "whole_norm")
def one_norm_for_all(a, b):
    return (a / torch.norm(a)) @ (b / torch.norm(b)).T


@wrong(COSINE, "no_root")
def squared_lengths(a, b):
    return a @ b.T / ((a * a).sum(1)[:, None] * (b * b).sum(1))


@wrong(COSINE, "other_norm")
def sums_of_absolutes(a, b):
    return F.normalize(a, p=1, dim=1) @ F.normalize(b, p=1, dim=1).T


@wrong(COSINE, "pairs_only")
def row_by_row(a, b):
    return F.cosine_similarity(a, b, dim=1)


@wrong(COSINE, "pairs_only")
def row_by_row_by_hand(a, b):
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


@wrong(COSINE, "transposed")
def b_asks(a, b):
    return F.normalize(b, dim=1) @ F.normalize(a, dim=1).T


@wrong(COSINE, "distance")
def cosine_distance(a, b):
    return 1.0 - torchs_own(a, b)


@wrong(COSINE, "gradient")
def lengths_detached(a, b):
    return (a / a.norm(dim=-1, keepdim=True).detach()) @ F.normalize(b, dim=-1).T


@wrong(COSINE, "mutates")
def normalises_in_place(a, b):
    a /= a.norm(dim=-1, keepdim=True)
    return a @ F.normalize(b, dim=-1).T


# --- names of a checkpoint ------------------------------------------------------------------------

NAMES = "checkpoint_name"
PAIRS = (
    ("encoder.layers.", "encoder.layer."), ("attention.w_q", "attention.self.query"),
    ("attention.w_k", "attention.self.key"), ("attention.w_v", "attention.self.value"),
    ("attention.w_o", "attention.output.dense"), ("norm_1", "attention.output.LayerNorm"),
    ("feed_forward.w_1", "intermediate.dense"), ("feed_forward.w_2", "output.dense"),
    ("norm_2", "output.LayerNorm"), ("embedding.tokens", "embeddings.word_embeddings"),
    ("embedding.positions", "embeddings.position_embeddings"),
    ("types", "embeddings.token_type_embeddings"), ("embedding_norm", "embeddings.LayerNorm"),
)  # fmt: skip


def replaced(name, pairs=PAIRS):
    for ours, theirs in pairs:
        name = name.replace(ours, theirs)
    return name


def with_changes(name, changes):
    return replaced(name, [(ours, changes.get(ours, theirs)) for ours, theirs in PAIRS])


right(NAMES)(replaced)


@right(NAMES)
def by_regular_expression(name):
    found = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    table = dict(PAIRS)
    if found is None:
        part, _, kind = name.rpartition(".")
        return f"{table[part]}.{kind}"
    return f"encoder.layer.{found[1]}.{table[found[2]]}.{found[3]}"


@wrong(NAMES, "direction")
def reads_the_table_backwards(name):
    return replaced(name, [(theirs, ours) for ours, theirs in PAIRS[1:]])


@wrong(NAMES, "query_key")
def query_and_key(name):
    return with_changes(name, {"attention.w_q": "attention.self.key",
                               "attention.w_k": "attention.self.query"})  # fmt: skip


@wrong(NAMES, "norms_swapped")
def norm_1_last(name):
    return with_changes(name, {"norm_1": "output.LayerNorm",
                               "norm_2": "attention.output.LayerNorm"})  # fmt: skip


@wrong(NAMES, "outputs_swapped")
def w_o_and_w_2(name):
    return with_changes(name, {"attention.w_o": "output.dense",
                               "feed_forward.w_2": "attention.output.dense"})  # fmt: skip


@wrong(NAMES, "ambiguous")
def both_norms_output(name):
    return with_changes(name, {"norm_1": "output.LayerNorm"})


@wrong(NAMES, "ambiguous")
def both_outputs_output(name):
    return with_changes(name, {"norm_1": "output.LayerNorm", "attention.w_o": "output.dense"})


@wrong(NAMES, "one_digit")
def takes_one_character(name):
    if not name.startswith("encoder.layers."):
        return replaced(name)
    number, rest = name[len("encoder.layers.")], name.split(".", 3)[3]
    return f"encoder.layer.{number}." + replaced(rest)


@wrong(NAMES, "plural")
def layers_with_s(name):
    return replaced(name, PAIRS[1:])


@wrong(NAMES, "bias_lost")
def always_weight(name):
    part = replaced(name)
    return part.rsplit(".", 1)[0] + ".weight" if name.startswith("encoder.") else part


@wrong(NAMES, "entrance")
def only_layers(name):
    return replaced(name, PAIRS[:9])


@wrong(NAMES, "old_names")
def gamma_and_beta(name):
    name = replaced(name)
    return re.sub(
        "LayerNorm.weight", "LayerNorm.gamma", re.sub("LayerNorm.bias", "LayerNorm.beta", name)
    )


@wrong(NAMES, "raised")
def no_name_for_the_entrance(name):
    parts = name.split(".")
    table = dict(PAIRS)
    return f"encoder.layer.{parts[2]}.{table['.'.join(parts[3:-1])]}.{parts[-1]}"


# --- more of them ---------------------------------------------------------------------------------


def longest_first(word, known):
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = "##" * (start > 0) + word[start:end]
            if piece in known:
                found.append(piece)
                start = end
                break
        else:
            return None
    return found


@right("word_pieces")
def asks_the_pieces(word, known):
    """Looks for pieces in the set instead of looking up parts of the word."""
    found, rest, mark = [], word, ""
    while rest:
        fits = [p for p in known if p.startswith("##") == bool(mark)]
        fits = [p for p in fits if rest.startswith(p[len(mark) :])]
        if not fits:
            return ["[UNK]"]
        found.append(max(fits, key=len))
        rest, mark = rest[len(found[-1]) - len(mark) :], "##"
    return tuple(found)


@wrong("word_pieces", "unknown_otherwise")
def nothing_for_unknown(word, known):
    return longest_first(word, known) or []


@wrong("word_pieces", "unknown_otherwise")
def none_for_unknown(word, known):
    return longest_first(word, known)


@wrong("word_pieces", "length")
def two_pieces_at_most(word, known):
    for end in range(len(word), 0, -1):
        if end == len(word) and word in known:
            return [word]
        if word[:end] in known and "##" + word[end:] in known:
            return [word[:end], "##" + word[end:]]
    return ["[UNK]"]


def by_product(a, b):
    return torch.einsum("id,jd->ij", a, b) / torch.outer(a.norm(dim=1), b.norm(dim=1))


@wrong("cosine_similarity", "no_negative")
def absolute(a, b):
    return by_product(a, b).abs()


@wrong("cosine_similarity", "angle")
def angles(a, b):
    return by_product(a, b).clamp(-1, 1).arccos()


@wrong("cosine_similarity", "centred")
def correlation(a, b):
    return by_product(a - a.mean(1)[:, None], b - b.mean(1)[:, None])


@wrong("checkpoint_name", "few_layers")
def twelve_at_most(name):
    table = {ours: theirs for theirs, ours in bert_names(10).items()}
    return table[name]


@wrong("checkpoint_name", "prefix")
def with_the_model_in_front(name):
    return "bert." + {ours: theirs for theirs, ours in bert_names(24).items()}[name]
