"""How nbval compares stored outputs with new ones: integers and words exactly, floats nearly.

The last digits of floating-point results differ between processors (measured: 1e-7 at the start of
a training run, 3e-5 after 100 steps). A change by hand too small for this is found by the digest
that ``tools/notebooks.py --check`` compares.
"""

import math
import os
import re
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  (the font cache is built here, not in a notebook)
from nbval.plugin import IPyNbCell

RTOL, ATOL = 1e-3, 2e-4
FLOAT = re.compile(r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)")
ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
# The kernels import the encoder_lib that stands beside these notebooks.
os.environ["PYTHONPATH"] = os.pathsep.join(
    path for path in (str(ROOT), os.environ.get("PYTHONPATH")) if path
)


class Approximate(str):
    """Text that equals another text when all but the floats is equal and the floats are near."""

    def __eq__(self, other):
        if str.__eq__(self, other):
            return True
        ours, theirs = FLOAT.findall(self), FLOAT.findall(other)
        return self._frame() == Approximate(other)._frame() and all(
            math.isclose(float(a), float(b), rel_tol=RTOL, abs_tol=ATOL)
            for a, b in zip(ours, theirs, strict=True)
        )

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__

    def _frame(self) -> str:
        """What stands around the floats; the width of blanks follows the digits of a column."""
        return re.sub(r"\s+", " ", FLOAT.sub("#", self))


def _sanitize(cell, text, _original=IPyNbCell.sanitize):
    clean = _original(cell, text)
    return Approximate(clean) if isinstance(clean, str) else clean


IPyNbCell.sanitize = _sanitize


def pytest_collectstart(collector):
    """Leave stderr to the tests that forbid it: a new library version may add a warning."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
