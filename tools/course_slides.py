"""Which parts of a chapter go on which slide.

A slide holds up to 60 words of prose, or one code cell with what it prints, or one figure, or one
callout. What does not fit goes into the speaker's notes. Left out: set-up, borrowed parts,
solutions, the quiz, sources. Exercises stand at the end. ``course_lecture`` says which slides stand
side by side, as the lecture, and which below them, as its details.
"""

import ast
import re
from dataclasses import dataclass, field

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

import exercises
import notebooks
from exercises import CODE, SOLUTION, STATEMENT, STUB, TEXT, markdown
from outputs import has_tag

MAX_WORDS = 60
LEAD_WORDS = 45  # on a section's first slide, which has the heading, too
GOES_ON_WORDS = 28  # more, when the alternative is a sentence on two slides
MAX_ROWS = 8  # of a table
MAX_LINES = 20  # of code and what it prints, on one slide
WIDTH, HEIGHT = 1145, 580  # pixels for code on a slide of 1280 x 720
LARGEST, SMALLEST = 26, 15  # pixels of a letter of code
WIDE, HIGH = 0.602, 1.32  # of a letter and a line of code, relative to its size
FORMULA_WORDS = 15  # room that a displayed formula takes
LEFT_OUT = ("Quiz", "Sources")
LAST = "Exercises"
CALLOUT = re.compile(r"> *\*\*(?P<name>[^*]+?)[.:]?\*\*")
PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, double_inline=True)
INLINE = re.compile(r"\$\$.*?\$\$|\$[^$]+\$|`[^`]+`|\[[^\]]*\]\([^)]*\)|\*[^*]+\*", re.DOTALL)
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bal)(?<!\bvs)[.!?][\"”*)]*\s+")
CLAIM = re.compile(r"^claim \w+ · (.*) \(bound [^)]*\)$", re.MULTILINE)
LOCAL_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


@dataclass
class Slide:
    """What stands on one slide, and what its speaker may say."""

    cells: list[NotebookNode]
    notes: list[str] = field(default_factory=list)


