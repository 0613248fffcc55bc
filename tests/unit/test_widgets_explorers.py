"""The explorers of attention, masks and depth, and the grid of heads, as strings.

What their scripts do in a browser is tested in tests/site/test_site_explorers.py.
"""

import math
import re

import pytest
import torch
from test_widgets import Markup, data_of

from encoder_lib.widgets import (
    _map,
    _page,
    attention_explorer,
    attention_grid,
    depth_explorer,
    mask_explorer,
)
from encoder_lib.widgets.depth import _digits, _log_ticks, _signed
from encoder_lib.widgets.mask import MODES, masked_weights

WORDS = "The cat that chased the dog was tired of the long rain".split()
COUNT = len(WORDS)


def some_scores(*shape, seed=0):
    return 1.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHTS = some_scores(8, COUNT, COUNT).softmax(-1)
SCORES = some_scores(COUNT, COUNT, seed=1)
LAYERS = [some_scores(4, COUNT, COUNT, seed=n).mul(2).softmax(-1) for n in range(3)]


def numbers(depths=(2, 6, 12, 24, 48)):
    """Measured numbers in the form that chapter 08 gives, made up but never equal."""

    def lists(shift, depth):
        return {
            "gradient": [(1.1 + shift) * (0.9 + 0.01 * n) / depth**shift for n in range(depth)],
            "cosine": [math.tanh(0.05 * (n + 1) + shift) - 0.2 for n in range(depth)],
        }  # fmt: skip

    return {
        norm: {d: lists(shift, d) for d in depths} for norm, shift in (("post", 0), ("pre", 0.5))
    }


def figure(kind, key=None):
    if kind == "attention":
        return attention_explorer(WEIGHTS, WORDS, key=key).data
    if kind == "grid":
        return attention_grid(LAYERS, WORDS, key=key, start=(1, 2)).data
    if kind == "mask":
        return mask_explorer(SCORES, WORDS, key=key).data
    return depth_explorer(numbers(), key=key).data


KINDS = ("attention", "grid", "mask", "depth")


def words_of(html):
    return " ".join(" ".join(Markup(html).text).split())


def said(html):
    block = re.search(r'<div class="eb-pe-readout".*?</div>', html, re.S)[0]
    return re.findall(r"<p>(.*?)</p>", block)


# --- what holds for each ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
class TestEach:
    def test_is_a_small_and_fixed_string(self, kind):
        assert figure(kind) == figure(kind)
        assert len(figure(kind).encode()) < 60_000

    def test_keys_change_names_alone(self, kind):
        one, two = figure(kind, "left"), figure(kind, "right")
        assert one != two
        assert re.sub(r'"left(?=["-])', '"right', one) == two
        assert figure(kind, "left").count('id="left"') == 1

    def test_own_key_follows_the_content(self, kind):
        (own,) = Markup(figure(kind)).ids
        assert re.fullmatch(rf"{kind}-[0-9a-f]{{8}}", own)

    def test_markup_is_balanced_and_prefixed(self, kind):
        markup = Markup(figure(kind))
        assert markup.open == []
        classes = {c for _, n, v in markup.attributes if n == "class" for c in v.split()}
        assert {c for c in classes if not re.match(r"eb-pe(-|$)", c)} == set()
        assert ("div", "data-explorer", kind) in markup.attributes

    def test_nothing_is_loaded_from_anywhere(self, kind):
        html = figure(kind)
        assert not re.search(
            r"https?:|//\w|url\(|@import|<link|<img|<iframe|fetch\(|import\(", html
        )
        bad = [a for a in Markup(html).attributes if a[1] in ("src", "href", "style")]
        assert bad + [a for a in Markup(html).attributes if a[1].startswith("on")] == []

    def test_drawings_and_controls_are_named(self, kind):
        html = figure(kind)
        attributes = Markup(html).attributes
        labels = [v for t, n, v in attributes if (t, n) == ("svg", "aria-label")]
        assert labels and all(len(label) > 30 for label in labels)
        assert len(labels) == html.count('role="img"')
        assert html.count("<input ") == html.count('<label class="')
        assert ("div", "aria-live", "polite") in attributes
        assert {v for t, n, v in attributes if (t, n) == ("input", "type")} <= {"range", "radio"}

    @pytest.mark.parametrize(
        "key, error", [("", ValueError), ("7up", ValueError), ("a b", ValueError), (7, TypeError),
                       ('"><script>', ValueError)],
    )  # fmt: skip
    def test_bad_keys_are_refused(self, kind, key, error):
        with pytest.raises(error, match="key"):
            figure(kind, key)


