"""``make publish-to`` on copies of the project; the address stands everywhere or nowhere."""

import difflib
import re

import nbformat
import pytest

import notebooks
import project
import publish

UNSET = "https://encoder-book.invalid/transformer-encoder-from-scratch"
URL = "https://github.com/you/repo"
DERIVED = ("_config.yml", "CITATION.cff", "pyproject.toml", "README.md", "book/", "notebooks/")


@pytest.fixture
def unset(tmp_path):
    """A copy of the project without an address, whatever state the project itself is in."""
    root = project.copy(
        tmp_path / "book", only=(*DERIVED, "_toc.yml", "tools/", "CON", "CHANGELOG")
    )
    for path, text in publish.plan(UNSET, root).items():
        path.write_text(text, "utf-8")
    return root


def contents(root):
    return {path: path.read_text("utf-8") for path in publish.plan(UNSET, root)}


def changed_lines(before, after):
    for path, text in before.items():
        for line in difflib.ndiff(text.splitlines(), after[path].splitlines()):
            if line[:2] in ("- ", "+ "):
                yield line[2:]


def test_all_places_of_the_project_agree():
    assert publish.disagreements() == []


def test_no_other_file_holds_the_address():
    address, _ = notebooks.book_address()
    holders = {str(path.relative_to(project.ROOT)) for path in publish.plan(address)}
    texts = [path for path in project.files() if not path.startswith(("tests/", "tools/"))]
    others = [
        path
        for path in texts
        if path.replace("\\", "/") not in holders
        and address.encode() in (project.ROOT / path).read_bytes()
    ]
    assert others == []


def test_publishing_sets_it_everywhere(unset):
    changed = {path.relative_to(unset).as_posix() for path in publish.publish(URL, unset)}
    stored = {f"notebooks/{name}.ipynb" for name in notebooks.names(unset)}
    assert {"_config.yml", "CITATION.cff", "pyproject.toml", "README.md", *stored} <= changed
    assert publish.disagreements(unset) == []
    assert not any("encoder-book.invalid" in text for text in contents(unset).values())
    assert notebooks.book_address(unset) == (URL, "main")


def test_publishing_switches_the_buttons_on(unset):
    config = publish.yaml.safe_load((unset / "_config.yml").read_text("utf-8"))
    assert not config["launch_buttons"]["colab_url"]
    assert not any(config["html"][switch] for switch in publish.SWITCHES)
    publish.publish(URL, unset)
    config = publish.yaml.safe_load((unset / "_config.yml").read_text("utf-8"))
    assert config["launch_buttons"]["colab_url"] == "https://colab.research.google.com"
    assert all(config["html"][switch] for switch in publish.SWITCHES)


def test_only_lines_with_the_address_change(unset):
    before = contents(unset)
    publish.publish(URL, unset)
    allowed = re.compile(
        r"invalid|github(\.com)?/you/repo|colab_url|use_\w+_button: "
        r"|importlib|raise ModuleNotFoundError|in its folder|pip_install"
    )
    assert [x for x in changed_lines(before, contents(unset)) if not allowed.search(x)] == []


def test_outputs_stay_and_the_notebooks_stay_valid(unset):
    def outputs():
        read = [nbformat.read(p, as_version=4) for p in sorted(unset.glob("notebooks/*.ipynb"))]
        return [[cell.get("outputs") for cell in nb.cells] for nb in read]

    before, faults = outputs(), notebooks.run_checks(notebooks.names(unset), unset)
    publish.publish(URL, unset)
    assert outputs() == before
    assert notebooks.run_checks(notebooks.names(unset), unset) == faults


def test_colab_links_open_their_own_notebook(unset):
    publish.publish(URL, unset)
    base = "https://colab.research.google.com/github/you/repo/blob/main/notebooks"
    for name in notebooks.names(unset):
        link = nbformat.read(notebooks.stored_path(name, unset), as_version=4).cells[1].source
        assert link == f"[Open this notebook in Colab]({base}/{name}.ipynb)"
        assert f"({base}/{name}.ipynb)" in (unset / "README.md").read_text("utf-8")


def test_publishing_twice_changes_nothing_more(unset):
    publish.publish(URL, unset)
    assert publish.publish(URL, unset) == []
    assert publish.publish(URL + ".git/", unset) == []


