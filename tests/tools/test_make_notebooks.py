"""``tools/notebooks.py`` on small books made for the purpose."""

import json
import re

import nbformat
import pytest

import notebooks
import outputs
import project

TITLE = "# %% [markdown]\n# # Toy\n#\n# *Time:* {{ time }}.\n"


@pytest.fixture
def book(tmp_path):
    """A function that writes a book whose only notebook has the given cells; returns its root."""
    project.copy(tmp_path, only=("_config.yml",))

    def write(*cells):
        (tmp_path / "notebooks/src").mkdir(parents=True, exist_ok=True)
        source = "\n".join([TITLE, *(f"# %%{cell}\n" for cell in cells)])
        (tmp_path / "notebooks/src/01_toy.py").write_text(source, "utf-8")
        return tmp_path

    return write


def stored(root):
    return nbformat.read(root / "notebooks/01_toy.ipynb", as_version=4)


def as_bytes(root):
    return (root / "notebooks/01_toy.ipynb").read_bytes()


# --- from source to cells -------------------------------------------------------------------------


def test_generated_cells_follow_the_title(book):
    nb = notebooks.build("01_toy", book("\nx = 1"))
    assert [cell.id for cell in nb.cells[1:3]] == ["colab-link", "bootstrap"]
    assert [cell.cell_type for cell in nb.cells] == ["markdown", "markdown", "code", "code"]
    assert nb.cells[2].metadata.tags == nb.cells[1].metadata.tags == ["remove-cell"]
    assert nb.metadata == {"kernelspec": outputs.KERNEL, "language_info": outputs.LANGUAGE}


@pytest.mark.parametrize("address", ["https://book.invalid/x", "https://github.com/you/repo"])
def test_the_first_cell_is_short_in_either_state(address):
    link, bootstrap = notebooks.generated_cells("01_toy", address, "main")
    assert len(bootstrap.source.splitlines()) <= 6
    assert max(map(len, bootstrap.source.splitlines())) <= 100
    assert link.source.count("](http") == 1


def test_ids_do_not_change_when_a_cell_is_inserted(book):
    before = [c.id for c in notebooks.build("01_toy", book("\nx = 1", "\nx = 2", "\nx = 1")).cells]
    after = [c.id for c in notebooks.build("01_toy", book("\ny = 0", "\nx = 1", "\nx = 2")).cells]
    assert len(set(before)) == len(before)
    assert set(before) - set(after) == {before[-1]}
    assert before[-1] == f"{before[3]}-2"


def test_cell_metadata_survives(book):
    nb = notebooks.build("01_toy", book(' tags=["setup"] mystnb={"image": {"alt": "A."}}\nx = 1'))
    assert nb.cells[3].metadata == {"tags": ["setup"], "mystnb": {"image": {"alt": "A."}}}


def test_the_time_is_filled_in(book):
    root = book("\nx = 1")
    assert "about 5 min to read." in notebooks.build("01_toy", root).cells[0].source
    notebooks.keep_time("01_toy", 3.2, root)
    text = notebooks.build("01_toy", root).cells[0].source
    assert "about 5 min to read, 4 s to run on two CPU cores." in text


def test_reading_minutes_grow_with_prose_and_code():
    prose = nbformat.v4.new_markdown_cell("word " * 900)
    code = nbformat.v4.new_code_cell("x = 1\n" * 75)
    assert notebooks.reading_minutes([prose]) == 5
    assert notebooks.reading_minutes([prose, code]) == 10


def test_a_source_without_title_is_refused(book):
    root = book()
    (root / "notebooks/src/01_toy.py").write_text("# %%\nx = 1\n")
    with pytest.raises(notebooks.NotStorable, match="title"):
        notebooks.build("01_toy", root)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.3, 1), (9.1, 10), (10.2, 15), (59, 60), (61, 70), (100, 100)]
)
def test_seconds_are_rounded_up(seconds, shown):
    assert notebooks.rounded_up(seconds) == shown


