"""Figures of the book: attention maps, heat maps, positional encodings, lines and bars.

Every helper returns ``(fig, ax)`` and leaves showing to the caller (``plt.show()``). Figures are at
most 7 inches wide at 100 dots per inch, so that a 700 pixel page shows them at their own size, on
an opaque white ground that also reads on a dark page. Nothing is told by colour alone: small heat
maps carry their numbers, lines differ in dash and marker, bars in hatching.

Arguments that hold numbers may be tensors (any device, any real dtype, with or without gradient),
NumPy arrays or nested lists; they are copied, never changed. Helpers leave matplotlib's global
settings as they are; only :func:`use_style` changes them.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from cycler import cycler
from matplotlib import font_manager
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

__all__ = [
    "plot_attention",
    "plot_bars",
    "plot_dot_product_by_offset",
    "plot_gradient_norms",
    "plot_heatmap",
    "plot_lines",
    "plot_positional_encoding",
    "printable",
    "save_figure",
    "use_style",
]

DPI = 100
PAGE_WIDTH = 700  # pixels
MAX_OPEN_FIGURES = 10
Cell = tuple[float, float]  # width and height of a heat map's cell in pixels

SEQUENTIAL = "viridis"
# Blue below zero, grey at zero, yellow above. Its lightness never turns back, so the sign survives
# grey print, which it does not in red-white-blue maps (Nuñez, Anderton and Renslow 2018).
DIVERGING = "cividis"

# Okabe and Ito's palette without its yellow, which is too light for a line on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (6, 2)), (0, (1, 1.4)), (0, (7, 2, 1, 2)), (0, (3, 1.5)),
          (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (9, 3)))  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo")

CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC",
    "Hiragino Sans GB", "Heiti SC", "STHeiti", "Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Noto Sans CJK JP", "Noto Serif CJK SC", "Noto Serif CJK JP",
    "Songti SC", "SimSun", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip


# ---------------------------------------------------------------------------------- fonts, style


def _installed_fonts() -> set[str]:
    return {entry.name for entry in font_manager.fontManager.ttflist}


def _font_families() -> tuple[str, ...]:
    # DejaVu Sans comes with matplotlib. Naming a font that is missing would warn at every draw.
    installed = _installed_fonts()
    return ("DejaVu Sans", *[name for name in CJK_FONTS if name in installed][:2])


@functools.lru_cache(maxsize=4096)
def _has_glyph(char: str, families: tuple[str, ...]) -> bool:
    for family in families:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        if font_manager.get_font(path).get_char_index(ord(char)):
            return True
    return False


def printable(text: object) -> str:
    """Return ``text`` with every character that no font here can draw written as ``U+6CE8``.

    The helpers of this module call it for all their labels; call it for text you put into a figure
    yourself. A figure that uses it never warns about a missing glyph.
    """
    families = _font_families()
    return "".join(
        char if char == " " or (char.isprintable() and _has_glyph(char, families))
        else f"U+{ord(char):04X}"
        for char in str(text)
    )  # fmt: skip


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in str(text).split("\n"))


def _style() -> dict[str, object]:
    return {
        "figure.dpi": DPI, "figure.figsize": (6.4, 3.6), "figure.constrained_layout.use": True,
        "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
        "savefig.transparent": False, "savefig.dpi": "figure", "svg.hashsalt": "encoder_lib",
        "text.usetex": False, "text.color": "black", "axes.labelcolor": "black",
        "axes.edgecolor": "#333333", "xtick.color": "#333333", "ytick.color": "#333333",
        "xtick.labelcolor": "black", "ytick.labelcolor": "black",
        "font.family": list(_font_families()), "font.size": 10, "axes.titlesize": 11,
        "figure.titlesize": 11, "axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9,
        "legend.fontsize": 9, "axes.titleweight": "normal", "figure.titleweight": "normal",
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": False,
        "grid.color": "#DDDDDD", "grid.linewidth": 0.8, "hatch.color": "white",
        "lines.linewidth": 1.8, "lines.markersize": 5, "image.cmap": SEQUENTIAL,
        "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=DASHES),
    }  # fmt: skip


def use_style() -> None:
    """Give all later matplotlib figures the book's look; call it once in a chapter's setup cell.

    Sets matplotlib's global settings: white opaque ground, sizes for a 700 pixel page, Okabe and
    Ito's colours each with its own dash, installed fonts with Chinese, Japanese or Korean glyphs
    behind DejaVu Sans, and fixed ids in SVG files. Calling it again changes nothing.
    """
    plt.rcParams.update(_style())


def _in_book_style(helper):
    @functools.wraps(helper)
    def styled(*args, **kwargs):
        with plt.rc_context(_style()):
            return helper(*args, **kwargs)

    return styled


# ------------------------------------------------------------------------------ checking arguments


def _to_array(values, name: str) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    elif isinstance(values, (list, tuple)):
        values = [_to_array(v, name) if isinstance(v, torch.Tensor) else v for v in values]
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must hold real numbers, in rows of equal length; got {type(values).__name__}: "
            f"{error}"
        ) from error
    if array.size and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ValueError(f"{name} must be finite; got {array[tuple(bad)]} at index {bad}")
    return array


def _matrix(values, name: str, axes: str) -> np.ndarray:
    array = _to_array(values, name)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{name} must have shape {axes} with at least one entry; got {array.shape}. "
            "Take one example out of a batch first, as in values[0]."
        )
    return array


def _attention_array(weights) -> np.ndarray:
    array = _to_array(weights, "weights")
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(
            "weights must have shape (L_q, L_k) or (H, L_q, L_k) with at least one entry; got "
            f"{array.shape}. Weights of a batch, (B, H, L_q, L_k), are drawn one by one: weights[0]"
        )
    low, high = array.min(), array.max()
    if low < -1e-5 or high > 1 + 1e-5:
        raise ValueError(
            f"weights must lie in [0, 1]; got values from {low:.4g} to {high:.4g}. Pass the "
            "weights after the softmax and before dropout, not the scores."
        )
    return array


def _labels(tokens, length: int, name: str, counted: str) -> list[str]:
    if isinstance(tokens, (str, bytes)):
        raise TypeError(f"{name} must be a list of strings; got one {type(tokens).__name__}")
    tokens = [str(token) for token in tokens]
    if len(tokens) != length:
        raise ValueError(
            f"{name} has {len(tokens)} entries but {counted} is {length}; the two must be equal"
        )
    return tokens


def _keep_flags(keep_mask, length: int) -> np.ndarray:
    mask = torch.as_tensor(keep_mask)
    if mask.dtype.is_floating_point or mask.dtype.is_complex:
        raise TypeError(
            f"keep_mask must be bool, True = real token; got {mask.dtype}. Write keep_mask != 0."
        )
    if mask.shape != (length,):
        raise ValueError(
            f"keep_mask has shape {tuple(mask.shape)} but weights has {length} keys, so "
            f"({length},) is needed. Of a batch's mask take this sentence's row: keep_mask[0]"
        )
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        held = mask.unique().tolist()
        raise ValueError(f"an integer keep_mask may hold only 0 and 1; got {held}")
    if not bool(mask.any()):
        raise ValueError("keep_mask keeps none of the tokens, so there is nothing to draw")
    return (mask != 0).cpu().numpy()


def _hidden_columns(hide, tokens: list[str]) -> np.ndarray:
    hidden = np.zeros(len(tokens), dtype=bool)
    for item in [hide] if isinstance(hide, (str, int)) else hide:
        if isinstance(item, str):
            found = [j for j, token in enumerate(tokens) if token == item]
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            found = [int(item)] if -len(tokens) <= item < len(tokens) else []
        else:
            raise TypeError(f"hide takes tokens and positions; got {item!r}")
        if not found:
            raise ValueError(f"hide names {item!r}, but the {len(tokens)} key tokens are {tokens}")
        hidden[found] = True
    return hidden


def _limits(array: np.ndarray, limits, diverging: bool) -> tuple[float, float]:
    if limits is not None:
        low, high = (float(limit) for limit in limits)
        if not low < high or (diverging and not math.isclose(low, -high)):
            need = "(-m, m) with m > 0 here, for a diverging map," if diverging else "low < high"
            raise ValueError(f"limits must be {need}; got ({low:g}, {high:g})")
        return low, high
    if diverging:
        largest = float(np.abs(array).max()) or 1.0
        return -largest, largest
    low, high = float(array.min()), float(array.max())
    # A constant map is drawn on a scale that reaches zero: a range of width 0 has no colours.
    if low == high:
        low, high = (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    return low, high


# ------------------------------------------------------------------------------- figures and axes

_open_figures: list = []


def _new_figure(width: float, height: float, layout: str = "constrained"):
    """Make a figure of width x height pixels; close the library's oldest one beyond the limit.

    Figures of one notebook cell all stay open until the cell shows them, and a loop or a slider
    that makes hundreds holds ten at a time. A figure that was closed can still be saved.
    """
    _open_figures[:] = [fig for fig in _open_figures if plt.fignum_exists(fig.number)]
    while len(_open_figures) >= MAX_OPEN_FIGURES:
        plt.close(_open_figures.pop(0))
    fig = plt.figure(figsize=(round(width) / DPI, round(height) / DPI), dpi=DPI, layout=layout)
    _open_figures.append(fig)
    return fig


def _axes(ax, width: float = 640, height: float = 360):
    if ax is None:
        ax = _new_figure(width, height).add_subplot()
    return ax.figure, ax


def _decorate(ax, title: str, xlabel: str, ylabel: str) -> None:
    ax.set_title(_printable_lines(title))
    ax.set_xlabel(_printable_lines(xlabel))
    ax.set_ylabel(_printable_lines(ylabel))
    # Number ticks are made when the figure is drawn, under whatever settings hold then.
    ax.tick_params(labelfontfamily=list(_font_families()), labelcolor="black", color="#333333")


def _text_width(text: str, points: float) -> float:
    return sum(1.0 if ord(char) >= 0x2E80 else 0.62 for char in text) * points * DPI / 72


def _shorten(label: str) -> str:
    label = printable(label)
    return label if len(label) <= 24 else label[:23] + "…"


def _tick_size(cell: float) -> float:
    return min(9.0, max(6.0, 0.6 * cell))


def _turn(labels: Sequence[str], size: float, room: float) -> dict[str, object]:
    if max(_text_width(label, size) for label in labels) + 4 <= room:
        return {}
    if room < 20:
        return {"rotation": 90}
    return {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}


def _label_ticks(ax, rows: Sequence[str], columns: Sequence[str], cell: Cell) -> None:
    # Positions and labels are always set together, so that label i stands at position i.
    size, step = _tick_size(cell[0]), max(1, math.ceil(8.5 / cell[0]))
    ax.set_xticks(range(0, len(columns), step), columns[::step], fontsize=size, parse_math=False,
                  **_turn(columns, size, cell[0] * step))  # fmt: skip
    size, step = _tick_size(cell[1]), max(1, math.ceil(8.5 / cell[1]))
    ax.set_yticks(range(0, len(rows), step), rows[::step], fontsize=size, parse_math=False)


def _luminance(rgba) -> float:
    """WCAG's relative luminance of sRGB colours, shape (..., 3 or 4) -> (...)."""
    rgb = np.asarray(rgba)[..., :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def _number_format(array: np.ndarray) -> str:
    largest = np.abs(array).max()
    if largest >= 100 or (largest >= 2 and np.array_equal(array, array.round())):
        return "z.0f"
    return "z.1f" if largest >= 10 else "z.2f"


def _annotate_cells(ax, image, array: np.ndarray, width: float) -> None:
    pattern = _number_format(array)
    longest = max(len(f"{value:{pattern}}") for value in array.flat)
    size = min(9.0, max(5.5, (width - 4) / (longest * 0.62 * DPI / 72)))
    # Black on white paper and white on black meet at this luminance: equal contrast either way.
    light = _luminance(image.cmap(image.norm(array))) > 0.179
    for (i, j), value in np.ndenumerate(array):
        color = "black" if light[i, j] else "white"
        ax.text(j, i, f"{value:{pattern}}", ha="center", va="center", color=color, fontsize=size)


def _draw_cells(ax, array, rows, columns, *, cmap, limits, annotate, cell: Cell):
    image = ax.imshow(array, cmap=cmap, vmin=limits[0], vmax=limits[1], origin="upper",
                      aspect="equal" if cell[0] == cell[1] else "auto",
                      interpolation="nearest")  # fmt: skip
    _label_ticks(ax, rows, columns, cell)
    if annotate or (annotate is None and max(array.shape) <= 8):
        _annotate_cells(ax, image, array, cell[0])
    return image


def _color_bar(fig, image, axes, label: str, array: np.ndarray):
    low, high = image.get_clim()
    ends = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    # An arrow at the end of the bar says that values beyond it are drawn in its last colour.
    extend = ends[bool(array.min() < low - 1e-5), bool(array.max() > high + 1e-5)]
    bar = fig.colorbar(image, ax=axes, extend=extend, shrink=0.9)
    bar.set_label(_printable_lines(label))
    bar.ax.tick_params(labelfontfamily=list(_font_families()), labelcolor="black")
    bar.outline.set_visible(False)
    return bar


def _cell_size(width: float, height: float) -> Cell:
    # Cells are square unless that would leave no room for the labels of the shorter side.
    side = max(1.0, min(width, height, 54.0))
    if side >= 12:
        return side, side
    return max(side, min(width, 24.0)), max(side, min(height, 18.0))


def _cell_of(ax, shape: tuple[int, int]) -> Cell:
    box = ax.get_window_extent()
    return _cell_size(box.width / shape[1], box.height / shape[0])


def _longest(labels: Sequence[str], points: float) -> float:
    return max(_text_width(label, points) for label in labels)


def _below(columns: Sequence[str], width: float) -> float:
    """Pixels that the labels of the columns need below the axes."""
    size = _tick_size(width)
    rotation = _turn(columns, size, width).get("rotation", 0)
    return {0: 14.0, 45: 0.75 * _longest(columns, size), 90: _longest(columns, size)}[rotation]


def _cell_figure(rows: Sequence[str], columns: Sequence[str], title: str):
    """A figure whose cells are as large as the page allows; returns (axes, cell)."""
    frame = _longest(rows, 9) + 150
    cell = _cell_size((PAGE_WIDTH - frame) / len(columns), 640 / len(rows))
    wanted = 1.15 * _longest(title.split("\n"), 11) + 40
    width = min(PAGE_WIDTH, max(len(columns) * cell[0] + frame, wanted, 420))
    if cell[0] != cell[1]:
        cell = ((width - frame) / len(columns), cell[1])
    height = len(rows) * cell[1] + _below(columns, cell[0]) + 70 + 18 * title.count("\n")
    return _new_figure(width, max(height, 220)).add_subplot(), cell


def _heading(title: str, note: str, width: int) -> str:
    lines = [_wrap(line, 80) for line in title.split("\n")]
    return "\n".join(lines + ([textwrap.fill(note, width)] if note else []))


# ------------------------------------------------------------------------------------ attention


def _hidden_note(array: np.ndarray, shown: np.ndarray, names: list[str]) -> str:
    """Say what was left out and how much weight it held; empty when nothing needs saying."""
    lost = array[..., ~shown].sum(axis=-1)
    changed = lost[lost > 1e-6]
    named = f"Hidden: {', '.join(dict.fromkeys(names))}. " if names else "Padding hidden. "
    if changed.size == 0:
        return named + "Rows still sum to what they did." if names else ""
    low, high = changed.min(), changed.max()
    lack = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    lack = "less than 0.01" if high < 0.005 else lack
    which = "Rows" if changed.size == lost.size else f"{changed.size} of {lost.size} rows"
    return f"{named}{which} no longer sum to 1: {lack} of a row's weight is not shown."


def _select(array, queries, keys, keep_mask, hide, paired):
    rows, columns = np.ones(len(queries), dtype=bool), np.ones(len(keys), dtype=bool)
    if keep_mask is not None:
        columns &= _keep_flags(keep_mask, len(keys))
        rows = columns.copy() if paired else rows
    names: list[str] = []
    if hide is not None:
        hidden = _hidden_columns(hide, keys)
        names = [keys[j] for j in np.flatnonzero(hidden & columns)]
        columns &= ~hidden
    if not columns.any():
        raise ValueError(f"hide and keep_mask together leave none of the {len(keys)} keys to draw")
    note = _hidden_note(array[..., rows, :], columns, names)
    return array[..., rows, :][..., columns], np.flatnonzero(rows), np.flatnonzero(columns), note


def _panels_across(n_heads: int, longest: int, annotate: bool) -> int:
    few, some = (4, 6) if annotate else (10, 16)
    across = 4 if longest <= few else 3 if longest <= some else 2
    return 2 if n_heads == 4 and across == 3 else min(n_heads, across)


def _heads_figure(n_heads: int, rows, columns, title: str, annotate: bool):
    """Axes of all heads, (H,), in a grid as wide as the page; also panels per row and cell."""
    across = _panels_across(n_heads, max(len(rows), len(columns)), annotate)
    down = math.ceil(n_heads / across)
    frame = _longest(rows, 8) + 140
    side = min(max(44.0, 110 / len(columns)), ((PAGE_WIDTH - frame) / across - 14) / len(columns))
    wanted = _longest(title.split("\n"), 11) + 20
    width = min(PAGE_WIDTH, max(across * (len(columns) * side + 14) + frame, wanted, 420))
    # Where the last row has gaps, the row above it carries labels as well.
    labelled = 2 if n_heads % across else 1
    height = down * (len(rows) * side + 30) + labelled * _below(columns, side) + 60
    height += 18 * title.count("\n")
    fig = _new_figure(width, height, layout="compressed")
    axes = np.empty(n_heads, dtype=object)
    for head in range(n_heads):
        axes[head] = fig.add_subplot(down, across, head + 1)
    return fig, axes, across, (side, side)


def _plot_heads(array, rows, columns, heading, annotate):
    if annotate is None:
        annotate = max(array.shape[1:]) <= 8
    fig, axes, across, cell = _heads_figure(len(array), rows, columns, heading, annotate)
    xlabel, ylabel = "key (is attended to)", "query (attends)"
    for head, ax in enumerate(axes):
        image = _draw_cells(ax, array[head], rows, columns, cmap=SEQUENTIAL, limits=(0, 1),
                            annotate=annotate, cell=cell)  # fmt: skip
        _decorate(ax, f"head {head}", xlabel, ylabel)
        ax.tick_params(labelbottom=head + across >= len(axes), labelleft=head % across == 0)
        # Under narrow panels the labels would run into each other: the figure has one for all.
        ax.xaxis.label.set_visible(False)
        ax.yaxis.label.set_visible(False)
        ax.spines[:].set_visible(False)
    _color_bar(fig, image, list(axes), "attention weight", array)
    fig.supxlabel(xlabel, fontsize=10)
    fig.supylabel(ylabel, fontsize=10)
    fig.suptitle(_printable_lines(heading))
    return fig, axes


@_in_book_style
def plot_attention(
    weights,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str] | None = None,
    keep_mask=None,
    *,
    title: str = "Attention weights",
    annotate: bool | None = None,
    hide=None,
    ax=None,
):
    """Draw attention weights as a map: one row per query, one column per key, colours from 0 to 1.

    Args:
        weights: ``(L_q, L_k)``, or ``(H, L_q, L_k)`` for one panel per head; values in [0, 1].
        query_tokens: ``L_q`` strings.
        key_tokens: ``L_k`` strings; the query tokens when left out.
        keep_mask: bool ``(L_k,)``, True = real token. Padded keys are not drawn; padded queries
            neither where queries and keys are the same tokens.
        title: the figure's title.
        annotate: write the numbers into the cells; by default up to 8 tokens.
        hide: key tokens (all of that name) or positions to leave out, as in ``["[SEP]"]``. Nothing
            is renormalised: the title says how much weight is not shown.
        ax: axes to draw into, for one map only.

    Returns:
        ``(fig, ax)``; for ``(H, L_q, L_k)`` instead of ax an array of H axes.

    Raises:
        ValueError: a size does not match (both are named), weights leave [0, 1] or are not finite,
            or nothing is left to draw.
        TypeError: tokens are one string, or keep_mask is a float mask.
    """
    array = _attention_array(weights)
    queries = _labels(query_tokens, array.shape[-2], "query_tokens", "weights' number of rows")
    paired = key_tokens is None or list(map(str, key_tokens)) == queries
    keys = _labels(query_tokens if key_tokens is None else key_tokens, array.shape[-1],
                   "query_tokens (key_tokens was left out)" if key_tokens is None else "key_tokens",
                   "weights' number of columns")  # fmt: skip
    array, rows, columns, note = _select(array, queries, keys, keep_mask, hide, paired)
    row_labels = [_shorten(queries[i]) for i in rows]
    column_labels = [_shorten(keys[j]) for j in columns]
    if array.ndim == 3:
        if ax is not None:
            raise ValueError(f"ax takes one map but weights has {len(array)} heads; use weights[h]")
        return _plot_heads(array, row_labels, column_labels, _heading(title, note, 90), annotate)
    return _plot_cells(
        array, row_labels, column_labels, _heading(title, note, 52),
        ("key (is attended to)", "query (attends)", "attention weight"), SEQUENTIAL, (0, 1),
        annotate, ax,
    )  # fmt: skip


