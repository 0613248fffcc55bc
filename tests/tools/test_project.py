"""Versions, licences, workflows and style: what must agree across files."""

import re
import sys
import tomllib

import yaml

import encoder_lib
import project

ROOT = project.ROOT


def read(path):
    return (ROOT / path).read_text("utf-8")


def metadata():
    return tomllib.loads(read("pyproject.toml"))["project"]


def test_one_version_everywhere():
    version = metadata()["version"]
    assert encoder_lib.__version__ == version
    assert str(yaml.safe_load(read("CITATION.cff"))["version"]) == version
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)[1] == version


def test_the_library_needs_only_torch_without_upper_bound():
    assert metadata()["dependencies"] == ["torch>=2.4"]
    assert metadata()["requires-python"] == ">=3.11"
    loose = [need for needs in metadata()["optional-dependencies"].values() for need in needs]
    assert [need for need in loose if not re.fullmatch(r"[\w-]+>=[\d.]+", need)] == []


def test_the_citation_has_what_its_format_requires():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["title"] == yaml.safe_load(read("_config.yml"))["title"]


def test_licences_are_stated():
    assert read("LICENSE").startswith("MIT License")
    content = read("LICENSE-CONTENT")
    assert "Creative Commons Attribution 4.0 International" in content
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in content
    for name in ("LICENSE", "LICENSE-CONTENT"):
        assert f"({name})" in read("README.md")
        assert f"({name})" in read("CONTRIBUTING.md")


def test_requirements_are_pinned_exactly():
    both = read("requirements.txt") + read("requirements-no-deps.txt")
    lines = [x.split("#")[0].strip() for x in both.splitlines()]
    needed = [line for line in lines if line]
    assert [x for x in needed if not re.fullmatch(r"[\w.-]+==[\w.]+", x)] == []


def test_jupyter_book_2_is_never_installed():
    mentions = []
    for path in project.files():
        if re.search(r"(\.txt|\.toml|\.yml|Makefile|\.md|\.ci/run)$", path):
            mentions += re.findall(r"(?:^|install\b.*|[\s\"'])jupyter-book\s*([=<>~][^\s\"']*)",
                                   read(path))  # fmt: skip
    assert mentions
    assert [x for x in mentions if not re.match(r"==1\.|.*<2$", x)] == []


def test_ci_runs_the_commands_of_the_readme():
    run = read(".ci/run").splitlines()
    assert [line for line in run if line.startswith("make ")] == ["make test", "make book"]
    for command in ("make book", "make test"):
        assert re.search(rf"^{command}\b", read("README.md"), re.MULTILINE)
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_workflows_are_what_they_claim():
    flows = {name: yaml.safe_load(read(f".github/workflows/{name}.yml")) for name in
             ("ci", "pages", "weekly")}  # fmt: skip
    assert any(step.get("run") == ".ci/run" for step in flows["ci"]["jobs"]["test"]["steps"])
    assert any(step.get("run") == "make book" for step in flows["pages"]["jobs"]["build"]["steps"])
    weekly = flows["weekly"]["jobs"]["look"]
    assert weekly["continue-on-error"] is True
    oldest = [job["install"] for job in weekly["strategy"]["matrix"]["include"]]
    minimum = metadata()["dependencies"][0].removeprefix("torch>=")
    assert any(f"torch=={minimum}.*" in install for install in oldest)


def test_plain_pytest_runs_everything():
    options = tomllib.loads(read("pyproject.toml"))["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests", "notebooks"]
    assert {"--nbval", "--nbval-current-env", "-n=2", "--dist=loadfile"} <= set(options["addopts"])
    listed = project.run(sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "notebooks")
    collected = {line.split("::")[0] for line in listed.stdout.splitlines() if "::" in line}
    stored = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert collected == stored


def test_style():
    done = project.run(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".")
    assert done.returncode == 0, done.stdout
