"""Padding masks, one polarity: ``keep_mask`` is bool (B, L), True = real token.

Every other convention is reached by a function that names it. Axes: B batch, L length.
"""

import torch

from encoder_lib.embedding import require_ids, require_int

KEEP = "True = real token; write mask != 0 if 1.0 means real, mask == 0 if 0.0 means real"
IGNORE = "True = ignore; write mask == 0 if 1.0 means real, mask != 0 if 0.0 means real"


def as_keep_mask(mask, shape=None, name="keep_mask", meaning=KEEP):
    """Return a checked bool mask of shape (B, L).

    Integer masks that hold only 0 and 1 are converted with ``!= 0``; only their values are
    looked at, so bool masks work under ``torch.compile(fullgraph=True)``.

    Raises:
        TypeError: not a tensor, or a floating-point mask (0.0/1.0 or 0/-inf: it is unclear
            whether it should be added or applied).
        ValueError: integers other than 0 and 1; not two axes; a shape other than ``shape``.
    """
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{name} must be a bool tensor of shape (B, L), got {type(mask).__name__}")
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"{name} must be bool, got {mask.dtype}. It needs {meaning}")
    if mask.dim() != 2:
        raise ValueError(f"{name} must have shape (B, L), got {tuple(mask.shape)}")
    if shape is not None and tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, but (B, L) is {tuple(shape)}")
    if mask.dtype == torch.bool:
        return mask
    if ((mask != 0) & (mask != 1)).any():
        raise ValueError(f"an integer {name} may hold only 0 and 1, got {mask.unique().tolist()}")
    return mask != 0


def keep_mask_from_ids(ids, pad_id=0):
    """True where ``ids`` (B, L) is not ``pad_id``. Returns keep_mask, bool (B, L).

    Raises: TypeError or ValueError when ids are not a 2-D integer tensor, TypeError when
        pad_id is not an int.
    """
    require_ids(ids)
    require_int(pad_id=pad_id)
    return ids != pad_id


def keep_mask_from_lengths(lengths, max_len=None):
    """True at the first ``lengths[b]`` positions of row b. Returns keep_mask, bool (B, L).

    Args:
        lengths: integers (B,), a tensor or a list; 0 makes a fully padded row.
        max_len: L; the largest length when None.

    Raises:
        TypeError: lengths that are not integers.
        ValueError: no lengths, more than one axis, a negative length, one above max_len.
    """
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"lengths must be integers, got {lengths!r}") from error
    if lengths.dim() != 1 or lengths.numel() == 0:
        raise ValueError(f"lengths must have shape (B,), B >= 1, got {tuple(lengths.shape)}")
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.long()
    longest = int(lengths.max())
    max_len = longest if max_len is None else max_len
    require_int(max_len=max_len)
    if int(lengths.min()) < 0 or longest > max_len:
        raise ValueError(f"lengths must lie in 0 to max_len={max_len}, got {lengths.tolist()}")
    position = torch.arange(max_len, device=lengths.device)  # (L,)
    return position < lengths.unsqueeze(1)                   # (B, L)


def to_key_padding_mask(keep_mask):
    """For ``nn.MultiheadAttention``: bool (B, L), True = ignore. Raises as as_keep_mask."""
    return ~as_keep_mask(keep_mask)


def from_key_padding_mask(key_padding_mask):
    """From ``nn.MultiheadAttention``'s (B, L), True = ignore. Raises as as_keep_mask."""
    return ~as_keep_mask(key_padding_mask, name="key_padding_mask", meaning=IGNORE)


def to_attention_mask(keep_mask):
    """For ``F.scaled_dot_product_attention``: bool (B, 1, 1, L), True = attend.

    The two axes of size 1 stand for heads and queries. Raises as as_keep_mask.
    """
    return as_keep_mask(keep_mask)[:, None, None, :]


def from_attention_mask(attention_mask):
    """From bool (B, 1, 1, L), True = attend. Returns keep_mask (B, L).

    Raises: ValueError for another shape, and as as_keep_mask.
    """
    if not isinstance(attention_mask, torch.Tensor):
        kind = type(attention_mask).__name__
        raise TypeError(f"attention_mask must be a bool tensor (B, 1, 1, L), got {kind}")
    shape = tuple(attention_mask.shape)
    if len(shape) != 4 or shape[1:3] != (1, 1):
        raise ValueError(f"attention_mask must have shape (B, 1, 1, L), got {shape}")
    return as_keep_mask(attention_mask[:, 0, 0, :], name="attention_mask")


def to_huggingface_mask(keep_mask):
    """For Hugging Face's ``attention_mask``: int64 (B, L), 1 = real token."""
    return as_keep_mask(keep_mask).long()


def from_huggingface_mask(attention_mask):
    """From Hugging Face's integer (B, L), 1 = real token. Raises as as_keep_mask."""
    return as_keep_mask(attention_mask, name="attention_mask")
