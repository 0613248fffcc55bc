"""Pre-LN and Post-LN, with and without warm-up, from two starts: the tables of chapter 10.

    python tools/warmup_grid.py [N_SEEDS]       about 10 CPU seconds a run, 10 runs a seed

Task: eight random digits, to be given back in reverse order; fresh ones at every step. Writes
encoder_lib/data/warmup_grid.json (eight arms, rate 0.003) and warmup_high_rate.json (two arms, rate
0.01) after each run, and leaves out the runs that they hold already:
{"post xavier 0": [share of right digits per seed], ...}, where 0 is the number of warm-up steps.
"""

import json
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from encoder_lib import TokenClassifier, TransformerEncoder, initialize

FOLDER = Path(__file__).parents[1] / "encoder_lib" / "data"
STEPS, LENGTH, SYMBOLS, BATCH = 600, 8, 10, 32
ARMS = [
    (norm, scheme, warmup)
    for norm in ("post", "pre")
    for scheme in ("xavier", "torch")
    for warmup in (0, 200)
]
HIGH_RATE = [("post", "torch", 0), ("post", "torch", 200)]
TABLES = {"warmup_grid.json": (ARMS, 3e-3), "warmup_high_rate.json": (HIGH_RATE, 1e-2)}


def build(norm, scheme, seed):
    """Six layers of 48 numbers, without dropout."""
    torch.manual_seed(seed)
    encoder = TransformerEncoder(
        SYMBOLS, 48, 4, 96, 6, max_len=LENGTH, pad_id=None, dropout=0.0, norm=norm
    )
    return initialize(TokenClassifier(encoder, SYMBOLS), scheme)


def run(norm, scheme, warmup, seed, peak):
    """Train one model; returns its share of right digits on 1,000 fresh rows."""
    model = build(norm, scheme, seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    draw = torch.Generator().manual_seed(seed)
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, step / max(warmup, 1))
        ids = torch.randint(SYMBOLS, (BATCH, LENGTH), generator=draw)  # (B, L)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(SYMBOLS, (1000, LENGTH), generator=draw)
    with torch.no_grad():
        right = model.eval()(ids).argmax(-1) == ids.flip(1)
    return right.float().mean().item()


def fill(file, arms, peak, seed):
    """Add the runs of one seed to a table, those that it does not hold yet."""
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for arm in arms:
        accuracies = found.setdefault(" ".join(map(str, arm)), [])
        if len(accuracies) <= seed:
            accuracies.append(round(run(*arm, seed, peak), 3))
            rows = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
            file.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
            print(file.name, arm, seed, accuracies[-1], flush=True)


def main(n_seeds=5):
    """Fill the tables, seed by seed."""
    torch.set_num_threads(1)
    for seed in range(n_seeds):
        for name, (arms, peak) in TABLES.items():
            fill(FOLDER / name, arms, peak, seed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
