"""The figures: what is drawn is read back from the axes, never from pixels, unless colour is it."""

import io
import subprocess
import sys
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.text import Text

from encoder_lib import plotting
from encoder_lib.plotting import (
    plot_attention,
    plot_bars,
    plot_dot_product_by_offset,
    plot_gradient_norms,
    plot_heatmap,
    plot_lines,
    plot_positional_encoding,
    printable,
    save_figure,
    use_style,
)

TOKENS = ["[CLS]", "注意", "猫", "▁the", "##ing", "é", "[SEP]"]
NAMES = {"xlabel": "column", "ylabel": "row", "title": "Numbers"}


@pytest.fixture(autouse=True)
def clean_state():
    """No warning of any kind, and no test sees another one's figures or settings."""
    plt.close("all")
    with plt.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    plt.close("all")


@pytest.fixture
def no_cjk_fonts(monkeypatch):
    monkeypatch.setattr(plotting, "_installed_fonts", lambda: {"DejaVu Sans", "DejaVu Serif"})


def softmax_weights(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).softmax(dim=-1)


def sinusoids(length, width):
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([torch.sin(position * rate), torch.cos(position * rate)], -1).flatten(1)


def ticks(axis):
    return list(axis.get_ticklocs()), [label.get_text() for label in axis.get_ticklabels()]


def texts(fig):
    return [text.get_text() for text in fig.findobj(Text) if text.get_text()]


def draw(fig):
    fig.savefig(io.BytesIO(), format="png")


# K01 query and key axes


def test_rows_are_queries_and_columns_are_keys():
    weights = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
    fig, ax = plot_attention(weights, ["who", "asks"], ["is", "asked", "here"])
    (image,) = ax.images
    assert image.get_array().shape == (2, 3)
    assert image.get_array().tolist() == weights.tolist()
    assert ax.get_ylabel() == "query (attends)"
    assert ax.get_xlabel() == "key (is attended to)"
    assert ax.get_ylim() == (1.5, -0.5)
    assert ax.get_xlim() == (-0.5, 2.5)
    assert ticks(ax.yaxis) == ([0, 1], ["who", "asks"])
    assert ticks(ax.xaxis) == ([0, 1, 2], ["is", "asked", "here"])
    assert ax.figure is fig
    assert fig.axes[-1].get_ylabel() == "attention weight"


# K03 label i at position i


@pytest.mark.parametrize("n", [1, 5, 40])
def test_label_i_stands_at_position_i(n):
    tokens = [f"t{i}" for i in range(n)]
    fig, ax = plot_attention(torch.eye(n), tokens)
    draw(fig)
    for axis in (ax.xaxis, ax.yaxis):
        assert ticks(axis) == (list(range(n)), tokens)


def test_labels_that_would_overlap_are_thinned_not_moved():
    fig, ax = plot_attention(torch.eye(120), [f"t{i}" for i in range(120)])
    draw(fig)
    for axis in (ax.xaxis, ax.yaxis):
        positions, labels = ticks(axis)
        assert 30 <= len(labels) < 120
        assert labels == [f"t{i}" for i in positions]


@pytest.mark.parametrize("n", [2, 7, 40])
def test_labels_fit_into_the_figure_and_do_not_overlap(n):
    fig, ax = plot_attention(torch.eye(n), ["extraordinarily"] * n)
    draw(fig)
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert min(box.x0 for box in boxes) >= 0
    for upper, lower in zip(boxes, boxes[1:], strict=False):
        assert lower.y1 <= upper.y0 + 1
    assert min(label.get_window_extent().y0 for label in ax.get_xticklabels()) >= 0


# K05 glyphs


def test_labels_with_many_scripts_draw_without_a_warning():
    fig, ax = plot_attention(softmax_weights(7, 7), TOKENS, title="注意 for 猫")
    draw(fig)
    if "注" in printable("注"):
        assert ticks(ax.xaxis)[1] == TOKENS


def test_without_a_cjk_font_characters_are_escaped(no_cjk_fonts):
    fig, ax = plot_attention(softmax_weights(7, 7), TOKENS, title="注意")
    draw(fig)
    expected = ["[CLS]", "U+6CE8U+610F", "U+732B", "▁the", "##ing", "é", "[SEP]"]
    assert ticks(ax.xaxis)[1] == expected
    assert ticks(ax.yaxis)[1] == expected
    assert ax.get_title() == "U+6CE8U+610F"


