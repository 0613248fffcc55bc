"""What holds for every module, whatever its weights: the invariances that define an encoder.

Padding (its length and what stands in it) never changes a real token; samples never meet; without
positions the order of tokens is only carried along; a sample of padding alone harms nobody.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from encoder_lib import (
    Encoder,
    EncoderClassifier,
    EncoderLayer,
    FeedForward,
    InputEmbedding,
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    TokenClassifier,
    TransformerEncoder,
    keep_mask_from_lengths,
    masked_first,
    masked_max,
    masked_mean,
    scaled_dot_product_attention,
    to_attention_mask,
)

D = 8
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def randomised(module):
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.eval()


class Plain(nn.Module):
    """Wraps what takes no mask, or pools, or is a function, so that all are called alike."""

    def __init__(self, f, module=None):
        super().__init__()
        self.f, self.module = f, module

    def forward(self, x, keep_mask=None, return_weights=False):
        return self.f(self.module, x, keep_mask)


def attention(_, x, keep_mask):
    mask = None if keep_mask is None else to_attention_mask(keep_mask)[:, 0]
    return scaled_dot_product_attention(x, x.roll(1, -1), x.flip(-1), mask)[0]


def alone(module, x, keep_mask):
    return module(x)


def pooled(pool):
    return Plain(lambda _, x, keep: pool(x, torch.ones_like(x[..., 0]).bool()
                                         if keep is None else keep))  # fmt: skip


PER_TOKEN = {
    "scaled_dot_product_attention": lambda: Plain(attention),
    "MultiHeadAttention": lambda: MultiHeadAttention(D, 2),
    "FeedForward": lambda: Plain(alone, FeedForward(D, 16)),
    "LayerNorm": lambda: Plain(alone, LayerNorm(D)),
    "RMSNorm": lambda: Plain(alone, RMSNorm(D)),
    "EncoderLayer, pre": lambda: EncoderLayer(D, 2, 16, norm="pre"),
    "EncoderLayer, post": lambda: EncoderLayer(D, 2, 16, norm="post", activation="gelu"),
    "Encoder, pre": lambda: Encoder(2, D, 2, 16, norm="pre"),
    "Encoder, post": lambda: Encoder(2, D, 2, 16, norm="post"),
}
POOLED = {f.__name__: (lambda f=f: pooled(f)) for f in (masked_mean, masked_max, masked_first)}


def model(positions, norm="pre"):
    return TransformerEncoder(20, D, 2, 16, 2, dropout=0.0, positions=positions, norm=norm)


FROM_IDS = {
    "TransformerEncoder, sinusoidal": lambda: model("sinusoidal"),
    "TransformerEncoder, learned, post": lambda: model("learned", "post"),
    "TransformerEncoder, no positions": lambda: model(None),
    "TokenClassifier": lambda: TokenClassifier(model("sinusoidal"), 3),
    "EncoderClassifier, mean": lambda: EncoderClassifier(model("sinusoidal"), 3, "mean"),
    "EncoderClassifier, max": lambda: EncoderClassifier(model("sinusoidal"), 3, "max"),
    "EncoderClassifier, first": lambda: EncoderClassifier(model("learned"), 3, "first"),
}
WITH_WEIGHTS = [name for name in PER_TOKEN if name[0] in "ME"]
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def build(kinds, name):
    return randomised(kinds[name]())


def real(out, keep):
    """The rows of real tokens, or all rows where a text has one answer."""
    return out[keep] if out.dim() == 3 else out


def padded(lengths, extra, fill, seed=0):
    """Features or ids with ``extra`` more columns, and ``fill(shape)`` in all padded places."""
    keep = keep_mask_from_lengths(lengths, max(lengths) + extra)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), D, generator=generator)
    garbage = fill((len(lengths), max(lengths) + extra, D))
    garbage[:, : x.size(1)][keep[:, : x.size(1)]] = x[keep[:, : x.size(1)]]
    return garbage, keep


def small(shape):
    return torch.zeros(shape)


def huge(shape):
    return 1e4 * torch.ones(shape)


@pytest.mark.parametrize("name", [*PER_TOKEN, *POOLED])
@given(lengths=LENGTHS, extra=st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_padding_never_changes_a_real_token(name, lengths, extra):
    module = build(PER_TOKEN | POOLED, name)
    x, keep = padded(lengths, 0, small)
    more, more_keep = padded(lengths, extra, huge)
    torch.testing.assert_close(
        real(module(more, more_keep), more_keep), real(module(x, keep), keep), **CLOSE
    )


def some_ids(lengths, extra=0):
    keep = keep_mask_from_lengths(lengths, max(lengths) + extra)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 20, (len(lengths), max(lengths)), generator=generator)
    return torch.nn.functional.pad(ids, (0, extra)) * keep, keep


@pytest.mark.parametrize("name", FROM_IDS)
@given(lengths=LENGTHS, extra=st.integers(0, 6))
@settings(max_examples=10, deadline=None)
def test_padding_ids_never_change_a_real_token(name, lengths, extra):
    module = build(FROM_IDS, name)
    ids, keep = some_ids(lengths)
    more, more_keep = some_ids(lengths, extra)
    expected = real(module(ids), keep)
    torch.testing.assert_close(real(module(more), more_keep), expected, **CLOSE)
    junk = more.masked_fill(~more_keep, 7)  # a word's id where the mask says padding
    torch.testing.assert_close(real(module(junk, more_keep), more_keep), expected, **CLOSE)


@pytest.mark.parametrize("name", [*PER_TOKEN, *POOLED])
@given(lengths=LENGTHS, row=st.integers(0, 3))
@settings(max_examples=10, deadline=None)
def test_a_sample_alone_equals_itself_in_a_batch(name, lengths, row):
    module, row = build(PER_TOKEN | POOLED, name), row % len(lengths)
    x, keep = padded(lengths, 1, small)
    both = module(x, keep)[row : row + 1]
    one = module(x[row : row + 1], keep[row : row + 1])
    torch.testing.assert_close(real(both, keep[row : row + 1]), real(one, keep[row : row + 1]),
                               **CLOSE)  # fmt: skip


@pytest.mark.parametrize("name", FROM_IDS)
def test_a_text_alone_equals_itself_in_a_batch(name):
    module, lengths = build(FROM_IDS, name), [5, 2, 4]
    ids, keep = some_ids(lengths)
    together = module(ids)
    for row, n in enumerate(lengths):
        one = module(ids[row : row + 1, :n])[0]
        found = together[row, :n] if together.dim() == 3 else together[row]
        torch.testing.assert_close(found, one, **CLOSE)


@pytest.mark.parametrize("name", PER_TOKEN)
@given(order=st.permutations(range(5)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_tokens_is_only_carried_along(name, order):
    module = build(PER_TOKEN, name)
    x, keep = padded([5, 3], 0, small)
    out = module(x[:, order], keep[:, order])
    torch.testing.assert_close(out, module(x, keep)[:, order], **CLOSE)


@pytest.mark.parametrize("name", ["masked_mean", "masked_max"])
def test_pooling_does_not_see_the_order(name):
    module, order = build(POOLED, name), [3, 0, 4, 1, 2]
    x, keep = padded([5, 3], 0, small)
    torch.testing.assert_close(module(x[:, order], keep[:, order]), module(x, keep), **CLOSE)


def test_without_positions_the_whole_model_only_carries_the_order_along():
    module, order = build(FROM_IDS, "TransformerEncoder, no positions"), [3, 0, 4, 1, 2]
    ids, _ = some_ids([5, 3])
    torch.testing.assert_close(module(ids[:, order]), module(ids)[:, order], **CLOSE)
    with_positions = build(FROM_IDS, "TransformerEncoder, sinusoidal")
    gap = with_positions(ids[:, order]) - with_positions(ids)[:, order]
    assert gap.abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "asked"),
    [*((name, False) for name in [*PER_TOKEN, *POOLED]), *((name, True) for name in WITH_WEIGHTS)],
)
def test_a_sample_of_padding_harms_nobody(name, asked):
    module = build(PER_TOKEN | POOLED, name)
    x, _ = padded([4, 4], 0, small)
    keep = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]).bool()
    x.requires_grad_()
    result = module(x, keep, True) if asked else module(x, keep)
    out = result[0] if asked else result
    torch.testing.assert_close(out[:1], module(x[:1], keep[:1]), **CLOSE)
    out.square().sum().backward()
    gradients = [x.grad, *(p.grad for p in module.parameters() if p.grad is not None)]
    assert out.isfinite().all() and all(g.isfinite().all() for g in gradients)
    if asked:
        weights = result[1] if isinstance(result[1], list) else [result[1]]
        assert not any(w[1].any() for w in weights)
        assert all(torch.allclose(w[0].sum(-1), torch.ones(w[0].shape[:-1])) for w in weights)


@pytest.mark.parametrize("name", ["scaled_dot_product_attention", *POOLED])
def test_a_sample_of_padding_gets_zeros(name):
    module = build(PER_TOKEN | POOLED, name)
    x, keep = padded([4, 4], 0, small)
    keep[1] = False
    assert not module(x, keep)[1].any()


def test_multi_head_attention_gives_padding_its_output_bias_alone():
    module = build(PER_TOKEN, "MultiHeadAttention")
    x, keep = padded([4, 4], 0, small)
    keep[1] = False
    torch.testing.assert_close(module(x, keep)[1], module.w_o.bias.expand(4, D))


@pytest.mark.parametrize("name", FROM_IDS)
def test_an_empty_text_harms_nobody(name):
    module = build(FROM_IDS, name)
    ids, keep = some_ids([4, 2])
    ids[1] = 0
    out = module(ids)
    torch.testing.assert_close(real(out[:1], keep[:1]), real(module(ids[:1]), keep[:1]), **CLOSE)
    out.square().sum().backward()
    assert out.isfinite().all() and all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", [*PER_TOKEN, *POOLED])
def test_gradcheck(name):
    module = copy.deepcopy(build(PER_TOKEN | POOLED, name)).double()
    x, keep = padded([3, 2], 0, small)
    x = x.double().requires_grad_()
    parameters = [p for p in module.parameters()]
    inputs = (x, *parameters)
    assert torch.autograd.gradcheck(lambda x, *_: real(module(x, keep), keep), inputs, atol=1e-6)


def test_gradcheck_with_a_sample_of_padding():
    module = build(PER_TOKEN, "Encoder, pre").double()
    x, keep = padded([2, 2], 0, small)
    keep[1] = False
    x = x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: module(x, keep), (x,), atol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_the_embedding_of_a_real_token_does_not_know_the_padding(positions):
    module = randomised(InputEmbedding(20, D, positions=positions))
    (ids, keep), (more, more_keep) = some_ids([5, 2]), some_ids([5, 2], 4)
    assert torch.equal(module(more)[more_keep], module(ids)[keep])