def test_a_stored_time_changes_only_when_it_is_far_off(tmp_path):
    (tmp_path / "notebooks").mkdir()

    def stored_after(seconds):
        notebooks.keep_time("a", seconds, tmp_path)
        return notebooks.timings(tmp_path)["a"]

    assert stored_after(4) == 4
    assert stored_after(9) == 4  # within 5 s
    assert stored_after(20) == 20
    assert stored_after(23) == 20  # within 40 %
    assert stored_after(32) == 35
    assert stored_after(22) == 35
    assert stored_after(19) == 20


def test_choosing_by_number_or_name(book):
    root = book()
    (root / "notebooks/src/02_other.py").write_text(TITLE)
    assert notebooks.chosen([], root) == ["01_toy", "02_other"]
    assert notebooks.chosen(["02"], root) == notebooks.chosen(["02_other"], root) == ["02_other"]
    with pytest.raises(SystemExit, match=r"no source called 3; there are: 01_toy, 02_other"):
        notebooks.chosen(["01", "3"], root)


# --- execution ------------------------------------------------------------------------------------

RICH = [
    ' tags=["setup"]\nimport os\nimport ipywidgets as W\nimport matplotlib.pyplot as plt',
    '\nprint("one")\nprint("two", flush=True)\nprint("three")',
    "\nos.path.basename(os.getcwd())",
    ' tags=["raises-exception"]\nos.path.join(1)',
    "\nfig, ax = plt.subplots(figsize=(2, 2), dpi=50)\n_ = ax.plot([0, 1])\nplt.show()",
    "\nW.HBox([W.IntSlider(value=3, description='position')])",
    ' tags=["nbval-ignore-output"]\nprint(os.getpid())',
]


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """A book with one output of every kind, made twice: (root, bytes of the first time)."""
    root = tmp_path_factory.mktemp("rich")
    project.copy(root, only=("_config.yml",))
    (root / "notebooks/src").mkdir(parents=True)
    source = "\n".join([TITLE, *(f"# %%{cell}\n" for cell in RICH)])
    (root / "notebooks/src/01_toy.py").write_text(source, "utf-8")
    notebooks.make("01_toy", root)
    first = as_bytes(root)
    notebooks.make("01_toy", root)
    return root, first


def test_making_it_again_gives_the_same_bytes(twice):
    root, first = twice
    assert as_bytes(root) == first


def test_what_was_just_made_passes_the_check(twice):
    assert notebooks.run_checks(["01_toy"], twice[0]) == []


