"""Which slides of a chapter are its lecture, side by side, and which stand below, as details.

Whoever only goes right sees the lecture: the title; of each ``##`` section its heading with what it
begins with, or with its figure; each key idea; each prediction and then its answer; the misbeliefs,
the summary and the list of exercises on one slide each. All the rest is reached by going down.
"""

import base64
import re
import struct

import nbformat
from nbformat import NotebookNode

import exercises
import notebooks
from course_slides import (
    CALLOUT,
    GOES_ON_WORDS,
    INLINE,
    LAST,
    MAX_WORDS,
    Section,
    Slide,
    code_cell,
    letter_size,
    plain_links,
    printed,
    rich,
    sections_of,
    sentences,
    words,
)
from exercises import markdown

KEY, PREDICT, MISBELIEF = "Key idea", "Predict, then run", "Misconception"
SUMMARY = "Summary"
CAPTION_WORDS = 32  # above a figure
FULL = MAX_WORDS + GOES_ON_WORDS  # words of a slide of the lecture that brings two things together
DENSE_WORDS = 70  # more are set in smaller letters
TALL = 1.35  # a figure less wide than this times its height stands beside the words
SHORT_LINES, SHORT_HEIGHT = 9, 280  # of code or a printed text that shares a slide with prose
ROW_WORDS = 18  # of an exercise in the list of exercises
SUBHEADING = re.compile(r"### (?!Measured)(.+)")
QUOTED = re.compile(r"\*([\"“].+?[\"”])\*", re.DOTALL)


# --- what a slide is ------------------------------------------------------------------------------


def text_of(slide: Slide) -> str:
    """The Markdown a slide begins with, empty for code and figures."""
    first = slide.cells[0]
    return first.source if first.cell_type == "markdown" else ""


def callout(slide: Slide) -> str:
    """The name of the callout on a slide, or nothing."""
    found = CALLOUT.match(text_of(slide))
    return found["name"] if found else ""


def has_figure(slide: Slide) -> bool:
    """Whether a slide shows a figure or an interactive page."""
    return any(rich(output) for cell in slide.cells for output in cell.get("outputs", []))


def measured(slide: Slide) -> bool:
    """Whether a slide lists measured numbers."""
    return text_of(slide).startswith("### Measured")


# --- the slides that stand for a section ----------------------------------------------------------


def shortened(text: str, most: int) -> str:
    """The first words of a sentence; formulas, code and links stay whole."""
    units = re.findall(rf"(?:{INLINE.pattern}|\S)+", text, flags=re.DOTALL)
    return text if len(units) <= most else " ".join(units[:most]).rstrip(".,;:") + " …"


def with_figure(slides: list[Slide]) -> list[Slide]:
    """The section led by its figure under its first sentence; a figure that answers a prediction
    stays where it is."""
    for at, slide in enumerate(slides):
        if callout(slide) == PREDICT:
            return slides
        if has_figure(slide):
            said = [] if at == 0 or not plain(slides[0]) else sentences(text_of(slides[0]))[:1]
            caption = [markdown(s) for s in said if words(s) <= CAPTION_WORDS and s[-1] != ":"]
            return [Slide([*caption, *slide.cells], slide.notes), *slides[:at], *slides[at + 1 :]]
    return slides


def plain(slide: Slide) -> bool:
    """Whether a slide holds a paragraph and no callout, table, list or heading."""
    return bool(text_of(slide)) and not re.match(r"[>|#]|[-*] |\d+\. |```", text_of(slide))


def with_list(slides: list[Slide]) -> list[Slide]:
    """A section without words of its own is led by a list: of misbeliefs, or of subheadings."""
    if all(callout(slide) == MISBELIEF for slide in slides):
        claims = [QUOTED.search(text_of(slide)) for slide in slides]
        items = [claim[1] for claim in claims if claim]
    elif SUBHEADING.match(text_of(slides[0])):
        items = [found[1] for slide in slides if (found := SUBHEADING.match(text_of(slide)))]
    else:
        return slides
    if len(items) < 2:
        return slides
    return [Slide([markdown("\n".join(f"- {item}" for item in items))]), *slides]