@dataclass
class Section:
    """The slides under a ``##`` heading; ``loose`` prose still waits for its slide."""

    title: str
    slides: list[Slide] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Put the prose that waits on a slide."""
        if self.loose:
            self.slides.append(Slide([markdown("\n\n".join(self.loose))], self.notes))
        elif self.notes and self.slides:
            self.slides[-1].notes += self.notes
        self.loose, self.notes = [], []

    def say(self, block: str) -> None:
        """Add a block of prose; it opens a new slide when it does not fit on this one."""
        limit = MAX_WORDS if self.slides else LEAD_WORDS
        shown, rest = fitting(block, limit)
        if rest and not self.slides and not self.loose:  # the first slide has less room
            self.loose.append(shown)
            self.settle()
            self.say(rest)
            return
        if self.loose and re.match(r"[a-z]|\$\$", block):  # a sentence that a formula interrupts
            limit += GOES_ON_WORDS
        if self.loose and words("\n\n".join([*self.loose, shown])) > limit:
            self.settle()
        self.loose.append(shown)
        if rest:
            self.notes.append(rest)

    def alone(self, *cells: NotebookNode) -> None:
        """Add a slide of its own."""
        self.settle()
        self.slides.append(Slide(list(cells)))


# --- prose ----------------------------------------------------------------------------------------


def words(text: str) -> int:
    """Words of a text, a displayed formula counted by the room it takes."""
    formulas = len(re.findall(r"\$\$", text)) // 2
    return len(re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL).split()) + FORMULA_WORDS * formulas


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; none ends inside a formula, code, a link or emphasis."""
    inside = [match.span() for match in INLINE.finditer(paragraph)]
    ends = [
        match.end()
        for match in SENTENCE_END.finditer(paragraph)
        if not any(start < match.start() and match.end() < end for start, end in inside)
    ]
    cuts = [0, *ends, len(paragraph)]
    return [paragraph[a:b].strip() for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


def fitting(block: str, limit: int = MAX_WORDS) -> tuple[str, str]:
    """A paragraph's first sentences of at most ``limit`` words, and the rest."""
    if words(block) <= limit or re.match(r"[>|#]|[-*] |\d+\. ", block):
        return block, ""
    parts = sentences(block)
    count = 1
    while count < len(parts) and words(" ".join(parts[: count + 1])) <= limit:
        count += 1
    return " ".join(parts[:count]), " ".join(parts[count:])


def blocks(text: str) -> list[tuple[str, str]]:
    """``(type, source)`` of the blocks of a Markdown text; long lists are cut between items."""
    lines, found = text.split("\n"), []
    for token in PARSER.parse(text):
        if token.level == 0 and token.map and token.nesting >= 0:
            source = "\n".join(lines[slice(*token.map)]).rstrip()
            kind = token.type.removesuffix("_open")
            split = {"bullet_list": list_parts, "ordered_list": list_parts, "table": table_parts}
            parts = split.get(kind, lambda whole: [whole])(source)
            found += [(kind, part) for part in parts]
    return found


def list_parts(source: str) -> list[str]:
    """A list in parts of at most MAX_WORDS, cut between its outer items."""
    parts: list[str] = []
    for item in re.split(r"\n(?=[-*] |\d+\. )", source):
        if parts and words(parts[-1] + item) <= MAX_WORDS:
            parts[-1] += "\n" + item
        else:
            parts.append(item)
    return parts


def table_parts(source: str) -> list[str]:
    """A table in parts of at most MAX_ROWS rows, each with the table's head."""
    head, rule, *rows = source.split("\n")
    groups = [rows[at : at + MAX_ROWS] for at in range(0, len(rows), MAX_ROWS)]
    return ["\n".join([head, rule, *group]) for group in groups]


def plain_links(text: str) -> str:
    """Links to other pages of the book as plain text: a slide stands alone."""
    return LOCAL_LINK.sub(r"\1", text)


# --- code and what it shows -----------------------------------------------------------------------


def letter_size(text: str, height: int = HEIGHT) -> int:
    """Pixels of a letter with which ``text`` fits on a slide, as far as it stays readable."""
    lines = text.rstrip().split("\n")
    wide = WIDTH / (WIDE * max(map(len, lines)) or 1)
    return int(max(SMALLEST, min(LARGEST, wide, height / (HIGH * len(lines)))))


def printed(cell: NotebookNode) -> str:
    """What a code cell prints, its error included."""
    texts = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            texts.append(output.text)
        elif output.output_type == "error":
            texts.append(f"{output.ename}: {output.evalue}")
        elif not rich(output):
            texts.append(output.data.get("text/plain", ""))
    return "\n".join(text.strip("\n") for text in texts)


def rich(output: NotebookNode) -> bool:
    """Whether an output is a figure or an interactive page."""
    mimes = output.get("data", {})
    return "text/html" in mimes or any(mime.startswith("image/") for mime in mimes)


def displayed(output: NotebookNode) -> NotebookNode:
    """The output; the value of a last line as if it had been displayed."""
    if output.output_type != "execute_result":
        return output
    return nbformat.v4.new_output("display_data", data=output.data, metadata=output.metadata)


def code_cell(source: str, outputs=(), size: int = 0, **course) -> NotebookNode:
    """A code cell for a slide; ``size`` is of its letters, in pixels."""
    shown = [displayed(output) for output in outputs]
    cell = nbformat.v4.new_code_cell(source, outputs=shown, execution_count=None)
    cell.metadata.course = {"size": size, **course}
    return cell


def cuts(body: list[ast.stmt]) -> list[int]:
    """Lines, from 0, before which code may be cut: statements, and methods of a class."""
    found = []
    for node in body:
        decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
        found.append(min([node.lineno, *decorators]) - 1)
        if isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
            found += cuts(methods[1:])  # the first stays with the line that begins the class
    return found


def chunks(source: str) -> list[str]:
    """A long cell cut between its statements into parts of at most MAX_LINES, where possible."""
    lines = source.rstrip().split("\n")
    if len(lines) <= MAX_LINES:
        return [source.rstrip()]
    starts = cuts(ast.parse(source).body)
    parts, begin = [], 0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if end - begin > MAX_LINES and start > begin:
            parts.append("\n".join(lines[begin:start]).rstrip())
            begin = start
    return [*parts, "\n".join(lines[begin:]).rstrip()]


def only_imports(source: str) -> bool:
    """Whether a cell does nothing but import."""
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(source).body)