def test_a_cjk_font_is_used_where_one_is_installed(monkeypatch):
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    found = [name for name in plotting.CJK_FONTS if name in installed]
    if not found:
        pytest.skip("no font with Chinese glyphs is installed")
    monkeypatch.setattr(plotting, "_installed_fonts", lambda: {"DejaVu Sans", found[0]})
    fig, ax = plot_attention(softmax_weights(7, 7), TOKENS)
    draw(fig)
    assert ticks(ax.xaxis)[1] == TOKENS
    assert ax.get_xticklabels()[1].get_fontfamily() == ["DejaVu Sans", found[0]]


@pytest.mark.usefixtures("no_cjk_fonts")
def test_every_helper_escapes_what_it_cannot_draw():
    cat, matrix = "猫", [[0.1, 0.9], [0.4, 0.6]]
    names = {"xlabel": cat, "ylabel": cat, "title": cat}
    figures = [
        plot_heatmap(matrix, row_labels=[cat, "b"], value_label=cat, **names)[0],
        plot_positional_encoding(matrix, title=cat)[0],
        plot_lines({cat: [1, 2], "b": [2, 1]}, **names)[0],
        plot_bars({cat: [1, 2], "b": [2, 1]}, [cat, "b"], **names)[0],
        plot_dot_product_by_offset(matrix, (0, 1), title=cat)[0],
        plot_attention([matrix], [cat, "b"], title=cat)[0],
    ]
    for fig in figures:
        draw(fig)
        assert any("U+732B" in text for text in texts(fig))
        assert not any(cat in text for text in texts(fig))


def test_printable():
    assert printable("é ▁ ## a") == "é ▁ ## a"
    assert printable("a\tb\n") == "aU+0009bU+000A"
    assert printable("\ue000") == "U+E000"
    assert printable(3) == "3"


def test_dollar_signs_in_tokens_are_not_mathematics():
    tokens = ["$5", "$\\frac$", "a_b", "\\"]
    fig, ax = plot_attention(torch.eye(4), tokens)
    draw(fig)
    assert ticks(ax.xaxis)[1] == tokens


# K07 colour maps


def luminance_of(cmap):
    return plotting._luminance(plt.get_cmap(cmap)(np.linspace(0, 1, 256)))


def test_the_luminance_measure_tells_good_maps_from_bad():
    assert plotting._luminance([1.0, 1.0, 1.0]) == pytest.approx(1.0)
    assert plotting._luminance([0.0, 1.0, 0.0]) == pytest.approx(0.7152)
    for cmap in ("jet", "RdYlGn"):
        steps = np.diff(luminance_of(cmap))
        assert steps.min() < 0 < steps.max()


def test_default_maps_get_steadily_lighter():
    maps = {
        plot_attention(torch.eye(2), ["a", "b"])[1].images[0].get_cmap().name,
        plot_positional_encoding(torch.eye(2))[1].images[0].get_cmap().name,
        plot_heatmap(torch.eye(2), value_label="v", **NAMES)[1].images[0].get_cmap().name,
        plot_heatmap(torch.eye(2), value_label="v", diverging=True, **NAMES)[1]
        .images[0].get_cmap().name,
    }  # fmt: skip
    assert maps == {"viridis", "cividis"}
    for cmap in maps:
        assert np.diff(luminance_of(cmap)).min() > 0


def test_the_diverging_map_is_neutral_in_the_middle():
    red, green, blue, _ = plt.get_cmap(plotting.DIVERGING)(0.5)
    assert max(red, green, blue) - min(red, green, blue) < 0.05


def test_numbers_stand_in_the_cells_up_to_eight_tokens():
    weights = softmax_weights(8, 8)
    _, ax = plot_attention(weights, list("abcdefgh"))
    written = {(t.get_position()[1], t.get_position()[0]): float(t.get_text()) for t in ax.texts}
    assert len(written) == 64
    for (i, j), number in written.items():
        assert number == pytest.approx(float(weights[i, j]), abs=0.0051)
    assert len(plot_attention(torch.eye(9), list("abcdefghi"))[1].texts) == 0
    assert len(plot_attention(torch.eye(9), list("abcdefghi"), annotate=True)[1].texts) == 81
    assert len(plot_attention(torch.eye(3), list("abc"), annotate=False)[1].texts) == 0


