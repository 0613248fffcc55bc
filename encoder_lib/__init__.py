"""The Transformer encoder, as built in "The Transformer Encoder from Scratch".

The core is importable from here. Data sets, plots and widgets live in their own modules, so
that ``import encoder_lib`` needs nothing but torch.
"""

from encoder_lib.embedding import (
    InputEmbedding,
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)
from encoder_lib.masks import (
    from_attention_mask,
    from_huggingface_mask,
    from_key_padding_mask,
    keep_mask_from_ids,
    keep_mask_from_lengths,
    to_attention_mask,
    to_huggingface_mask,
    to_key_padding_mask,
)

__version__ = "0.1.0"

__all__ = [
    "InputEmbedding",
    "LearnedPositionalEmbedding",
    "SinusoidalPositionalEncoding",
    "TokenEmbedding",
    "from_attention_mask",
    "from_huggingface_mask",
    "from_key_padding_mask",
    "keep_mask_from_ids",
    "keep_mask_from_lengths",
    "sinusoidal_table",
    "to_attention_mask",
    "to_huggingface_mask",
    "to_key_padding_mask",
]
