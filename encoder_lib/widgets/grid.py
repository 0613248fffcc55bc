"""The grid of all heads of a model: a small map for each, the chosen one large."""

from encoder_lib.widgets import _map, attention
from encoder_lib.widgets._page import (
    LIGHT,
    decimal,
    hexadecimal,
    level_style,
    mix,
    names,
    own_key,
    page,
    readout,
    rect,
    require_tokens,
    runs,
    svg,
    table,
    text,
)

SMALL, GAP, LEFT, TOP = 24, 2, 16, 16  # a small map, the space after it, the labels: SVG units
HELP = (
    "Click a small map, or walk there with Tab and the arrow keys, and read it large. Then point "
    "at a token."
)
LEGEND = "Every small map is a head: layers down, heads across."
MEAN = (
    "Its mean over the inner tokens: previous token {previous}, next token {next}, itself {own}, "
    "first token {first}."
)


def attention_grid(weights, tokens, key=None, start=(0, 0)):
    """A grid of the attention maps of one sentence, layers down and heads across.

    The reader clicks a head, or walks to it with Tab and the arrow keys, and sees its map large;
    points at a token, and sees its row as numbers.

    Args:
        weights: a list of N tensors (H, L, L) or (1, H, L, L), query then key, one per layer, as
            ``TransformerEncoder`` returns them; rows as in attention_explorer.
        tokens: the L tokens, a list of str; at most 32.
        key: id of the figure, unique on its page; None makes one from what is shown.
        start: (layer, head) that is shown first.

    Returns: ``IPython.display.HTML``; the same string for the same arguments. Weights are
        rounded to 3 places.
    Raises: as attention_explorer; TypeError, ValueError for a start that is no head.
    """
    layers = attention._layers(weights)
    tokens = require_tokens(tokens, layers[0].size(-1), attention.MAX_TOKENS)
    data = _data(layers, tokens, _require_start(start, len(layers), layers[0].size(0)))
    key = own_key("grid", key, data)
    style = level_style() + _map.MAP_STYLE + attention.STYLE + STYLE + _overlay_style(data)
    script = _map.MAP_SCRIPT + attention.SCRIPT + SCRIPT
    return page(
        "grid", "Grid of heads", key, data, f"<p>{HELP}</p>", _body(key, data), style, script
    )


def _require_start(start, n_layers, n_heads):
    """The start as a tuple (layer, head) of ints that the model has."""
    pair = tuple(start) if isinstance(start, list | tuple) else ()
    if len(pair) != 2 or not all(type(n) is int for n in pair):
        raise TypeError(f"start must be two ints (layer, head), got {start!r}")
    if not (0 <= pair[0] < n_layers and 0 <= pair[1] < n_heads):
        raise ValueError(
            f"start must be a layer below {n_layers} and a head below {n_heads}, got {pair}"
        )
    return pair


def _data(layers, tokens, start):
    """As attention_explorer's, and the four means of each head in thousandths."""
    n_heads = layers[0].size(0)
    token = min(1, len(tokens) - 1)
    weights = [(layer * 1000).round().int().tolist() for layer in layers]
    return {
        "start": {
            "layer": start[0], "head": start[1], "token": token,
            "unit": start[0] * n_heads + start[1],
        },
        "weights": weights,
        "means": [[_means(head) for head in layer] for layer in layers],
        "names": names(tokens),
        "top": 1000,  # one scale for all heads, or a flat one would look as sharp as a peaked one
        "box": _map.geometry(tokens),
        "tokens": tokens,
        "words": {**attention.WORDS, "mean": MEAN},
        "grid": {"step": SMALL + GAP, "x": LEFT, "y": TOP, "heads": n_heads},
    }  # fmt: skip


