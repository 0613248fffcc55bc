"""The slides: what goes where, and how they behave in Chromium without network."""

import base64
import json
import os
import re
import struct

import nbformat
import pytest
from site_browser import Visit, axe_faults, external_in_html, raw_maths

import course
import course_slides
import notebooks
from course_assets import for_a_page
from course_deck import slides
from course_lecture import (
    FULL,
    LAST,
    columns,
    counts,
    deck,
    exercise_row,
    layout,
    shortened,
    text_of,
)
from course_sample import chapter, code
from course_slides import (
    LEAD_WORDS,
    MAX_LINES,
    MAX_WORDS,
    Section,
    Slide,
    blocks,
    chunks,
    fitting,
    letter_size,
    sections_of,
    sentences,
)
from exercises import markdown

NAMES = notebooks.names()
SCREEN = {"width": 1280, "height": 720}
LOOKED_AT = [name for name in NAMES if name[:2] in ("02", "05", "12")]  # with figures that move


# --- cutting --------------------------------------------------------------------------------------


def test_sentences_do_not_end_inside_formulas_links_and_abbreviations():
    text = "By Xiong et al. it is $a. B$. See [one. Two](x), e.g. here! *Not. Here.* And `a. B` so?"
    assert sentences(text) == [
        "By Xiong et al. it is $a. B$.",
        "See [one. Two](x), e.g. here!",
        "*Not. Here.*",
        "And `a. B` so?",
    ]


def test_a_long_paragraph_is_cut_between_sentences_and_the_rest_is_kept():
    shown, rest = fitting("One two three four five. " * 20)
    assert len(shown.split()) == MAX_WORDS and shown.endswith("five.")
    assert f"{shown} {rest}" == ("One two three four five. " * 20).strip()


def test_blocks_are_what_a_reader_sees():
    text = "# T\n\nA\nb\n\n$$\nx\n= 1\n$$\n\n> **Note.** n\n\n| a |\n|---|\n| 1 |\n\n- i\n- j"
    kinds = ["heading", "paragraph", "math_block", "blockquote", "table", "bullet_list"]
    assert [kind for kind, _ in blocks(text)] == kinds


def test_long_lists_and_tables_are_cut():
    items = "\n".join(f"- {'word ' * 19}end" for _ in range(5))
    assert [part.count("- ") for _, part in blocks(items)] == [2, 2, 1] or len(blocks(items)) <= 3
    rows = "\n".join(f"| {n} |" for n in range(10))
    parts = [part for _, part in blocks(f"| head |\n|---|\n{rows}")]
    assert [part.count("| head |") for part in parts] == [1, 1]


def test_long_code_is_cut_between_statements_and_methods():
    function = "def f{}():\n" + "    x = 1\n" * 11 + "\n\n"
    parts = chunks("".join(function.format(n) for n in range(3)))
    assert [part.split("\n")[0] for part in parts] == ["def f0():", "def f1():", "def f2():"]
    method = "    def m{}(self):\n" + "        x = 1\n" * 11 + "\n"
    parts = chunks("class A:\n" + "".join(method.format(n) for n in range(2)))
    assert [part.split("\n")[0].strip() for part in parts] == ["class A:", "def m1(self):"]
    assert "def m0" in parts[0], "a class does not begin at the end of a slide"
    assert max(len(part.split("\n")) for part in parts) <= MAX_LINES


def test_letters_shrink_for_wide_and_for_long_code():
    assert letter_size("x = 1") > letter_size("x" * 80) > letter_size("x" * 100)
    assert letter_size("x = 1") > letter_size("x\n" * 20)
    assert letter_size("x" * 1000) == course_slides.SMALLEST


# --- the deck -------------------------------------------------------------------------------------


def kinds(nb):
    """``(slide type, first line)`` of every cell of a deck."""
    return [(c.metadata.slideshow.slide_type, c.source.split("\n")[0]) for c in nb.cells]


def test_the_deck_of_the_sample():
    assert kinds(deck(chapter())) == [
        ("slide", "# A small chapter"),
        ("notes", "*You need:* nothing. *Time:* none."),
        ("slide", "The first paragraph has a formula, $d_k = 64$, and ends here."),
        ("slide", "> **Key idea.** A callout stands alone."),
        ("subslide", "print('a printed line')"),
        ("slide", "- One line that says what was learnt."),
        ("slide", "| | What is asked | kind | minutes |"),
        ("subslide", deck_statement("3.1")),
        ("subslide", deck_statement("3.5")),
    ]


def deck_statement(number):
    """The statement of an exercise of the sample."""
    text = "\n".join(cell.source for cell in chapter().cells)
    return next(x for x in text.split("\n") if x.startswith(f"> **Exercise {number}**"))


