"""Norms, feed-forward network, layer, stack and model: parity, invariances, contracts."""

import ast
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import encoder_lib
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
from encoder_lib.normalization import LayerNorm, RMSNorm
from encoder_lib.torch_parity import copy_from_torch, copy_to_torch

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
KEEP = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
EMPTY = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
IDS = torch.tensor([[5, 6, 7, 8, 9], [4, 3, 2, 0, 0]])


def randomised(module, std=0.3):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def torch_stack(n_layers, norm, activation="relu", dtype=torch.float32, d_model=16, heads=4):
    layer = nn.TransformerEncoderLayer(
        d_model, heads, 32, 0.0, activation, batch_first=True, norm_first=norm == "pre", dtype=dtype
    )
    final = nn.LayerNorm(d_model, dtype=dtype) if norm == "pre" else None
    stack = nn.TransformerEncoder(layer, n_layers, final, enable_nested_tensor=False)
    return randomised(stack)


def model(**settings):
    settings = {"n_layers": 2, "dropout": 0.0} | settings
    return TransformerEncoder(20, 16, 4, 32, **settings).eval()


# --- norms ----------------------------------------------------------------------------------------


def test_d01_d02_values_that_catch_the_usual_mistakes():
    norm = LayerNorm(4)
    one = norm(torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(one, torch.tensor([1.7320, -0.5773, -0.5773, -0.5773]), atol=1e-4,
                               rtol=0)  # fmt: skip
    small = norm(torch.tensor([1e-3, -1e-3, 1e-3, -1e-3]))
    torch.testing.assert_close(small.abs(), torch.full((4,), 0.3015), atol=1e-4, rtol=0)


def test_d04_tokens_do_not_meet_in_the_norm():
    x = torch.randn(2, 3, 4)
    out = LayerNorm(4)(x)
    assert out.mean(-1).abs().max() < 1e-6
    changed = x.clone()
    changed[:, 2] += 1
    assert torch.equal(LayerNorm(4)(changed)[:, :2], out[:, :2])


def test_d09_rms_norm_uses_the_eps_it_is_given():
    x = torch.full((4,), 1e-4)
    torch.testing.assert_close(RMSNorm(4, eps=1e-5)(x), torch.full((4,), 0.0316), atol=1e-4, rtol=0)
    eps = torch.finfo(torch.float32).eps
    torch.testing.assert_close(RMSNorm(4, eps=eps)(x), torch.full((4,), 0.2782), atol=1e-4, rtol=0)


@pytest.mark.parametrize("norm", [LayerNorm(4), RMSNorm(4)])
def test_norms_survive_half_precision(norm):
    x = torch.tensor([300.0, -300, 200, 100], dtype=torch.float16)  # squares overflow float16
    out = norm(x)
    assert out.dtype == torch.float16 and out.isfinite().all()
    torch.testing.assert_close(out.float(), norm(x.float()), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    ("eps", "error"), [(0, ValueError), (-1e-5, ValueError), (math.inf, ValueError),
                       (math.nan, ValueError), ("1e-5", TypeError), (None, TypeError)]
)  # fmt: skip
def test_norms_refuse_an_eps_that_is_not_positive(norm, eps, error):
    with pytest.raises(error, match="eps"):
        norm(4, eps=eps)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_norms_refuse_other_widths(norm):
    with pytest.raises(ValueError, match=r"d_model=4.*\(2, 5\)"):
        norm(4)(torch.zeros(2, 5))
    with pytest.raises(TypeError, match="int64"):
        norm(4)(torch.zeros(4).long())
    with pytest.raises(ValueError, match="d_model"):
        norm(0)


# --- feed-forward network -------------------------------------------------------------------------


def test_feed_forward_works_on_each_position_alone():
    module, x = FeedForward(8, 16), torch.randn(2, 5, 8)
    order = torch.randperm(5)
    torch.testing.assert_close(module(x[:, order]), module(x)[:, order])
    torch.testing.assert_close(module(x)[:, 2:3], module(x[:, 2:3]))


def test_e10_gelu_is_the_exact_one():
    module = FeedForward(1, 1, activation="gelu")
    for linear in (module.w_1, module.w_2):
        nn.init.ones_(linear.weight)
    x = torch.linspace(-6, 6, 200_001).view(1, -1, 1)
    torch.testing.assert_close(module(x), F.gelu(x))
    gap = (module(x) - F.gelu(x, approximate="tanh")).abs()
    assert abs(gap.max().item() - 4.74e-4) < 2e-6
    assert abs(abs(x.flatten()[gap.argmax()]) - 2.70) < 0.01


@pytest.mark.parametrize(
    ("bad", "error"), [({"activation": "swish"}, "swish"), ({"d_ff": 0}, "d_ff"),
                       ({"activation": ["relu"]}, "activation"), ({"dropout": 1}, "dropout")]
)  # fmt: skip
def test_feed_forward_refuses(bad, error):
    with pytest.raises(ValueError, match=error):
        FeedForward(**({"d_model": 4, "d_ff": 8} | bad))


# --- layer and stack ------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_one_layer_equals_torch_and_back(norm):
    theirs = torch_stack(1, norm).layers[0].eval()
    ours = copy_from_torch(EncoderLayer(16, 4, 32, 0.0, norm), theirs).eval()
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)
    twin = copy_to_torch(randomised(ours), torch_stack(1, norm).layers[0]).eval()
    torch.testing.assert_close(twin(x), ours(x), atol=1e-5, rtol=0)


