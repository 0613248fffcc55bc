"""The explorer of padding masks: what a right, a wrong and a missing mask do to the weights."""

import math

import torch

from encoder_lib.widgets import _map
from encoder_lib.widgets._page import (
    decimal,
    level_style,
    names,
    own_key,
    page,
    radios,
    readout,
    require_tokens,
    table,
    text,
)

MAX_TOKENS, PLACES = 24, 5
# Value, name on the button, what it does.
MODES = (
    ("right", "right mask", "Right mask: the scores of padding become −∞ before the softmax, "
     "so that padding gets weight 0."),
    ("inverted", "inverted", "Inverted: the mask keeps padding and hides every real token."),
    ("none", "none", "No mask: padding is scored like any token."),
    ("zero", "scores set to 0", "Scores set to 0: a score of 0 is a score like any other; "
     "it enters the softmax as e⁰ = 1."),
    ("after", "after softmax", "After softmax: the weights of padding are set to 0 when the sum "
     "has been taken, so that rows no longer sum to 1."),
)  # fmt: skip
WORDS = {
    "shared": "{real} real, {pads} padding. Of the weight of a real query, {mean} goes to padding "
    "on average, at most {most} ({name}).",
    "clean": "{real} real, {pads} padding. No weight of a real query goes to padding: 0.000.",
    "full": "All {real} tokens are real: there is no padding to look at.",
    "bare": "No token is real: all {pads} are padding, and no row counts.",
    "equal": "Every row sums to {low}.",
    "sums": "Row sums go from {low} to {high}.",
    "hidden": "Every key is hidden, and every row is 0; a plain softmax over −∞ alone gives NaN.",
}


def mask_explorer(scores, tokens, key=None):
    """An explorer of what a padding mask does to the attention weights of one sentence.

    The reader chooses how many tokens are real (the rest is padding) and one of five ways to
    mask, and sees the weights of every query, the sums of the rows and the weight that goes to
    padding. The softmax is taken in the page, of the scores rounded to 5 places.

    Args:
        scores: (L, L) raw scores, query then key, before any mask and before the softmax.
        tokens: the L tokens, a list of str; at most 24.
        key: id of the figure, unique on its page; None makes one from what is shown.

    Returns: ``IPython.display.HTML``; the same string for the same arguments.
    Raises: TypeError for scores that are not a floating-point tensor, for tokens that are not
        strings, for a key that is not; ValueError for a shape, a score that is not finite or a
        number of tokens that does not fit. All name the argument, what came and what is allowed.
    """
    scores = _require_scores(scores)
    tokens = require_tokens(tokens, len(scores), MAX_TOKENS)
    data = _data(scores, tokens)
    key = own_key("mask", key, data)
    return page(
        "mask", "Mask explorer", key, data, _controls(key, data), _body(data),
        level_style() + _map.MAP_STYLE + STYLE, _map.MAP_SCRIPT + SCRIPT,
    )  # fmt: skip


def _require_scores(scores):
    """The scores as nested lists, rounded."""
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating-point tensor (L, L), got {kind}")
    shape = tuple(scores.shape)
    if scores.dim() != 2 or shape[0] != shape[1] or 0 in shape:
        raise ValueError(
            f"scores must have shape (L, L), got {shape}; one head of a batch is scores[b, h]"
        )
    if not scores.isfinite().all():
        raise ValueError("scores must be finite, got NaN or infinity; were they masked already?")
    rounded = scores.detach().cpu().double().tolist()
    return [[round(value, PLACES) + 0.0 for value in row] for row in rounded]


# --- the sums, as the script takes them ---------------------------------------------------------


def masked_weights(scores, real, mode):
    """Attention weights with the first ``real`` keys real, masked in one of the MODES.

    Args: scores (L, L) nested lists. Returns: (L, L) nested lists of floats, a row of zeros
        where every key is hidden.
    """
    rows = []
    for row in scores:
        if mode == "zero":
            row = [value if k < real else 0.0 for k, value in enumerate(row)]
        weights = _softmax(row, [_seen(k, real, mode) for k in range(len(row))])
        if mode == "after":
            weights = [value if k < real else 0.0 for k, value in enumerate(weights)]
        rows.append(weights)
    return rows


