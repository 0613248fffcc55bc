"""Turn the sources ``notebooks/src/*.py`` into the executed notebooks ``notebooks/*.ipynb``.

    python tools/notebooks.py            execute every source and store what it shows
    python tools/notebooks.py 01 02      only these
    python tools/notebooks.py --check    execute nothing; exit 1 if a notebook is stale or edited

Every notebook runs twice, in fresh kernels. It is stored only when both runs show the same text
and images and nothing that belongs to one machine (paths, addresses, warnings), so the same source
gives the same bytes each time. The stored outputs are the book: the site, GitHub and Colab show
them.
"""

import argparse
import hashlib
import importlib
import json
import math
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from outputs import (
    KERNEL,
    LANGUAGE,
    differences,
    digest,
    keep_unstable_outputs,
    normalise,
    notebook_faults,
    output_faults,
    where,
)

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 300  # seconds
WORDS_PER_MINUTE, CODE_LINES_PER_MINUTE = 180, 15
COLAB = "https://colab.research.google.com"
LINK_ID, BOOTSTRAP_ID = "colab-link", "bootstrap"
BOOTSTRAP = """\
# Lets this notebook run alone (Colab, an empty folder); does nothing where the book is installed.
import importlib.util, subprocess, sys
if importlib.util.find_spec("encoder_lib") is None:
    pip_install = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps"]
    subprocess.run([*pip_install, "git+{address}"], check=True)
    importlib.invalidate_caches()"""
BOOTSTRAP_UNSET = """\
# Lets this notebook run alone (Colab, an empty folder); does nothing where the book is installed.
import importlib.util
if importlib.util.find_spec("encoder_lib") is None:
    raise ModuleNotFoundError("encoder_lib is not installed, and this book has no address to fetch "
                              "it from yet: run 'pip install --no-deps -e .' in its folder.")"""


class NotStorable(Exception):
    """A notebook must not be stored; the message names the cell and says why."""


# --- from source to cells -------------------------------------------------------------------------


def names(root: Path = ROOT) -> list[str]:
    """The notebooks that have a source, in order, without suffix."""
    return sorted(p.stem for p in (root / "notebooks/src").glob("*.py"))


def stored_path(name: str, root: Path = ROOT) -> Path:
    """Where the executed notebook is stored."""
    return root / "notebooks" / f"{name}.ipynb"


def book_address(root: Path = ROOT) -> tuple[str, str]:
    """Address and branch of the repository, from ``_config.yml``, the one place for them."""
    repository = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["repository"]
    return repository["url"], repository["branch"]


def is_set(address: str) -> bool:
    """Whether the book has a real address; until then it uses the reserved domain .invalid."""
    return ".invalid" not in address


def colab_url(name: str, address: str, branch: str) -> str:
    """The address that opens the notebook in Colab; before there is one, the file's address."""
    base = address.replace("https://github.com", f"{COLAB}/github")
    return f"{base}/blob/{branch}/notebooks/{name}.ipynb"


def generated_cells(name: str, address: str, branch: str) -> list[NotebookNode]:
    """The Colab link and the first code cell; they hold the address, so no source writes them."""
    code = BOOTSTRAP.format(address=address) if is_set(address) else BOOTSTRAP_UNSET
    text = f"[Open this notebook in Colab]({colab_url(name, address, branch)})"
    text += "" if is_set(address) else " (works once the book has an address)"
    link = nbformat.v4.new_markdown_cell(text, id=LINK_ID)
    bootstrap = nbformat.v4.new_code_cell(code, id=BOOTSTRAP_ID)
    link.metadata.tags, bootstrap.metadata.tags = ["remove-cell"], ["remove-cell"]
    return [link, bootstrap]