def measured(text: str) -> list[str]:
    """What the lines for the ledger of claims say, without their ids and bounds."""
    return CLAIM.findall(text)


def code_slides(cell: NotebookNode) -> list[list[NotebookNode]]:
    """The slides of one code cell: its code, what it prints, its figures."""
    outputs = cell.get("outputs", [])
    text = [output for output in outputs if not rich(output)]
    shown = printed(cell)
    if found := measured(shown):
        return [[markdown("### Measured\n\n" + "\n".join(f"- {line}" for line in found))]]
    hidden = has_tag(cell, "hide-input")
    slides = [] if hidden else [[code_cell(s, size=letter_size(s))] for s in chunks(cell.source)]
    if shown:
        together = slides and len(f"{slides[-1][0].source}\n{shown}".split("\n")) < MAX_LINES
        if together:
            last = slides[-1][0]
            both = f"{last.source}\n\n\n{shown}"
            slides[-1] = [code_cell(last.source, text, letter_size(both))]
        else:
            slides.append([code_cell("", text, letter_size(shown))])
    alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
    return slides + [[code_cell("", [output], alt=alt)] for output in outputs if rich(output)]


# --- the deck -------------------------------------------------------------------------------------


def add_text(text: str, sections: list[Section]) -> None:
    """Put the blocks of a Markdown cell on slides; a ``##`` heading opens a new section."""
    for kind, source in blocks(text):
        if kind == "heading" and source.startswith("## "):
            sections[-1].settle()
            sections.append(Section(source[3:].strip()))
            continue
        section = sections[-1]
        callout = CALLOUT.match(source)
        if callout and callout["name"] == "Borrowed":
            continue
        if kind == "heading":
            section.settle()
            section.loose.append(source)
        elif kind in ("blockquote", "table", "fence"):
            section.alone(markdown(plain_links(source)))
        elif kind not in ("hr", "html_block"):
            section.say(plain_links(source))


def add_code(cell: NotebookNode, sections: list[Section]) -> None:
    """Put a code cell on slides of its own, unless it only prepares."""
    if has_tag(cell, "setup") or has_tag(cell, "remove-cell") or only_imports(cell.source):
        return
    for cells in code_slides(cell):
        sections[-1].alone(*cells)


def title_section(source: str) -> Section:
    """The first slide: the title and what the reader will be able to do."""
    lines = [line for line in source.split("\n") if line.strip()]
    able = [line for line in lines[1:] if "able to" in line]
    section = Section("")
    section.slides.append(Slide([markdown("\n\n".join([lines[0], *able]))]))
    section.slides[0].notes = [line for line in lines[1:] if line not in able]
    return section


def sections_of(nb: NotebookNode) -> list[Section]:
    """All sections of a chapter in the order of the deck."""
    first = re.split(r"^(?=## )", nb.cells[0].source, maxsplit=1, flags=re.MULTILINE)
    found = [title_section(first[0])]
    add_text("".join(first[1:]), found)
    generated = (notebooks.LINK_ID, notebooks.BOOTSTRAP_ID)
    for piece in exercises.pieces(nb)[1:]:
        if piece.cell.get("id") in generated or piece.role in (SOLUTION, STUB):
            continue
        if piece.role in (TEXT, STATEMENT):
            add_text(piece.cell.source, found)
        elif piece.role == CODE:
            add_code(piece.cell, found)
    found[-1].settle()
    found = [section for section in found if section.title not in LEFT_OUT]
    return sorted(found, key=lambda section: section.title == LAST)