def test_own_keys_differ_where_the_figures_do():
    other = attention_explorer(WEIGHTS.flip(0), WORDS).data
    assert Markup(other).ids != Markup(figure("attention")).ids


@pytest.mark.parametrize("stops", [_page.LIGHT, _page.DARK], ids=["light", "dark"])
def test_every_step_of_the_scale_can_be_read_and_they_differ(stops):
    grounds = [_page.mix(stops, n) for n in range(_page.LEVELS)]
    assert all(_page.contrast(ground, _page.ink(ground)) >= 4.5 for ground in grounds)
    shades = [_page.contrast(ground, (0, 0, 0)) for ground in grounds]
    assert shades in (sorted(shades), sorted(shades, reverse=True))
    assert len(set(grounds)) == _page.LEVELS
    assert _page.contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)


def test_levels_run_from_none_to_the_end_of_the_scale():
    assert [_map.level_of(value, 1000) for value in (0, 45, 46, 500, 1000)] == [0, 0, 1, 6, 11]
    assert _map.level_of(1003, 1000) == 11
    assert [_map.scale_top(n) for n in (0, 83, 500, 501, 1000)] == [1000, 500, 500, 1000, 1000]


@pytest.mark.parametrize("count, step", [(1, 1), (12, 1), (21, 1), (24, 2), (32, 2)])
def test_words_beside_the_map_never_overlap(count, step):
    box = _map.geometry(["a"] * count)
    assert _map.label_step(box["cell"]) == step and step * box["cell"] >= 11


# --- attention ----------------------------------------------------------------------------------


def test_attention_holds_the_weights_to_three_places():
    data = data_of(attention_explorer([WEIGHTS, WEIGHTS.flip(-1)], WORDS).data)
    held = torch.tensor(data["weights"], dtype=torch.float64) / 1000
    assert held.shape == (2, 8, COUNT, COUNT)
    wanted = torch.stack([WEIGHTS, WEIGHTS.flip(-1)]).double()
    assert (held - wanted).abs().max() <= 0.0005 + 1e-9
    assert data["names"][0:2] == ["“The”", "“cat”"]
    assert data["names"][4] == "“the” (position 4)"


def test_attention_says_where_the_first_token_looks():
    lines, row = said(figure("attention")), WEIGHTS[0, 1]
    best = row.topk(3)
    names = data_of(figure("attention"))["names"]
    for value, at in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        assert f"{names[at]} {value:.3f}" in lines[0]
    held = (row.double() * 1000).round().int()
    rest = int(held.sum() - held[best.indices].sum())
    assert (
        f"The other {COUNT - 3} share {rest / 1000:.3f}. On itself it puts {row[1]:.3f}."
        == lines[1]
    )


def test_attention_shows_all_numbers_without_scripts():
    words = words_of(figure("attention"))
    for value in WEIGHTS[0].flatten().tolist():
        assert f"{value:.3f}" in words


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_attention_takes_every_float_and_a_batch_of_one(dtype):
    attention_explorer(WEIGHTS.to(dtype)[None].requires_grad_(), tuple(WORDS))


