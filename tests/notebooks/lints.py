"""Rules for notebooks, each a small function over a notebook that returns what it finds wrong.

``test_lints.py`` shows every rule a bad example; ``test_book.py`` applies them to the book.
"""

import ast
import io
import re
import statistics
import tokenize
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt

from outputs import WIDGET_STATE, has_tag, where

MAX_FIRST_LINES, MAX_LINES, MAX_MEDIAN, MAX_WIDTH, MIN_ALT = 6, 15, 8, 100, 40
MYST_ONLY = {
    "a directive": r"^ *(?:```+|~~~+|:::+) *\{",
    "a colon fence": r"^ *:::",
    "a role": r"\{[a-z][\w:+-]*\}`",
    "a label": r"^ *\([\w:.-]+\)= *$",
    "a footnote": r"\[\^[^\]]+\]",
    "an equation label": r"^ *\$\$ *\([\w:.-]+\) *$",
    "a substitution": r"\{\{",
    "a comment": r"^%",
    "a block break": r"^\+\+\+",
}
FENCE = re.compile(r"^ *(?:> *)*(```+|~~~+).*?^ *(?:> *)*\1 *$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
SOLUTION = re.compile(
    r"<details>\s*<summary>[^<]*[Ss]olution[^<]*</summary>(.*?)</details>", re.DOTALL
)
KINDS = "predict|implement|break|prove|explore"
MATHS = re.compile(r"\$\$.*?\$\$|(?<!\$)\$(?!\$).+?(?<!\$)\$(?!\$)", re.DOTALL)


# --- cells ----------------------------------------------------------------------------------------


def code_cells(nb):
    """The code cells of a notebook."""
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def markdown_cells(nb):
    """The Markdown cells of a notebook."""
    return [cell for cell in nb.cells if cell.cell_type == "markdown"]


def prose(text):
    """Markdown without code blocks and code spans."""
    return CODE_SPAN.sub("``", FENCE.sub("", text))


# --- code -----------------------------------------------------------------------------------------


def first_code_cell(nb):
    """The first code cell is the one that makes the notebook run alone, and it is short."""
    first = code_cells(nb)[0]
    lines = len(first.source.splitlines())
    faults = [] if first.id == "bootstrap" else [f"{where(nb, first)} stands before the first cell"]
    return faults + ([f"the first cell has {lines} lines"] if lines > MAX_FIRST_LINES else [])


def long_cells(nb):
    """Cells in the running text are short; finished library definitions may be longer."""
    running = [c for c in code_cells(nb) if not has_tag(c, "library") and c.id != "bootstrap"]
    lengths = [len(c.source.splitlines()) for c in running]
    faults = [
        f"{where(nb, c)} has {n} lines, at most {MAX_LINES} read well"
        for c, n in zip(running, lengths, strict=True)
        if n > MAX_LINES
    ]
    wide = [
        c for c in code_cells(nb) if max(map(len, c.source.splitlines()), default=0) > MAX_WIDTH
    ]
    faults += [f"{where(nb, c)} has a line of more than {MAX_WIDTH} characters" for c in wide]
    if lengths and statistics.median(lengths) > MAX_MEDIAN:
        faults.append(f"half of the code cells have {statistics.median(lengths):g} lines or more")
    return faults


def trailing_semicolons(nb):
    """No line ends in a semicolon: nbval would still see the value the semicolon hides."""
    faults = []
    for cell in code_cells(nb):
        tokens = list(tokenize.generate_tokens(io.StringIO(cell.source).readline))
        ends = (tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)
        for token, following in zip(tokens, tokens[1:], strict=False):
            if token.string == ";" and following.type in ends:
                faults.append(f"{where(nb, cell)} has a line that ends in a semicolon")
    return faults


def forbidden_code(nb):
    """What breaks elsewhere: backends, paths from one folder, upgrades, Colab's widget manager."""
    rules = {
        "chooses a matplotlib backend": (
            r"\b(?:matplotlib|mpl)\.use\(|switch_backend\(|%matplotlib|MPLBACKEND"
        ),
        "uses a path relative to its folder": r"[\"']\.\./",
        "upgrades or reinstalls packages": r"\bpip\b.*(?:\s-U\b|--upgrade|--force-reinstall)",
        "calls Colab's widget manager": r"enable_custom_widget_manager",
        "changes the working directory": r"\bos\.chdir\(|^%cd\b",
    }
    return [
        f"{where(nb, cell)} {what}"
        for cell in code_cells(nb)
        for what, rule in rules.items()
        if re.search(rule, cell.source, re.MULTILINE)
    ]


def one_thread(nb):
    """A notebook that uses torch sets one thread in its set-up cell."""
    cells = code_cells(nb)
    if not any(re.search(r"^(?:import|from) torch\b", c.source, re.MULTILINE) for c in cells):
        return []
    if any(has_tag(c, "setup") and "torch.set_num_threads(1)" in c.source for c in cells):
        return []
    return ["no cell tagged setup calls torch.set_num_threads(1)"]


# --- prose ----------------------------------------------------------------------------------------


def headings(nb):
    """``(level, text)`` of every heading, in order."""
    found = []
    for cell in markdown_cells(nb):
        tokens = MarkdownIt().parse(cell.source)
        for opening, inline in zip(tokens, tokens[1:], strict=False):
            if opening.type == "heading_open":
                found.append((int(opening.tag[1]), inline.content))
    return found


def heading_faults(nb):
    """One title, at the very start, and no level left out on the way down."""
    levels = [level for level, _ in headings(nb)]
    faults = [] if levels.count(1) == 1 else [f"has {levels.count(1)} titles"]
    if not nb.cells[0].source.startswith("# "):
        faults.append("does not begin with its title")
    for (above, _), (level, text) in zip(headings(nb), headings(nb)[1:], strict=False):
        if level > above + 1:
            faults.append(f"heading {text!r} skips a level")
    return faults


def maths_faults(nb):
    """Dollar signs, braces and environments are balanced, cell by cell."""
    faults = []
    for cell in markdown_cells(nb):
        text = prose(cell.source).replace(r"\$", "")
        if "$" in MATHS.sub("", text):
            faults.append(f"{where(nb, cell)} has an unbalanced $")
        for maths in MATHS.findall(text):
            bare = re.sub(r"\\[{}]", "", maths)
            opened, closed = (re.findall(rf"\\{w}\{{(\w+\*?)\}}", maths) for w in ("begin", "end"))
            if bare.count("{") != bare.count("}") or sorted(opened) != sorted(closed):
                faults.append(f"{where(nb, cell)} has unbalanced braces or environments")
    return faults


def equation_tags(nb):
    """The numbers of the equations, in order."""
    return [t for c in markdown_cells(nb) for t in re.findall(r"\\tag\{([^}]*)\}", prose(c.source))]


def myst_only(nb):
    """Markdown that Jupyter, Colab and GitHub would show raw."""
    faults = []
    for cell in markdown_cells(nb):
        shown = FENCE.sub("", cell.source)
        for what, rule in MYST_ONLY.items():
            text = cell.source if what == "a directive" else shown
            if what in ("a footnote", "a substitution"):
                text = MATHS.sub("", prose(text))
            if re.search(rule, text, re.MULTILINE):
                faults.append(f"{where(nb, cell)} holds {what}, which only the site understands")
    return faults


def exercises(nb):
    """``(number, text up to the next exercise)`` of every exercise."""
    text = "\n\n".join(cell.source for cell in markdown_cells(nb))
    parts = re.split(r"^> *\*\*Exercise (\d+\.\d+)[.:]?\*\*", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def exercise_faults(nb, chapter):
    """Each exercise says difficulty, minutes, kind; it has its chapter's number, a solution."""
    faults = []
    numbers = [number for number, _ in exercises(nb)]
    if len(set(numbers)) < len(numbers):
        faults.append("an exercise number occurs twice")
    for number, text in exercises(nb):
        if int(number.split(".")[0]) != chapter:
            faults.append(f"exercise {number} is numbered for another chapter")
        if not re.match(rf" *\(difficulty [1-5] of 5, \d+ min, (?:{KINDS})\)\.", text):
            faults.append(f"exercise {number} does not state difficulty, minutes and kind")
        folded = SOLUTION.search(text)
        if folded is None or len(folded[1].split()) < 3:
            faults.append(f"exercise {number} has no folded solution")
    return faults


# --- figures --------------------------------------------------------------------------------------


def image_outputs(cell):
    """How many images a code cell shows."""
    datas = [output.get("data", {}) for output in cell.outputs]
    return sum(any(mime.startswith("image/") for mime in data) for data in datas)


def alt_texts(nb):
    """``(cell, alternative text)`` of every code cell that shows an image."""
    return [
        (cell, cell.metadata.get("mystnb", {}).get("image", {}).get("alt", ""))
        for cell in code_cells(nb)
        if image_outputs(cell)
    ]


def figure_faults(nb):
    """One figure per cell, each described for those who cannot see it."""
    faults = []
    for cell, alt in alt_texts(nb):
        if image_outputs(cell) > 1:
            faults.append(f"{where(nb, cell)} shows several images; one per cell can be described")
        if len(alt) < MIN_ALT:
            faults.append(f"{where(nb, cell)} needs an image description of {MIN_ALT} characters")
    return faults


def repeated(values):
    """Values that occur more than once, in order."""
    return sorted({value for value in values if values.count(value) > 1})


# --- links and files ------------------------------------------------------------------------------


def links(nb):
    """``(cell, target)`` of every link and image in the Markdown cells."""
    found = []
    for cell in markdown_cells(nb):
        for token in MarkdownIt().parse(cell.source):
            for child in token.children or []:
                target = child.attrs.get("href") or child.attrs.get("src")
                if target:
                    found.append((cell, target))
        targets = re.findall(r"<(?:a|img)\b[^>]*?(?:href|src)=\"([^\"]+)\"", cell.source)
        found += [(cell, target) for target in targets]
    return found


def link_faults(nb, files):
    """Each relative link names one of ``files`` (posix paths from the root), in exact case."""
    faults = []
    for cell, target in links(nb):
        path = target.split("#")[0]
        if re.match(r"https://|mailto:", target) or not path:
            continue
        if resolved(path) not in files:
            faults.append(f"{where(nb, cell)} links to {target}, which does not exist")
    return faults


def resolved(path):
    """A path relative to the notebooks folder as a path from the root."""
    parts: list[str] = []
    for part in PurePosixPath("notebooks", path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def colab_faults(nb, expected):
    """Exactly one link opens a notebook in Colab, and it opens this one."""
    found = [t for c, t in links(nb) if "colab.research" in t or c.id == "colab-link"]
    return [] if found == [expected] else [f"Colab links are {found}, expected {[expected]}"]


def case_collisions(files):
    """Paths that are one and the same file on macOS and Windows."""
    return repeated([path.lower() for path in files])


# --- metadata -------------------------------------------------------------------------------------


def metadata_faults(nb):
    """The kernel is nobody's own, and widget state is complete or absent."""
    faults = []
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        faults.append("kernelspec is not python3")
    if nb.metadata.get("language_info", {}).get("name") != "python":
        faults.append("language is not python")
    for kind, value in nb.metadata.get("widgets", {}).items():
        if kind != WIDGET_STATE or not {"state", "version_major", "version_minor"} <= set(value):
            faults.append("widget metadata lacks state or version; GitHub shows an error page")
    return faults


# --- one source of truth --------------------------------------------------------------------------


def without_docstrings(tree):
    """The tree with docstrings removed everywhere."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = body[1:] or [ast.Pass()]
    return tree


def definitions(source):
    """``{name: tree as text}`` of the functions, classes and constants at the top of a module."""
    found = {}
    for node in without_docstrings(ast.parse(source)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = ast.dump(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id: ast.dump(node) for t in targets if isinstance(t, ast.Name)}
    return found


def library_definitions(root):
    """``{name: set of trees}`` over all modules of the library."""
    found: dict[str, set[str]] = {}
    for path in sorted(Path(root, "encoder_lib").glob("*.py")):
        for name, tree in definitions(path.read_text("utf-8")).items():
            found.setdefault(name, set()).add(tree)
    return found


def library_cells(nb):
    """The cells that show the library's own definitions."""
    return [cell for cell in code_cells(nb) if has_tag(cell, "library")]


def library_faults(nb, library):
    """What cells tagged ``library`` define is in the library, letter for letter, and not less."""
    faults = []
    for cell in library_cells(nb):
        found = definitions(cell.source)
        if not found:
            faults.append(f"{where(nb, cell)} is tagged library but defines nothing")
        for name, tree in found.items():
            if tree not in library.get(name, set()):
                faults.append(f"{where(nb, cell)}: {name} is not as in encoder_lib")
    return faults


def built(nb):
    """Names a chapter builds: what its library cells define."""
    return {name for cell in library_cells(nb) for name in definitions(cell.source)}


def borrowed(nb):
    """Names a chapter openly borrows: those in backticks in its **Borrowed.** callouts."""
    found = set()
    for cell in markdown_cells(nb):
        for callout in re.findall(r"^> *\*\*Borrowed\b.*(?:\n>.*)*", cell.source, re.MULTILINE):
            spans = re.findall(r"`([^`]+)`", callout)
            found |= {re.split(r"[(\s]", span)[0].split(".")[-1] for span in spans}
    return found


TOOLS = {"checks", "claims", "datasets", "plotting", "widgets"}
ALLOWED = {
    "encoder_lib.__version__",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
}
ALLOWED_BENEATH = "torch.nn.init."


def imported(tree):
    """``{name in the notebook: dotted origin}`` for every import."""
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.split(".")[0]
                origins[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


def dotted(node, origins):
    """The full dotted name an expression stands for, if it is one; else None."""
    if isinstance(node, ast.Name):
        return origins.get(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, origins)
        return base and f"{base}.{node.attr}"
    return None


def uses(nb):
    """Full dotted names from ``encoder_lib`` and ``torch.nn`` that a notebook's code uses."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(nb)))
    origins = imported(tree)
    names = set(origins.values())
    names |= {dotted(node, origins) or "" for node in ast.walk(tree)}
    return {n for n in names if n.startswith(("encoder_lib.", "torch.nn."))}


def needs_building(name, modules):
    """Whether a dotted name is a part the book builds, as opposed to a module or a tool."""
    parts = name.split(".")
    if name in ALLOWED or name.startswith(ALLOWED_BENEATH):
        return False
    if parts[0] == "torch":
        return True
    return parts[1] not in TOOLS and not (len(parts) == 2 and parts[1] in modules)


def outermost(names):
    """Drop names that lie beneath another one: a class's attribute is used with the class."""
    inner = {n for n in names if any(n.startswith(f"{m}.") for m in names)}
    return names - inner


def chapter_order_faults(nb, available, modules):
    """Names used that neither an earlier chapter built nor this one builds or says it borrows."""
    known = available | built(nb) | borrowed(nb)
    used = outermost({name for name in uses(nb) if needs_building(name, modules)})
    return [
        f"uses {name}, which no chapter so far builds and no **Borrowed.** callout names"
        for name in sorted(used)
        if name.split(".")[-1] not in known
    ]
