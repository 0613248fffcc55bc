"""Token embeddings, positions and the encoder's input: fixed numbers, parity and invariances."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from encoder_lib import (
    InputEmbedding,
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)

repeatable = settings(max_examples=40, deadline=None, derandomize=True, database=None)

POSITIONAL = [SinusoidalPositionalEncoding, LearnedPositionalEmbedding]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
            torch.uint16, torch.uint32, torch.uint64]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32, torch.float64]


def reference_row(position, d_model):
    """One row of the sinusoidal table, element by element, with Python floats."""
    row = []
    for j in range(d_model):
        angle = position / 10000 ** ((j - j % 2) / d_model)
        row.append(math.cos(angle) if j % 2 else math.sin(angle))
    return row


def reference_table(positions, d_model):
    rows = [reference_row(p, d_model) for p in positions]
    return torch.tensor(rows, dtype=torch.float64)


def naive_table(length, d_model):
    """The usual float32 form with exp and log."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table


def rms(x):
    return float(x.detach().double().pow(2).mean().sqrt())


def added(module, batch, length, d_model, dtype=torch.float32):
    """What a positional module adds to zeros."""
    return module(torch.zeros(batch, length, d_model, dtype=dtype))


# --- The reported cases ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "d_model, row",
    [
        (1, [0.8415]),
        (3, [0.8415, 0.5403, 0.0022]),
        (5, [0.8415, 0.5403, 0.0251, 0.9997, 0.0006]),
    ],
)
def test_B01_odd_d_model_has_a_last_sine_without_cosine(d_model, row):
    module = SinusoidalPositionalEncoding(d_model, max_len=4)
    assert module.table.shape == (4, d_model)
    torch.testing.assert_close(module.table[1], torch.tensor(row), atol=5e-5, rtol=0)
    torch.testing.assert_close(added(module, 1, 4, d_model)[0], module.table)


def test_B01_odd_d_model_29_equals_the_formula():
    table = SinusoidalPositionalEncoding(29, max_len=4).table
    torch.testing.assert_close(table.double(), reference_table(range(4), 29), atol=1e-7, rtol=0)


def test_B02_exponent_is_not_doubled_and_cosine_shares_the_frequency_of_its_sine():
    row = SinusoidalPositionalEncoding(4).table[1]
    right = torch.tensor([0.841471, 0.540302, 0.0099998, 0.99995])
    doubled = torch.tensor([0.841471, 0.99995, 0.0001, 1.0])
    torch.testing.assert_close(row, right, atol=1e-6, rtol=0)
    assert not torch.allclose(row, doubled, atol=1e-3)
    assert SinusoidalPositionalEncoding(4).table[0].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("length", [5, 3])
@pytest.mark.parametrize("kind", POSITIONAL)
def test_B04_rows_follow_the_position_not_the_batch(kind, length):
    out = added(kind(4, max_len=10), 3, length, 4)
    assert torch.equal(out[0], out[1]) and torch.equal(out[0], out[2])
    assert not torch.allclose(out[0, 0], out[0, 1], atol=0.1)


@pytest.mark.parametrize("kind", POSITIONAL)
def test_B06_length_above_max_len_names_both_numbers_and_the_remedy(kind):
    module = kind(4, max_len=10)
    with pytest.raises(ValueError, match=r"length 12.*max_len=10.*max_len=12 or more"):
        added(module, 1, 12, 4)
    with pytest.raises(ValueError, match=r"length 11.*max_len=10"):
        added(module, 1, 11, 4)
    assert torch.isfinite(added(module, 1, 10, 4)).all()


@pytest.mark.parametrize("kind", POSITIONAL)
def test_B06_max_len_1_is_not_broadcast_over_longer_sequences(kind):
    module = kind(4, max_len=1)
    assert added(module, 2, 1, 4).shape == (2, 1, 4)
    with pytest.raises(ValueError, match=r"length 2.*max_len=1\b"):
        added(module, 2, 2, 4)


