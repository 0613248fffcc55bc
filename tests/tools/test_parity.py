"""The page of the parity ladder is what a run of the tests gives, not what somebody typed."""

import re

import pytest
import torch

import parity
from ladder import BOUNDS, LADDER, MODES, PADDINGS, measure

DTYPES = {str(dtype)[6:]: dtype for dtype in BOUNDS}
SIZES = {torch.float32: 1e-7, torch.float64: 1e-16}  # errors below these are rounding or luck


def stored_cases():
    text = parity.PAGE.read_text("utf-8").split("All cases")[1]
    rows = re.findall(r"^\| (.+?) \| (\w+), (\w+), (.+?) \| (\S+) \| (\S+) \|$", text, re.M)
    return [[*row[:4], float(row[4]), float(row[5])] for row in rows]


def test_the_page_is_made_from_its_own_cases():
    text = parity.PAGE.read_text("utf-8")
    torch_version = re.search(r"with torch (\S+) on (\S+),", text)
    made = parity.page(stored_cases())
    made = re.sub(r"with torch \S+ on \S+,", f"{torch_version[0]}", made)
    assert made == text, "run make parity"


def test_the_page_holds_every_case_once():
    expected = [
        [rung.piece, dtype, mode, padding]
        for rung in LADDER for dtype in DTYPES for mode in MODES for padding in PADDINGS
    ]  # fmt: skip
    assert [row[:4] for row in stored_cases()] == expected, "run make parity"


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.piece)
def test_the_numbers_are_of_the_size_a_fresh_run_gives(rung):
    rows = [row for row in stored_cases() if row[0] == rung.piece]
    for _, dtype, mode, padding, *stored in rows:
        dtype = DTYPES[dtype]
        for said, found in zip(stored, measure(rung, dtype, mode, padding), strict=True):
            ratio = max(said, SIZES[dtype]) / max(found, SIZES[dtype])
            assert said <= BOUNDS[dtype] and 1 / 50 < ratio < 50, (mode, padding, said, found)


def test_numbers_are_written_as_read():
    assert [parity.number(e) for e in (0.0, 2.345e-7)] == ["0", "2.3e-07"]
    rows = [["a", "float32", "eval", "whole", 1e-8, 3e-8], ["a", "float32", "train", "whole", 2e-8,
            1e-8]]  # fmt: skip
    assert parity.worst(rows, "a", "float32") == (2e-8, 3e-8)