def test_e01_torch_zeroes_padded_rows_only_on_its_fast_path():
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 3).eval()
    ours = copy_from_torch(Encoder(3, 16, 2, 32, 0.0, "post"), theirs).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad(), pytest.warns(UserWarning):
        fast = theirs(x, src_key_padding_mask=~KEEP)
    assert fast.shape == x.shape and not fast[~KEEP].any() and ours(x, KEEP)[~KEEP].any()
    torch.testing.assert_close(ours(x, KEEP)[KEEP], fast[KEEP], atol=1e-5, rtol=0)


def test_e04_layers_start_independent():
    first, second = Encoder(2, 16, 4, 32).layers
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert a is not b and ("weight" not in name or "norm" in name or not torch.equal(a, b))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_d10_zero_sub_layers_leave_what_the_form_says(norm):
    layer = EncoderLayer(16, 4, 32, 0.0, norm)
    nn.init.zeros_(layer.attention.w_o.weight), nn.init.zeros_(layer.feed_forward.w_2.weight)
    x = torch.randn(2, 5, 16)
    expected = x if norm == "pre" else layer.norm_2(layer.norm_1(x))
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=0)


def test_d05_d06_final_norm_of_pre_ln_only():
    for norm, extra in (("pre", 1), ("post", 0)):
        stack = Encoder(2, 16, 4, 32, norm=norm)
        assert sum(isinstance(m, LayerNorm) for m in stack.modules()) == 4 + extra
    x = torch.randn(4, 10, 64)
    without = []
    for n_layers in (1, 6, 24):
        stack = Encoder(n_layers, 64, 4, 128, 0.0)
        assert abs(stack(x).square().mean().sqrt() - 1) < 0.01
        stack.final_norm = nn.Identity()
        without.append(stack(x).square().mean().sqrt().item())
    assert without == sorted(without) and without[0] < 1.6 and 3 < without[-1] < 6


@pytest.mark.parametrize(
    ("change", "words"),
    [({"norm": "post"}, "norm"), ({"n_heads": 2}, "n_heads"), ({"d_ff": 8}, "shape"),
     ({"activation": "gelu"}, "activation"), ({"n_layers": 3}, "n_layers")],
)  # fmt: skip
def test_copying_between_different_forms_is_refused(change, words):
    form = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 32}
    ours, theirs = Encoder(**(form | change)), torch_stack(2, "pre")
    before = [p.clone() for p in ours.parameters()]
    with pytest.raises(ValueError, match=words):
        copy_from_torch(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(before, ours.parameters(), strict=True))


