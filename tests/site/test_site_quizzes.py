"""The quiz in Chromium: worked through by keyboard, without scripts, in both themes, on a phone.

It stands alone here, and on a page of a small book. That every quiz of the built book answers is
tested in test_site_pages.py, by the checks that are shown to find faults here.
"""

import nbformat
import pytest
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
from site_explorers import still_controls
from site_quizzes import quiz_calls, quiz_faults, rereading_faults

from encoder_lib.widgets import positional_encoding_explorer, quiz
from encoder_lib.widgets.quiz import in_order, load_quiz

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title>'
HEAD += '<meta name="viewport" content="width=device-width">'
LOADED = load_quiz(3)
COUNT = len(LOADED.questions)
HEADINGS = list(dict.fromkeys(each.reread for each in LOADED.questions))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page of one quiz, and one of two beside an explorer."""
    folder = tmp_path_factory.mktemp("alone")
    one, two = quiz(3, key="one").data, quiz(3, key="two").data
    both = one + positional_encoding_explorer(16, 24).data + two
    for name, body in (("one", one), ("two", both)):
        (folder / f"{name}.html").write_text(f"{HEAD}{body}", "utf-8")
    with served(folder) as found:
        yield found


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """The address of a page of a built book, with its style, that holds the quiz."""
    text = "# Quiz page\n\n" + "".join(f"## {heading}\n\nText.\n\n" for heading in HEADINGS)
    cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell("quiz(3)")]
    data = {"text/html": quiz(3).data, "text/plain": "HTML"}
    cells[1].outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    cells[1].execution_count = 1
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "P", "language": "python"}
    pages = {"book/a.md": "# A\n", "notebooks/q.ipynb": nbformat.writes(book)}
    folder = tmp_path_factory.mktemp("book")
    site = build_or_fail(tiny_book(folder / "book", pages), folder / "out")
    with served(site) as found:
        yield f"{found}/notebooks/q.html"


def answer_some(page):
    """One question wrong, one right, one not chosen, one unfolded: all that can be seen."""
    boxes = page.locator(".eb-pe-quiz").first.locator(".eb-pe-question")
    right = boxes.nth(1).get_attribute("data-right")
    wrong = boxes.nth(0).get_attribute("data-right")
    boxes.nth(0).locator(f"input:not([value={wrong}])").first.check()
    boxes.nth(1).locator(f"input[value={right}]").check()
    for at in range(3):
        boxes.nth(at).locator("button").click()
    for summary in page.locator(".eb-pe-quiz summary").all():
        summary.click()


# --- alone --------------------------------------------------------------------------------------


def test_a_quiz_is_worked_through_by_keyboard(browser, address):
    with Visit(browser, f"{address}/one.html") as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.name") == "one-1"
        assert quiz_faults(page) == []
        assert (visit.errors, visit.failed, visit.external) == ([], [], [])


def test_what_is_said_is_what_the_file_says(browser, address):
    with Visit(browser, f"{address}/one.html") as visit:
        boxes = visit.page.locator(".eb-pe-question").all()
        shown = zip(LOADED.questions, in_order(LOADED.questions), boxes, strict=True)
        for question, options, box in shown:
            for option, label in zip(options, box.locator("label").all(), strict=True):
                label.click()
                box.locator("button").click()
                said = box.locator(".eb-pe-said").inner_text()
                assert said.startswith("✓ Right." if option.correct else "✗ Not this one.")
                assert option.why.replace("`", "") in said
                assert (question.reread in said) != option.correct
            assert box.locator(".eb-pe-verdict").count() == len(options)


def test_the_score_counts_first_tries_alone(browser, address):
    with Visit(browser, f"{address}/one.html") as visit:
        score, boxes = visit.page.locator(".eb-pe-score"), visit.page.locator(".eb-pe-question")
        for at, box in enumerate(boxes.all()):
            right = box.locator(f"input[value={box.get_attribute('data-right')}]")
            wrong = box.locator(f"input:not([value={box.get_attribute('data-right')}])").first
            for choice in (right, wrong) if at % 2 else (wrong, right):
                choice.check()
                box.locator("button").click()
        assert score.inner_text() == f"{COUNT // 2} of {COUNT} right at the first try."


def test_two_quizzes_and_an_explorer_do_not_interfere(browser, address):
    with Visit(browser, f"{address}/two.html") as visit:
        before = visit.page.locator("#two").inner_text()
        answer_some(visit.page)
        visit.page.locator("#two summary").evaluate_all("all => all.forEach(e => e.click())")
        assert visit.page.locator("#two").inner_text() == before
        visit.page.locator("#one button").last.click()
        assert still_controls(visit.page) == quiz_faults(visit.page) == []


def test_without_scripts_the_answers_unfold(browser, address):
    options = {"java_script_enabled": False, "settle": False}
    with Visit(browser, f"{address}/one.html", viewport=PHONE, **options) as visit:
        page = visit.page
        assert page.locator(".eb-pe-asleep").is_visible()
        assert page.locator("button").count() == 0
        boxes = page.locator(".eb-pe-question").all()
        for question, options, box in zip(
            LOADED.questions, in_order(LOADED.questions), boxes, strict=True
        ):
            assert not box.locator(".eb-pe-reasons").is_visible()
            box.locator("summary").press("Enter")
            reasons = box.locator(".eb-pe-reasons li").all_inner_texts()
            for option, words in zip(options, reasons, strict=True):
                assert (" is right. " in words) == option.correct
                assert words.endswith(option.why.replace("`", ""))
            assert question.reread in box.locator(".eb-pe-reread").inner_text()


def test_the_answers_are_printed(browser, address):
    with Visit(browser, f"{address}/one.html") as visit:
        page, reasons = visit.page, visit.page.locator(".eb-pe-reasons")
        seen = "e => e.checkVisibility({ contentVisibilityAuto: true })"
        assert not any(each.evaluate(seen) for each in reasons.all())
        page.emulate_media(media="print")
        assert all(each.evaluate(seen) for each in reasons.all())
        assert not any(each.is_visible() for each in page.locator("button").all())


def test_focus_can_be_seen(browser, address):
    with Visit(browser, f"{address}/one.html") as visit:
        for _ in range(3):  # radio button, button, folded answer
            visit.page.keyboard.press("Tab")
            width = visit.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
            assert width == "3px"


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_quizzes_fit_and_are_accessible(browser, address, viewport, theme):
    with Visit(browser, f"{address}/two.html", viewport=viewport) as visit:
        set_theme(visit.page, theme)
        assert overflow(visit.page) == axe_faults(visit.page) == []
        answer_some(visit.page)
        assert overflow(visit.page) == axe_faults(visit.page) == []


# --- in the book --------------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_quizzes_answer_and_fit_in_the_book(browser, chapter, viewport, theme):
    with Visit(browser, chapter, viewport=viewport) as visit:
        set_theme(visit.page, theme)
        visit.page.wait_for_timeout(400)
        assert quiz_faults(visit.page) == []
        assert rereading_faults(visit.page) == []
        assert (visit.errors, visit.failed, visit.external) == ([], [], [])
        answer_some(visit.page)
        assert overflow(visit.page) == axe_faults(visit.page) == []


# --- the checks find faults ---------------------------------------------------------------------

BROKEN = {
    "asleep": ("<script>\n(function", "<script>\nfalse && (function"),
    "without a choice": ("Choose an answer first.", "?"),
    "wrong": ("if (!right) { line.append(reread(box)); }", ""),
    "right": ('"\\u2713 Right."', '"Right."'),
    "is not marked": ('"\\u2713 right"', '"\\u2713"'),
    "score": ("tried.filter(Boolean).length", "tried.length"),
    "second try": ("if (first[at] === undefined) ", ""),
    "things left": ('clear(box, "verdict");', ""),
    "the focus is not": ('root.querySelector("input").focus();', ""),
    "the focus is on": ("e.checked = false;", "e.checked = false; e.tabIndex = -1;"),
}


def show(folder, body):
    (folder / "page.html").write_text(f"{HEAD}{body}", "utf-8")
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize("fault", BROKEN)
def test_quiz_faults_finds(browser, tmp_path, fault):
    good, (old, new) = quiz(3, key="one").data, BROKEN[fault]
    assert good.count(old) == 1
    with Visit(browser, show(tmp_path, good.replace(old, new))) as visit:
        assert fault in " ".join(quiz_faults(visit.page))


def test_rereading_faults_finds_sections_without_a_link(browser, tmp_path):
    html = quiz(3).data
    titles = "".join(f'<h2 id="s{n}">{heading}</h2>' for n, heading in enumerate(HEADINGS))
    sections = "".join(
        f'<section id="s{n}"><h2>{heading}<a href="#s{n}">#</a></h2></section>'
        for n, heading in enumerate(HEADINGS)
    )
    with Visit(browser, show(tmp_path, sections + html)) as visit:
        assert rereading_faults(visit.page) == []
    for wrong in ("", titles.replace("Why a scale", "Why")):
        with Visit(browser, show(tmp_path, wrong + html)) as visit:
            assert len(rereading_faults(visit.page)) >= 2


def test_quiz_calls_are_counted(tmp_path):
    cells = ["from x import quiz", "from x import quiz\n\nquiz(3)", "widgets.quiz('11')\nx = 1"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(book, tmp_path / "n.ipynb")
    assert quiz_calls(tmp_path / "n.ipynb") == ["03", "11"]