def test_B07_table_is_not_in_the_state_dict_and_checkpoints_fit_another_max_len():
    short, long = (InputEmbedding(9, 4, max_len=n) for n in (10, 20))
    assert list(SinusoidalPositionalEncoding(4).state_dict()) == []
    assert list(SinusoidalPositionalEncoding(4).parameters()) == []
    assert list(short.state_dict()) == ["tokens.weight"]
    before = {name: value.shape for name, value in long.state_dict().items()}
    long.load_state_dict(short.state_dict())
    ids = torch.tensor([[3, 1, 0]])
    assert torch.equal(short.eval()(ids), long.eval()(ids))
    assert before == {name: value.shape for name, value in long.state_dict().items()}


@pytest.mark.parametrize("dtype", FLOATS)
def test_B07_to_moves_the_table(dtype):
    module = SinusoidalPositionalEncoding(4, max_len=3)
    assert "table" in dict(module.named_buffers())
    assert module.to(dtype).table.dtype == dtype
    assert module.to("meta").table.device.type == "meta"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", POSITIONAL)
def test_B08_the_dtype_that_comes_in_goes_out(kind, dtype):
    module = kind(4, max_len=9)
    x = torch.randn(1, 2, 4).to(dtype)
    assert module(x).dtype == dtype
    torch.testing.assert_close(
        (module(x) - x).float(), added(module, 1, 2, 4).detach(), atol=2e-2, rtol=0
    )


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", POSITIONAL)
def test_B08_autocast_keeps_the_dtype(kind, dtype):
    module, x = kind(4, max_len=9), torch.randn(1, 2, 4)
    with torch.autocast("cpu", dtype=dtype):
        assert module(x).dtype == torch.float32
        assert module(nn.Linear(4, 4)(x)).dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_B08_a_converted_model_runs_whole(positions, dtype):
    model = InputEmbedding(9, 4, max_len=5, positions=positions).eval()
    ids = torch.tensor([[1, 2, 0]])
    expected = model(ids).float()
    out = model.to(dtype)(ids)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("length, d_model, naive", [
    (512, 512, 1e-5), (5000, 512, 1e-4), (10000, 64, 1e-4),
])  # fmt: skip
def test_B10_table_is_as_exact_as_float32_allows_at_any_length(length, d_model, naive):
    positions = [*range(0, length, 37), length - 1]
    exact = reference_table(positions, d_model)
    table = SinusoidalPositionalEncoding(d_model, max_len=length).table[positions]
    assert (table.double() - exact).abs().max() < 6e-8
    # The bound tells the two forms apart: angles in float32 lose digits far out.
    worse = (naive_table(length, d_model)[positions].double() - exact).abs().max()
    assert naive < worse < 10 * naive


def test_B12_padded_slots_hold_the_positional_rows():
    model = InputEmbedding(9, 4, max_len=6).eval()
    out = model(torch.tensor([[5, 0, 0]]))
    assert torch.equal(out[0, 1:], model.positions.table[1:3])
    assert (out[0, 1:].abs().sum(-1) > 0.5).all()
    bare = InputEmbedding(9, 4, positions=None).eval()
    assert torch.equal(bare(torch.tensor([[5, 0, 0]]))[0, 1:], torch.zeros(2, 4))


def test_B12_padded_slots_hold_the_learned_rows():
    model = InputEmbedding(9, 4, max_len=6, positions="learned").eval()
    assert torch.equal(model(torch.tensor([[5, 0, 0]]))[0, 1:], model.positions.weight[1:3])


def test_B13_multiplied_rows_have_rms_1_and_positions_0707():
    ids = torch.arange(1, 1000).reshape(1, -1)
    tokens = TokenEmbedding(1000, 512)
    assert rms(tokens(ids)) == pytest.approx(1.0, abs=0.01)
    assert rms(SinusoidalPositionalEncoding(512).table) == pytest.approx(0.7071, abs=1e-4)
    nn.init.normal_(tokens.weight, std=1.0)
    assert rms(tokens(ids)) == pytest.approx(22.6, abs=0.2)
    unscaled = TokenEmbedding(1000, 512, scale=False)
    assert rms(unscaled(ids)) == pytest.approx(512**-0.5, rel=0.01)