def test_what_is_left_out():
    text = "\n".join(cell.source for cell in deck(chapter()).cells)
    for absent in ("Borrowed", "exactly three", "import math", "def my_attention", "Sources"):
        assert absent not in text


def test_measurements_are_shown_without_bounds():
    cell = code("record('B2', 'x', 1, 0, 2)", "claim B2 · a share = 0.5 (bound 0 to 1)\n")
    (made,) = course_slides.code_slides(cell)
    assert made[0].source == "### Measured\n\n- a share = 0.5"


def test_a_figure_has_a_slide_and_keeps_its_description():
    shown = nbformat.v4.new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})
    cell = code("plot()", mystnb={"image": {"alt": "Two lines that cross."}})
    cell.outputs = [shown]
    first, second = course_slides.code_slides(cell)
    assert (first[0].source, first[0].outputs) == ("plot()", [])
    assert second[0].source == "" and second[0].metadata.course["alt"] == "Two lines that cross."


# --- the lecture ----------------------------------------------------------------------------------


FIGURE = code("", alt="A figure.")
FIGURE.outputs = [nbformat.v4.new_output("display_data", {"image/png": "aGk="})]
PREDICTION = "> **Predict, then run.** How many?"
MEASURED = "### Measured\n\n- a share = 0.5"


def section(*sources, title="A section"):
    """A section with one slide for each text; FIGURE stands for a figure, ``code`` for code."""
    slides = [Slide([markdown(s) if isinstance(s, str) else s.copy()]) for s in sources]
    return Section(title, slides)


def shown(column):
    """A column as the first lines of its slides; a figure is called so."""
    return [[c.source.split("\n")[0] or "figure" for c in slide.cells] for slide in column]


def lecture(*sources, **title):
    return [shown(column) for column in columns(section(*sources, **title))]


def test_a_section_is_led_by_its_first_words():
    assert lecture("It begins.", code("x = 1")) == [[["It begins."], ["x = 1"]]]


def test_a_section_is_led_by_its_figure_under_its_first_sentence():
    assert lecture("It begins. It goes on.", code("plot()"), FIGURE, "So it is.") == [
        [["It begins.", "figure"], ["It begins. It goes on."], ["plot()"], ["So it is."]]
    ]


def test_a_figure_that_answers_a_prediction_comes_after_it():
    assert lecture("It begins.", PREDICTION, code("plot()"), MEASURED, FIGURE) == [
        [["It begins."]],
        [[PREDICTION], ["plot()"], ["### Measured"]],
        [["figure"]],
    ]


def test_a_prediction_is_answered_by_what_was_measured_and_the_words_about_it():
    found = columns(section("It begins.", PREDICTION, code("x = 1"), MEASURED, "So it is."))
    assert [shown(column) for column in found[1:]] == [
        [[PREDICTION], ["x = 1"]],
        [["### Measured"]],
    ]
    assert text_of(found[2][0]).endswith("= 0.5\n\nSo it is.")


def test_an_answer_in_words_brings_what_was_printed():
    found = columns(section("It begins.", PREDICTION, code("print(3)", "3\n"), "It is three."))
    assert [cell.cell_type for cell in found[2][0].cells] == ["code", "markdown"]
    assert found[2][0].cells[0].outputs[0].text == "3\n"
    assert lecture("It begins.", PREDICTION, code("print(3)", "3\n"))[2] == [["print(3)"]]


def test_key_ideas_begin_a_column_and_other_callouts_do_not():
    found = lecture("It begins.", "> **Key idea.** One.", "> **Note.** Two.", "More.")
    assert found == [[["It begins."]], [["> **Key idea.** One."], ["> **Note.** Two."], ["More."]]]


def test_sections_without_words_of_their_own_are_led_by_a_list():
    beliefs = ['> **Misconception.** *"It is."* No.', '> **Misconception.** *"It was."* No.']
    assert text_of(columns(section(*beliefs))[0][0]) == '- "It is."\n- "It was."'
    patients = ["### One\n\nIll.", code("x = 1"), "### Two\n\nIll, too."]
    assert text_of(columns(section(*patients))[0][0]) == "- One\n- Two"


def test_the_first_slide_does_not_end_with_a_colon():
    assert lecture("Look at this. Four things:", code("x = 1"))[0] == [
        ["Look at this."],
        ["Four things:"],
        ["x = 1"],
    ]
    assert lecture("Four things:", code("x = 1")) == [[["Four things."], ["x = 1"]]]
    (column,) = columns(section("Four things:", "- one\n- two"))
    assert text_of(column[0]) == "Four things:\n\n- one\n- two"


