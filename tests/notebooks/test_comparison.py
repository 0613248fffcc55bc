"""The comparison really compares: tampered and stale notebooks fail, rounding does not."""

import functools
import re
import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

import notebooks
import outputs
import project

SHOWN = "loss 0.7312 after 150 steps, shape [2, 7, 8]"


def stream(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def toy(source=f"print({SHOWN!r})", outputs=None, count=1, tags=()):
    """A notebook of one cell, stored as if it had shown ``outputs``."""
    shown = [stream(SHOWN + "\n")] if outputs is None else outputs
    cell = new_code_cell(source, outputs=shown, execution_count=count, metadata={"tags": tags})
    kernel = {"kernelspec": dict(notebooks.KERNEL), "language_info": dict(notebooks.LANGUAGE)}
    return new_notebook(cells=[cell], metadata=kernel)


def saying(text):
    return toy(outputs=[stream(text + "\n")])


def value(source, shown):
    data = {"text/plain": shown}
    return toy(source, [new_output("execute_result", data=data, execution_count=1)])


def expected_error(tags):
    error = new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])
    return toy("raise ValueError('no')", [error], tags=tags)


WARNS = "import warnings; warnings.warn('old'); print(1)"
LABEL = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.set_xlabel('k');"
FIGURE = "import matplotlib.pyplot as plt\n_ = plt.figure(figsize=(1, 1))\nplt.show()"
PNG = new_output("display_data", data={"image/png": "AAAA", "text/plain": "<Figure size 100x100>"})

PASSING = {
    "same": toy(),
    "last_digits": saying(SHOWN.replace("0.7312", "0.7315")),
    "column_width": saying(SHOWN.replace("loss ", "loss  ")),
    "other_address": value("object()", "<object at 0x7f0123456789>"),
    "warning_not_compared": toy(WARNS, [stream("1\n")]),
    "error_expected": expected_error(["raises-exception"]),
    "stripped_is_not_compared": toy(outputs=[], count=None),  # hence the check of run order
    "exponent": toy("print('3e-07')", [stream("3.1e-07\n")]),
}
FAILING = {
    "tampered_float": saying(SHOWN.replace("0.7312", "0.7512")),
    "tampered_integer": saying(SHOWN.replace("150", "151")),
    "tampered_shape": saying(SHOWN.replace("7, 8", "8, 8")),
    "tampered_word": saying(SHOWN.replace("loss", "cost")),
    "fewer_numbers": saying(SHOWN.replace("0.7312 ", "")),
    "not_shown_any_more": toy("x = 1"),
    "shown_but_not_stored": toy(outputs=[]),
    "error_not_expected": expected_error([]),
    "hidden_by_semicolon": toy(LABEL, []),  # why a trailing semicolon is forbidden
    "no_figure_any_more": toy("x = 1", [PNG]),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Outcome of every toy notebook, from one pytest run with the project's settings."""
    folder = tmp_path_factory.mktemp("toys")
    shutil.copy(project.ROOT / "notebooks/conftest.py", folder)
    for name, nb in {**PASSING, **FAILING}.items():
        nbformat.write(nb, folder / f"{name}.ipynb")
    report = project.run_nbval(folder).stdout
    found = re.findall(r"^(PASSED|FAILED) (\w+)\.ipynb::", report, re.MULTILINE)
    return {name: outcome for outcome, name in found}


@pytest.mark.parametrize("name", PASSING)
def test_equal_or_nearly_equal_passes(name, results):
    assert results[name] == "PASSED"


@pytest.mark.parametrize("name", FAILING)
def test_changed_output_fails(name, results):
    assert results[name] == "FAILED"


# --- the digest and the rules for stored outputs --------------------------------------------------


def sealed(nb):
    """``nb`` with the digest of what it holds."""
    nb.metadata.encoder_book = {"outputs_sha256": outputs.digest(nb)}
    return nb


def faults(nb):
    return outputs.notebook_faults(nb, project.ROOT)


def test_an_untouched_notebook_has_no_faults():
    assert faults(sealed(toy())) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda cell: cell.outputs[0].update(text=SHOWN.replace("0.7312", "0.7313") + "\n"),
        lambda cell: cell.outputs.append(PNG),
        lambda cell: cell.outputs.clear(),
    ],
)
def test_the_smallest_edit_of_an_output_is_found(edit):
    nb = sealed(toy())
    edit(nb.cells[0])
    assert "changed after they were made" in "\n".join(faults(nb))


