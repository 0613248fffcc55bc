"""The explorer of depth: gradients and tokens of Post-LN and Pre-LN stacks, layer by layer."""

import math

import torch

from encoder_lib.widgets._page import own_key, page, readout, svg, table, text

NORMS = (("post", "Post-LN"), ("pre", "Pre-LN"))
# Kind, key of the data, title, what the table says.
CHARTS = (
    ("gradient", "Gradient norm per layer (log scale)"),
    ("cosine", "Cosine between tokens after each layer"),
)
MAX_DEPTHS, MAX_DEPTH = 12, 100
BOX = {"x": 46, "y": 38, "w": 268, "h": 150}
COLOURS = {"post": "#0072b2", "pre": "#b34a00"}
DASHES = {"post": "", "pre": ' stroke-dasharray="5 3"'}
AXIS = "layer (1 = next to the input)"


def depth_explorer(measured, key=None):
    """An explorer of what depth does to Post-LN and Pre-LN encoders.

    The reader moves a slider over the measured depths and sees, for both norms, the norm of the
    gradient in every layer (log scale) and the mean cosine between tokens after every layer,
    on axes that are the same at every depth.

    Args:
        measured: ``measured[norm][depth] = {"gradient": [...], "cosine": [...]}`` for norm
            "post" and "pre" and the same depths (int) in both; each list holds one number per
            layer, (depth,), the layer next to the input first. Tensors (depth,) will do.
        key: id of the figure, unique on its page; None makes one from what is shown.

    Returns: ``IPython.display.HTML``; the same string for the same arguments. Numbers are
        given to 3 digits.
    Raises: TypeError for another structure, ValueError for other norms or depths, for a list of
        another length, a gradient that is not above 0, a cosine outside -1 to 1. All name the
        place in ``measured``, what came and what is allowed.
    """
    depths = _require_depths(measured)
    values = {
        norm: {depth: _require_lists(measured, norm, depth) for depth in depths}
        for norm, _ in NORMS
    }
    data = _data(values, depths)
    key = own_key("depth", key, data)
    return page(
        "depth", "Depth explorer", key, data, _controls(data), _body(values, data), STYLE, SCRIPT
    )


# --- arguments ----------------------------------------------------------------------------------


def _require_depths(measured):
    """The depths, ascending, the same for both norms."""
    if not isinstance(measured, dict):
        raise TypeError(f"measured must be a dict, got {type(measured).__name__}")
    if set(measured) != {"post", "pre"}:
        raise ValueError(f"measured must have the keys 'post' and 'pre', got {list(measured)}")
    for norm, found in measured.items():
        if not isinstance(found, dict):
            raise TypeError(f"measured[{norm!r}] must be a dict, got {type(found).__name__}")
        for depth in found:
            _require_depth(norm, depth)
    post, pre = (sorted(measured[norm]) for norm, _ in NORMS)
    if post != pre:
        raise ValueError(f"measured must hold the same depths, got post {post} and pre {pre}")
    if not 1 <= len(post) <= MAX_DEPTHS:
        raise ValueError(f"measured must hold 1 to {MAX_DEPTHS} depths, got {len(post)}")
    return post


def _require_depth(norm, depth):
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise TypeError(f"measured[{norm!r}] must have depths (int) as keys, got {depth!r}")
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"measured[{norm!r}] must have depths 1 to {MAX_DEPTH}, got {depth}")


def _require_lists(measured, norm, depth):
    """The two lists of a norm and a depth, as floats."""
    name, found = f"measured[{norm!r}][{depth}]", measured[norm][depth]
    if not isinstance(found, dict):
        raise TypeError(f"{name} must be a dict, got {type(found).__name__}")
    if not {"gradient", "cosine"} <= set(found):
        raise ValueError(f"{name} must have the keys 'gradient' and 'cosine', got {list(found)}")
    lists = {kind: _numbers(f"{name}[{kind!r}]", found[kind], depth) for kind, _ in CHARTS}
    if min(lists["gradient"]) <= 0:
        low = min(lists["gradient"])
        raise ValueError(f"{name}['gradient'] must be above 0 for a log scale, got {low:.3g}")
    far = max(lists["cosine"], key=abs)
    if abs(far) > 1 + 1e-4:
        raise ValueError(f"{name}['cosine'] must lie between -1 and 1, got {far:.4g}")
    lists["cosine"] = [min(1.0, max(-1.0, value)) for value in lists["cosine"]]
    return lists


