"""``make course``: copies for students and instructors. The scanner for leaks is tested first."""

import copy
import json
import re
import subprocess
import sys
import time

import nbformat
import pytest

import course
import course_copies
import exercises
import notebooks
import project
from course_sample import chapter
from leaks import defines, leaks, missing, secrets

NAMES = notebooks.names()
STORED = course.stored(NAMES)


# --- exercises ------------------------------------------------------------------------------------


def test_exercises_are_read_from_cells_that_hold_several():
    first, second = exercises.exercises(chapter())
    assert (first.number, first.difficulty, first.minutes, first.kind) == ("3.1", 1, 5, "explore")
    assert first.stub == "" and first.answer.startswith("assert sum")
    assert "Solution" not in first.statement and "sum of one and two" in first.statement
    assert (second.checker, second.target) == ("scaled_dot_product_attention", "my_attention")
    assert second.call == "checks.scaled_dot_product_attention(my_attention)"


def test_every_piece_has_one_role_and_no_text_is_lost():
    roles = [piece.role for piece in exercises.pieces(chapter())]
    assert roles == "text code code text statement solution statement stub solution text".split()
    text = "".join(p.cell.source for p in exercises.pieces(chapter()))
    assert text.count("exactly three") == 1 and "One line that says" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_exercises_of_the_book_are_found(name):
    found = exercises.exercises(STORED[name])
    assert len(found) >= 3 and all(exercise.solution for exercise in found)
    for exercise in found:
        if exercise.stub:
            assert exercise.target and exercise.answer, f"exercise {exercise.number}"


def test_an_exercise_without_solution_or_difficulty_is_named():
    for old, new in (("(difficulty 1 of 5, 5 min, explore)", ""), ("<summary>Sol", "<summary>X")):
        nb = chapter()
        nb.cells[3].source = nb.cells[3].source.replace(old, new)
        with pytest.raises(exercises.BadExercise, match=r"exercise 3\.1"):
            exercises.exercises(nb)


# --- the scanner ----------------------------------------------------------------------------------


def test_the_scanner_looks_for_lines_and_sentences():
    found = secrets(chapter())
    assert "The sum of these two small numbers is exactly three." in found
    assert 'assert sum([1, 2]) == 3, "one and two are three"' in found
    assert "# Scores first, and the forbidden ones never win." in found


@pytest.mark.parametrize(
    "plant",
    [
        lambda nb: nb.cells.append(nbformat.v4.new_markdown_cell(secrets(chapter())[0])),
        lambda nb: nb.cells[0].metadata.update(tags=[secrets(chapter())[1]]),
        lambda nb: nb.cells[1].metadata.update(answer="3"),
        lambda nb: nb.metadata.update(encoder_book={}),
        lambda nb: nb.cells.append(nbformat.v4.new_code_cell("### BEGIN SOLUTION")),
        lambda nb: nb.cells.append(nbformat.v4.new_code_cell("x", execution_count=3)),
        lambda nb: nb.cells[-1].update(source="<details><summary>Solution</summary>3</details>"),
        lambda nb: nb.cells[1].update(outputs=[nbformat.v4.new_output("stream", text="3")]),
    ],
)
def test_the_scanner_finds_what_is_planted(plant):
    nb = course_copies.student(chapter())
    assert leaks(nb, chapter()) == []
    plant(nb)
    assert leaks(nb, chapter())


def test_the_scanner_finds_everything_in_the_chapter_itself():
    found = leaks(chapter(), chapter())
    assert {fault.split(":")[0] for fault in found} == {"solution", "mark", "metadata", "output"}


SHORT = "def my_attention(q, k, v, mask=None):\n    return x.mT"
SHORT_CHAPTER = chapter()
SHORT_CHAPTER.cells[5].source = re.sub(
    r"(?s)```python\n.*?```", f"```python\n{SHORT}\n```", SHORT_CHAPTER.cells[5].source
)


