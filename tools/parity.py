"""Make the page of the parity ladder from a run of its tests.

    python tools/parity.py

Runs ``tests/unit/test_torch_parity.py``, whose cases write down the errors they measured, and
stores them as ``book/parity.md``. Nothing on that page is typed by hand; a test compares it with
a fresh run.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from ladder import BOUNDS, LADDER, MODES, PADDINGS  # noqa: E402

PAGE = ROOT / "book" / "parity.md"
DTYPES = [str(dtype)[6:] for dtype in BOUNDS]
WORDS = {
    "whole": "no padding (B = 2, L = 5)",
    "padded": "two padded tokens in one sentence (B = 2, L = 5)",
    "B = L": "ragged, as many sentences as tokens (B = L = 3), where a mask of the wrong shape "
             "would broadcast in silence",
}  # fmt: skip


def recorded() -> list[list]:
    """Run the tests; one ``[piece, dtype, mode, padding, forward, gradient]`` per case."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.jsonl")
        command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p",
                   "no:cacheprovider", "tests/unit/test_torch_parity.py"]  # fmt: skip
        environment = {**os.environ, "PARITY_RECORD": str(record), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        return [json.loads(line) for line in record.read_text("utf-8").splitlines()]


def number(error: float) -> str:
    """Two significant digits; an error of exactly 0 is said as such."""
    return "0" if error == 0 else f"{error:.1e}"


def worst(rows: list[list], piece: str, dtype: str) -> tuple[float, float]:
    """The largest forward and gradient error of a piece in one dtype."""
    found = [row for row in rows if row[0] == piece and row[1] == dtype]
    return max(row[4] for row in found), max(row[5] for row in found)


def summary(rows: list[list]) -> list[str]:
    """One line per rung: the largest errors over all its cases, output first."""
    lines = ["| piece and its twin | float32 | float64 |", "|---|---|---|"]
    links = {path.name[:2]: path.name for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    for rung in LADDER:
        link = f"[chapter {rung.chapter}](../notebooks/{links[rung.chapter]})"
        errors = [map(number, worst(rows, rung.piece, dtype)) for dtype in DTYPES]
        cells = [f"**{rung.piece}**<br>{rung.reference}; {link}", *map("<br>".join, errors)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def every_case(rows: list[list]) -> list[str]:
    """One line per case, in the order in which they ran."""
    lines = ["| piece | case | output | gradients |", "|---|---|---|---|"]
    for piece, dtype, mode, padding, forward, gradient in rows:
        case = f"{dtype}, {mode}, {padding}"
        cells = [piece, case, number(forward), number(gradient)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page(rows: list[list]) -> str:
    """The whole page."""
    bounds = " and ".join(f"{bound:g} in {str(dtype)[6:]}" for dtype, bound in BOUNDS.items())
    paddings = [f"- {padding}: {WORDS[padding]}" for padding in PADDINGS]
    return "\n".join([
        "# Parity ladder",
        "",
        "Every piece of the encoder stands here beside its twin in PyTorch. Both get the same "
        "weights (random, biases and norms included) and the same input; then outputs, the "
        "gradient of the input and the gradient of every parameter are compared.",
        "",
        f"The largest difference may be {bounds}. A difference is divided by the largest entry of "
        "its tensor where that exceeds 1. The gradients come from random upstream gradients at "
        "real positions; what stands in the padding is compared nowhere, because torch itself "
        "gives different numbers there in different modes (chapter 09).",
        "",
        f"Each number is the largest of {len(rows) // len(LADDER) // len(DTYPES)} cases: "
        f"{' and '.join(MODES)} mode (with dropout 0), each with",
        "",
        *paddings,
        "",
        "`MultiHeadAttention` has two paths, so it has two rungs. With weights asked for, the "
        "weights of each head are compared too. A 0 means equal in every bit: the same operations "
        "in the same order. The upper number is the output's, the lower one the gradients'.",
        "",
        *summary(rows),
        "",
        f"Measured by `tests/unit/test_torch_parity.py` with torch {torch.__version__} on "
        f"{platform.machine()}, one thread, by `make parity`. The last digits depend on the "
        "processor; `make test` asserts the bounds anew and that these numbers are of the same "
        "size.",
        "",
        "Two things have no twin. A sentence of padding alone gives NaN in "
        "`nn.MultiheadAttention` and zeros here, and a `float16` model has no reference of its "
        "own. Both are tested against the contract instead (chapters 04 and 09).",
        "",
        ":::{dropdown} All cases",
        "",
        *every_case(rows),
        "",
        ":::",
        "",
    ])  # fmt: skip


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(recorded()), "utf-8")
    print(f"{PAGE.relative_to(ROOT)}: stored")


if __name__ == "__main__":
    main()
