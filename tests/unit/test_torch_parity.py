"""The parity ladder: outputs and every gradient of every piece, in every mode, equal torch's."""

import itertools
import json
import os

import pytest
import torch
from torch import nn

import ladder
from encoder_lib import EncoderLayer, LayerNorm
from ladder import BOUNDS, LADDER, MODES, PADDINGS, Run, Rung, difference, measure

CASES = list(itertools.product(LADDER, BOUNDS, MODES, PADDINGS))


def name(case):
    rung, dtype, mode, padding = case
    return f"{rung.piece}-{str(dtype)[6:]}-{mode}-{padding}".replace(" ", "_")


@pytest.mark.parametrize("case", CASES, ids=name)
def test_equals_torch(case):
    rung, dtype, mode, padding = case
    errors = measure(rung, dtype, mode, padding)
    assert errors.forward <= BOUNDS[dtype] and errors.gradient <= BOUNDS[dtype], errors
    record = os.environ.get("PARITY_RECORD")
    if record:
        row = [rung.piece, str(dtype)[6:], mode, padding, *errors]
        with open(record, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


# --- the ladder itself: it must be able to fail ---------------------------------------------------


def test_the_ladder_covers_every_piece_of_the_core():
    pieces = {rung.piece.split()[0].strip(",") for rung in LADDER}
    assert pieces == {
        "scaled_dot_product_attention", "MultiHeadAttention", "FeedForward", "LayerNorm",
        "RMSNorm", "EncoderLayer", "Encoder", "TransformerEncoder",
    }  # fmt: skip
    assert len({rung.piece for rung in LADDER}) == len(LADDER)


def test_differences_are_relative_where_entries_exceed_one():
    assert difference([torch.tensor([1.5])], [torch.tensor([1.0])]) == 0.5
    assert difference([torch.tensor([0.5])], [torch.tensor([0.25])]) == 0.25
    assert difference([torch.tensor([110.0, 1.0])], [torch.tensor([100.0, 1.0])]) == pytest.approx(
        0.1
    )


def test_nan_other_shapes_and_missing_gradients_are_differences():
    assert difference([None], [torch.zeros(2)]) == torch.inf
    bad = torch.tensor([torch.nan, 0.0])
    gap = difference([bad, torch.zeros(2)], [torch.zeros(2), torch.zeros(2)])
    assert not gap <= 1.0
    with pytest.raises(AssertionError):
        difference([torch.zeros(2)], [torch.zeros(3)])


class BesselNorm(LayerNorm):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.var(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias


class EpsOutside(LayerNorm):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight + self.bias


@pytest.mark.parametrize("wrong", [BesselNorm, EpsOutside])
def test_the_ladder_finds_the_usual_wrong_norms(wrong):
    rung = Rung("wrong", "", "", ladder.norm(wrong, nn.LayerNorm))
    assert measure(rung, torch.float64, "eval", "whole").forward > 1e-3


class ForgetsTheMask(EncoderLayer):
    def forward(self, x, keep_mask=None, return_weights=False):
        return super().forward(x, None, return_weights)


class DetachedResidual(EncoderLayer):
    def add(self, x, change):
        return x.detach() + change


@pytest.mark.parametrize(
    ("wrong", "padding", "field"),
    [(ForgetsTheMask, "padded", "forward"), (DetachedResidual, "whole", "gradient")],
)
def test_the_ladder_finds_wrong_layers(monkeypatch, wrong, padding, field):
    monkeypatch.setattr(ladder, "EncoderLayer", wrong)
    rung = Rung("wrong", "", "", ladder.layer("pre", "relu"))
    assert getattr(measure(rung, torch.float64, "eval", padding), field) > 1e-3
    if field == "gradient":  # the output alone would have been right
        assert measure(rung, torch.float64, "eval", padding).forward < 1e-12


def test_runs_hold_what_they_say():
    ours, theirs = LADDER[1].run(torch.float32, False, ladder.KEEPS["padded"])
    assert isinstance(ours, Run) and len(ours.outputs) == 2  # the output and the weights per head
    assert len(ours.gradients) == len(theirs.gradients) == 9  # the input and 4 weights, 4 biases
    assert all(gradient.abs().max() > 1e-6 for gradient in ours.gradients[:3])
