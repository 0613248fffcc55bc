"""``record``: the line it prints, and what it refuses."""

import pytest
import torch

from encoder_lib.claims import record, shown


@pytest.mark.parametrize(
    "value, text",
    [
        (0.11349, "0.11"), (0.9996, "1.0"), (1.0, "1.0"), (22.63, "23"), (99.6, "100"),
        (4871.0, "4,900"), (1.74e7, "1.7e+07"), (9.1234e-7, "9.1e-07"), (0.0012, "0.0012"),
        (-0.16997, "-0.17"), (0.0, "0.0"), (0, "0"), (10839040, "10,839,040"), (0.0996, "0.10"),
    ],
)  # fmt: skip
def test_two_digits_of_a_float_and_all_of_an_int(value, text):
    assert shown(value) == text


def test_the_line(capsys):
    assert record("B22", "score variance with nn.Linear's start", 0.11349, 0.08, 0.15) is None
    assert capsys.readouterr().out == (
        "claim B22 · score variance with nn.Linear's start = 0.11 (bound 0.08 to 0.15)\n"
    )


def test_tensors_units_and_whole_numbers(capsys):
    record("B45", "forward pass", torch.tensor(17.2), 5, 60, "ms")
    record("B33b", "parameters", torch.tensor(10839040), 10839040, 10839040)
    assert capsys.readouterr().out.splitlines() == [
        "claim B45 · forward pass = 17 ms (bound 5 to 60)",
        "claim B33b · parameters = 10,839,040 (bound 10,839,040 to 10,839,040)",
    ]


def test_rounding_errors_show_no_digits(capsys):
    record("B14", "largest difference", 1.2e-7, 0, 1e-5)
    record("B14", "entries that differ", 0, 0, 0)
    assert capsys.readouterr().out.splitlines() == [
        "claim B14 · largest difference < 1e-05 (bound 0 to 1e-05)",
        "claim B14 · entries that differ = 0 (bound 0 to 0)",
    ]


@pytest.mark.parametrize("value", [0.079, 0.151, float("nan"), float("inf")])
def test_a_bound_that_does_not_hold(value, capsys):
    with pytest.raises(AssertionError, match="claim B22: score variance"):
        record("B22", "score variance", value, 0.08, 0.15)
    assert capsys.readouterr().out == ""


def test_the_message_names_claim_value_and_bound():
    with pytest.raises(AssertionError, match=r"^claim B22: x is 0\.2, outside its bound 0\.08 to"):
        record("B22", "x", 0.2, 0.08, 0.15)


@pytest.mark.parametrize("claim", ["", "22", "b22", "B", "B22 ", "B22bb"])
def test_ids_have_one_form(claim):
    with pytest.raises(ValueError, match="id such as B22"):
        record(claim, "x", 1.0, 0, 2)


@pytest.mark.parametrize("what", ["", " ", "a\nb", "a = b", "a < b", "a (bound 1 to 2)"])
def test_what_is_one_plain_line(what):
    with pytest.raises(ValueError, match="one line"):
        record("B1", what, 1.0, 0, 2)


@pytest.mark.parametrize("value", [True, "1", None])
def test_values_are_numbers(value):
    with pytest.raises(TypeError, match="must be a number"):
        record("B1", "x", value, 0, 2)