def test_attention_takes_rows_of_zeros_and_one_token():
    html = attention_explorer(torch.zeros(2, 3, 3), ["a", "b", "c"]).data
    assert said(html)[0] == "Head 0: “b” looks nowhere: all its weights are 0."
    html = attention_explorer(torch.ones(1, 1, 1), ["alone"]).data
    assert said(html) == ["Head 0: “alone” looks at “alone” 1.000.", "On itself it puts 1.000."]
    assert 'data-name="head"' not in html


def test_tokens_are_text_and_never_markup():
    odd = ["<em>x</em>", '"', "</script><script>alert(1)</script>", "&amp;", "猫"]
    for html in (
        attention_explorer(torch.full((1, 5, 5), 0.2), odd).data,
        mask_explorer(torch.zeros(5, 5), odd).data,
    ):
        markup = Markup(html)
        assert markup.open == []
        assert html.count("<script") == 2
        assert data_of(html)["names"][2] == "“</script><script>alert(1)</script>”"
        assert "em" not in {tag for tag, _, _ in markup.attributes}


def changed(at, value):
    weights = WEIGHTS.clone()
    weights[at] = value
    return weights


@pytest.mark.parametrize(
    "weights, tokens, error, named",
    [
        (WEIGHTS.tolist(), WORDS, TypeError, r"weights\[0\] must be .* got list"),
        (WEIGHTS.numpy(), WORDS, TypeError, "weights .* got ndarray"),
        (WEIGHTS > 0, WORDS, TypeError, "weights .* got torch.bool"),
        ([], WORDS, ValueError, "weights must hold 1 to 12 layers, got 0"),
        (WEIGHTS[0], WORDS, ValueError, r"weights .* got \(12, 12\); .*unsqueeze"),
        (WEIGHTS[:, :4], WORDS, ValueError, r"\(H, L, L\) .* got \(8, 4, 12\)"),
        (WEIGHTS[None].repeat(2, 1, 1, 1), WORDS, ValueError, r"got \(2, 8, 12, 12\)"),
        (WEIGHTS[:0], WORDS, ValueError, r"got \(0, 12, 12\)"),
        ([WEIGHTS, WEIGHTS[:4]], WORDS, ValueError, "same shape in every layer"),
        (WEIGHTS.repeat(3, 1, 1), WORDS, ValueError, "at most 16 heads, got 24"),
        (torch.full((16, 32, 32), 1 / 32).repeat(1, 1, 1), ["a"] * 31, ValueError, "32, got 31"),
        ([torch.full((16, 32, 32), 1 / 32)] * 4, ["a"] * 32, ValueError, "at most 50000 numbers"),
        (torch.full((1, 33, 33), 1 / 33), ["a"] * 33, ValueError, "tokens .* 32, got 33"),
        (SCORES[None], WORDS, ValueError, "between 0 and 1"),
        (WEIGHTS / 2, WORDS, ValueError, "sum to 1, .* 0.5 in head 0, row 0"),
        (changed((3, 5), 0.5), WORDS, ValueError, "got the sum 6 in head 3, row 5"),
        (changed((3, 5, 0), float("nan")), WORDS, ValueError, "weights must be finite"),
        (WEIGHTS, WORDS[:-1], ValueError, "tokens must be as many as the rows, 12, got 11"),
        (WEIGHTS, "The cat that", TypeError, "tokens must be a list of strings, got str"),
        (WEIGHTS, [*WORDS[:-1], 7], TypeError, "tokens .* got 7 at position 11"),
        (WEIGHTS, [*WORDS[:-1], " "], ValueError, "tokens must not be empty"),
    ],
)
def test_attention_refuses_by_name(weights, tokens, error, named):
    with pytest.raises(error, match=named):
        attention_explorer(weights, tokens)


# --- grid ---------------------------------------------------------------------------------------


