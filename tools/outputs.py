"""What a notebook may show: rules for stored outputs, and the form in which they are stored."""

import hashlib
import json
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}

FORBIDDEN = {
    "a warning": r"\b\w*Warning\b ?:|\bWARNING\b|building the font cache|frozen modules",
    "a memory address": r"\b0x[0-9a-fA-F]{6,}",
    "an object without a readable text": r"<[^<>\n]* object at",
    "an absolute path": (
        r"(?<![\w.:/])(?:/(?:home|root|tmp|usr|var|opt|etc|mnt|private|Users|content|workspace)/"
        r"|~/)|\b[A-Za-z]:\\+Users|ipykernel_\d+"
    ),
    "a progress bar": r"\d+%\|| ?\bit/s\b|\bs/it\b|\r|\b(?:Int|Float)Progress(?:Model)?\b",
}


def normalise(nb: NotebookNode) -> None:
    """Drop what changes from run to run: timing, kernel details, traceback frames, widget ids."""
    widgets = nb.metadata.get("widgets")
    nb.metadata = NotebookNode(kernelspec=dict(KERNEL), language_info=dict(LANGUAGE))
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [f"{output.ename}: {output.evalue}"]
    if widgets:
        nb.metadata.widgets = widgets
        renumber_widgets(nb)


def renumber_widgets(nb: NotebookNode) -> None:
    """Replace the random widget ids by numbers in order of creation."""
    text = json.dumps(nb)
    for number, old in enumerate(list(nb.metadata.widgets[WIDGET_STATE]["state"])):
        text = text.replace(old, f"{number:032x}")
    renumbered = nbformat.from_dict(json.loads(text))
    nb.cells, nb.metadata = renumbered.cells, renumbered.metadata


def digest(nb: NotebookNode) -> str:
    """SHA-256 over every stored output, images and widget state included."""
    outputs = [cell.outputs for cell in nb.cells if cell.cell_type == "code"]
    shown = json.dumps([outputs, nb.metadata.get("widgets")], sort_keys=True)
    return hashlib.sha256(shown.encode()).hexdigest()


def has_tag(cell: NotebookNode, tag: str) -> bool:
    """Whether the cell carries ``tag``."""
    return tag in cell.metadata.get("tags", [])


def where(nb: NotebookNode, cell: NotebookNode) -> str:
    """Name a cell so that its author finds it."""
    number = nb.cells.index(cell) + 1
    return f"cell {number} ({(cell.source.splitlines() or ['empty'])[0][:60]!r})"


def shown_text(output: NotebookNode) -> str:
    """Everything readable in an output, without embedded images."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join([output.ename, output.evalue, *output.traceback])
    mimes = {m: v for m, v in output.data.items() if not m.startswith("image/") or "svg" in m}
    texts = [v if isinstance(v, str) else json.dumps(v) for v in mimes.values()]
    return re.sub(r"data:[\w/+.-]+;base64,[\w+/=]+", "", "\n".join(texts))


def output_faults(cell: NotebookNode, root: Path) -> list[str]:
    """Why the outputs of a code cell must not be stored; empty when they may."""
    faults = []
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            faults.append("shows stderr")
        if output.output_type == "error" and not has_tag(cell, "raises-exception"):
            faults.append("shows an error but is not tagged raises-exception")
        text = shown_text(output)
        faults += [f"shows {what}" for what, rule in FORBIDDEN.items() if re.search(rule, text)]
        if str(root) in text:
            faults.append("shows the folder of this checkout")
    return faults


def notebook_faults(nb: NotebookNode, root: Path) -> list[str]:
    """All faults of the stored outputs: forbidden content, not run in order, wrong digest."""
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    faults = [f"{where(nb, c)} {fault}" for c in code for fault in output_faults(c, root)]
    if [c.execution_count for c in code] != list(range(1, len(code) + 1)):
        faults.append("not every code cell was run, once and in order")
    if nb.metadata.get("encoder_book", {}).get("outputs_sha256") != digest(nb):
        faults.append("stored outputs were changed after they were made")
    return faults


def differences(first: NotebookNode, second: NotebookNode) -> list[str]:
    """Cells whose outputs differ between two runs, those tagged nbval-ignore-output left out."""
    return [
        f"{where(first, a)} shows something else in a second run"
        for a, b in zip(first.cells, second.cells, strict=True)
        if a.get("outputs") != b.get("outputs") and not has_tag(a, "nbval-ignore-output")
    ]


def keep_unstable_outputs(nb: NotebookNode, path: Path) -> None:
    """Keep the stored outputs of nbval-ignore-output cells if all else is as stored already."""
    if not path.exists():
        return
    stored = nbformat.read(path, as_version=4)
    if [c.source for c in stored.cells] != [c.source for c in nb.cells] or differences(nb, stored):
        return
    for cell, old in zip(nb.cells, stored.cells, strict=True):
        if has_tag(cell, "nbval-ignore-output"):
            cell.outputs = old.outputs