def test_numbers_contrast_with_their_cells():
    weights = torch.linspace(0, 1, 64).view(8, 8)
    _, ax = plot_attention(weights, list("abcdefgh"))
    for text in ax.texts:
        j, i = text.get_position()
        cell = float(plotting._luminance(ax.images[0].cmap(float(weights[i, j]))))
        ink = 0.0 if text.get_color() == "black" else 1.0
        assert (max(cell, ink) + 0.05) / (min(cell, ink) + 0.05) >= 4.5


@pytest.mark.parametrize("n", [1, 4, 6, 8])
def test_numbers_fit_their_cells_in_a_grid_of_heads(n):
    fig, axes = plot_attention(softmax_weights(8, n, n), [f"t{i}" for i in range(n)])
    draw(fig)
    cell = axes[0].get_window_extent().width / n
    assert len(axes[0].texts) == n * n
    assert max(text.get_window_extent().width for text in axes[0].texts) <= cell


# K08 one scale for all heads


def test_heads_share_one_scale_and_one_colour_bar():
    heads = torch.stack([torch.full((4, 4), 0.25), torch.eye(4)])
    fig, axes = plot_attention(heads, list("abcd"))
    assert axes.shape == (2,)
    assert [ax.get_title() for ax in axes] == ["head 0", "head 1"]
    assert [ax.images[0].get_clim() for ax in axes] == [(0, 1), (0, 1)]
    assert len(fig.axes) == 3
    for head, ax in zip(heads, axes, strict=True):
        assert ax.images[0].get_array().tolist() == head.tolist()
        assert ax.get_ylabel() == "query (attends)"
        assert ax.get_xlabel() == "key (is attended to)"
        assert ticks(ax.xaxis) == ([0, 1, 2, 3], list("abcd"))
    assert {"query (attends)", "key (is attended to)"} <= set(texts(fig))


def test_a_single_map_keeps_the_scale():
    _, ax = plot_attention(torch.full((4, 4), 0.25), list("abcd"))
    assert ax.images[0].get_clim() == (0, 1)


@pytest.mark.parametrize(("n_heads", "n"), [(1, 1), (2, 40), (3, 6), (4, 12), (12, 1), (12, 20)])
def test_any_number_of_heads_fits_the_page(n_heads, n):
    fig, axes = plot_attention(softmax_weights(n_heads, n, n), [f"t{i}" for i in range(n)])
    draw(fig)
    assert len(axes) == n_heads
    assert fig.get_figwidth() * fig.dpi <= 700
    assert all(ax.get_window_extent().width > 60 for ax in axes)


# K09 padding and special tokens


def padded_weights():
    """Six positions: [CLS] a b [SEP] and two pads; [SEP] gets 0.9 from everyone real."""
    weights = torch.zeros(6, 6)
    weights[:4, :3] = torch.tensor([0.05, 0.03, 0.02])
    weights[:4, 3] = 0.9
    return weights, ["[CLS]", "a", "b", "[SEP]", "[PAD]", "[PAD]"]


KEEP = torch.tensor([True, True, True, True, False, False])


@pytest.mark.parametrize("keep", [KEEP, KEEP.int(), KEEP.tolist(), KEEP.numpy()])
def test_padding_is_not_drawn(keep):
    weights, tokens = padded_weights()
    fig, ax = plot_attention(weights, tokens, keep_mask=keep)
    assert ax.images[0].get_array().tolist() == weights[:4, :4].double().tolist()
    assert ticks(ax.xaxis)[1] == ticks(ax.yaxis)[1] == tokens[:4]
    assert not any("sum" in text for text in texts(fig))


def test_hidden_special_tokens_are_told_and_nothing_is_renormalised():
    weights, tokens = padded_weights()
    fig, ax = plot_attention(weights, tokens, keep_mask=KEEP, hide=["[SEP]"], title="One head")
    assert ax.images[0].get_array().tolist() == weights[:4, :3].double().tolist()
    assert ticks(ax.xaxis)[1] == ["[CLS]", "a", "b"]
    assert ticks(ax.yaxis)[1] == ["[CLS]", "a", "b", "[SEP]"]
    said = " ".join(ax.get_title().split())
    assert said.startswith("One head Hidden: [SEP]. Rows no longer sum to 1: 0.90 of")
    assert fig.axes[0] is ax


def test_hidden_weight_is_told_as_a_range_over_rows_and_heads():
    heads = torch.tensor([[[0.5, 0.5], [1.0, 0.0]], [[0.8, 0.2], [0.9, 0.1]]])
    fig, axes = plot_attention(heads, ["a", "b"], hide=[1])
    said = " ".join(" ".join(texts(fig)).split())
    assert "Hidden: b. 3 of 4 rows no longer sum to 1: 0.10 to 0.50 of" in said
    assert [ax.images[0].get_array().shape for ax in axes] == [(2, 1), (2, 1)]