def test_copying_refuses_other_eps_biases_and_kinds():
    with pytest.raises(ValueError, match="eps"):
        copy_from_torch(LayerNorm(4), nn.LayerNorm(4, eps=1e-12))
    with pytest.raises(ValueError, match="bias"):
        copy_to_torch(encoder_lib.MultiHeadAttention(8, 2, bias=False), nn.MultiheadAttention(8, 2))
    with pytest.raises(TypeError, match="LayerNorm and Linear"):
        copy_from_torch(LayerNorm(4), nn.Linear(4, 4))
    with pytest.raises(TypeError, match="FeedForward and LayerNorm"):
        copy_from_torch(FeedForward(4, 8), nn.LayerNorm(4))
    for settings in ({"bias": False}, {"elementwise_affine": False}):
        with pytest.raises(ValueError, match="no weight or no bias"):
            copy_from_torch(LayerNorm(4), nn.LayerNorm(4, **settings))


def test_copying_refuses_an_activation_the_twin_does_not_have():
    ours, theirs = EncoderLayer(16, 4, 32, activation="gelu"), torch_stack(1, "pre", "gelu")
    copy_from_torch(ours, theirs.layers[0])
    ours.feed_forward.activation = nn.SiLU()
    with pytest.raises(ValueError, match="activation.*SiLU.*gelu"):
        copy_from_torch(ours, theirs.layers[0])
    theirs.layers[0].activation = nn.GELU(approximate="tanh")
    with pytest.raises(ValueError, match="activation.*gelu.*tanh"):
        copy_from_torch(EncoderLayer(16, 4, 32, activation="gelu"), theirs.layers[0])


@pytest.mark.parametrize(
    ("bad", "words"),
    [({"norm": "sandwich"}, "sandwich.*|pre.*post"), ({"n_layers": 0}, "n_layers"),
     ({"activation": "elu"}, "elu"), ({"dropout": 1.5}, "dropout"), ({"n_heads": 3}, "16.*3")],
)  # fmt: skip
def test_wrong_settings_are_named(bad, words):
    with pytest.raises(ValueError, match=words):
        Encoder(**({"n_layers": 1, "d_model": 16, "n_heads": 4, "d_ff": 8} | bad))


# --- the whole model ------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_a19_padding_never_changes_a_real_position(norm, positions):
    m = model(norm=norm, positions=positions, n_layers=4, max_len=30)
    h = m(IDS)
    longer = F.pad(IDS, (0, 20))
    torch.testing.assert_close(m(longer)[:, :5][KEEP], h[KEEP], atol=1e-5, rtol=0)
    alone = m(IDS[1:, :3])
    torch.testing.assert_close(alone[0], h[1, :3], atol=1e-5, rtol=0)
    garbage = torch.where(KEEP, IDS, 13)
    torch.testing.assert_close(m(garbage, KEEP)[KEEP], h[KEEP], atol=1e-5, rtol=0)


def test_mask_comes_from_pad_id_unless_given():
    m = model()
    assert torch.equal(m(IDS), m(IDS, IDS != 0))
    assert not torch.allclose(m(IDS)[1, :3], m(IDS, torch.ones_like(KEEP))[1, :3], atol=1e-3)
    free = model(pad_id=None)
    torch.testing.assert_close(free(IDS), free(IDS, torch.ones_like(KEEP)))


@pytest.mark.parametrize("asked", [False, True])
def test_a_fully_padded_sample_touches_nobody(asked):
    m = model()
    out = m(IDS, EMPTY, asked)
    out, weights = out if asked else (out, [torch.zeros(2, 1)])
    assert out.isfinite().all() and not any(w[1].any() for w in weights)
    torch.testing.assert_close(out[:1], m(IDS[:1], EMPTY[:1]), atol=1e-6, rtol=0)
    out.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in m.parameters())


def test_weights_of_every_layer_and_the_same_output():
    m = model(n_layers=3)
    out, weights = m(IDS, return_weights=True)
    assert [tuple(w.shape) for w in weights] == [(2, 4, 5, 5)] * 3
    assert all(not w[1, :, :, 3:].any() for w in weights)
    torch.testing.assert_close(out, m(IDS), atol=1e-6, rtol=0)


