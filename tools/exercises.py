"""The exercises of a notebook: what is asked, what is to be written, and the folded solution.

A Markdown cell may hold several exercises with their solutions. ``pieces`` cuts such cells, so that
each statement, stub and solution has a cell of its own; the copies for a course are made from them.
"""

import ast
import copy
import re
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode

TEXT, CODE, STATEMENT, STUB, SOLUTION = "text", "code", "statement", "stub", "solution"
HEAD = re.compile(
    r"> *\*\*Exercise (?P<number>\d+\.\d+)[.:]?\*\*"
    r"(?: *\(difficulty (?P<difficulty>[1-5]) of 5, (?P<minutes>\d+) min(?:, *(?P<kind>\w+))?\))?"
)
DETAILS = r"<details>\s*<summary>[^<]*[Ss]olution[^<]*</summary>"
FOLDED = re.compile(rf"{DETAILS}(?P<inside>.*?)</details>", re.DOTALL)
CUT = re.compile(rf"({DETAILS}.*?</details>)|^(?=> *\*\*Exercise \d)", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```python\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


class BadExercise(ValueError):
    """An exercise is not in the form that CONTRIBUTING.md describes; the message names it."""


@dataclass(frozen=True)
class Piece:
    """One cell with one role; ``number`` is the exercise's, empty outside of exercises."""

    cell: NotebookNode
    role: str
    number: str = ""


@dataclass(frozen=True)
class Exercise:
    """One exercise. ``stub`` is the code cell's source, empty for a model-answer exercise."""

    number: str
    difficulty: int
    minutes: int
    kind: str
    statement: str
    stub: str
    solution: str

    @property
    def slug(self) -> str:
        """The number as part of an identifier: 3-5."""
        return self.number.replace(".", "-")

    @property
    def answer(self) -> str:
        """The first block of Python in the solution."""
        return next(iter(FENCE.findall(self.solution)), "")

    @property
    def call(self) -> str:
        """The call of the checker as source, the last statement of the stub's cell."""
        return ast.unparse(checker_call(self))

    @property
    def checker(self) -> str:
        """The checker's name in ``encoder_lib.checks``."""
        return checker_call(self).func.attr

    @property
    def target(self) -> str:
        """The name the reader is to define."""
        return defined_name(ast.parse(self.stub).body[0])


# --- cutting --------------------------------------------------------------------------------------


def markdown(source: str, like: NotebookNode | None = None) -> NotebookNode:
    """A Markdown cell; it keeps id and metadata of ``like``."""
    cell = nbformat.v4.new_markdown_cell(source.strip())
    if like is not None:
        cell.id, cell.metadata = like.get("id", cell.id), copy.deepcopy(like.metadata)
    return cell


def cut_markdown(cell: NotebookNode, number: str) -> list[Piece]:
    """The pieces of one Markdown cell; ``number`` is the exercise that is open before it."""
    found = []
    for part in CUT.split(cell.source):
        if not part or not part.strip():
            continue
        if folded := FOLDED.fullmatch(part.strip()):
            found.append(Piece(markdown(folded["inside"], cell), SOLUTION, number))
        elif head := HEAD.match(part):
            number = head["number"]
            found.append(Piece(markdown(part, cell), STATEMENT, number))
        else:
            found.append(Piece(markdown(part, cell), TEXT))
    return found


def pieces(nb: NotebookNode) -> list[Piece]:
    """All cells of a notebook in order, as copies, cut so that each has one role."""
    found: list[Piece] = []
    number = ""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            found += cut_markdown(cell, number)
            number = next((p.number for p in reversed(found) if p.number), "")
        elif "exercise" in cell.metadata.get("tags", []):
            found.append(Piece(copy.deepcopy(cell), STUB, number))
        else:
            found.append(Piece(copy.deepcopy(cell), CODE))
    return found


def exercises(nb: NotebookNode) -> list[Exercise]:
    """The exercises of a notebook, in order.

    Raises: BadExercise for one without a solution or without difficulty and minutes.
    """
    parts: dict[str, dict[str, str]] = {}
    for piece in pieces(nb):
        if piece.number:
            roles = parts.setdefault(piece.number, {})
            roles[piece.role] = "\n\n".join(
                filter(None, [roles.get(piece.role), piece.cell.source])
            )
    return [assemble(number, roles) for number, roles in parts.items()]


def assemble(number: str, roles: dict[str, str]) -> Exercise:
    """One exercise from the text of its pieces."""
    head = HEAD.match(roles.get(STATEMENT, ""))
    if head is None or head["difficulty"] is None:
        raise BadExercise(f"exercise {number} does not state difficulty and minutes")
    if SOLUTION not in roles:
        raise BadExercise(f"exercise {number} has no folded solution")
    return Exercise(
        number=number,
        difficulty=int(head["difficulty"]),
        minutes=int(head["minutes"]),
        kind=head["kind"] or "",
        statement=roles[STATEMENT],
        stub=roles.get(STUB, ""),
        solution=roles[SOLUTION],
    )


# --- stubs ----------------------------------------------------------------------------------------


def defined_name(node: ast.stmt) -> str:
    """The name that a definition or an assignment binds; empty for anything else."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def checker_call(exercise: Exercise) -> ast.Call:
    """The call ``checks.NAME(...)`` that ends the stub's cell.

    Raises: BadExercise when the cell is not one definition followed by that call.
    """
    body = ast.parse(exercise.stub).body
    call = body[-1].value if len(body) == 2 and isinstance(body[-1], ast.Expr) else None
    named = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    if not named or not defined_name(body[0]) or ast.unparse(call.func.value) != "checks":
        raise BadExercise(
            f"exercise {exercise.number}: its code cell must be one definition and checks.NAME(...)"
        )
    return call


def is_ellipsis(node: ast.stmt) -> bool:
    """Whether a statement is ``...``."""
    return isinstance(node, ast.Expr) and getattr(node.value, "value", None) is Ellipsis
