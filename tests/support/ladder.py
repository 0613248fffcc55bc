"""The parity ladder: every piece of the encoder beside its twin in torch, with the same weights.

A rung builds both, runs both on the same input, and says how far outputs and gradients lie apart.
``tests/unit/test_torch_parity.py`` asserts the bounds, ``tools/parity.py`` makes the page.
"""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    TransformerEncoder,
    scaled_dot_product_attention,
    to_key_padding_mask,
)
from encoder_lib.torch_parity import copy_from_torch

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-10}
MODES = ("eval", "train")
PADDINGS = ("whole", "padded", "B = L")
KEEPS = {
    "whole": torch.ones(2, 5, dtype=torch.bool),
    "padded": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool(),
    "B = L": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool(),
}
B, L, D, H, D_FF, VOCAB = 2, 5, 16, 4, 32, 20


class Run(NamedTuple):
    """Outputs and gradients of one side, in the same order on both."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]


class Rung(NamedTuple):
    """One piece and its twin. ``run(dtype, train, keep)`` returns ``(ours, theirs)``, two Runs."""

    piece: str
    reference: str
    chapter: str
    run: Callable[[torch.dtype, bool, torch.Tensor], tuple[Run, Run]]


class Errors(NamedTuple):
    """The largest difference of outputs and of gradients; relative where entries exceed 1."""

    forward: float
    gradient: float


def randomised(module, std=0.3):
    """The module with all parameters N(0, std^2), biases and norms included."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def difference(ours, theirs):
    """The largest ``|a - b| / max(1, max |b|)`` over pairs of tensors; inf where one is missing."""
    assert len(ours) == len(theirs) > 0
    gaps = []
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:  # a parameter that took no part has no gradient
            return math.inf
        assert a.shape == b.shape and a.dtype == b.dtype
        gaps.append(((a - b).abs().max() / b.abs().max().clamp(min=1)).item())
    return max(gaps, key=lambda gap: math.inf if math.isnan(gap) else gap)


def measure(rung, dtype, mode, padding):
    """How far a rung's two sides lie apart. Raises AssertionError when shapes differ."""
    torch.manual_seed(0)
    ours, theirs = rung.run(dtype, mode == "train", KEEPS[padding])
    return Errors(
        difference(ours.outputs, theirs.outputs), difference(ours.gradients, theirs.gradients)
    )


def features(keep, dtype):
    return torch.randn(*keep.shape, D, dtype=dtype)


def twins(x):
    """Two leaves with the same values, one for each side."""
    return x.clone().requires_grad_(), x.clone().requires_grad_()


def backward(out, keep):
    """Run backward from random upstream gradients at the real positions, the same on each call."""
    generator = torch.Generator().manual_seed(1)
    real = out[keep]
    upstream = torch.randn(real.shape, generator=generator, dtype=out.dtype)
    (real * upstream).sum().backward()
    return real.detach()


def gradients_as_ours(ours, theirs):
    """Torch's parameter gradients in the layout and order of our parameters."""
    holder = copy.deepcopy(theirs)
    for held, parameter in zip(holder.parameters(), theirs.parameters(), strict=True):
        held.data = parameter.grad
    return [p.data for p in copy_from_torch(copy.deepcopy(ours), holder).parameters()]


def compare(ours, theirs, keep, call_ours, call_theirs, x, their_gradients=gradients_as_ours):
    """Both Runs of a module rung: outputs at real positions, gradients of input and parameters."""
    a, b = twins(x)
    out, expected = backward(call_ours(a), keep), backward(call_theirs(b), keep)
    return (
        Run([out], [a.grad, *(p.grad for p in ours.parameters())]),
        Run([expected], [b.grad, *their_gradients(ours, theirs)]),
    )


def attention_function(dtype, train, keep):
    """softmax(q k^T / sqrt(d_k)) v against F.scaled_dot_product_attention."""
    mask = keep[:, None, None, :]
    pairs = [twins(torch.randn(len(keep), H, keep.size(1), 4, dtype=dtype)) for _ in range(3)]
    ours, theirs = zip(*pairs, strict=True)
    everything = torch.ones(len(keep), H, keep.size(1), dtype=torch.bool)
    out = backward(scaled_dot_product_attention(*ours, mask)[0], everything)
    expected = backward(F.scaled_dot_product_attention(*theirs, attn_mask=mask), everything)
    return Run([out], [x.grad for x in ours]), Run([expected], [x.grad for x in theirs])


def multi_head(return_weights):
    """MultiHeadAttention on one of its two paths against nn.MultiheadAttention."""

    def run(dtype, train, keep):
        theirs = randomised(nn.MultiheadAttention(D, H, batch_first=True)).to(dtype).train(train)
        ours = copy_from_torch(MultiHeadAttention(D, H).to(dtype), theirs).train(train)
        ignore, weights = to_key_padding_mask(keep), {}

        def call_ours(x):
            if not return_weights:
                return ours(x, keep)
            out, weights["ours"] = ours(x, keep, return_weights=True)
            return out

        def call_theirs(x):
            out, weights["theirs"] = theirs(
                x, x, x, key_padding_mask=ignore, average_attn_weights=False
            )
            return out

        mine, other = compare(ours, theirs, keep, call_ours, call_theirs, features(keep, dtype))
        if return_weights:
            mine.outputs.append(weights["ours"].detach())
            other.outputs.append(weights["theirs"].detach())
        return mine, other

    return run


def norm(build, build_theirs):
    """A norm against torch's, one row of small variance included: where eps stands matters."""

    def run(dtype, train, keep):
        theirs = randomised(build_theirs(D)).to(dtype)
        ours = build(D).to(dtype)
        ours.load_state_dict(theirs.state_dict())
        x = features(keep, dtype)
        x[0, 0] *= 1e-3
        return compare(ours, theirs, keep, ours, theirs, x, in_order)

    return run


