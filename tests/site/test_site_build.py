"""What makes a build fail, and what may not: small books with the settings of the real one."""

import re

import nbformat
import pytest
import yaml
from site_build import build, build_or_fail, report, tiny_book

import project


def notebook(*cells):
    """A stored notebook as text."""
    book = nbformat.v4.new_notebook(cells=list(cells))
    book.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    return nbformat.writes(book)


def code(source, *outputs):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=1)


def stream(name, text):
    return nbformat.v4.new_output("stream", name=name, text=text)


CALLOUTS = """# Callouts

> **Key idea.** One sentence.

> **Predict, then run.** What comes out?

> **Exercise 1.2** (difficulty 2 of 5, 5 min). Write `f`.

> **Mind the condition.** Only when $x > 0$.

> **Misconception.** It is not so.

> **Borrowed.** `nn.Linear` from torch.

> **Note.** A note. **Bold** stays.

> **Warning.** Careful.

> **Tip.** A tip.

> **Anything else.** This stays a quotation.

> No bold lead at all.

> **Noted** authors are no note.
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A book without faults, with drafts beside it that are not in its table of contents."""
    folder = tmp_path_factory.mktemp("good")
    mark = code("open('ran-me', 'w').write('x')")
    pages = {
        "book/start.md": CALLOUTS,
        "book/times.md": "# Times\n\n```{chapter-times}\n```\n",
        "notebooks/00_one.ipynb": notebook(
            nbformat.v4.new_markdown_cell("# One\n\n*Time:* about 20 min to read, 4 s to run."),
            code("1/0"),
        ),
        "notebooks/01_two.ipynb": notebook(nbformat.v4.new_markdown_cell("# Two\n\nText.")),
        "notebooks/timings.json": '{"00_one": 4}',
    }
    tiny_book(folder, pages)
    for draft in ("draft.ipynb", "notebooks/draft.ipynb", ".venv/lib/v.ipynb", "env/lib/v.ipynb"):
        (folder / draft).parent.mkdir(parents=True, exist_ok=True)
        (folder / draft).write_text(notebook(mark), "utf-8")
    for left in (".pytest_cache/README.md", ".hidden/draft.md", "draft.md", "tests/draft.md"):
        (folder / left).parent.mkdir(parents=True, exist_ok=True)
        (folder / left).write_text("# Left over\n", "utf-8")
    return folder, build_or_fail(folder, folder / "out")


def page(site, name):
    return (site / name).read_text("utf-8")


@pytest.mark.parametrize(
    "title, css",
    [
        ("Key idea", "eb-key-idea"),
        ("Predict, then run", "eb-predict"),
        ("Mind the condition", "eb-condition"),
        ("Misconception", "eb-misconception"),
        ("Borrowed", "eb-borrowed"),
        ("Note", "eb-note"),
        ("Warning", "eb-warning"),
        ("Tip", "eb-tip"),
    ],
)
def test_block_quotes_with_a_known_lead_become_callouts(good, title, css):
    pattern = (
        rf'<div class="[^"]*callout {css} admonition">\s*<p class="admonition-title">{title}</p>'
    )
    text = page(good[1], "book/start.html").replace(f"{css} callout", f"callout {css}")
    assert re.search(pattern, text) or re.search(
        rf'<div class="admonition callout {css}">\s*<p class="admonition-title">{title}</p>', text
    )


def test_exercise_keeps_its_number_and_shows_difficulty_in_the_title(good):
    text = page(good[1], "book/start.html")
    title = re.search(r'<p class="admonition-title">(Exercise.*?)</p>\s*<p>(.*?)</p>', text, re.S)
    assert re.sub("<.*?>", "", title[1]) == "Exercise 1.2 (difficulty 2 of 5, 5 min)"
    assert title[2].startswith("Write <code")


def test_other_quotations_stay_quotations(good):
    text = page(good[1], "book/start.html")
    quotes = re.findall(r"<blockquote>(.*?)</blockquote>", text, re.S)
    words = [" ".join(re.sub("<.*?>", "", quote).split()) for quote in quotes]
    assert words == [
        "Anything else. This stays a quotation.",
        "No bold lead at all.",
        "Noted authors are no note.",
    ]
    assert text.count('class="admonition-title"') == 9


def test_chapter_times_are_those_of_the_file_and_a_dash_without(good):
    text = page(good[1], "book/times.html")
    rows = re.findall(r"<tr.*?</tr>", text, re.S)
    cells = [re.findall(r"<t[hd].*?>\s*<p>(.*?)</p>", row, re.S) for row in rows]
    words = [[re.sub("<.*?>", "", cell) for cell in row] for row in cells]
    assert words == [
        ["Chapter", "To read", "To run"],
        ["One", "20 min", "4 s"],
        ["Two", "–", "–"],
        ["All chapters", "–", "–"],
    ]
    assert 'href="../notebooks/00_one.html"' in rows[1]


def test_chapter_times_without_the_file(good, tmp_path):
    pages = {"book/times.md": "# Times\n\n```{chapter-times}\n```\n"}
    site = build_or_fail(tiny_book(tmp_path / "book", pages), tmp_path / "out")
    assert "All chapters" in page(site, "book/times.html")


def test_nothing_is_executed_and_drafts_are_left_out(good):
    folder, site = good
    assert not list(folder.rglob("ran-me"))
    assert not [path for path in site.rglob("*.html") if path.stem in ("draft", "v", "README")]
    config = yaml.safe_load((project.ROOT / "_config.yml").read_text("utf-8"))
    assert config["execute"]["execute_notebooks"] == "off"
    assert config["only_build_toc_files"] is True
    assert ".venv" in config["exclude_patterns"]


def test_site_brings_its_mathjax_and_no_source_maps(good):
    static = good[1] / "_static"
    assert (static / "mathjax/tex-chtml.js").stat().st_size > 500_000
    assert len(list((static / "mathjax").rglob("*.woff"))) > 15
    assert list(good[1].rglob("*.map")) == []
    assert "mathjax/tex-chtml.js" in page(good[1], "book/start.html")


def test_every_fault_fails_the_build_and_all_are_reported(tmp_path):
    faults = {
        "book/start.md": "# Start\n\n[gone](missing.md) and [anchor](other.md#no-such-heading)\n",
        "book/other.md": "# Other\n\n{cite}`nobody1999` and {ref}`no-label`\n\n(twice)=\n## A\n",
        "book/third.md": "# Third\n\n(twice)=\n## B\n",
        "notebooks/00_a.ipynb": notebook(
            nbformat.v4.new_markdown_cell("# A"), code("warn()", stream("stderr", "UserWarning"))
        ),
    }
    done, _ = build(tiny_book(tmp_path / "book", faults), tmp_path / "out")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    for words in (
        "missing.md",
        "no-such-heading",
        "nobody1999",
        "no-label",
        "duplicate label twice",
        "stderr was found in the cell outputs",
    ):
        assert re.search(rf"WARNING.*{re.escape(words)}", said), f"not reported: {words}"


@pytest.mark.parametrize(
    "toc, said",
    [
        ("format: jb-book\nroot: book/start\nchapters:\n  - file: book/gone\n", "book/gone"),
        ("- file: book/start\n", "toc is not a mapping"),
    ],
)
def test_wrong_table_of_contents_fails_the_build(tmp_path, toc, said):
    book = tiny_book(tmp_path / "book", {"book/start.md": "# Start\n"}, toc)
    done, _ = build(book, tmp_path / "out")
    assert done.returncode != 0
    assert said in report(done)