# ------------------------------------------------------------------------------------- heat maps


def _plot_cells(array, rows, columns, title, names, cmap, limits, annotate, ax):
    xlabel, ylabel, value_label = names
    if ax is None:
        ax, cell = _cell_figure(rows, columns, title)
    else:
        cell = _cell_of(ax, array.shape)
    image = _draw_cells(ax, array, rows, columns, cmap=cmap, limits=limits, annotate=annotate,
                        cell=cell)  # fmt: skip
    _decorate(ax, title, xlabel, ylabel)
    ax.spines[:].set_visible(False)
    _color_bar(ax.figure, image, ax, value_label, array)
    return ax.figure, ax


@_in_book_style
def plot_heatmap(
    values,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    xlabel: str,
    ylabel: str,
    title: str,
    value_label: str,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    annotate: bool | None = None,
    ax=None,
):
    """Draw a matrix, row 0 at the top.

    Args:
        values: ``(R, C)`` finite numbers.
        row_labels, column_labels: R and C strings; row and column numbers when left out.
        xlabel, ylabel, title, value_label: what the columns, the rows, the figure and the colours
            are, with units.
        diverging: for signed values: a map with a neutral middle, its limits ``(-m, m)``.
        limits: ``(low, high)`` of the colours; the data's own range by default. Values beyond are
            drawn in the last colour and the colour bar gets an arrow.
        annotate: write the numbers into the cells; by default up to 8 rows and columns.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``.

    Raises:
        ValueError: values are not a finite matrix, labels do not match it, or limits are not in
            order (for a diverging map: not symmetric about 0).
    """
    array = _matrix(values, "values", "(R, C)")
    rows = range(array.shape[0]) if row_labels is None else row_labels
    columns = range(array.shape[1]) if column_labels is None else column_labels
    rows = _labels(rows, array.shape[0], "row_labels", "values' number of rows")
    columns = _labels(columns, array.shape[1], "column_labels", "values' number of columns")
    return _plot_cells(
        array, [_shorten(r) for r in rows], [_shorten(c) for c in columns], _heading(title, "", 80),
        (xlabel, ylabel, value_label), DIVERGING if diverging else SEQUENTIAL,
        _limits(array, limits, diverging), annotate, ax,
    )  # fmt: skip