def exercise_row(source: str) -> str:
    """An exercise as a row of a table: number, what is asked, kind, minutes."""
    head = exercises.HEAD.match(source)
    asked = " ".join(re.sub(r"^> ?", "", source[head.end() :], flags=re.MULTILINE).split())
    first = shortened(sentences(asked.lstrip(". "))[0], ROW_WORDS).replace("|", r"\|")
    return f"| {head['number']} | {first} | {head['kind'] or ''} | {head['minutes']} |"


def with_exercises(slides: list[Slide]) -> list[Slide]:
    """The exercises, led by a table of all."""
    asked = [text_of(slide) for slide in slides if exercises.HEAD.match(text_of(slide))]
    head = "| | What is asked | kind | minutes |\n|---|---|---|---|\n"
    table = markdown(head + "\n".join(map(exercise_row, asked)))
    return [Slide([table]), *slides]


def in_one(slides: list[Slide]) -> list[Slide]:
    """All prose of a section on one slide."""
    source = "\n\n".join(map(text_of, slides)).replace("\n\n- ", "\n- ")
    return [Slide([markdown(source)], [note for slide in slides for note in slide.notes])]


# --- two slides that belong together --------------------------------------------------------------


def joined(one: Slide, other: Slide) -> Slide | None:
    """Two slides of prose as one, when they fit."""
    source = f"{text_of(one)}\n\n{text_of(other)}"
    if len(one.cells) > 1 or words(source) > FULL:
        return None
    return Slide([markdown(source)], one.notes + other.notes)


def parted(slide: Slide, most: int) -> list[Slide]:
    """A slide of prose as its first whole sentences and a slide with the rest."""
    first, *later = text_of(slide).split("\n\n")
    parts = [s for s in sentences(first) if s[-1] not in ",;:"]
    count = len(parts)
    while count > 1 and words(" ".join(parts[:count])) > most:
        count -= 1
    rest = "\n\n".join(filter(None, [first[len(" ".join(parts[:count])) :].strip(), *later]))
    if not parts or not rest or not first.startswith(" ".join(parts[:count])):
        return [slide]
    return [Slide([markdown(" ".join(parts[:count]))]), Slide([markdown(rest)], slide.notes)]


def with_measurements(slides: list[Slide]) -> list[Slide]:
    """The slides; with measured numbers stand the first words about them, as far as they fit."""
    found: list[Slide] = []
    for slide in slides:
        if found and measured(found[-1]) and plain(slide):
            room = FULL - words(text_of(found[-1]))
            parts = [slide] if words(text_of(slide)) <= room else parted(slide, room)
            if both := joined(found[-1], parts[0]):
                found[-1:] = [both, *parts[1:]]
                continue
        found.append(slide)
    return found


def printed_before(slides: list[Slide]) -> list[NotebookNode]:
    """What the last of these slides with printed text prints, if that is short."""
    texts = [cell for slide in slides for cell in slide.cells if printed(cell)]
    shown = printed(texts[-1]) if texts else ""
    if not shown or len(shown.split("\n")) > SHORT_LINES:
        return []
    outputs = [output for output in texts[-1].outputs if not rich(output)]
    return [code_cell("", outputs, letter_size(shown, SHORT_HEIGHT))]


# --- the lecture ----------------------------------------------------------------------------------


def beginnings(slides: list[Slide]) -> dict[int, bool]:
    """Where a section's columns begin, and whether there stands an answer: its first slide, key
    ideas, predictions, and after a prediction the figure or the words that answer it."""
    marks = [at for at, slide in enumerate(slides) if at and callout(slide) in (KEY, PREDICT)]
    found = dict.fromkeys([0, *marks], False)
    for at, end in zip([0, *marks], [*marks, len(slides)], strict=True):
        if callout(slides[at]) == PREDICT:
            after = range(at + 1, end)
            figures = [n for n in after if has_figure(slides[n])]
            said = [n for n in after if text_of(slides[n])]
            shown = [n for n in after if printed(slides[n].cells[0])]
            found |= dict.fromkeys(figures[:1] or said[:1] or shown[-1:], True)
    return dict(sorted(found.items()))