def set_ids(cells: list[NotebookNode]) -> None:
    """Give each cell a short hash of its source as id: inserting a cell changes no other id."""
    seen: dict[str, int] = {}
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def reading_minutes(cells: list[NotebookNode]) -> int:
    """Minutes to read prose and code, rounded up to 5."""
    words = sum(len(c.source.split()) for c in cells if c.cell_type == "markdown")
    lines = sum(len(c.source.splitlines()) for c in cells if c.cell_type == "code")
    return 5 * math.ceil((words / WORDS_PER_MINUTE + lines / CODE_LINES_PER_MINUTE) / 5)


def build(name: str, root: Path = ROOT, repository: tuple[str, str] | None = None) -> NotebookNode:
    """The notebook of a source, not executed: cells, ids, generated cells, metadata.

    ``repository`` is (address, branch) if it is to be another than the one in ``_config.yml``.
    """
    source = (root / "notebooks/src" / f"{name}.py").read_text("utf-8")
    cells = jupytext.reads(source, fmt="py:percent").cells
    if not cells or cells[0].cell_type != "markdown":
        raise NotStorable(f"{name}: the first cell must be Markdown and hold the title")
    for cell in cells:
        cell.metadata.pop("lines_to_next_cell", None)
    set_ids(cells)
    seconds = timings(root).get(name)
    run = "" if seconds is None else f", {seconds} s to run on two CPU cores"
    spent = f"about {reading_minutes(cells)} min to read{run}"
    cells[0].source = cells[0].source.replace("{{ time }}", spent)
    cells[1:1] = generated_cells(name, *(repository or book_address(root)))
    metadata = {"kernelspec": dict(KERNEL), "language_info": dict(LANGUAGE)}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


# --- measured times -------------------------------------------------------------------------------


def timings(root: Path = ROOT) -> dict[str, int]:
    """Measured seconds per notebook."""
    path = root / "notebooks/timings.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def rounded_up(seconds: float) -> int:
    """Whole seconds up to 10, then steps of 5, above a minute steps of 10."""
    step = 1 if seconds <= 10 else 5 if seconds <= 60 else 10
    return step * math.ceil(seconds / step)


def keep_time(name: str, seconds: float, root: Path = ROOT) -> None:
    """Store a measured time unless the stored one is near: a re-run must change nothing."""
    stored, new = timings(root), rounded_up(seconds)
    old = stored.get(name)
    if old is not None and abs(new - old) <= max(5, 0.4 * old):
        return
    stored[name] = new
    text = json.dumps(stored, indent=2, sort_keys=True) + "\n"
    (root / "notebooks/timings.json").write_text(text, "utf-8")


# --- execution ------------------------------------------------------------------------------------


def execute(nb: NotebookNode, root: Path = ROOT) -> float:
    """Run ``nb`` in a fresh kernel from the notebooks folder, in place; returns wall seconds."""
    env = {"OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    path = os.pathsep.join(p for p in (str(root), os.environ.get("PYTHONPATH")) if p)
    client = NotebookClient(
        nb,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=True,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],  # silences a warning about its own transport
        resources={"metadata": {"path": str(root / "notebooks")}},
    )
    start = time.monotonic()
    client.execute(env={**os.environ, **env, "PYTHONPATH": path})
    seconds = time.monotonic() - start
    normalise(nb)
    return seconds


# --- the commands ---------------------------------------------------------------------------------


def as_text(nb: NotebookNode) -> str:
    """The bytes of a notebook file: sorted keys, one space, final newline."""
    nbformat.validate(nb)
    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"


def make(name: str, root: Path = ROOT) -> None:
    """Execute one source twice and store it; ``NotStorable`` says why not."""
    first, second = build(name, root), build(name, root)
    try:
        seconds = min(execute(first, root), execute(second, root))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotStorable(f"{name}: {error}") from None
    code = [cell for cell in first.cells if cell.cell_type == "code"]
    faults = [f"{where(first, c)} {fault}" for c in code for fault in output_faults(c, root)]
    faults += differences(first, second)
    if faults:
        raise NotStorable("\n".join(f"{name}: {fault}" for fault in faults))
    keep_time(name, seconds, root)
    first.cells[0].source = build(name, root).cells[0].source
    keep_unstable_outputs(first, stored_path(name, root))
    first.metadata.encoder_book = {"outputs_sha256": digest(first)}
    stored_path(name, root).write_text(as_text(first), "utf-8")