def test_moving_to_another_address(unset):
    publish.publish(URL, unset)
    readme = unset / "README.md"
    faults = notebooks.run_checks(notebooks.names(unset), unset)
    near = "https://github.com/you/repository and https://github.com/you/repo.py stay"
    readme.write_text(readme.read_text("utf-8") + f"\n{URL}/issues, {URL}. {near}\n", "utf-8")
    publish.publish("https://github.com/other/place", unset)
    assert publish.disagreements(unset) == []
    assert "https://github.com/other/place/issues, https://github.com/other/place. " + near in (
        readme.read_text("utf-8")
    )
    assert notebooks.run_checks(notebooks.names(unset), unset) == faults


@pytest.mark.parametrize(
    "url",
    [
        "",
        "you/repo",
        "http://github.com/you/repo",
        "git@github.com:you/repo.git",
        "https://github.com/you",
        "https://github.com/you/",
        "https://github.com/you/.git",
        "https://github.com/you/..",
        "https://github.com/you/repo/tree/main",
        "https://github.com/you/repo?tab=readme",
        "https://github.com/you/re po",
        "https://github.com/you/repo\nx: y",
        "https://gitlab.com/you/repo",
        "https://github.com.evil.example/you/repo",
    ],
)
def test_other_addresses_are_refused_and_nothing_is_written(url, unset):
    before = contents(unset)
    with pytest.raises(publish.Refused, match=r"must look like https://github\.com/you/repo"):
        publish.publish(url, unset)
    assert contents(unset) == before


@pytest.mark.parametrize(
    "url", [URL, URL + "/", URL + ".git", URL + ".git/", f" {URL} ", "https://github.com/A-b/c.d_e"]
)
def test_usual_forms_are_accepted(url):
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w.]+", publish.cleaned(url))
    assert not publish.cleaned(url).endswith((".git", "/"))


def test_a_file_without_its_place_stops_before_anything_is_written(unset):
    citation = unset / "CITATION.cff"
    citation.write_text(citation.read_text("utf-8").replace("repository-code", "code"), "utf-8")
    before = {path: path.read_bytes() for path in unset.rglob("*") if path.is_file()}
    with pytest.raises(publish.Refused, match="CITATION.cff"):
        publish.publish(URL, unset)
    assert before == {path: path.read_bytes() for path in unset.rglob("*") if path.is_file()}


@pytest.mark.parametrize("state", [UNSET, URL])
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("CITATION.cff", "url: ", 'url: "https://github.com/x/y" # '),
        ("pyproject.toml", 'Repository = "', 'Repository = "https://fork.example/'),
        ("README.md", "main/notebooks/01_tokens_and_embeddings", "main/notebooks/02_other"),
        ("README.md", "in Colab](https://", "in Colab](https://fork.example/"),
        ("notebooks/01_tokens_and_embeddings.ipynb", "](https://", "](https://fork.example/"),
    ],
)
def test_a_place_that_disagrees_is_found(state, file, old, new, unset):
    for path, text in publish.plan(state, unset).items():
        path.write_text(text, "utf-8")
    assert publish.disagreements(unset) == []
    path = unset / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    assert publish.disagreements(unset) != []


def test_the_command_line_says_what_it_did(unset):
    command = [project.sys.executable, unset / "tools/publish.py"]
    refused = project.run(*command, "nonsense")
    assert refused.returncode == 2
    assert "must look like" in refused.stderr and "Traceback" not in refused.stderr
    done = project.run(*command, URL)
    assert done.returncode == 0
    assert "changed _config.yml" in done.stdout and URL in done.stdout
    assert project.run(*command, "--check").returncode == 0


def test_the_built_site_links_each_notebook_and_no_page_to_colab(unset, tmp_path):
    publish.publish(URL, unset)
    start = [project.sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    options = ["--path-output", tmp_path, "-W", "--keep-going", "-n"]
    built = project.run(*start, "build", unset, *options, cwd=unset)
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]
    site = tmp_path / "_build/html"
    base = "https://colab.research.google.com/github/you/repo/blob/main/"
    for name in notebooks.names(unset):
        html = (site / f"notebooks/{name}.html").read_text("utf-8")
        assert set(re.findall(rf'href="({re.escape(base)}[^"]*)"', html)) == {
            f"{base}notebooks/{name}.ipynb"
        }
    for page in site.glob("book/*.html"):
        assert f'href="{base}' not in page.read_text("utf-8")