@pytest.mark.parametrize(
    "plant",
    [
        lambda nb: stub_of(nb).update(source=SHORT),
        lambda nb: stub_of(nb).update(
            source=stub_of(nb).source.replace("...  #", "return x.mT  #")
        ),
        lambda nb: nb.cells.append(nbformat.v4.new_code_cell("return  x . mT  # a hint")),
        lambda nb: nb.cells.append(nbformat.v4.new_markdown_cell("Hint: `return x.mT`.")),
        lambda nb: nb.cells.append(nbformat.v4.new_markdown_cell("```python\nreturn x.mT\n```")),
    ],
)
def test_the_scanner_finds_a_solution_of_one_short_line(plant):
    nb = course_copies.student(SHORT_CHAPTER)
    assert leaks(nb, SHORT_CHAPTER) == []
    plant(nb)
    assert "solution: 3.5 return x.mT" in leaks(nb, SHORT_CHAPTER)


def stub_of(nb):
    """The cell for the answer to the sample's auto-checked exercise."""
    return next(cell for cell in nb.cells if "def my_attention" in cell.source)


def test_a_line_that_the_chapter_shows_is_a_secret_only_where_the_answer_belongs():
    shown = copy.deepcopy(SHORT_CHAPTER)
    shown.cells.insert(2, nbformat.v4.new_code_cell("def swapped(x):\n    return x.mT"))
    nb = course_copies.student(shown)
    assert leaks(nb, shown) == []
    stub_of(nb).source = SHORT
    assert "solution: 3.5 return x.mT" in leaks(nb, shown)


@pytest.mark.parametrize("name", NAMES)
def test_every_solution_in_its_place_would_be_found(name):
    for exercise in exercises.exercises(STORED[name]):
        if exercise.stub:
            nb = course_copies.student(STORED[name])
            cell = next(cell for cell in nb.cells if defines(cell, exercise.target))
            cell.source = exercise.answer
            assert leaks(nb, STORED[name]), f"exercise {exercise.number}"


# --- the copies -----------------------------------------------------------------------------------


def test_a_student_copy_keeps_stubs_and_leaves_room_for_answers():
    sources = [cell.source for cell in course_copies.student(chapter()).cells]
    stub = next(at for at, s in enumerate(sources) if s.startswith("def my_attention"))
    assert sources[stub - 1].startswith("> **Exercise 3.5**")
    assert sources[stub + 1].startswith("## Summary")
    asked = next(at for at, s in enumerate(sources) if s.startswith("> **Exercise 3.1**"))
    assert "Your answer to exercise 3.1" in sources[asked + 1]
    assert sources[asked + 2] == "# Your code for exercise 3.1."


def test_an_instructor_copy_unfolds_solutions_and_names_wrong_answers():
    nb = course_copies.instructor(chapter())
    code = [cell for cell in nb.cells if "solution" in cell.metadata.get("tags", [])]
    assert [cell.source.split("\n")[0] for cell in code] == [
        'assert sum([1, 2]) == 3, "one and two are three"',
        "def my_attention(q, k, v, mask=None):",
    ]
    wrong = next(c.source for c in nb.cells if c.source.startswith("**Typical wrong answers"))
    assert "scale" in wrong and len(wrong.splitlines()) > 10
    assert missing(nb, chapter()) == []
    assert missing(course_copies.student(chapter()), chapter())


def test_an_unknown_check_is_named():
    nb = chapter()
    nb.cells[4].source = nb.cells[4].source.replace("scaled_dot_product_attention", "no_such")
    with pytest.raises(exercises.BadExercise, match=r"exercise 3\.5.*no_such"):
        course_copies.instructor(nb)


@pytest.mark.parametrize("name", NAMES)
def test_no_solution_of_the_book_leaks_and_none_is_lost(name):
    nb = STORED[name]
    student, instructor = (make(nb) for make in (course_copies.student, course_copies.instructor))
    assert secrets(nb), "a chapter without secrets would prove nothing"
    assert leaks(student, nb) == []
    assert missing(instructor, nb) == []
    for made in (student, instructor):
        nbformat.validate(made)
        assert notebooks.COLAB not in "".join(cell.source for cell in made.cells)


