"""The exercises as shipped, with their solutions in, and with wrong numbers; and the quizzes.

``exercises.py`` reads them from the notebooks. A solution runs here in a bare namespace, which is
what an assignment gives it; ``tests/tools/test_alone.py`` runs it after its chapter.
"""

import ast
import collections
import functools
import importlib
import math
import re

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import exercises
import lints
import notebooks
from encoder_lib import checks
from encoder_lib.checks._answers import canonical
from encoder_lib.checks.report import Report

NAMES = notebooks.names()
KINDS = {"predict", "implement", "break", "prove", "explore"}
SEEDS = range(5)


@functools.cache
def read(name):
    return nbformat.read(notebooks.stored_path(name), as_version=4)


@functools.cache
def of_chapter(name):
    return exercises.exercises(read(name))


ALL = [exercise for name in NAMES for exercise in of_chapter(name)]
WITH_CODE = [exercise for exercise in ALL if exercise.stub]
AUTO = [exercise for exercise in WITH_CODE if exercise.checker != "answer"]
ANSWERS = [exercise for exercise in WITH_CODE if exercise.checker == "answer"]


def by_number(found):
    return {"argvalues": found, "ids": [exercise.number for exercise in found]}


def bare():
    """The names that an assignment offers, and nothing else."""
    return {"math": math, "torch": torch, "nn": nn, "F": F, "checks": checks}


def run(code):
    """Execute code in a bare namespace; returns (the namespace, the value of the last line)."""
    namespace, body = bare(), ast.parse(code).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "exercise", "exec"), namespace)
    return namespace, eval(compile(last, "exercise", "eval"), namespace) if last else None


def headings(name):
    return [re.sub(r"[`*$]", "", text) for _, text in lints.headings(read(name))]


# --- how many, and of which kind ------------------------------------------------------------------


def test_there_are_enough_and_every_component_is_covered():
    assert len(ALL) >= 60 and len(AUTO) >= 25
    assert sorted(e.checker for e in AUTO) == sorted(checks.EXERCISES), "each check is used once"
    components = {check.component for check in checks.EXERCISES.values()}
    assert len(components) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_has_three_to_six_exercises_in_order(name):
    found = of_chapter(name)
    assert 3 <= len(found) <= 6
    assert [e.number for e in found] == [f"{int(name[:2])}.{i + 1}" for i in range(len(found))]
    assert {e.kind for e in found} <= KINDS
    assert all(e.minutes > 0 for e in found)


def test_every_kind_of_exercise_occurs():
    assert {exercise.kind for exercise in ALL} == KINDS


# --- auto-checked exercises -----------------------------------------------------------------------


@pytest.mark.parametrize("exercise", **by_number(WITH_CODE))
def test_as_shipped_it_runs_and_is_not_attempted(exercise):
    namespace, report = run(exercise.stub)
    assert report.status == "not attempted yet" and not report.passed
    assert report.exercise == exercise.number
    assert exercise.checker == "answer" or exercise.target.lower().startswith("my")


@pytest.mark.parametrize("exercise", **by_number(AUTO))
def test_its_solution_passes(exercise):
    namespace, _ = run(exercise.answer)
    assert set(namespace) - set(bare()) == {exercise.target, "__builtins__"}
    check = checks.EXERCISES[exercise.checker]
    for seed in SEEDS:
        report = check(namespace[exercise.target], seed=seed)
        assert report.passed, report
        assert not report.misconception and report.checked
    assert f"({len(report.checked)} public checks; there are no hidden ones)" in str(report)


@pytest.mark.parametrize("exercise", **by_number(AUTO))
def test_its_sections_to_reread_exist(exercise):
    check = checks.EXERCISES[exercise.checker]
    chapter = next(n for n in NAMES if int(n[:2]) == int(exercise.number.split(".")[0]))
    wanted = {check.reread, *(m.reread for m in check.misconceptions if m.reread)}
    assert check.number == exercise.number
    assert wanted <= set(headings(chapter))


@pytest.mark.parametrize("exercise", **by_number(AUTO))
def test_no_diagnosis_holds_a_line_of_the_solution(exercise):
    lines = {line.strip() for line in exercise.answer.splitlines() if len(line.strip()) > 24}
    said = " ".join(m.diagnosis for m in checks.EXERCISES[exercise.checker].misconceptions)
    assert [line for line in lines if line in said] == []


# --- checked answers ------------------------------------------------------------------------------


def wrong_values(number):
    module = importlib.import_module(f"answers.ch{int(number.split('.')[0]):02d}")
    return module.WRONG_VALUES[number]


@pytest.mark.parametrize("exercise", **by_number(ANSWERS))
def test_a_checked_answer_is_right_and_wrong_ones_are_named(exercise):
    entry = checks.ANSWERS[exercise.number]
    namespace, _ = run(exercise.answer)
    assert checks.answer(exercise.number, namespace["answer"]).passed
    wrong = wrong_values(exercise.number)
    assert {w["key"] for w in entry["wrong"]} == set(wrong) and len(wrong) >= 2
    for key, value in wrong.items():
        report = checks.answer(exercise.number, value)
        assert report.misconception == key and not report.passed
    chapter = next(n for n in NAMES if int(n[:2]) == int(exercise.number.split(".")[0]))
    assert entry["reread"] in headings(chapter)


def test_every_checked_answer_has_its_exercise():
    assert sorted(checks.ANSWERS) == sorted(exercise.number for exercise in ANSWERS)


@pytest.mark.parametrize("value", [None, ...])
def test_an_answer_that_is_missing_is_not_attempted(value):
    number = next(iter(checks.ANSWERS))
    assert checks.answer(number, value).status == "not attempted yet"


@pytest.mark.parametrize(
    "value", ["x", [], {}, object(), float("nan"), torch.ones(3), 10**400, b""]
)
def test_an_answer_of_any_kind_gets_a_report(value):
    for number in (*checks.ANSWERS, "99.9", 3, None, value if isinstance(value, str) else []):
        report = checks.answer(number, value)
        assert isinstance(report, Report) and not report.passed


@pytest.mark.parametrize("exercise", **by_number(ANSWERS))
def test_an_answer_does_not_stand_in_the_package_in_clear_text(exercise):
    """What is asked may list the choices of a word; nothing else may hold the answer."""
    entry = checks.ANSWERS[exercise.number]
    value = run(exercise.answer)[0]["answer"]
    told = [entry["name"], *(wrong["diagnosis"] for wrong in entry["wrong"])]
    told += [] if isinstance(value, str) else [entry["asks"]]
    answer = re.escape(canonical(value, entry.get("digits", 0)))
    assert not [text for text in told if re.search(rf"(?<![\w.]){answer}(?![\w.]?\d)", text)]


# --- quizzes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_ends_with_its_quiz(name):
    cells = [cell.source for cell in lints.code_cells(read(name))]
    calls = [source for source in cells if re.search(r"^quiz\(\d+\)$", source, re.MULTILINE)]
    assert [re.findall(r"^quiz\((\d+)\)$", call, re.MULTILINE) for call in calls] == [
        [str(int(name[:2]))]
    ]
    titles = headings(name)
    assert titles.index("Misconceptions") < titles.index("Quiz") < titles.index("Summary")


def test_difficulties_and_checks_are_spread():
    per_chapter = collections.Counter(exercise.number.split(".")[0] for exercise in AUTO)
    assert len(per_chapter) == len(NAMES), "each chapter has an auto-checked exercise"
    assert len({exercise.difficulty for exercise in ALL}) >= 4
