"""The page of the claims ledger: its numbers are those of the notebooks, its links reach the cells.

Small books show that the build fails when a claim loses its cell or a number is changed by hand.
"""

import html
import re

import claims_ledger
import nbformat
import pytest
from site_build import build, build_or_fail, report, tiny_book

import project
from encoder_lib.claims import record

BIB = "@article{a2020, author = {Ada A and Bob B}, title = {T}, year = {2020}}\n"
TOML = """[[claim]]
id = "N1"
claim = "All is $1$."
said = "folklore"
verdict = "false"
words = "It is not."
sources = ["a2020"]
[claim.against]
"size" = 1.0
"error" = 1.0
"""


def printed(capsys, *calls):
    """What ``record`` prints for these calls."""
    for call in calls:
        record(*call)
    return capsys.readouterr().out


def small(folder, text, toml=TOML):
    """A book of a ledger and one notebook whose second code cell has printed ``text``."""
    cells = [nbformat.v4.new_markdown_cell("# One"), nbformat.v4.new_code_cell("1 + 1")]
    shown = nbformat.v4.new_output("stream", name="stdout", text=text)
    cells.append(nbformat.v4.new_code_cell("record()", outputs=[shown], execution_count=2))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata = {"language_info": {"name": "python"}}
    pages = {
        "book/claims.md": "# Ledger\n\n```{claims-ledger}\n```\n",
        "book/bibliography.md": "# Bibliography\n",
        "notebooks/00_one.ipynb": nbformat.writes(notebook),
        "book/claims.toml": toml,
        "book/references.bib": BIB,
    }
    return tiny_book(folder, pages)


LINES = [("N1", "size", 0.25, 0, 0.5), ("N1", "error", 1e-9, 0, 1e-6)]


def words(fragment):
    """The text of HTML, with plain blanks and apostrophes."""
    text = html.unescape(re.sub(r"<[^>]*>", "", fragment))
    return " ".join(text.replace("\xa0", " ").replace("\u2019", "'").split())


def cards(page):
    """``{id: HTML}`` of the claims on the page."""
    parts = re.split(r'<div class="eb-claim eb-claim-\w+ docutils container" id="(\w+)">', page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def check_page(site, root, measured):
    """Every record stands on the page once, with its number, and its link reaches its cell."""
    found = cards((site / "book/claims.html").read_text("utf-8"))
    assert sorted(found) == sorted({one.claim.lower() for one in measured})
    for claim, card in found.items():
        mine = [one for one in measured if one.claim.lower() == claim]
        items = re.findall(r"<li>(.*?)</li>", card, re.S)
        assert len(items) == len(mine)
        for item, one in zip(items, mine, strict=True):
            check_item(site, item, one)


def check_item(site, item, one):
    number = f"{'' if one.sign == '=' else '< '}{one.value} {one.unit}".strip()
    assert words(re.search(r"<strong>(.*?)</strong>", item)[1]) == number
    assert words(item).startswith(f"{one.what}: {number} (")
    target, anchor = re.search(r'href="([^"#]+)#([\w-]+)"', item).groups()
    assert (target, anchor) == (f"../notebooks/{one.doc}.html", one.anchor)
    chapter = (site / "book" / target).resolve().read_text("utf-8")
    assert len(re.findall(rf'id="{anchor}"', chapter)) == 1
    cell = re.split(r'<div class="cell\b', chapter.split(f'id="{anchor}"')[1])[0]
    assert f"claim {one.claim} · {one.what} {one.sign} {one.value}" in words(cell)


def test_page_of_a_small_ledger(tmp_path, capsys):
    book = small(tmp_path / "book", printed(capsys, *LINES))
    site = build_or_fail(book, tmp_path / "out")
    check_page(site, book, claims_ledger.records(book))
    page = words((site / "book/claims.html").read_text("utf-8"))
    for part in (
        "size: 0.25 (bound 0 to 0.5), cell in 00",
        "error: < 1e-06 (bound 0 to 1e-06), cell in 00",
        "Said by folklore. Source: A and B (2020)",
        "false 1 of 1: what was measured contradicts it.",
        "true 0 of 1",
        "00 One",
    ):
        assert part in page, part


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("claim N1 · size", "gone", "N1: no cell measures 'size'"),
        ("= 0.25", "= 0.75", "N1: 'size': 0.75 is outside 0 to 0.5"),
        ("(bound 0 to 0.5)", "(bound 0 to 2)", "the bound also holds for the opposite"),
        ("claim N1 · error", "claim N2 · error", "N2: measured in 00_one"),
    ],
)
def test_a_changed_record_fails_the_build(tmp_path, capsys, old, new, said):
    text = printed(capsys, *LINES)
    assert old in text
    done, _ = build(small(tmp_path / "book", text.replace(old, new)), tmp_path / "out")
    assert done.returncode != 0
    assert f"claims ledger: {said}" in report(done) or said in report(done)


def test_the_page_of_the_book(tmp_path):
    site = build_or_fail(project.ROOT, tmp_path / "out")
    measured = claims_ledger.records(project.ROOT)
    assert len({one.claim for one in measured}) >= 70
    check_page(site, project.ROOT, measured)
