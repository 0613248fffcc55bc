"""Every quiz of a page, worked through by keyboard alone: does it say what it should?

A quiz is an element of class ``eb-pe-quiz``. What each option should be answered is read from the
answers folded below its question, which are there without a script.
"""

import re

import nbformat

QUIZZES = ".eb-pe-quiz"
CALL = re.compile(r"^(?:\w+\.)?quiz\([\"']?(\d+)", re.MULTILINE)

FOCUS = """() => { const e = document.activeElement;
  return [e.tagName, e.name || "", e.value || e.textContent]; }"""
REASONS = """box => Array.from(box.querySelectorAll(".eb-pe-reasons li"),
  li => li.querySelector(".eb-pe-why").textContent)"""


def quiz_faults(page):
    """What the quizzes of a page fail to do, as sentences; each is left half answered.

    Each question is answered wrong, then right; then one right at once after starting again.
    """
    return [fault for root in page.locator(QUIZZES).all() for fault in _faults(page, root)]


def _faults(page, root):
    name, boxes = root.get_attribute("id"), root.locator(".eb-pe-question").all()
    if root.get_attribute("data-ready") is None or root.locator(".eb-pe-asleep").is_visible():
        return [f"{name}: asleep"]
    count, score = len(boxes), root.locator(".eb-pe-score")
    faults = [] if count else [f"{name}: no question"]
    root.locator("input").first.focus()
    for at, box in enumerate(boxes, 1):
        faults += [f"{name}, question {at}: {fault}" for fault in _question(page, box)]
    wanted = f"0 of {count} right at the first try."
    faults += _differs(f"{name}, score", score.inner_text(), wanted)
    page.keyboard.press("Enter")  # the last Tab led from the last question to the button
    faults += [f"{name}: {fault}" for fault in _not_fresh(page, root, count)]
    faults += [f"{name}, again: {fault}" for fault in _first_try(page, root, count)]
    return faults


def _differs(what, got, wanted):
    return [] if got == wanted else [f"{what}: {got!r} instead of {wanted!r}"]


def _choose(page, box, letter):
    """Choose an option by keys, from the radio button that has the focus, and check it."""
    page.keyboard.press("Space")
    for _ in range(4):
        if page.evaluate(FOCUS)[2] != letter:
            page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")


def _question(page, box):
    """Answer one question wrong and then right; the focus goes from its first radio to the next."""
    first = box.locator("input").first
    if page.evaluate(FOCUS)[1] != first.get_attribute("name"):
        return [f"the focus is on {page.evaluate(FOCUS)}"]
    right, reasons = box.get_attribute("data-right"), box.evaluate(REASONS)
    wrong = next(letter for letter in "AB" if letter != right)
    said, section = box.locator(".eb-pe-said"), box.locator(".eb-pe-reread").text_content()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    faults = _differs("without a choice", said.inner_text(), "Choose an answer first.")
    page.keyboard.press("Shift+Tab")
    _choose(page, box, wrong)
    words = f"✗ Not this one. {wrong}: {reasons['ABCD'.index(wrong)]} {section}"
    faults += _differs("wrong", said.inner_text(), words) + _marks(box, wrong, "✗ not this one")
    page.keyboard.press("Shift+Tab")
    _choose(page, box, right)
    words = f"✓ Right. {right}: {reasons['ABCD'.index(right)]}"
    faults += _differs("right", said.inner_text(), words) + _marks(box, right, "✓ right")
    page.keyboard.press("Tab")
    if page.evaluate(FOCUS)[0] != "SUMMARY" or box.locator("details").get_attribute("open"):
        faults.append("no folded answer after the button")
    page.keyboard.press("Tab")
    return faults


def _marks(box, letter, words):
    """Whether the option says its verdict itself."""
    option = box.locator("label", has=box.page.locator(f"input[value={letter}]"))
    return [] if option.inner_text().endswith(words) else [f"{letter} is not marked {words!r}"]


def _not_fresh(page, root, count):
    """What is left of the answers after starting again."""
    left = root.locator(".eb-pe-verdict, .eb-pe-said *, input:checked, details[open]").count()
    wanted = f"0 of {count} right at the first try; {count} not tried yet."
    faults = _differs(
        "score after starting again", root.locator(".eb-pe-score").inner_text(), wanted
    )
    if left:
        faults.append(f"{left} things left of the answers")
    if page.evaluate(FOCUS)[1] != root.locator("input").first.get_attribute("name"):
        faults.append("the focus is not on the first question")
    return faults


def _first_try(page, root, count):
    box = root.locator(".eb-pe-question").first
    _choose(page, box, box.get_attribute("data-right"))
    wanted = f"1 of {count} right at the first try; {count - 1} not tried yet."
    faults = _differs("score", root.locator(".eb-pe-score").inner_text(), wanted)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    return faults + _differs("second try", root.locator(".eb-pe-score").inner_text(), wanted)


def rereading_faults(page):
    """Sections to reread that no link leads to, after a wrong answer to every question."""
    faults = []
    for box in page.locator(f"{QUIZZES} .eb-pe-question").all():
        box.locator(f"input:not([value={box.get_attribute('data-right')}])").first.check()
        box.locator("button").click()
        link = box.locator(".eb-pe-said a")
        target = link.get_attribute("href") if link.count() == 1 else "#none"
        heading = page.locator(f'[id="{target[1:]}"] >> :is(h2, h3, h4)').first
        found = heading.inner_text() if heading.count() else ""
        if link.count() != 1 or link.inner_text() != found.rstrip("#¶ \n"):
            faults.append(f"{box.locator('.eb-pe-reread').text_content()} leads to {found!r}")
    return faults


def quiz_calls(notebook):
    """Chapters, as two digits, whose quizzes a stored notebook (path) shows, one for each call."""
    book = nbformat.read(notebook, as_version=4)
    code = [cell.source for cell in book.cells if cell.cell_type == "code"]
    return [f"{int(number):02d}" for source in code for number in CALL.findall(source)]