def test_without_positions_words_are_a_bag():
    m, order = model(positions=None), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(m(IDS[:1, order]), m(IDS[:1])[:, order], atol=1e-5, rtol=0)
    assert not torch.allclose(model()(IDS[:1, order]), model()(IDS[:1])[:, order], atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_runs_in_every_dtype(dtype):
    assert model().to(dtype)(IDS).dtype == dtype


def test_runs_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert model()(IDS).isfinite().all()


def test_e11_compiles_without_a_graph_break():
    m = model()
    compiled = torch.compile(m, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(IDS), m(IDS))
    torch.testing.assert_close(compiled(IDS, KEEP), m(IDS, KEEP))


def test_state_dict_fits_another_max_len():
    a, b = model(max_len=10), model(max_len=300)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(IDS), b(IDS))


def test_e07_dropout_is_all_that_differs_between_train_and_eval():
    m = model()
    torch.testing.assert_close(m.train()(IDS), m.eval()(IDS), atol=1e-5, rtol=0)
    dropped = model(dropout=0.5)
    assert torch.equal(dropped(IDS), dropped(IDS))
    assert not torch.equal(dropped.train()(IDS), dropped(IDS))


def test_sizes_of_the_articles_run():
    m = TransformerEncoder(1000, 512, 8, 2048, 6)
    ids = torch.randint(1, 1000, (2, 10))
    ids[1, 4:] = 0
    assert m(ids, ids != 0).shape == (2, 10, 512)
    assert m.encoder(torch.randn(4, 32, 512)).shape == (4, 32, 512)


@pytest.mark.parametrize(
    ("ids", "mask", "error"),
    [(IDS.float(), None, TypeError), (IDS[0], None, ValueError), (IDS, KEEP[:1], ValueError),
     (IDS, KEEP[:, :4], ValueError), (IDS, KEEP.float(), TypeError), ([[1]], None, TypeError)],
)  # fmt: skip
def test_wrong_inputs_are_refused(ids, mask, error):
    with pytest.raises(error, match="ids|keep_mask"):
        model()(ids, mask)


def test_parameter_count_of_the_article():
    with torch.device("meta"):
        post = TransformerEncoder(30_000, 256, 8, 1024, 4, norm="post")
        pre = TransformerEncoder(30_000, 256, 8, 1024, 4)
    assert sum(p.numel() for p in post.parameters()) == 10_839_040
    assert sum(p.numel() for p in pre.parameters()) == 10_839_040 + 512


# --- pooling and heads ----------------------------------------------------------------------------


def test_pooling_by_pencil():
    h = torch.tensor([[[1.0], [3.0], [9.0]], [[5.0], [-7.0], [9.0]], [[4.0], [4.0], [4.0]]])
    keep = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 0]]).bool()
    assert masked_mean(h, keep).flatten().tolist() == [2, -7, 0]
    assert masked_max(h, keep).flatten().tolist() == [3, -7, 0]
    h[~keep] = torch.inf  # what stands in the padding does not matter, however large
    assert masked_mean(h, keep).flatten().tolist() == [2, -7, 0]
    assert masked_first(h, keep).flatten().tolist() == [1, -7, 0]
    for pool in (masked_mean, masked_max, masked_first):
        with pytest.raises(ValueError, match="keep_mask"):
            pool(h, keep[:2])
        assert pool(h.half(), keep).dtype == torch.float16


@pytest.mark.parametrize("pool", [masked_mean, masked_max, masked_first])
def test_pooling_refuses_what_is_not_features(pool):
    with pytest.raises(ValueError, match=r"\(B, L, D\).*\(2, 5\)"):
        pool(torch.zeros(2, 5), KEEP)
    with pytest.raises(ValueError, match=r"L >= 1.*\(2, 0, 4\)"):
        pool(torch.zeros(2, 0, 4), torch.zeros(2, 0).bool())
    with pytest.raises(TypeError, match="int64"):
        pool(torch.zeros(2, 5, 4).long(), KEEP)


