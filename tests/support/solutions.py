"""The code of the folded solutions of a notebook."""

import re

import nbformat

DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def solutions(notebook) -> list[str]:
    """The code blocks of the folded solutions, in order."""
    markdown = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [code for text in markdown for d in DETAILS.findall(text) for code in CODE.findall(d)]


def with_solutions(notebook):
    """The notebook with its folded solutions as code cells at its end. Changes it in place."""
    notebook.cells += [nbformat.v4.new_code_cell(block) for block in solutions(notebook)]
    return notebook
