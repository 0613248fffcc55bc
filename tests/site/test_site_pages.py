"""The built site in Chromium, without network: every page, at two widths, in light and dark.

The book is built once, with warnings as errors. No request may leave the machine: the browser's
context aborts those that would and the tests see them.
"""

import json
import re
import shutil
import sys

import pytest
import yaml
from site_browser import (
    DESKTOP,
    PHONE,
    Visit,
    axe_faults,
    dark_figures,
    external_loads,
    missing_alt,
    overflow,
    raw_maths,
    served,
    set_theme,
)
from site_build import build_or_fail, tiny_book
from site_explorers import ROOTS, explorer_calls, still_controls
from site_quizzes import QUIZZES, quiz_calls, quiz_faults, rereading_faults

import project
from encoder_lib.embedding import sinusoidal_table
from encoder_lib.widgets import positional_encoding_explorer


def documents(toc):
    """Every document of a table of contents in jb-book form."""
    parts = toc.get("parts", [toc])
    return [toc["root"], *(chapter["file"] for part in parts for chapter in part["chapters"])]


TOC = documents(yaml.safe_load((project.ROOT / "_toc.yml").read_text("utf-8")))
PAGES = [f"{document}.html" for document in TOC] + ["search.html", "genindex.html"]
NOTEBOOKS = [document for document in TOC if document.startswith("notebooks/")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_or_fail(project.ROOT, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site):
    with served(site) as found:
        yield found


# What a narrow screen changes: what scrolls, what is hidden, how large a target is.
NARROW = ["scrollable-region-focusable", "aria-hidden-focus", "target-size", "color-contrast"]


def look(browser, url):
    """All findings of one page: as loaded, in both themes, and at phone width."""
    with Visit(browser, url) as visit:
        page = visit.page
        findings = {"raw maths": raw_maths(page), "alt": missing_alt(page)}
        findings["maths"] = page.locator("mjx-container").count()
        # Taken before axe runs: axe fetches the style sheets again, some from wrong addresses.
        for record in ("errors", "failed", "external"):
            findings[record] = list(getattr(visit, record))
        set_theme(page, "light")
        findings["axe light"] = axe_faults(page)
        set_theme(page, "dark")
        findings["axe dark"] = axe_faults(page, ["color-contrast", "link-in-text-block"])
        findings["dark figures"] = dark_figures(page)
        page.set_viewport_size(PHONE)
        page.wait_for_timeout(400)  # the theme looks again at what scrolls 300 ms after a resize
        findings["overflow"] = overflow(page)
        findings["axe phone"] = axe_faults(page, NARROW)
    return findings


@pytest.fixture(scope="module")
def findings(browser, address):
    """What was found on a page, looked at once."""
    seen = {}

    def of(page):
        if page not in seen:
            seen[page] = look(browser, f"{address}/{page}")
        return seen[page]

    return of


FAULTS = ("errors", "failed", "external", "raw maths", "alt", "overflow", "dark figures")
FAULTS += ("axe light", "axe dark", "axe phone")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_page_has(findings, page, fault):
    assert findings(page)[fault] == []


def test_maths_is_set_where_there_is_maths(findings, site):
    with_maths = [page for page in PAGES if 'class="math ' in (site / page).read_text("utf-8")]
    assert len(with_maths) >= 3
    for page in with_maths:
        assert findings(page)["maths"] > 0, page


@pytest.mark.parametrize("page", PAGES)
def test_page_opens_from_a_file(browser, site, page):
    with Visit(browser, (site / page).as_uri()) as visit:
        assert (visit.errors, visit.failed, visit.external) == ([], [], [])
        assert raw_maths(visit.page) == []


def test_front_page_leads_to_the_preface(browser, address):
    with Visit(browser, f"{address}/index.html", settle=False) as visit:
        visit.page.wait_for_url("**/book/preface.html")
        assert (visit.failed, visit.external) == ([], [])


def test_search_finds_a_page_without_network(browser, address):
    with Visit(browser, f"{address}/search.html?q=encoder") as visit:
        visit.page.wait_for_selector("#search-results li a")
        assert visit.external == []


def test_built_files_load_nothing_from_other_hosts(site):
    assert external_loads(site) == []
    assert len(list(site.rglob("*.html"))) >= len(PAGES)
    assert any(site.rglob("*.css"))


def test_licences_are_stated_on_every_page(site):
    for page in PAGES:
        text = (site / page).read_text("utf-8")
        assert "Code: MIT licence. Prose and figures: CC BY 4.0." in text, page


def test_code_is_reachable_by_keyboard_where_it_scrolls(browser, address):
    with Visit(browser, f"{address}/{NOTEBOOKS[0]}.html", viewport=PHONE) as visit:
        scrolling = visit.page.evaluate(
            """() => Array.from(document.querySelectorAll(".bd-article pre"))
                 .filter(e => e.scrollWidth > e.clientWidth).map(e => e.tabIndex)"""
        )
        assert all(index == 0 for index in scrolling)


FORMULA_STARTS = """() => Array.from(document.querySelectorAll("div.math")).map(box => {
  const glyphs = Array.from(box.querySelectorAll("mjx-c"), c => c.getBoundingClientRect().left);
  return Math.min(...glyphs) - box.getBoundingClientRect().left; })"""


def test_a_long_formula_begins_where_a_phone_can_see_it(browser, address):
    with Visit(browser, f"{address}/{NOTEBOOKS[2]}.html", viewport=PHONE) as visit:
        visit.page.wait_for_selector("div.math mjx-c")
        assert min(visit.page.evaluate(FORMULA_STARTS)) >= 0
        visit.page.add_style_tag(content=".bd-article div.math { flex-direction: row-reverse; }")
        assert min(visit.page.evaluate(FORMULA_STARTS)) < 0  # what the theme does by itself


# --- the explorer ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explorers(tmp_path_factory):
    """The address of a page that holds two explorers and nothing of the book's style."""
    folder = tmp_path_factory.mktemp("explorers")
    one = positional_encoding_explorer(32, 48, key="one", position=10, pair=2, offset=5).data
    two = positional_encoding_explorer(16, 24, key="two", position=3, pair=0, offset=1).data
    body = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Two</title>{one}{two}'
    (folder / "index.html").write_text(body, "utf-8")
    with served(folder) as found:
        yield f"{found}/index.html"


def words(page, key="one"):
    return " ".join(page.locator(f"#{key} .eb-pe-readout").inner_text().split())


def number(value, places=3):
    return f"{value:.{places}f}".replace("-", "−")


def test_explorer_says_the_same_asleep_and_awake(browser, explorers):
    with Visit(browser, explorers, java_script_enabled=True) as awake:
        now = awake.page.locator("#one").inner_text()
        controls = awake.page.locator("#one .eb-pe-controls")
        assert controls.is_visible()
        heard = words(awake.page)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(explorers)
    asleep = " ".join(page.locator("#one .eb-pe-readout").inner_text().split())
    assert asleep == heard
    assert not page.locator("#one .eb-pe-controls").is_visible()
    assert page.locator("#one .eb-pe-asleep").is_visible()
    assert "The figure moves where scripts may run" not in now
    context.close()


def test_explorer_obeys_the_keyboard(browser, explorers):
    table = sinusoidal_table(64, 32).double()
    with Visit(browser, explorers) as visit:
        page = visit.page
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert f"At position 11: sine {number(table[11, 4])}" in words(page)
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert "Pair 3 is dimensions 6 and 7." in words(page)
        assert f"At position 11: sine {number(table[11, 6])}" in words(page)
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowLeft")
        assert f"PE(11) · PE(15) = {number(table[11] @ table[15], 2)}" in words(page)
        page.keyboard.press("Home")
        assert "the hand turns by 0.0°" in words(page)
        assert visit.errors == []


def test_explorer_reaches_both_ends_of_every_slider(browser, explorers):
    with Visit(browser, explorers) as visit:
        for name in "pik":
            slider = visit.page.locator(f"#one input[data-name={name}]")
            for end in ("Home", "End"):
                slider.press(end)
        table = sinusoidal_table(64, 32).double()
        assert f"At position 59: sine {number(table[59, 30])}" in words(visit.page)
        assert "a full turn every 35,333 positions" in words(visit.page)
        assert "NaN" not in visit.page.content() and "undefined" not in words(visit.page)
        assert visit.errors == []


def test_explorer_obeys_the_pointer(browser, explorers):
    with Visit(browser, explorers) as visit:
        page = visit.page
        heat = page.locator("#one .eb-pe-heat")
        box, unit = heat.bounding_box(), heat.bounding_box()["width"] / 290
        x = (44 + 232 / 32 * 9.5) * unit  # dimension 9, of pair 4
        y = (30 + 322 / 48 * 20.5) * unit  # position 20
        page.mouse.move(box["x"] + x, box["y"] + y)
        value = sinusoidal_table(64, 32).double()[20, 9]
        assert page.locator("#one .eb-pe-hover").inner_text() == f"PE(20, 9) = {number(value)}"
        page.mouse.click(box["x"] + x, box["y"] + y)
        assert words(page).startswith("Pair 4 is dimensions 8 and 9.")
        assert "At position 20:" in words(page)
        assert page.locator("#one input[data-name=p]").input_value() == "20"


def test_explorer_draws_what_it_says(browser, explorers):
    with Visit(browser, explorers) as visit:
        page, table = visit.page, sinusoidal_table(64, 32).double()
        page.locator("#one input[data-name=p]").fill("7")
        tip = page.locator("#one .eb-pe-tip-p")
        assert float(tip.get_attribute("cx")) == pytest.approx(
            104 + 74 * table[7, 5].item(), abs=0.1
        )
        assert float(tip.get_attribute("cy")) == pytest.approx(
            118 - 74 * table[7, 4].item(), abs=0.1
        )
        points = page.locator("#one .eb-pe-dot").get_attribute("points").split()
        heights = [float(point.split(",")[1]) for point in points]
        assert len(heights) == 48
        assert min(range(48), key=heights.__getitem__) == 7  # highest on the page at q = p
        assert heights[2:7] == heights[12:7:-1]  # the same on both sides


def test_explorer_buttons_tell_their_state(browser, explorers):
    with Visit(browser, explorers) as visit:
        page = visit.page
        whole = page.locator("#one .eb-pe-dot").get_attribute("points")
        page.get_by_role("button", name="this pair").first.press("Enter")
        assert page.locator("#one [data-do=one]").get_attribute("aria-pressed") == "true"
        assert page.locator("#one [data-do=all]").get_attribute("aria-pressed") == "false"
        assert page.locator("#one .eb-pe-dot").get_attribute("points") != whole
        page.locator("#one [data-do=all]").click()
        assert page.locator("#one .eb-pe-dot").get_attribute("points") == whole
        page.locator("#one [data-do=walk]").click()
        page.wait_for_function(
            "() => Number(document.querySelector('#one input[data-name=p]').value) >= 12"
        )
        page.locator("#one [data-do=walk]").click()
        assert page.locator("#one [data-do=walk]").get_attribute("aria-pressed") == "false"


def test_two_explorers_do_not_interfere(browser, explorers):
    with Visit(browser, explorers) as visit:
        before = words(visit.page, "one")
        visit.page.locator("#two input[data-name=p]").press("End")
        assert "At position 23:" in words(visit.page, "two")
        assert words(visit.page, "one") == before
        visit.page.locator("#one input[data-name=i]").press("End")
        assert "Pair 15" in words(visit.page, "one")
        assert "Pair 0" in words(visit.page, "two")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_explorer_is_accessible_outside_the_book(browser, explorers, theme):
    with Visit(browser, explorers) as visit:
        set_theme(visit.page, theme)
        for summary in visit.page.locator("summary").all():
            summary.click()
        assert axe_faults(visit.page) == []


@pytest.mark.parametrize("from_file", [False, True], ids=["served", "file"])
def test_explorer_of_the_book_moves_without_a_kernel(browser, site, address, from_file):
    pages = [page for page in PAGES if 'class="eb-pe"' in (site / page).read_text("utf-8")]
    assert pages, "no page of the book holds the explorer"
    url = (site / pages[0]).as_uri() if from_file else f"{address}/{pages[0]}"
    with Visit(browser, url, viewport=DESKTOP) as visit:
        root = visit.page.locator(".eb-pe").first
        readout = root.locator(".eb-pe-readout")
        before = readout.inner_text()
        root.locator("input[data-name=p]").press("ArrowRight")
        assert (after := readout.inner_text()) != before
        root.locator(".eb-pe-heat").click(position={"x": 120, "y": 200})
        assert readout.inner_text() != after
        assert (visit.errors, visit.external) == ([], [])


@pytest.mark.parametrize("document", NOTEBOOKS)
def test_every_explorer_of_a_chapter_moves(browser, address, document):
    calls = explorer_calls(project.ROOT / f"{document}.ipynb")
    with Visit(browser, f"{address}/{document}.html") as visit:
        assert visit.page.locator(ROOTS).count() == len(calls), calls
        assert still_controls(visit.page) == []
        assert (visit.errors, visit.external) == ([], [])


# --- the quizzes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("document", NOTEBOOKS)
def test_every_quiz_of_a_chapter_answers(browser, site, address, document):
    calls = quiz_calls(project.ROOT / f"{document}.ipynb")
    number = document.removeprefix("notebooks/")[:2]
    assert (site / f"{document}.html").read_text("utf-8").count('data-quiz="') == len(calls)
    if not calls:
        return
    with Visit(browser, f"{address}/{document}.html", viewport=PHONE) as visit:
        quizzes = visit.page.locator(QUIZZES)
        assert [each.get_attribute("data-quiz") for each in quizzes.all()] == [number] == calls
        assert quiz_faults(visit.page) == []
        assert rereading_faults(visit.page) == []
        for summary in visit.page.locator(f"{QUIZZES} summary").all():
            summary.click()
        assert overflow(visit.page) == []
        assert (visit.errors, visit.external) == ([], [])
        for theme in ("light", "dark"):
            set_theme(visit.page, theme)
            assert axe_faults(visit.page, within=QUIZZES) == []


# --- widget state, launch buttons -----------------------------------------------------------------

WIDGETS = """
import json, sys, nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
import ipywidgets
from ipywidgets.embed import embed_data

slider = ipywidgets.IntSlider(value=3, max=9, description="steps")
echo = ipywidgets.IntText(value=3, description="echo")
link = ipywidgets.jslink((slider, "value"), (echo, "value"))
box = ipywidgets.VBox([slider, echo])
state = embed_data(views=[box])
view = {"model_id": box.model_id, "version_major": 2, "version_minor": 0}
data = {"application/vnd.jupyter.widget-view+json": view, "text/plain": "a slider"}
cell = new_code_cell("box", execution_count=1)
cell.outputs = [new_output("execute_result", data=data, execution_count=1)]
book = new_notebook(cells=[new_markdown_cell("# Widgets"), cell])
book.metadata = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    "widgets": {"application/vnd.jupyter.widget-state+json": state["manager_state"]},
}
print(nbformat.writes(book))
"""


def test_stored_widgets_move_offline(browser, tmp_path):
    stored = project.run(sys.executable, "-c", WIDGETS).stdout
    assert json.loads(stored)["metadata"]["widgets"]
    folder = tiny_book(tmp_path / "book", {"book/a.md": "# A\n", "notebooks/w.ipynb": stored})
    site = build_or_fail(folder, tmp_path / "out")
    assert "html-manager" not in (site / "book/a.html").read_text("utf-8")
    with Visit(browser, (site / "notebooks/w.html").as_uri()) as visit:
        handle = visit.page.locator(".widget-slider .noUi-handle").first
        handle.press("ArrowRight")
        visit.page.wait_for_function(
            "() => document.querySelector('.widget-text input').value === '4'"
        )
        assert (visit.external, visit.failed, visit.errors) == ([], [], [])


def launch_links(text):
    """Addresses of the launch buttons in a page's head."""
    links = re.findall(r'<a [^>]*href="(https://colab\.research\.google\.com[^"]*)"[^>]*>', text)
    buttons = re.findall(r'<a href="([^"]*)"[^>]*class="[^"]*dropdown-item[^"]*"', text)
    return [link for link in links if link in buttons]


def test_launch_buttons_are_off_until_there_is_an_address(site):
    for page in PAGES:
        text = (site / page).read_text("utf-8")
        assert launch_links(text) == []
        assert "btn-source-repository-button" not in text


def test_launch_buttons_lead_to_their_own_notebook_once_there_is(tmp_path):
    root = project.copy(tmp_path / "book")
    where = "https://github.com/someone/an-encoder-book"
    done = project.run(sys.executable, "tools/publish.py", where, cwd=root)
    assert done.returncode == 0, done.stderr
    site = build_or_fail(root, tmp_path / "out")
    for document in TOC:
        text = (site / f"{document}.html").read_text("utf-8")
        base = where.replace("https://github.com", "https://colab.research.google.com/github")
        own = [f"{base}/blob/main/{document}.ipynb"] if document in NOTEBOOKS else []
        assert launch_links(text) == own, document
        assert where in text
        assert (root / f"{document}.ipynb").exists() == (document in NOTEBOOKS)
    shutil.rmtree(site)
