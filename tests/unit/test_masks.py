"""Padding masks: one polarity, conversions by name, nothing converted or broadcast in silence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from encoder_lib import (
    from_attention_mask,
    from_huggingface_mask,
    from_key_padding_mask,
    keep_mask_from_ids,
    keep_mask_from_lengths,
    to_attention_mask,
    to_huggingface_mask,
    to_key_padding_mask,
)
from encoder_lib.masks import as_keep_mask

repeatable = settings(max_examples=60, deadline=None, derandomize=True, database=None)

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
            torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KEEP = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])

TAKES_B_L = [as_keep_mask, to_key_padding_mask, from_key_padding_mask, to_attention_mask,
             to_huggingface_mask, from_huggingface_mask]
ROUND_TRIPS = [(to_key_padding_mask, from_key_padding_mask),
               (to_attention_mask, from_attention_mask),
               (to_huggingface_mask, from_huggingface_mask)]
NAMES = {from_key_padding_mask: "key_padding_mask", from_huggingface_mask: "attention_mask"}


def names(function):
    return NAMES.get(function, "keep_mask")


@st.composite
def keep_masks(draw, some_token_in_every_row=False, batch=None):
    batch = draw(st.integers(1, 5)) if batch is None else batch
    length = draw(st.integers(1, 6))
    row = st.lists(st.booleans(), min_size=length, max_size=length)
    if some_token_in_every_row:
        row = row.filter(any)
    return torch.tensor(draw(st.lists(row, min_size=batch, max_size=batch)))


def weights_of_torch(keep_mask, query, key):
    """The weights F.scaled_dot_product_attention uses: with the unit matrix for values."""
    batch, heads, length, _ = query.shape
    unit = torch.eye(length).expand(batch, heads, length, length)
    return F.scaled_dot_product_attention(query, key, unit, attn_mask=to_attention_mask(keep_mask))


# --- From ids and lengths -------------------------------------------------------------------


def test_from_ids_marks_everything_but_padding():
    ids = torch.tensor([[5, 7, 0], [0, 9, 0], [0, 0, 0]])
    keep = keep_mask_from_ids(ids)
    assert keep.dtype == torch.bool
    assert keep.tolist() == [[True, True, False], [False, True, False], [False] * 3]
    assert keep_mask_from_ids(ids, pad_id=9).tolist() == [
        [True] * 3, [True, False, True], [True] * 3,
    ]  # fmt: skip


@repeatable
@given(
    rows=st.integers(0, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=1, max_size=4
        )
    ),
    pad_id=st.integers(0, 4),
    dtype=st.sampled_from(INTEGERS),
)
def test_from_ids_equals_a_comparison_in_python(rows, pad_id, dtype):
    ids = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
    keep = keep_mask_from_ids(ids.to(dtype), pad_id)
    assert keep.tolist() == [[i != pad_id for i in row] for row in rows]


@pytest.mark.parametrize("ids", [[[1, 0]], None, 3])
def test_from_ids_refuses_what_is_not_a_tensor(ids):
    with pytest.raises(TypeError, match=rf"ids must be.*\(B, L\).*{type(ids).__name__}"):
        keep_mask_from_ids(ids)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bool])
def test_from_ids_refuses_what_are_not_integers(dtype):
    with pytest.raises(TypeError, match=f"ids must hold integers, got {dtype}"):
        keep_mask_from_ids(torch.ones(1, 2).to(dtype))


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3)])
def test_from_ids_refuses_other_shapes(shape):
    with pytest.raises(ValueError) as caught:
        keep_mask_from_ids(torch.ones(shape, dtype=torch.long))
    assert "(B, L)" in str(caught.value) and str(shape) in str(caught.value)


@pytest.mark.parametrize("pad_id", [None, True, 0.0, "0", torch.tensor(0)], ids=repr)
def test_from_ids_refuses_a_pad_id_that_is_not_an_int(pad_id):
    with pytest.raises(TypeError, match="pad_id must be"):
        keep_mask_from_ids(torch.tensor([[1, 0]]), pad_id)


def test_from_lengths_keeps_the_first_positions():
    expected = [[True, True, False], [False] * 3, [True] * 3]
    for lengths in ([2, 0, 3], (2, 0, 3), torch.tensor([2, 0, 3])):
        keep = keep_mask_from_lengths(lengths)
        assert keep.dtype == torch.bool and keep.tolist() == expected
    assert keep_mask_from_lengths([1], max_len=3).tolist() == [[True, False, False]]


@repeatable
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    more=st.one_of(st.none(), st.integers(0, 4)),
    dtype=st.sampled_from(INTEGERS[:5]),
)
def test_from_lengths_counts_back_to_the_lengths(lengths, more, dtype):
    max_len = None if more is None else max(lengths) + more
    keep = keep_mask_from_lengths(torch.tensor(lengths, dtype=dtype), max_len)
    assert keep.shape == (len(lengths), max(lengths) + (more or 0))
    assert keep.sum(1).tolist() == lengths
    assert (keep[:, 1:] <= keep[:, :-1]).all()  # no token after the first padding


@pytest.mark.parametrize("dtype", INTEGERS[5:])
def test_unsigned_lengths_count_as_well(dtype):
    assert keep_mask_from_lengths(torch.tensor([2, 0]).to(dtype)).tolist() == [
        [True, True], [False, False],
    ]  # fmt: skip


def test_long_and_short_dtypes_do_not_wrap_around():
    assert keep_mask_from_lengths([70_000, 3]).sum(1).tolist() == [70_000, 3]
    keep = keep_mask_from_lengths(torch.tensor([100, 3], dtype=torch.int8), max_len=300)
    assert keep.shape == (2, 300) and keep.sum(1).tolist() == [100, 3]


@repeatable
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_ids_and_lengths_agree_when_padding_is_at_the_end(lengths):
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = 4
    assert torch.equal(keep_mask_from_ids(ids), keep_mask_from_lengths(lengths))


def test_only_empty_sentences_give_a_mask_without_columns():
    assert keep_mask_from_lengths([0, 0]).shape == (2, 0)
    assert keep_mask_from_lengths([0, 0], max_len=2).tolist() == [[False] * 2] * 2


@pytest.mark.parametrize(
    "lengths, max_len, said",
    [([3, 1], 2, "max_len=2, got [3, 1]"), ([-1, 2], None, "max_len=2, got [-1, 2]"),
     ([2, -5], 4, "max_len=4, got [2, -5]"), ([1], 0, "max_len=0, got [1]")],
)  # fmt: skip
def test_lengths_outside_their_range_are_refused_by_value(lengths, max_len, said):
    with pytest.raises(ValueError) as caught:
        keep_mask_from_lengths(lengths, max_len)
    assert f"lengths must lie in 0 to {said}" in str(caught.value)


@pytest.mark.parametrize(
    "lengths, shape", [([], "(0,)"), (3, "()"), (torch.tensor(3), "()"), ([[1, 2]], "(1, 2)")]
)
def test_lengths_that_do_not_have_one_axis_are_refused(lengths, shape):
    with pytest.raises(ValueError) as caught:
        keep_mask_from_lengths(lengths)
    assert "lengths must have shape (B,)" in str(caught.value) and shape in str(caught.value)


@pytest.mark.parametrize(
    "lengths",
    [[1.0, 2.0], [2.5], [True, False], torch.tensor([1.0]), torch.tensor([True]), None, "abc",
     ["3"], [None]],
    ids=repr,
)  # fmt: skip
def test_lengths_that_are_not_integers_are_refused(lengths):
    with pytest.raises(TypeError, match="lengths must be integers"):
        keep_mask_from_lengths(lengths)


@pytest.mark.parametrize("max_len", [4.5, 5.0, "5", True])
def test_a_max_len_that_is_not_an_int_is_refused(max_len):
    with pytest.raises(TypeError, match="max_len must be"):
        keep_mask_from_lengths([1, 0], max_len)


# --- Conversions ----------------------------------------------------------------------------


def test_the_conversions_say_what_their_names_say():
    assert to_key_padding_mask(KEEP).tolist() == [
        [False, False, False], [False, False, True], [True, True, True],
    ]  # fmt: skip
    assert to_attention_mask(KEEP).shape == (3, 1, 1, 3)
    assert to_attention_mask(KEEP).dtype == torch.bool
    assert to_attention_mask(KEEP)[:, 0, 0].tolist() == KEEP.tolist()
    assert to_huggingface_mask(KEEP).dtype == torch.int64
    assert to_huggingface_mask(KEEP).tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert from_key_padding_mask(torch.tensor([[False, True]])).tolist() == [[True, False]]
    assert from_attention_mask(torch.tensor([[[[True, False]]]])).tolist() == [[True, False]]
    assert from_huggingface_mask(torch.tensor([[1, 0]])).tolist() == [[True, False]]


@repeatable
@given(keep_mask=keep_masks(), pair=st.sampled_from(ROUND_TRIPS))
def test_there_and_back_again(keep_mask, pair):
    there, back = pair
    again = back(there(keep_mask))
    assert again.dtype == torch.bool and torch.equal(again, keep_mask)
    assert torch.equal(there(again), there(keep_mask))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("function", TAKES_B_L)
def test_A06_integers_0_and_1_mean_the_same_as_bool(function, dtype):
    as_bool, as_int = function(KEEP), function(KEEP.to(dtype))
    assert as_int.dtype == as_bool.dtype and torch.equal(as_int, as_bool)


def test_A06_an_integer_mask_weighs_like_the_bool_mask():
    query = torch.ones(1, 1, 1, 1)
    key = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1)
    mask = torch.tensor([[1, 1, 0]])
    assert (~mask).bool().all()  # the trap: every entry is truthy
    unit = torch.eye(3)[None, None]
    for keep in (mask, mask.bool(), mask.to(torch.uint8)):
        out = F.scaled_dot_product_attention(query, key, unit, to_attention_mask(keep))
        torch.testing.assert_close(
            out.flatten(), torch.tensor([0.2689, 0.7311, 0.0]), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("values, seen", [([0, 2], "[0, 2]"), ([1, -1], "[-1, 1]"),
                                          ([3, 3], "[3]"), ([-2, -1], "[-2, -1]")])  # fmt: skip
@pytest.mark.parametrize("function", TAKES_B_L)
def test_A06_other_integers_are_refused_by_value(function, values, seen):
    with pytest.raises(ValueError) as caught:
        function(torch.tensor([values]))
    for word in (names(function), "only 0 and 1", seen):
        assert word in str(caught.value)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", TAKES_B_L)
def test_A05_float_masks_are_refused_saying_what_to_do(function, dtype):
    for mask in (torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, -torch.inf]])):
        with pytest.raises(TypeError) as caught:
            function(mask.to(dtype))
        for word in (names(function), str(dtype), "mask != 0", "mask == 0"):
            assert word in str(caught.value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_A05_float_attention_masks_are_refused_as_well(dtype):
    with pytest.raises(TypeError, match=f"attention_mask.*{dtype}"):
        from_attention_mask(torch.zeros(2, 1, 1, 3, dtype=dtype))


def test_A05_the_advice_for_a_key_padding_mask_has_its_own_polarity():
    with pytest.raises(TypeError) as caught:
        from_key_padding_mask(torch.tensor([[0.0, 1.0]]))
    assert "True = ignore" in str(caught.value)
    assert "True = real" not in str(caught.value)


def test_A05_a_float_mask_of_ones_and_zeros_would_have_left_weight_on_padding():
    query = key = torch.zeros(1, 1, 3, 4)
    unit = torch.eye(3)[None, None]
    added = torch.tensor([[[[1.0, 1.0, 0.0]]]])
    assert F.scaled_dot_product_attention(query, key, unit, added)[0, 0, 0, 2] > 0.1
    keep = torch.tensor([[True, True, False]])
    assert weights_of_torch(keep, query, key)[0, 0, 0].tolist() == [0.5, 0.5, 0.0]


def test_A09_masks_stay_with_their_sentence_when_batch_equals_length():
    keep = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]])
    zeros = torch.zeros(3, 2, 3, 4)
    weights = weights_of_torch(keep, zeros, zeros)
    for sentence, row in enumerate(([1 / 3] * 3, [0.5, 0.5, 0.0], [1.0, 0.0, 0.0])):
        torch.testing.assert_close(weights[sentence], torch.tensor(row).expand(2, 3, 3))


@pytest.mark.parametrize("shape", [(), (3,), (1, 3, 3), (3, 1, 3), (3, 1, 1, 3), (3, 2, 3, 3)])
@pytest.mark.parametrize("function", TAKES_B_L)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_A09_other_shapes_are_refused_by_name(function, shape, dtype):
    with pytest.raises(ValueError) as caught:
        function(torch.ones(shape, dtype=dtype))
    for word in (names(function), "(B, L)", str(shape)):
        assert word in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (3, 3), (3, 1, 3), (3, 2, 1, 3), (3, 1, 3, 3),
                                   (1, 3, 1, 3), (3, 1, 1, 3, 1)])  # fmt: skip
def test_A09_attention_masks_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError) as caught:
        from_attention_mask(torch.ones(shape, dtype=torch.bool))
    for word in ("attention_mask", "(B, 1, 1, L)", str(shape)):
        assert word in str(caught.value)


@pytest.mark.parametrize("shape", [(5, 2), (2, 4), (1, 5), (2, 1), (3, 5)])
def test_A09_a_mask_for_another_batch_is_refused_naming_both_shapes(shape):
    with pytest.raises(ValueError) as caught:
        as_keep_mask(torch.ones(shape, dtype=torch.bool), shape=(2, 5))
    assert str(shape) in str(caught.value) and "(2, 5)" in str(caught.value)
    right = torch.ones(2, 5, dtype=torch.bool)
    assert as_keep_mask(right, shape=torch.zeros(2, 5).shape).tolist() == right.tolist()


def test_the_argument_can_be_named():
    with pytest.raises(ValueError, match="^their_mask must have shape"):
        as_keep_mask(torch.ones(3, dtype=torch.bool), name="their_mask")


@pytest.mark.parametrize("function", [*TAKES_B_L, from_attention_mask])
@pytest.mark.parametrize("mask", [[[True, False]], None, "mask", 1, ((1, 0),)])
def test_masks_that_are_not_tensors_are_refused(function, mask):
    name = "attention_mask" if function is from_attention_mask else names(function)
    with pytest.raises(TypeError, match=rf"^{name} must be.*{type(mask).__name__}"):
        function(mask)


def test_complex_masks_are_refused():
    with pytest.raises(TypeError, match="complex64"):
        as_keep_mask(torch.ones(1, 2, dtype=torch.complex64))


@pytest.mark.parametrize("function", TAKES_B_L)
@pytest.mark.parametrize("shape", [(2, 0), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_empty_masks_stay_empty(function, shape, dtype):
    assert function(torch.ones(shape, dtype=dtype)).numel() == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
@pytest.mark.parametrize("function", TAKES_B_L)
def test_masks_are_left_as_they_were(function, dtype):
    mask = KEEP.to(dtype)
    function(mask)
    assert mask.dtype == dtype and torch.equal(mask, KEEP.to(dtype))


def test_ids_and_lengths_are_left_as_they_were():
    ids, lengths = torch.tensor([[3, 0]]), torch.tensor([2, 1])
    keep_mask_from_ids(ids)
    keep_mask_from_lengths(lengths)
    assert ids.tolist() == [[3, 0]] and lengths.tolist() == [2, 1]


# --- What the converted masks mean to torch -------------------------------------------------


@repeatable
@given(keep_mask=keep_masks(some_token_in_every_row=True), seed=st.integers(0, 99))
def test_both_attentions_of_torch_read_the_mask_alike(keep_mask, seed):
    torch.manual_seed(seed)
    batch, length = keep_mask.shape
    x = torch.randn(batch, length, 8)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    _, weights = module(
        x, x, x, key_padding_mask=to_key_padding_mask(keep_mask), average_attn_weights=False
    )
    query, key, _ = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    split = (batch, length, 2, 4)
    query, key = (t.reshape(split).transpose(1, 2) for t in (query, key))
    fused = weights_of_torch(keep_mask, query, key)
    torch.testing.assert_close(weights, fused, atol=1e-5, rtol=0)
    padded = ~keep_mask[:, None, None, :].expand_as(weights)
    for w in (weights, fused):
        assert (w[padded] == 0).all()
        assert (w[~padded] > 0).all()
        torch.testing.assert_close(w.sum(-1), torch.ones(batch, 2, length))


@repeatable
@given(keep_mask=keep_masks(some_token_in_every_row=True))
def test_what_stands_at_padding_changes_no_result(keep_mask):
    x = torch.randn(*keep_mask.shape, 8)
    garbage = torch.where(keep_mask[..., None], x, 1e3)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    ignore = to_key_padding_mask(keep_mask)
    first = module(x, x, x, key_padding_mask=ignore)[0]
    second = module(garbage, garbage, garbage, key_padding_mask=ignore)[0]
    torch.testing.assert_close(first[keep_mask], second[keep_mask], atol=1e-5, rtol=0)


@repeatable
@given(keep_mask=keep_masks(batch=3))
def test_fully_padded_rows_weigh_nothing_in_torch(keep_mask):
    keep_mask[1] = False
    zeros = torch.zeros(3, 1, keep_mask.size(1), 4)
    weights = weights_of_torch(keep_mask, zeros, zeros)
    assert (weights[1] == 0).all()
    for b in (0, 2):
        row = keep_mask[b].float()
        expected = row / row.sum().clamp(min=1)
        torch.testing.assert_close(weights[b, 0], expected.expand(len(row), -1))


# --- One graph ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [*TAKES_B_L, from_attention_mask, keep_mask_from_ids])
def test_bool_masks_compile_into_one_graph(function):
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    for mask in (KEEP, torch.zeros(2, 4, dtype=torch.bool)):
        given = mask
        if function is from_attention_mask:
            given = mask[:, None, None]
        if function is keep_mask_from_ids:
            given = mask.long() * 7
        assert torch.equal(compiled(given), function(given))


def test_values_of_integer_masks_are_looked_at_so_they_do_not_compile():
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(as_keep_mask, fullgraph=True, backend="eager")(KEEP.long())