def test_B13_learned_rows_start_as_loud_as_the_sinusoids():
    assert rms(LearnedPositionalEmbedding(512, max_len=1000).weight) == pytest.approx(
        0.7071, abs=0.005
    )


@pytest.mark.parametrize("scale, factor", [(True, 4.0), (False, 1.0)])
def test_B13_scaling_and_positions_are_separate_switches(scale, factor):
    ids = torch.tensor([[3, 1, 2]])
    for positions in ("sinusoidal", "learned", None):
        model = InputEmbedding(9, 16, positions=positions, scale=scale).eval()
        rows = model.tokens.weight[ids] * factor
        torch.testing.assert_close(model.tokens(ids), rows)
        if positions is None:
            torch.testing.assert_close(model(ids), rows)
        else:
            assert not torch.allclose(model(ids), rows, atol=0.1)


# --- Token embedding ------------------------------------------------------------------------


@repeatable
@given(
    ids=st.integers(1, 4).flatmap(
        lambda length: st.lists(
            st.lists(st.integers(0, 6), min_size=length, max_size=length), min_size=1, max_size=4
        )
    ),
    pad_id=st.sampled_from([None, 0, 3, 6]),
)
def test_lookup_equals_one_hot_matmul_and_nn_embedding_forward_and_backward(ids, pad_id):
    ids = torch.tensor(ids)
    ours = TokenEmbedding(7, 6, pad_id=pad_id)
    theirs = nn.Embedding(7, 6, padding_idx=pad_id)
    theirs.load_state_dict(ours.state_dict())
    weight = ours.weight.detach().clone().requires_grad_()
    upstream = torch.randn(*ids.shape, 6)
    by_matmul = F.one_hot(ids, 7).float() @ weight * math.sqrt(6)
    by_torch = theirs(ids) * math.sqrt(6)
    for out in (ours(ids), by_torch, by_matmul):
        torch.testing.assert_close(out, by_torch)
        (out * upstream).sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    if pad_id is not None:
        assert torch.equal(ours.weight.grad[pad_id], torch.zeros(6))
        weight.grad[pad_id] = 0.0
    torch.testing.assert_close(ours.weight.grad, weight.grad)


def test_gradient_counts_how_often_an_id_occurs():
    module = TokenEmbedding(5, 4)
    module(torch.tensor([[2, 2, 1, 0], [2, 0, 0, 0]])).sum().backward()
    expected = torch.tensor([0.0, 2.0, 6.0, 0.0, 0.0])[:, None].expand(5, 4)
    torch.testing.assert_close(module.weight.grad, expected)


@pytest.mark.parametrize("pad_id", [0, 4])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.0),
    ],
    ids=["sgd", "adam", "adamw"],
)
def test_pad_row_stays_zero_through_training(pad_id, optimizer):
    module = TokenEmbedding(5, 4, pad_id=pad_id)
    before = module.weight.detach().clone()
    step = optimizer(module.parameters())
    for _ in range(3):
        step.zero_grad()
        (module(torch.tensor([[pad_id, 1, 2, pad_id]])) - 1).pow(2).sum().backward()
        step.step()
    assert torch.equal(module.weight[pad_id], torch.zeros(4))
    assert not torch.allclose(module.weight[1], before[1], atol=1e-3)


@pytest.mark.parametrize("pad_id", [0, 7, None])
@pytest.mark.parametrize("d_model", [16, 512])
def test_rows_start_as_normal_with_variance_one_over_d_model(d_model, pad_id):
    weight = TokenEmbedding(4000, d_model, pad_id=pad_id).weight.detach()
    real = torch.ones(4000, dtype=torch.bool)
    if pad_id is not None:
        real[pad_id] = False
        assert torch.equal(weight[pad_id], torch.zeros(d_model))
    assert float(weight[real].std()) == pytest.approx(d_model**-0.5, rel=0.02)
    assert float(weight[real].mean()) == pytest.approx(0.0, abs=0.02 * d_model**-0.5)
    assert (weight[real].abs().sum(-1) > 0).all()


