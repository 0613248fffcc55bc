"""The map of weights, query down and key across, that two figures draw."""

import unicodedata
from html import escape

from encoder_lib.widgets._page import LEVELS, LIGHT, hexadecimal, mix, rect, runs, svg, text

LONGEST = 10  # characters of a token that a label of the map shows
WIDEST = 236  # of the grid, in SVG units
LARGEST_CELL = 28
RIGHT = 44  # room for the last slanted label and for row sums
HEAD = 30  # height of the titles


def short(token) -> str:
    """The token as a label: its beginning where it is long."""
    return token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"


def _width(token):
    """About how wide a label is, in SVG units."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in short(token))
    return 6.2 * (len(short(token)) + wide)


def geometry(tokens) -> dict:
    """Where the grid of a map stands: a dict of x, y, cell and n, in SVG units."""
    longest = max(_width(token) for token in tokens)
    cell = min(LARGEST_CELL, WIDEST / len(tokens))
    return {
        "x": round(max(longest, 38) + 14),
        "y": round(HEAD + max(0.82 * longest, 16) + 13),
        "cell": round(cell, 3),
        "n": len(tokens),
    }


def level_of(value, top) -> int:
    """The step of the scale, 0 to LEVELS - 1, of thousandths between 0 and ``top``."""
    return min(LEVELS - 1, (2 * value * (LEVELS - 1) + top) // (2 * top))


def scale_top(largest) -> int:
    """The end of the scale in thousandths: 1, or 0.5 where no weight is above.

    Not the largest weight itself, or a flat head would look as sharp as a peaked one.
    """
    return 500 if 0 < largest <= 500 else 1000


def label_step(cell) -> int:
    """Which rows have words beside them: every one, or every second and so on if they are low."""
    return next(step for step in (1, 2, 3, 4, 8) if step * cell >= 11 or step == 8)


def weight_map(box, tokens, weights, top, label, extra="", columns="key (is looked at)") -> str:
    """The map of weights in thousandths, (L, L) nested lists."""
    side = box["cell"] * box["n"]
    levels = [[level_of(value, top) for value in row] for row in weights]
    paths = "".join(
        f'<path class="eb-pe-s{n}" stroke="{hexadecimal(mix(LIGHT, n))}" d="{runs(levels, n)}"/>'
        for n in range(LEVELS)
    )
    place = f"translate({box['x']} {box['y']}) scale({box['cell']}) translate(0 .5)"
    body = (
        text(8, 11, "Weights", "start", True)
        + text(8, 26, f"row: query (looks), column: {columns}")
        + _labels(box, tokens)
        + f'<g class="eb-pe-cells" transform="{place}" fill="none" '
        f'shape-rendering="crispEdges">{paths}</g>'
        f'<rect {rect(box["x"], box["y"], side, side)} fill="none" stroke="currentColor"'
        f' opacity=".45"/>{extra}' + _scale(box, top)
    )
    width = max(round(box["x"] + side + RIGHT), 250)
    return svg("map", width, round(box["y"] + side + 40), escape(label), body, "eb-pe-fit")


def _labels(box, tokens):
    """Names of rows and columns; every second or third where the cells are small."""
    cell, said = box["cell"], []
    for at in range(0, len(tokens), label_step(cell)):
        word, middle = escape(short(tokens[at])), (at + 0.5) * cell
        turn = f'transform="translate({box["x"] + middle + 3:.1f} {box["y"] - 6}) rotate(-55)"'
        row = text(box["x"] - 6, round(box["y"] + middle + 4, 1), word, "end", css="eb-pe-rowtick")
        column = text(0, 0, word, css="eb-pe-coltick").replace("<text", f"<text {turn}")
        said += [part.replace("<text", f'<text data-at="{at}"') for part in (row, column)]
    return "".join(said)


def _scale(box, top):
    """Swatches from 0 to the end of the scale."""
    x, y = box["x"] + 12, box["y"] + box["cell"] * box["n"] + 28
    swatches = "".join(
        f'<path class="eb-pe-s{n}" stroke="{hexadecimal(mix(LIGHT, n))}" stroke-width="9"'
        f' d="M{x + 10 * n} {y:.1f}h10.2"/>'
        for n in range(LEVELS)
    )
    edge = (
        f'<rect {rect(x, y - 4.5, 10 * LEVELS, 9)} fill="none" stroke="currentColor"'
        ' opacity=".45"/>'
    )
    ends = text(x - 4, round(y + 4, 1), "0", "end")
    ends += text(x + 10 * LEVELS + 5, round(y + 4, 1), f"{top / 1000:g}")
    return f"<g>{swatches}{edge}{ends}</g>"


MAP_STYLE = """
.eb-pe-rowmark{fill:none;stroke:var(--eb-pe-mark);stroke-width:2}
.eb-pe-map{cursor:crosshair}
.eb-pe .eb-pe-hover{margin:0}
"""

# Cells of a map from whole thousandths, and the cell beneath the pointer.
MAP_SCRIPT = """
  var box = data.box;
  function levelOf(value) {
    return Math.min(LEVELS - 1, Math.floor((2 * value * (LEVELS - 1) + data.top) / (2 * data.top)));
  }
  function runs(levels, level) {
    var path = "";
    levels.forEach(function (row, y) {
      for (var x = 0, end; x < row.length; x = end) {
        end = x + 1;
        if (row[x] !== level) { continue; }
        while (end < row.length && row[end] === level) { end++; }
        path += "M" + x + " " + y + "h" + (end - x);
      }
    });
    return path;
  }
  function paint(rows) {
    var levels = rows.map(function (row) { return row.map(levelOf); });
    one("cells").querySelectorAll("path").forEach(function (e, level) {
      e.setAttribute("d", runs(levels, level));
    });
  }
  function cell(event) {
    var at = one("map").getScreenCTM().inverse();
    var x = at.a * event.clientX + at.e, y = at.d * event.clientY + at.f;
    var q = Math.floor((y - box.y) / box.cell), k = Math.floor((x - box.x) / box.cell);
    return q >= 0 && q < box.n && k >= 0 && k < box.n ? { q: q, k: k } : null;
  }
  one("map").addEventListener("pointermove", function (event) {
    var at = cell(event);
    write("hover", at ? nameOf(at.q) + " \\u2192 " + nameOf(at.k) + ": "
      + decimal(shown()[at.q][at.k], 3) : "");
  });
  one("map").addEventListener("pointerleave", function () { write("hover", ""); });
""".replace("LEVELS", str(LEVELS))
