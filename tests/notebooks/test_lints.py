"""Every rule finds its bad example, and nothing in a good notebook."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import lints
import outputs

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
ALT = "A line that rises from zero on the left to one on the right."
EXERCISE = """\
> **Exercise 1.1** (difficulty 2 of 5, 5 min, implement). How many rows?

<details>
<summary>Solution</summary>

One row per word.

</details>"""


def code(source, tags=(), outputs=(), **metadata):
    if tags:
        metadata["tags"] = list(tags)
    return new_code_cell(source, metadata=metadata, outputs=list(outputs))


def figure(count=1, alt=ALT):
    images = [new_output("display_data", data={"image/png": PNG}) for _ in range(count)]
    return code("plt.show()", outputs=images, mystnb={"image": {"alt": alt}})


def notebook(*cells, title="# Title"):
    """A notebook that no rule objects to, with ``cells`` added (strings are Markdown)."""
    first = code("import importlib.util")
    first.id = "bootstrap"
    setup = code("import torch\ntorch.set_num_threads(1)", tags=["setup"])
    added = [new_markdown_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    nb = new_notebook(cells=[new_markdown_cell(title), first, setup, *added])
    nb.metadata = nbformat.from_dict(
        {"kernelspec": dict(outputs.KERNEL), "language_info": dict(outputs.LANGUAGE)}
    )
    return nb


GOOD = notebook(
    "## Part\n\nIt costs $2^{n}$ steps, `$x` is code, \\$5 is money.\n\n$$\na \\tag{1.1}\n$$",
    "### Detail\n\n[next](02_next.ipynb#part) and [words](../book/glossary.md)\n\n" + EXERCISE,
    "```python\nx = '$'; y = '{ref}`no`'\n```\n\n$\\begin{matrix}1\\end{matrix}$",
    code("x = 1\nprint(x, ';')  # a comment; more"),
    figure(),
)
FILES = {"notebooks/02_next.ipynb", "book/glossary.md"}

RULES = {
    "first": lints.first_code_cell,
    "long": lints.long_cells,
    "semicolon": lints.trailing_semicolons,
    "code": lints.forbidden_code,
    "thread": lints.one_thread,
    "headings": lints.heading_faults,
    "maths": lints.maths_faults,
    "myst": lints.myst_only,
    "exercises": lambda nb: lints.exercise_faults(nb, chapter=1),
    "figures": lints.figure_faults,
    "links": lambda nb: lints.link_faults(nb, FILES),
    "metadata": lints.metadata_faults,
}


@pytest.mark.parametrize("rule", RULES)
def test_a_good_notebook_passes(rule):
    assert RULES[rule](GOOD) == []


def without_threads():
    nb = notebook(code("from torch import nn"))
    nb.cells[2].source = "import torch"
    return nb


def own_first_cell(source):
    nb = notebook()
    nb.cells[1].source = source
    return nb


def with_metadata(**changes):
    nb = notebook()
    nb.metadata = nbformat.from_dict({**nb.metadata, **changes})
    return nb


def late_bootstrap():
    nb = notebook()
    nb.cells[1], nb.cells[2] = nb.cells[2], nb.cells[1]
    return nb


WIDGETS = "application/vnd.jupyter.widget-state+json"
BAD = [
    ("first", own_first_cell("\n".join(["x = 1"] * 7)), "7 lines"),
    ("first", late_bootstrap(), "before the first cell"),
    ("long", notebook(code("\n".join(["x = 1"] * 16))), "16 lines"),
    (
        "long",
        notebook(*[code("\n".join(["x = 1"] * 12)) for _ in range(3)]),
        "half of the code cells",
    ),
    ("long", notebook(code("x = " + "1" * 97)), "more than 100 characters"),
    ("semicolon", notebook(code("ax.set_xlabel('k');")), "semicolon"),
    ("semicolon", notebook(code("ax.set_xlabel('k');  # hides the value")), "semicolon"),
    ("code", notebook(code("matplotlib.use('TkAgg')")), "backend"),
    ("code", notebook(code("open('../data/x.txt')")), "relative"),
    ("code", notebook(code("!pip install -U encoder-lib")), "upgrades"),
    ("code", notebook(code("%pip install --force-reinstall x")), "upgrades"),
    ("code", notebook(code("output.enable_custom_widget_manager()")), "widget manager"),
    ("code", notebook(code("os.chdir('..')")), "working directory"),
    ("thread", without_threads(), "set_num_threads"),
    ("headings", notebook("# Second title"), "2 titles"),
    ("headings", notebook("### Too deep"), "skips a level"),
    ("headings", notebook(title="Text first\n\n# Title"), "begin with its title"),
    ("maths", notebook("The price is $x."), "unbalanced $"),
    ("maths", notebook("$$\nx"), "unbalanced $"),
    ("maths", notebook("$\\frac{1}{2$"), "braces"),
    ("maths", notebook("$$\\begin{align}x$$"), "environments"),
    ("myst", notebook("```{note}\nx\n```"), "a directive"),
    ("myst", notebook(":::{note}\nx\n:::"), "a colon fence"),
    ("myst", notebook("See {ref}`part`."), "a role"),
    ("myst", notebook("(part)=\n## Part"), "a label"),
    ("myst", notebook("A claim.[^1]"), "a footnote"),
    ("myst", notebook("$$\nx\n$$ (eq-x)"), "an equation label"),
    ("myst", notebook("{{ time }}"), "a substitution"),
    ("exercises", notebook(EXERCISE.split("<details>")[0]), "no folded solution"),
    ("exercises", notebook(EXERCISE.replace("One row per word.", "")), "no folded solution"),
    ("exercises", notebook(EXERCISE.split("<details>")[0], EXERCISE), "occurs twice"),
    ("exercises", notebook(EXERCISE.replace("1.1", "2.1")), "another chapter"),
    ("exercises", notebook(EXERCISE.replace(", 5 min", "")), "difficulty, minutes and kind"),
    ("exercises", notebook(EXERCISE.replace("implement", "ponder")), "minutes and kind"),
    ("figures", notebook(figure(alt="")), "description"),
    ("figures", notebook(figure(alt="Heat map")), "description"),
    ("figures", notebook(figure(count=2)), "several images"),
    ("links", notebook("[next](02_Next.ipynb)"), "does not exist"),
    ("links", notebook("[words](book/glossary.md)"), "does not exist"),
    ("links", notebook('<a href="03_none.ipynb">x</a>'), "does not exist"),
    ("links", notebook("![plot](plot.png)"), "does not exist"),
    ("links", notebook("[x](http://example.org)"), "does not exist"),
    ("metadata", with_metadata(kernelspec={"name": "my-conda-env-py"}), "kernelspec"),
    ("metadata", with_metadata(language_info={"name": "julia"}), "language"),
    ("metadata", with_metadata(widgets={WIDGETS: {"abc": {}}}), "widget metadata"),
]


@pytest.mark.parametrize(("rule", "nb", "message"), BAD)
def test_each_rule_finds_its_fault(rule, nb, message):
    assert message in "\n".join(RULES[rule](nb))


def test_every_rule_has_a_bad_example():
    assert {rule for rule, _, _ in BAD} == set(RULES)


def test_library_cells_may_be_long():
    assert lints.long_cells(notebook(code("\n".join(["x = 1"] * 40), tags=["library"]))) == []


def test_equation_tags_are_read_from_maths_only():
    nb = notebook("$$ x \\tag{1.1} $$ and `\\tag{9.9}`", "$$ y \\tag{1.2} $$")
    assert lints.equation_tags(nb) == ["1.1", "1.2"]
    assert lints.repeated(["1.1", "1.2", "1.1"]) == ["1.1"]


def test_case_collisions():
    assert lints.case_collisions(["a/B.md", "a/b.md", "c.md"]) == ["a/b.md"]


def test_colab_link_must_be_one_and_its_own():
    own = "https://colab.research.google.com/github/you/repo/blob/main/notebooks/01_a.ipynb"
    other = own.replace("01_a", "02_b")
    assert lints.colab_faults(notebook(f"[Colab]({own})"), own) == []
    for text in ("none", f"[Colab]({other})", f"[Colab]({own}) [again]({own})"):
        assert lints.colab_faults(notebook(text), own) != []


# --- one source of truth --------------------------------------------------------------------------

LIBRARY = '''
BASE = 10_000.0

def scaled(x):
    """Shape (B, L)."""
    return x * BASE

class Part:
    """Says something."""

    def forward(self, x):
        """More words."""
        return scaled(x)
'''


@pytest.fixture
def library(tmp_path):
    (tmp_path / "encoder_lib").mkdir()
    (tmp_path / "encoder_lib/part.py").write_text(LIBRARY)
    return lints.library_definitions(tmp_path)


def library_cell(source):
    return notebook(code(source, tags=["library"]))


def test_library_cells_equal_the_library_but_for_docstrings_and_layout(library):
    shown = "def scaled(x):\n    # grows\n    return (x * BASE)\n\nBASE = 10000.0"
    assert lints.library_faults(library_cell(shown), library) == []
    part = "class Part:\n    def forward(self, x):\n        return scaled(x)"
    assert lints.library_faults(library_cell(part), library) == []


@pytest.mark.parametrize(
    "source",
    [
        "BASE = 1000.0",
        "def scaled(x):\n    return BASE * x",
        "def scaled(x, y=1):\n    return x * BASE",
        "def unknown(x):\n    return x",
        "class Part:\n    def forward(self, x):\n        return x",
        "print('nothing defined')",
    ],
)
def test_library_cells_that_drifted_are_found(source, library):
    assert lints.library_faults(library_cell(source), library) != []


MODULES = {"claims", "embedding", "masks", "datasets", "plotting", "text"}


def order_faults(*cells, available=frozenset()):
    return lints.chapter_order_faults(notebook(*cells), set(available), MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "from encoder_lib import InputEmbedding",
        "from encoder_lib.embedding import InputEmbedding as E",
        "import encoder_lib\nencoder_lib.embedding.InputEmbedding(3, 4)",
        "from encoder_lib import embedding\nembedding.InputEmbedding(3, 4)",
        "from torch import nn\nnn.Linear(3, 4)",
        "import torch\ntorch.nn.Linear(3, 4)",
        "import torch.nn.functional as F\nF.softmax(x, -1)",
        "from torch.nn import Linear",
    ],
)
def test_parts_not_built_or_borrowed_are_found(source):
    assert len(order_faults(code(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from encoder_lib.datasets import load_gap",
        "from encoder_lib.claims import record\nrecord('B1', 'x', 1.0, 0, 2)",
        "from encoder_lib import plotting\nplotting.plot_attention(w)",
        "from torch import nn\nclass A(nn.Module):\n    pass\nnn.init.zeros_(nn.Parameter(x))",
        "import torch\ntorch.softmax(x, -1)",
    ],
)
def test_tools_and_bare_torch_are_free(source):
    assert order_faults(code(source)) == []


def test_parts_are_free_once_built_or_borrowed():
    use = code("from torch import nn\nfrom encoder_lib import scaled\nnn.Linear(scaled(2), 3)")
    assert len(order_faults(use)) == 2
    callout = (
        "> **Borrowed.** From torch, until chapter 06: `nn.Linear(in, out)`,\n> and `nn.GELU`."
    )
    assert order_faults(use, callout, available={"scaled"}) == []
    shown = code("def scaled(x):\n    return x", tags=["library"])
    assert order_faults(shown, use, callout) == []


def test_a_name_in_ordinary_prose_is_not_borrowed():
    use = code("from torch import nn\nnn.Linear(2, 3)")
    assert len(order_faults(use, "We use `nn.Linear` here.")) == 1