def test_the_summary_stands_on_one_slide_and_exercises_in_a_table():
    (column,) = columns(section("- One.", "- Two.", title="Summary"))
    assert [text_of(slide) for slide in column] == ["- One.\n- Two."]
    asked = "> **Exercise 3.2** (difficulty 2 of 5, 10 min, prove). Show that $a | b$. Then more."
    assert exercise_row(asked) == r"| 3.2 | Show that $a \| b$. | prove | 10 |"
    assert len(columns(section(asked, asked, title=LAST))[0]) == 3


def test_long_questions_are_cut_outside_of_formulas():
    assert (
        shortened("Write $a + b + c$ as `x y z` here, please", 4)
        == "Write $a + b + c$ as `x y z` …"
    )
    assert shortened("Write it", 2) == "Write it"


def test_tall_figures_stand_beside_the_words():
    def png(width, height):
        data = base64.b64encode(b"x" * 16 + struct.pack(">II", width, height)).decode()
        cell = code("")
        cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": data})]
        return Slide([cell])

    assert [layout(png(800, 400)), layout(png(500, 500))] == ["picture", "beside"]
    assert [layout(Slide([markdown("word " * n)])) for n in (5, 90)] == ["", "dense"]


@pytest.mark.parametrize("name", NAMES)
def test_whoever_only_goes_right_sees_a_lecture(name):
    nb = course.stored([name])[name]
    made = deck(nb)
    lead, whole = counts(made)
    print(f"{name}: {lead} slides side by side, {whole} in all")
    assert 10 <= lead <= 45
    leads = [c for c in made.cells if c.metadata.slideshow.slide_type == "slide"]
    titles = [c.metadata.course.section for c in leads if c.metadata.course.first]
    assert titles == [found.title for found in sections_of(nb)]
    assert sum(c.metadata.course.below for c in leads) == whole - lead
    callouts = [c.source for c in made.cells if re.match(r"> \*\*(Key idea|Predict)", c.source)]
    assert callouts == [c.source for c in leads if c.source in callouts]
    assert [c.source for c in leads if c.source.endswith(":") and c.source[0] != "-"] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_is_followed_by_its_answer(name):
    for found in sections_of(course.stored([name])[name]):
        row = [column[0] for column in columns(found)]
        for at, slide in enumerate(row):
            if text_of(slide).startswith("> **Predict"):
                after = row[at + 1] if at + 1 < len(row) else slide
                assert after is not slide and not text_of(after).startswith(">"), text_of(slide)


@pytest.mark.parametrize("name", NAMES)
def test_every_chapter_becomes_slides_a_back_row_can_read(name):
    nb = course.stored([name])[name]
    made = deck(nb)
    shown = [c for c in made.cells if c.metadata.slideshow.slide_type != "notes"]
    prose = [c for c in shown if c.cell_type == "markdown" and c.source[0] not in ">|`"]
    long = [c.source for c in prose if course_slides.words(c.source) > FULL]
    summary = text_of(columns(sections_of(nb)[-2])[0][0])
    assert long in ([], [summary]) and course_slides.words(summary) <= 170
    figures = [c for c in shown if c.metadata.course.get("alt")]
    wanted = [c.metadata.mystnb.image.alt for c in nb.cells if "mystnb" in c.metadata]
    assert sorted(c.metadata.course.alt for c in figures) == sorted(wanted)
    begun = [c.source for c in prose if c.metadata.course.get("first")]
    plain = [s for s in begun if s[0] not in "-#" and "$$" not in s and "\n- " not in s]
    assert max(map(course_slides.words, plain)) <= LEAD_WORDS


def test_scripts_and_text_cannot_end_the_page():
    script = for_a_page("a = '</script>'; b = '<!-- <script>';")
    assert "</script" not in script and "<!--" not in script
    nb = chapter()
    nb.cells[2].outputs[0].text = "</pre><script>alert(1)</script>"
    nb.cells[2].source = "print('<b>')"
    assert "<script>alert" not in slides(nb) and "&lt;script&gt;alert" in slides(nb)


# --- in the browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files with slides, by name."""
    folder = tmp_path_factory.mktemp("slides")
    for name, nb in course.stored(LOOKED_AT).items():
        (folder / f"{name}.html").write_text(slides(nb), "utf-8")
    return {name: folder / f"{name}.html" for name in LOOKED_AT}


def opened(browser, path):
    """The slides in a browser, shown and with formulas set."""
    visit = Visit(browser, path.as_uri(), viewport=SCREEN)
    visit.page.wait_for_selector("html[data-ready]")
    return visit


