"""Attention: parity with torch, the contracts of masks, and the cases people really met."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from encoder_lib.attention import MultiHeadAttention, fused_attention, scaled_dot_product_attention
from encoder_lib.torch_parity import copy_from_torch, copy_to_torch

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
KEEP = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
EMPTY = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()


def randomised(module, std=0.3):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def heads(d_model=16, n_heads=4, **settings):
    return randomised(MultiHeadAttention(d_model, n_heads, **settings)).eval()


def qkv(*shape, dtype=torch.float32):
    return tuple(torch.randn(*shape, dtype=dtype, requires_grad=True) for _ in range(3))


# --- scaled dot-product attention -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch_forward_and_gradients(dtype, masked):
    mask = torch.rand(2, 1, 5, 5) > 0.4
    mask[..., 0] = True
    ours, theirs = qkv(2, 3, 5, 4, dtype=dtype), []
    theirs = tuple(x.detach().clone().requires_grad_() for x in ours)
    upstream = torch.randn(2, 3, 5, 4, dtype=dtype)
    out, _ = scaled_dot_product_attention(*ours, mask if masked else None)
    expected = F.scaled_dot_product_attention(*theirs, mask if masked else None)
    torch.testing.assert_close(out, expected, atol=TOLERANCE[dtype], rtol=0)
    (out * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=TOLERANCE[dtype], rtol=0)


def test_by_pencil():
    q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    _, weights = scaled_dot_product_attention(q, k, v)
    first = math.exp(2 / math.sqrt(2)) / (math.exp(2 / math.sqrt(2)) + 1)
    torch.testing.assert_close(weights, torch.tensor([[first, 1 - first]]))


def test_a15_softmax_runs_over_the_keys():
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    out, weights = scaled_dot_product_attention(q, k, v)
    assert out.shape == (3, 2) and weights.shape == (3, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))
    assert scaled_dot_product_attention(q, k[:1], v[:1])[1].eq(1).all()


def test_a16_scale_is_the_root_of_the_head_width():
    q, k = torch.randn(2, 1000, 8), torch.randn(2, 1000, 8)
    _, weights = scaled_dot_product_attention(q, k, k)
    scores = weights.log()  # up to one constant a row
    assert 0.9 < (scores - scores.mean(-1, keepdim=True)).std() < 1.1


def test_a03_a04_true_means_attend():
    q = k = torch.zeros(3, 3)
    strict_upper = torch.ones(3, 3).triu(1).bool()
    _, weights = scaled_dot_product_attention(q, k, torch.eye(3), ~strict_upper)
    expected = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(weights, expected)
    _, wrong = scaled_dot_product_attention(q, k, torch.eye(3), strict_upper)
    torch.testing.assert_close(wrong, torch.tensor([[0, 0.5, 0.5], [0, 0, 1.0], [0, 0, 0]]))


def test_a06_integer_masks_mean_the_same_as_bool():
    q, k = torch.tensor([[1.0]]), torch.tensor([[1.0], [2.0], [3.0]])
    _, weights = scaled_dot_product_attention(q, k, k, torch.tensor([[1, 1, 0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.2689, 0.7311, 0.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a07_a22_masked_weights_are_exactly_zero_in_every_dtype(dtype):
    q, k, v = (torch.randn(4, 8).to(dtype) * 5 for _ in range(3))
    mask = torch.tensor([[True, True, False, False]]).expand(4, 4)
    out, weights = scaled_dot_product_attention(q, k, v, mask)
    assert out.dtype == dtype and not weights[:, 2:].any()
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(4), atol=2e-2, rtol=0)


@pytest.mark.parametrize("path", ["readable", "fused"])
def test_a01_a08_query_without_a_key_gives_zeros_and_finite_gradients(path):
    q, k, v = qkv(2, 1, 3, 4)
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()[:, None, None]
    if path == "readable":
        out, weights = scaled_dot_product_attention(q, k, v, mask)
        assert not weights[1].any()
    else:
        out = fused_attention(q, k, v, mask, 0.0)
    assert not out[1].any()
    out.square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all() and x.grad[0].any() and not x.grad[1].any()


def test_a18_inputs_are_not_modified():
    q, k, v = qkv(1, 3, 4)
    mask = torch.tensor([[True, False, True]]).expand(3, 3)
    before = [x.clone() for x in (q, k, v, mask)]
    scaled_dot_product_attention(q, k, v, mask)[0].sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, (q, k, v, mask), strict=True))


def test_gradcheck():
    q, k, v = qkv(2, 3, 2, dtype=torch.float64)
    mask = torch.tensor([[True, False, True]] * 3)
    assert torch.autograd.gradcheck(
        lambda *x: scaled_dot_product_attention(*x, mask)[0], (q, k, v)
    )


def test_weights_are_before_dropout():
    q, k, v = qkv(4, 4)
    out, weights = scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    assert not torch.allclose(out, weights @ v)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"q": torch.zeros(3, 5)}, ValueError, "d_k"),
        ({"v": torch.zeros(9, 4)}, ValueError, "length"),
        ({"k": torch.zeros(2, 5, 4)}, ValueError, "axes before"),
        ({"q": torch.zeros(3, 4).long()}, TypeError, "int64"),
        ({"v": [[1.0]]}, TypeError, "list"),
        ({"mask": torch.ones(3, 5)}, TypeError, "float32"),
        ({"mask": torch.ones(5).bool()}, ValueError, r"\(3, 5\)"),
        ({"mask": torch.ones(1, 3, 5).bool()}, ValueError, r"\(1, 3, 5\)"),
        ({"mask": torch.full((3, 5), 2)}, ValueError, "0 and 1"),
        ({"dropout_p": 1.0}, ValueError, "dropout"),
    ],
)
def test_wrong_arguments_are_named(change, error, words):
    arguments = {"q": torch.zeros(3, 4), "k": torch.zeros(5, 4), "v": torch.zeros(5, 4)}
    with pytest.raises(error, match=words):
        scaled_dot_product_attention(**(arguments | change))


# --- several heads --------------------------------------------------------------------------------


def test_copy_to_torch_is_the_reverse():
    ours = heads()
    theirs = copy_to_torch(ours, nn.MultiheadAttention(16, 4, batch_first=True)).eval()
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(theirs(x, x, x)[0], ours(x))
    again = copy_from_torch(MultiHeadAttention(16, 4), theirs)
    assert all(
        torch.equal(a, b) for a, b in zip(again.parameters(), ours.parameters(), strict=True)
    )


def test_c01_c02_split_and_merge_by_pencil():
    module = MultiHeadAttention(4, 2)
    x = torch.arange(8.0).view(1, 2, 4)
    assert module.split(x).tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    context = torch.arange(8.0).view(1, 2, 2, 2)
    assert module.merge(context).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    assert torch.equal(module.merge(module.split(x)), x)


@pytest.mark.parametrize(("d_model", "n_heads"), [(10, 3), (8, 16), (7, 2)])
def test_c04_width_not_divisible(d_model, n_heads):
    with pytest.raises(ValueError, match=rf"{d_model}.*{n_heads}"):
        MultiHeadAttention(d_model, n_heads)


@pytest.mark.parametrize("bad", [{"n_heads": 0}, {"d_model": 0}, {"dropout": 1.0}, {"dropout": -1}])
def test_bad_sizes_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        MultiHeadAttention(**({"d_model": 8, "n_heads": 2} | bad))


def test_c06_weights_are_per_head_and_asking_changes_nothing():
    module, x = heads(), torch.randn(2, 3, 16)
    state = set(vars(module))
    out, weights = module(x, KEEP[:, :3], return_weights=True)
    assert weights.shape == (2, 4, 3, 3)
    torch.testing.assert_close(out, module(x, KEEP[:, :3]), atol=1e-6, rtol=0)
    assert not torch.allclose(weights[:, 0], weights[:, 1])
    assert set(vars(module)) == state


def test_c09_parameters_and_every_feature_reaches_every_head():
    module = MultiHeadAttention(64, 8)
    assert sum(p.numel() for p in module.parameters()) == 16_640
    assert sum(p.numel() for p in MultiHeadAttention(64, 8, bias=False).parameters()) == 16_384
    x = torch.randn(1, 3, 64)
    changed = x.clone()
    changed[0, 0, 0] += 1
    before, after = module.split(module.w_q(x)), module.split(module.w_q(changed))
    assert (before != after)[0, :, 0].any(-1).all()


def test_c11_a_sample_alone_equals_itself_in_a_batch():
    module, x = heads(), torch.randn(3, 5, 16)
    torch.testing.assert_close(module(x)[:1], module(x[:1]), atol=1e-6, rtol=0)


def test_a09_a10_masks_belong_to_their_sample_when_sizes_coincide():
    module = heads(d_model=6, n_heads=3)
    for linear in (module.w_q, module.w_k):
        nn.init.zeros_(linear.weight), nn.init.zeros_(linear.bias)
    keep = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    _, weights = module(torch.randn(3, 3, 6), keep, return_weights=True)
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0], [1, 0, 0]])
    torch.testing.assert_close(weights, expected[:, None, None].expand(3, 3, 3, 3))


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 4), (2, 1, 5), (2, 1, 1, 5), (5, 2)])
def test_other_mask_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="keep_mask"):
        heads()(torch.randn(2, 5, 16), torch.ones(shape, dtype=torch.bool))


def test_a05_float_masks_are_refused():
    with pytest.raises(TypeError, match="float32"):
        heads()(torch.randn(2, 5, 16), KEEP.float())


@pytest.mark.parametrize("asked", [False, True])
def test_a01_fully_padded_sample_poisons_nothing(asked):
    module, x = heads(), torch.randn(2, 5, 16)
    out = module(x, EMPTY, asked)
    out, weights = out if asked else (out, torch.zeros(2, 1))
    assert out.isfinite().all() and not weights[1].any()
    torch.testing.assert_close(out[:1], module(x[:1], EMPTY[:1]), atol=1e-6, rtol=0)
    out[0].sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_a01_torch_really_does_give_nan():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8)
    ignore = torch.tensor([[0, 0, 1], [1, 1, 1]]).bool()
    assert theirs(x, x, x, key_padding_mask=ignore, need_weights=True)[0][1].isnan().all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_padding_content_and_length_never_matter(lengths, extra):
    torch.manual_seed(0)
    module, longest = heads(), max([*lengths, 1])
    keep = torch.arange(longest) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), longest, 16)
    out = module(x, keep)
    wide = F.pad(torch.where(keep[..., None], x, 100 * torch.randn_like(x)), (0, 0, 0, extra))
    again = module(wide, F.pad(keep, (0, extra)))[:, :longest]
    torch.testing.assert_close(again[keep], out[keep], atol=1e-5, rtol=0)


def test_permutation_equivariance():
    module, x, order = heads(), torch.randn(2, 5, 16), torch.randperm(5)
    torch.testing.assert_close(module(x[:, order]), module(x)[:, order], atol=1e-6, rtol=0)


def test_the_key_bias_has_no_effect():
    module, x = heads(), torch.randn(2, 5, 16)
    before = module(x)
    nn.init.normal_(module.w_k.bias, std=3.0)
    torch.testing.assert_close(module(x), before, atol=1e-5, rtol=0)


def test_a14_dropout_is_off_in_eval_and_on_in_train():
    module, x = heads(dropout=0.5), torch.randn(2, 5, 16)
    assert torch.equal(module(x), module(x))
    for asked in (False, True):
        runs = [module.train()(x, return_weights=asked) for _ in range(2)]
        first, second = [run[0] if asked else run for run in runs]
        assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_in_is_dtype_out(dtype):
    out, weights = heads().to(dtype)(torch.randn(2, 5, 16, dtype=dtype), KEEP, True)
    assert out.dtype == weights.dtype == dtype and out.isfinite().all()


def test_e11_compiles_without_a_graph_break():
    module, x = heads(), torch.randn(2, 5, 16)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, KEEP), module(x, KEEP))
    torch.testing.assert_close(compiled(x), module(x))


def test_starts_as_documented():
    module = MultiHeadAttention(256, 4)
    bound = math.sqrt(6 / 512)
    for linear in (module.w_q, module.w_k, module.w_v, module.w_o):
        assert not linear.bias.any() and linear.weight.abs().max() <= bound
        assert abs(linear.weight.std() - bound / math.sqrt(3)) < 1e-3
