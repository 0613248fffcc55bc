"""What all interactive figures share: keys, numbers as text, SVG, the page around a figure."""

import hashlib
import json
import re
from html import escape

from IPython.display import HTML

# Steps of the scale of weights: each a ground, light and dark, and the ink that reads best on it.
LEVELS = 12
LIGHT = ((255, 255, 255), (140, 192, 220), (49, 130, 189), (8, 48, 107))
DARK = ((29, 32, 38), (38, 92, 146), (74, 150, 208), (196, 226, 248))
INKS = ((0, 0, 0), (255, 255, 255))
ASLEEP = (
    "The figure moves where scripts may run: on the site of the book, "
    "or in a notebook once this cell has been run."
)


# --- arguments ----------------------------------------------------------------------------------


def require_key(key):
    """Refuse a key that cannot be the id of a figure.

    Raises: TypeError for anything but a str; ValueError naming the key and what is allowed.
    """
    if not isinstance(key, str):
        raise TypeError(f"key must be a string, got {type(key).__name__}")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", key):
        raise ValueError(
            f"key must be a letter followed by letters, digits and dashes, got {key!r}"
        )


def require_tokens(tokens, length, largest) -> list:
    """The tokens as a list of ``length`` strings.

    Raises: TypeError for anything but a list or tuple of str; ValueError for another number of
        them, for more than ``largest``, for an empty one. All name the argument.
    """
    if not isinstance(tokens, list | tuple):
        raise TypeError(f"tokens must be a list of strings, got {type(tokens).__name__}")
    for at, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"tokens must hold strings, got {token!r} at position {at}")
        if not token.strip():
            raise ValueError(f"tokens must not be empty, got {token!r} at position {at}")
    if not 1 <= length <= largest:
        raise ValueError(f"tokens must be between 1 and {largest}, got {length}")
    if len(tokens) != length:
        raise ValueError(
            f"tokens must be as many as the rows, {length}, got {len(tokens)}: {list(tokens)}"
        )
    return list(tokens)


def own_key(kind, key, data) -> str:
    """The id of a figure: the caller's, or one made from what the figure shows.

    Raises: as require_key. Returns: str, the same for the same data.
    """
    if key is not None:
        require_key(key)
        return key
    return f"{kind}-{hashlib.sha1(embed(data).encode()).hexdigest()[:8]}"


# --- words and numbers --------------------------------------------------------------------------


def decimal(value, places) -> str:
    """A whole number of 10**-places as text, with a true minus sign: (-594, 3) -> '−0.594'."""
    digits = str(abs(value)).rjust(places + 1, "0")
    return f"{'−' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def names(tokens) -> list:
    """Each token in quotation marks, with its position where it stands more than once."""
    return [
        f"“{token}” (position {at})" if tokens.count(token) > 1 else f"“{token}”"
        for at, token in enumerate(tokens)
    ]


def embed(data) -> str:
    """``data`` as JSON that may stand inside a script element."""
    dense = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return dense.replace("<", "\\u003c")


# --- drawing ------------------------------------------------------------------------------------


def runs(levels, level) -> str:
    """Cells of one level as an SVG path: runs along each row, one unit per cell."""
    path = []
    for y, row in enumerate(levels):
        x = 0
        while x < len(row):
            if row[x] != level:
                x += 1
                continue
            end = next((e for e in range(x, len(row)) if row[e] != level), len(row))
            path.append(f"M{x} {y}h{end - x}")
            x = end
    return "".join(path)


def rect(x, y, width, height) -> str:
    """Place and size of a rectangle as SVG attributes."""
    return f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'


def text(x, y, words, anchor="start", strong=False, css="") -> str:
    """An SVG text; ``words`` are markup and escaped by the caller."""
    weight = ' font-weight="600"' if strong else ""
    size = 12 if strong else 11
    name = f' class="{css}"' if css else ""
    return (
        f'<text{name} x="{x if isinstance(x, str) else f"{x:g}"}"'
        f' y="{y if isinstance(y, str) else f"{y:g}"}" font-size="{size}"{weight}'
        f' text-anchor="{anchor}" fill="currentColor">{words}</text>'
    )