def complete(column: list[Slide]) -> list[Slide]:
    """A column whose first slide does not end with a colon."""
    lead, *below = column
    text = text_of(lead)
    if not below or not text.endswith(":"):
        return column
    if text_of(below[0]) and not callout(below[0]) and (both := joined(lead, below[0])):
        return [both, *below[1:]]
    before, gap, last = text.rpartition("\n\n")
    *kept, announcement = sentences(last)
    if not kept:
        kept, announcement = [f"{last[:-1]}."], ""
    lead.cells[0].source = before + gap + " ".join(kept)
    return [lead, *([Slide([markdown(announcement)])] if announcement else []), *below]


def arranged(section: Section) -> list[Slide]:
    """A section's slides with the one in front that stands for it."""
    if section.title == LAST:
        return with_exercises(section.slides)
    if section.title == SUMMARY:
        return in_one(section.slides)
    return with_measurements(with_list(with_figure(section.slides)))


def columns(section: Section) -> list[list[Slide]]:
    """A section's slides; the first of each column belongs to the lecture."""
    slides = arranged(section)
    starts = beginnings(slides)
    found = []
    for begin, end in zip(starts, [*list(starts)[1:], len(slides)], strict=True):
        column = complete(slides[begin:end])
        if starts[begin] and plain(column[0]) and words(text_of(column[0])) <= MAX_WORDS:
            previous = slides[max(at for at in starts if at < begin) : begin]
            column[0].cells[:0] = printed_before(previous)
        found.append(column)
    return found


def png_size(output: NotebookNode) -> tuple[int, int]:
    """Width and height of an output's PNG in pixels, zeros without one."""
    start = output.get("data", {}).get("image/png", "")[:32]
    return struct.unpack(">II", base64.b64decode(start)[16:24]) if start else (0, 0)


def layout(slide: Slide) -> str:
    """How a slide is laid out, a class of the style; empty for an ordinary one."""
    for cell in slide.cells:
        for output in filter(rich, cell.get("outputs", [])):
            width, height = png_size(output)
            return "picture" if width > TALL * height else "beside"
    return "dense" if words(text_of(slide)) > DENSE_WORDS else ""


# --- the notebook ---------------------------------------------------------------------------------


def placed(slide: Slide, begins: str, **course) -> list[NotebookNode]:
    """The cells of a slide with the metadata that the exporter and the template read."""
    course["layout"] = layout(slide)
    for n, cell in enumerate(slide.cells):
        cell.metadata.slideshow = {"slide_type": "-" if n else begins}
        cell.metadata.course = {**cell.metadata.get("course", {}), **course}
    if not slide.notes:
        return slide.cells
    note = markdown(plain_links("\n\n".join(slide.notes)))
    note.metadata.slideshow = {"slide_type": "notes"}
    return [*slide.cells, note]


def column_cells(column: list[Slide], first: bool, title: str) -> list[NotebookNode]:
    """The cells of a column; its first slide knows how many are below."""
    lead, *below = column
    cells = placed(lead, "slide", section=title, first=first, below=len(below))
    for slide in below:
        cells += placed(slide, "subslide", section=title)
    return cells


def deck(nb: NotebookNode) -> NotebookNode:
    """A notebook whose cells are the slides of the chapter."""
    cells = []
    for section in sections_of(nb):
        for at, column in enumerate(columns(section)):
            cells += column_cells(column, at == 0, section.title)
    notebooks.set_ids(cells)
    metadata = {key: nb.metadata[key] for key in ("kernelspec", "language_info")}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def counts(made: NotebookNode) -> tuple[int, int]:
    """How many slides of a deck are the lecture, and how many there are in all."""
    kinds = [cell.metadata.slideshow.slide_type for cell in made.cells]
    return kinds.count("slide"), kinds.count("slide") + kinds.count("subslide")
