"""The nbgrader course: nbgrader itself makes the assignments and grades a class of three."""

import ast
import json
import re
import sys

import nbformat
import pytest

import course
import course_nbgrader
import notebooks
import project
from course_nbgrader import answer_source
from course_sample import WRONG, chapter
from exercises import BadExercise, Exercise, exercises
from grading import environment, model_answers, nbgrader, release_path, source_path, submit
from leaks import leaks

NAMES = notebooks.names()
STORED = course.stored(NAMES)
REAL = "03_scaled_dot_product_attention"
SAMPLE = "sample"
CALL = "\n\n\nchecks.x(my_f)"


# --- stubs and solutions --------------------------------------------------------------------------


def exercise(stub, solution, kind="implement"):
    """An exercise with this stub and solution."""
    return Exercise("3.5", 2, 10, kind, "Do it.", stub, f"```python\n{solution}\n```\n\nSo it is.")


def filled(stub, solution):
    return answer_source(exercise(stub, solution)).split("\n")


def test_the_stub_keeps_its_head_and_gets_the_solutions_body():
    stub = 'def my_f(x):\n    """Twice."""\n    ...  # your code' + CALL
    assert filled(stub, "def my_f(x):\n    # Two of it.\n    y = x\n\n    return y + x") == [
        "def my_f(x):",
        '    """Twice."""',
        "    ### BEGIN SOLUTION",
        "    # Two of it.",
        "    y = x",
        "",
        "    return y + x",
        "    ### END SOLUTION",
    ]


def test_a_solution_on_one_line_and_a_docstring_of_its_own():
    stub = "def my_f(x):\n    ..." + CALL
    inside = filled(stub, "def my_f(x): return 2 * x")
    assert inside[1:] == ["    ### BEGIN SOLUTION", "    return 2 * x", "    ### END SOLUTION"]
    inside = filled(stub, 'def my_f(x):\n    """Twice."""\n    return 2 * x')
    assert inside[2] == "    return 2 * x"


STUB_CLASS = """\
class MyLinear(nn.Module):
    def __init__(self, d):
        super().__init__()
        ...

    def forward(self, x):
        ...  # your code


checks.x(MyLinear)"""
RIGHT_CLASS = """\
class MyLinear(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Linear(d, d)

    def forward(self, x):
        return self.w(x)"""


def test_a_class_whose_methods_are_stubs_is_filled_method_by_method():
    lines = filled(STUB_CLASS, RIGHT_CLASS)
    kept = [line for line in lines if "SOLUTION" not in line]
    assert ast.dump(ast.parse("\n".join(kept))) == ast.dump(ast.parse(RIGHT_CLASS))
    assert lines.count("        ### BEGIN SOLUTION") == 2


def test_a_class_with_one_stub_for_all_is_filled_at_once():
    lines = filled("class MyLinear(nn.Module):\n    ..." + CALL, RIGHT_CLASS)
    assert lines[:3] == ["class MyLinear(nn.Module):", "    ### BEGIN SOLUTION",
                         "    def __init__(self, d):"]  # fmt: skip


def test_a_number_keeps_its_name_in_the_release():
    stub = 'answer = ...  # a whole number\nchecks.answer("3.5", answer)'
    lines = filled(stub, "answer = 64 * 4")
    assert lines == ["answer = ...  # a whole number", "### BEGIN SOLUTION", "answer = 64 * 4",
                     "### END SOLUTION"]  # fmt: skip


STUB_F, RIGHT_F = "def my_f(x):\n    ...", "def my_f(x):\n    return x"
FORWARD = "class MyLinear(nn.Module):\n    def forward(self, x):\n        return x"


@pytest.mark.parametrize(
    "stub, solution, why",
    [
        (STUB_F + CALL, "def my_g(x):\n    return x", "my_f"),
        (STUB_F + CALL, f"import math\n{RIGHT_F}", "more than one"),
        ("def my_f(x):\n    x = 1\n    ..." + CALL, RIGHT_F, "begin as"),
        (f"{STUB_F}\n    return x" + CALL, RIGHT_F, "goes on"),
        (STUB_CLASS, FORWARD, "lacks"),
        (f"{STUB_F}\n\n\nprint(my_f)", RIGHT_F, "one definition"),
    ],
)
def test_a_stub_and_a_solution_that_do_not_fit_are_named(stub, solution, why):
    with pytest.raises(BadExercise, match=why):
        answer_source(exercise(stub, solution))


# --- the course -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The course of all chapters and the sample, every assignment released by nbgrader."""
    folder = tmp_path_factory.mktemp("nbgrader")
    course_nbgrader.write({SAMPLE: chapter(), **STORED}, folder)
    nbgrader(folder, "release", SAMPLE, *NAMES)
    return folder


def settings(nb):
    """``{grade_id: (cell, nbgrader's settings)}`` of an assignment."""
    marked = [(cell, cell.metadata["nbgrader"]) for cell in nb.cells]
    return {setting["grade_id"]: (cell, setting) for cell, setting in marked}


def read(path):
    return nbformat.read(path, as_version=4)


def test_the_cells_of_an_assignment(made):
    cells = settings(read(source_path(made, SAMPLE)))
    assert list(cells) == [
        "how-to-work", "prelude", "exercise-3-1-statement", "exercise-3-1-answer",
        "exercise-3-5-statement", "exercise-3-5-answer", "exercise-3-5-tests",
    ]  # fmt: skip
    kinds = {name: (s["grade"], s["solution"], s["locked"]) for name, (_, s) in cells.items()}
    assert kinds["exercise-3-1-answer"] == (True, True, False)
    assert kinds["exercise-3-5-answer"] == (False, True, False)
    assert kinds["exercise-3-5-tests"] == (True, False, True)
    assert cells["exercise-3-5-tests"][1]["points"] == 3
    assert {s["schema_version"] for _, s in cells.values()} == {3}


