"""Every broken model of chapter 13 is found by its check, whatever the seed; healthy ones are not.

The patients are the chapter's own: its source is executed up to the figures at its end.
"""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from encoder_lib.diagnostics import diagnose
from encoder_lib.text import Batch

SOURCE = Path(__file__).parents[2] / "notebooks" / "src" / "13_debugging_clinic.py"
END = "# ## Check against torch"
FAULTS = {  # what the message must say
    "forgets_the_mask": "no mask reaches attention",
    "inverts_the_mask": "an inverted mask",
    "broadcasts_the_mask": "along the batch axis",
    "ignores_empty_texts": "NaN gradients.*a softmax over nothing",
    "averages_padding": "pooling counts padding",
    "counts_padding": "padded positions are counted",
    "draws_too_large": "start too large",
    "draws_too_small": "start too small",
    "softmax_over_queries": "attention goes to padding",
    "mixes_heads": "split or merged without a transpose",
    "numbers_the_batch": "positions along the batch axis",
    "clamps_positions": "max_len is too small",
    "shares_layers": r"\[layer\] \* n",
    "hides_layers": "nn.ModuleList",
    "drops_residual": "residual connection is missing",
    "adds_in_place": "in-place operation",
    "edits_weights": "inplace operation",
    "cuts_gradient": "no gradient reaches encoder.embedding.tokens.weight",
    "makes_dropout_in_forward": "dropout built in forward",
    "normalises_over_batch": "BatchNorm",
    "stays_in_eval": "came in training mode and left in evaluation mode",
    "softmax_twice": "a softmax in the model",
    "log_by_hand": "not finite for large logits",
    "norm_without_eps": r"layers\.0\.norm_1 is the first part",
    "zeroes_too_late": "zero_grad between backward and step",
    "trains_head_only": "not given to the optimizer",
    "forgets_the_schedule": r"schedule\.step\(\) is not called",
    "draws_large_head": "a head that starts too large",
    "averages_over_classes": "another average",
}


@pytest.fixture(scope="module")
def clinic():
    """What the chapter defines: ``CLINIC``, ``patient`` and the rest."""
    code = SOURCE.read_text(encoding="utf-8").split(END)[0]
    assert code.count("examine(") > len(FAULTS)
    names: dict = {"__name__": "clinic"}
    backend = matplotlib.get_backend()
    plt.switch_backend("agg")
    try:
        exec(compile(code, str(SOURCE), "exec"), names)
        yield names
    finally:
        plt.close("all")
        plt.switch_backend(backend)


def test_the_list_here_is_complete(clinic):
    assert set(clinic["CLINIC"]) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_and_the_fix_passes(clinic, name):
    fault, check = clinic["CLINIC"][name]
    for seed in (0, 1, 2):
        sick = clinic["patient"](fault, seed)
        with pytest.raises(AssertionError, match=FAULTS[name]):
            check(sick)
        check(clinic["patient"](None, seed))


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_routine_finds_nothing_in_a_healthy_model(clinic, seed):
    p = clinic["patient"](None, seed)
    found = diagnose(
        p.model, Batch(p.ids, p.keep, p.labels), 4, p.loss, lambda: p.step(p), p.optimizer,
        p.schedule,
    )  # fmt: skip
    assert {name: text for name, text in found.items() if text} == {}
    assert len(found) == 21


def test_what_no_check_finds_is_still_not_found(clinic):
    for fault in ("shifts_labels", "forgets_the_scale"):
        assert not any(clinic["treat"](clinic["patient"](clinic[fault])).values())