def test_every_kind_of_output_is_stored_in_its_stable_form(twice):
    nb = stored(twice[0])
    lines, folder, error, figure, widget, _ = [cell.outputs for cell in nb.cells[4:]]
    assert [output.text for output in lines] == ["one\ntwo\nthree\n"]
    assert folder[0].data["text/plain"] == "'notebooks'"
    assert re.fullmatch(r"TypeError: [^\n]*", "\n".join(error[0].traceback))
    assert set(figure[0].data) == {"image/png", "text/plain"}
    ids = set(nb.metadata.widgets[outputs.WIDGET_STATE]["state"])
    assert ids == {f"{number:032x}" for number in range(len(ids))}
    assert widget[0].data["application/vnd.jupyter.widget-view+json"]["model_id"] in ids
    assert "execution" not in json.dumps([cell.metadata for cell in nb.cells])


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("\nimport random\nprint(random.random())", "something else in a second run"),
        ("\nprint({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})", "something else in a second run"),
        (
            "\nimport random\nimport matplotlib.pyplot as plt\n"
            "plt.figure(figsize=(1, 1)).add_axes([0, 0, random.random(), 1])\nplt.show()",
            "something else in a second run",
        ),
        ("\nimport warnings\nwarnings.warn('old')", "shows stderr"),
        ("\nimport os\nprint(os.__file__)", "an absolute path"),
        ("\nobject()", "a memory address"),
        ("\n1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_reproduced_is_not_stored(cell, reason, book):
    root = book("\nx = 1", cell)
    with pytest.raises(notebooks.NotStorable, match=reason) as refusal:
        notebooks.make("01_toy", root)
    assert "01_toy" in str(refusal.value)
    assert cell.strip().splitlines()[0] in str(refusal.value)
    assert not (root / "notebooks/01_toy.ipynb").exists()


def test_a_refusal_leaves_the_stored_notebook_as_it_was(twice, tmp_path, book):
    root = book("\n1 / 0")
    (root / "notebooks/01_toy.ipynb").write_bytes(twice[1])
    faults = notebooks.run(notebooks.make, ["01_toy"], root)
    assert len(faults) == 1
    assert as_bytes(root) == twice[1]


# --- check and sync -------------------------------------------------------------------------------


@pytest.fixture
def made(twice, tmp_path):
    """A fresh copy of the stored book."""
    for path in ("_config.yml", "notebooks/src/01_toy.py", "notebooks/timings.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((twice[0] / path).read_bytes())
    (tmp_path / "notebooks/01_toy.ipynb").write_bytes(twice[1])
    return tmp_path


def change_source(root, old, new):
    path = root / "notebooks/src/01_toy.py"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def change_stored(root, change):
    nb = stored(root)
    change(nb)
    nbformat.write(nb, root / "notebooks/01_toy.ipynb")


def set_source(index, text):
    def change(nb):
        nb.cells[index].source = text

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: change_source(root, "# Toy", "# Tiny"), "not what its source gives"),
        (lambda root: change_source(root, "three", "four"), "not what its source gives"),
        (lambda root: change_source(root, "[0, 1]", "[0, 1]\n# %%\nx = 1\n# %%"), "cells"),
        (lambda root: change_stored(root, set_source(4, "print(1)")), "not what its source gives"),
        (lambda root: change_stored(root, set_source(1, "[x](y)")), "not what its source gives"),
        (lambda root: change_stored(root, lambda nb: nb.cells.pop()), "cells"),
        (lambda root: change_stored(root, lambda nb: nb.cells[4].metadata.update(a=1)), "source"),
        (lambda root: change_stored(root, lambda nb: nb.metadata.update(a=1)), "metadata"),
        (lambda root: change_stored(root, lambda nb: nb.metadata.kernelspec.update(name="me")),
         "metadata"),
        (lambda root: (root / "notebooks/01_toy.ipynb").unlink(), "never stored"),
        (lambda root: (root / "notebooks/src/01_toy.py").rename(root / "notebooks/src/02_x.py"),
         "no source"),
    ],
)  # fmt: skip
def test_the_check_finds(change, message, made):
    change(made)
    assert message in "\n".join(notebooks.run_checks(notebooks.names(made), made))


def test_sync_renews_generated_cells_and_keeps_outputs(made):
    before = stored(made)
    config = made / "_config.yml"
    text = re.sub(r"(?m)^  url: \S+", "  url: https://github.com/a/b", config.read_text("utf-8"))
    config.write_text(text, "utf-8")
    notebooks.sync("01_toy", made)
    after = stored(made)
    assert "/github/a/b/blob/main/notebooks/01_toy.ipynb)" in after.cells[1].source
    assert "git+https://github.com/a/b" in after.cells[2].source
    assert after.cells[3:] == before.cells[3:]
    assert notebooks.check("01_toy", made) == []


def test_the_command_line_reports_by_exit_code(made):
    project.copy(made, only=("tools/",))
    command = [project.sys.executable, made / "tools/notebooks.py", "--check"]
    assert project.run(*command).returncode == 0
    change_stored(made, set_source(4, "print(1)"))
    failed = project.run(*command, "01")
    assert failed.returncode == 1
    assert "01_toy: cell 5 ('print(1)') is not what its source gives" in failed.stderr