def place(page):
    """(column, row) of the slide that is shown."""
    at = page.evaluate("Reveal.getIndices()")
    return at["h"], at["v"]


MEASURE = """() => Reveal.getSlides().map(section => {
  const at = Reveal.getIndices(section);
  Reveal.slide(at.h, at.v);
  const box = section.querySelector(".slide");
  const wide = Array.from(box.querySelectorAll(".printed, .highlight"))
    .some(e => e.scrollWidth > e.clientWidth + 1)
    || Array.from(box.querySelectorAll("mjx-container[display=true]"))
      .some(e => e.offsetWidth > e.parentElement.clientWidth + 1);
  const tall = Array.from(box.querySelectorAll(".code"))
    .some(e => e.scrollHeight > e.clientHeight + 1);
  return {over: tall || box.scrollHeight > box.clientHeight + 1,
          wide: wide || box.scrollWidth > box.clientWidth + 1, text: box.innerText.slice(0, 60)};
})"""


@pytest.mark.parametrize("name", LOOKED_AT)
def test_slides_load_nothing_move_by_keyboard_and_set_their_formulas(name, browser, pages):
    assert external_in_html(pages[name].read_text("utf-8")) == []
    with opened(browser, pages[name]) as visit:
        page = visit.page
        assert (visit.errors, visit.failed, visit.external) == ([], [], [])
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.title().endswith(" (slides)")
        assert raw_maths(page) == []
        assert page.locator("mjx-container svg").count() > 5
        keys = ["ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "Space"]
        places = [(1, 0), (1, 1), (2, 0), (1, 1), (1, 0), (1, 1)]
        for key, expected in zip(keys, places, strict=True):
            page.keyboard.press(key)
            assert place(page) == expected
        assert page.locator("section.present > section.present > .slide:visible").count() == 1


def test_the_corner_counts_the_lecture_and_what_is_below(browser, pages):
    with opened(browser, pages[LOOKED_AT[0]]) as visit:
        page = visit.page
        page.evaluate("Reveal.slide(1, 0)")
        row = page.locator(".slides > section").count()
        below = page.locator("section.present > section").count() - 1
        assert page.locator("section.present > section.present .below").inner_text().split() == [
            "↓", str(below), str(below), "more", "below",
        ]  # fmt: skip
        assert page.locator(".slide-number").inner_text().replace(" ", "") == f"2/{row}"
        page.keyboard.press("ArrowDown")
        assert page.locator(".slide-number").inner_text().replace(" ", "") == f"2.1/{row}"


def test_no_slide_scrolls(browser, pages):
    found = []
    for name in LOOKED_AT:
        with opened(browser, pages[name]) as visit:
            found += visit.page.evaluate(MEASURE)
    print(f"{len(found)} slides looked at")
    assert [slide["text"] for slide in found if slide["over"] or slide["wide"]] == []


def test_slides_are_accessible(browser, pages):
    """The title, every kind of slide once: prose, code, figure, callout, interactive."""
    with opened(browser, pages[LOOKED_AT[1]]) as visit:
        page = visit.page
        kinds = ["h1", "h2", ".code .highlight", "img.figure", "blockquote", ".page", "table"]
        for kind in kinds:
            if page.locator(f".slide {kind}").count():
                show(page, kind)
                assert axe_faults(page) == [], kind


def show(page, selector):
    """Go to the first slide that holds what ``selector`` finds."""
    page.evaluate(
        """selector => {
          const found = document.querySelector(".slide " + selector).closest(".slide");
          const at = Reveal.getIndices(found.parentElement);
          Reveal.slide(at.h, at.v);
        }""",
        selector,
    )


@pytest.mark.parametrize("name", LOOKED_AT)
def test_an_interactive_figure_moves_and_the_slides_stay(name, browser, pages):
    with opened(browser, pages[name]) as visit:
        page = visit.page
        show(page, ".eb-pe")
        before = place(page)
        figure = page.locator("section.present > section.present .eb-pe").first
        said = figure.inner_text()
        control = figure.locator("input:visible").first
        control.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert figure.inner_text() != said
        assert place(page) == before
        assert visit.errors == []


def test_the_speaker_has_notes(pages):
    page = pages[LOOKED_AT[0]].read_text("utf-8")
    notes = re.findall(r'<aside class="notes">(.*?)</aside>', page, re.DOTALL)
    assert len(notes) > 1 and all(re.sub(r"<[^>]+>", "", note).strip() for note in notes)


def test_one_file_is_all_there_is(pages, tmp_path):
    sizes = {name: os.path.getsize(path) for name, path in pages.items()}
    print(json.dumps(sizes))
    assert max(sizes.values()) < 6_000_000