def same_cells(built: NotebookNode, stored: NotebookNode) -> list[str]:
    """How the stored cells differ from those the source gives."""
    keys = ("cell_type", "id", "source", "metadata")
    if len(built.cells) != len(stored.cells):
        return [f"has {len(stored.cells)} cells, its source gives {len(built.cells)}"]
    return [
        f"{where(stored, b)} is not what its source gives"
        for a, b in zip(built.cells, stored.cells, strict=True)
        if any(a.get(key) != b.get(key) for key in keys)
    ]


def check(name: str, root: Path = ROOT) -> list[str]:
    """Faults of one stored notebook, found without executing it."""
    path = stored_path(name, root)
    if not path.exists():
        return ["was never stored"]
    built, stored = build(name, root), nbformat.read(path, as_version=4)
    faults = same_cells(built, stored) + notebook_faults(stored, root)
    if {k: v for k, v in stored.metadata.items() if k not in ("encoder_book", "widgets")} != (
        built.metadata
    ):
        faults.append("has metadata that this tool does not write")
    return faults


def orphans(root: Path = ROOT) -> list[str]:
    """Stored notebooks without a source."""
    stored = {path.stem for path in (root / "notebooks").glob("*.ipynb")}
    return sorted(stored - set(names(root)))


def synced(name: str, root: Path = ROOT, repository: tuple[str, str] | None = None) -> str:
    """A stored notebook as text, title and generated cells renewed; outputs and the rest stay."""
    stored = nbformat.read(stored_path(name, root), as_version=4)
    if [cell.id for cell in stored.cells[1:3]] != [LINK_ID, BOOTSTRAP_ID]:
        raise NotStorable(f"{name}: has no generated cells; run 'make notebooks'")
    renewed = build(name, root, repository).cells[:3]
    for old, new in zip(stored.cells[:3], renewed, strict=True):
        old.source, old.metadata, old.id = new.source, new.metadata, new.id
    return as_text(stored)


def sync(name: str, root: Path = ROOT) -> None:
    """Renew title and generated cells of a stored notebook without executing it."""
    stored_path(name, root).write_text(synced(name, root), "utf-8")


def chosen(wanted: list[str], root: Path = ROOT) -> list[str]:
    """The notebooks meant by ``wanted`` (numbers, beginnings or names); all when empty."""
    found = [n for n in names(root) if not wanted or any(n.startswith(w) for w in wanted)]
    if unknown := [w for w in wanted if not any(n.startswith(w) for n in found)]:
        sys.exit(f"no source called {', '.join(unknown)}; there are: {', '.join(names(root))}")
    return found


def run_checks(selected: list[str], root: Path = ROOT) -> list[str]:
    """Faults of the selected notebooks, and of stored ones without a source."""
    faults = [f"{name}: {fault}" for name in selected for fault in check(name, root)]
    return faults + [f"{name}: has no source in notebooks/src" for name in orphans(root)]


def run(action, selected: list[str], root: Path = ROOT) -> list[str]:
    """Do ``make`` or ``sync`` for each notebook and say so; a fault does not stop the others."""
    faults = []
    for name in selected:
        try:
            action(name, root)
            print(f"{name}: stored", flush=True)
        except NotStorable as error:
            faults.append(str(error))
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="numbers or names of sources; default all")
    parser.add_argument("--check", action="store_true", help="only compare, execute nothing")
    parser.add_argument("--sync-only", action="store_true", help="only renew the generated cells")
    options = parser.parse_args(arguments)
    selected = chosen(options.names)
    if options.check:
        faults = run_checks(selected)
    elif options.sync_only:
        faults = run(sync, selected)
    else:
        importlib.import_module("matplotlib.font_manager")  # its font cache prints when first built
        faults = run(make, selected)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