def test_grid_holds_every_weight_of_every_head_and_begins_where_told():
    data = data_of(figure("grid"))
    held = torch.tensor(data["weights"], dtype=torch.float64) / 1000
    assert (held - torch.stack(LAYERS).double()).abs().max() <= 0.0005 + 1e-9
    assert data["start"] == {"layer": 1, "head": 2, "token": 1, "unit": 6}
    assert said(figure("grid"))[0].startswith("Layer 1, head 2: “cat” looks at ")
    assert attention_grid(LAYERS, WORDS).data == attention_grid(LAYERS, WORDS, start=[0, 0]).data
    words = words_of(figure("grid"))
    assert all(f"{value:.3f}" in words for value in LAYERS[1][2].flatten().tolist())


def test_grid_says_the_means_over_the_inner_tokens():
    head, inner = LAYERS[1][2].double(), range(1, COUNT - 1)
    places = {"previous": -1, "next": 1, "itself": 0}
    wanted = {name: sum(head[q, q + by] for q in inner) for name, by in places.items()}
    wanted["first"] = head[1:-1, 0].sum()
    line = said(figure("grid"))[2]
    found = dict(re.findall(r"(previous|next|itself|first)(?: token)? ([\d.]+\d)", line))
    for name, total in wanted.items():
        assert float(found[name]) == pytest.approx(total.item() / (COUNT - 2), abs=0.00051)