def test_weight_on_hidden_padding_is_told_too():
    fig, ax = plot_attention(torch.full((2, 2), 0.5), ["a", "[PAD]"], keep_mask=[True, False])
    assert "Padding hidden. Rows no longer sum to 1: 0.50" in " ".join(ax.get_title().split())


def test_hiding_a_column_without_weight_changes_no_sum():
    _, ax = plot_attention([[1.0, 0.0], [1.0, 0.0]], ["a", "b"], hide="b")
    assert "Hidden: b. Rows still sum" in ax.get_title()


def test_hide_takes_names_of_several_columns_and_negative_positions():
    _, ax = plot_attention(torch.eye(5), ["x", "a", "x", "b", "c"], hide=["x", -1])
    assert ticks(ax.xaxis)[1] == ["a", "b"]
    assert ticks(ax.yaxis)[1] == ["x", "a", "x", "b", "c"]


def test_the_mask_hides_keys_only_when_queries_are_other_tokens():
    _, ax = plot_attention(torch.full((2, 2), 0.5), ["a", "b"], ["c", "d"], keep_mask=[1, 0])
    assert ax.images[0].get_array().shape == (2, 1)
    _, ax = plot_attention(torch.full((3, 2), 0.5), list("abc"), ["c", "d"], keep_mask=[1, 0])
    assert ax.images[0].get_array().shape == (3, 1)


# wrong arguments


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: plot_attention(torch.eye(3), ["a", "b"]), ValueError, "2 entries .* is 3"),
        (lambda: plot_attention(torch.ones(2, 3) / 3, ["a", "b"]), ValueError, "2 entries .* is 3"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], ["c"]), ValueError, "1 entries .* is 2"),
        (lambda: plot_attention(torch.eye(2), "ab"), TypeError, "query_tokens must be a list"),
        (lambda: plot_attention(torch.eye(2) * 3, ["a", "b"]), ValueError, "from 0 to 3"),
        (lambda: plot_attention(-torch.eye(2), ["a", "b"]), ValueError, "from -1 to -?0"),
        (lambda: plot_attention([[float("nan")]], ["a"]), ValueError, r"nan at index \[0, 0\]"),
        (lambda: plot_attention(torch.ones(1, 2, 2, 2), ["a", "b"]), ValueError, r"\(1, 2, 2, 2\)"),
        (lambda: plot_attention(torch.ones(0, 0), []), ValueError, r"\(0, 0\)"),
        (lambda: plot_attention([[1.0], [0.5, 0.5]], ["a", "b"]), ValueError, "equal length"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], keep_mask=[True]), ValueError,
         r"\(1,\) but weights has 2 keys"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], keep_mask=torch.ones(1, 2).bool()),
         ValueError, r"keep_mask\[0\]"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], keep_mask=[1.0, 0.0]), TypeError, "bool"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], keep_mask=[2, 0]), ValueError, "0 and 1"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], keep_mask=[0, 0]), ValueError, "none of"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], hide=["c"]), ValueError, "'c'.*'a', 'b'"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], hide=[2]), ValueError, "names 2"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], hide=[1.0]), TypeError, "1.0"),
        (lambda: plot_attention(torch.eye(2), ["a", "b"], hide=["a", "b"]), ValueError, "none of"),
        (lambda: plot_attention([[[1.0]]], ["a"], ax=plt.gca()), ValueError, "1 heads"),
        (lambda: plot_positional_encoding(torch.ones(1, 2, 3)), ValueError, r"\(1, 2, 3\)"),
        (lambda: plot_positional_encoding([[float("inf")]]), ValueError, "inf"),
        (lambda: plot_heatmap([["a"]], value_label="v", **NAMES), ValueError, "real numbers"),
        (lambda: plot_heatmap(torch.eye(2), row_labels=["a"], value_label="v", **NAMES),
         ValueError, "row_labels has 1"),
        (lambda: plot_heatmap(torch.eye(2), limits=(1, 1), value_label="v", **NAMES),
         ValueError, r"\(1, 1\)"),
        (lambda: plot_heatmap([[1]], limits=(0, 1), diverging=True, value_label="v", **NAMES),
         ValueError, "diverging"),
        (lambda: plot_lines({}, **NAMES), ValueError, "at least one"),
        (lambda: plot_lines({"a": [1, 2]}, x=[1, 2, 3], **NAMES), ValueError, r"\(2,\).*\(3,\)"),
        (lambda: plot_lines({"a": [1, float("nan")]}, **NAMES), ValueError, "series.*'a'.*nan"),
        (lambda: plot_lines({"a": [[1, 2]]}, **NAMES), ValueError, r"\(1, 2\)"),
        (lambda: plot_bars({"a": [1, 2]}, ["x"], **NAMES), ValueError, "1 entries .* is 2"),
        (lambda: plot_dot_product_by_offset(torch.eye(3), (0, 3)), ValueError, "holds 3.*0 to 2"),
        (lambda: plot_dot_product_by_offset(torch.eye(3), ()), ValueError, "empty"),
        (lambda: plot_dot_product_by_offset(torch.eye(3), keys=torch.eye(2)), ValueError,
         "width 3 .* width 2"),
        (lambda: plot_gradient_norms({}, title="t"), ValueError, "at least one"),
        (lambda: plot_gradient_norms({"a": []}, title="t"), ValueError, "'a'.*one norm"),
        (lambda: plot_gradient_norms({"a": [-1.0]}, title="t"), ValueError, "'a'.*at least 0"),
        (lambda: save_figure(plt.figure(), "figure.jpg"), ValueError, "figure.jpg"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


# what goes in


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_dtype_with_gradient_are_read_and_left_alone(dtype):
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=dtype, requires_grad=True)
    before = weights.detach().clone()
    _, ax = plot_attention(weights, ["a", "b"])
    assert ax.images[0].get_array().tolist() == [[0.25, 0.75], [1.0, 0.0]]
    ax.images[0].get_array()[:] = 7
    assert torch.equal(weights, before)
    assert weights.grad is None and weights.requires_grad


