"""From ids to the encoder's input: token embeddings and positions.

Axes: B batch, L length, D = d_model. Built in chapters 01 and 02.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

POSITION_KINDS = ("sinusoidal", "learned", None)


def require_int(**numbers):
    """Refuse numbers that are not whole.

    Raises: TypeError naming the argument for anything but an int; bool is not one.
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number (int), got {number!r}")


def require_positive(**sizes):
    """Refuse sizes that are not whole numbers of at least 1.

    Raises: TypeError for anything but an int, ValueError below 1; both name the argument.
    """
    require_int(**sizes)
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def require_dropout(dropout):
    """Refuse a dropout rate outside [0, 1).

    Raises: ValueError naming the rate; at 1 every number would be dropped. TypeError for
        anything but a number.
    """
    if not isinstance(dropout, int | float):
        raise TypeError(f"dropout must be a number from 0 to below 1, got {dropout!r}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


def require_ids(ids):
    """Refuse anything but a 2-D integer tensor of ids, shape (B, L).

    Raises: TypeError for another type or dtype, ValueError for another number of axes.
    """
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"ids must be an integer tensor of shape (B, L), got {type(ids).__name__}")
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise TypeError(f"ids must hold integers, got {ids.dtype}; were the features passed in?")
    if ids.dim() != 2:
        raise ValueError(
            f"ids must have two axes (B, L), got shape {tuple(ids.shape)}; "
            "one sentence alone is ids.unsqueeze(0)"
        )


def require_features(x, d_model):
    """Refuse anything but floating-point features of shape (B, L, d_model).

    Raises: TypeError for another type or dtype, ValueError naming both shapes otherwise.
    """
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor (B, L, {d_model}), got {kind}")
    if x.dim() != 3 or x.size(-1) != d_model:
        raise ValueError(
            f"x must have shape (B, L, d_model={d_model}), got {tuple(x.shape)}"
        )


def require_length(length, max_len):
    """Refuse a sequence longer than the table of positions.

    Raises: ValueError naming both numbers and the remedy.
    """
    if length > max_len:
        raise ValueError(
            f"the sequence has length {length}, but max_len={max_len}: "
            f"build the module with max_len={length} or more, or cut the sequence"
        )


class TokenEmbedding(nn.Module):
    """One learned row per token id: (B, L) ids -> (B, L, D) features.

    Rows start as N(0, 1/d_model), the row of ``pad_id`` as zeros, which no gradient ever
    changes. With ``scale`` the rows are multiplied by sqrt(d_model) on the way out, so that
    the features start with RMS 1 (Vaswani et al. 2017, section 3.4).

    Args:
        vocab_size: number of ids; ids run from 0 to vocab_size - 1.
        d_model: width D of the features.
        pad_id: the id of padding, or None when no row is padding.
        scale: multiply by sqrt(d_model).

    Raises:
        ValueError, TypeError: sizes below 1 or not int; pad_id outside the vocabulary or not
            int; ids that are not a 2-D integer tensor.
        IndexError: an id outside the vocabulary (on the CPU; a GPU stops with an assertion).
    """

    def __init__(self, vocab_size, d_model, pad_id=0, scale=True):
        super().__init__()
        require_positive(vocab_size=vocab_size, d_model=d_model)
        if pad_id is not None:
            require_int(pad_id=pad_id)
            if not 0 <= pad_id < vocab_size:
                raise ValueError(f"pad_id must be None or 0 to {vocab_size - 1}, got {pad_id}")
        self.pad_id = pad_id
        self.factor = math.sqrt(d_model) if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        """Draw the rows anew: N(0, 1/d_model), zeros for padding."""
        self.weight.normal_(std=self.weight.size(1) ** -0.5)
        if self.pad_id is not None:
            self.weight[self.pad_id] = 0.0

    def forward(self, ids):
        """ids: integers (B, L). Returns features (B, L, D)."""
        require_ids(ids)
        ids = ids.long()
        try:
            rows = F.embedding(ids, self.weight, padding_idx=self.pad_id)  # (B, L, D)
        except IndexError as error:
            seen, last = f"{int(ids.min())} to {int(ids.max())}", self.weight.size(0) - 1
            raise IndexError(f"ids must lie in 0 to {last}, got {seen}") from error
        return rows * self.factor