@pytest.mark.parametrize("name", [SAMPLE, *NAMES])
def test_a_release_holds_no_solution_and_is_valid_python(name, made):
    nb = chapter() if name == SAMPLE else STORED[name]
    release = read(release_path(made, name))
    assert leaks(release, nb) == []
    assert leaks(read(source_path(made, name)), nb), "the source holds the solutions"
    cells = settings(release)
    for wanted in exercises(nb):
        cell, setting = cells[f"exercise-{wanted.slug}-answer"]
        if wanted.stub:
            ast.parse(cell.source)
            assert "...  # your code here" in cell.source
        else:
            assert cell.source == "*Your answer:*" and setting["points"] == wanted.difficulty
    for cell, setting in cells.values():
        if cell.cell_type == "code" and setting["grade"]:
            assert re.fullmatch(r"report = checks\..*\nprint\(report\)\nassert .*", cell.source)


def test_a_planted_solution_would_be_found_in_a_release(made):
    release, source = (read(path(made, SAMPLE)) for path in (release_path, source_path))
    cells = settings(release)
    assert leaks(release, chapter()) == []
    cells["exercise-3-5-answer"][0].source = model_answers(made, SAMPLE)["exercise-3-5-answer"]
    assert leaks(release, chapter())
    assert "### BEGIN SOLUTION" in settings(source)["exercise-3-5-answer"][0].source


# --- a class of three -----------------------------------------------------------------------------


def wrong_answers(nb, right):
    """The right answers with typical wrong ones in place of those that ``WRONG`` knows."""
    known = {e.slug: WRONG[e.checker] for e in exercises(nb) if e.stub and e.checker in WRONG}
    return right | {f"exercise-{slug}-answer": source for slug, source in known.items()}


@pytest.fixture(scope="module")
def graded(made):
    """``{assignment: {student: {cell: [points, of]}}}`` of the sample and of a real chapter."""
    for name, nb in ((SAMPLE, chapter()), (REAL, STORED[REAL])):
        right = model_answers(made, name)
        in_words = {"exercise-3-1-answer": "It is three."} if name == SAMPLE else {}
        submit(made, name, "right", right | in_words)
        submit(made, name, "wrong", wrong_answers(nb, right))
        submit(made, name, "empty", {})
    nbgrader(made, "grade", SAMPLE, REAL)
    return json.loads(nbgrader(made, "points", SAMPLE, REAL))


def automatic(points):
    """The points of the cells that nbgrader grades itself."""
    return {name: value for name, value in points.items() if name.endswith("-tests")}


@pytest.mark.parametrize("name", [SAMPLE, REAL])
def test_right_answers_get_all_points_and_empty_ones_none(name, graded):
    right, empty = (automatic(graded[name][student]) for student in ("right", "empty"))
    nb = chapter() if name == SAMPLE else STORED[name]
    assert {n: of for n, (_, of) in right.items()} == {
        f"exercise-{e.slug}-tests": e.difficulty for e in exercises(nb) if e.stub
    }
    assert [n for n, (points, of) in right.items() if points != of] == []
    assert [n for n, (points, _) in empty.items() if points != 0] == []


@pytest.mark.parametrize("name", [SAMPLE, REAL])
def test_a_wrong_answer_costs_its_own_points_only(name, graded):
    nb = chapter() if name == SAMPLE else STORED[name]
    for e in exercises(nb):
        if e.stub:
            points, of = graded[name]["wrong"][f"exercise-{e.slug}-tests"]
            assert points == (0 if e.checker in WRONG else of)


def test_answers_in_words_wait_for_a_person(graded):
    given = {student: graded[SAMPLE][student]["exercise-3-1-answer"] for student in graded[SAMPLE]}
    assert given == {"right": [None, 1], "wrong": [0, 1], "empty": [0, 1]}


def test_the_feedback_says_what_is_wrong(graded, made):
    from encoder_lib import checks

    ideas = checks.EXERCISES["scaled_dot_product_attention"].misconceptions
    diagnosis = next(idea.diagnosis for idea in ideas if idea.key == "no_scale")
    pages = {
        student: (made / "feedback" / student / SAMPLE / f"{SAMPLE}.html").read_text("utf-8")
        for student in ("right", "wrong", "empty")
    }
    said = {s: " ".join(re.sub(r"<[^>]+>", "", page).split()) for s, page in pages.items()}
    assert diagnosis.split(".")[0] in said["wrong"]
    assert diagnosis.split(".")[0] not in said["right"]
    assert "not attempted yet" in said["empty"]


def test_the_commands_of_the_readme(made):
    start = [sys.executable, "-m", "nbgrader"]
    done = project.run(*start, "validate", source_path(made, SAMPLE), cwd=made, **environment(made))
    assert done.returncode == 0 and "Success" in done.stdout, done.stdout + done.stderr
    done = project.run(
        *start, "generate_assignment", SAMPLE, "--create", "--force", cwd=made, **environment(made)
    )
    assert done.returncode == 0, done.stderr
    readme = (made / "README.txt").read_text("utf-8")
    commands = re.findall(r"nbgrader (\w+)", readme.split("NAME is an")[1])
    assert {"generate_assignment", "autograde", "generate_feedback", "export"} <= set(commands)
