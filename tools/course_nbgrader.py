"""An nbgrader course: one assignment per chapter, made from the chapter's exercises.

An auto-checked exercise becomes a locked statement, an answer cell and a cell of tests that calls
the book's own check. A model-answer exercise becomes a cell of text that is graded by hand.
"""

import ast
import shutil
import textwrap
from pathlib import Path

from nbformat import NotebookNode

import exercises
import notebooks
from course_assets import TEMPLATES, code_style, mathjax
from course_copies import as_notebook, code, relinked
from exercises import BadExercise, Exercise, is_ellipsis, markdown

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB_LINE = "...  # your code here"
PRELUDE = """\
import math
import torch
from torch import nn
from torch.nn import functional as F
from encoder_lib import checks
torch.set_num_threads(1)"""
HOW = """\
# Exercises: {title}

Run the next two cells first. Where a cell holds `...  # your code here`, replace that line; the \
cell below it checks your answer and says what it found. The checks are all there is, none is \
hidden: what passes here passes when it is graded. Where a cell says *your answer*, write a few \
sentences; these are read by a person. If you need the objects of the chapter, work in the \
chapter's notebook and bring the result here."""
CONFIG = f'''\
"""Settings of the nbgrader course of the book; made by `make course`."""

from pathlib import Path

import nbgrader
from nbconvert.exporters import HTMLExporter


class BookFeedback(HTMLExporter):
    """The pages of feedback; a class of its own leaves the other pages of nbgrader alone."""


HERE = Path(__file__).resolve().parent
FORMGRADER = Path(nbgrader.__file__).parent / "server_extensions/formgrader"
TEMPLATES = FORMGRADER / "templates"

c = get_config()  # noqa: F821  # nbgrader defines it
c.CourseDirectory.course_id = "transformer-encoder"
c.ClearSolutions.code_stub = {{"python": "{STUB_LINE}"}}
c.ClearSolutions.text_stub = "*Your answer:*"
c.ExecutePreprocessor.timeout = 120  # seconds a cell may take
c.GenerateFeedback.exporter_class = BookFeedback
c.BookFeedback.template_name = "book_feedback"
c.BookFeedback.extra_template_basedirs = [str(HERE / "templates"), str(TEMPLATES)]
c.BookFeedback.extra_template_paths = [
    str(TEMPLATES),
    str(FORMGRADER / "static/components/bootstrap/css"),
]
'''
README = """\
An nbgrader course made from the book "The Transformer Encoder from Scratch".

Copy this folder to a place of your own before you begin: "make clean" deletes it, and "make course"
writes source/ anew. Activate the environment of the book (". .venv/bin/activate" in the book's
folder), go into your copy, and work there. NAME is an assignment, for example
{example}.

  1. nbgrader generate_assignment NAME
     makes release/NAME/NAME.ipynb, the copy without answers. Hand out this file.
  2. Put what comes back into submitted/STUDENT/NAME/NAME.ipynb. STUDENT is a name that you choose,
     without spaces; the file must be called as it was handed out.
  3. nbgrader autograde NAME
     runs the checks and gives their points, some seconds a submission. It leaves out what is graded
     already; for a file that came again add --force.
  4. jupyter lab
     Menu Nbgrader, Formgrader: read the answers in words and give their points. Until then they
     count 0; an answer that was left empty stays at 0.
  5. nbgrader generate_feedback NAME --force
     makes feedback/STUDENT/NAME/NAME.html, one file that needs no network.
  6. nbgrader export
     writes the points of all students into grades.csv, one line for each assignment.

"nbgrader validate source/NAME/NAME.ipynb" runs the checks on the model answers.
source/ holds these answers, and so does gradebook.db: keep both to yourself. The points are the
difficulty of the exercise. A submission runs code that somebody else wrote: grade where it can do
no harm.
"""


def marked(cell: NotebookNode, grade_id: str, points: int | None = None, **flags) -> NotebookNode:
    """The cell with nbgrader's metadata: ``flags`` are grade, solution, locked."""
    settings = {"grade": False, "solution": False, "locked": False, "task": False, **flags}
    settings |= {"grade_id": grade_id, "schema_version": 3, "cell_type": cell.cell_type}
    if points is not None:
        settings["points"] = points
    cell.metadata = {"nbgrader": settings}
    return cell


# --- answers --------------------------------------------------------------------------------------


def body_without_docstring(node: ast.stmt) -> list[ast.stmt]:
    """The statements of a definition, its docstring left out."""
    has_docstring = ast.get_docstring(node) is not None
    return node.body[1:] if has_docstring else node.body


def first_line(node: ast.stmt) -> int:
    """The line a statement begins on, decorators included, from 0."""
    decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
    return min([node.lineno, *decorators]) - 1