def in_order(ours, theirs):
    return [p.grad for p in theirs.parameters()]


def feed_forward(activation, build_activation):
    """FeedForward against torch's layers in a row."""

    def run(dtype, train, keep):
        ours = randomised(FeedForward(D, D_FF, activation=activation)).to(dtype).train(train)
        theirs = nn.Sequential(nn.Linear(D, D_FF), build_activation(), nn.Linear(D_FF, D))
        theirs = theirs.to(dtype).train(train)
        for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
            a.data = b.data.clone()
        return compare(ours, theirs, keep, ours, theirs, features(keep, dtype), in_order)

    return run


def torch_layer(norm, activation):
    return nn.TransformerEncoderLayer(
        D, H, D_FF, 0.0, activation, batch_first=True, norm_first=norm == "pre"
    )


def torch_stack(norm, activation, n_layers):
    final = nn.LayerNorm(D) if norm == "pre" else None
    layer = torch_layer(norm, activation)
    return nn.TransformerEncoder(layer, n_layers, final, enable_nested_tensor=False)


def layer(norm, activation):
    """EncoderLayer against nn.TransformerEncoderLayer."""

    def run(dtype, train, keep):
        theirs = randomised(torch_layer(norm, activation)).to(dtype).train(train)
        ours = EncoderLayer(D, H, D_FF, 0.0, norm, activation).to(dtype).train(train)
        copy_from_torch(ours, theirs)
        ignore = to_key_padding_mask(keep)
        return compare(
            ours, theirs, keep, lambda x: ours(x, keep),
            lambda x: theirs(x, src_key_padding_mask=ignore), features(keep, dtype),
        )  # fmt: skip

    return run


def stack(norm, activation, n_layers=3):
    """Encoder against nn.TransformerEncoder."""

    def run(dtype, train, keep):
        theirs = randomised(torch_stack(norm, activation, n_layers)).to(dtype).train(train)
        ours = Encoder(n_layers, D, H, D_FF, 0.0, norm, activation).to(dtype).train(train)
        copy_from_torch(ours, theirs)
        ignore = to_key_padding_mask(keep)
        return compare(
            ours, theirs, keep, lambda x: ours(x, keep),
            lambda x: theirs(x, src_key_padding_mask=ignore), features(keep, dtype),
        )  # fmt: skip

    return run


def whole_model(norm):
    """TransformerEncoder from ids against nn.Embedding, a table of sinusoids, and torch's stack."""

    def run(dtype, train, keep):
        ids = torch.randint(1, VOCAB, keep.shape) * keep
        theirs = randomised(torch_stack(norm, "relu", 2)).to(dtype).train(train)
        ours = TransformerEncoder(VOCAB, D, H, D_FF, 2, dropout=0.0, norm=norm)
        ours = ours.to(dtype).train(train)
        copy_from_torch(ours.encoder, theirs)
        table = nn.Embedding(VOCAB, D, padding_idx=0, dtype=dtype)
        table.weight.data = ours.embedding.tokens.weight.data.clone()
        places = sinusoids(keep.size(1)).to(dtype)
        ignore = to_key_padding_mask(keep)
        out = backward(ours(ids), keep)
        x = table(ids) * math.sqrt(D) + places
        expected = backward(theirs(x, src_key_padding_mask=ignore), keep)
        mine = [ours.embedding.tokens.weight.grad, *(p.grad for p in ours.encoder.parameters())]
        other = [table.weight.grad, *gradients_as_ours(ours.encoder, theirs)]
        return Run([out], mine), Run([expected], other)

    return run


def sinusoids(length):
    """The table of Vaswani et al. 2017, section 3.5, spelt out number by number, in float64."""
    rows = [
        [(math.cos if i % 2 else math.sin)(p / 10000 ** ((i - i % 2) / D)) for i in range(D)]
        for p in range(length)
    ]
    return torch.tensor(rows, dtype=torch.float64)


MHA, LAYER, STACK = "nn.MultiheadAttention", "nn.TransformerEncoderLayer", "nn.TransformerEncoder"
LADDER = [
    Rung("scaled_dot_product_attention", "F.scaled_dot_product_attention", "03",
         attention_function),
    Rung("MultiHeadAttention, weights asked for", MHA, "05", multi_head(True)),
    Rung("MultiHeadAttention, fused path", MHA, "05", multi_head(False)),
    Rung("FeedForward, ReLU", "nn.Linear, nn.ReLU, nn.Linear", "06",
         feed_forward("relu", nn.ReLU)),
    Rung("FeedForward, GELU", "nn.Linear, nn.GELU, nn.Linear", "06",
         feed_forward("gelu", nn.GELU)),
    Rung("LayerNorm", "nn.LayerNorm", "07", norm(LayerNorm, nn.LayerNorm)),
    Rung("RMSNorm", "nn.RMSNorm", "07", norm(RMSNorm, lambda d: nn.RMSNorm(d, eps=1e-6))),
    *(Rung(f"EncoderLayer, {n.title()}-LN, {name}", LAYER, "08", layer(n, name.lower()))
      for n in ("post", "pre") for name in ("ReLU", "GELU")),
    *(Rung(f"Encoder of 3 layers, {n.title()}-LN, {name}", STACK, "09", stack(n, name.lower()))
      for n in ("post", "pre") for name in ("ReLU", "GELU")),
    *(Rung(f"TransformerEncoder of 2 layers, {n.title()}-LN",
           f"nn.Embedding, sinusoids, {STACK}", "09", whole_model(n)) for n in ("post", "pre")),
]  # fmt: skip
