"""The explorers and the grid of heads in Chromium: what they show equals Python's numbers.

They stand alone here, on a page without the book's style. That every figure of the built book
moves is tested in test_site_pages.py, by the check that is shown to find faults here.
"""

import re

import nbformat
import pytest
import torch
from site_browser import (
    DESKTOP,
    PHONE,
    Visit,
    axe_faults,
    overflow,
    served,
    set_theme,
)
from site_build import build_or_fail, tiny_book
from site_explorers import explorer_calls, still_controls

from encoder_lib.widgets import (
    attention_explorer,
    attention_grid,
    depth_explorer,
    mask_explorer,
    positional_encoding_explorer,
)
from encoder_lib.widgets._map import geometry
from encoder_lib.widgets.depth import _digits, _signed

WORDS = "The cat that chased the dog was extraordinarily tired of the rain".split()
COUNT = len(WORDS)
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title>'
HEAD += '<meta name="viewport" content="width=device-width">'


def some_scores(*shape, seed=0):
    return 1.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


WEIGHTS = [some_scores(8, COUNT, COUNT, seed=n).softmax(-1) for n in range(2)]
SCORES = some_scores(COUNT, COUNT, seed=7)
MEASURED = {
    norm: {
        depth: {
            "gradient": [(1 + 0.02 * n) * depth**power for n in range(depth)],
            "cosine": [0.1 - power / 2 + n / 90 for n in range(depth)],
        }
        for depth in (2, 6, 12, 24, 48)
    }
    for norm, power in (("post", 0), ("pre", -0.5))
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Pages of their own for each figure, and one that holds them all, some twice."""
    folder = tmp_path_factory.mktemp("alone")
    figures = {
        "attention": attention_explorer(WEIGHTS, WORDS, key="att"),
        "grid": attention_grid(WEIGHTS, WORDS, key="grd", start=(1, 3)),
        "mask": mask_explorer(SCORES, WORDS, key="msk"),
        "depth": depth_explorer(MEASURED, key="dep"),
    }
    pages = {name: figure.data for name, figure in figures.items()}
    others = attention_explorer(WEIGHTS[1], WORDS), mask_explorer(-SCORES, WORDS)
    others += (positional_encoding_explorer(16, 24),)
    pages["all"] = "".join([*pages.values(), *(figure.data for figure in others)])
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"{HEAD}{body}", "utf-8")
    with served(folder) as found:
        yield found


@pytest.fixture
def visit(browser, address, request):
    """The page that the test names, checked for errors when the test is done."""
    with Visit(browser, f"{address}/{request.param}.html") as found:
        yield found
        assert (found.errors, found.failed, found.external) == ([], [], [])


def on(name):
    return pytest.mark.parametrize("visit", [name], indirect=True)


def said(page, root="body"):
    return page.locator(f"{root} .eb-pe-readout p").all_inner_texts()


def number(value, places=3):
    return f"{value:.{places}f}".replace("-", "−")


def table(page):
    """The folded table as strings, without its headings."""
    lines = page.locator(".eb-pe-table tbody tr")
    return [line.locator("td").all_text_contents() for line in lines.all()]


# --- attention ----------------------------------------------------------------------------------


def names():
    return [f"“{w}” (position {n})" if WORDS.count(w) > 1 else f"“{w}”"
            for n, w in enumerate(WORDS)]  # fmt: skip


def looks(layer, head, query):
    """The first line of the read-out, from the weights."""
    best = WEIGHTS[layer][head, query].topk(3)
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    where = ", ".join(f"{names()[at]} {number(value)}" for at, value in found)
    return f"Layer {layer}, head {head}: {names()[query]} looks at {where}."


def chips(page):
    return [float(words) for words in page.locator(".eb-pe-chip small").all_text_contents()]


@on("attention")
def test_attention_obeys_the_keyboard(visit):
    page = visit.page
    assert said(page)[0] == looks(0, 0, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert said(page)[0] == looks(1, 0, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert said(page)[0] == looks(1, 2, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert said(page)[0] == looks(1, 2, 2)
    assert chips(page) == pytest.approx(WEIGHTS[1][2, 2].tolist(), abs=0.00051)
    assert page.locator(".eb-pe-chip input:checked").get_attribute("value") == "2"
    wanted = [[number(value) for value in row] for row in WEIGHTS[1][2].tolist()]
    assert table(page) == wanted


@on("attention")
def test_attention_paints_each_cell_by_its_weight(visit):
    visit.page.locator("#att input[data-name=head]").last.check()
    paths = visit.page.eval_on_selector_all(
        ".eb-pe-cells path", "paths => paths.map(e => e.getAttribute('d'))"
    )
    levels = torch.full((COUNT, COUNT), -1)
    for level, path in enumerate(paths):
        for run in filter(None, path.split("M")):
            place, length = run.split("h")
            x, y = map(int, place.split())
            assert (levels[y, x : x + int(length)] == -1).all()
            levels[y, x : x + int(length)] = level
    wanted = ((WEIGHTS[0][7] * 1000).round() * 11 / 1000 + 0.5).floor().int()
    assert torch.equal(levels.int(), wanted.clamp(max=11))


@on("attention")
def test_attention_obeys_the_pointer(visit):
    page = visit.page
    page.locator(".eb-pe-chip").nth(5).hover()
    assert said(page)[0] == looks(0, 0, 5)
    page.locator(".eb-pe-asleep, h1, body").first.hover(position={"x": 2, "y": 2}, force=True)
    assert said(page)[0] == looks(0, 0, 1)  # looking is not choosing
    page.locator(".eb-pe-chip").nth(7).click()
    page.mouse.move(2, 2)
    assert said(page)[0] == looks(0, 0, 7)
    box, place = geometry(WORDS), page.locator(".eb-pe-map").bounding_box()
    unit = place["width"] / float(page.locator(".eb-pe-map").get_attribute("width"))
    x = place["x"] + unit * (box["x"] + 3.5 * box["cell"])  # key 3
    y = place["y"] + unit * (box["y"] + 9.5 * box["cell"])  # query 9
    page.mouse.move(x, y)
    value = number(WEIGHTS[0][0, 9, 3].item())
    assert page.locator(".eb-pe-hover").inner_text() == f"{names()[9]} → {names()[3]}: {value}"
    page.mouse.click(x, y)
    assert said(page)[0] == looks(0, 0, 9)
    assert page.locator(".eb-pe-chip input:checked").get_attribute("value") == "9"


# --- grid ---------------------------------------------------------------------------------------


@on("grid")
def test_grid_obeys_the_keyboard(visit):
    page = visit.page
    assert said(page)[0] == looks(1, 3, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    assert said(page)[0] == looks(0, 3, 1)
    page.keyboard.press("ArrowUp")  # there is no layer above
    page.keyboard.press("ArrowRight")
    assert said(page)[0] == looks(0, 4, 1)
    page.keyboard.press("ArrowDown")
    assert said(page)[0] == looks(1, 4, 1)
    assert page.locator("#grd [data-name=unit]:checked").get_attribute("value") == "12"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert said(page)[0] == looks(1, 4, 2)
    assert chips(page) == pytest.approx(WEIGHTS[1][4, 2].tolist(), abs=0.00051)
    assert table(page) == [[number(value) for value in row] for row in WEIGHTS[1][4].tolist()]
    assert page.locator("#grd summary").inner_text() == "All numbers of layer 1, head 4"
    previous = WEIGHTS[1][4].diagonal(-1)[:-1].mean().item()
    shown = float(re.search(r"previous token ([\d.]+),", said(page)[2])[1])
    assert shown == pytest.approx(previous, abs=0.00051)


@on("grid")
def test_grid_obeys_the_pointer_on_the_map_that_is_pointed_at(visit):
    page, drawing = visit.page, visit.page.locator("#grd .eb-pe-units-map")
    place = drawing.bounding_box()
    unit = place["width"] / float(drawing.get_attribute("width"))
    for layer, head in ((0, 0), (1, 7), (0, 5)):
        x = place["x"] + unit * (16 + 26 * head + 12)
        y = place["y"] + unit * (16 + 26 * layer + 12)
        page.mouse.click(x, y)
        assert said(page)[0] == looks(layer, head, 1)
        mark = page.locator("#grd .eb-pe-unitmark")
        corner = float(mark.get_attribute("x")), float(mark.get_attribute("y"))
        assert corner == (15 + 26 * head, 15 + 26 * layer)
    page.locator("#grd .eb-pe-chip").nth(5).hover()
    assert said(page)[0] == looks(0, 5, 5)
    page.mouse.move(2, 2)
    assert said(page)[0] == looks(0, 5, 1)  # looking is not choosing


# --- masks --------------------------------------------------------------------------------------


def by_torch(real, mode):
    keep = torch.arange(COUNT) < real  # True = real token
    if mode == "zero":
        return (SCORES * keep).softmax(-1)
    if mode == "after":
        return SCORES.softmax(-1) * keep
    seen = {"right": keep, "inverted": ~keep, "none": torch.ones_like(keep)}[mode]
    return SCORES.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)


MODES = ("right", "inverted", "none", "zero", "after")


@on("mask")
@pytest.mark.parametrize("mode", MODES)
def test_mask_computes_what_torch_computes(visit, mode):
    page = visit.page
    page.locator(f"#msk input[value={mode}]").check()
    slider = page.locator("#msk input[type=range]")
    for real in (0, 1, 5, COUNT):
        slider.fill(str(real))
        weights = by_torch(real, mode)
        extra = torch.stack([weights.sum(-1), weights[:, real:].sum(-1)], -1)
        shown = torch.tensor([list(map(float, row)) for row in table(page)], dtype=torch.float64)
        wanted = torch.cat([weights, extra], -1)
        assert (shown - wanted).abs().max() <= 0.0005 + 1e-5  # scores are held to 5 places
        sums = page.locator(".eb-pe-sum").all_text_contents()
        assert list(map(float, sums)) == shown[:, -2].tolist()


@on("mask")
def test_mask_obeys_the_keyboard_and_says_where_the_weight_goes(visit):
    page = visit.page
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert said(page)[1] == "7 real, 5 padding. No weight of a real query goes to padding: 0.000."
    assert page.locator("#msk .eb-pe-value-real").inner_text() == "7"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert said(page)[0].startswith("Inverted")
    assert "1.000 goes to padding on average, at most 1.000" in said(page)[1]
    page.keyboard.press("ArrowRight")
    shares = by_torch(7, "none")[:7, 7:].sum(-1)
    mean, most = number(shares.mean().item()), number(shares.max().item())
    name = names()[shares.argmax()]
    wanted = f"{mean} goes to padding on average, at most {most} ({name})."
    assert said(page)[1].endswith(wanted)
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    sums = by_torch(7, "after").sum(-1)
    low, high = number(sums.min().item()), number(sums.max().item())
    assert said(page)[2] == f"Row sums go from {low} to {high}."


@on("mask")
def test_mask_names_padding_and_says_both_ends(visit):
    page, slider = visit.page, visit.page.locator("#msk input[type=range]")
    slider.press("Home")
    assert said(page)[1] == "No token is real: all 12 are padding, and no row counts."
    assert said(page)[2].startswith("Every key is hidden, and every row is 0;")
    assert set(page.locator(".eb-pe-coltick").all_text_contents()) == {"[pad]"}
    slider.press("End")
    assert said(page)[1] == "All 12 tokens are real: there is no padding to look at."
    assert "[pad]" not in page.locator(".eb-pe-coltick").all_text_contents()
    page.locator("#msk input[value=inverted]").check()
    assert said(page)[2].startswith("Every key is hidden")


# --- depth --------------------------------------------------------------------------------------


@on("depth")
def test_depth_shows_the_numbers_of_each_depth(visit):
    page = visit.page
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    axes = page.locator("#dep svg text").all_text_contents()
    for depth in MEASURED["post"]:
        ends = {norm: MEASURED[norm][depth] for norm in ("post", "pre")}
        for line, kind, write in ((0, "gradient", _digits), (1, "cosine", _signed)):
            for norm, name in (("post", "Post-LN"), ("pre", "Pre-LN")):
                first, last = (write(ends[norm][kind][at]) for at in (0, -1))
                assert f"{name} {first} and {last}" in said(page)[line]
            assert f"layer 1 and layer {depth}" in said(page)[line]
        assert len(table(page)) == depth
        assert table(page)[-1][1] == _digits(ends["pre"]["gradient"][-1])
        line = page.locator("#dep .eb-pe-line.eb-pe-cosine-pre").get_attribute("d")
        assert line.count("L") == depth - 1
        assert page.locator("#dep svg text").all_text_contents() == axes
        assert page.locator("#dep input").get_attribute("aria-valuetext") == f"{depth} layers"
        page.keyboard.press("ArrowRight")


# --- all of them --------------------------------------------------------------------------------


@on("all")
def test_every_control_moves_its_figure_and_no_other(visit):
    page = visit.page
    roots = page.locator(".eb-pe").count()
    assert roots == 7 == len(set(page.eval_on_selector_all(".eb-pe", "all => all.map(e => e.id)")))
    before = said(page)
    page.locator("#att input[data-name=head]").last.check()
    changed = [a != b for a, b in zip(before, said(page), strict=True)]
    assert any(changed[:2]) and not any(changed[2:])
    assert still_controls(page) == []


@pytest.mark.parametrize("name", ["attention", "grid", "mask", "depth"])
def test_figure_says_the_same_asleep_and_awake(browser, address, name):
    with Visit(browser, f"{address}/{name}.html") as awake:
        heard, numbers = said(awake.page), table(awake.page)
        drawn = awake.page.locator("svg").first.text_content()
        assert awake.page.locator(".eb-pe-controls").is_visible()
        assert not awake.page.locator(".eb-pe-asleep").is_visible()
    with Visit(
        browser, f"{address}/{name}.html", java_script_enabled=False, settle=False
    ) as asleep:
        assert said(asleep.page) == heard
        assert table(asleep.page) == numbers
        assert asleep.page.locator("svg").first.text_content() == drawn
        assert not asleep.page.locator(".eb-pe-controls").is_visible()
        assert asleep.page.locator(".eb-pe-asleep").is_visible()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_fit_and_are_accessible(browser, address, viewport, theme):
    with Visit(browser, f"{address}/all.html", viewport=viewport) as visit:
        set_theme(visit.page, theme)
        assert overflow(visit.page) == []
        for summary in visit.page.locator("summary").all():
            summary.click()
        assert overflow(visit.page) == []
        assert axe_faults(visit.page) == []


# --- in the book --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """The address of a page of a built book, with its style, that holds all four."""
    figures = (
        attention_explorer(WEIGHTS, WORDS),
        attention_grid(WEIGHTS, WORDS),
        mask_explorer(SCORES, WORDS),
        depth_explorer(MEASURED),
    )
    cells = [nbformat.v4.new_markdown_cell("# Explorers")]
    for count, figure in enumerate(figures, 1):
        output = nbformat.v4.new_output(
            "execute_result", data={"text/html": figure.data, "text/plain": "HTML"},
            execution_count=count,
        )  # fmt: skip
        cell = nbformat.v4.new_code_cell(f"figure_{count}", execution_count=count)
        cell.outputs = [output]
        cells.append(cell)
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "P", "language": "python"}
    pages = {"book/a.md": "# A\n", "notebooks/e.ipynb": nbformat.writes(book)}
    folder = tmp_path_factory.mktemp("book")
    site = build_or_fail(tiny_book(folder / "book", pages), folder / "out")
    with served(site) as found:
        yield f"{found}/notebooks/e.html"


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_move_and_fit_in_the_book(browser, chapter, viewport, theme):
    with Visit(browser, chapter, viewport=viewport) as visit:
        set_theme(visit.page, theme)
        visit.page.wait_for_timeout(400)
        assert (visit.errors, visit.failed, visit.external) == ([], [], [])
        assert still_controls(visit.page) == []
        for summary in visit.page.locator(".eb-pe summary").all():
            summary.click()
        assert overflow(visit.page) == []
        assert axe_faults(visit.page) == []


# --- the check finds faults ---------------------------------------------------------------------


def show(folder, body):
    (folder / "page.html").write_text(f"{HEAD}{body}", "utf-8")
    return (folder / "page.html").as_uri()


def test_still_controls_finds_what_does_not_move(browser, tmp_path):
    good = mask_explorer(SCORES, WORDS, key="msk").data
    wrong = {
        "say([": "void ([",  # the words stay
        "  show();\n})();": "})(); throw 0;",  # moves later, but with an error at the start
        'root.addEventListener("input"': 'root.addEventListener("never"',
        "<script>\n(function": "<script>\nfalse && (function",
    }
    for old, new in wrong.items():
        assert old in good
        with Visit(browser, show(tmp_path, good.replace(old, new))) as visit:
            found = still_controls(visit.page) + visit.errors
            assert found, f"{old} -> {new}"
    with Visit(browser, show(tmp_path, good)) as visit:
        assert still_controls(visit.page) == []


def test_explorer_calls_are_counted(tmp_path):
    cells = ["from x import mask_explorer", "mask_explorer(s, t)", "y = 1\nwidgets.a_explorer(1)"]
    cells.append("from w import attention_grid\nattention_grid(w, t)")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(book, tmp_path / "n.ipynb")
    assert explorer_calls(tmp_path / "n.ipynb") == ["mask_explorer", "a_explorer", "attention_grid"]
