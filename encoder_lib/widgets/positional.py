"""The explorer of the sinusoidal positional encoding."""

import json
import math

from IPython.display import HTML

from encoder_lib.embedding import require_positive, sinusoidal_table
from encoder_lib.widgets._page import STYLE, decimal, embed, rect, require_key, runs, svg, text

MAX_D_MODEL = 64
MAX_LENGTH = 64
MAX_OFFSET = 12
LEVELS = 16
# Five points of the cividis scale: monotone in lightness, readable with any colour vision.
CIVIDIS = ((0, 34, 78), (65, 77, 107), (124, 123, 120), (187, 173, 109), (254, 232, 56))

# Drawing areas in SVG units: left, top, width, height.
HEAT = {"x": 44, "y": 30, "w": 232, "h": 322}
WAVE = {"x": 36, "y": 36, "w": 276, "h": 116}
DOTS = {"x": 36, "y": 36, "w": 276, "h": 126}
CLOCK = {"x": 104, "y": 118, "r": 74}

READOUT = (
    "Pair {i} is dimensions {a} and {b}. Its hand turns by {step}° per position, "
    "a full turn every {wave} positions.",
    "At position {p}: sine {sin_p}, cosine {cos_p}. At position {q}: sine {sin_q}, cosine {cos_q}.",
    "From {p} to {q} the hand turns by {turn}°; "
    "it is the same {turn}° between any two positions {k} apart.",
    "PE({p}) · PE({q}) = {dot}, and PE({p}) · PE({p}) = {dot_self}. "
    "Pair {i} alone adds {share}, the cosine of {turn}°. Only the distance {k} matters.",
)


