"""From text to padded batches of ids. Built in chapter 01.

Axes: B batch, L length (of the longest sequence in the batch).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import torch

from encoder_lib.embedding import require_int, require_positive
from encoder_lib.masks import keep_mask_from_lengths

PAD, UNK = "<pad>", "<unk>"

_CJK = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = rf"(?:[^\W{_CJK}][\u0300-\u036f]*)+"  # a letter and the accents that have no own form
_TOKEN = re.compile(rf"[{_CJK}]|{_WORD}(?:['’.-]{_WORD})*|[^\w\s]")


def tokenize(text):
    """Split English or Chinese text into lower-case words, marks and single Chinese characters.

    A word keeps its inner apostrophes, hyphens and full stops ("don't", "well-known"). Accents
    are composed first, so that both spellings of "é" give the same token.

    Returns: list of str; empty for text without any of these. Raises: TypeError if not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    return _TOKEN.findall(unicodedata.normalize("NFC", text).lower())


class Vocabulary:
    """A fixed numbering of tokens: ids 0 and 1 are ``<pad>`` and ``<unk>``.

    The other tokens follow by falling count, then by spelling, so that the same texts in any
    order give the same ids on every machine.

    Attributes: tokens (list of str, ``tokens[id]``), pad_id (0), unk_id (1).
    """

    pad_id, unk_id = 0, 1

    def __init__(self, sentences, min_count=1):
        """sentences: iterable of token lists. Tokens seen fewer than min_count times are left out.

        Raises: TypeError if a sentence is a str (it would fall apart into letters) or a token
            is not; TypeError or ValueError if min_count is not an int of at least 1.
        """
        require_positive(min_count=min_count)
        if isinstance(sentences, str) or not isinstance(sentences, Iterable):
            raise TypeError(
                f"expected a list of lists of tokens, got {sentences!r}; use tokenize(text) first"
            )
        counts = Counter()
        for sentence in sentences:
            counts.update(_as_tokens(sentence))
        kept = [t for t in counts if counts[t] >= min_count and t not in (PAD, UNK)]
        self.tokens = [PAD, UNK, *sorted(kept, key=lambda token: (-counts[token], token))]
        self._ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self):
        return len(self.tokens)

    def __contains__(self, token):
        return token in self._ids

    def encode(self, tokens):
        """List of tokens -> list of ids; unknown tokens become unk_id.

        Raises: TypeError for a str, or a token that is not a str.
        """
        return [self._ids.get(token, self.unk_id) for token in _as_tokens(tokens)]

    def decode(self, ids):
        """List or 1-D tensor of ids -> list of tokens.

        Raises: ValueError for an id outside 0 to len - 1, TypeError for one that is not an int.
        """
        if isinstance(ids, torch.Tensor) and ids.dim() != 1:
            raise ValueError(f"ids must have one axis (L,), got shape {tuple(ids.shape)}")
        ids = _as_ids(ids, "ids")
        if any(not 0 <= i < len(self) for i in ids):
            raise ValueError(f"ids must lie in 0 to {len(self) - 1}, got {ids}")
        return [self.tokens[i] for i in ids]


def _as_tokens(tokens):
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise TypeError(f"expected a list of tokens, got {tokens!r}; use tokenize(text) first")
    tokens = list(tokens)
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"a token must be a str, got {token!r}")
    return tokens


def _as_ids(ids, name):
    ids = ids.tolist() if hasattr(ids, "tolist") else ids  # tensors and arrays
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise TypeError(f"{name} must be lists of ints, got {ids!r}")
    ids = list(ids)
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int):
            raise TypeError(f"{name} must be lists of ints, got {i!r}")
    return ids


def pad_batch(sequences, pad_id=0, length=None):
    """Lists of ids of different lengths -> one int64 tensor (B, L), filled up with pad_id.

    Args:
        sequences: B lists of ints; an empty one gives a fully padded row.
        length: L; the longest sequence when None.

    Raises: ValueError for an empty batch, or a sequence longer than ``length`` (nothing is cut
        without being asked for); TypeError for anything that is not an int.
    """
    require_int(pad_id=pad_id)
    if not isinstance(sequences, Iterable):
        raise TypeError(f"sequences must be a list of lists of ints, got {sequences!r}")
    sequences = [_as_ids(sequence, "sequences") for sequence in sequences]
    if len(sequences) == 0:
        raise ValueError("sequences is empty: a batch needs at least one sequence")
    longest = max(len(sequence) for sequence in sequences)
    length = longest if length is None else length
    require_int(length=length)
    if longest > length:
        raise ValueError(f"a sequence has {longest} ids, but length={length}; cut it first")
    ids = torch.full((len(sequences), length), pad_id, dtype=torch.long)  # (B, L)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence, dtype=torch.long)
    return ids


class Batch(NamedTuple):
    """ids (B, L) int64, keep_mask (B, L) bool from the lengths, labels (B,) or None."""

    ids: torch.Tensor
    keep_mask: torch.Tensor
    labels: torch.Tensor | None


def batches(sequences, labels=None, batch_size=32, shuffle=False, seed=0, pad_id=0):
    """Cut sequences of ids into padded batches of similar length. Returns a list of Batch.

    Sequences are sorted by length inside pools of 50 batches, so that little padding is
    computed. With ``shuffle`` the pools and the order of the batches are drawn from ``seed``;
    without it the order is that of the input and nothing is sorted.

    Raises: ValueError if there are not as many labels as sequences, or batch_size is below 1;
        TypeError if batch_size or seed is not an int.
    """
    if labels is not None and len(labels) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences, but {len(labels)} labels")
    require_positive(batch_size=batch_size)
    require_int(seed=seed)
    draw = torch.Generator().manual_seed(seed)
    order = list(range(len(sequences)))
    if shuffle:
        order = _bucketed_order([len(s) for s in sequences], batch_size, draw)
    chunks = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    if shuffle:
        chunks = [chunks[i] for i in _permutation(len(chunks), draw)]
    return [_make_batch(chunk, sequences, labels, pad_id) for chunk in chunks]


def _permutation(n, draw):
    return torch.randperm(n, generator=draw).tolist()


def _bucketed_order(lengths, batch_size, draw):
    order, pool = _permutation(len(lengths), draw), 50 * batch_size
    pools = [order[i : i + pool] for i in range(0, len(order), pool)]
    return [i for members in pools for i in sorted(members, key=lambda i: lengths[i])]


def _make_batch(chunk, sequences, labels, pad_id):
    chosen = [sequences[i] for i in chunk]
    keep_mask = keep_mask_from_lengths([len(sequence) for sequence in chosen])
    wanted = None if labels is None else torch.tensor([labels[i] for i in chunk])
    return Batch(pad_batch(chosen, pad_id), keep_mask, wanted)