def _numbers(name, values, depth):
    """One list as floats: finite, one per layer."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().tolist()
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} must be a list of numbers, got {type(values).__name__}")
    if len(values) != depth:
        raise ValueError(f"{name} must hold one number per layer, {depth}, got {len(values)}")
    for value in values:
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            raise TypeError(f"{name} must hold numbers, got {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{name} must hold finite numbers, got {value!r}")
    return [float(value) for value in values]


# --- words and numbers --------------------------------------------------------------------------


def _digits(value):
    """A positive number to 3 digits: 0.0123, 4.50, 1.20e-5."""
    if 1e-3 <= value < 999.5:
        power = math.floor(math.log10(float(f"{value:.2e}")))
        return f"{value:.{max(0, 2 - power)}f}"
    head, tail = f"{value:.2e}".split("e")
    return f"{head}e{int(tail)}".replace("e-", "e−")


def _signed(value):
    """A cosine to 3 places, with a true minus sign and no minus before zero."""
    words = f"{value:.3f}".replace("-", "−")
    return words.replace("−0.000", "0.000")


def _sentences(values, depth):
    """Two lines of a depth: gradient and cosine in the first and in the last layer."""
    lines = []
    for kind, what, write in (
        ("gradient", f"Depth {depth}. Gradient norm in", _digits),
        ("cosine", "Cosine between tokens after", _signed),
    ):
        ends = {norm: values[norm][depth][kind] for norm, _ in NORMS}
        said = "; ".join(
            f"{name} {write(ends[norm][0])}"
            + (f" and {write(ends[norm][-1])}" if depth > 1 else "")
            for norm, name in NORMS
        )
        layers = f"layer 1 and layer {depth}" if depth > 1 else "its only layer"
        lines.append(f"{what} {layers}: {said}.")
    return lines


# --- scales -------------------------------------------------------------------------------------


def _log_ticks(low, high):
    """Round numbers around the values: 1, 2, 5 of every power of ten, or the powers alone."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for heads in ((1, 2, 5), (1,)):
        steps = [(head, power) for power in powers for head in heads]
        size = [float(f"{head}e{power}") for head, power in steps]
        first = max(n for n, value in enumerate(size) if value <= low)
        last = min(n for n, value in enumerate(size) if value >= high)
        last = max(last, first + 1)
        if last - first <= 6 or heads == (1,):
            return size[first : last + 1]


def _tick_words(value):
    return f"{value:g}".replace("e-0", "e−").replace("e-", "e−").replace("e+0", "e")


def _scales(values):
    """For each chart its ticks, the lowest and the highest one being the ends of the axis."""
    flat = {
        kind: [x for norm in values.values() for lists in norm.values() for x in lists[kind]]
        for kind, _ in CHARTS
    }
    low = math.floor(min(0.0, *flat["cosine"], 0.0) * 2) / 2
    steps = round((1 - low) / 0.25)
    return {
        "gradient": _log_ticks(min(flat["gradient"]), max(flat["gradient"])),
        "cosine": [low + 0.25 * n for n in range(steps + 1)],
    }


def _height(kind, ticks, value):
    """How far down a value stands, in SVG units."""
    scale = math.log10 if kind == "gradient" else float
    low, high = scale(ticks[0]), scale(ticks[-1])
    return BOX["y"] + BOX["h"] * (high - scale(value)) / (high - low)


def _across(layer, deepest):
    return BOX["x"] + BOX["w"] * (layer - 1) / max(1, deepest - 1)


# --- the figure ---------------------------------------------------------------------------------


def _data(values, depths):
    """All that the script picks from: lines, dots, words and table of every depth."""
    scales, deepest = _scales(values), depths[-1]
    states = []
    for depth in depths:
        lines = {
            f"{kind}-{norm}": _line(kind, scales[kind], values[norm][depth][kind], deepest)
            for kind, _ in CHARTS
            for norm, _ in NORMS
        }
        states.append(
            {"lines": lines, "said": _sentences(values, depth), "rows": _rows(values, depth)}
        )
    start = depths.index(12) if 12 in depths else len(depths) // 2
    return {"start": {"at": start}, "depths": depths, "states": states, "scales": scales}


def _line(kind, ticks, numbers, deepest):
    points = [
        f"{_across(layer, deepest):.1f} {_height(kind, ticks, value):.1f}"
        for layer, value in enumerate(numbers, 1)
    ]
    return "M" + "L".join(points)


def _rows(values, depth):
    """The table of a depth: layer, then gradient and cosine of both norms."""
    return [
        [str(layer + 1)]
        + [_digits(values[norm][depth]["gradient"][layer]) for norm, _ in NORMS]
        + [_signed(values[norm][depth]["cosine"][layer]) for norm, _ in NORMS]
        for layer in range(depth)
    ]


def _controls(data):
    at, depths = data["start"]["at"], data["depths"]
    return (
        f'<label class="eb-pe-field"><span>depth <b class="eb-pe-value-depth">{depths[at]}</b>'
        f' layers</span><input type="range" data-name="at" min="0" max="{len(depths) - 1}"'
        f' step="1" value="{at}" aria-valuetext="{depths[at]} layers"></label>'
    )