def svg(name, width, height, label, body, css="eb-pe-svg") -> str:
    """An SVG drawing that says what it shows."""
    return (
        f'<svg class="{css} eb-pe-{name}" viewBox="0 0 {width} {height}" width="{width}"'
        f' role="img" aria-label="{label}">{body}</svg>'
    )


def mix(stops, level) -> tuple:
    """The colour (r, g, b) of one of LEVELS equal steps through the stops."""
    at = level / (LEVELS - 1) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    pairs = zip(stops[low], stops[low + 1], strict=True)
    return tuple(round(a + (b - a) * (at - low)) for a, b in pairs)


def hexadecimal(colour) -> str:
    """(r, g, b) as '#rrggbb'."""
    return "#" + "".join(f"{channel:02x}" for channel in colour)


def contrast(one, two) -> float:
    """The contrast of two colours (r, g, b) by WCAG 2, 1 to 21."""
    shades = []
    for colour in (one, two):
        parts = [c / 255 for c in colour]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        shades.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)
    return max(shades) / min(shades)


def ink(ground) -> tuple:
    """The one of INKS that reads best on the ground (r, g, b)."""
    return max(INKS, key=lambda colour: contrast(colour, ground))


def level_style() -> str:
    """Style rules of the steps of the scale: grounds of words, strokes of cells."""
    rules = []
    for theme, stops in (("", LIGHT), ("dark", DARK)):
        lines = "".join(
            f"--eb-pe-w{n}:{hexadecimal(mix(stops, n))};"
            f"--eb-pe-i{n}:{hexadecimal(ink(mix(stops, n)))};"
            for n in range(LEVELS)
        )
        rules.append(f"{DARK_ROOTS if theme else '.eb-pe'}{{{lines}}}")
    rules += [
        f".eb-pe .eb-pe-l{n}{{background:var(--eb-pe-w{n});color:var(--eb-pe-i{n})}}"
        f".eb-pe .eb-pe-s{n}{{stroke:var(--eb-pe-w{n})}}"
        for n in range(LEVELS)
    ]
    return "\n".join(rules)


# --- the page -----------------------------------------------------------------------------------


def radios(key, name, words, choices, chosen) -> str:
    """A group of radio buttons; ``choices`` are pairs of value and markup."""
    buttons = "".join(
        f'<label class="eb-pe-pill"><input type="radio" name="{key}-{name}" data-name="{name}"'
        f' value="{value}"{" checked" if value == chosen else ""}><span>{said}</span></label>'
        for value, said in choices
    )
    return f'<fieldset class="eb-pe-radios"><legend>{words}</legend>{buttons}</fieldset>'


def readout(lines) -> str:
    """The text that says the state, read aloud when it changes."""
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="eb-pe-readout" role="status" aria-live="polite">{said}</div>'


def table(summary, head, rows) -> str:
    """Folded numbers: a row of headings, and rows whose first cell heads them."""
    across = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    down = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        f"{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return (
        f'<details class="eb-pe-more"><summary>{summary}</summary>'
        f'<div class="eb-pe-scroll" tabindex="0" role="group" aria-label="Table of the numbers">'
        f'<table class="eb-pe-table"><thead><tr>{across}</tr></thead>'
        f"<tbody>{down}</tbody></table></div></details>"
    )


def page(kind, title, key, data, controls, body, style, script) -> HTML:
    """A whole figure as ``HTML``: style, controls (asleep), drawings and text, data, script."""
    code = WAKE.replace("KEY", json.dumps(key)).replace("BODY", script.strip("\n"))
    return HTML(
        f'<div class="eb-pe eb-pe-{kind}" id="{key}" data-explorer="{kind}" role="group"'
        f' aria-label="{title}"><style>{STYLE}{SHARED_STYLE}{style}</style>'
        f'<div class="eb-pe-controls" hidden>{controls}</div>'
        f'<p class="eb-pe-asleep">{ASLEEP}</p>{body}'
        f'<script type="application/json" class="eb-pe-data">{embed(data)}</script>'
        f"<script>{code}</script></div>"
    )