def same(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements are the same code."""
    return ast.dump(one) == ast.dump(other)


class Filler:
    """Puts the body of a solution into its stub, between the marks that nbgrader looks for."""

    def __init__(self, stub: str, solution: str):
        self.stub, self.solution = stub.splitlines(), solution.splitlines()

    def between_marks(self, node: ast.stmt, body: list[ast.stmt], column: int) -> list[str]:
        """The solution's lines for ``body``, the tail of the body of ``node``, between marks."""
        before = node.body[: len(node.body) - len(body)]
        if body[0].lineno == node.lineno:  # def f(x): return x
            lines = [ast.unparse(statement) for statement in body]
        else:
            start = before[-1].end_lineno if before else self.header_end(node, body[0])
            lines = self.solution[start : body[-1].end_lineno]
        lines = textwrap.dedent("\n".join(lines)).strip("\n").split("\n")
        return [" " * column + line if line else "" for line in [BEGIN, *lines, END]]

    def header_end(self, node: ast.stmt, first: ast.stmt) -> int:
        """The line after the header of a definition, where comments before its body begin."""
        at = first_line(first)
        while at > node.lineno and self.solution[at - 1].strip().startswith("#"):
            at -= 1
        return at

    def fill(self, stub: ast.stmt, solution: ast.stmt) -> list[str]:
        """The lines of ``stub`` with the solution in place of each ``...``."""
        mine, right = body_without_docstring(stub), body_without_docstring(solution)
        hole = next((at for at, node in enumerate(mine) if is_ellipsis(node)), None)
        if hole is None:
            return self.fill_members(stub, mine, right)
        if not all(map(same, mine[:hole], right)) or len(right) <= hole:
            raise BadExercise(f"the solution of {stub.name} does not begin as its stub does")
        if hole + 1 < len(mine):
            raise BadExercise(f"the stub of {stub.name} goes on after its ...")
        kept = self.stub[first_line(stub) : first_line(mine[hole])]
        return kept + self.between_marks(solution, right[hole:], mine[hole].col_offset)

    def fill_members(self, stub, mine: list[ast.stmt], right: list[ast.stmt]) -> list[str]:
        """A class whose methods are stubs: each is filled by the method of the same name."""
        lines = self.stub[first_line(stub) : first_line(mine[0])]
        theirs = {node.name: node for node in right if isinstance(node, ast.FunctionDef)}
        for node in mine:
            if node is not mine[0]:
                lines.append("")
            if getattr(node, "name", None) not in theirs:
                raise BadExercise(f"{stub.name}: the solution lacks what the stub has")
            lines += self.fill(node, theirs.pop(node.name))
        if theirs:
            raise BadExercise(f"{stub.name}: the solution has methods that its stub lacks")
        return lines


def answer_source(exercise: Exercise) -> str:
    """The answer cell: the stub with the solution in it, between nbgrader's marks.

    Raises: BadExercise when stub and solution do not fit each other.
    """
    exercises.checker_call(exercise)  # raises when the stub's cell has another form
    stub, solution = ast.parse(exercise.stub).body[0], ast.parse(exercise.answer).body
    if not solution or exercises.defined_name(solution[-1]) != exercise.target:
        raise BadExercise(f"exercise {exercise.number}: its solution does not end with the "
                          f"definition of {exercise.target}")  # fmt: skip
    if isinstance(stub, ast.Assign):  # the stub stays, so that the name exists in the release
        line = exercise.stub.splitlines()[first_line(stub) : stub.end_lineno]
        return "\n".join([*line, BEGIN, exercise.answer.strip(), END])
    if len(solution) > 1:
        raise BadExercise(f"exercise {exercise.number}: its solution defines more than one name")
    return "\n".join(Filler(exercise.stub, exercise.answer).fill(stub, solution[0]))


def test_source(exercise: Exercise) -> str:
    """The cell of tests: the book's check, its report, and a failure that carries the diagnosis."""
    return f"report = {exercise.call}\nprint(report)\nassert report.passed, report.diagnosis"


def cells(exercise: Exercise) -> list[NotebookNode]:
    """The cells of one exercise in an assignment's source."""
    name = f"exercise-{exercise.slug}"
    statement = relinked(markdown(exercise.statement))
    found = [marked(statement, f"{name}-statement", locked=True)]
    points = exercise.difficulty
    if not exercise.stub:
        model = relinked(markdown(exercise.solution))
        return [*found, marked(model, f"{name}-answer", points, grade=True, solution=True)]
    answer, tests = code(answer_source(exercise)), code(test_source(exercise))
    found.append(marked(answer, f"{name}-answer", solution=True))
    return [*found, marked(tests, f"{name}-tests", points, grade=True, locked=True)]


# --- the course -----------------------------------------------------------------------------------


def chapter_title(nb: NotebookNode) -> str:
    """The text of the chapter's title."""
    return nb.cells[0].source.splitlines()[0].lstrip("# ").strip()


def assignment(nb: NotebookNode) -> NotebookNode:
    """The source of one assignment, model answers included."""
    bootstrap = [cell.source for cell in nb.cells if cell.get("id") == notebooks.BOOTSTRAP_ID]
    made = [marked(markdown(HOW.format(title=chapter_title(nb))), "how-to-work", locked=True)]
    made += [marked(code(source), "find-the-library", locked=True) for source in bootstrap]
    made.append(marked(code(PRELUDE), "prelude", locked=True))
    for exercise in exercises.exercises(nb):
        made += cells(exercise)
    return as_notebook(made)


def write_templates(folder: Path) -> None:
    """Write the template of the feedback into ``folder``, MathJax and colours included."""
    shutil.copytree(TEMPLATES / "nbgrader", folder, dirs_exist_ok=True)
    made = folder / "book_feedback"
    (made / "mathjax.js").write_text(mathjax(), "utf-8")
    (made / "code.css").write_text(code_style("div.highlight"), "utf-8")


def write(chapters: dict[str, NotebookNode], folder: Path) -> None:
    """Write the course into ``folder``: settings, README.txt, template, one source per chapter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, "utf-8")
    (folder / "README.txt").write_text(README.format(example=next(iter(chapters))), "utf-8")
    write_templates(folder / "templates")
    for name, nb in chapters.items():
        path = folder / "source" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebooks.as_text(assignment(nb)), "utf-8")
