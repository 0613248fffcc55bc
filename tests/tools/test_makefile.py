"""The Makefile with stand-ins for Python, so that nothing is really installed."""

import os
import re
import shutil
import stat

import pytest

import project

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None and os.environ.get("CI") != "true",
    reason="make is not installed; the README's plain lines do not need it",
)

# A Python that notes what it is called with; what FAILS matches goes wrong.
PYTHON = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  {fails}) exit 1 ;;
  --version) echo "Python 3.9.2" ;;
  *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
exit 0
"""


@pytest.fixture
def book(tmp_path):
    """An empty book with the real Makefile, in a folder with a space in its name."""
    root = tmp_path / "my book"
    project.copy(root, only=("Makefile", "requirements", "pyproject.toml"))
    return root


def stand_in(book, fails="nothing"):
    """A fake ``python3``; returns its path. Its calls are noted beside it in ``log``."""
    folder = book.parent / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / "python3"
    path.write_text(PYTHON.format(log=folder / "log", fails=fails))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def calls(book):
    log = book.parent / "bin/log"
    return log.read_text().splitlines() if log.exists() else []


def make(book, *arguments, **environment):
    environment = {"MAKEFLAGS": "", "MAKELEVEL": "", **environment}
    return project.run(shutil.which("make"), *arguments, cwd=book, **environment)


def sentence(done):
    """The one sentence said when something is missing."""
    lines = [x for x in done.stderr.splitlines() if x and not re.match(r"g?make(\[\d\])?: ", x)]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize("target", ["book", "test"])
def test_a_missing_python_is_named(target, book, tmp_path):
    for done in (
        make(book, target, "PYTHON=no-such-python"),
        make(book, target, PATH=str(tmp_path)),
    ):
        assert done.returncode != 0
        assert sentence(done).startswith("Python is missing")
        assert "3.11" in sentence(done)
        assert not (book / ".venv").exists()


def test_an_old_python_is_named(book):
    done = make(book, "test", f"PYTHON={stand_in(book, fails='*version_info*')}")
    assert done.returncode != 0
    assert sentence(done).startswith("Python is too old (Python 3.9.2)")


def test_a_missing_venv_module_is_named(book):
    done = make(book, "book", f"PYTHON={stand_in(book, fails='*ensurepip*')}")
    assert done.returncode != 0
    assert "apt install python3-venv" in sentence(done)
    assert not (book / ".venv").exists()


def test_the_second_run_installs_nothing(book):
    assert make(book, "test", f"PYTHON={stand_in(book)}").returncode == 0
    first = calls(book)
    assert "-m venv --clear .venv" in first
    assert "-m pip install --quiet -r requirements.txt" in first
    assert "-m pip install --quiet --no-deps -r requirements-no-deps.txt" in first
    assert "-m pip install --quiet --no-deps -e ." in first
    assert first[-1] == "-m pytest"
    assert make(book, "test").returncode == 0
    assert [c for c in calls(book)[len(first) :] if "pip" in c or "venv" in c] == []


@pytest.mark.parametrize(
    "changed", ["requirements.txt", "requirements-no-deps.txt", "pyproject.toml"]
)
def test_a_changed_requirement_installs_again_without_a_new_environment(changed, book):
    make(book, "test", f"PYTHON={stand_in(book)}")
    first = calls(book)
    os.utime(book / changed, (4e9, 4e9))
    make(book, "test")
    again = calls(book)[len(first) :]
    assert [c for c in again if "pip install" in c]
    assert [c for c in again if "venv" in c] == []


def test_a_moved_folder_installs_again(book):
    make(book, "test", f"PYTHON={stand_in(book)}")
    first = calls(book)
    moved = book.rename(book.parent / "moved")
    make(moved, "test")
    assert [c for c in calls(moved)[len(first) :] if "--no-deps -e ." in c]


@pytest.mark.parametrize("fails", ["*requirements.txt*", "*--no-deps*"])
def test_an_interrupted_installation_is_taken_up_again(fails, book):
    assert make(book, "test", f"PYTHON={stand_in(book, fails=fails)}").returncode != 0
    assert not (book / ".venv/installed").exists()
    assert "-m pytest" not in calls(book)
    shutil.copy(stand_in(book), book / ".venv/bin/python")
    assert make(book, "test").returncode == 0
    assert calls(book)[-1] == "-m pytest"


def test_pip_arguments_reach_all_installations(book):
    make(book, "test", f"PYTHON={stand_in(book)}", "PIP_ARGS=--extra-index-url ADDRESS")
    assert len([c for c in calls(book) if "--extra-index-url ADDRESS" in c]) == 3


def test_publish_to_hands_over_the_address_unread(book):
    url = "https://github.com/you/repo;touch pwned $(touch pwned)"
    make(book, "publish-to", f"PYTHON={stand_in(book)}", f"URL={url.replace('$', '$$')}")
    assert calls(book)[-1] == f"tools/publish.py {url}"
    assert not (book / "pwned").exists()


def test_notebooks_can_be_chosen(book):
    make(book, "notebooks", f"PYTHON={stand_in(book)}", "ONLY=01")
    assert calls(book)[-1] == "tools/notebooks.py 01"


def test_book_and_test_do_what_the_plain_lines_do(book):
    shown = make(book, "-n", "book").stdout
    assert "rm -rf _build/html _build/.doctrees" in shown
    assert "jupyter-book build . -W --keep-going -n" in shown
    assert make(book, "-n", "test").stdout.strip().splitlines()[-1].endswith("-m pytest")


def test_help_names_every_command(book):
    makefile = (book / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[1].split()
    shown = make(book).stdout
    assert [t for t in targets if t not in ("help", "reinstall") and f"make {t}" not in shown] == []


def test_clean_keeps_the_environment(book):
    for folder in (".venv/x", "_build/html", "encoder_lib/__pycache__"):
        (book / folder).mkdir(parents=True)
    assert make(book, "clean").returncode == 0
    assert (book / ".venv/x").exists()
    assert not (book / "_build").exists()
    assert not (book / "encoder_lib/__pycache__").exists()