def _seen(k, real, mode):
    if mode == "right":
        return k < real
    return k >= real if mode == "inverted" else True


def _softmax(row, seen):
    if not any(seen):
        return [0.0] * len(row)
    largest = max(value for value, use in zip(row, seen, strict=True) if use)
    powers = [
        math.exp(value - largest) if use else 0.0 for value, use in zip(row, seen, strict=True)
    ]
    total = sum(powers)
    return [power / total for power in powers]


def _thousandths(value):
    """Rounded half up, as ``Math.round`` does."""
    return math.floor(value * 1000 + 0.5)


# --- the figure ---------------------------------------------------------------------------------


def _data(scores, tokens):
    return {
        "start": {"real": math.ceil(2 * len(tokens) / 3), "mode": "right"},
        "scores": scores,
        "names": names(tokens),
        "top": 1000,
        "box": _map.geometry(tokens),
        "labels": [_map.short(token) for token in tokens],
        "modes": {value: said for value, _, said in MODES},
        "words": WORDS,
    }


def _sentences(data, weights):
    """The three lines that say what the mask does in the state the figure starts in."""
    real, mode, count = data["start"]["real"], data["start"]["mode"], len(weights)
    padded = [sum(row[real:]) for row in weights[:real]]
    most = max(map(_thousandths, padded))
    fields = {
        "real": real, "pads": count - real,
        "mean": decimal(_thousandths(sum(padded) / real), 3), "most": decimal(most, 3),
        "name": data["names"][[_thousandths(share) for share in padded].index(most)],
    }  # fmt: skip
    sums = [_thousandths(sum(row)) for row in weights]
    fields["low"], fields["high"] = decimal(min(sums), 3), decimal(max(sums), 3)
    shared = "shared" if any(padded) else "clean"
    words = WORDS[shared if real < count else "full"], WORDS["equal"]
    return [data["modes"][mode], *(line.format(**fields) for line in words)]


def _controls(key, data):
    real, count = data["start"]["real"], len(data["scores"])
    slider = (
        '<label class="eb-pe-field"><span>real tokens <b class="eb-pe-value-real">'
        f'{real}</b> of {count}</span><input type="range" data-name="real" min="0" max="{count}"'
        f' step="1" value="{real}"></label>'
    )
    choices = [(value, name) for value, name, _ in MODES]
    return slider + radios(key, "mode", "mask", choices, data["start"]["mode"])


def _body(data):
    """Words, map and the folded table, in the state the figure starts in."""
    real, labels, box = data["start"]["real"], data["labels"], data["box"]
    weights = masked_weights(data["scores"], real, data["start"]["mode"])
    whole = [[_thousandths(value) for value in row] for row in weights]
    shown = [label if at < real else "[pad]" for at, label in enumerate(labels)]
    label = f"Map of the weights: {box['n']} queries down, {box['n']} keys across, with row sums"
    drawn = _map.weight_map(box, shown, whole, data["top"], label, _extra(box, real, weights))
    numbers = [
        [name, *(decimal(value, 3) for value in row), decimal(_thousandths(sum(exact)), 3),
         decimal(_thousandths(sum(exact[real:])), 3)]
        for name, row, exact in zip(shown, whole, weights, strict=True)
    ]  # fmt: skip
    return (
        readout(_sentences(data, weights))
        + f'{drawn}<p class="eb-pe-hover" aria-hidden="true"></p>'
        + table("All numbers", ["query ↓ key →", *shown, "row sum", "on padding"], numbers)
    )


def _extra(box, real, weights):
    """The line between real tokens and padding, and the sums at the ends of the rows."""
    side, x = box["cell"] * box["n"], box["x"]
    line = (
        f'<path class="eb-pe-border" d="M0 {box["y"] - 4}v{side + 8:.1f}"'
        f' transform="translate({x + real * box["cell"]:.1f} 0)" fill="none" stroke="#c2185b"'
        ' stroke-width="2" stroke-dasharray="5 3"/>'
    )
    sums = "".join(
        text(
            round(x + side + 7, 1), round(box["y"] + (at + 0.5) * box["cell"] + 4, 1),
            decimal(_thousandths(sum(weights[at])), 3), css="eb-pe-sum",
        ).replace("<text", f'<text data-at="{at}"')
        for at in range(0, len(weights), _map.label_step(box["cell"]))
    )  # fmt: skip
    return line + sums + text(round(x + side + 7, 1), round(box["y"] + side + 14, 1), "row sum")