def test_reset_parameters_draws_anew_and_keeps_the_pad_row_zero():
    module = TokenEmbedding(50, 16, pad_id=3)
    before = module.weight.detach().clone()
    nn.init.ones_(module.weight)
    module.reset_parameters()
    assert torch.equal(module.weight[3], torch.zeros(16))
    assert float(module.weight.detach().std()) == pytest.approx(0.25, rel=0.1)
    assert not torch.allclose(module.weight, before)
    assert module.weight.requires_grad


@pytest.mark.parametrize("scale, factor", [(True, 8.0), (False, 1.0)])
def test_scale_multiplies_by_the_root_of_d_model(scale, factor):
    module = TokenEmbedding(5, 64, scale=scale)
    ids = torch.tensor([[1, 4, 0]])
    torch.testing.assert_close(module(ids), module.weight[ids] * factor)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_dtype_is_accepted(dtype):
    module = TokenEmbedding(100, 4)
    ids = torch.tensor([[1, 99, 0]])
    assert torch.equal(module(ids.to(dtype)), module(ids))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bool, torch.complex64])
def test_ids_that_are_not_integers_are_refused(dtype):
    with pytest.raises(TypeError, match=f"ids must hold integers, got {dtype}"):
        TokenEmbedding(5, 4)(torch.ones(1, 3).to(dtype))


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3), (1, 1, 1, 1)])
def test_ids_that_do_not_have_two_axes_are_refused(shape):
    with pytest.raises(ValueError) as caught:
        TokenEmbedding(5, 4)(torch.ones(shape, dtype=torch.long))
    assert "(B, L)" in str(caught.value) and str(tuple(shape)) in str(caught.value)


@pytest.mark.parametrize("ids, kind", [([[1, 2]], "list"), (None, "NoneType"), (3, "int")])
def test_ids_that_are_not_a_tensor_are_refused(ids, kind):
    with pytest.raises(TypeError, match=rf"ids must be an integer tensor.*\(B, L\).*{kind}"):
        TokenEmbedding(5, 4)(ids)


@pytest.mark.parametrize("ids, seen", [([[5, 1]], "1 to 5"), ([[-1, 2]], "-1 to 2")])
@pytest.mark.parametrize("make", [TokenEmbedding, InputEmbedding])
def test_ids_outside_the_vocabulary_are_refused_naming_the_range(make, ids, seen):
    with pytest.raises(IndexError, match=f"0 to 4, got {seen}"):
        make(5, 4)(torch.tensor(ids))
    make(5, 4)(torch.tensor([[0, 4]]))


@pytest.mark.parametrize("dtype", INTEGERS[5:])
def test_unsigned_ids_outside_the_vocabulary_are_refused_in_the_same_words(dtype):
    with pytest.raises(IndexError, match="0 to 4, got 1 to 9"):
        TokenEmbedding(5, 4)(torch.tensor([[1, 9]]).to(dtype))


@pytest.mark.parametrize("pad_id", [-1, 5, 100])
@pytest.mark.parametrize("make", [TokenEmbedding, InputEmbedding])
def test_pad_id_outside_the_vocabulary_is_refused(make, pad_id):
    with pytest.raises(ValueError, match=f"pad_id must be None or 0 to 4, got {pad_id}"):
        make(5, 4, pad_id=pad_id)


@pytest.mark.parametrize("pad_id", [True, False, 1.0, 1.5, "0", [0], torch.tensor(0)], ids=repr)
def test_pad_id_that_is_not_an_int_is_refused_at_construction(pad_id):
    with pytest.raises(TypeError, match="pad_id must be"):
        TokenEmbedding(5, 4, pad_id=pad_id)