def _body(values, data):
    state, depth = data["states"][data["start"]["at"]], data["depths"][data["start"]["at"]]
    charts = "".join(_chart(kind, title, data, state) for kind, title in CHARTS)
    head = ["layer", *(f"{what} {name}" for what in ("gradient", "cosine") for _, name in NORMS)]
    summary = f'All numbers at depth <span class="eb-pe-value-depth">{depth}</span>'
    return (
        readout(state["said"])
        + f'<div class="eb-pe-panels">{charts}</div>'
        + table(summary, head, state["rows"])
    )


def _chart(kind, title, data, state):
    """One chart: both norms over the layers, on axes that all depths share."""
    ticks = data["scales"][kind]
    lines = "".join(
        f'<path class="eb-pe-line eb-pe-{norm} eb-pe-{kind}-{norm}" stroke="{COLOURS[norm]}"'
        f'{DASHES[norm]} d="{state["lines"][f"{kind}-{norm}"]}"/>'
        f'<path class="eb-pe-points eb-pe-{norm} eb-pe-{kind}-{norm}" stroke="{COLOURS[norm]}"'
        f' d="{_dots(state["lines"][f"{kind}-{norm}"])}"/>'
        for norm, _ in NORMS
    )
    body = text(8, 11, title, "start", True) + _legend() + _axes(kind, ticks, data) + lines
    label = f"{title}: Post-LN and Pre-LN, one point per layer, the same axes at every depth"
    drawn = svg(kind, 330, BOX["y"] + BOX["h"] + 34, label, body)
    return f'<div class="eb-pe-chart">{drawn}</div>'


def _dots(line):
    """A line (str of SVG path) as its points alone, each a stroke of no length (str)."""
    return "".join(f"M{point}h0" for point in line[1:].split("L"))


def _legend():
    parts = []
    for (norm, name), x in zip(NORMS, (8, 116), strict=True):
        parts.append(
            f'<path class="eb-pe-line eb-pe-{norm}" stroke="{COLOURS[norm]}"{DASHES[norm]}'
            f' d="M{x} 23h30"/><path class="eb-pe-points eb-pe-{norm}" stroke="{COLOURS[norm]}"'
            f' d="M{x + 15} 23h0"/>' + text(x + 36, 27, name)
        )
    return "".join(parts)


def _axes(kind, ticks, data):
    """Frame, round numbers upwards, layers across."""
    x, y, w, h = (BOX[side] for side in "xywh")
    deepest = data["depths"][-1]
    rows = "".join(
        f'<path d="M{x} {_height(kind, ticks, tick):.1f}h{w}" stroke="currentColor"'
        f' opacity=".18"/>{text(x - 6, round(_height(kind, ticks, tick) + 4, 1), words, "end")}'
        for tick in ticks
        for words in [_tick_words(tick).replace("-", "−")]
    )
    step = next(s for s in (1, 2, 4, 6, 8, 12, 20) if deepest / s <= 9 or s == 20)
    marks = [1, *range(step, deepest + 1, step)] if step > 1 else range(1, deepest + 1)
    columns = "".join(
        text(round(_across(layer, deepest), 1), y + h + 15, str(layer), "middle") for layer in marks
    )
    frame = f'<path d="M{x} {y}v{h}h{w}" fill="none" stroke="currentColor" opacity=".45"/>'
    return rows + frame + columns + text(x + w, y + h + 30, AXIS, "end")


STYLE = """
.eb-pe-chart{flex:1 1 290px;min-width:0}
.eb-pe .eb-pe-line,.eb-pe .eb-pe-points{fill:none}
.eb-pe-line{stroke-width:2}
.eb-pe-points{stroke-width:5;stroke-linecap:round}
.eb-pe-points.eb-pe-pre{stroke-width:4;stroke-linecap:square}
.eb-pe .eb-pe-post{stroke:var(--eb-pe-sin)}
.eb-pe .eb-pe-pre{stroke:var(--eb-pe-cos)}
"""

SCRIPT = """
  function dots(line) {
    return line.slice(1).split("L").map(function (point) { return "M" + point + "h0"; }).join("");
  }
  function row(cells) {
    var line = document.createElement("tr");
    cells.forEach(function (words, at) {
      var cell = document.createElement(at ? "td" : "th");
      if (!at) { cell.scope = "row"; }
      cell.textContent = words;
      line.appendChild(cell);
    });
    return line;
  }
  function show() {
    var now = data.states[state.at], depth = data.depths[state.at];
    write("value-depth", depth);
    root.querySelector("input").setAttribute("aria-valuetext", depth + " layers");
    Object.keys(now.lines).forEach(function (name) {
      all(name).forEach(function (e) {
        var points = e.classList.contains("eb-pe-points");
        e.setAttribute("d", points ? dots(now.lines[name]) : now.lines[name]);
      });
    });
    say(now.said);
    var body = root.querySelector(".eb-pe-table tbody");
    body.textContent = "";
    now.rows.forEach(function (cells) { body.appendChild(row(cells)); });
  }
"""
