"""Answers to the exercises of chapter 05. Those with one wrong step come from ``mutants.py``."""

import torch
from torch import nn
from torch.nn import functional as F

import encoder_lib
import mutants
from answers import right, wrong

CHECK = "multi_head_attention"
right(CHECK)(encoder_lib.MultiHeadAttention)
right(CHECK, note="interleaved")(mutants.mutant("interleaved_heads"))
right(CHECK, note="swapped")(mutants.mutant("qk_swapped"))
for form in mutants.WRONG:
    wrong(CHECK, "random" if form == "dropout_always" else form)(mutants.mutant(form))