def _whole_ticks(axis, most: float) -> None:
    axis.set_major_locator(MaxNLocator(nbins=int(min(9, max(2, most))), integer=True))


@_in_book_style
def plot_positional_encoding(
    table, *, title: str = "Positional encoding", annotate: bool | None = None, ax=None
):
    """Draw a table of position vectors: one row per position (0 at the top), one column per number.

    Args:
        table: ``(L, D)``, such as ``SinusoidalPositionalEncoding(D).table[:L]``.
        title: the figure's title.
        annotate: write the numbers into the cells; by default up to 8 positions and dimensions.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``. Colours run from -1 to 1 whatever the table holds, so that two tables can be
        compared; the colour bar has an arrow where values lie beyond.

    Raises:
        ValueError: the table is not a finite matrix.
    """
    array = _matrix(table, "table", "(L, D)")
    fig, ax = _axes(ax, 640, 400)
    # "antialiased" averages where many entries share a pixel; "nearest" would drop some of them.
    image = ax.imshow(array, cmap=DIVERGING, vmin=-1, vmax=1, origin="upper", aspect="auto",
                      interpolation="antialiased")  # fmt: skip
    if annotate or (annotate is None and max(array.shape) <= 8):
        _annotate_cells(ax, image, array, ax.get_window_extent().width / array.shape[1])
    _decorate(ax, title, "dimension", "position")
    ax.spines[:].set_visible(False)
    _whole_ticks(ax.xaxis, ax.get_window_extent().width / 50)
    _whole_ticks(ax.yaxis, ax.get_window_extent().height / 30)
    _color_bar(fig, image, ax, "value", array)
    return fig, ax


