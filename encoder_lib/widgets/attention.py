"""The explorer of attention weights: where every token of a sentence looks."""

from html import escape

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
    rect,
    require_tokens,
    table,
)

MAX_TOKENS, MAX_HEADS, MAX_LAYERS, MAX_WEIGHTS = 32, 16, 12, 50_000
HALF = (torch.float16, torch.bfloat16)
SAID = 3  # how many of the largest weights the text names

ASK = (
    "Point at a token, or choose one with the arrow keys. Colour and number say how much it looks "
    "at each token."
)
WORDS = {
    "looks": "{head}: {query} looks at {list}.",
    "rest": "The other {count} share {rest}. On itself it puts {own}.",
    "few": "On itself it puts {own}.",
    "nowhere": "{head}: {query} looks nowhere: all its weights are 0.",
    "empty": "Such a row belongs to a sentence without real tokens.",
}


def attention_explorer(weights, tokens, key=None):
    """An explorer of the attention weights of one sentence, head by head.

    The reader points at a token, or walks to it with Tab and the arrow keys, and sees how much
    it looks at every other token: a ground behind the tokens, numbers, and its row in the map.

    Args:
        weights: (H, L, L) or (1, H, L, L), query then key, as a layer returns them; or a list
            of such tensors, one per layer, as ``Encoder`` returns them. Every row sums to 1,
            or is 0 throughout (a fully padded sentence).
        tokens: the L tokens, a list of str; at most 32.
        key: id of the figure, unique on its page; None makes one from what is shown.

    Returns: ``IPython.display.HTML``; the same string for the same arguments. Weights are
        rounded to 3 places.
    Raises: TypeError for weights that are not floating-point tensors, for tokens that are not
        strings, for a key that is not; ValueError for a shape, a row or a number of tokens that
        does not fit. All name the argument, what came and what is allowed.
    """
    layers = _layers(weights)
    tokens = require_tokens(tokens, layers[0].size(-1), MAX_TOKENS)
    data = _data(layers, tokens)
    key = own_key("attention", key, data)
    return page(
        "attention", "Attention explorer", key, data, _controls(key, data), _body(key, data),
        level_style() + _map.MAP_STYLE + STYLE, _map.MAP_SCRIPT + SCRIPT,
    )  # fmt: skip


# --- arguments ----------------------------------------------------------------------------------


def _layers(weights):
    """The weights as a list of float64 tensors (H, L, L)."""
    given = weights if isinstance(weights, list | tuple) else [weights]
    if not 1 <= len(given) <= MAX_LAYERS:
        raise ValueError(f"weights must hold 1 to {MAX_LAYERS} layers, got {len(given)}")
    layers = []
    for at, layer in enumerate(given):
        name = f"weights[{at}]" if isinstance(weights, list | tuple) else "weights"
        layers.append(_one_layer(name, layer))
    shapes = [tuple(layer.shape) for layer in layers]
    if len(set(shapes)) > 1:
        raise ValueError(f"weights must have the same shape in every layer, got {shapes}")
    count = sum(layer.numel() for layer in layers)
    if count > MAX_WEIGHTS:
        raise ValueError(f"weights must hold at most {MAX_WEIGHTS} numbers, got {count}")
    return layers


def _one_layer(name, layer):
    if not isinstance(layer, torch.Tensor) or not layer.is_floating_point():
        kind = layer.dtype if isinstance(layer, torch.Tensor) else type(layer).__name__
        raise TypeError(f"{name} must be a floating-point tensor (H, L, L), got {kind}")
    shape = tuple(layer.shape)
    if layer.dim() == 4 and shape[0] == 1:
        layer = layer[0]
    if layer.dim() != 3 or layer.size(1) != layer.size(2) or 0 in shape:
        raise ValueError(
            f"{name} must have shape (H, L, L) or (1, H, L, L), got {shape}; "
            "one sentence of a batch is weights[b], one head alone weights.unsqueeze(0)"
        )
    if layer.size(0) > MAX_HEADS:
        raise ValueError(f"{name} must have at most {MAX_HEADS} heads, got {layer.size(0)}")
    tolerance = 2e-2 if layer.dtype in HALF else 1e-3
    layer = layer.detach().cpu().double()
    _require_rows(name, layer, tolerance)
    return layer