def test_without_pad_id_row_0_is_a_token_like_any_other():
    module = TokenEmbedding(5, 4, pad_id=None)
    assert (module.weight[0].abs() > 0).all()
    module(torch.tensor([[0, 0]])).sum().backward()
    torch.testing.assert_close(module.weight.grad[0], torch.full((4,), 4.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: TokenEmbedding(n, 4),
        lambda n: TokenEmbedding(9, n),
        lambda n: SinusoidalPositionalEncoding(n),
        lambda n: SinusoidalPositionalEncoding(4, n),
        lambda n: LearnedPositionalEmbedding(n),
        lambda n: LearnedPositionalEmbedding(4, n),
        lambda n: InputEmbedding(n, 4),
        lambda n: InputEmbedding(9, n),
        lambda n: InputEmbedding(9, 4, max_len=n),
        lambda n: sinusoidal_table(n, 4),
        lambda n: sinusoidal_table(4, n),
    ],
)
def test_sizes_that_are_not_positive_ints_are_refused_by_name(make):
    name = r"(vocab_size|d_model|max_len|length)"
    for size in (0, -3):
        with pytest.raises(ValueError, match=rf"{name} must be at least 1, got {size}"):
            make(size)
    for size in (2.0, True, "4", None, torch.tensor(4)):
        with pytest.raises(TypeError, match=rf"{name} must be a whole number \(int\), got"):
            make(size)


def test_sizes_are_refused_under_their_own_name():
    for argument in ("vocab_size", "d_model"):
        sizes = {"vocab_size": 9, "d_model": 4, argument: 0}
        with pytest.raises(ValueError, match=argument):
            TokenEmbedding(**sizes)
    for argument in ("d_model", "max_len"):
        sizes = {"max_len": 9, "d_model": 4, argument: 0}
        for kind in POSITIONAL:
            with pytest.raises(ValueError, match=argument):
                kind(**sizes)
    for argument in ("length", "d_model"):
        with pytest.raises(ValueError, match=argument):
            sinusoidal_table(**{"length": 9, "d_model": 4, argument: 0})


# --- Sinusoids: the formula and its properties ----------------------------------------------


@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 7, 8, 29, 64, 129, 512])
def test_table_equals_the_formula_element_by_element(d_model):
    table = sinusoidal_table(50, d_model)
    assert table.dtype == torch.float64
    torch.testing.assert_close(table, reference_table(range(50), d_model), atol=1e-13, rtol=0)


@pytest.mark.parametrize("d_model", [5, 64])
def test_table_equals_the_formula_up_to_position_5000(d_model):
    torch.testing.assert_close(
        sinusoidal_table(5000, d_model), reference_table(range(5000), d_model), atol=5e-12, rtol=0
    )


@repeatable
@given(d=st.integers(1, 40), length=st.integers(1, 60), longer=st.integers(0, 60))
def test_a_longer_table_starts_with_the_shorter_one(d, length, longer):
    assert torch.equal(sinusoidal_table(length + longer, d)[:length], sinusoidal_table(length, d))


@repeatable
@given(half=st.integers(1, 16), k=st.integers(-40, 40))
def test_a_shift_is_a_rotation(half, k):
    d, first = 2 * half, max(0, -k)
    table = sinusoidal_table(100, d)
    blocks = []
    for i in range(half):
        angle = k / 10000 ** (2 * i / d)
        sine, cosine = math.sin(angle), math.cos(angle)
        blocks.append(torch.tensor([[cosine, sine], [-sine, cosine]], dtype=torch.float64))
    rotation = torch.block_diag(*blocks)  # does not know the position
    at = torch.arange(first, 100 - max(0, k))
    torch.testing.assert_close(table[at] @ rotation.T, table[at + k], atol=1e-11, rtol=0)


