"""The claims ledger: each claim is measured, each measurement has a claim, each bound decides."""

import json
import re

import claims_ledger
import pytest

import project
from encoder_lib.claims import record

CLAIMS = claims_ledger.entries(project.ROOT)
RECORDS = claims_ledger.records(project.ROOT)
KEYS = claims_ledger.sources(project.ROOT)


# --- the ledger of the book -----------------------------------------------------------------------


def test_entries_and_records_fit_together():
    found = claims_ledger.faults(CLAIMS, RECORDS, KEYS)
    assert not found, "\n".join(found)


def test_at_least_seventy_claims_each_with_a_number_and_a_cell():
    assert len(CLAIMS) >= 70
    assert {claim["id"] for claim in CLAIMS} == {record.claim for record in RECORDS}


def test_every_verdict_occurs():
    assert {claim["verdict"] for claim in CLAIMS} == set(claims_ledger.VERDICTS)


def test_every_record_is_printed_by_a_call_and_not_by_hand():
    for path in sorted((project.ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        for index, text in claims_ledger.streams(path):
            lines = claims_ledger.LINE.findall(text)
            source = "".join(cells[index]["source"])
            assert not lines or "record(" in source, f"{path.stem}, cell {index + 1}"
            assert not re.search(r"print\(.*claim [A-Z]\d", source)


def test_every_call_measures():
    """A value, or a bound that depends on what is measured, typed as a number measures nothing."""
    for path in sorted((project.ROOT / "notebooks/src").glob("*.py")):
        text = path.read_text("utf-8")
        for call in re.findall(r"^ *record\((.*?)\)\n", text, re.M | re.S):
            value = re.sub(r'^[^,]*, *f?"[^"]*", *', "", call)
            assert not re.match(r"-?[\d.e]+ *,", value), f"{path.stem}: {call}"


# --- lines and how they are read ------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, read",
    [
        (("B22", "score variance, nn.Linear's default", 0.11349, 0.08, 0.15), ("=", "0.11", "")),
        (("B45", "forward (L = 128), fused", 17.2, 5, 60, "ms"), ("=", "17", "ms")),
        (("B33b", "parameters", 10839040, 10839040, 10839040), ("=", "10,839,040", "")),
        (("B14", "distance to P f(x)", 1.2e-7, 0, 1e-5), ("<", "1e-05", "")),
        (("N11", "slope", -9.1e-7, -1, 1), ("=", "-9.1e-07", "")),
    ],
)
def test_what_record_prints_is_what_the_ledger_reads(arguments, read, capsys):
    if "=" in arguments[1]:
        with pytest.raises(ValueError):
            record(*arguments)
        return
    record(*arguments)
    (match,) = claims_ledger.LINE.finditer(capsys.readouterr().out)
    assert (match["claim"], match["what"]) == arguments[:2]
    assert (match["sign"], match["value"], match["unit"] or "") == read
    assert claims_ledger.number(match["low"]) == arguments[3]
    assert claims_ledger.number(match["high"]) == arguments[4]


# --- the rules find faults, on a copy -------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    """A copy of what the ledger is made from, and a function that says what does not fit in it."""
    project.copy(tmp_path, only=("book/claims.toml", "book/references.bib", "notebooks/"))

    def found():
        claims, records = claims_ledger.entries(tmp_path), claims_ledger.records(tmp_path)
        return claims_ledger.faults(claims, records, claims_ledger.sources(tmp_path))

    return tmp_path, found


def change(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def some_record(claim="B22"):
    return next(r for r in RECORDS if r.claim == claim)


def test_the_copy_has_no_faults(book):
    assert book[1]() == []


def test_a_missing_cell_is_found(book):
    root, found = book
    lines = [r.what for r in RECORDS if r.claim == "B22"]
    for what in lines:
        change(root / "notebooks" / f"{some_record().doc}.ipynb", f"claim B22 · {what}", "gone")
    assert "B22: no cell measures it" in found()


def test_a_missing_measurement_of_several_is_found(book):
    root, found = book
    path = root / "notebooks" / f"{some_record().doc}.ipynb"
    change(path, f"claim B22 · {some_record().what}", "gone")
    assert f"B22: no cell measures '{some_record().what}'" in found()


def test_a_tampered_number_is_found(book):
    root, found = book
    mine = some_record()
    path = root / "notebooks" / f"{mine.doc}.ipynb"
    change(path, f"{mine.what} = {mine.value}", f"{mine.what} = 7.7")
    assert f"B22: '{mine.what}': 7.7 is outside {mine.low} to {mine.high}" in found()


def test_a_bound_that_decides_nothing_is_found(book):
    root, found = book
    mine = some_record()
    path = root / "notebooks" / f"{mine.doc}.ipynb"
    change(path, f"(bound {mine.low} to {mine.high})", "(bound 0 to 100)")
    assert any("also holds for the opposite" in fault for fault in found())


@pytest.mark.parametrize(
    "old, new, fault",
    [
        ('id = "B22"', 'id = "B21"', "B21: two entries"),
        ('id = "B22"', 'id = "B99"', "B22: measured in"),
        ('id = "B22"', 'id = "B99"', "B99: no cell measures it"),
        ('verdict = "condition"', 'verdict = "perhaps"', "the verdict is none of"),
        ('"glorot2010understanding"', '"nobody1999"', "nobody1999 is not in"),
        ('said = "', 'says = "', "lacks said"),
        ('said = "', 'says = "', "has an unknown says"),
        ("[claim.against]\n", '[claim.against]\n"never seen" = 1\n', "no cell measures 'never"),
    ],
)
def test_faults_of_entries_are_found(book, old, new, fault):
    root, found = book
    change(root / "book/claims.toml", old, new)
    assert any(fault in sentence for sentence in found())


def test_a_number_typed_into_an_entry_is_found(book):
    root, found = book
    words = f'words = "{some_record().value} If queries'
    change(root / "book/claims.toml", 'words = "If queries', words)
    assert any("repeats the number" in sentence for sentence in found())
