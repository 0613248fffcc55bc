"""A small chapter with every kind of exercise, for the tests of ``make course``."""

import nbformat

TITLE = """\
# A small chapter

*You will be able to:* see what a course is made of.
*You need:* nothing. *Time:* none.

## How it begins

The first paragraph has a formula, $d_k = 64$, and ends here.

$$
x = 1 \\tag{3.1}
$$

> **Key idea.** A callout stands alone.

> **Borrowed.** `nothing` of this is shown."""

BEFORE = """\
## Exercises

> **Exercise 3.1** (difficulty 1 of 5, 5 min, explore). What is the sum of one and two?

<details>
<summary>Solution</summary>

The sum of these two small numbers is exactly three.

```python
assert sum([1, 2]) == 3, "one and two are three"
```

Addition of natural numbers does not depend on their order.

</details>

> **Exercise 3.5** (difficulty 3 of 5, 20 min, implement). Write attention."""

STUB = '''\
def my_attention(q, k, v, mask=None):
    """(..., L_q, d_k) and mask -> (output, weights)."""
    ...  # your code: return (output, weights)


checks.scaled_dot_product_attention(my_attention)'''

AFTER = """\
<details>
<summary>Solution</summary>

```python
def my_attention(q, k, v, mask=None):
    # Scores first, and the forbidden ones never win.
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        return (w := scores.softmax(-1)) @ v, w
    empty = ~mask.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~(mask | empty), -math.inf)
    weights = scores.softmax(-1).masked_fill(empty, 0.0)
    return weights @ v, weights
```

The forbidden scores become minus infinity before the softmax.

</details>

## Summary

- One line that says what was learnt.

## Sources

None that a slide should show."""


def code(source, *outputs, **metadata):
    """A code cell that was run; it printed ``outputs``."""
    shown = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in outputs]
    cell = nbformat.v4.new_code_cell(source, outputs=shown, execution_count=1)
    cell.metadata.update(metadata)
    return cell


def chapter():
    """The chapter as a stored notebook."""
    cells = [
        nbformat.v4.new_markdown_cell(TITLE),
        code("import math\nfrom encoder_lib import checks", tags=["setup"]),
        code("print('a printed line')", "a printed line\n"),
        nbformat.v4.new_markdown_cell(BEFORE),
        code(STUB, "not attempted yet\n", tags=["exercise"]),
        nbformat.v4.new_markdown_cell(AFTER),
    ]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    language = {"name": "python", "pygments_lexer": "ipython3"}
    metadata = {"kernelspec": kernel, "language_info": language, "encoder_book": {"x": "y"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)
