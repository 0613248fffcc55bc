"""Copy weights between the book's modules and their twins in torch.nn, in both directions.

nn.MultiheadAttention, nn.LayerNorm, nn.TransformerEncoderLayer, nn.TransformerEncoder. Torch
packs the three input projections of attention into one (3D, D) matrix; nothing else differs.
"""

import torch
from torch import nn


def copy_from_torch(ours, theirs):
    """Copy the weights of a torch module into its twin here, in place. Returns ours.

    Raises: TypeError when the two are not twins; ValueError naming what differs (sizes, heads,
        biases, norm position, activation, number of layers, final norm, eps).
    """
    for our_part, their_part in _pairs(ours, theirs):
        _copy(their_part, our_part)
    return ours


def copy_to_torch(ours, theirs):
    """Copy the weights of a module here into its twin in torch, in place. Returns theirs.

    Raises: as copy_from_torch.
    """
    for our_part, their_part in _pairs(ours, theirs):
        _copy(our_part, their_part)
    return theirs


@torch.no_grad()
def _copy(source, target):
    target.copy_(source)


def _same(what, ours, theirs):
    if ours != theirs:
        raise ValueError(f"{what} differs: ours {ours}, torch's {theirs}")


def _pairs(ours, theirs):
    """Corresponding tensors (ours, theirs) of twin modules, checked before anything is copied.

    Torch's module decides what is compared, so a class built in a notebook is as good as the
    library's.
    """
    find = next((f for twin, f in TWINS.items() if isinstance(theirs, twin)), None)
    try:
        pairs = find(ours, theirs)
    except (AttributeError, TypeError):
        names = f"{type(ours).__name__} and {type(theirs).__name__}"
        raise TypeError(f"{names} are no twins: see the modules named in torch_parity") from None
    for a, b in pairs:
        _same("the shape of a weight", tuple(a.shape), tuple(b.shape))
    return pairs


def _linear_pairs(ours, theirs):
    _same("bias", ours.bias is not None, theirs.bias is not None)
    pairs = [(ours.weight, theirs.weight)]
    return pairs if ours.bias is None else [*pairs, (ours.bias, theirs.bias)]


def _norm_pairs(ours, theirs):
    _same("eps", ours.eps, theirs.eps)
    if theirs.weight is None or theirs.bias is None:
        raise ValueError("torch's norm has no weight or no bias; ours has both")
    return [(ours.weight, theirs.weight), (ours.bias, theirs.bias)]


def _attention_pairs(ours, theirs):
    _same("d_model", ours.d_model, theirs.embed_dim)
    _same("n_heads", ours.n_heads, theirs.num_heads)
    projections = (ours.w_q, ours.w_k, ours.w_v)
    if theirs.in_proj_weight is None or theirs.bias_k is not None or theirs.add_zero_attn:
        raise ValueError("torch's module has kdim, vdim, add_bias_kv or add_zero_attn set")
    _same("bias", ours.w_q.bias is not None, theirs.in_proj_bias is not None)
    pairs = list(zip([w.weight for w in projections], theirs.in_proj_weight.chunk(3), strict=True))
    if ours.w_q.bias is not None:
        pairs += zip([w.bias for w in projections], theirs.in_proj_bias.chunk(3), strict=True)
    return pairs + _linear_pairs(ours.w_o, theirs.out_proj)


def _layer_pairs(ours, theirs):
    _same("norm", ours.norm, "pre" if theirs.norm_first else "post")
    _same("residual_scale", float(ours.residual_scale), 1.0)
    activations = (ours.feed_forward.activation, theirs.activation)
    _same("activation", *map(_activation_name, activations))
    return [
        *_attention_pairs(ours.attention, theirs.self_attn),
        *_linear_pairs(ours.feed_forward.w_1, theirs.linear1),
        *_linear_pairs(ours.feed_forward.w_2, theirs.linear2),
        *_norm_pairs(ours.norm_1, theirs.norm1),
        *_norm_pairs(ours.norm_2, theirs.norm2),
    ]


def _activation_name(function):
    if function is nn.functional.relu or isinstance(function, nn.ReLU):
        return "relu"
    tanh = getattr(function, "approximate", "none") != "none"
    gelu = function is nn.functional.gelu or isinstance(function, nn.GELU)
    return "gelu" if gelu and not tanh else str(function)


def _encoder_pairs(ours, theirs):
    _same("n_layers", len(ours.layers), len(theirs.layers))
    ends_in_norm = hasattr(ours.final_norm, "weight")  # a Post-LN stack ends in nn.Identity
    _same("final norm", ends_in_norm, theirs.norm is not None)
    pairs = []
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        pairs += _layer_pairs(our_layer, their_layer)
    return pairs + (_norm_pairs(ours.final_norm, theirs.norm) if ends_in_norm else [])


TWINS = {
    nn.MultiheadAttention: _attention_pairs,
    nn.LayerNorm: _norm_pairs,
    nn.TransformerEncoderLayer: _layer_pairs,
    nn.TransformerEncoder: _encoder_pairs,
}