def sinusoidal_table(length, d_model):
    """Sines and cosines of the positions 0 to length - 1, shape (length, D), float64.

    Dimensions 2i and 2i + 1 are the sine and the cosine of position / 10000^(2i / d_model)
    (Vaswani et al. 2017, section 3.5). For odd d_model the last sine has no cosine beside it.

    Raises: ValueError or TypeError when a size is not a whole number of at least 1.
    """
    require_positive(length=length, d_model=d_model)
    position = torch.arange(length, dtype=torch.float64)              # (L,)
    pair = torch.arange(d_model, dtype=torch.float64).div(2).floor()  # (D,)  0 0 1 1 2 2 ...
    frequency = 10000.0 ** (-2 * pair / d_model)                      # (D,)
    angle = torch.outer(position, frequency)                          # (L, D)
    table = angle.sin()
    table[:, 1::2] = angle[:, 1::2].cos()
    return table


class SinusoidalPositionalEncoding(nn.Module):
    """Add fixed sinusoids to the features: (B, L, D) -> (B, L, D).

    ``table`` is (max_len, D): computed in float64, kept in the default dtype, cast to the
    dtype of the input. It has no parameters and is not part of the state dict, so that
    checkpoints fit models with another ``max_len`` (Vaswani et al. 2017, section 3.5).

    Raises:
        ValueError, TypeError: sizes below 1 or not int; x that is not (B, L, D) floating
            point; L above max_len.
    """

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        require_positive(d_model=d_model, max_len=max_len)
        self.d_model, self.max_len = d_model, max_len
        table = sinusoidal_table(max_len, d_model).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)  # (max_len, D)

    def forward(self, x):
        """x: features (B, L, D). Returns x plus the first L rows of the table."""
        require_features(x, self.d_model)
        require_length(x.size(1), self.max_len)
        if x.dtype == torch.float64:  # full precision, computed: some devices store no float64
            return x + sinusoidal_table(x.size(1), self.d_model).to(x.device)
        return x + self.table[: x.size(1)].to(x.dtype)  # (B, L, D) + (L, D)


class LearnedPositionalEmbedding(nn.Module):
    """Add one learned row per position to the features: (B, L, D) -> (B, L, D).

    Rows start as N(0, 1/2), so that they are as loud as the sinusoids (RMS 0.707); the paper
    and BERT leave this choice open (Gehring et al. 2017; Vaswani et al. 2017, table 3 (E)).

    Raises: as SinusoidalPositionalEncoding; there is no row beyond max_len to fall back on.
    """

    def __init__(self, d_model, max_len=512):
        super().__init__()
        require_positive(d_model=d_model, max_len=max_len)
        self.d_model, self.max_len = d_model, max_len
        self.weight = nn.Parameter(torch.empty(max_len, d_model))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        """Draw the rows anew: N(0, 1/2)."""
        self.weight.normal_(std=0.5**0.5)

    def forward(self, x):
        """x: features (B, L, D). Returns x plus the first L rows of the weight."""
        require_features(x, self.d_model)
        require_length(x.size(1), self.max_len)
        return x + self.weight[: x.size(1)].to(x.dtype)  # (B, L, D) + (L, D)


class InputEmbedding(nn.Module):
    """Everything before the first encoder layer: tokens plus positions, then dropout.

    (B, L) ids -> (B, L, D) features. Scaling the tokens and adding positions are separate
    switches: ``positions=None`` leaves the scaling as it is. Positions are added at padding
    too; masks, not zeros, keep padding out (Vaswani et al. 2017, sections 3.4, 3.5, 5.4).

    Args:
        positions: "sinusoidal", "learned" or None. ``max_len`` limits L for the first two.
        dropout: rate at which features are dropped in training mode.
        scale: multiply the token rows by sqrt(d_model).

    Raises: ValueError for unknown ``positions``, dropout outside [0, 1), max_len below 1, and
        whatever the parts raise.
    """

    def __init__(
        self, vocab_size, d_model, max_len=5000, pad_id=0, positions="sinusoidal", dropout=0.1,
        scale=True,
    ):
        super().__init__()
        require_positive(max_len=max_len)
        require_dropout(dropout)
        if positions not in POSITION_KINDS:
            raise ValueError(f"positions must be one of {POSITION_KINDS}, got {positions!r}")
        self.tokens = TokenEmbedding(vocab_size, d_model, pad_id, scale)
        self.positions = nn.Identity()
        if positions == "sinusoidal":
            self.positions = SinusoidalPositionalEncoding(d_model, max_len)
        if positions == "learned":
            self.positions = LearnedPositionalEmbedding(d_model, max_len)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        """ids: integers (B, L). Returns features (B, L, D)."""
        return self.dropout(self.positions(self.tokens(ids)))