def test_half_precision_does_not_overflow_in_the_mean():
    h = torch.full((1, 3000, 2), 60.0, dtype=torch.float16)  # the sum is 180,000, above 65,504
    keep = torch.ones(1, 3000, dtype=torch.bool)
    assert masked_mean(h, keep).tolist() == [[60.0, 60.0]]


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_classifier_does_not_see_the_padding(pooling):
    m = EncoderClassifier(model(), 3, pooling).eval()
    logits = m(IDS)
    assert logits.shape == (2, 3) and not torch.allclose(logits.sum(-1), torch.ones(2))
    torch.testing.assert_close(m(F.pad(IDS, (0, 9))), logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(m(IDS[1:, :3])[0], logits[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_padding_may_stand_on_either_side(pooling):
    m = EncoderClassifier(model(positions=None), 3, pooling).eval()
    left, empty = torch.tensor([[0, 0, 4, 3, 2]]), torch.zeros(1, 5, dtype=torch.long)
    torch.testing.assert_close(m(left), m(IDS[1:]), atol=1e-5, rtol=0)
    assert torch.equal(m(empty)[0], m.head.bias)
    both = m(torch.cat([IDS, empty]))
    torch.testing.assert_close(both[:2], m(IDS), atol=1e-6, rtol=0)


@pytest.mark.parametrize("head", [EncoderClassifier, TokenClassifier])
@pytest.mark.parametrize("wrong", [Encoder(1, 16, 4, 32), nn.Linear(4, 4), None])
def test_heads_refuse_what_takes_no_ids(head, wrong):
    with pytest.raises(TypeError, match="TransformerEncoder.*" + type(wrong).__name__):
        head(wrong, 3)


def test_token_classifier_gives_logits_per_token():
    assert TokenClassifier(model(), 7)(IDS).shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("bad", "words"), [({"pooling": "sum"}, "sum"), ({"n_classes": 0}, "n_classes"),
                       ({"dropout": 1}, "dropout")]
)  # fmt: skip
def test_classifier_refuses(bad, words):
    with pytest.raises(ValueError, match=words):
        EncoderClassifier(model(), **({"n_classes": 2} | bad))


# --- initialisation -------------------------------------------------------------------------------


def test_initialize_schemes():
    m = TransformerEncoder(50, 256, 4, 256, 2, norm="post")
    linear = m.encoder.layers[0].attention
    bound = math.sqrt(6 / 512)
    assert abs(initialize(m).encoder.layers[0].attention.w_v.weight.std() * 3**0.5 - bound) < 2e-3
    initialize(m, "torch")
    assert linear.w_v.bias.any() and abs(linear.w_v.weight.std() * 3**0.5 - 1 / 16) < 2e-3
    initialize(m, "deepnorm")
    gain = 16**-0.25
    assert abs(linear.w_v.weight.std() * 3**0.5 - gain * bound) < 2e-3
    assert abs(linear.w_q.weight.std() * 3**0.5 - bound) < 2e-3
    assert m.encoder.layers[0].residual_scale == 4**0.25 and not linear.w_v.bias.any()
    assert not m.embedding.tokens.weight[0].any()
    assert initialize(m, "xavier").encoder.layers[0].residual_scale == 1.0
    with pytest.raises(ValueError, match="xavier.*deepnorm.*kaiming"):
        initialize(m, "kaiming")


def test_initialize_sets_norms_back():
    for norm in (LayerNorm(4), RMSNorm(4)):
        initialize(randomised(norm))
        assert torch.equal(norm.weight, torch.ones(4))
        assert not getattr(norm, "bias", torch.zeros(4)).any()


def test_deepnorm_is_refused_without_post_ln_layers():
    for module in (Encoder(2, 16, 4, 32, norm="pre"), FeedForward(4, 8)):
        before = [p.clone() for p in module.parameters()]
        with pytest.raises(ValueError, match="post"):
            initialize(module, "deepnorm")
        assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_a_deepnorm_model_is_the_same_after_saving_and_loading():
    saved = initialize(model(norm="post"), "deepnorm")
    loaded = model(norm="post")
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded(IDS), saved(IDS))
    assert not torch.allclose(model(norm="post")(IDS), saved(IDS))


def test_every_module_starts_as_xavier():
    torch.manual_seed(1)
    m = TransformerEncoder(50, 64, 4, 128, 1)
    for linear in [part for part in m.modules() if isinstance(part, nn.Linear)]:
        bound = math.sqrt(6 / sum(linear.weight.shape))
        assert not linear.bias.any() and 0.9 * bound < linear.weight.abs().max() <= bound


# --- the source -----------------------------------------------------------------------------------


def test_a14_no_module_is_built_in_forward():
    for path in Path(encoder_lib.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                calls = [ast.unparse(c.func) for c in ast.walk(node) if isinstance(c, ast.Call)]
                assert not [c for c in calls if c.startswith("nn.")], f"{path.name}: {calls}"


# --- behaviour of torch that the book builds on ---------------------------------------------------


def torch_encoder(**settings):
    settings = {"batch_first": True, "nhead": 2} | settings
    layer = nn.TransformerEncoderLayer(d_model=12, dim_feedforward=16, dropout=0.0, **settings)
    return nn.TransformerEncoder(layer, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"norm_first": True}, "norm_first"), ({"batch_first": False}, "batch_first"),
     ({"nhead": 3}, "num_head")],
)  # fmt: skip
def test_e05_torch_warns_unless_the_nested_path_is_off(settings, words):
    with pytest.warns(UserWarning, match=words):
        torch_encoder(**settings)
    torch_stack(2, "pre")  # enable_nested_tensor=False: any warning would fail this test


