"""Scaled dot-product attention and its multi-head form. Built in chapters 03 to 05.

Axes: B batch, L length (L_q queries, L_k keys), D = d_model, H heads, d_k = D / H.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.embedding import require_dropout, require_features, require_positive
from encoder_lib.masks import as_keep_mask, to_attention_mask


def require_qkv(q, k, v):
    """Refuse queries, keys and values that do not fit each other.

    Raises: TypeError unless all three are floating-point tensors; ValueError naming the shapes
        unless q is (..., L_q, d_k), k (..., L_k, d_k) and v (..., L_k, d_v), all with the same
        leading axes.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a floating-point tensor (..., L, d_k), got {kind}")
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.dim() < 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same axes before the last two, got {shapes}")
    if q.size(-1) != k.size(-1) or k.size(-2) != v.size(-2):
        raise ValueError(f"q and k must share d_k, and k and v their length, got {shapes}")


def as_score_mask(mask, scores_shape):
    """Return a checked bool mask that is broadcast to the scores only where it says so.

    Args:
        mask: bool or 0/1 integers, True = attend; (L_q, L_k), or as many axes as the scores,
            each equal to the scores' axis or 1.
        scores_shape: (..., L_q, L_k).

    Raises: TypeError for anything but bool or integers; ValueError for another shape, or
        integers other than 0 and 1.
    """
    if not isinstance(mask, torch.Tensor) or mask.is_floating_point() or mask.is_complex():
        kind = mask.dtype if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a bool tensor with True = attend, got {kind}")
    shape, wanted = tuple(mask.shape), tuple(scores_shape)
    same_axes = len(shape) == len(wanted)
    fits = same_axes and all(s in (1, w) for s, w in zip(shape, wanted, strict=True))
    if shape != wanted[-2:] and not fits:
        raise ValueError(
            f"mask must have shape (L_q, L_k) = {wanted[-2:]}, or one axis for each of the "
            f"scores' {wanted}, equal to it or 1; got {shape}"
        )
    if mask.dtype != torch.bool:
        if ((mask != 0) & (mask != 1)).any():
            raise ValueError(f"an integer mask may hold only 0 and 1, got {mask.unique().tolist()}")
        mask = mask != 0
    return mask


def scaled_dot_product_attention(q, k, v, mask=None, dropout_p=0.0):
    """softmax(q k^T / sqrt(d_k)) v, with every step in view.

    A query that may attend to no key gets weights and output of exactly 0, and finite gradients.

    Args:
        q: (..., L_q, d_k).  k: (..., L_k, d_k).  v: (..., L_k, d_v).
        mask: bool, True = attend; (L_q, L_k), or one axis for each of the scores', equal or 1.
        dropout_p: rate at which weights are dropped; the caller passes 0 in evaluation.

    Returns: output (..., L_q, d_v) and weights (..., L_q, L_k), the weights before dropout.

    Raises: TypeError, ValueError as require_qkv, as_score_mask and require_dropout.

    Source: Vaswani et al. 2017, equation (1).
    """
    require_qkv(q, k, v)
    require_dropout(dropout_p)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))   # (..., L_q, L_k)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        mask = as_score_mask(mask, scores.shape)
        empty = ~mask.any(dim=-1, keepdim=True)                # queries without any key
        # A row of -inf alone gives 0/0, and NaN weights make NaN gradients: those rows wait.
        scores = scores.masked_fill(~(mask | empty), -math.inf)
        weights = scores.softmax(dim=-1).masked_fill(empty, 0.0)
    return F.dropout(weights, dropout_p) @ v, weights          # (..., L_q, d_v), (..., L_q, L_k)


class MultiHeadAttention(nn.Module):
    """Self-attention in several subspaces at once: (B, L, D) -> (B, L, D).

    Initialisation: Xavier-uniform weights, zero biases.

    Args:
        d_model: width D, a multiple of n_heads.
        n_heads: number of heads H; each works on d_k = D / H numbers.
        dropout: rate at which attention weights are dropped in training mode.
        bias: whether the four linear maps have biases.

    Raises: ValueError, TypeError for sizes below 1 or not int, d_model not divisible by n_heads,
        dropout outside [0, 1), x that is not (B, L, D), a keep_mask that is not (B, L).

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model, n_heads, dropout=0.0, bias=True):
        super().__init__()
        require_positive(d_model=d_model, n_heads=n_heads)
        require_dropout(dropout)
        if d_model % n_heads != 0:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout
        self.w_q = nn.Linear(d_model, d_model, bias=bias)
        self.w_k = nn.Linear(d_model, d_model, bias=bias)
        self.w_v = nn.Linear(d_model, d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the weights anew: Xavier-uniform, biases zero."""
        for linear in (self.w_q, self.w_k, self.w_v, self.w_o):
            xavier_linear_(linear)

    def split(self, x):
        """(B, L, D) -> (B, H, L, d_k): the numbers of one head are neighbours in D."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def merge(self, x):
        """(B, H, L, d_k) -> (B, L, D): the reverse of split."""
        return x.transpose(1, 2).flatten(2)

    def forward(self, x, keep_mask=None, return_weights=False):
        """x: (B, L, D); keep_mask: bool (B, L), True = real token, hides keys.

        Returns: (B, L, D), and if asked for, the weights (B, H, L, L) of each head before
            dropout. Asking for them never changes the output.
        """
        require_features(x, self.d_model)
        mask = None
        if keep_mask is not None:
            mask = to_attention_mask(as_keep_mask(keep_mask, x.shape[:2]))   # (B, 1, 1, L)
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))  # (B, H, L, d_k)
        dropout = self.dropout if self.training else 0.0
        if return_weights:
            out, weights = scaled_dot_product_attention(q, k, v, mask, dropout)
            return self.w_o(self.merge(out)), weights            # (B, L, D), (B, H, L, L)
        return self.w_o(self.merge(fused_attention(q, k, v, mask, dropout)))  # (B, L, D)


def fused_attention(q, k, v, mask, dropout_p):
    """The output of scaled_dot_product_attention by torch's fused kernel, without weights.

    q (..., L_q, d_k), k (..., L_k, d_k), v (..., L_k, d_v); mask is bool, already checked, or
    None. Returns (..., L_q, d_v); queries without any key get zeros.
    """
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)
    empty = ~mask.any(dim=-1, keepdim=True)  # older versions of torch give NaN for such rows
    out = F.scaled_dot_product_attention(q, k, v, mask | empty, dropout_p)
    return out.masked_fill(empty, 0.0)


@torch.no_grad()
def xavier_linear_(linear):
    """Xavier-uniform weight and zero bias, in place (Glorot and Bengio 2010, equation 16)."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        linear.bias.zero_()
