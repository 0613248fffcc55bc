"""Every chapter has folded solutions with code. ``tests/tools/test_alone.py`` runs them."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import exercises
from solutions import with_solutions

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def asserting(exercise):
    """The blocks that have to assert something: not what is handed in, which its check looks at."""
    return exercises.FENCE.findall(exercise.solution)[bool(exercise.stub) :]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_solutions_to_run(name):
    found = exercises.exercises(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4))
    with_code = [e for e in found if e.stub or asserting(e)]
    blocks = [block for exercise in found for block in asserting(exercise)]
    assert len(with_code) >= 3, "a chapter has at least three exercises with code in the solution"
    assert sum("assert" in block for block in blocks) >= len(blocks) - 1, "solutions assert"


def example(solution):
    notebook = nbformat.v4.new_notebook()
    folded = f"<details>\n\n```python\n{solution}\n```\n\n</details>"
    cells = [nbformat.v4.new_code_cell("x = 1"), nbformat.v4.new_markdown_cell(folded)]
    notebook.cells = cells
    return with_solutions(notebook)


def test_a_right_solution_runs_after_its_chapter():
    notebook = example("assert x == 1\nprint('solved')")
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert notebook.cells[-1].outputs[0].text == "solved\n"


def test_a_wrong_solution_is_noticed():
    with pytest.raises(Exception, match="AssertionError"):
        NotebookClient(example("assert x == 2"), timeout=60, kernel_name="python3").execute()
