"""The positional-encoding explorer as a string: its data, its fallback, its safety.

What the script does in a browser is tested in tests/site.
"""

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch

from encoder_lib import widgets
from encoder_lib.embedding import sinusoidal_table
from encoder_lib.widgets import MAX_OFFSET, positional_encoding_explorer


class Markup(HTMLParser):
    """Collects what the tests ask about: ids, addresses, attributes and the visible text."""

    VOID = {"input"}

    def __init__(self, html):
        super().__init__()
        self.ids, self.attributes, self.text, self.open = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


def data_of(html):
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)
    return json.loads(found[1])


def explorer(*args, **kwargs):
    return positional_encoding_explorer(*args, **kwargs).data


@pytest.mark.parametrize("d_model, length", [(32, 48), (16, 24), (2, 2), (64, 64)])
def test_data_equal_the_table(d_model, length):
    data = data_of(explorer(d_model, length))
    stored = torch.tensor(data["table"], dtype=torch.float64) / 1000
    expected = sinusoidal_table(length + MAX_OFFSET, d_model).double()
    assert stored.shape == expected.shape
    assert (stored - expected).abs().max() <= 0.0005 + 1e-12
    assert (data["length"], data["d"]) == (length, d_model)


def test_dot_products_depend_on_distance_only_and_are_the_stored_ones():
    data = data_of(explorer(32, 48))
    table = sinusoidal_table(48, 32).double()
    gram = table @ table.T
    for p in range(48):
        for q in range(48):
            assert abs(gram[p, q].item() - data["dot"][abs(p - q)] / 100) <= 0.005 + 1e-9


def test_turns_and_wavelengths_are_those_of_the_paper():
    data = data_of(explorer(32, 48))
    for i in range(16):
        omega = 10000 ** (-2 * i / 32)
        assert abs(data["turn"][i][5] / 10 - math.degrees(5 * omega)) <= 0.05 + 1e-9
        assert math.isclose(data["omega"][i], omega, rel_tol=1e-8)
    assert data["wave"][0] == "6.3"
    assert data["wave"][2] == "19.9"
    assert data["wave"][15] == "35,333"


def test_same_call_same_string_and_keys_change_only_the_id():
    assert explorer() == explorer()
    one, two = explorer(key="left"), explorer(key="right")
    assert one != two
    assert one.replace('"left"', '"right"') == two


def test_markup_is_balanced_and_holds_one_id():
    markup = Markup(explorer(key="pe-7"))
    assert markup.open == []
    assert markup.ids == ["pe-7"]


def test_nothing_is_loaded_from_anywhere():
    html = explorer()
    assert not re.search(r"https?:|//\w|url\(|@import|<link|<img|<iframe|fetch\(|import\(", html)
    assert not [a for a in Markup(html).attributes if a[1] in ("src", "href", "style")]
    assert [a for a in Markup(html).attributes if a[1].startswith("on")] == []


def test_fallback_says_the_numbers_without_scripts():
    text = " ".join("".join(Markup(explorer()).text).split())
    table = sinusoidal_table(16, 32).double()
    assert f"sine {table[10, 4]:.3f}".replace("-", "−") in text
    assert f"cosine {table[15, 5]:.3f}".replace("-", "−") in text
    assert f"PE(10) · PE(15) = {table[10] @ table[15]:.2f}" in text
    assert "a full turn every 19.9 positions" in text
    assert "turns by 90.6°" in text
    for i in range(16):  # row p in full, in the folded table
        assert f"{table[10, 2 * i]:.3f}".replace("-", "−").replace("−0.000", "0.000") in text


def test_start_is_chosen_by_the_caller():
    html = explorer(position=3, pair=0, offset=2)
    assert data_of(html)["start"] == {"p": 3, "i": 0, "k": 2}
    table = sinusoidal_table(6, 32).double()
    assert f"PE(3) · PE(5) = {table[3] @ table[5]:.2f}" in html


def test_controls_are_real_and_named():
    markup = Markup(explorer())
    names = [value for tag, name, value in markup.attributes if name == "data-name"]
    assert names == ["p", "i", "k"]
    assert [v for t, n, v in markup.attributes if (t, n) == ("input", "type")] == ["range"] * 3
    pressed = [v for t, n, v in markup.attributes if (t, n) == ("button", "aria-pressed")]
    assert pressed == ["false", "true", "false"]
    labels = [v for t, n, v in markup.attributes if (t, n) == ("svg", "aria-label")]
    assert len(labels) == 4 and all(len(label) > 30 for label in labels)
    assert ("div", "aria-live", "polite") in markup.attributes


def test_class_names_are_prefixed():
    classes = [v for _, n, v in Markup(explorer()).attributes if n == "class"]
    names = {name for value in classes for name in value.split()}
    assert names and all(name == "eb-pe" or name.startswith("eb-pe-") for name in names)


def test_size_stays_small():
    assert len(explorer().encode()) < 60_000
    assert len(explorer(64, 64).encode()) < 100_000


@pytest.mark.parametrize(
    "value, places, words",
    [(-594, 3, "−0.594"), (0, 3, "0.000"), (1600, 2, "16.00"), (-1000, 3, "−1.000")],
)
def test_decimal_keeps_sign_and_zeros(value, places, words):
    assert widgets._decimal(value, places) == words


@pytest.mark.parametrize(
    "kwargs, error, named",
    [
        ({"d_model": 31}, ValueError, "d_model"),
        ({"d_model": 66}, ValueError, "d_model"),
        ({"d_model": 0}, ValueError, "d_model"),
        ({"d_model": 32.0}, TypeError, "d_model"),
        ({"length": 1}, ValueError, "length"),
        ({"length": 65}, ValueError, "length"),
        ({"length": True}, TypeError, "length"),
        ({"position": 48}, ValueError, "position"),
        ({"position": -1}, ValueError, "position"),
        ({"pair": 16}, ValueError, "pair"),
        ({"offset": MAX_OFFSET + 1}, ValueError, "offset"),
        ({"offset": 1.5}, TypeError, "offset"),
        ({"key": ""}, ValueError, "key"),
        ({"key": "7up"}, ValueError, "key"),
        ({"key": "a b"}, ValueError, "key"),
        ({"key": "a\n"}, ValueError, "key"),
        ({"key": '"><script>alert(1)</script>'}, ValueError, "key"),
        ({"key": 7}, TypeError, "key"),
    ],
)
def test_bad_arguments_are_refused_by_name(kwargs, error, named):
    with pytest.raises(error, match=named):
        explorer(**kwargs)


def test_import_needs_no_plotting():
    code = (
        "import sys, encoder_lib.widgets\n"
        "assert not {'matplotlib', 'ipywidgets'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
