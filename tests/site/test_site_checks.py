"""The checks of the site tests, each on a page that is wrong and on one that is right."""

import pytest
from site_browser import (
    PHONE,
    Visit,
    axe_faults,
    chromium_or_skip,
    dark_figures,
    decide,
    external_in_css,
    external_in_html,
    external_loads,
    find_chromium,
    missing_alt,
    overflow,
    raw_maths,
    served,
    set_theme,
)

PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>{head}'
PAGE += '<meta name="viewport" content="width=device-width"></head><body><main>{body}</main>'
PAGE += "</body></html>"
WHITE = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>"
WHITE += "<rect width='9' height='9' fill='white'/></svg>"
CLEAR = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def address(folder):
    with served(folder) as found:
        yield found


@pytest.fixture
def visit(browser, folder, address):
    """Open a page with the given body; closed when the test ends."""
    opened = []

    def open_page(body, head="", **options):
        (folder / "page.html").write_text(PAGE.format(head=head, body=body), "utf-8")
        opened.append(Visit(browser, f"{address}/page.html", **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.context.close()


# --- with or without Chromium


def test_chromium_of_the_environment_goes_first():
    known = {"/opt/c": "/opt/c", "chromium": "/usr/bin/chromium"}.get
    assert find_chromium({"CHROMIUM": "/opt/c"}, known, lambda path: False) == "/opt/c"
    assert find_chromium({}, known, lambda path: False) == "/usr/bin/chromium"
    mac = find_chromium({}, lambda name: None, lambda path: "Google Chrome.app" in path)
    assert mac.endswith("Google Chrome")


def test_no_chromium_is_found_where_there_is_none():
    assert find_chromium({}, lambda name: None, lambda path: False) is None
    wrong = {"CHROMIUM": "/nowhere/chromium"}
    assert find_chromium(wrong, lambda name: None, lambda path: False) is None


@pytest.mark.parametrize(
    "chromium, environ, word",
    [
        ("/usr/bin/chromium", {}, "run"),
        ("/usr/bin/chromium", {"CI": "true"}, "run"),
        (None, {}, "skip"),
        (None, {"CI": ""}, "skip"),
        (None, {"CI": "false"}, "skip"),
        (None, {"CI": "true"}, "fail"),
    ],
)
def test_missing_chromium_skips_at_home_and_fails_in_ci(chromium, environ, word):
    decision, why = decide(chromium, environ)
    assert decision == word
    assert word == "run" or "install chromium" in why


@pytest.mark.parametrize(
    "ci, raised", [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_the_fixture_follows_the_decision(monkeypatch, ci, raised):
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(raised, match="install chromium"), chromium_or_skip():
        pass


# --- what a page loads


@pytest.mark.parametrize(
    "bad",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<script async src=//cdn.example/x.js></script>",
        '<link rel="stylesheet" href="https://cdn.example/x.css">',
        '<link href="https://cdn.example/x.png" rel="shortcut icon">',
        '<img alt="x" src="http://cdn.example/x.png">',
        "<style>@import url('https://cdn.example/x.css');</style>",
        "<style>@font-face{src:url(https://cdn.example/x.woff2)}</style>",
    ],
)
def test_external_loads_in_html_are_found(bad, tmp_path):
    assert len(external_in_html(bad)) == 1
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/bad.html").write_text(bad, "utf-8")
    assert [fault.split(":")[0] for fault in external_loads(tmp_path)] == ["sub/bad.html"]


def test_links_and_local_files_are_no_external_loads():
    good = '<a href="https://example.org">x</a><script src="../x.js"></script><img src="data:,x">'
    good += (
        '<link rel="stylesheet" href="_static/x.css"><link rel="canonical" href="https://e.org">'
    )
    assert external_in_html(good) == []


def test_external_loads_in_css_are_found_but_not_in_comments():
    assert external_in_css('@import "https://cdn.example/x.css";') == ["https://cdn.example/x.css"]
    assert external_in_css("a{background:url( '//cdn.example/x.png' )}") == ["//cdn.example/x.png"]
    assert external_in_css("/* @import url(https://cdn.example/x.css); */ a{}") == []
    assert external_in_css("a{background:url(data:image/svg+xml,https)} b{src:url(x.woff2)}") == []


def test_external_failed_and_wrong_scripts_are_recorded(visit):
    bad = '<img alt="a picture of x" src="https://cdn.example/x.png"><img alt="y" src="none.png">'
    seen = visit(bad + "<script>console.error('oh'); throw new Error('dear')</script>")
    assert seen.external == ["https://cdn.example/x.png"]
    assert any("none.png: 404" in fault for fault in seen.failed)
    assert any("oh" in fault for fault in seen.errors)
    assert any("dear" in fault for fault in seen.errors)


def test_a_quiet_page_has_no_record(visit):
    seen = visit("<h1>Title</h1>", head='<link rel="icon" href="data:,">')
    assert (seen.external, seen.failed, seen.errors) == ([], [], [])


# --- what a page shows


def test_overflow_is_found_and_scrolling_boxes_are_allowed(visit):
    wide = '<div style="width:600px">x</div>'
    assert any("608 px" in fault for fault in overflow(visit(wide, viewport=PHONE).page))
    boxed = f'<div style="overflow-x:auto">{wide}</div>'
    assert overflow(visit(boxed, viewport=PHONE).page) == []


def test_raw_maths_is_found_outside_code_only(visit):
    page = visit('<p>see $x^2$</p><span class="math">\\(y\\)</span><code>$HOME/$USER</code>').page
    faults = raw_maths(page)
    assert [fault.split(":")[0] for fault in faults] == ["raw maths", "raw maths", "not set"]
    assert raw_maths(visit("<p>costs 5 $</p><code>$a$</code>").page) == []


@pytest.mark.parametrize("alt", ['alt="../_images/ab12.png"', 'alt=""', "", 'alt="x.png"'])
def test_missing_alt_is_found(visit, alt):
    assert len(missing_alt(visit(f'<img {alt} src="data:,">').page)) == 1


def test_a_description_is_accepted(visit):
    assert missing_alt(visit('<img alt="Two rising curves" src="data:,">').page) == []


def test_filtered_or_transparent_figures_are_found(visit):
    figure = '<div class="cell_output"><img style="{}" src="{}"></div>'
    assert "filter" in dark_figures(visit(figure.format("filter:brightness(.8)", WHITE)).page)[0]
    assert "ground" in dark_figures(visit(figure.format("", CLEAR)).page)[0]
    assert dark_figures(visit(figure.format("", WHITE)).page) == []
    assert dark_figures(visit(figure.format("background:#fff", CLEAR)).page) == []


def test_axe_finds_weak_contrast_in_the_theme_asked_for(visit):
    style = "<style>html[data-theme=dark] p{color:#333;background:#222}</style>"
    page = visit("<h1>Title</h1><p>words</p>", head=style).page
    set_theme(page, "light")
    assert axe_faults(page) == []
    set_theme(page, "dark")
    assert axe_faults(page)[0].startswith("color-contrast (serious)")
