"""The project as a set of files, for tests that look at all of it or work on a copy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {".git", ".venv", "_build", "__pycache__", ".ipynb_checkpoints", "node_modules"}


def files(root: Path = ROOT) -> list[str]:
    """Paths of all files that are tracked or could be, relative to ``root``, with slashes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        paths = [path for path in listed.stdout.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive, or no git
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        paths = [path.as_posix() for path in found if not NOT_OURS & set(path.parts)]
    return sorted(path for path in paths if (root / path).is_file())


def copy(to: Path, *, only: tuple[str, ...] = ("",)) -> Path:
    """Copy the project, or the paths beginning with one of ``only``, into the folder ``to``."""
    for path in files():
        if path.startswith(only):
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, to / path)
    return to


def run(*command: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    """Run a command and keep what it prints; never raises for its exit code."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def run_nbval(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess:
    """Compare the notebooks in ``folder`` as the project does, in a pytest of its own."""
    return run(
        sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-rA", "--nbval",
        "--nbval-current-env", "--nbval-cell-timeout=300",
        f"--nbval-sanitize-with={root / 'tests/sanitize.cfg'}", "--rootdir", folder, ".",
        cwd=folder,
    )  # fmt: skip
