"""The encoder layer, the stack, the whole model and its heads. Built in chapters 08 and 09.

Axes: B batch, L length, D = d_model, H heads, N layers.
"""

import math

import torch
from torch import nn

from encoder_lib.attention import MultiHeadAttention, xavier_linear_
from encoder_lib.embedding import (
    InputEmbedding,
    LearnedPositionalEmbedding,
    TokenEmbedding,
    require_dropout,
    require_ids,
    require_positive,
)
from encoder_lib.feed_forward import FeedForward
from encoder_lib.masks import as_keep_mask, keep_mask_from_ids
from encoder_lib.normalization import LayerNorm, RMSNorm

NORM_POSITIONS = ("pre", "post")


def require_choice(name, value, choices):
    """Refuse a value that is not one of the choices.

    Raises: ValueError naming the argument, the value and the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each with residual and LayerNorm.

    (B, L, D) -> (B, L, D). norm="pre": x + f(LN(x)) (Xiong et al. 2020); norm="post":
    LN(x + f(x)) (Vaswani et al. 2017, section 3.1). Dropout acts on the output of both parts
    (section 5.4), not inside them.

    Raises: ValueError, TypeError for an unknown norm and whatever the parts raise.
    """

    def __init__(
        self, d_model, n_heads, d_ff, dropout=0.1, norm="pre", activation="relu", eps=1e-5
    ):
        super().__init__()
        require_choice("norm", norm, NORM_POSITIONS)
        require_dropout(dropout)
        self.norm = norm
        # A buffer is saved with the weights; other than 1 only after initialize(..., "deepnorm").
        self.register_buffer("residual_scale", torch.ones(()))
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation)
        self.norm_1, self.norm_2 = LayerNorm(d_model, eps), LayerNorm(d_model, eps)
        self.dropout = nn.Dropout(dropout)

    def add(self, x, change):
        """The residual connection: x plus the dropped-out change, all (B, L, D)."""
        return x * self.residual_scale + self.dropout(change)

    def attend(self, x, keep_mask, return_weights):
        """Attention's output (B, L, D) and its weights (B, H, L, L), None unless asked for."""
        out = self.attention(x, keep_mask, return_weights)
        return out if return_weights else (out, None)

    def forward(self, x, keep_mask=None, return_weights=False):
        """x: (B, L, D); keep_mask: bool (B, L), True = real token.

        Returns: (B, L, D), and if asked for, the weights (B, H, L, L).
        """
        if self.norm == "pre":
            change, weights = self.attend(self.norm_1(x), keep_mask, return_weights)
            x = self.add(x, change)
            x = self.add(x, self.feed_forward(self.norm_2(x)))
        else:
            change, weights = self.attend(x, keep_mask, return_weights)
            x = self.norm_1(self.add(x, change))
            x = self.norm_2(self.add(x, self.feed_forward(x)))
        return (x, weights) if return_weights else x


class Encoder(nn.Module):
    """A stack of n_layers layers with weights of their own: (B, L, D) -> (B, L, D).

    A Pre-LN stack ends in a final LayerNorm, a Post-LN stack does not (Xiong et al. 2020).

    Raises: ValueError, TypeError for sizes below 1 or not int and whatever a layer raises.
    """

    def __init__(
        self, n_layers, d_model, n_heads, d_ff, dropout=0.1, norm="pre", activation="relu",
        eps=1e-5,
    ):
        super().__init__()
        require_positive(n_layers=n_layers)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, n_heads, d_ff, dropout, norm, activation, eps)
            for _ in range(n_layers)
        )
        self.final_norm = LayerNorm(d_model, eps) if norm == "pre" else nn.Identity()

    def forward(self, x, keep_mask=None, return_weights=False):
        """x: (B, L, D); keep_mask: bool (B, L), True = real token.

        Returns: (B, L, D), and if asked for, a list of N weights (B, H, L, L).
        """
        all_weights = []
        for layer in self.layers:
            x = layer(x, keep_mask, return_weights)
            if return_weights:
                x, weights = x
                all_weights.append(weights)
        x = self.final_norm(x)
        return (x, all_weights) if return_weights else x


