"""The Transformer encoder, as built in "The Transformer Encoder from Scratch".

The core is importable from here. Data sets, plots and widgets live in their own modules, so
that ``import encoder_lib`` needs nothing but torch.
"""

from encoder_lib.attention import (
    MultiHeadAttention,
    fused_attention,
    scaled_dot_product_attention,
    xavier_linear_,
)
from encoder_lib.embedding import (
    InputEmbedding,
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)
from encoder_lib.encoder import (
    Encoder,
    EncoderClassifier,
    EncoderLayer,
    TokenClassifier,
    TransformerEncoder,
    initialize,
    masked_first,
    masked_max,
    masked_mean,
)
from encoder_lib.feed_forward import FeedForward
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
from encoder_lib.normalization import LayerNorm, RMSNorm

__version__ = "0.1.0"

__all__ = [
    "Encoder",
    "EncoderClassifier",
    "EncoderLayer",
    "FeedForward",
    "InputEmbedding",
    "LayerNorm",
    "LearnedPositionalEmbedding",
    "MultiHeadAttention",
    "RMSNorm",
    "SinusoidalPositionalEncoding",
    "TokenClassifier",
    "TokenEmbedding",
    "TransformerEncoder",
    "from_attention_mask",
    "from_huggingface_mask",
    "from_key_padding_mask",
    "fused_attention",
    "initialize",
    "keep_mask_from_ids",
    "keep_mask_from_lengths",
    "masked_first",
    "masked_max",
    "masked_mean",
    "scaled_dot_product_attention",
    "sinusoidal_table",
    "to_attention_mask",
    "to_huggingface_mask",
    "to_key_padding_mask",
    "xavier_linear_",
]