def _means(head):
    """Mean weight on the previous and next token, on itself, on the first: of (L, L)."""
    length = head.size(-1)
    inner = range(1, length - 1) if length > 2 else range(length)
    sums = [0.0] * 4
    for q in inner:
        for at, k in enumerate((q - 1, q + 1, q, 0)):
            sums[at] += head[q, k].item() if 0 <= k < length else 0.0
    return [round(1000 * value / len(inner)) for value in sums]


def _mean_line(data):
    layer, head = data["start"]["layer"], data["start"]["head"]
    said = zip(("previous", "next", "own", "first"), data["means"][layer][head], strict=True)
    return MEAN.format(**{name: decimal(value, 3) for name, value in said})


def _body(key, data):
    """Grid and map, sentence, words and the folded table, in the state the figure starts in."""
    layer, head, token = (data["start"][name] for name in ("layer", "head", "token"))
    rows, tokens, box = data["weights"][layer][head], data["tokens"], data["box"]
    place = rect(box["x"] - 2, box["y"] + token * box["cell"], box["n"] * box["cell"] + 4,
                 box["cell"])  # fmt: skip
    mark = f'<rect class="eb-pe-rowmark" {place} fill="none" stroke="#c2185b" stroke-width="2"/>'
    label = f"Map of the weights of one head: {box['n']} queries down, {box['n']} keys across"
    drawn = _map.weight_map(box, tokens, rows, data["top"], label, mark)
    numbers = [
        [name, *(decimal(value, 3) for value in row)]
        for name, row in zip(tokens, rows, strict=True)
    ]
    which = f'All numbers of <span class="eb-pe-which">layer {layer}, head {head}</span>'
    return (
        f'<div class="eb-pe-panels"><div class="eb-pe-gridside">{_grid(key, data)}</div>'
        f'<div class="eb-pe-mapside">{drawn}<p class="eb-pe-hover" aria-hidden="true"></p></div>'
        f"</div>{attention._sentence(key, data)}"
        + readout([*attention._sentences(data), _mean_line(data)])
        + table(which, ["looks ↓ at →", *tokens], numbers)
    )


def _grid(key, data):
    """All heads in one drawing, and a radio button over each; asleep without the script."""
    n_layers, n_heads, start = len(data["weights"]), data["grid"]["heads"], data["start"]
    buttons = "".join(
        f'<label class="eb-pe-unit"><input type="radio" name="{key}-unit" data-name="unit"'
        f' value="{n * n_heads + h}" aria-label="layer {n}, head {h}"'
        f"{' checked' if (n, h) == (start['layer'], start['head']) else ''} disabled></label>"
        for n in range(n_layers)
        for h in range(n_heads)
    )
    return (
        f'<fieldset class="eb-pe-radios eb-pe-unitset"><legend>{LEGEND}</legend>'
        f'<div class="eb-pe-all">{_small_maps(data)}'
        f'<div class="eb-pe-units eb-pe-units-{n_layers}-{n_heads}">{buttons}</div></div>'
        "</fieldset>"
    )


def _small_maps(data):
    """One drawing of every head's map: cells by level, names of layers and heads, the mark."""
    n_layers, n_heads, start = len(data["weights"]), data["grid"]["heads"], data["start"]
    step, cell = SMALL + GAP, SMALL / data["box"]["n"]
    heads = [(n, h, LEFT + h * step, TOP + n * step)
             for n in range(n_layers) for h in range(n_heads)]  # fmt: skip
    drawn = "".join(
        f'<g transform="translate({x} {y}) scale({cell:.4f}) translate(0 .5)">'
        f"{_cells(data['weights'][n][h], data['top'])}</g>"
        for n, h, x, y in heads
    )
    frames = "".join(f"M{x} {y}h{SMALL}v{SMALL}h-{SMALL}z" for _, _, x, y in heads)
    labels = [text(LEFT + h * step + SMALL / 2, 11, h, "middle") for h in range(n_heads)]
    labels += [text(LEFT - 4, TOP + n * step + SMALL / 2 + 4, n, "end") for n in range(n_layers)]
    x, y = LEFT + start["head"] * step - 1, TOP + start["layer"] * step - 1
    body = (
        f'{"".join(labels)}<path d="{frames}" fill="none" stroke="currentColor" opacity=".45"'
        f' stroke-width=".6"/><g fill="none" shape-rendering="crispEdges">{drawn}</g>'
        f'<rect class="eb-pe-unitmark" {rect(x, y, SMALL + 2, SMALL + 2)} fill="none"'
        ' stroke="#c2185b" stroke-width="2"/>'
    )
    said = f"Small maps of {n_layers} layers with {n_heads} heads each, layers down, heads across"
    return svg("units-map", LEFT + n_heads * step, TOP + n_layers * step, said, body)