class TransformerEncoder(nn.Module):
    """The whole model: ids (B, L) -> one vector per token (B, L, D).

    Args: as InputEmbedding and Encoder. BERT (Devlin et al. 2019) needs two more: n_types rows
        of token types, added to every token, and embedding_norm, a LayerNorm behind the sum.

    Raises: ValueError, TypeError whatever the parts raise; ValueError for types without n_types.

    Source: the left half of figure 1 in Vaswani et al. 2017.
    """

    def __init__(
        self, vocab_size, d_model, n_heads, d_ff, n_layers, max_len=5000, pad_id=0, dropout=0.1,
        norm="pre", activation="relu", positions="sinusoidal", scale=True, eps=1e-5, n_types=0,
        embedding_norm=False,
    ):
        super().__init__()
        self.d_model, self.pad_id = d_model, pad_id
        if n_types != 0:
            require_positive(n_types=n_types)
        bert = n_types != 0 or embedding_norm  # then dropout comes last, behind types and norm
        self.embedding = InputEmbedding(
            vocab_size, d_model, max_len, pad_id, positions, 0.0 if bert else dropout, scale
        )
        self.types = TokenEmbedding(n_types, d_model, None, scale) if n_types != 0 else None
        self.embedding_norm = LayerNorm(d_model, eps) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout if bert else 0.0)
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, dropout, norm, activation, eps)

    def mask_of(self, ids, keep_mask=None):
        """The checked keep_mask (B, L); made from pad_id when none is given, None without one."""
        require_ids(ids)
        if keep_mask is not None:
            return as_keep_mask(keep_mask, ids.shape)
        return None if self.pad_id is None else keep_mask_from_ids(ids, self.pad_id)

    def embed(self, ids, types=None):
        """What the first layer reads, (B, L, D): tokens, positions, types, norm, dropout."""
        x = self.embedding(ids)                                        # (B, L, D)
        if types is not None and self.types is None:
            raise ValueError("types were given to a model without types; build it with n_types")
        if self.types is not None:
            x = x + self.types(torch.zeros_like(ids) if types is None else types)
        return self.dropout(self.embedding_norm(x))                    # (B, L, D)

    def forward(self, ids, keep_mask=None, return_weights=False, types=None):
        """ids: integers (B, L); keep_mask: bool (B, L), True = real; from pad_id when None.

        types: integers (B, L) below n_types; zeros when None.

        Returns: (B, L, D), and if asked for, a list of N weights (B, H, L, L).
        """
        keep_mask = self.mask_of(ids, keep_mask)
        return self.encoder(self.embed(ids, types), keep_mask, return_weights)


def as_pooling_mask(h, keep_mask):
    """Return keep_mask as bool (B, L, 1), checked against the features h (B, L, D).

    Raises: TypeError unless h is floating-point; ValueError unless it is (B, L, D) with
        L >= 1; and as as_keep_mask.
    """
    if not isinstance(h, torch.Tensor) or not h.is_floating_point():
        kind = h.dtype if isinstance(h, torch.Tensor) else type(h).__name__
        raise TypeError(f"h must be a floating-point tensor (B, L, D), got {kind}")
    if h.dim() != 3 or h.size(1) == 0:
        raise ValueError(f"h must have shape (B, L, D) with L >= 1, got {tuple(h.shape)}")
    return as_keep_mask(keep_mask, h.shape[:2]).unsqueeze(-1)      # (B, L, 1)


def masked_mean(h, keep_mask):
    """Mean over the real tokens: (B, L, D), (B, L) -> (B, D); zeros for a row without any.

    Half precision is summed in float32: 3,000 tokens of 60 are too many for float16.

    Raises: TypeError, ValueError as as_pooling_mask.
    """
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    wide = torch.promote_types(h.dtype, torch.float32)
    total = h.masked_fill(~keep, 0.0).sum(dim=1, dtype=wide)       # (B, D)
    return (total / keep.sum(dim=1).clamp(min=1)).to(h.dtype)      # (B, D)


def masked_max(h, keep_mask):
    """Maximum over the real tokens: (B, L, D), (B, L) -> (B, D); zeros for a row without any.

    Raises: TypeError, ValueError as as_pooling_mask.
    """
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    largest = h.masked_fill(~keep, -math.inf).amax(dim=1)          # (B, D)
    return largest.masked_fill(~keep.any(dim=1), 0.0)              # (B, D)


def masked_first(h, keep_mask):
    """The first real token: (B, L, D), (B, L) -> (B, D); zeros for a row without any.

    Raises: TypeError, ValueError as as_pooling_mask.
    """
    keep = as_pooling_mask(h, keep_mask)                           # (B, L, 1)
    place = keep.int().argmax(dim=1, keepdim=True)                 # (B, 1, 1)
    first = h.take_along_dim(place, dim=1).squeeze(1)              # (B, D)
    return first.masked_fill(~keep.any(dim=1), 0.0)                # (B, D)


