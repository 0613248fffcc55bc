"""What a copy for students must not hold: text of solutions, marks, outputs, foreign metadata."""

import ast
import json
import re

import exercises
from course_slides import sentences

SHORTEST = 25  # characters of a line or sentence that is looked for
MARKS = ("BEGIN SOLUTION", "END SOLUTION", "<summary>Solution", "</details>")
NOTEBOOK_KEYS = {"kernelspec", "language_info"}
CELL_KEYS = {"tags", "mystnb", "nbgrader", "deletable", "editable"}
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")


def squeezed(text):
    """The text with every run of white space as one space."""
    return " ".join(text.split())


def fragments(solution):
    """The lines of code and the sentences of prose of a solution, as far as they are long."""
    parts = exercises.FENCE.split(solution)
    lines = [line for block in parts[1::2] for line in block.splitlines()]
    paragraphs = [p for text in parts[::2] for p in re.split(r"\n\s*\n", text)]
    found = lines + [s for paragraph in paragraphs for s in sentences(paragraph)]
    return [f for f in map(squeezed, found) if len(f) >= SHORTEST]


def secrets(chapter):
    """The fragments of all solutions that stand nowhere else in the chapter."""
    pieces = exercises.pieces(chapter)
    public = squeezed("\n".join(p.cell.source for p in pieces if p.role != exercises.SOLUTION))
    found = [f for p in pieces if p.role == exercises.SOLUTION for f in fragments(p.cell.source)]
    return [fragment for fragment in found if fragment not in public]


def readable(notebook):
    """All text of a notebook: sources, outputs, metadata."""
    parts = [cell.source for cell in notebook.cells]
    parts += [
        _strings(cell.get("outputs", [])) + _strings(cell.metadata) for cell in notebook.cells
    ]
    return squeezed("\n".join([*parts, _strings(notebook.metadata)]))


def _strings(value):
    """Every string inside lists and dicts, one per line."""
    if isinstance(value, str):
        return value + "\n"
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "".join(map(_strings, inner))


# --- code, however short --------------------------------------------------------------------------


def statements(source):
    """``{form: text}`` of all statements in a source, nested ones included. Imports do not count:
    everybody writes the same ones."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return {}
    found = [node for node in nodes if isinstance(node, ast.stmt)]
    found = [node for node in found if not isinstance(node, ast.Import | ast.ImportFrom)]
    return {ast.dump(node): ast.unparse(node) for node in found}


def code_of(cell):
    """The pieces of code in a cell; in prose these are blocks and spans."""
    if cell.cell_type == "code":
        return [cell.source]
    return FENCED.findall(cell.source) + SPAN.findall(FENCED.sub("", cell.source))


def known(cells):
    """The forms of all statements in some cells."""
    return {form for cell in cells for source in code_of(cell) for form in statements(source)}


def secret_statements(exercise):
    """``{form: text}`` of what the solution of an auto-checked exercise adds to its stub."""
    given = statements(exercise.stub)
    return {f: s for f, s in statements(exercise.answer).items() if f not in given}


def defines(cell, name):
    """Whether a code cell gives ``name`` a meaning."""
    try:
        body = ast.parse(cell.source).body if cell.cell_type == "code" else []
    except SyntaxError:
        return False
    return name in map(exercises.defined_name, body)


def code_leaks(copy, chapter):
    """Statements of solutions in ``copy``. What the chapter shows anywhere is no secret, except
    where the answer belongs."""
    public = known([p.cell for p in exercises.pieces(chapter) if p.role != exercises.SOLUTION])
    found = []
    for exercise in filter(lambda e: e.stub, exercises.exercises(chapter)):
        secret = secret_statements(exercise)
        for cell in copy.cells:
            shown = known([cell]) - (set() if defines(cell, exercise.target) else public)
            found += [f"solution: {exercise.number} {secret[f]}" for f in shown & set(secret)]
    return found


# --- all of it ------------------------------------------------------------------------------------


def leaks(copy, chapter):
    """Why ``copy`` may not be given to students; empty when it may."""
    text, raw = readable(copy), json.dumps(copy, ensure_ascii=False)
    found = [f"solution: {fragment}" for fragment in secrets(chapter) if fragment in text]
    found += code_leaks(copy, chapter)
    found += [f"mark: {mark}" for mark in MARKS if mark in raw]
    found += [f"metadata: {key}" for key in copy.metadata if key not in NOTEBOOK_KEYS]
    for cell in copy.cells:
        if cell.get("outputs") or cell.get("execution_count") is not None:
            found.append(f"output: {cell.source[:40]}")
        found += [f"cell metadata: {key}" for key in cell.metadata if key not in CELL_KEYS]
    return found


def missing(copy, chapter):
    """What an instructor's copy lacks: fragments of solutions, outputs."""
    text = readable(copy)
    found = [f"solution: {fragment}" for fragment in secrets(chapter) if fragment not in text]
    kept = [cell.outputs for cell in copy.cells if cell.get("outputs")]
    wanted = [cell.outputs for cell in chapter.cells if cell.get("outputs")]
    return found + [f"output: {str(o)[:60]}" for o in wanted if o not in kept]