@pytest.mark.parametrize("d_model", [2, 4, 64, 512])
def test_every_row_has_norm_root_of_half_d_model(d_model):
    norms = sinusoidal_table(5000, d_model).norm(dim=-1)
    expected = torch.full_like(norms, math.sqrt(d_model / 2))
    torch.testing.assert_close(norms, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("d_model", [2, 6, 64])
def test_dot_products_depend_on_the_distance_alone(d_model):
    table = sinusoidal_table(120, d_model)
    products = table @ table.T
    for distance in (0, 1, 5, 40):
        expected = sum(
            math.cos(distance / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)
        )
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(
            diagonal, torch.full_like(diagonal, expected), atol=1e-10, rtol=0
        )


@pytest.mark.parametrize("d_model", [2, 3, 8, 64])
def test_no_two_positions_share_a_row(d_model):
    table = sinusoidal_table(700, d_model)
    distances = torch.cdist(table, table) + torch.eye(700, dtype=torch.float64) * 9
    assert distances.min() > 1e-3
    # One sine alone does come back: the test above would notice.
    lonely = sinusoidal_table(700, 1)
    again = torch.cdist(lonely, lonely) + torch.eye(700, dtype=torch.float64) * 9
    assert again.min() < 1e-3


def test_wavelengths_grow_from_2_pi_to_nearly_20000_pi():
    table = sinusoidal_table(2, 512)
    rates = torch.asin(table[1, 0::2])
    assert float(2 * math.pi / rates[0]) == pytest.approx(2 * math.pi)
    assert float(2 * math.pi / rates[-1]) == pytest.approx(2 * math.pi * 10000 ** (510 / 512))
    ratios = rates[1:] / rates[:-1]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10000 ** (-2 / 512)))


def test_float64_input_gets_float64_accuracy():
    module = SinusoidalPositionalEncoding(64, max_len=500)
    out = added(module, 2, 500, 64, torch.float64)
    exact = reference_table(range(500), 64)
    torch.testing.assert_close(out, exact.expand(2, -1, -1), atol=1e-12, rtol=0)
    assert (module.table.double() - exact).abs().max() > 1e-9  # the buffer alone could not


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_table_is_kept_in_the_default_dtype(dtype):
    standard = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert SinusoidalPositionalEncoding(4, max_len=3).table.dtype == dtype
    finally:
        torch.set_default_dtype(standard)


# --- What both kinds of positions promise ---------------------------------------------------


@repeatable
@given(
    kind=st.sampled_from(POSITIONAL),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 9)),
)
def test_the_first_rows_are_added_to_every_sentence(kind, shape):
    module = kind(shape[2], max_len=12)
    rows = module.table if kind is SinusoidalPositionalEncoding else module.weight
    x = torch.randn(shape)
    torch.testing.assert_close(module(x), x + rows[: shape[1]].expand(shape), atol=0, rtol=0)


@pytest.mark.parametrize("kind", POSITIONAL)
def test_the_input_is_left_as_it_was_and_the_output_is_new(kind):
    module, x = kind(4, max_len=5), torch.randn(2, 3, 4)
    before, out = x.clone(), module(x)
    expected = out.detach().clone()
    assert torch.equal(x, before)
    out.detach().fill_(7.0)  # the output shares no memory with the input or the rows
    assert torch.equal(x, before) and torch.equal(module(x), expected)


@pytest.mark.parametrize("kind", POSITIONAL)
def test_the_gradient_passes_through_unchanged(kind):
    x = torch.randn(2, 3, 4, requires_grad=True)
    upstream = torch.randn(2, 3, 4)
    kind(4, max_len=5)(x).backward(upstream)
    assert torch.equal(x.grad, upstream)


@pytest.mark.parametrize("kind", POSITIONAL)
def test_train_and_eval_agree(kind):
    module, x = kind(4, max_len=5), torch.randn(2, 3, 4)
    assert torch.equal(module.train()(x), module.eval()(x))


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 1), (3, 4), (4,), (1, 2, 3, 4)])
@pytest.mark.parametrize("kind", POSITIONAL)
def test_features_of_another_shape_are_refused_naming_both(kind, shape):
    with pytest.raises(ValueError) as caught:
        kind(4, max_len=9)(torch.zeros(shape))
    assert "d_model=4" in str(caught.value) and str(shape) in str(caught.value)


@pytest.mark.parametrize("kind", POSITIONAL)
@pytest.mark.parametrize(
    "x, name",
    [
        (torch.zeros(1, 2, 4, dtype=torch.long), "torch.int64"),
        (torch.zeros(1, 2, 4, dtype=torch.bool), "torch.bool"),
        (torch.zeros(1, 2, 4, dtype=torch.complex64), "torch.complex64"),
        ([[[0.0] * 4]], "list"),
        (None, "NoneType"),
    ],
    ids=["int", "bool", "complex", "list", "none"],
)
def test_features_that_are_not_floating_point_are_refused(kind, x, name):
    with pytest.raises(TypeError, match=f"x must be a floating-point tensor.*{name}"):
        kind(4, max_len=9)(x)


