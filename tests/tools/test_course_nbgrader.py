"""The nbgrader course: nbgrader itself makes the assignments and grades a class of three."""

import ast
import html
import json
import re
import sys
import time

import nbformat
import pytest
from site_browser import Visit, axe_faults, chromium_or_skip, external_in_html, raw_maths

import course
import course_nbgrader
import notebooks
import project
from course_nbgrader import answer_source
from course_sample import chapter
from encoder_lib import checks
from exercises import BadExercise, Exercise, exercises
from grading import (
    environment,
    model_answers,
    nbgrader,
    release_path,
    source_path,
    submit,
    typical_mistake,
)
from leaks import leaks

NAMES = notebooks.names()
STORED = course.stored(NAMES)
SAMPLE = "sample"
MISTAKES = {  # per assignment, by exercise: the misconception of the student "wrong"
    SAMPLE: {"3.5": "no_softmax"},
    "03_scaled_dot_product_attention": {
        "3.1": "no_scale", "3.3": "softmax_query", "3.5": "mask_small_neg",
    },
    "05_multi_head_attention": {"5.2": "interleaved", "5.3": "badsplit"},
}  # fmt: skip
GRADED = {SAMPLE: chapter(), **{name: STORED[name] for name in MISTAKES if name != SAMPLE}}
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


def with_mistakes(name, right):
    """The right answers of an assignment with the typical mistakes in place of some."""
    known = {e.number: e for e in exercises(GRADED[name])}
    wrong = {
        f"exercise-{known[number].slug}-answer": typical_mistake(known[number], key)
        for number, key in MISTAKES[name].items()
    }
    assert set(wrong) <= set(right)
    return right | wrong


@pytest.fixture(scope="module")
def graded(made):
    """``{assignment: {student: {cell: [points, of]}}}`` of the sample and of real chapters."""
    for name in GRADED:
        right = model_answers(made, name)
        in_words = {"exercise-3-1-answer": "It is three."} if name == SAMPLE else {}
        submit(made, name, "right", right | in_words)
        submit(made, name, "wrong", with_mistakes(name, right))
    submit(made, SAMPLE, "empty", {})
    start = time.monotonic()
    nbgrader(made, "grade", *GRADED)
    each = (time.monotonic() - start) / (2 * len(GRADED) + 1)
    print(f"grading and feedback: {each:.1f} s a submission")
    return json.loads(nbgrader(made, "points", *GRADED))


def automatic(points):
    """The points of the cells that nbgrader grades itself."""
    return {name: value for name, value in points.items() if name.endswith("-tests")}


@pytest.mark.parametrize("name", GRADED)
def test_right_answers_get_all_points(name, graded):
    right = automatic(graded[name]["right"])
    assert {n: of for n, (_, of) in right.items()} == {
        f"exercise-{e.slug}-tests": e.difficulty for e in exercises(GRADED[name]) if e.stub
    }
    assert [n for n, (points, of) in right.items() if points != of] == []


def test_empty_answers_get_no_points(graded):
    assert [n for n, (points, _) in automatic(graded[SAMPLE]["empty"]).items() if points] == []


@pytest.mark.parametrize("name", GRADED)
def test_a_wrong_answer_costs_its_own_points_only(name, graded):
    for e in exercises(GRADED[name]):
        if e.stub:
            points, of = graded[name]["wrong"][f"exercise-{e.slug}-tests"]
            assert points == (0 if e.number in MISTAKES[name] else of)


def test_answers_in_words_wait_for_a_person(graded):
    given = {student: graded[SAMPLE][student]["exercise-3-1-answer"] for student in graded[SAMPLE]}
    assert given == {"right": [None, 1], "wrong": [0, 1], "empty": [0, 1]}


def feedback_path(made, name, student):
    return made / "feedback" / student / name / f"{name}.html"


def diagnosis(exercise, key):
    """The first sentence of what the check says about a misconception."""
    if exercise.checker == "answer":
        known = checks.ANSWERS[exercise.number]["wrong"]
        said = {idea["key"]: idea["diagnosis"] for idea in known}[key]
    else:
        ideas = checks.EXERCISES[exercise.checker].misconceptions
        said = next(idea.diagnosis for idea in ideas if idea.key == key)
    return " ".join(said.split()).split(". ")[0]


@pytest.mark.parametrize("name", GRADED)
def test_the_feedback_says_what_is_wrong(name, graded, made):
    known = {e.number: e for e in exercises(GRADED[name])}
    said = {}
    for student in ("right", "wrong"):
        page = feedback_path(made, name, student).read_text("utf-8")
        page = re.sub(r"(?s)<script.*?</script>|<style.*?</style>|<[^>]+>", "", page)
        said[student] = " ".join(html.unescape(page).split())
    for number, key in MISTAKES[name].items():
        assert diagnosis(known[number], key) in said["wrong"]
        assert diagnosis(known[number], key) not in said["right"]


def test_the_feedback_for_an_empty_answer(graded, made):
    assert "not attempted yet" in feedback_path(made, SAMPLE, "empty").read_text("utf-8")


SPILLS = """() => Array.from(document.querySelectorAll("pre, table, .panel, .output_subarea"))
  .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.slice(0, 60))"""


def test_the_feedback_loads_nothing_and_stays_in_its_boxes(graded, made):
    with chromium_or_skip() as browser:
        for name in GRADED:
            path = feedback_path(made, name, "wrong")
            assert external_in_html(path.read_text("utf-8")) == []
            for screen in ({"width": 1280, "height": 800}, {"width": 390, "height": 800}):
                with Visit(browser, path.as_uri(), viewport=screen) as visit:
                    page = visit.page
                    page.evaluate("MathJax.startup.promise.then(() => true)")
                    assert (visit.errors, visit.failed, visit.external) == ([], [], [])
                    assert page.evaluate(SPILLS) == []
                    assert page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
                    assert raw_maths(page) == []
        assert axe_faults_of(browser, feedback_path(made, SAMPLE, "wrong")) == []


def axe_faults_of(browser, path):
    """What axe finds on a page."""
    with Visit(browser, path.as_uri()) as visit:
        return axe_faults(visit.page)


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