def _require_rows(name, layer, tolerance):
    """Refuse weights that no softmax gives."""
    if not layer.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if (layer < 0).any() or (layer > 1 + tolerance).any():
        low, high = layer.min().item(), layer.max().item()
        raise ValueError(f"{name} must lie between 0 and 1, got {low:.4g} to {high:.4g}")
    sums = layer.sum(-1)
    wrong = ((sums - 1).abs() > tolerance) & (layer != 0).any(-1)
    if wrong.any():
        head, row = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name} must have rows that sum to 1, or rows of zeros, got the sum "
            f"{sums[head, row].item():.4g} in head {head}, row {row}; are these scores?"
        )


# --- the figure ---------------------------------------------------------------------------------


def _data(layers, tokens):
    """All that the figure shows; weights are whole thousandths, [layer][head][query][key]."""
    weights = [(layer * 1000).round().int().tolist() for layer in layers]
    largest = max(round(layer.max().item() * 1000) for layer in layers)
    return {
        "start": {"layer": 0, "head": 0, "token": min(1, len(tokens) - 1)},
        "weights": weights,
        "names": names(tokens),
        "top": _map.scale_top(largest),
        "box": _map.geometry(tokens),
        "tokens": tokens,
        "words": WORDS,
    }


def _sentences(data):
    """The two lines that say where the start token looks."""
    layer, head, query = (data["start"][name] for name in ("layer", "head", "token"))
    row, said = data["weights"][layer][head][query], data["words"]
    fields = {"head": f"Layer {layer}, head {head}" if len(data["weights"]) > 1 else f"Head {head}"}
    fields["query"] = data["names"][query]
    if not any(row):
        return [said["nowhere"].format(**fields), said["empty"]]
    order = sorted(range(len(row)), key=lambda k: (-row[k], k))
    first, rest = order[:SAID], order[SAID:]
    fields["list"] = ", ".join(f"{data['names'][k]} {decimal(row[k], 3)}" for k in first)
    fields["own"], fields["count"] = decimal(row[query], 3), len(rest)
    fields["rest"] = decimal(sum(row[k] for k in rest), 3)
    return [said["looks"].format(**fields), said["rest" if rest else "few"].format(**fields)]


def _controls(key, data):
    heads = [(n, n) for n in range(len(data["weights"][0]))]
    layers = [(n, n) for n in range(len(data["weights"]))]
    choose = radios(key, "layer", "layer", layers, 0) if len(layers) > 1 else ""
    return choose + (radios(key, "head", "head", heads, 0) if len(heads) > 1 else "")


def _sentence(key, data):
    """The tokens as radio buttons, each on the ground of its weight; asleep without the script."""
    start = data["start"]["token"]
    chips = "".join(
        f'<label class="eb-pe-chip{" eb-pe-from" if at == start else ""}"><input type="radio"'
        f' name="{key}-token" data-name="token" value="{at}"'
        f' aria-label="{escape(name)}"{" checked" if at == start else ""} disabled>'
        f'<span class="eb-pe-ground eb-pe-l{_map.level_of(weight, data["top"])}">{escape(token)}'
        f'<small aria-hidden="true">{decimal(weight, 3)}</small></span></label>'
        for at, (token, name, weight) in enumerate(
            zip(data["tokens"], data["names"], data["weights"][0][0][start], strict=True)
        )
    )
    legend = f"<legend>{ASK}</legend>"
    return f'<fieldset class="eb-pe-radios eb-pe-sentence">{legend}{chips}</fieldset>'


def _body(key, data):
    """Sentence, words, map and the folded table, in the state the figure starts in."""
    rows, tokens, box = data["weights"][0][0], data["tokens"], data["box"]
    at = box["y"] + data["start"]["token"] * box["cell"]
    place = rect(box["x"] - 2, at, box["n"] * box["cell"] + 4, box["cell"])
    mark = f'<rect class="eb-pe-rowmark" {place} fill="none" stroke="#c2185b" stroke-width="2"/>'
    label = f"Map of the weights of one head: {box['n']} queries down, {box['n']} keys across"
    drawn = _map.weight_map(box, tokens, rows, data["top"], label, mark)
    numbers = [
        [token, *(decimal(value, 3) for value in row)]
        for token, row in zip(tokens, rows, strict=True)
    ]
    which = 'All numbers of <span class="eb-pe-which">head 0</span>'
    return (
        _sentence(key, data)
        + readout(_sentences(data))
        + f'{drawn}<p class="eb-pe-hover" aria-hidden="true"></p>'
        + table(which, ["looks ↓ at →", *tokens], numbers)
    )