DARK_ROOTS = (
    "html[data-theme=dark] .eb-pe,html[theme=dark] .eb-pe,"
    "[data-jp-theme-light=false] .eb-pe,.vscode-dark .eb-pe"
)

STYLE = """
.eb-pe{--eb-pe-ground:#fff;--eb-pe-ink:#23272e;--eb-pe-line:#bfc4cb;--eb-pe-mark:#c2185b;
  --eb-pe-sin:#0072b2;--eb-pe-cos:#b34a00;--eb-pe-dot:#00694e;--eb-pe-on:#1f4e79;
  --eb-pe-on-ink:#fff;box-sizing:border-box;max-width:760px;margin:.5em 0;padding:12px 14px;
  border:1px solid var(--eb-pe-line);border-radius:6px;background:var(--eb-pe-ground);
  color:var(--eb-pe-ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
  "Liberation Sans",Arial,sans-serif}
html[data-theme=dark] .eb-pe,html[theme=dark] .eb-pe,[data-jp-theme-light=false] .eb-pe,
  .vscode-dark .eb-pe{--eb-pe-ground:#1d2026;--eb-pe-ink:#dfe2e7;--eb-pe-line:#4a515c;
  --eb-pe-mark:#ff8ab5;--eb-pe-sin:#6cc0f5;--eb-pe-cos:#f2a25c;--eb-pe-dot:#5fd3ac;
  --eb-pe-on:#8ebbe6;--eb-pe-on-ink:#10151b}
.eb-pe *{box-sizing:border-box}
.eb-pe [hidden]{display:none}
.eb-pe-controls{display:flex;flex-wrap:wrap;gap:6px 18px;align-items:end;margin-bottom:10px}
.eb-pe-field{flex:1 1 150px;margin:0;font-weight:400;color:inherit}
.eb-pe-field b{display:inline-block;min-width:2ch;font-variant-numeric:tabular-nums}
.eb-pe-field input{display:block;width:100%;height:24px;margin:0;accent-color:var(--eb-pe-on)}
.eb-pe-buttons span{display:inline-flex;gap:4px}
.eb-pe-buttons{display:flex;flex-wrap:wrap;gap:4px 12px}
.eb-pe button{min-height:28px;padding:2px 10px;border:1px solid var(--eb-pe-on);
  border-radius:4px;background:none;color:inherit;font:inherit;cursor:pointer}
.eb-pe button[aria-pressed=true]{background:var(--eb-pe-on);color:var(--eb-pe-on-ink)}
.eb-pe :focus-visible{outline:3px solid var(--eb-pe-mark);outline-offset:2px}
.eb-pe-panels{display:flex;flex-wrap:wrap;gap:8px 18px;align-items:flex-start}
.eb-pe-left{flex:1 1 240px;max-width:300px}
.eb-pe-right{flex:1.5 1 280px;min-width:0}
.eb-pe-svg{display:block;width:100%;height:auto;color:inherit;overflow:visible}
.eb-pe-heat{cursor:crosshair}
.eb-pe-clock{max-width:216px}
.eb-pe-sin,.eb-pe-cos,.eb-pe-dot,.eb-pe-arc{vector-effect:non-scaling-stroke}
.eb-pe-sin{stroke:var(--eb-pe-sin)}
.eb-pe-cos{stroke:var(--eb-pe-cos)}
.eb-pe-dot,.eb-pe-arc{stroke:var(--eb-pe-dot)}
.eb-pe-sin-text{fill:var(--eb-pe-sin)}
.eb-pe-cos-text{fill:var(--eb-pe-cos)}
.eb-pe-right path[stroke="#c2185b"],.eb-pe-clock line{stroke:var(--eb-pe-mark)}
.eb-pe-clock circle[fill="#c2185b"]{fill:var(--eb-pe-mark)}
.eb-pe .eb-pe-asleep{margin:0 0 .6em;font-size:12px;color:inherit}
.eb-pe-hover{min-height:1.5em;margin:0;font-size:12px}
.eb-pe .eb-pe-readout p{margin:0 0 .45em;color:inherit;font-variant-numeric:tabular-nums}
.eb-pe-more{margin-top:6px}
.eb-pe-more summary{cursor:pointer;font-weight:600}
.eb-pe .eb-pe-table{width:auto;margin:6px 0 0;border-collapse:collapse;color:inherit;
  font-size:13px;font-variant-numeric:tabular-nums}
.eb-pe .eb-pe-table th,.eb-pe .eb-pe-table td{padding:2px 14px 2px 0;text-align:right;
  color:inherit;background:none;border:0;border-bottom:1px solid var(--eb-pe-line)}
"""

