"""Pre-LN and Post-LN, with and without warm-up, from two starts: the table of chapter 10.

    python tools/warmup_grid.py [N_SEEDS]       about 10 CPU seconds a run, 8 runs a seed

Task: eight random digits, to be given back in reverse order; fresh ones at every step. Writes
encoder_lib/data/warmup_grid.json after each run, and leaves out the runs that it holds already:
{"post xavier 0": [share of right digits per seed], ...}, where 0 is the number of warm-up steps.
"""

import json
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from encoder_lib import TokenClassifier, TransformerEncoder, initialize

FILE = Path(__file__).parents[1] / "encoder_lib" / "data" / "warmup_grid.json"
STEPS, PEAK, LENGTH, SYMBOLS, BATCH = 600, 3e-3, 8, 10, 32
ARMS = [
    (norm, scheme, warmup)
    for norm in ("post", "pre")
    for scheme in ("xavier", "torch")
    for warmup in (0, 200)
]


def build(norm, scheme, seed):
    """Six layers of 48 numbers, without dropout."""
    torch.manual_seed(seed)
    encoder = TransformerEncoder(
        SYMBOLS, 48, 4, 96, 6, max_len=LENGTH, pad_id=None, dropout=0.0, norm=norm
    )
    return initialize(TokenClassifier(encoder, SYMBOLS), scheme)


def run(norm, scheme, warmup, seed):
    """Train one model; returns its share of right digits on 1,000 fresh rows."""
    model = build(norm, scheme, seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    draw = torch.Generator().manual_seed(seed)
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, step / max(warmup, 1))
        ids = torch.randint(SYMBOLS, (BATCH, LENGTH), generator=draw)  # (B, L)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(SYMBOLS, (1000, LENGTH), generator=draw)
    with torch.no_grad():
        right = model.eval()(ids).argmax(-1) == ids.flip(1)
    return right.float().mean().item()


def main(n_seeds=5):
    """Fill the table, seed by seed."""
    torch.set_num_threads(1)
    found = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for seed in range(n_seeds):
        for arm in ARMS:
            accuracies = found.setdefault(" ".join(map(str, arm)), [])
            if len(accuracies) <= seed:
                accuracies.append(round(run(*arm, seed), 3))
                rows = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
                FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
                print(arm, seed, accuracies[-1], flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