STYLE = """
.eb-pe .eb-pe-sentence{gap:6px 4px;margin-top:4px}
.eb-pe .eb-pe-chip{position:relative;display:inline-block;margin:0;color:inherit;font-weight:400}
.eb-pe .eb-pe-chip input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;
  cursor:pointer}
.eb-pe .eb-pe-ground{display:block;min-width:46px;padding:2px 6px;border:2px solid
  var(--eb-pe-line);border-radius:4px;text-align:center;font-size:15px;line-height:1.3}
.eb-pe .eb-pe-ground small{display:block;font-size:11px;color:inherit;
  font-variant-numeric:tabular-nums}
.eb-pe .eb-pe-from .eb-pe-ground{border-color:var(--eb-pe-mark);box-shadow:0 0 0 1px
  var(--eb-pe-mark)}
.eb-pe .eb-pe-chip input:focus-visible+span{outline:3px solid var(--eb-pe-mark);
  outline-offset:3px}
"""

SCRIPT = """
  var peek = null;
  function shown() { return data.weights[state.layer][state.head]; }
  function nameOf(at) { return data.names[at]; }
  function token() { return peek === null ? state.token : peek; }
  function sentences(row) {
    var head = "Head " + state.head, query = token(), said = data.words;
    if (data.weights.length > 1) { head = "Layer " + state.layer + ", head " + state.head; }
    var fields = { head: head, query: data.names[query] };
    if (!row.some(Boolean)) { return [fill(said.nowhere, fields), said.empty]; }
    var order = row.map(function (_, k) { return k; });
    order.sort(function (a, b) { return row[b] - row[a] || a - b; });
    var first = order.slice(0, SAID), rest = order.slice(SAID);
    fields.list = first.map(function (k) {
      return data.names[k] + " " + decimal(row[k], 3);
    }).join(", ");
    fields.own = decimal(row[query], 3);
    fields.count = rest.length;
    fields.rest = decimal(rest.reduce(function (sum, k) { return sum + row[k]; }, 0), 3);
    return [fill(said.looks, fields), fill(rest.length ? said.rest : said.few, fields)];
  }
  function look() {
    var row = shown()[token()];
    all("chip").forEach(function (e, k) {
      e.classList.toggle("eb-pe-from", k === token());
      var ground = e.querySelector(".eb-pe-ground");
      ground.className = "eb-pe-ground eb-pe-l" + levelOf(row[k]);
      ground.querySelector("small").textContent = decimal(row[k], 3);
    });
    one("rowmark").setAttribute("y", (box.y + token() * box.cell).toFixed(1));
    say(sentences(row));
  }
  function show() {
    peek = null;
    paint(shown());
    root.querySelectorAll(".eb-pe-table tbody tr").forEach(function (line, q) {
      line.querySelectorAll("td").forEach(function (e, k) {
        e.textContent = decimal(shown()[q][k], 3);
      });
    });
    write("which", (data.weights.length > 1 ? "layer " + state.layer + ", " : "")
      + "head " + state.head);
    look();
  }
  function glance(at) {
    if (peek === at) { return; }
    peek = at;
    one("readout").setAttribute("aria-live", at === null ? "polite" : "off");
    look();
  }
  one("sentence").addEventListener("pointerover", function (event) {
    var chip = event.target.closest(".eb-pe-chip");
    if (chip && event.pointerType === "mouse") { glance(all("chip").indexOf(chip)); }
  });
  one("sentence").addEventListener("pointerleave", function () { glance(null); });
  one("map").addEventListener("click", function (event) {
    var at = cell(event);
    if (!at) { return; }
    state.token = at.q;
    all("chip")[at.q].querySelector("input").checked = true;
    show();
  });
""".replace("SAID", str(SAID))