STYLE = """
.eb-pe .eb-pe-border{stroke:var(--eb-pe-mark)}
.eb-pe .eb-pe-pad{opacity:.8;font-style:italic}
.eb-pe-mask .eb-pe-sum{font-variant-numeric:tabular-nums}
.eb-pe-mask[data-explorer] .eb-pe-readout{min-height:8em}
"""

SCRIPT = """
  var weights = [], count = data.scores.length;
  function whole(value) { return Math.floor(value * 1000 + 0.5); }
  function total(row) { return row.reduce(function (sum, value) { return sum + value; }, 0); }
  function shown() { return weights.map(function (row) { return row.map(whole); }); }
  function seen(k) {
    if (state.mode === "right") { return k < state.real; }
    return state.mode === "inverted" ? k >= state.real : true;
  }
  function softmax(row) {
    var kept = row.filter(function (_, k) { return seen(k); });
    if (!kept.length) { return row.map(function () { return 0; }); }
    var largest = Math.max.apply(null, kept);
    var powers = row.map(function (value, k) { return seen(k) ? Math.exp(value - largest) : 0; });
    var sum = total(powers);
    return powers.map(function (power) { return power / sum; });
  }
  function realOnly(row) {
    return row.map(function (value, k) { return k < state.real ? value : 0; });
  }
  function compute() {
    weights = data.scores.map(function (row) {
      var out = softmax(state.mode === "zero" ? realOnly(row) : row);
      return state.mode === "after" ? realOnly(out) : out;
    });
  }
  function onPadding(row) { return total(row.slice(state.real)); }
  function padding() {
    var words = data.words, fields = { real: state.real, pads: count - state.real };
    if (!state.real) { return fill(words.bare, fields); }
    if (state.real === count) { return fill(words.full, fields); }
    var shares = weights.slice(0, state.real).map(onPadding), rounded = shares.map(whole);
    if (!shares.some(Boolean)) { return fill(words.clean, fields); }
    var most = Math.max.apply(null, rounded);
    fields.mean = decimal(whole(total(shares) / state.real), 3);
    fields.most = decimal(most, 3);
    fields.name = data.names[rounded.indexOf(most)];
    return fill(words.shared, fields);
  }
  function sums() {
    var words = data.words, each = weights.map(total).map(whole);
    var low = Math.min.apply(null, each), high = Math.max.apply(null, each);
    var hidden = data.scores[0].every(function (_, k) { return !seen(k); });
    if (hidden) { return words.hidden; }
    return fill(low === high ? words.equal : words.sums,
      { low: decimal(low, 3), high: decimal(high, 3) });
  }
  function nameOf(at) { return at < state.real ? data.names[at] : "[pad] (position " + at + ")"; }
  function label(at) { return at < state.real ? data.labels[at] : "[pad]"; }
  function tick(e, at) {
    e.textContent = label(at);
    e.classList.toggle("eb-pe-pad", at >= state.real);
  }
  function numbers() {
    var rows = shown();
    root.querySelectorAll(".eb-pe-table thead th").forEach(function (e, at) {
      if (at > 0 && at <= count) { e.textContent = label(at - 1); }
    });
    root.querySelectorAll(".eb-pe-table tbody tr").forEach(function (line, q) {
      line.querySelector("th").textContent = label(q);
      line.querySelectorAll("td").forEach(function (e, k) {
        var value = k < count ? rows[q][k] : whole((k === count ? total : onPadding)(weights[q]));
        e.textContent = decimal(value, 3);
      });
    });
  }
  function show() {
    compute();
    paint(shown());
    write("value-real", state.real);
    all("rowtick").forEach(function (e) { tick(e, Number(e.dataset.at)); });
    all("coltick").forEach(function (e) { tick(e, Number(e.dataset.at)); });
    all("sum").forEach(function (e) {
      e.textContent = decimal(whole(total(weights[Number(e.dataset.at)])), 3);
    });
    var x = box.x + state.real * box.cell;
    one("border").setAttribute("transform", "translate(" + x.toFixed(1) + " 0)");
    say([data.modes[state.mode], padding(), sums()]);
    numbers();
  }
"""