def test_arrays_lists_and_lists_of_tensors_are_read():
    expected = [[0.25, 0.75], [1.0, 0.0]]
    rows = [torch.tensor(row, requires_grad=True) for row in expected]
    for weights in (expected, np.array(expected, dtype=np.float16), rows):
        _, ax = plot_attention(weights, ["a", "b"])
        assert ax.images[0].get_array().tolist() == expected
    array = np.array(expected)
    plot_attention(array, ["a", "b"])[1].images[0].get_array()[:] = 7
    assert array.tolist() == expected


def test_integer_identity_is_attention():
    _, ax = plot_attention(torch.eye(2, dtype=torch.long), ["a", "b"])
    assert ax.images[0].get_array().tolist() == [[1.0, 0.0], [0.0, 1.0]]


# heat maps and positional encodings


def test_heat_map_draws_the_matrix_upright():
    values = [[1.0, -4.0, 2.0], [0.0, 3.0, 0.5]]
    fig, ax = plot_heatmap(values, row_labels=["r", "s"], column_labels=["a", "b", "c"],
                           value_label="metres", **NAMES)  # fmt: skip
    assert ax.images[0].get_array().tolist() == values
    assert ax.images[0].get_clim() == (-4, 3)
    assert ax.get_ylim() == (1.5, -0.5)
    assert ticks(ax.yaxis) == ([0, 1], ["r", "s"])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("column", "row", "Numbers")
    assert fig.axes[-1].get_ylabel() == "metres"
    assert [text.get_text() for text in ax.texts[:2]] == ["1.00", "-4.00"]


def test_diverging_limits_are_symmetric():
    def limits(values, **options):
        _, ax = plot_heatmap(values, value_label="v", diverging=True, **NAMES, **options)
        return ax.images[0].get_clim()

    assert limits([[1.0, -4.0]]) == (-4, 4)
    assert limits([[0.0, 0.0]]) == (-1, 1)
    assert limits([[1.0, -4.0]], limits=(-2, 2)) == (-2, 2)


@pytest.mark.parametrize(("value", "limits"), [(3.0, (0, 3)), (-2.0, (-2, 0)), (0.0, (0, 1))])
def test_constant_heat_maps_have_a_scale(value, limits):
    fig, ax = plot_heatmap([[value, value]], value_label="v", **NAMES)
    draw(fig)
    assert ax.images[0].get_clim() == limits


def test_values_beyond_the_limits_are_announced():
    def extend(*values):
        fig, ax = plot_heatmap([values], limits=(0, 1), value_label="v", **NAMES)
        return ax.images[0].colorbar.extend

    assert extend(0.0, 1.0) == "neither"
    assert extend(0.0, 1.5) == "max"
    assert extend(-1.0, 1.5) == "both"