# -------------------------------------------------------------------------------- lines and bars


def _draw_lines(ax, lines: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for index, (name, (x, y)) in enumerate(lines.items()):
        look = index % len(COLORS)
        every = max(1, len(x) // 8)
        # Earlier lines are wider, so that a later one on top of them does not hide them.
        ax.plot(x, y, label=printable(name), color=COLORS[look], linestyle=DASHES[look],
                marker=MARKERS[look], markevery=(index * every // max(1, len(lines)), every),
                linewidth=1.5 + 1.8 * (1 - index / len(lines)))  # fmt: skip
    ax.grid(True)
    ax.set_axisbelow(True)


def _name_lines(ax, lines: Mapping, direct_labels: bool | None) -> None:
    if direct_labels is None:
        ends = sorted(y[-1] for _, y in lines.values())
        room = 0.08 * (max(y.max() for _, y in lines.values())
                       - min(y.min() for _, y in lines.values()))  # fmt: skip
        apart = all(b - a >= room for a, b in zip(ends, ends[1:], strict=False))
        direct_labels = apart and len({x[-1] for x, _ in lines.values()}) == 1
    if not direct_labels:
        _legend(ax)
        return
    for name, (x, y) in lines.items():
        ax.annotate(_wrap(printable(name), 22), (x[-1], y[-1]), xytext=(8, 0), va="center",
                    textcoords="offset points", fontsize=9, annotation_clip=False)  # fmt: skip


def _wrap(text: str, width: int) -> str:
    return text if "$" in text else textwrap.fill(text, width) or text


def _legend(ax) -> None:
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, handlelength=3.2)
    for text in legend.get_texts():
        text.set_text(_wrap(text.get_text(), 24))


def _series(series: Mapping[str, object], name: str) -> dict[str, np.ndarray]:
    if not isinstance(series, Mapping) or not series:
        raise ValueError(f"{name} must map at least one name to numbers; got {series!r}")
    arrays = {str(key): _to_array(y, f"{name}[{key!r}]") for key, y in series.items()}
    for key, y in arrays.items():
        if y.ndim != 1 or y.size == 0:
            raise ValueError(f"{name}[{key!r}] must be a row of numbers; got shape {y.shape}")
    return arrays


@_in_book_style
def plot_lines(
    series: Mapping[str, Sequence[float]],
    *,
    x=None,
    xlabel: str,
    ylabel: str,
    title: str,
    direct_labels: bool | None = None,
    ax=None,
):
    """Draw named lines that differ in colour, dash and marker.

    Args:
        series: name -> ``(N,)`` finite numbers.
        x: ``(N,)`` finite numbers shared by all lines; 0, 1, 2, ... when left out.
        xlabel, ylabel, title: with units.
        direct_labels: True writes each name at its line's end, False makes a legend. By default
            names stand at the ends where they have room there.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``.

    Raises:
        ValueError: a line is empty, not finite, or not as long as x.
    """
    arrays = _series(series, "series")
    shared = None if x is None else _to_array(x, "x")
    lines = {}
    for name, y in arrays.items():
        if shared is not None and shared.shape != y.shape:
            raise ValueError(f"series[{name!r}] has shape {y.shape} but x has {shared.shape}")
        lines[name] = (np.arange(len(y)) if shared is None else shared, y)
    fig, ax = _axes(ax)
    _draw_lines(ax, lines)
    _name_lines(ax, lines, direct_labels)
    _decorate(ax, title, xlabel, ylabel)
    return fig, ax


@_in_book_style
def plot_dot_product_by_offset(
    table,
    positions: Sequence[int] = (0, 10, 20),
    *,
    keys=None,
    title: str = "Dot product of two positions, by their distance",
    ax=None,
):
    """Draw ``table[i] @ keys[j]`` against the offset ``j - i``, one line for each i in positions.

    The lines lie on top of each other exactly when the dot product depends on the distance alone,
    as it does for sinusoids (Vaswani et al. 2017, section 3.5) before any projection.

    Args:
        table: ``(L, D)``, the position vectors, or queries made from them.
        positions: the positions i, each in 0 ... L - 1.
        keys: ``(L_k, D)``, keys made from the positions; the table itself when left out.
        title: the figure's title.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``.

    Raises:
        ValueError: a table is not a finite matrix, the widths differ, or a position is outside.
    """
    queries = _matrix(table, "table", "(L, D)")
    others = queries if keys is None else _matrix(keys, "keys", "(L_k, D)")
    if queries.shape[1] != others.shape[1]:
        raise ValueError(f"table has width {queries.shape[1]} but keys has width {others.shape[1]}")
    lines = {}
    for i in positions:
        if not 0 <= i < len(queries):
            raise ValueError(f"positions holds {i}, but table has rows 0 to {len(queries) - 1}")
        lines[f"from position {i}"] = (np.arange(len(others)) - int(i), others @ queries[int(i)])
    if not lines:
        raise ValueError("positions is empty; name at least one row of the table")
    fig, ax = _axes(ax)
    _draw_lines(ax, lines)
    _legend(ax)
    _whole_ticks(ax.xaxis, ax.get_window_extent().width / 50)
    _decorate(ax, title, "offset of the other position (positions)", "dot product")
    return fig, ax


def _draw_bars(ax, arrays: Mapping[str, np.ndarray]) -> None:
    width = 0.8 / len(arrays)
    pattern = _number_format(np.concatenate(list(arrays.values())))
    for index, (name, y) in enumerate(arrays.items()):
        where = np.arange(len(y)) + (index - (len(arrays) - 1) / 2) * width
        bars = ax.bar(where, y, 0.92 * width, label=printable(name), edgecolor="white", linewidth=0,
                      color=COLORS[index % len(COLORS)],
                      hatch=HATCHES[index % len(HATCHES)])  # fmt: skip
        ax.bar_label(bars, [f"{value:{pattern}}" for value in y], padding=2, fontsize=8)
    ax.axhline(0, color="#333333", linewidth=0.8)
    ax.margins(y=0.12)


def _norm_series(norms) -> dict[str, np.ndarray]:
    if not isinstance(norms, Mapping) or not norms:
        raise ValueError(f"norms must map at least one name to norms; got {norms!r}")
    series = {}
    for name, values in norms.items():
        gaps = [math.nan if value is None else float(value) for value in values]
        if not gaps or min((value for value in gaps if value == value), default=0) < 0:
            raise ValueError(f"norms[{name!r}] must hold one norm of at least 0 per layer")
        series[str(name)] = np.array(gaps)
    return series


def _mark_unfinished(ax, lines: Mapping[str, np.ndarray]) -> None:
    """Write what a logarithmic axis cannot show: no gradient, zero, inf, NaN."""
    notes = []
    for name, y in lines.items():
        layers = [i + 1 for i, value in enumerate(y) if not 0 < value < math.inf]
        words = {"inf": [i for i in layers if y[i - 1] == math.inf],
                 "0": [i for i in layers if y[i - 1] == 0],
                 "none or NaN": [i for i in layers if y[i - 1] != y[i - 1]]}  # fmt: skip
        notes += [
            f"{name}: {word} at layer {', '.join(map(str, at))}" for word, at in words.items() if at
        ]
    if notes:
        text = "\n".join(map(_printable_lines, notes))
        ax.text(0.02, 0.02, text, transform=ax.transAxes, va="bottom", fontsize=9)


def _log_ticks(ax, values: np.ndarray) -> None:
    """A logarithmic y axis with ticks 0.1, 0.2, 0.5, 1; over a long way only powers of ten."""
    ax.set_yscale("log")
    shown = values[np.isfinite(values)]
    far = shown.size and math.log10(shown.max() / shown.min()) > 3
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if far else (1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.yaxis.set_minor_formatter(NullFormatter())


@_in_book_style
def plot_gradient_norms(
    norms: Mapping[str, Sequence[float | None]],
    *,
    title: str,
    xlabel: str = "layer (1 = next to the input)",
    ylabel: str = "gradient norm",
    ax=None,
):
    """Draw one norm per layer for each name, on a logarithmic axis.

    Args:
        norms: name -> N numbers of at least 0, the first for the layer next to the input, as
            ``diagnostics.layer_gradient_norms`` gives them. None or NaN, 0 and inf cannot be
            drawn on this axis: they make a gap, and a note in the figure says where.
        title, xlabel, ylabel: with units.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``.

    Raises:
        ValueError: norms names nothing, holds no number, or a negative one.
    """
    series = _norm_series(norms)
    fig, ax = _axes(ax)
    drawn = {name: np.where(np.isfinite(y) & (y > 0), y, np.nan) for name, y in series.items()}
    lines = {name: (np.arange(1, len(y) + 1), y) for name, y in drawn.items()}
    _draw_lines(ax, lines)
    _log_ticks(ax, np.concatenate(list(drawn.values())))
    _whole_ticks(ax.xaxis, max(map(len, series.values())))
    _legend(ax)
    _mark_unfinished(ax, series)
    _decorate(ax, title, xlabel, ylabel)
    return fig, ax


@_in_book_style
def plot_bars(
    values: Mapping[str, Sequence[float]],
    categories: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    limits: tuple[float, float] | None = None,
    ax=None,
):
    """Draw groups of bars, each with its number: one group per category, one bar per name.

    Args:
        values: name -> ``(C,)`` finite numbers; two names or more make a legend.
        categories: C strings.
        xlabel, ylabel, title: with units.
        limits: ``(low, high)`` of the y axis, such as (0, 1.1) for probabilities.
        ax: axes to draw into.

    Returns:
        ``(fig, ax)``.

    Raises:
        ValueError: a name has not one finite number per category, or limits are not in order.
    """
    arrays = _series(values, "values")
    for name, y in arrays.items():
        _labels(categories, len(y), "categories", f"the length of values[{name!r}]")
    fig, ax = _axes(ax)
    _draw_bars(ax, arrays)
    room = max(6, 70 // len(y))
    names = [_wrap(printable(category), room) for category in categories]
    ax.set_xticks(range(len(names)), names, parse_math=False)
    if limits is not None:
        ax.set_ylim(*_limits(y, limits, diverging=False))
    if len(arrays) > 1:
        _legend(ax)
    _decorate(ax, title, xlabel, ylabel)
    return fig, ax


# ----------------------------------------------------------------------------------------- files


def _settle(fig) -> None:
    """Repeat the layout until nothing moves, then leave every axes exactly where it stood.

    One pass of matplotlib's layout starts from where the last drawing left the axes and moves them
    a little, so that without this the second save of a figure would differ from the first.
    """

    def positions():
        return [ax.get_position(original=True).frozen() for ax in fig.axes]

    for _ in range(20):
        before = positions()
        fig.draw_without_rendering()
        moved = np.array(positions()) - np.array(before)
        if np.max(np.abs(moved), initial=0.0) < 1e-6:
            break
    for ax, box in zip(fig.axes, before, strict=True):
        laid_out = ax.get_in_layout()
        ax.set_position(box)
        ax.set_in_layout(laid_out)


def save_figure(fig, path) -> Path:
    """Save a figure so that the same figure always gives the same bytes; return the path.

    PNG files carry no program version, SVG files no date and no random ids.

    Args:
        fig: a matplotlib figure.
        path: ends in ``.png`` or ``.svg``.

    Raises:
        ValueError: the path ends in anything else.
    """
    path = Path(path)
    metadata = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
    kind = path.suffix.lower()
    if kind not in metadata:
        raise ValueError(f"path must end in .png or .svg; got {path.name!r}")
    engine = fig.get_layout_engine()
    # matplotlib gives a saved figure that has no layout engine the one of the settings.
    with plt.rc_context(_style() | {"figure.constrained_layout.use": False}):
        _settle(fig)
        if engine is not None:
            fig.set_layout_engine("none")
        try:
            fig.savefig(path, format=kind[1:], metadata=metadata[kind], dpi=DPI, facecolor="white",
                        transparent=False)  # fmt: skip
        finally:
            if engine is not None:
                fig.set_layout_engine(engine)
    return path