POOLINGS = {"mean": masked_mean, "max": masked_max, "first": masked_first}


def require_encoder(encoder):
    """Refuse anything but a model that takes ids and knows its mask, as TransformerEncoder does.

    Raises: TypeError naming what came.
    """
    if not (hasattr(encoder, "d_model") and hasattr(encoder, "mask_of")):
        kind = type(encoder).__name__
        raise TypeError(f"encoder must be a TransformerEncoder, which takes ids; got {kind}")


class EncoderClassifier(nn.Module):
    """One answer per text: ids (B, L) -> logits (B, n_classes), never a softmax.

    Args:
        encoder: a TransformerEncoder.
        pooling: "mean" or "max" over the real tokens, or "first", the first real token.
        dropout: rate at which pooled features are dropped in training mode.

    Raises: ValueError, TypeError for an encoder that takes no ids, n_classes below 1 or not
        int, unknown pooling, dropout outside [0, 1).
    """

    def __init__(self, encoder, n_classes, pooling="mean", dropout=0.1):
        super().__init__()
        require_encoder(encoder)
        require_positive(n_classes=n_classes)
        require_choice("pooling", pooling, tuple(POOLINGS))
        require_dropout(dropout)
        self.encoder, self.pooling = encoder, pooling
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.d_model, n_classes)
        xavier_linear_(self.head)

    def forward(self, ids, keep_mask=None):
        """ids: integers (B, L); keep_mask as in TransformerEncoder. Returns (B, n_classes)."""
        h = self.encoder(ids, keep_mask)                           # (B, L, D)
        keep_mask = self.encoder.mask_of(ids, keep_mask)
        if keep_mask is None:
            keep_mask = torch.ones_like(ids, dtype=torch.bool)     # (B, L)
        pooled = POOLINGS[self.pooling](h, keep_mask)              # (B, D)
        return self.head(self.dropout(pooled))                     # (B, n_classes)


class TokenClassifier(nn.Module):
    """One answer per token: ids (B, L) -> logits (B, L, n_classes), never a softmax.

    Raises: ValueError, TypeError for an encoder that takes no ids, n_classes below 1 or not
        int.
    """

    def __init__(self, encoder, n_classes):
        super().__init__()
        require_encoder(encoder)
        require_positive(n_classes=n_classes)
        self.encoder = encoder
        self.head = nn.Linear(encoder.d_model, n_classes)
        xavier_linear_(self.head)

    def forward(self, ids, keep_mask=None):
        """ids: integers (B, L); keep_mask as in TransformerEncoder. Returns (B, L, n_classes)."""
        return self.head(self.encoder(ids, keep_mask))


SCHEMES = ("xavier", "torch", "deepnorm")
DRAWN = (nn.Linear, TokenEmbedding, LearnedPositionalEmbedding, LayerNorm, RMSNorm)


def initialize(module, scheme="xavier"):
    """Draw all weights of a module anew, in place. Returns the module.

    Schemes: "xavier": Xavier-uniform linear maps, zero biases, what every module here starts
    with; "torch": what ``nn.Linear`` does by itself; "deepnorm": Xavier with the gain
    (8N)^(-1/4) on values, output projections and feed-forward maps, and residuals scaled by
    (2N)^(1/4), for Post-LN stacks of N layers (Wang et al. 2022, encoder-only). In every scheme
    embeddings are N(0, 1/d_model) with a zero row of padding, and norms scale by 1.

    Raises: ValueError for an unknown scheme, and for "deepnorm" without Post-LN layers.
    """
    require_choice("scheme", scheme, SCHEMES)
    layers = [m for m in module.modules() if isinstance(m, EncoderLayer)]
    if scheme == "deepnorm" and {layer.norm for layer in layers} != {"post"}:
        raise ValueError('"deepnorm" is made for Post-LN: build the layers with norm="post"')
    for part in module.modules():
        if isinstance(part, nn.Linear) and scheme != "torch":
            xavier_linear_(part)
        elif isinstance(part, DRAWN):
            part.reset_parameters()
    for layer in layers:
        layer.residual_scale.fill_((2 * len(layers)) ** 0.25 if scheme == "deepnorm" else 1.0)
        if scheme == "deepnorm":
            _shrink(layer, (8 * len(layers)) ** -0.25)
    return module


@torch.no_grad()
def _shrink(layer, gain):
    attention, feed_forward = layer.attention, layer.feed_forward
    for linear in (attention.w_v, attention.w_o, feed_forward.w_1, feed_forward.w_2):
        linear.weight.mul_(gain)