def test_minus_zero_is_written_as_zero():
    _, ax = plot_heatmap([[-0.001, 0.5]], value_label="v", diverging=True, **NAMES)
    assert [text.get_text() for text in ax.texts] == ["0.00", "0.50"]


@pytest.mark.parametrize("shape", [(6, 64), (64, 5), (1, 200), (200, 1), (30, 30)])
def test_long_heat_maps_stay_on_the_page_with_readable_labels(shape):
    fig, ax = plot_heatmap(torch.rand(shape), value_label="v", **NAMES)
    draw(fig)
    assert fig.get_figwidth() * fig.dpi <= 700 and fig.get_figheight() * fig.dpi <= 800
    assert all(label.get_fontsize() >= 6 for label in ax.get_xticklabels() + ax.get_yticklabels())


def test_positional_encoding_has_positions_downwards_and_fixed_colours():
    table = sinusoids(50, 16)
    fig, ax = plot_positional_encoding(table.float())
    draw(fig)
    assert ax.images[0].get_array().tolist() == table.float().double().tolist()
    assert ax.images[0].get_clim() == (-1, 1)
    assert ax.get_ylim() == (49.5, -0.5)
    assert ax.get_xlim() == (-0.5, 15.5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dimension", "position")
    assert fig.axes[-1].get_ylabel() == "value"
    assert 0 in ax.get_yticks() and all(tick == round(tick) for tick in ax.get_yticks())
    assert ax.images[0].colorbar.extend == "neither"


def test_small_and_large_tables_keep_the_colours():
    for scale, extend in ((0.01, "neither"), (5.0, "both")):
        _, ax = plot_positional_encoding(sinusoids(8, 8) * scale)
        assert ax.images[0].get_clim() == (-1, 1)
        assert ax.images[0].colorbar.extend == extend
        assert len(ax.texts) == 64
    assert len(plot_positional_encoding(sinusoids(9, 8))[1].texts) == 0


# lines and bars


def test_dot_products_stand_at_their_offsets():
    table = sinusoids(30, 16)
    _, ax = plot_dot_product_by_offset(table, (0, 10))
    first, second = ax.lines
    assert first.get_xdata().tolist() == list(range(30))
    assert second.get_xdata().tolist() == list(range(-10, 20))
    np.testing.assert_allclose(second.get_ydata(), (table @ table[10]).numpy())
    # Sinusoids: the dot product depends on the distance alone, so the lines coincide.
    np.testing.assert_allclose(first.get_ydata()[:20], second.get_ydata()[10:], atol=1e-9)
    assert second.get_ydata()[10] == pytest.approx(8.0)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["from position 0", "from position 10"]


def test_dot_products_with_keys_are_not_symmetric():
    queries, keys = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    _, ax = plot_dot_product_by_offset(queries, (1,), keys=keys)
    assert ax.lines[0].get_xdata().tolist() == [-1, 0]
    assert ax.lines[0].get_ydata().tolist() == [8.0, 12.0]


def test_gradient_norms_stand_at_their_layers_on_a_log_axis():
    _, ax = plot_gradient_norms({"Post-LN": [1.0, 10.0], "Pre-LN": [0.5, 0.25, 2.0]}, title="t")
    post, pre = ax.get_lines()
    assert list(post.get_xdata()) == [1, 2] and list(pre.get_xdata()) == [1, 2, 3]
    assert list(post.get_ydata()) == [1, 10] and list(pre.get_ydata()) == [0.5, 0.25, 2]
    assert ax.get_yscale() == "log" and "layer" in ax.get_xlabel() and not ax.texts
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["Post-LN", "Pre-LN"]


def test_k14_what_a_log_axis_cannot_show_is_written():
    norms = {"a": [1.0, None, float("inf")], "b": [0.0, float("nan"), 2.0]}
    fig, ax = plot_gradient_norms(norms, title="t")
    draw(fig)
    said = ["a: inf at layer 3", "a: none or NaN at layer 2", "b: 0 at layer 1",
            "b: none or NaN at layer 2"]  # fmt: skip
    assert [text.get_text().split("\n") for text in ax.texts] == [said]
    assert norms["a"][1] is None
    assert [list(line.get_ydata()[np.isfinite(line.get_ydata())]) for line in ax.get_lines()] == [
        [1], [2]]  # fmt: skip


def test_lines_differ_without_colour():
    _, ax = plot_lines({f"line {k}": [k, 2 * k] for k in range(7)}, **NAMES)
    assert len({line.get_marker() for line in ax.lines}) == 7
    assert len({line.get_color() for line in ax.lines}) == 7
    assert len({str(line._unscaled_dash_pattern) for line in ax.lines}) == 7
    assert ax.lines[3].get_ydata().tolist() == [3, 6]
    assert ax.lines[3].get_xdata().tolist() == [0, 1]


def test_line_names_stand_at_the_ends_or_in_a_legend():
    apart, together = {"up": [0, 1], "down": [1, 0]}, {"up": [0, 1], "flat": [1, 0.99]}
    _, ax = plot_lines(apart, x=[5, 9], **NAMES)
    assert [(t.get_text(), t.xy) for t in ax.texts] == [("up", (9, 1)), ("down", (9, 0))]
    assert ax.get_legend() is None
    _, ax = plot_lines(together, **NAMES)
    assert len(ax.texts) == 0
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["up", "flat"]
    assert plot_lines(apart, direct_labels=False, **NAMES)[1].get_legend() is not None
    assert plot_lines(together, direct_labels=True, **NAMES)[1].get_legend() is None


def test_bars_carry_their_numbers_and_differ_without_colour():
    values = {"this": [0.25, 0.75], "that": torch.tensor([0.5, 0.5], requires_grad=True)}
    fig, ax = plot_bars(values, ["yes", "no"], limits=(0, 1.1), **NAMES)
    draw(fig)
    assert [bar.get_height() for bar in ax.patches] == [0.25, 0.75, 0.5, 0.5]
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.75", "0.50", "0.50"]
    assert ticks(ax.xaxis) == ([0, 1], ["yes", "no"])
    this, that = ax.patches[0], ax.patches[2]
    assert this.get_x() + this.get_width() <= that.get_x()
    assert this.get_x() < 0 < that.get_x() + that.get_width()
    assert this.get_hatch() != that.get_hatch()
    assert ax.get_ylim() == (0, 1.1)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["this", "that"]


def test_counts_are_written_as_whole_numbers():
    _, ax = plot_bars({"sentences": [120, 7]}, ["a", "b"], **NAMES)
    assert [text.get_text() for text in ax.texts] == ["120", "7"]
    assert ax.get_legend() is None


# K11 files


def make_figures():
    yield plot_attention(softmax_weights(2, 5, 5), list("abcde"))[0]
    yield plot_lines({"a": [1, 2, 3], "b": [3, 1, 2]}, **NAMES)[0]
    yield plot_bars({"a": [1, 2], "b": [2, 1]}, ["x", "y"], **NAMES)[0]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_saved_files_are_equal_byte_for_byte(kind, tmp_path):
    saved = []
    for run in range(2):
        for index, fig in enumerate(make_figures()):
            for again in range(2):
                path = save_figure(fig, tmp_path / f"{run}-{index}-{again}.{kind}")
                saved.append(path.read_bytes())
                assert saved[-1] == saved[2 * index]
    assert len(set(saved)) == 3
    for data in saved:
        assert b"Software" not in data and b"matplotlib.org" not in data
        assert b"dc:date" not in data


def test_saved_figures_are_opaque_white(tmp_path):
    plt.rcParams["savefig.transparent"] = True
    fig, _ = plot_attention(torch.eye(3), list("abc"))
    path = save_figure(fig, tmp_path / "figure.png")
    pixels = plt.imread(path)
    assert pixels[0, 0].tolist() == [1, 1, 1, 1]
    assert pixels.shape[-1] == 3 or pixels[..., 3].min() == 1


def test_saved_figures_are_laid_out(tmp_path):
    fig, axes = plot_attention(softmax_weights(3, 12, 12), ["a long token"] * 12)
    save_figure(fig, tmp_path / "figure.png")
    labels = [label.get_window_extent() for label in axes[0].get_yticklabels()]
    assert min(box.x0 for box in labels) >= 0
    saved = np.array([ax.get_position(original=True).bounds for ax in fig.axes])
    fig.draw_without_rendering()
    again = np.array([ax.get_position(original=True).bounds for ax in fig.axes])
    np.testing.assert_allclose(saved, again, atol=1e-5)


@pytest.mark.parametrize("layout", [None, "constrained", "tight"])
def test_saving_leaves_the_layout_of_a_figure_alone(layout, tmp_path):
    fig = plt.figure(layout=layout)
    fig.add_subplot().plot([1, 2])
    engine = fig.get_layout_engine()
    path = save_figure(fig, tmp_path / "figure.svg")
    assert fig.get_layout_engine() is engine
    assert path.read_bytes() == save_figure(fig, tmp_path / "again.svg").read_bytes()


# K12 figures do not pile up


def test_twenty_five_calls_do_not_pile_up():
    for _ in range(25):
        plot_attention(torch.eye(2), ["a", "b"])
    assert len(plt.get_fignums()) == plotting.MAX_OPEN_FIGURES == 10


def test_figures_of_one_cell_all_stay_open():
    figures = [plot_positional_encoding(torch.eye(2))[0] for _ in range(10)]
    assert [plt.figure(number) for number in plt.get_fignums()] == figures


def test_figures_of_the_reader_are_never_closed():
    plot_positional_encoding(torch.eye(2))
    plt.close("all")
    mine = [plt.figure() for _ in range(3)]
    for _ in range(12):
        plot_positional_encoding(torch.eye(2))
    assert all(plt.fignum_exists(fig.number) for fig in mine)
    assert len(plt.get_fignums()) == 13


def test_a_closed_figure_can_still_be_saved(tmp_path):
    fig, _ = plot_attention(torch.eye(2), ["a", "b"])
    before = save_figure(fig, tmp_path / "before.png").read_bytes()
    plt.close(fig)
    assert save_figure(fig, tmp_path / "after.png").read_bytes() == before


def all_helpers(ax=None):
    yield plot_attention(torch.eye(3), list("abc"), ax=ax)
    yield plot_heatmap(torch.eye(3), value_label="v", ax=ax, **NAMES)
    yield plot_positional_encoding(torch.eye(3), ax=ax)
    yield plot_dot_product_by_offset(torch.eye(3), (0, 1), ax=ax)
    yield plot_lines({"a": [1, 2]}, ax=ax, **NAMES)
    yield plot_bars({"a": [1, 2]}, ["x", "y"], ax=ax, **NAMES)
    yield plot_gradient_norms({"a": [1, 2]}, title="t", ax=ax)


def test_helpers_draw_into_given_axes_and_open_no_figure():
    mine, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
    for fig, ax in all_helpers(axes[0]):
        draw(mine)
        assert fig is mine and ax is axes[0]
        assert plt.get_fignums() == [mine.number]
        ax.clear()


# G03, H17 and settings


def test_figures_fix_their_size_and_ground_whatever_the_settings():
    plt.rcParams.update({"figure.figsize": (2, 9), "figure.dpi": 33, "figure.facecolor": "none"})
    for fig, ax in all_helpers():
        assert fig.dpi == 100
        assert 4 <= fig.get_figwidth() <= 7
        assert fig.get_facecolor() == ax.get_facecolor() == (1, 1, 1, 1)
        assert ax.get_title() and ax.get_xlabel() and ax.get_ylabel()


def test_helpers_are_legible_under_a_dark_style():
    plt.style.use("dark_background")
    for fig, ax in all_helpers():
        draw(fig)
        labels = [ax.title, ax.xaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
        assert {label.get_color() for label in labels} == {"black"}


def test_helpers_leave_global_settings_alone(tmp_path):
    plt.figure()
    before = dict(plt.rcParams)
    for fig, _ in all_helpers():
        save_figure(fig, tmp_path / "figure.svg")
    assert dict(plt.rcParams) == before


def test_use_style_is_idempotent_and_fixes_the_look():
    assert use_style() is None
    once = dict(plt.rcParams)
    use_style()
    assert dict(plt.rcParams) == once
    assert once["figure.dpi"] == 100
    assert once["savefig.transparent"] is False
    assert once["figure.facecolor"] == once["axes.facecolor"] == "white"
    assert once["svg.hashsalt"]
    cycle = once["axes.prop_cycle"].by_key()
    assert len(set(cycle["color"])) == len(set(map(str, cycle["linestyle"]))) == 7
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    assert set(once["font.family"]) <= installed


def test_use_style_draws_the_readers_own_figures_without_a_warning():
    use_style()
    fig, ax = plt.subplots()
    ax.plot([0, 1], label=printable("猫"))
    ax.set_title(printable("注意"), fontweight="bold")
    ax.legend()
    draw(fig)


def test_the_library_does_not_load_matplotlib():
    code = (
        "import sys, encoder_lib; "
        "print([m for m in ('matplotlib', 'IPython', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