def test_grid_draws_each_head_in_its_place():
    html = figure("grid")
    blocks = re.findall(
        r'<g transform="translate\((\d+) (\d+)\) scale\(2\.0000\)[^>]*>(.*?)</g>', html
    )
    assert [(int(x), int(y)) for x, y, _ in blocks] == [
        (16 + 26 * h, 16 + 26 * n) for n in range(3) for h in range(4)
    ]
    for at, (_, _, paths) in enumerate(blocks):
        drawn = torch.zeros(COUNT, COUNT, dtype=torch.long)
        for level, path in re.findall(r'class="eb-pe-s(\d+)"[^>]* d="([^"]+)"', paths):
            for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)", path):
                drawn[int(y), int(x) : int(x) + int(length)] = int(level)
        weights = (LAYERS[at // 4][at % 4].double() * 1000).round() / 1000
        assert torch.equal(drawn, (weights * 11 + 0.5).floor().long())


def test_grid_of_a_whole_model_stays_small():
    heads = [some_scores(12, 12, 12, seed=n).mul(2).softmax(-1) for n in range(6)]
    assert len(attention_grid(heads, WORDS).data.encode()) < 150_000


@pytest.mark.parametrize("length", [1, 2])
def test_grid_takes_one_head_and_short_sentences(length):
    html = attention_grid(torch.eye(length)[None], WORDS[:length]).data
    assert Markup(html).open == [] and html.count('data-name="unit"') == 1
    assert "itself 1.000" in said(html)[2]


@pytest.mark.parametrize(
    "start, error, named",
    [
        ((3, 0), ValueError, r"layer below 3 and a head below 4, got \(3, 0\)"),
        ((0, -1), ValueError, r"got \(0, -1\)"),
        ((0,), TypeError, r"two ints \(layer, head\), got \(0,\)"),
        ((0, 1.0), TypeError, "two ints"),
        (7, TypeError, "got 7"),
    ],
)
def test_grid_refuses_a_start_that_is_no_head(start, error, named):
    with pytest.raises(error, match=named):
        attention_grid(LAYERS, WORDS, start=start)


def test_grid_refuses_what_the_explorer_refuses():
    with pytest.raises(ValueError, match="same shape in every layer"):
        attention_grid([LAYERS[0], LAYERS[1][:2]], WORDS)
    with pytest.raises(ValueError, match="tokens must be as many"):
        attention_grid(LAYERS, WORDS[:-1])


# --- masks --------------------------------------------------------------------------------------


def by_torch(scores, real, mode):
    """The same weights by torch: True in ``keep`` = real token."""
    scores, keep = scores.double(), torch.arange(scores.size(-1)) < real
    if mode == "zero":
        return (scores * keep).softmax(-1)
    if mode == "after":
        return scores.softmax(-1) * keep
    seen = {"right": keep, "inverted": ~keep, "none": torch.ones_like(keep)}[mode]
    return scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)


@pytest.mark.parametrize("mode", [mode for mode, _, _ in MODES])
@pytest.mark.parametrize("real", [0, 1, 7, COUNT])
def test_masked_weights_are_those_of_torch(mode, real):
    ours = torch.tensor(masked_weights(SCORES.double().tolist(), real, mode), dtype=torch.float64)
    torch.testing.assert_close(ours, by_torch(SCORES, real, mode), atol=1e-12, rtol=1e-12)


def test_masked_weights_stand_large_scores():
    big = [[1e4, -1e4, 9e3]] * 3
    assert masked_weights(big, 3, "none")[0] == [1.0, 0.0, 0.0]
    assert masked_weights(big, 1, "inverted")[0][1:] == [0.0, 1.0]


def test_mask_holds_the_scores_and_says_the_right_mask():
    html = figure("mask")
    held = torch.tensor(data_of(html)["scores"], dtype=torch.float64)
    assert (held - SCORES.double()).abs().max() <= 0.000005 + 1e-9
    lines = said(html)
    assert lines[1] == "8 real, 4 padding. No weight of a real query goes to padding: 0.000."
    assert lines[2] == "Every row sums to 1.000."
    for value in by_torch(held, 8, "right").flatten().tolist():
        assert f"{value:.3f}" in words_of(html)


def test_mask_starts_without_padding_where_there_is_one_token():
    assert said(mask_explorer(torch.zeros(1, 1), ["a"]).data)[1].startswith("All 1 tokens are real")


@pytest.mark.parametrize(
    "scores, tokens, error, named",
    [
        (SCORES.tolist(), WORDS, TypeError, "scores must be .* got list"),
        (SCORES.int(), WORDS, TypeError, "scores .* got torch.int32"),
        (SCORES[None], WORDS, ValueError, r"\(L, L\), got \(1, 12, 12\); .*scores\[b, h\]"),
        (SCORES[:3], WORDS, ValueError, r"got \(3, 12\)"),
        (torch.zeros(0, 0), [], ValueError, r"got \(0, 0\)"),
        (SCORES.masked_fill(SCORES > 1, -torch.inf), WORDS, ValueError, "masked already"),
        (SCORES, WORDS[1:], ValueError, "tokens .* 12, got 11"),
        (torch.zeros(25, 25), ["a"] * 25, ValueError, "tokens .* 24, got 25"),
        (SCORES, None, TypeError, "tokens .* got NoneType"),
    ],
)
def test_mask_refuses_by_name(scores, tokens, error, named):
    with pytest.raises(error, match=named):
        mask_explorer(scores, tokens)


# --- depth --------------------------------------------------------------------------------------


def test_depth_says_the_ends_of_the_start_depth():
    measured = numbers()
    lines = said(figure("depth"))
    post, pre = (measured[norm][12] for norm in ("post", "pre"))
    assert lines[0] == (
        f"Depth 12. Gradient norm in layer 1 and layer 12: Post-LN {_digits(post['gradient'][0])} "
        f"and {_digits(post['gradient'][-1])}; Pre-LN {_digits(pre['gradient'][0])} and "
        f"{_digits(pre['gradient'][-1])}."
    )
    assert f"Post-LN {_signed(post['cosine'][0])} and {_signed(post['cosine'][-1])};" in lines[1]


def points(line):
    return [tuple(map(float, point.split())) for point in line[1:].split("L")]


def test_depth_draws_every_number_on_axes_that_stay():
    measured, data = numbers(), data_of(figure("depth"))
    assert data["depths"] == [2, 6, 12, 24, 48]
    low, high = (math.log10(data["scales"]["gradient"][at]) for at in (0, -1))
    for depth, state in zip(data["depths"], data["states"], strict=True):
        assert len(state["rows"]) == depth
        for norm in ("post", "pre"):
            drawn = points(state["lines"][f"gradient-{norm}"])
            assert len(drawn) == depth
            for layer, (x, y) in enumerate(drawn):
                value = measured[norm][depth]["gradient"][layer]
                assert x == pytest.approx(46 + 268 * layer / 47, abs=0.06)
                part = (high - math.log10(value)) / (high - low)
                assert y == pytest.approx(38 + 150 * part, abs=0.06)
                assert 38 <= y <= 188


@pytest.mark.parametrize("depths", [(1,), (1, 2), (3, 5, 9), (100,)])
def test_depth_takes_other_depths_tensors_and_any_order(depths):
    measured = numbers(depths[::-1])
    for found in measured.values():
        for lists in found.values():
            lists["cosine"] = torch.tensor(lists["cosine"])
            lists["gradient"] = tuple(lists["gradient"])
    html = depth_explorer(measured).data
    assert data_of(html)["depths"] == list(depths)
    assert not re.search(r"\bnan\b|\binf\b", html)


@pytest.mark.parametrize(
    "value, words",
    [(0.01234, "0.0123"), (4.5, "4.50"), (1.0, "1.00"), (0.9999, "1.00"), (123.4, "123"),
     (999.6, "1.00e3"), (1.2e-5, "1.20e−5"), (0.001, "0.00100"), (0.09996, "0.100")],
)  # fmt: skip
def test_digits_keeps_three(value, words):
    assert _digits(value) == words


@pytest.mark.parametrize("low, high", [(0.3, 1.7), (1, 1), (0.2, 0.2), (1e-6, 1e3), (3e-9, 4e-9)])
def test_log_ticks_enclose_the_values(low, high):
    ticks = _log_ticks(low, high)
    assert ticks == sorted(set(ticks)) and 2 <= len(ticks)
    assert ticks[0] <= low and high <= ticks[-1]


def broken(change):
    measured = numbers((2, 6))
    change(measured)
    return measured


def put(norm, depth, kind, value):
    return broken(lambda m: m[norm][depth].__setitem__(kind, value))


@pytest.mark.parametrize(
    "measured, error, named",
    [
        ([], TypeError, "measured must be a dict, got list"),
        (broken(lambda m: m.pop("pre")), ValueError, "'post' and 'pre', got \\['post'\\]"),
        (broken(lambda m: m.update(mid={})), ValueError, "got \\['post', 'pre', 'mid'\\]"),
        (broken(lambda m: m.update(pre=[1])), TypeError, "measured\\['pre'\\] must be a dict"),
        (broken(lambda m: m["pre"].pop(6)), ValueError, "post \\[2, 6\\] and pre \\[2\\]"),
        ({"post": {}, "pre": {}}, ValueError, "1 to 12 depths, got 0"),
        (broken(lambda m: m["pre"].update({"6": {}})), TypeError, "got '6'"),
        (broken(lambda m: m["pre"].update({0: {}})), ValueError, "1 to 100, got 0"),
        (broken(lambda m: m["pre"].update({6: [1]})), TypeError, "\\['pre'\\]\\[6\\] must be a"),
        (broken(lambda m: m["pre"][6].pop("cosine")), ValueError, "got \\['gradient'\\]"),
        (put("pre", 6, "gradient", [1.0] * 5), ValueError, "\\['gradient'\\] .*, 6, got 5"),
        (put("post", 2, "cosine", 0.5), TypeError, "\\['post'\\]\\[2\\]\\['cosine'\\] .* float"),
        (put("post", 2, "cosine", [0.5, "a"]), TypeError, "must hold numbers, got 'a'"),
        (put("post", 2, "cosine", [0.5, 1.5]), ValueError, "between -1 and 1, got 1.5"),
        (put("post", 2, "cosine", [0.5, float("nan")]), ValueError, "finite numbers, got nan"),
        (put("post", 2, "gradient", [0.0, 1.0]), ValueError, "above 0 for a log scale, got 0"),
    ],
)
def test_depth_refuses_by_name(measured, error, named):
    with pytest.raises(error, match=named):
        depth_explorer(measured)
