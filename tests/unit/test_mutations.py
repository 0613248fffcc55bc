"""Wrong attentions that look right: every one must be caught.

First by eight short checks, the ones a reader can copy; then by the library's own tests, which run
with the wrong form in the library's place. A mutant is *killed* when one of them fails. Two forms
are valid attentions with another layout of the weights: only copied weights tell them apart.
"""

import os
import re
import sys

import pytest
import torch
from torch import nn

import project
from encoder_lib.attention import MultiHeadAttention
from mutants import OTHER_LAYOUT, SCALE_AND_MASK, WRONG, mutant

KEEP = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
SQUARE = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()


def randomise(module):
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def reference(module):
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    weights = [getattr(module, w) for w in ("w_q", "w_k", "w_v")]
    theirs.in_proj_weight.data = torch.cat([w.weight.data for w in weights])
    theirs.in_proj_bias.data = torch.cat([w.bias.data for w in weights])
    theirs.out_proj.load_state_dict(module.w_o.state_dict())
    return theirs.eval()


def close(a, b, atol=1e-4):
    return torch.allclose(a, b, atol=atol, rtol=0)


def rows_sum_to_one(module):
    _, weights = module(torch.randn(2, 5, 16), KEEP, True)
    return close(weights.sum(-1), torch.ones(2, 4, 5))


def padded_keys_get_nothing(module):
    _, weights = module(torch.randn(2, 5, 16), KEEP, True)
    return weights[1, ..., 3:].abs().max() < 1e-6


def padding_does_not_matter(module):
    x = torch.randn(2, 5, 16)
    garbage = torch.where(KEEP[..., None], x, 50 * torch.randn_like(x))
    longer = torch.cat([x, torch.randn(2, 4, 16)], 1)
    more = torch.cat([KEEP, torch.zeros(2, 4, dtype=torch.bool)], 1)
    out = module(x, KEEP)[KEEP]
    return close(module(garbage, KEEP)[KEEP], out) and close(module(longer, more)[:, :5][KEEP], out)


def order_is_carried_along(module):
    x, order = torch.randn(2, 5, 16), torch.tensor([3, 0, 4, 1, 2])
    return close(module(x[:, order]), module(x)[:, order])


def samples_do_not_meet(module):
    x = torch.randn(2, 5, 16)
    return close(module(x)[:1], module(x[:1]))


def equals_torch(module, x, keep):
    out, weights = module(x, keep, True)
    expected, their_weights = reference(module)(
        x, x, x, key_padding_mask=~keep, average_attn_weights=False
    )
    return close(out[keep], expected[keep]) and close(weights, their_weights)


def equals_torch_padded(module):
    return equals_torch(module, torch.randn(2, 5, 16), KEEP)


def equals_torch_when_batch_and_length_coincide(module):
    return equals_torch(module, torch.randn(3, 3, 16), SQUARE)


WITHOUT_A_REFERENCE = (
    rows_sum_to_one,
    padded_keys_get_nothing,
    padding_does_not_matter,
    order_is_carried_along,
    samples_do_not_meet,
)
COPIED_WEIGHTS = (equals_torch_padded, equals_torch_when_batch_and_length_coincide)

def failed(module, checks):
    torch.manual_seed(2)
    return [check.__name__ for check in checks if not check(module)]


@pytest.mark.parametrize("build", [mutant("correct"), MultiHeadAttention])
def test_right_attentions_pass_every_check(build):
    assert failed(randomise(build(16, 4)), WITHOUT_A_REFERENCE + COPIED_WEIGHTS) == []


@pytest.mark.parametrize("form", WRONG)
def test_wrong_attentions_are_caught(form):
    assert failed(randomise(mutant(form)(16, 4)), WITHOUT_A_REFERENCE + COPIED_WEIGHTS)


@pytest.mark.parametrize("form", OTHER_LAYOUT)
def test_other_layouts_fail_only_where_weights_are_copied(form):
    module = randomise(mutant(form)(16, 4))
    assert failed(module, WITHOUT_A_REFERENCE) == []
    assert failed(module, COPIED_WEIGHTS)


def test_only_the_square_batch_finds_the_silent_broadcast():
    module = randomise(mutant("mask_B_L_broadcast")(16, 4))
    everything = failed(module, WITHOUT_A_REFERENCE + COPIED_WEIGHTS)
    assert everything == ["equals_torch_when_batch_and_length_coincide"]


def test_shapes_alone_find_nothing():
    x = torch.randn(2, 5, 16)
    for form in WRONG:
        out, weights = mutant(form)(16, 4)(x, KEEP, True)
        assert out.shape == (2, 5, 16) and weights.shape == (2, 4, 5, 5)


# --- the library's own tests --------------------------------------------------------------------


RIGHT = ("module:correct", "function:correct")
INJECTED = (
    *(f"module:{form}" for form in WRONG + OTHER_LAYOUT),
    *(f"function:{form}" for form in SCALE_AND_MASK),
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What the library's tests of attention say, up to the first failure, about each form."""
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, project.ROOT / "tests" / "support" / "mutants.py", folder]
    path = f"{project.ROOT}:{project.ROOT / 'tests' / 'support'}"
    result = project.run(*command, *RIGHT, *INJECTED, PYTHONPATH=path, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr[-2000:]
    return {path.stem.replace("-", ":"): path.read_text("utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("form", RIGHT)
def test_the_suite_passes_with_the_right_form_injected(form, reports):
    assert reports[form].splitlines()[-1] == "0", reports[form][-2000:]


@pytest.mark.parametrize("form", INJECTED)
def test_the_suite_kills(form, reports):
    report = reports[form]
    assert report.splitlines()[-1] == "1", report[-2000:]
    # killed by a wrong number, not because the injected form could not run
    assert re.search(r"^1 failed", report, re.MULTILINE), report[-2000:]
    assert re.search(r"^E +(AssertionError|assert)", report, re.MULTILINE), report[-2000:]