def test_e02_e06_bool_masks_neither_warn_nor_shorten_the_output():
    theirs, x = torch_stack(2, "post"), torch.randn(2, 5, 16)
    keep = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()  # a column padded in both
    none = torch.zeros(5, 5, dtype=torch.bool)
    for module in (theirs.train(), theirs.eval()):
        assert module(x, none, ~keep).shape == x.shape
    with pytest.warns(UserWarning, match="mismatched"):
        theirs(x, none.float(), ~keep)
    ours = copy_from_torch(Encoder(2, 16, 4, 32, 0.0, "post"), theirs)
    assert ours(x, keep).shape == x.shape  # all warnings are errors here


def bert_twin():
    """A BERT of torch's own parts, weights of sd 0.2, and our layers with the same weights."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", 1e-12, batch_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    parts = nn.ModuleDict({
        "words": nn.Embedding(50, 32), "places": nn.Embedding(6, 32), "types": nn.Embedding(2, 32),
        "norm": nn.LayerNorm(32, eps=1e-12), "body": body,
    })  # fmt: skip
    randomised(parts, 0.2).eval()
    for part in parts.modules():
        if isinstance(part, nn.LayerNorm):
            part.reset_parameters()
    ours = Encoder(2, 32, 4, 64, 0.0, "post", "gelu").eval()
    for part in ours.modules():
        if isinstance(part, LayerNorm):
            part.eps = 1e-12
    return parts, copy_from_torch(ours, body)


def test_e08_the_details_of_bert_that_are_forgotten():
    parts, ours = bert_twin()
    ids = torch.randint(50, (2, 6))
    keep = torch.tensor([[1] * 6, [1] * 3 + [0] * 3]).bool()

    def embedded(types=True, eps=1e-12):
        x = parts["words"](ids) + parts["places"](torch.arange(6))
        return F.layer_norm(x + parts["types"].weight[0] if types else x, (32,), eps=eps)

    expected = parts["body"](embedded(), src_key_padding_mask=~keep)

    def gap(out):
        return (out - expected)[keep].abs().max().item()

    assert gap(ours(embedded(), keep)) < 1e-5
    assert gap(ours(embedded(types=False), keep)) > 0.1 and gap(ours(embedded())) > 0.1
    for layer in ours.layers:
        layer.feed_forward.activation = nn.GELU(approximate="tanh")
    assert 1e-5 < gap(ours(embedded(), keep)) < 0.1
    parts, ours = bert_twin()
    for layer in ours.layers:
        layer.norm_1.eps = layer.norm_2.eps = 1e-5
    assert 1e-5 < gap(ours(embedded(eps=1e-5), keep)) < 0.1


def test_d07_post_ln_needs_a_small_rate_or_warm_up_at_twelve_layers():
    ids, labels = torch.randint(1, 20, (32, 10)), torch.randint(4, (32,))

    def loss_after_training(norm):
        torch.manual_seed(0)
        body = TransformerEncoder(20, 64, 4, 128, 12, dropout=0.0, norm=norm)
        m = EncoderClassifier(body, 4, dropout=0.0)
        optimizer = torch.optim.Adam(m.parameters(), lr=3e-3)
        for _ in range(60):
            loss = F.cross_entropy(m(ids), labels)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        return loss.item()

    assert loss_after_training("post") > 1.0
    assert loss_after_training("pre") < 0.2
