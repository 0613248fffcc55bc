"""Each notebook alone in an empty folder, in an environment that has torch but not the book.

The environment is a real one with a Python and a pip of its own. It holds only the packages named
in ``ALLOWED`` with what they need, as links to those installed here, so it takes a second to make
and no network. git is told to take the published address from a clone on this machine.

After the last cell of a chapter its folded solutions run in the same kernel; each asserts what it
claims (see also ``tests/notebooks/test_solutions.py``).
"""

import functools
import os
import re
import site
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement

import notebooks
import project
import publish
from solutions import with_solutions

URL = "https://github.com/you/repo"
ALLOWED = ["torch", "matplotlib", "ipywidgets", "numpy", "ipykernel", "pip", "setuptools"]
COLAB_STUB = "# stands for google.colab: only its presence matters\n"


@functools.cache
def closure():
    """The distributions of ``ALLOWED`` and all they require."""
    found, waiting = {}, list(ALLOWED)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in ALLOWED:
                raise
            continue  # required on another platform only
        needs = [Requirement(text) for text in found[name].requires or []]
        waiting += [
            need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        ]
    return list(found.values())


def bare_environment(folder):
    """An environment with the allowed packages; returns (its Python, its site-packages)."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    packages = Path(project.run(python, "-c", "import site; print(site.getsitepackages()[0])")
                    .stdout.strip())  # fmt: skip
    for installed in closure():
        for top in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
            source, target = Path(installed.locate_file(top)), packages / top
            if source.exists() and not target.exists():
                target.symlink_to(source)
    (packages / "google/colab").mkdir(parents=True, exist_ok=True)
    (packages / "google/colab/__init__.py").write_text(COLAB_STUB)
    return python, packages


def own_entries(packages):
    """What was really installed there, as opposed to linked."""
    names = {path.name for path in packages.iterdir() if not path.is_symlink()}
    return names - {"google", "__pycache__"}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A clone of the project after ``publish-to``: (its folder, settings that lead git to it)."""
    root = project.copy(tmp_path_factory.mktemp("published") / "clone")
    publish.publish(URL, root)
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "book"]):
        done = project.run(*git, *command, cwd=root)
        assert done.returncode == 0, done.stderr
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{root.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": URL,
        "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as --no-build-isolation
        "PIP_NO_INDEX": "1",
        "OMP_NUM_THREADS": "1",
    }
    return root, settings


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A bare environment, an empty home and an empty working folder."""
    for name in [n for n in os.environ if n.startswith(("PYTHON", "PIP_", "JUPYTER", "IPYTHON"))]:
        monkeypatch.delenv(name)
    for name in ("home", "empty"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    python, packages = bare_environment(tmp_path / "environment")
    return python, packages, tmp_path / "empty"


def first_cell(root, name):
    """The source of the first code cell."""
    return nbformat.read(notebooks.stored_path(name, root), as_version=4).cells[2].source


def run_alone(path, python, environment):
    """Execute a notebook in a kernel of the given Python, in the notebook's folder."""
    kernels = path.parent.parent / "jupyter/kernels/bare"
    kernels.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
    spec = {"argv": argv, "display_name": "bare", "language": "python"}
    (kernels / "kernel.json").write_text(notebooks.json.dumps(spec))
    os.environ["JUPYTER_PATH"] = str(kernels.parent.parent)
    nb = with_solutions(nbformat.read(path, as_version=4))
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(nb, timeout=600, kernel_name="bare", resources=resources)
    client.execute(env={**os.environ, **environment})
    return nb


@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_and_its_solutions_run_alone(name, published, bare, monkeypatch):
    root, settings = published
    python, packages, empty = bare
    monkeypatch.setenv("JUPYTER_PATH", "")  # restored afterwards
    assert "encoder_lib" not in {path.name for path in packages.iterdir()}
    alone = empty / f"{name}.ipynb"
    alone.write_bytes(notebooks.stored_path(name, root).read_bytes())
    nb = run_alone(alone, python, settings)
    assert nb.cells[2].outputs == []
    installed = own_entries(packages)
    assert {re.sub(r"-.*", "", entry) for entry in installed} == {"encoder_lib"}, installed
    assert [path.name for path in empty.iterdir()] == [alone.name]


def test_the_first_cell_twice_installs_once(published, bare):
    root, settings = published
    python, packages, empty = bare
    cell = first_cell(root, notebooks.names()[0])
    once = project.run(python, "-c", f"{cell}\nimport encoder_lib", cwd=empty, **settings)
    assert once.returncode == 0, once.stderr
    assert once.stdout == ""
    log = [(path, path.stat().st_mtime_ns) for path in sorted(packages.iterdir())]
    without_pip = "import subprocess\nsubprocess.run = None\n"
    twice = project.run(python, "-c", f"{without_pip}{cell}\n{cell}", cwd=empty, PATH="")
    assert twice.returncode == 0, twice.stderr
    assert log == [(path, path.stat().st_mtime_ns) for path in sorted(packages.iterdir())]


def test_the_running_numpy_and_torch_are_the_installed_ones(published, bare):
    root, settings = published
    python, _, empty = bare
    code = (
        "import numpy, torch\nbefore = numpy.__version__, torch.__version__\n"
        f"{first_cell(root, notebooks.names()[0])}\n"
        "from importlib.metadata import version\n"
        "print((version('numpy'), version('torch')) == before)"
    )
    done = project.run(python, "-c", code, cwd=empty, **settings)
    assert done.stdout.strip() == "True", done.stderr


def test_installing_the_library_pulls_nothing_else(published, bare):
    root, settings = published
    python, _, empty = bare
    wanted = [python, "-m", "pip", "install", "--dry-run", root]
    done = project.run(*wanted, cwd=empty, **settings)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^Would install (.*)", done.stdout, re.MULTILINE) == ["encoder-lib-0.1.0"]


@pytest.mark.parametrize("address", ["https://book.invalid/x", URL])
def test_at_home_the_first_cell_does_nothing(address, monkeypatch, tmp_path):
    def forbidden(*arguments, **options):
        raise AssertionError(f"called with {arguments}")

    for function in ("subprocess.run", "subprocess.Popen", "os.chdir", "os.system"):
        monkeypatch.setattr(function, forbidden)
    monkeypatch.setattr("socket.socket.connect", forbidden)
    source = notebooks.generated_cells("01_x", address, "main")[1].source
    for _ in range(2):
        exec(compile(source, "first cell", "exec"), {})


def test_without_an_address_the_first_cell_says_what_to_do(bare):
    python, packages, empty = bare
    source = notebooks.generated_cells("01_x", "https://book.invalid/x", "main")[1].source
    done = project.run(python, "-c", source, cwd=empty)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(r"ModuleNotFoundError: [^.]*'pip install --no-deps -e \.'[^.]*\.", last)
    assert own_entries(packages) == set()


def test_the_bare_environment_is_bare(bare):
    python, _, empty = bare
    for module in ("encoder_lib", "jupytext", "pytest", "jupyter_book"):
        assert project.run(python, "-c", f"import {module}", cwd=empty).returncode != 0
    code = "import torch, numpy, matplotlib, ipywidgets, sys; print(sys.prefix)"
    done = project.run(python, "-c", code, cwd=empty)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != sys.prefix
    assert site.getsitepackages()[0] not in done.stdout