# --- Learned positions ----------------------------------------------------------------------


def test_learned_rows_get_one_gradient_per_sentence_and_only_where_used():
    module = LearnedPositionalEmbedding(4, max_len=5)
    module(torch.zeros(3, 2, 4)).sum().backward()
    expected = torch.tensor([3.0, 3.0, 0.0, 0.0, 0.0])[:, None].expand(5, 4)
    assert torch.equal(module.weight.grad, expected)


def test_learned_rows_equal_nn_embedding_of_the_positions():
    ours, theirs = LearnedPositionalEmbedding(6, max_len=8), nn.Embedding(8, 6)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(ours(x), x + theirs(torch.arange(5)))


def test_learned_rows_start_with_variance_one_half():
    weight = LearnedPositionalEmbedding(256, max_len=512).weight.detach()
    assert float(weight.std()) == pytest.approx(0.5**0.5, rel=0.01)
    assert float(weight.mean()) == pytest.approx(0.0, abs=0.01)
    assert not torch.allclose(weight[0], weight[1], atol=0.1)


def test_learned_reset_parameters_draws_anew():
    module = LearnedPositionalEmbedding(64, max_len=64)
    nn.init.zeros_(module.weight)
    module.reset_parameters()
    assert float(module.weight.detach().std()) == pytest.approx(0.5**0.5, rel=0.05)


@pytest.mark.parametrize("make", [
    lambda: TokenEmbedding(9, 4),
    lambda: LearnedPositionalEmbedding(4, max_len=7),
    lambda: InputEmbedding(9, 4, max_len=7, positions="learned"),
])  # fmt: skip
def test_state_dicts_round_trip(make):
    first, second = make(), make()
    assert any(
        not torch.equal(a, b)
        for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert all(name.endswith("weight") for name in first.state_dict())
    second.load_state_dict(first.state_dict())
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


# --- The encoder's input --------------------------------------------------------------------


@repeatable
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 10)),
    positions=st.sampled_from(["sinusoidal", "learned", None]),
    scale=st.booleans(),
    seed=st.integers(0, 99),
)
def test_composition_equals_its_parts(shape, positions, scale, seed):
    ids = torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(seed))
    model = InputEmbedding(9, 6, max_len=10, positions=positions, scale=scale).eval()
    expected = F.embedding(ids, model.tokens.weight) * (math.sqrt(6) if scale else 1)
    if positions == "sinusoidal":
        expected = expected + sinusoidal_table(shape[1], 6).float()
    if positions == "learned":
        expected = expected + model.positions.weight[: shape[1]]
    torch.testing.assert_close(model(ids), expected, atol=1e-6, rtol=1e-6)


@repeatable
@given(
    batch=st.integers(1, 4),
    length=st.integers(1, 6),
    padding=st.integers(0, 4),
    positions=st.sampled_from(["sinusoidal", "learned", None]),
)
def test_padding_and_neighbours_change_no_row(batch, length, padding, positions):
    model = InputEmbedding(9, 4, max_len=12, positions=positions).eval()
    ids = torch.randint(1, 9, (batch, length))
    out = model(ids)
    longer = F.pad(ids, (0, padding))
    assert torch.equal(model(longer)[:, :length], out)  # a longer batch starts the same
    for b in range(batch):
        assert torch.equal(model(ids[b : b + 1])[0], out[b])  # a sentence does not see others


def test_only_positions_tell_word_orders_apart():
    ids, order = torch.tensor([[3, 5, 7, 2]]), torch.tensor([2, 0, 3, 1])
    bare = InputEmbedding(9, 8, positions=None).eval()
    assert torch.equal(bare(ids[:, order]), bare(ids)[:, order])
    for positions in ("sinusoidal", "learned"):
        model = InputEmbedding(9, 8, positions=positions).eval()
        assert not torch.allclose(model(ids[:, order]), model(ids)[:, order], atol=0.1)