# For the figures that came after the first, whose stored output is STYLE alone.
SHARED_STYLE = """
.eb-pe .eb-pe-fit{display:block;max-width:100%;height:auto;color:inherit;overflow:visible}
.eb-pe .eb-pe-radios{display:flex;flex-wrap:wrap;gap:4px;align-items:center;min-width:0;margin:0;
  padding:0;border:0}
.eb-pe .eb-pe-radios legend{float:none;width:auto;margin:0 0 2px;padding:0;border:0;font:inherit;
  color:inherit}
.eb-pe .eb-pe-pill{position:relative;display:inline-block;margin:0;color:inherit;font-weight:400}
.eb-pe .eb-pe-pill input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;
  cursor:pointer}
.eb-pe .eb-pe-pill span{display:block;min-width:32px;padding:2px 9px;border-radius:4px;
  border:1px solid var(--eb-pe-on);text-align:center}
.eb-pe .eb-pe-pill input:checked+span{background:var(--eb-pe-on);color:var(--eb-pe-on-ink)}
.eb-pe .eb-pe-pill input:focus-visible+span{outline:3px solid var(--eb-pe-mark);outline-offset:2px}
.eb-pe[data-explorer] .eb-pe-readout{margin:.5em 0;min-height:3.4em}
.eb-pe .eb-pe-scroll{max-width:100%;overflow-x:auto}
.eb-pe-scroll .eb-pe-table th{font-weight:600;white-space:nowrap}
.eb-pe-scroll .eb-pe-table th[scope=row]{text-align:left}
"""

WAKE = """
(function () {
  var root = document.getElementById(KEY);
  if (!root || root.dataset.ready) { return; }
  root.dataset.ready = "1";
  var data = JSON.parse(root.querySelector(".eb-pe-data").textContent);
  var state = data.start;
  // In JupyterLab's command mode the arrow keys would otherwise leave the figure for another cell.
  root.querySelectorAll("input, button, select, [tabindex]").forEach(function (e) {
    e.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  function one(name) { return root.querySelector(".eb-pe-" + name); }
  function all(name) { return Array.from(root.querySelectorAll(".eb-pe-" + name)); }
  function write(name, words) { all(name).forEach(function (e) { e.textContent = words; }); }
  function decimal(value, places) {
    var digits = String(Math.abs(value)).padStart(places + 1, "0");
    return (value < 0 ? "\\u2212" : "") + digits.slice(0, -places) + "." + digits.slice(-places);
  }
  function fill(words, fields) {
    return words.replace(/{(\\w+)}/g, function (_, name) { return fields[name]; });
  }
  function say(lines) {
    all("readout p").forEach(function (e, n) {
      if (e.textContent !== lines[n]) { e.textContent = lines[n]; }
    });
  }
BODY
  root.addEventListener("input", function (event) {
    var name = event.target.dataset.name;
    if (!name) { return; }
    state[name] = isNaN(Number(event.target.value)) ? event.target.value
      : Number(event.target.value);
    show();
  });
  root.querySelectorAll("input").forEach(function (e) { e.disabled = false; });
  one("controls").hidden = false;
  one("asleep").hidden = true;
  root.querySelectorAll("input[data-name]").forEach(function (e) {
    if (e.type === "radio") { e.checked = e.value === String(state[e.dataset.name]); }
    else { e.value = state[e.dataset.name]; }
  });
  show();
})();
"""
