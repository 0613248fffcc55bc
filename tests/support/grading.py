"""nbgrader on a course folder, in a process of its own: it warns, and pytest makes warnings errors.

python grading.py FOLDER release NAME...    makes release/NAME
python grading.py FOLDER grade NAME...      autogrades what was submitted, makes the feedback
python grading.py FOLDER points NAME...     prints {name: {student: {cell: [points, of]}}}
"""

import ast
import inspect
import json
import os
import sys
from pathlib import Path

import nbformat

import answers
import project
from course_nbgrader import BEGIN, END

MARKS = (BEGIN, END)
PRELUDE_NAMES = {"math", "torch", "nn", "F"}


# --- what the tests call --------------------------------------------------------------------------


def environment(folder):
    """Settings under which nbgrader reads nobody's own configuration."""
    return {
        "JUPYTER_CONFIG_DIR": str(folder / "no-settings"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(folder / "no-settings"),
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),  # alembic
        "PYTHONPATH": os.pathsep.join(
            str(project.ROOT / p) for p in ("", "tools", "tests/support")
        ),
    }


def nbgrader(folder, action, *names):
    """Run this file on a course folder; what it printed. A failure fails the test."""
    command = [sys.executable, __file__, folder, action, *names]
    done = project.run(*command, cwd=folder, **environment(folder))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def release_path(folder, name):
    """The released notebook of an assignment."""
    return folder / "release" / name / f"{name}.ipynb"


def source_path(folder, name):
    """The source of an assignment, with model answers."""
    return folder / "source" / name / f"{name}.ipynb"


def without_marks(source):
    """A filled-in cell as a student would write it."""
    return "\n".join(line for line in source.split("\n") if line.strip() not in MARKS)


def submit(folder, name, student, answers):
    """Hand in the release with some cells replaced: ``answers`` are sources by grade_id."""
    nb = nbformat.read(release_path(folder, name), as_version=4)
    for cell in nb.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        cell.source = answers.get(grade_id, cell.source)
    path = folder / "submitted" / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)


def model_answers(folder, name):
    """``{grade_id: source}`` of the answer cells of code, as a good student would write them."""
    nb = nbformat.read(source_path(folder, name), as_version=4)
    settings = [(cell, cell.metadata.get("nbgrader", {})) for cell in nb.cells]
    return {
        s["grade_id"]: without_marks(cell.source)
        for cell, s in settings
        if s.get("solution") and cell.cell_type == "code"
    }


def stands_alone(attempt):
    """Whether a function uses only what an assignment has, so that its source can be handed in."""
    written = inspect.isfunction(attempt) and attempt.__module__.startswith("answers.")
    return written and set(inspect.getclosurevars(attempt).globals) <= PRELUDE_NAMES


def typical_mistake(exercise, key):
    """The source of a wrong answer to an auto-checked exercise, one that holds the misconception
    ``key``, as ``tests/support/answers`` has it."""
    attempts = [a for a in answers.collected() if (a.check, a.key) == (exercise.checker, key)]
    if exercise.checker == "answer":
        chapter = sys.modules[f"answers.ch{int(exercise.number.split('.')[0]):02}"]
        return f"answer = {chapter.WRONG_VALUES[exercise.number][key]!r}"
    written = next(a.attempt for a in attempts if stands_alone(a.attempt))
    definition = ast.parse(inspect.getsource(written)).body[0]
    definition.name, definition.decorator_list = exercise.target, []
    return ast.unparse(definition)


# --- what the process does ------------------------------------------------------------------------


def opened(folder):
    """nbgrader's API on the course, with the settings that ``make course`` wrote."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def insist(done):
    """Stop with nbgrader's log when it did not succeed."""
    if not done["success"]:
        sys.exit(f"{done.get('error')}\n{done.get('log')}")


def grade(api, name):
    """Autograde every submission of an assignment and make its feedback."""
    for student in sorted(api.get_submitted_students(name)):
        insist(api.autograde(name, student))
        insist(api.generate_feedback(name, student))


def points(api, name):
    """``{student: {cell: [points, of]}}``, points None where a person has to grade."""
    with api.gradebook as gradebook:
        return {
            submission.student.id: {
                grade.name: [grade.auto_score, grade.max_score]
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in gradebook.assignment_submissions(name)
        }


def main(folder, action, *names):
    """The command line of this file."""
    api = opened(Path(folder))
    for name in names:
        if action == "release":
            insist(api.generate_assignment(name))
        elif action == "grade":
            grade(api, name)
    if action == "points":
        print(json.dumps({name: points(api, name) for name in names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