@pytest.mark.parametrize("positions", ["Sinusoidal", "rotary", "none", "", 0, False])
def test_unknown_positions_are_refused_naming_the_choices(positions):
    with pytest.raises(ValueError) as caught:
        InputEmbedding(9, 4, positions=positions)
    for word in ("positions", "sinusoidal", "learned", "None", repr(positions)):
        assert word in str(caught.value)


@pytest.mark.parametrize("dropout", [-0.1, 1, 1.0, 1.5, math.nan, math.inf])
def test_dropout_outside_its_range_is_refused(dropout):
    with pytest.raises(ValueError, match=f"dropout must be at least 0 and below 1, got {dropout}"):
        InputEmbedding(9, 4, dropout=dropout)
    assert InputEmbedding(9, 4, dropout=0.999).dropout.p == 0.999


@pytest.mark.parametrize("dropout", ["0.1", None, [0.1]])
def test_dropout_that_is_not_a_number_is_refused(dropout):
    with pytest.raises(TypeError, match="dropout must be"):
        InputEmbedding(9, 4, dropout=dropout)


def test_dropout_acts_on_the_sum_in_training_only():
    model = InputEmbedding(50, 64, dropout=0.25)
    ids = torch.randint(0, 50, (4, 64))
    clean = model.eval()(ids)
    assert torch.equal(model(ids), clean)
    noisy = model.train()(ids)
    kept = noisy != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(noisy[kept], clean[kept] / 0.75)
    assert not torch.equal(model(ids), noisy)


def test_dropout_0_makes_training_and_evaluation_equal():
    model, ids = InputEmbedding(9, 4, dropout=0), torch.tensor([[1, 2, 0]])
    assert torch.equal(model.train()(ids), model.eval()(ids))


def test_the_default_dropout_is_one_tenth():
    assert InputEmbedding(9, 4).dropout.p == 0.1


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_max_len_limits_the_length(positions):
    model = InputEmbedding(9, 4, max_len=3, positions=positions)
    assert model(torch.ones(2, 3, dtype=torch.long)).shape == (2, 3, 4)
    with pytest.raises(ValueError, match=r"length 4.*max_len=3"):
        model(torch.ones(2, 4, dtype=torch.long))


def test_without_positions_the_length_has_no_limit():
    model = InputEmbedding(9, 4, max_len=2, positions=None)
    assert model(torch.ones(2, 7, dtype=torch.long)).shape == (2, 7, 4)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_the_same_seed_gives_the_same_numbers(positions):
    def run(seed):
        torch.manual_seed(seed)
        return InputEmbedding(9, 4, positions=positions, dropout=0.5)(torch.tensor([[1, 2, 3]]))

    assert torch.equal(run(7), run(7))
    assert not torch.equal(run(7), run(8))


def test_sinusoids_draw_no_random_numbers():
    before = torch.get_rng_state()
    SinusoidalPositionalEncoding(8)(torch.zeros(1, 2, 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_ids_are_left_as_they_were():
    ids = torch.tensor([[1, 0, 2]], dtype=torch.int32)
    InputEmbedding(9, 4)(ids)
    assert ids.dtype == torch.int32 and ids.tolist() == [[1, 0, 2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_forward_compiles_into_one_graph(positions, dtype):
    torch.compiler.reset()
    model = InputEmbedding(9, 4, max_len=6, positions=positions).to(dtype).eval()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for ids in (torch.tensor([[1, 2, 0]]), torch.tensor([[0, 0, 0], [8, 1, 5]])):
        assert torch.equal(compiled(ids), model(ids))


def test_the_compile_check_notices_a_branch_on_values():
    def branching(x):
        return x + 1 if x.sum() > 0 else x

    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(branching, fullgraph=True, backend="eager")(torch.ones(2))


def test_the_sizes_of_the_paper_run_through():
    ids = torch.randint(1, 1000, (2, 10))
    out = InputEmbedding(1000, 512).eval()(ids)
    assert out.shape == (2, 10, 512)
    assert rms(out) == pytest.approx(math.sqrt(1 + 0.5), rel=0.05)  # tokens 1, positions 1/2
