"""Write what a course needs from the stored notebooks into ``course/``.

    python tools/course.py            every chapter
    python tools/course.py 03 08      only these

course/student      chapters without solutions and outputs
course/instructor   chapters with outputs, solutions unfolded, and typical wrong answers
course/nbgrader     an nbgrader course, one assignment per chapter
course/slides       slides, each chapter one file that needs no network
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import course_copies
import course_deck
import course_nbgrader
import notebooks
from exercises import BadExercise

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ("student", "instructor", "nbgrader/source", "nbgrader/templates", "slides")


def stored(names: list[str], root: Path = ROOT) -> dict[str, NotebookNode]:
    """The stored notebooks by name."""
    paths = {name: notebooks.stored_path(name, root) for name in names}
    return {name: nbformat.read(path, as_version=4) for name, path in paths.items()}


def write(folder: Path, files: dict[str, str]) -> None:
    """Write texts by file name into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


def clear(course: Path, names: list[str]) -> None:
    """Remove the named chapters' older files and what belongs to no chapter of the book.

    Other chapters stay, and so do the gradebook and what somebody handed in.
    """
    others = set(notebooks.names()) - set(names)
    for path in [path for part in WRITTEN for path in (course / part).glob("*")]:
        if path.name.split(".")[0] in others:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def make(chapters: dict[str, NotebookNode], course: Path) -> None:
    """Write the four parts of the course into ``course``, in place of older ones."""
    clear(course, list(chapters))
    for kind, copy in (
        ("student", course_copies.student),
        ("instructor", course_copies.instructor),
    ):
        files = {f"{name}.ipynb": notebooks.as_text(copy(nb)) for name, nb in chapters.items()}
        write(course / kind, files)
    course_nbgrader.write(chapters, course / "nbgrader")
    pages = {f"{name}.slides.html": course_deck.slides(nb) for name, nb in chapters.items()}
    write(course / "slides", pages)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="numbers or names of chapters; default all")
    parser.add_argument("--to", type=Path, default=ROOT / "course", help="the folder to write")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    chapters = stored(notebooks.chosen(options.names))
    try:
        make(chapters, options.to)
    except BadExercise as fault:
        print(fault, file=sys.stderr)
        return 1
    print(f"{len(chapters)} chapters in {options.to}, {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
