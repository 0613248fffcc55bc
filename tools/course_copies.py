"""Copies of a chapter: one for students without solutions and outputs, one for instructors."""

import ast
import functools
import importlib
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import exercises
import notebooks
from exercises import SOLUTION, BadExercise, Exercise, Piece, markdown
from outputs import KERNEL, LANGUAGE

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = re.compile(r"(\]\()\.\./")  # a link that leaves the notebooks' folder
PROOF = "prove"


def as_notebook(cells: list[NotebookNode]) -> NotebookNode:
    """A notebook of these cells: stable ids, the book's kernel, nothing else in the metadata."""
    notebooks.set_ids(cells)
    metadata = {"kernelspec": dict(KERNEL), "language_info": dict(LANGUAGE)}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def code(source: str, *tags: str) -> NotebookNode:
    """A code cell that was not run."""
    cell = nbformat.v4.new_code_cell(source.strip())
    if tags:
        cell.metadata.tags = list(tags)
    return cell


def cleared(cell: NotebookNode) -> NotebookNode:
    """The cell without outputs and count, in place."""
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    return cell


@functools.cache
def pages_base(root: Path = ROOT) -> str:
    """Where links out of the notebooks' folder lead: the repository, or this checkout."""
    address, branch = notebooks.book_address(root)
    return f"{address}/blob/{branch}/" if notebooks.is_set(address) else "../../"


def relinked(cell: NotebookNode) -> NotebookNode:
    """The cell with links to the book's pages that work in the course's folder, in place."""
    if cell.cell_type == "markdown":
        cell.source = ELSEWHERE.sub(rf"\1{pages_base()}", cell.source)
    return cell


def kept(nb: NotebookNode) -> list[Piece]:
    """The pieces that both copies start from; Colab would open the chapter with its solutions."""
    return [p for p in exercises.pieces(nb) if p.cell.get("id") != notebooks.LINK_ID]


# --- for students ---------------------------------------------------------------------------------


def blank_answer(exercise: Exercise) -> list[NotebookNode]:
    """Where the answer to a model-answer exercise is written."""
    cells = [markdown(f"*Your answer to exercise {exercise.number}:*")]
    if exercise.kind != PROOF:
        cells.append(code(f"# Your code for exercise {exercise.number}."))
    return cells


def student(nb: NotebookNode) -> NotebookNode:
    """The chapter without solutions and outputs; a place for the answer stands where they were."""
    known = {exercise.number: exercise for exercise in exercises.exercises(nb)}
    cells = []
    for piece in kept(nb):
        if piece.role != SOLUTION:
            cells.append(relinked(cleared(piece.cell)))
        elif not known[piece.number].stub:
            cells += blank_answer(known[piece.number])
    return as_notebook(cells)


# --- for instructors ------------------------------------------------------------------------------


def unfolded(piece: Piece) -> list[NotebookNode]:
    """A solution as text and code cells, in order."""
    cells = [markdown(f"**Solution of exercise {piece.number}**")]
    for at, part in enumerate(exercises.FENCE.split(piece.cell.source)):
        if part.strip():
            cells.append(code(part, "solution") if at % 2 else markdown(part))
    return cells


def diagnoses(exercise: Exercise) -> list[str]:
    """What the check says about each typical wrong answer, mixtures of two mistakes left out.

    Raises: BadExercise when ``encoder_lib.checks`` does not know the exercise.
    """
    checks = importlib.import_module("encoder_lib.checks")
    if exercise.checker == "answer":
        number = ast.literal_eval(exercises.checker_call(exercise).args[0])
        if number in checks.ANSWERS:
            return [wrong["diagnosis"] for wrong in checks.ANSWERS[number].get("wrong", [])]
    elif exercise.checker in checks.EXERCISES:
        ideas = checks.EXERCISES[exercise.checker].misconceptions
        return list(dict.fromkeys(idea.diagnosis for idea in ideas if "+" not in idea.key))
    raise BadExercise(
        f"exercise {exercise.number}: encoder_lib.checks does not know {exercise.call}"
    )


def mistakes(exercise: Exercise) -> list[NotebookNode]:
    """The typical wrong answers to an auto-checked exercise, as one cell."""
    said = diagnoses(exercise)
    items = "\n".join(f"- {' '.join(text.split())}" for text in said)
    title = f"**Typical wrong answers to exercise {exercise.number}**, as the check names them:"
    return [markdown(f"{title}\n\n{items}")] if said else []


def instructor(nb: NotebookNode) -> NotebookNode:
    """The chapter with outputs, its solutions unfolded, and the typical wrong answers."""
    known = {exercise.number: exercise for exercise in exercises.exercises(nb)}
    cells = []
    for piece in kept(nb):
        if piece.role != SOLUTION:
            cells.append(relinked(piece.cell))
            continue
        cells += [relinked(cell) for cell in unfolded(piece)]
        if known[piece.number].stub:
            cells += mistakes(known[piece.number])
    copy = as_notebook(cells)
    if "widgets" in nb.metadata:
        copy.metadata.widgets = nb.metadata.widgets
    return copy