def test_an_edit_of_an_image_or_of_widget_state_is_found():
    nb = sealed(toy(FIGURE, [nbformat.from_dict(PNG)]))
    nb.cells[0].outputs[0].data["image/png"] = "AAAB"
    assert faults(nb) != []
    nb = sealed(toy())
    nb.metadata.widgets = {outputs.WIDGET_STATE: {"state": {}}}
    assert faults(nb) != []


@pytest.mark.parametrize("count", [None, 2])
def test_cells_not_run_in_order_are_found(count):
    assert "in order" in "\n".join(faults(sealed(toy(count=count))))


def html(text):
    return new_output("display_data", data={"text/html": text, "text/plain": "x"})


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (stream("anything", name="stderr"), "stderr"),
        (stream("file.py:3: UserWarning: old"), "a warning"),
        (stream("Matplotlib is building the font cache"), "a warning"),
        (stream("<Line2D at 0x7f0123456789>"), "a memory address"),
        (html("<pre>&lt;x at 0x7F0123456789&gt;</pre>"), "a memory address"),
        (stream("<encoder_lib.Explorer object at somewhere>"), "without a readable text"),
        (stream("saved in /home/me/book/x.pt"), "an absolute path"),
        (stream("'/tmp/tmpab12/x'"), "an absolute path"),
        (stream("File ~/book/encoder_lib/masks.py:3"), "an absolute path"),
        (stream(r"C:\Users\me\x.pt"), "an absolute path"),
        (stream(f"ipykernel_{4711}/1.py"), "an absolute path"),
        (html('<img src="/usr/share/x.png">'), "an absolute path"),
        (stream(f"in {project.ROOT}"), "folder of this checkout"),
        (stream("40%|####      | 4/10"), "a progress bar"),
        (stream("12.3 it/s"), "a progress bar"),
        (new_output("error", ename="E", evalue="v", traceback=[]), "not tagged raises-exception"),
    ],
)
def test_outputs_that_must_not_be_stored_are_found(output, message):
    assert message in "\n".join(faults(sealed(toy(outputs=[output]))))


@pytest.mark.parametrize(
    "output",
    [
        stream("a/b, and/or, 1/2, x /y, https://example.org/home/x, 100 %, word/usr/"),
        stream("0x1f is 31; the warning is that 3 < 4"),
        html('<img src="data:image/png;base64,0xabcdef0123/tmp/AAAA">'),
    ],
)
def test_harmless_outputs_may_be_stored(output):
    assert faults(sealed(toy(outputs=[output]))) == []


# --- one real notebook ----------------------------------------------------------------------------


@functools.cache
def quickest():
    """The real notebook that runs fastest."""
    seconds = notebooks.timings()
    return min(notebooks.names(), key=lambda name: seconds[name])


FLOAT = re.compile(r"\d+\.\d+")


def first_float(nb):
    """The first stored output whose text holds a float other than zero."""
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            match = FLOAT.search(output.get("text", ""))
            if match and float(match[0]) > 0.01:
                return output, match
    raise AssertionError("no printed float in this notebook")


def edited(factor):
    """The quickest real notebook with its first printed float multiplied by ``factor``."""
    nb = nbformat.read(notebooks.stored_path(quickest()), as_version=4)
    output, match = first_float(nb)
    digits = len(match[0].split(".")[1])
    number = f"{float(match[0]) * factor:.{digits}f}"
    if number == match[0]:
        number += "1"
    output.text = output.text[: match.start()] + number + output.text[match.end() :]
    return nb


def test_one_tampered_number_in_a_real_notebook_fails(tmp_path):
    shutil.copy(project.ROOT / "notebooks/conftest.py", tmp_path)
    nbformat.write(edited(factor=1.5), tmp_path / "tampered.ipynb")
    report = project.run_nbval(tmp_path).stdout
    assert len(re.findall(r"^PASSED tampered", report, re.MULTILINE)) > 5
    assert len(re.findall(r"^FAILED tampered", report, re.MULTILINE)) == 1


def test_a_change_below_the_tolerance_in_a_real_notebook_is_found_by_the_digest():
    assert "changed after they were made" in "\n".join(faults(edited(factor=1.00001)))


def test_a_changed_constant_of_the_library_fails(tmp_path):
    copy = project.copy(tmp_path / "copy", only=("encoder_lib/", "notebooks/conftest.py"))
    (copy / "encoder_lib/constant.py").write_text("STEPS = 150\n")
    nb = toy("from encoder_lib.constant import STEPS\nprint(STEPS)", [stream("150\n")])
    nbformat.write(nb, copy / "notebooks/prints.ipynb")
    assert project.run_nbval(copy / "notebooks").returncode == 0
    (copy / "encoder_lib/constant.py").write_text("STEPS = 151\n")
    assert project.run_nbval(copy / "notebooks").returncode == 1
