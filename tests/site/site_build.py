"""Builds of the book for tests: the command of the README, into a folder of its own."""

import subprocess
import sys
from pathlib import Path

import project

CONFIG = ("_config.yml", "book/_ext/", "book/static/")


def build(root, output):
    """Run ``jupyter-book build`` with warnings as errors; the process, and where the site is."""
    start = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    options = ["--path-output", output, "-W", "--keep-going", "-n"]
    done = project.run(*start, "build", root, *options, cwd=root)
    return done, Path(output, "_build", "html")


def build_or_fail(root, output):
    """The folder of the built site; a build that fails, or that warns, fails the test."""
    done, site = build(root, output)
    assert done.returncode == 0, report(done)
    return site


def report(done: subprocess.CompletedProcess) -> str:
    """The end of what a build printed."""
    return (done.stdout + done.stderr)[-4000:]


def tiny_book(folder, pages, toc=None):
    """A book of ``pages`` (path -> text) with the settings, extension and style of the real one."""
    project.copy(folder, only=CONFIG)
    pages = {"book/references.bib": "", **pages}
    documents = [path.rsplit(".", 1)[0] for path in pages if path.endswith((".md", ".ipynb"))]
    chapters = "".join(f"  - file: {document}\n" for document in documents[1:])
    toc = toc or f"format: jb-book\nroot: {documents[0]}\n" + (
        f"chapters:\n{chapters}" if chapters else ""
    )
    for path, text in {**pages, "_toc.yml": toc}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder
