"""Every folded solution is run after its chapter, and every claim it makes is asserted in it."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
DETAILS = re.compile(r"<details>.*?</details>", re.S)
CODE = re.compile(r"```python\n(.*?)```", re.S)


def solutions(notebook):
    """The code blocks of the folded solutions, in order."""
    markdown = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [code for text in markdown for d in DETAILS.findall(text) for code in CODE.findall(d)]


def run_after(notebook, blocks):
    """Execute the code cells of the notebook and then the blocks; an error is raised."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = cells + [nbformat.v4.new_code_cell(block) for block in blocks]
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_folded_solution_runs_after_its_chapter(name):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    blocks = solutions(notebook)
    assert len(blocks) >= 3, "a chapter has at least three exercises with code in the solution"
    run_after(notebook, blocks)


def test_a_wrong_solution_is_noticed():
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell("x = 1"),
        nbformat.v4.new_markdown_cell("<details>\n\n```python\nassert x == 2\n```\n\n</details>"),
    ]
    with pytest.raises(Exception, match="AssertionError"):
        run_after(notebook, solutions(notebook))