def positional_encoding_explorer(
    d_model=32, length=48, key="pe-explorer", *, position=None, pair=None, offset=None
):
    """An explorer of the sinusoidal positional encoding (Vaswani et al. 2017, section 3.5).

    The reader chooses a position p, a pair i of dimensions (2i, 2i + 1) and an offset k, and
    sees the table as a heat map, the pair's two waves, the pair as hands of a clock at p and
    p + k, and the dot product of position p with every other position.

    Args:
        d_model: width of the table, even, 2 to 64.
        length: number of positions drawn, 2 to 64.
        key: id of the figure, unique on its page: a letter, then letters, digits and dashes.
        position, pair, offset: where the figure starts; None chooses values that suit the sizes.

    Returns: ``IPython.display.HTML``; the same string for the same arguments.
    Raises: TypeError for a size that is not an int or a key that is not a str; ValueError for
        one out of range. Both name the argument.
    """
    _require_sizes(d_model, length, key)
    start = {
        "p": _start("position", position, min(10, length // 4), length - 1),
        "i": _start("pair", pair, min(2, d_model // 2 - 1), d_model // 2 - 1),
        "k": _start("offset", offset, 5, MAX_OFFSET),
    }
    data = _explorer_data(d_model, length, start)
    return HTML(_page(key, data))


def _require_sizes(d_model, length, key):
    require_positive(d_model=d_model, length=length)
    if d_model % 2 or d_model > MAX_D_MODEL:
        raise ValueError(f"d_model must be even and at most {MAX_D_MODEL}, got {d_model}")
    if not 2 <= length <= MAX_LENGTH:
        raise ValueError(f"length must be between 2 and {MAX_LENGTH}, got {length}")
    require_key(key)


def _start(name, value, default, largest):
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number (int) or None, got {value!r}")
    if not 0 <= value <= largest:
        raise ValueError(f"{name} must be between 0 and {largest}, got {value}")
    return value


def _explorer_data(d_model, length, start):
    """Everything the figure shows, as whole numbers of thousandths, tenths and hundredths.

    ``table`` has MAX_OFFSET rows more than are drawn, so that p + k always has its row.
    """
    rows = length + MAX_OFFSET
    table = sinusoidal_table(rows, d_model).double()
    dots = table @ table[0]
    omega = [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    turns = [[round(math.degrees(k * w) * 10) for k in range(MAX_OFFSET + 1)] for w in omega]
    return {
        "d": d_model,
        "length": length,
        "offsets": MAX_OFFSET,
        "start": start,
        "table": (table * 1000).round().int().tolist(),
        "dot": (dots * 100).round().int().tolist(),
        "turn": turns,
        "wave": [_wavelength(2 * math.pi / w) for w in omega],
        "omega": [float(f"{w:.9g}") for w in omega],
        "text": READOUT,
        "heat": HEAT,
        "wavebox": WAVE,
        "dotbox": DOTS,
        "clock": CLOCK,
    }


def _wavelength(positions):
    return f"{positions:.1f}" if positions < 100 else f"{positions:,.0f}"


def _fields(data):
    """The words and numbers of the read-out for the state the figure starts in."""
    p, i, k = (data["start"][name] for name in "pik")
    here, there = data["table"][p], data["table"][p + k]
    return {
        "p": p, "i": i, "k": k, "q": p + k, "a": 2 * i, "b": 2 * i + 1,
        "wave": data["wave"][i],
        "step": decimal(data["turn"][i][1], 1), "turn": decimal(data["turn"][i][k], 1),
        "sin_p": decimal(here[2 * i], 3), "cos_p": decimal(here[2 * i + 1], 3),
        "sin_q": decimal(there[2 * i], 3), "cos_q": decimal(there[2 * i + 1], 3),
        "dot": decimal(data["dot"][k], 2), "dot_self": decimal(data["dot"][0], 2),
        "share": decimal(data["table"][k][2 * i + 1], 3),
    }  # fmt: skip


# --- drawing ------------------------------------------------------------------------------------


def _colour(level):
    """The colour of one of LEVELS equal steps from -1 to 1."""
    at = level / (LEVELS - 1) * (len(CIVIDIS) - 1)
    low = min(int(at), len(CIVIDIS) - 2)
    mix = [a + (b - a) * (at - low) for a, b in zip(CIVIDIS[low], CIVIDIS[low + 1], strict=True)]
    return "#" + "".join(f"{round(channel):02x}" for channel in mix)


def _heat_map(data):
    """The table as a heat map: rows are positions, columns are dimensions."""
    d, length, box = data["d"], data["length"], data["heat"]
    cells = [
        [min(int((value + 1000) * LEVELS / 2000), LEVELS - 1) for value in row]
        for row in data["table"][:length]
    ]
    paths = "".join(
        f'<path stroke="{_colour(level)}" d="{path}"/>'
        for level in range(LEVELS)
        if (path := runs(cells, level))
    )
    grid = (
        f'<g transform="translate({box["x"]} {box["y"]}) '
        f'scale({box["w"] / d:.4f} {box["h"] / length:.4f}) translate(0 .5)" fill="none" '
        f'shape-rendering="crispEdges">{paths}</g>'
    )
    ticks = _ticks_down(box, length) + _ticks_across(box, d, 4 if d <= 16 else 8)
    marks = '<rect class="eb-pe-row eb-pe-halo"/><rect class="eb-pe-row eb-pe-mark"/>'
    marks += '<rect class="eb-pe-col eb-pe-halo"/><rect class="eb-pe-col eb-pe-mark"/>'
    marks = _place_marks(marks, data)
    title = text(8, 11, "PE: position down, dimension across", "start", True)
    key = _colour_key(box)
    label = f"Heat map of the table: {length} positions down, {d} dimensions across"
    return svg("heat", 290, 392, label, title + ticks + grid + marks + key)


def _place_marks(marks, data):
    """Give the marks of row p and pair i their places, as the script does later."""
    box, p, i = data["heat"], data["start"]["p"], data["start"]["i"]
    w, h = box["w"] / data["d"], box["h"] / data["length"]
    row = rect(box["x"] - 2, box["y"] + p * h, box["w"] + 4, h)
    column = rect(box["x"] + 2 * i * w, box["y"] - 2, 2 * w, box["h"] + 4)
    stroke = {"halo": 'stroke="#fff" stroke-width="4"', "mark": 'stroke="#c2185b" stroke-width="2"'}
    for name, place in (("row", row), ("col", column)):
        for kind, look in stroke.items():
            classes = f'class="eb-pe-{name} eb-pe-{kind}"'
            marks = marks.replace(classes, f'{classes} {place} fill="none" {look}')
    return marks


def _colour_key(box):
    """Swatches from -1 to 1 below the heat map."""
    step = 120 / LEVELS
    y = box["y"] + box["h"] + 14
    swatches = "".join(
        f'<rect {rect(box["x"] + 24 + n * step, y, step + 0.3, 9)} fill="{_colour(n)}"/>'
        for n in range(LEVELS)
    )
    return (
        swatches + text(box["x"] + 20, y + 9, "−1", "end") + text(box["x"] + 24 + 124, y + 9, "1")
    )


def _waves(data):
    """Sine and cosine of the pair over the positions."""
    box, w = data["wavebox"], data["omega"][data["start"]["i"]]
    sine = _curve(data, box, lambda t: math.sin(w * t))
    cosine = _curve(data, box, lambda t: math.cos(w * t))
    lines = (
        f'<path class="eb-pe-sin" d="{sine}" fill="none" stroke="#0072b2" stroke-width="2"/>'
        f'<path class="eb-pe-cos" d="{cosine}" fill="none" stroke="#b34a00" stroke-width="2"'
        ' stroke-dasharray="6 3"/>'
    )
    head = (
        '<text x="8" y="11" font-size="12" font-weight="600" fill="currentColor">'
        'The pair: <tspan class="eb-pe-sin-text" fill="#0072b2">sine —</tspan> '
        '<tspan class="eb-pe-cos-text" fill="#b34a00">cosine - -</tspan> over the positions</text>'
    )
    frame = _frame(data, box, ("1", "0", "−1"))
    label = "Sine and cosine of the chosen pair over the positions, with p and p + k marked"
    return svg("waves", 320, 184, label, head + frame + lines + _uprights(data, box, "wave"))


def _dot_chart(data):
    """PE(p) . PE(q) for every q."""
    box, p = data["dotbox"], data["start"]["p"]
    low, top = _dot_range(data)
    points = [
        f"{_across(data, box, q):.1f},{box['y'] + box['h'] * (top - dot) / (top - low):.1f}"
        for q in range(data["length"])
        for dot in [data["dot"][abs(p - q)]]
    ]
    head = (
        '<text x="8" y="11" font-size="12" font-weight="600" fill="currentColor">'
        'PE(p) · PE(q) for every q, <tspan class="eb-pe-which">all pairs</tspan></text>'
    )
    line = (
        f'<polyline class="eb-pe-dot" points="{" ".join(points)}" fill="none" stroke="#00694e"'
        ' stroke-width="2"/>'
    )
    frame = _frame(data, box, (decimal(top, 2), "", decimal(low, 2)), "q")
    label = "Dot product of position p with every position q: highest at q = p, same on both sides"
    return svg("dots", 320, 194, label, head + frame + line + _uprights(data, box, "dot"))


def _dot_range(data):
    """Lowest and highest dot product within the drawn distances, in hundredths."""
    return min([0, *data["dot"][: data["length"]]]), data["dot"][0]


def _across(data, box, q):
    return box["x"] + box["w"] * q / (data["length"] - 1)


def _curve(data, box, value):
    """A smooth curve of ``value`` in [-1, 1], four points per position."""
    steps = range(4 * (data["length"] - 1) + 1)
    points = (
        f"{_across(data, box, n / 4):.1f} {box['y'] + box['h'] * (1 - value(n / 4)) / 2:.1f}"
        for n in steps
    )
    return "M" + "L".join(points)


def _uprights(data, box, name):
    """Vertical lines at p (full) and p + k (dashed)."""
    p, q = data["start"]["p"], data["start"]["p"] + data["start"]["k"]
    lines = ""
    for mark, at, dash in (("p", p, ""), ("q", q, ' stroke-dasharray="4 3"')):
        x = _across(data, box, at)
        hide = ' display="none"' if at > data["length"] - 1 else ""
        lines += (
            f'<g class="eb-pe-{name}-{mark}" transform="translate({x:.1f} 0)"{hide}>'
            f'<path d="M0 {box["y"]}v{box["h"]}" stroke="#c2185b" stroke-width="1.5"{dash}/>'
            f"{text(0, box['y'] - 3, 'p' if mark == 'p' else 'p+k', 'middle')}</g>"
        )
    return lines


def _frame(data, box, labels, name="position"):
    """Axes: three labels upwards, positions across."""
    x, y, w, h = (box[side] for side in "xywh")
    top, middle, bottom = labels
    upward = text(x - 6, y + 5, top, "end") + text(x - 6, y + h / 2 + 4, middle, "end")
    upward += text(x - 6, y + h + 4, bottom, "end")
    lines = (
        f'<path d="M{x} {y}v{h}h{w}M{x} {y + h / 2}h{w}" fill="none" stroke="currentColor"'
        ' stroke-width="1" opacity=".45"/>'
    )
    last = data["length"] - 1
    numbers = "".join(
        text(_across(data, box, q), y + h + 15, str(q), "middle") for q in _ticks(last)
    )
    return lines + upward + numbers + text(x + w, y + h + 29, name, "end")


def _ticks(last):
    step = next(s for s in (1, 2, 4, 8, 16) if last / s <= 8)
    return range(0, last + 1, step)


def _ticks_down(box, length):
    h = box["h"] / length
    return "".join(
        text(box["x"] - 6, box["y"] + (q + 0.5) * h + 4, str(q), "end") for q in _ticks(length - 1)
    )


def _ticks_across(box, d, step):
    w = box["w"] / d
    return "".join(
        text(box["x"] + (j + 0.5) * w, box["y"] - 5, str(j), "middle") for j in range(0, d, step)
    )


def _clock(data):
    """The pair as a point (cosine, sine) on the unit circle, at p and at p + k."""
    x, y, r = (CLOCK[side] for side in "xyr")
    p, i, k = (data["start"][name] for name in "pik")
    face = (
        f'<circle cx="{x}" cy="{y}" r="{r}" fill="none" stroke="currentColor" opacity=".45"/>'
        f'<path d="M{x - r} {y}h{2 * r}M{x} {y - r}v{2 * r}" stroke="currentColor" opacity=".25"/>'
        + text(x + r - 3, y + 12, "cos", "end")
        + text(x + 4, y - r + 13, "sin")
    )
    arc = (
        f'<path class="eb-pe-arc" d="{_arc(data)}" fill="none" stroke="#00694e" stroke-width="3"/>'
    )
    hands = _hand(data, "q", p + k, ' stroke-dasharray="4 3"') + _hand(data, "p", p, "")
    label = "Unit circle: the chosen pair as a hand at position p and a second hand at p + k"
    title = text(8, 11, "The pair as the hand of a clock", "start", True)
    return svg("clock", 216, 212, label, title + face + arc + hands)


def _hand(data, name, position, dash):
    i = data["start"]["i"]
    sine, cosine = data["table"][position][2 * i : 2 * i + 2]
    dx, dy = CLOCK["r"] * cosine / 1000, -CLOCK["r"] * sine / 1000
    tip = f"{CLOCK['x'] + dx:.1f}", f"{CLOCK['y'] + dy:.1f}"
    # p stands beyond the tip, p+k beside its hand, so that they never cover each other.
    along, beside = (1.17, 0) if name == "p" else (0.62, 0.22)
    label = text(
        f"{CLOCK['x'] + along * dx + beside * dy:.1f}",
        f"{CLOCK['y'] + along * dy - beside * dx + 4:.1f}",
        "p" if name == "p" else "p+k", "middle", css=f"eb-pe-name-{name}",
    )  # fmt: skip
    return (
        f'<line class="eb-pe-hand-{name}" x1="{CLOCK["x"]}" y1="{CLOCK["y"]}" x2="{tip[0]}"'
        f' y2="{tip[1]}" stroke="#c2185b" stroke-width="2.5"{dash}/>'
        f'<circle class="eb-pe-tip-{name}" cx="{tip[0]}" cy="{tip[1]}" r="4.5" fill="#c2185b"/>'
        f"{label}"
    )


def _arc(data):
    """The angle from the hand at p to the hand at p + k, against the clock as angles grow."""
    p, i, k = (data["start"][name] for name in "pik")
    omega, r = data["omega"][i], 26
    begin, turn = p * omega, (k * omega) % (2 * math.pi)
    ends = [
        f"{CLOCK['x'] + r * math.cos(a):.1f} {CLOCK['y'] - r * math.sin(a):.1f}"
        for a in (begin, begin + turn)
    ]
    return f"M{ends[0]}A{r} {r} 0 {int(turn > math.pi)} 0 {ends[1]}"


# --- the page -----------------------------------------------------------------------------------


def _control(name, words, value, largest):
    return (
        f'<label class="eb-pe-field"><span>{words} <b class="eb-pe-value-{name}">{value}</b></span>'
        f'<input type="range" data-name="{name}" min="0" max="{largest}" step="1"'
        f' value="{value}"></label>'
    )


def _controls(data):
    """Three sliders and three buttons; hidden until the script has woken them."""
    start = data["start"]
    return (
        '<div class="eb-pe-controls" hidden>'
        + _control("p", "position p", start["p"], data["length"] - 1)
        + _control("i", "pair i", start["i"], data["d"] // 2 - 1)
        + _control("k", "offset k", start["k"], data["offsets"])
        + '<div class="eb-pe-buttons">'
        '<button type="button" data-do="walk" aria-pressed="false">walk p</button>'
        '<span role="group" aria-label="Dot product of">'
        '<button type="button" data-do="all" aria-pressed="true">all pairs</button>'
        '<button type="button" data-do="one" aria-pressed="false">this pair</button>'
        "</span></div></div>"
    )


def _numbers(data):
    """Row p of the table in figures, one line per pair, folded."""
    p = data["start"]["p"]
    lines = "".join(
        f"<tr><td>{i}</td><td>{wave}</td><td>{decimal(data['table'][p][2 * i], 3)}</td>"
        f"<td>{decimal(data['table'][p][2 * i + 1], 3)}</td></tr>"
        for i, wave in enumerate(data["wave"])
    )
    return (
        '<details class="eb-pe-more"><summary>All numbers of position '
        f'<span class="eb-pe-value-p">{p}</span></summary><table class="eb-pe-table"><thead><tr>'
        '<th scope="col">pair i</th><th scope="col">positions per turn</th>'
        '<th scope="col">PE(p, 2i)</th><th scope="col">PE(p, 2i + 1)</th></tr></thead>'
        f"<tbody>{lines}</tbody></table></details>"
    )


def _page(key, data):
    """The whole figure: style, drawings, read-out, data and script."""
    fields = _fields(data)
    readout = "".join(f"<p>{line.format(**fields)}</p>" for line in READOUT)
    return (
        f'<div class="eb-pe" id="{key}" role="group" aria-label="Positional encoding explorer">'
        f"<style>{STYLE}</style>{_controls(data)}"
        '<p class="eb-pe-asleep">The figure moves where scripts may run: on the site of the book, '
        "or in a notebook once this cell has been run.</p>"
        f'<div class="eb-pe-panels"><div class="eb-pe-left">{_heat_map(data)}'
        '<p class="eb-pe-hover" aria-hidden="true"></p></div>'
        f'<div class="eb-pe-right">{_waves(data)}{_dot_chart(data)}</div></div>'
        f'<div class="eb-pe-panels"><div class="eb-pe-left">{_clock(data)}</div>'
        '<div class="eb-pe-right eb-pe-readout" role="status" aria-live="polite">'
        f"{readout}</div></div>"
        f"{_numbers(data)}"
        f'<script type="application/json" class="eb-pe-data">{embed(data)}</script>'
        f"<script>{SCRIPT.replace('KEY', json.dumps(key))}</script></div>"
    )


SCRIPT = """
(function () {
  var root = document.getElementById(KEY);
  if (!root || root.dataset.ready) { return; }
  root.dataset.ready = "1";
  var data = JSON.parse(root.querySelector(".eb-pe-data").textContent);
  var state = { p: data.start.p, i: data.start.i, k: data.start.k, all: true };
  var last = data.length - 1, timer = null;
  function one(name) { return root.querySelector(".eb-pe-" + name); }
  function set(name, values) {
    root.querySelectorAll(".eb-pe-" + name).forEach(function (e) {
      Object.keys(values).forEach(function (key) { e.setAttribute(key, values[key]); });
    });
  }
  function write(name, words) {
    root.querySelectorAll(".eb-pe-" + name).forEach(function (e) { e.textContent = words; });
  }
  function decimal(value, places) {
    var digits = String(Math.abs(value)).padStart(places + 1, "0");
    return (value < 0 ? "\\u2212" : "") + digits.slice(0, -places) + "." + digits.slice(-places);
  }
  function across(box, q) { return box.x + box.w * q / last; }
  function curve(box, value) {
    var points = [];
    for (var n = 0; n <= 4 * last; n++) {
      var y = box.y + box.h * (1 - value(n / 4)) / 2;
      points.push(across(box, n / 4).toFixed(1) + " " + y.toFixed(1));
    }
    return "M" + points.join("L");
  }
  function upright(name, box, q) {
    var place = "translate(" + across(box, q).toFixed(1) + " 0)";
    set(name, { transform: place, display: q > last ? "none" : "inline" });
  }
  function heat() {
    var box = data.heat, w = box.w / data.d, h = box.h / data.length;
    set("row", { y: (box.y + state.p * h).toFixed(1) });
    set("col", { x: (box.x + 2 * state.i * w).toFixed(1) });
  }
  function waves() {
    var w = data.omega[state.i];
    set("sin", { d: curve(data.wavebox, function (t) { return Math.sin(w * t); }) });
    set("cos", { d: curve(data.wavebox, function (t) { return Math.cos(w * t); }) });
    upright("wave-p", data.wavebox, state.p);
    upright("wave-q", data.wavebox, state.p + state.k);
  }
  function product(distance) {
    return state.all ? data.dot[distance] : data.table[distance][2 * state.i + 1] / 10;
  }
  function dots() {
    var box = data.dotbox, low = Math.min(0, Math.min.apply(null, data.dot.slice(0, data.length)));
    var top = state.all ? data.dot[0] : 100, points = [];
    if (!state.all) { low = -100; }
    for (var q = 0; q <= last; q++) {
      var y = box.y + box.h * (top - product(Math.abs(state.p - q))) / (top - low);
      points.push(across(box, q).toFixed(1) + "," + y.toFixed(1));
    }
    set("dot", { points: points.join(" ") });
    var labels = one("dots").querySelectorAll("text[text-anchor=end]");
    labels[0].textContent = decimal(top, 2);
    labels[2].textContent = decimal(low, 2);
    write("which", state.all ? "all pairs" : "pair " + state.i + " alone");
    upright("dot-p", box, state.p);
    upright("dot-q", box, state.p + state.k);
  }
  function hand(name, q) {
    var c = data.clock, row = data.table[q];
    var dx = c.r * row[2 * state.i + 1] / 1000, dy = -c.r * row[2 * state.i] / 1000;
    set("hand-" + name, { x2: (c.x + dx).toFixed(1), y2: (c.y + dy).toFixed(1) });
    set("tip-" + name, { cx: (c.x + dx).toFixed(1), cy: (c.y + dy).toFixed(1) });
    var along = name === "p" ? 1.17 : 0.62, beside = name === "p" ? 0 : 0.22;
    set("name-" + name, { x: (c.x + along * dx + beside * dy).toFixed(1),
      y: (c.y + along * dy - beside * dx + 4).toFixed(1) });
  }
  function clock() {
    var c = data.clock, w = data.omega[state.i], r = 26;
    var begin = state.p * w, turn = (state.k * w) % (2 * Math.PI);
    function point(a) {
      return (c.x + r * Math.cos(a)).toFixed(1) + " " + (c.y - r * Math.sin(a)).toFixed(1);
    }
    var arc = "A" + r + " " + r + " 0 " + (turn > Math.PI ? 1 : 0) + " 0 ";
    set("arc", { d: "M" + point(begin) + arc + point(begin + turn) });
    hand("p", state.p);
    hand("q", state.p + state.k);
  }
  function readout() {
    var p = state.p, i = state.i, k = state.k, here = data.table[p], there = data.table[p + k];
    var fields = { p: p, i: i, k: k, q: p + k, a: 2 * i, b: 2 * i + 1, wave: data.wave[i],
      step: decimal(data.turn[i][1], 1), turn: decimal(data.turn[i][k], 1),
      sin_p: decimal(here[2 * i], 3), cos_p: decimal(here[2 * i + 1], 3),
      sin_q: decimal(there[2 * i], 3), cos_q: decimal(there[2 * i + 1], 3),
      dot: decimal(data.dot[k], 2), dot_self: decimal(data.dot[0], 2),
      share: decimal(data.table[k][2 * i + 1], 3) };
    root.querySelectorAll(".eb-pe-readout p").forEach(function (e, n) {
      var words = data.text[n].replace(/{(\\w+)}/g, function (_, name) { return fields[name]; });
      if (e.textContent !== words) { e.textContent = words; }
    });
  }
  function numbers() {
    root.querySelectorAll(".eb-pe-table tbody tr").forEach(function (line, i) {
      line.children[2].textContent = decimal(data.table[state.p][2 * i], 3);
      line.children[3].textContent = decimal(data.table[state.p][2 * i + 1], 3);
    });
  }
  function show() {
    ["p", "i", "k"].forEach(function (name) {
      write("value-" + name, state[name]);
      root.querySelector("input[data-name=" + name + "]").value = state[name];
    });
    heat(); waves(); dots(); clock(); readout(); numbers();
  }
  function press(name, on) {
    root.querySelector("[data-do=" + name + "]").setAttribute("aria-pressed", String(on));
  }
  function walk(on) {
    clearInterval(timer);
    timer = on ? setInterval(step, 350) : null;
    one("readout").setAttribute("aria-live", on ? "off" : "polite");
    press("walk", on);
  }
  function step() {
    if (!root.isConnected || state.p >= last) { walk(false); return; }
    state.p += 1;
    show();
  }
  root.addEventListener("input", function (event) {
    var name = event.target.dataset.name;
    if (name) { state[name] = Number(event.target.value); show(); }
  });
  root.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-do]"), what = button && button.dataset.do;
    if (what === "walk") {
      if (timer === null && state.p >= last) { state.p = 0; show(); }
      walk(timer === null);
    } else if (what) {
      state.all = what === "all";
      press("all", state.all); press("one", !state.all);
      show();
    }
  });
  function cell(event) {
    var at = one("heat").getScreenCTM().inverse(), box = data.heat;
    var x = at.a * event.clientX + at.e, y = at.d * event.clientY + at.f;
    var q = Math.floor((y - box.y) / box.h * data.length);
    var j = Math.floor((x - box.x) / box.w * data.d);
    return q >= 0 && q <= last && j >= 0 && j < data.d ? { q: q, j: j } : null;
  }
  one("heat").addEventListener("pointermove", function (event) {
    var at = cell(event);
    var words = at && "PE(" + at.q + ", " + at.j + ") = " + decimal(data.table[at.q][at.j], 3);
    write("hover", words || "");
  });
  one("heat").addEventListener("pointerleave", function () { write("hover", ""); });
  one("heat").addEventListener("click", function (event) {
    var at = cell(event);
    if (at) { state.p = at.q; state.i = Math.floor(at.j / 2); show(); }
  });
  one("controls").hidden = false;
  one("asleep").hidden = true;
  show();
})();
"""