def test_links_to_pages_of_the_book_lead_there():
    for nb in STORED.values():
        for cell in course_copies.student(nb).cells:
            assert "](../book" not in cell.source


def test_copies_change_nothing_in_the_notebook():
    nb = chapter()
    before = copy.deepcopy(nb)
    course_copies.student(nb), course_copies.instructor(nb)
    assert nb == before


# --- the command ----------------------------------------------------------------------------------


def run(folder, *names):
    """``tools/course.py`` in a process of its own, as make calls it; its files as bytes."""
    command = [sys.executable, project.ROOT / "tools/course.py", "--to", folder, *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_the_command_writes_everything_and_the_same_twice(tmp_path):
    start = time.monotonic()
    files = run(tmp_path / "one")
    print(f"make course: {time.monotonic() - start:.0f} s")
    for name in NAMES:
        assert f"student/{name}.ipynb" in files and f"instructor/{name}.ipynb" in files
        assert f"nbgrader/source/{name}/{name}.ipynb" in files
        assert f"slides/{name}.slides.html" in files
    again = run(tmp_path / "two", "03", "08")
    shared = [path for path in again if not path.endswith("README.txt")]
    assert len([path for path in shared if "03" in path or "08" in path]) == 8
    assert [path for path in shared if again[path] != files[path]] == []


def test_the_command_leaves_foreign_files_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "slides").mkdir()
    (tmp_path / "slides/old.html").write_text("gone")
    files = run(tmp_path, "03")
    assert "mine.txt" in files and "slides/old.html" not in files


def test_one_chapter_leaves_the_others(tmp_path):
    before = run(tmp_path, "03", "08")
    (tmp_path / "student" / f"{NAMES[3]}.ipynb").write_text("older")
    after = run(tmp_path, "03")
    assert sorted(after) == sorted(before)
    assert after[f"student/{NAMES[3]}.ipynb"] == before[f"student/{NAMES[3]}.ipynb"]
    assert any("08" in path for path in after)


def test_what_was_handed_in_stays(tmp_path):
    kept = [tmp_path / "nbgrader" / name for name in ("gradebook.db", "submitted/ada/x.ipynb")]
    old = tmp_path / "nbgrader/source/old/old.ipynb"
    for path in (*kept, old):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    run(tmp_path, "03")
    assert [path.read_text() for path in kept] == ["mine", "mine"]
    assert not old.exists()


def test_make_knows_the_command():
    makefile = (project.ROOT / "Makefile").read_text("utf-8")
    assert "tools/course.py $(ONLY)" in makefile
    assert "rm -rf _build build course " in makefile
    assert "/course/" in (project.ROOT / ".gitignore").read_text("utf-8").splitlines()


MENUS = """
import json
from jupyter_core.paths import jupyter_config_path
from jupyter_server.services.config import ConfigManager
manager = ConfigManager(read_config_path=jupyter_config_path())
print(json.dumps(manager.get("jupyter_server_config")["ServerApp"]["jpserver_extensions"]))
"""


def test_make_lab_starts_without_the_menus_of_nbgrader():
    makefile = (project.ROOT / "Makefile").read_text("utf-8")
    folder = project.ROOT / "tools/templates/lab"
    assert 'JUPYTER_CONFIG_PATH="$(CURDIR)/tools/templates/lab' in makefile
    for settings, on in (({}, True), ({"JUPYTER_CONFIG_PATH": str(folder)}, False)):
        done = project.run(sys.executable, "-c", MENUS, cwd=project.ROOT, **settings)
        assert done.returncode == 0, done.stderr
        listed = json.loads(done.stdout)
        assert listed["jupyterlab"]
        assert {on} == {o for name, o in listed.items() if name.startswith("nbgrader")}
    page = json.loads((folder / "labconfig/page_config.json").read_text("utf-8"))
    assert page["disabledExtensions"] == {"@jupyter/nbgrader": True}