def _cells(rows, top):
    """The cells of one small map; the lowest level is the ground and not drawn."""
    levels = [[_map.level_of(value, top) for value in row] for row in rows]
    return "".join(
        f'<path class="eb-pe-s{n}" stroke="{hexadecimal(mix(LIGHT, n))}" d="{runs(levels, n)}"/>'
        for n in sorted({level for row in levels for level in row} - {0})
    )


def _overlay_style(data):
    """Where the radio buttons stand over the drawing, in shares of its size."""
    n_layers, n_heads, step = len(data["weights"]), data["grid"]["heads"], SMALL + GAP
    left, top = LEFT / (LEFT + n_heads * step), TOP / (TOP + n_layers * step)
    name = f"eb-pe-units-{n_layers}-{n_heads}"
    return (
        f".{name}{{inset:{100 * top:.3f}% 0 0 {100 * left:.3f}%;"
        f"grid-template:repeat({n_layers},1fr)/repeat({n_heads},1fr)}}\n"
    )


STYLE = """
.eb-pe-grid .eb-pe-controls p{margin:0;color:inherit}
.eb-pe-gridside{flex:1.2 1 300px;min-width:0;max-width:400px}
.eb-pe-mapside{flex:1 1 280px;min-width:0}
.eb-pe .eb-pe-unitset{display:block}
.eb-pe-all{position:relative;margin-top:4px}
.eb-pe-units{position:absolute;display:grid}
.eb-pe .eb-pe-unit{position:relative;display:block;margin:0}
.eb-pe .eb-pe-unit input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;
  cursor:pointer}
.eb-pe .eb-pe-unit:focus-within{outline:3px solid var(--eb-pe-mark);outline-offset:1px}
.eb-pe .eb-pe-unit:hover{box-shadow:0 0 0 2px var(--eb-pe-on)}
.eb-pe .eb-pe-unitmark{stroke:var(--eb-pe-mark)}
"""

SCRIPT = """
  var showHead = show, heads = data.grid.heads, sentencesOfHead = sentences;
  sentences = function (row) {
    var m = data.means[state.layer][state.head];
    return sentencesOfHead(row).concat(fill(data.words.mean, {
      previous: decimal(m[0], 3), next: decimal(m[1], 3), own: decimal(m[2], 3),
      first: decimal(m[3], 3) }));
  };
  show = function () {
    state.layer = Math.floor(state.unit / heads);
    state.head = state.unit % heads;
    var grid = data.grid, x = grid.x + state.head * grid.step - 1;
    one("unitmark").setAttribute("x", x.toFixed(1));
    one("unitmark").setAttribute("y", (grid.y + state.layer * grid.step - 1).toFixed(1));
    showHead();
    write("which", "layer " + state.layer + ", head " + state.head);
  };
  one("units").addEventListener("keydown", function (event) {
    var down = { ArrowDown: heads, ArrowUp: -heads }[event.key];
    if (!down || event.altKey || event.ctrlKey || event.metaKey) { return; }
    event.preventDefault();
    var buttons = all("unit input"), next = state.unit + down;
    if (!buttons[next]) { return; }
    state.unit = next;
    buttons[next].checked = true;
    buttons[next].focus();
    show();
  });
"""
