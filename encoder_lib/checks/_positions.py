"""Checks of chapter 02: adding positions, the table of sinusoids, the shift as a matrix."""

import torch

from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._learner import Trouble, as_function, call
from encoder_lib.checks._start import one_or_two
from encoder_lib.checks.report import Misconception

__all__ = ["add_positions", "shift_matrix", "sinusoidal_table"]


# --- adding positions -----------------------------------------------------------------------------

SUM, REFUSED = "a result", "a ValueError"


def told(f):
    """f(x, table) as a function that gives ("a result", its result) or ("a ValueError", None)."""

    def run(x, table):
        try:
            return SUM, call(f, x, table)
        except Trouble as trouble:
            if not isinstance(trouble.error, ValueError):
                raise
            return REFUSED, None

    return run


def rows_for(x, table, which):
    """The rows of the table (max_len, D) that meet x (B, L, D)."""
    (batch, length, _), last = x.shape, len(table)
    if which == "batch":
        return table[:batch, None]
    if which == "numbers":
        return torch.arange(length, dtype=table.dtype)[:, None]
    if which == "repeated":
        return table[torch.arange(length) % last]
    start, stop = {"first": (0, length), "last": (max(0, last - length), last),
                   "all": (0, last), "from 1": (1, length + 1), "next": (length, length + 1),
                   "at L": (length - 1, length)}[which]  # fmt: skip
    return table[start:stop]


def summed(x, table, rows="first", how="add", dtype="of x", short="refused"):
    """x (B, L, D) plus rows of the table (max_len, D), or what a wrong step gives."""
    if short == "refused" and x.size(1) > len(table):
        raise ValueError("more tokens than rows")
    if short == "cut":
        x = x[:, : len(table)]
    place = rows_for(x, table, rows)
    place = place.to(x.dtype) if dtype == "of x" else place
    if how == "appended":
        return torch.cat([x, place.expand(*x.shape[:-1], place.size(-1))], dim=-1)
    return {"add": torch.add, "multiply": torch.mul, "subtract": torch.sub}[how](x, place)


ADDITIONS = (
    ("promotes", "The result has the dtype of the table instead of that of x: a table in float64 "
     "makes the whole model compute in float64 from here on.", (dict(dtype="of both"),)),
    ("not_refused", "A table with fewer rows than there are tokens must be refused with a "
     "ValueError. Left to itself the addition complains of two sizes, and a table of one row is "
     "added to every token without a word.",
     (dict(short="broadcast"), dict(short="broadcast", rows="repeated"), dict(short="cut"))),
    ("by_batch", "The rows follow the batch axis: every sentence gets one row, the same for all "
     "of its tokens. The position runs along axis 1.", (dict(rows="batch"),)),
    ("last_rows", "You take the last rows of the table. The first token has position 0 and gets "
     "row 0.", (dict(rows="last"),)),
    ("from_1", "Your positions begin at 1: the first token gets row 1. They begin at 0.",
     (dict(rows="from 1"),)),
    ("one_row", "All tokens get one and the same row, so nothing tells them apart: the table was "
     "indexed by the length instead of being cut there.", (dict(rows="next"), dict(rows="at L"))),
    ("whole_table", "The whole table is added without being cut to the length of the sentence; "
     "that fits only where both are equally long.", (dict(rows="all"),)),
    ("numbers_added", "The position's number is added instead of its row of the table.",
     (dict(rows="numbers"),)),
    ("multiplied", "Tokens and positions are multiplied; they are to be added.",
     (dict(how="multiply"), dict(how="subtract"))),
    ("appended", "The position is appended to the token, so the vectors get longer. It is to be "
     "added: the shape stays (B, L, D).", (dict(how="appended"),)),
)  # fmt: skip


def addition_misconceptions():
    """Those of ADDITIONS, with their forms told as the answer is."""
    return tuple(
        Misconception(m.key, m.diagnosis, tuple(told(form) for form in m.forms))
        for m in one_or_two(summed, ADDITIONS)
    )


add_positions = Checker(
    name="add_positions",
    number="2.2",
    component="positional encoding",
    right=told(summed),
    reread="The module",
    inputs=("x", "table"),
    outputs=("what happens", "the sum"),
    gradient=(0, 1),
    adapt=lambda attempt, draw: told(as_function(attempt)),
    misconceptions=addition_misconceptions(),
    cases=(
        Case("a table longer than the sentence",
             lambda draw: (draw.normal(2, 5, 4), draw.normal(9, 4))),
        Case("batch, length and width equal, so that a wrong broadcast would not be an error",
             lambda draw: (draw.normal(3, 3, 3), draw.normal(7, 3))),
        Case("just as many rows as tokens", lambda draw: (draw.normal(2, 6, 4), draw.normal(6, 4))),
        Case("a table in float64, tokens in float32",
             lambda draw: (draw.normal(2, 4, 6), draw.normal(8, 6, dtype=torch.float64))),
        Case("a table with too few rows is refused",
             lambda draw: (draw.normal(2, 7, 4), draw.normal(5, 4))),
        Case("a table of one row is refused",
             lambda draw: (draw.normal(2, 5, 4), draw.normal(1, 4))),
    ),
)  # fmt: skip


# --- the table ------------------------------------------------------------------------------------


def frequencies(n, d_model, base, exponent):
    """The speeds of n clocks (n,), fast to slow, or what a wrong exponent gives."""
    i = torch.arange(n, dtype=torch.float64)
    power = {"2i": 2 * i / d_model, "i": i / d_model, "4i": 4 * i / d_model, "none": 0 * i,
             "to the end": i / max(1, n - 1)}[exponent]  # fmt: skip
    return base**-power


def waves(length, d_model, base, exponent="2i", first="sin", layout="interleaved", start=0,
          fixed=False, inverse=False, odd="cut", own=0):  # fmt: skip
    """The table (L, D) of sinusoids, or what wrong steps give.

    own: 1 or 2 where every column has a frequency of its own, with that factor in the exponent.
    """
    if odd == "error" and d_model % 2:
        raise RuntimeError("an odd width")
    n, base = (d_model + 1) // 2, 10000.0 if fixed else base
    speed = frequencies(n, d_model, base, exponent).repeat_interleave(2)[:d_model]
    if own:
        speed = base ** (-own * torch.arange(d_model, dtype=torch.float64) / d_model)
    speed = 1 / speed if inverse else speed
    angle = torch.outer(torch.arange(start, length + start, dtype=torch.float64), speed)  # (L, D)
    waves = {"sin": (torch.sin, torch.cos), "cos": (torch.cos, torch.sin),
             "only": (torch.sin, torch.sin)}[first]  # fmt: skip
    even, uneven = waves[0](angle[:, 0::2]), waves[1](angle[:, 1::2])
    if layout == "halves":
        return torch.cat([even, uneven], dim=1)
    if layout == "halves, one too many":
        return torch.cat([even, waves[1](angle[:, 0::2])], dim=1)
    table = torch.empty_like(angle)
    table[:, 0::2], table[:, 1::2] = even, uneven
    return table


def even_only(way):
    """A wrong step alone, and the same where an odd width is an error."""
    return way, way | dict(odd="error")


TABLES = (
    ("odd_width", "Your table is right for an even number of dimensions and fails for an odd "
     "one. There are then more sines than cosines: the last clock shows its sine only.",
     (dict(odd="error"),)),
    ("halves", "All sines stand on the left and all cosines on the right. In this book sine and "
     "cosine of one clock are neighbours: columns 2i and 2i + 1.",
     (*even_only(dict(layout="halves")), dict(layout="halves, one too many"))),
    ("cos_first", "The cosine stands in front of the sine: row 0 should begin with 0, 1.",
     even_only(dict(first="cos"))),
    ("only_sines", "All columns are sines. The odd ones are cosines: a clock hand needs both.",
     even_only(dict(first="only"))),
    ("own_frequency", "Sine and cosine of a pair have different frequencies: the number of the "
     "column went into the exponent where the number of the pair belongs. Position 0 cannot show "
     "it, position 1 does.", (*even_only(dict(own=1)), *even_only(dict(own=2)))),
    ("exponent_halved", "The exponent is only half of what it should be: your slowest clock "
     "turns at about 1 over the root of the base.", even_only(dict(exponent="i"))),
    ("exponent_doubled", "The exponent is twice what it should be: was an index that already "
     "runs 0, 2, 4 multiplied by 2 once more?", even_only(dict(exponent="4i"))),
    ("exponent_to_the_end", "Your slowest clock has a speed of exactly 1 over the base: the "
     "exponents were spread evenly from 0 to 1, both ends included. Here they end one step "
     "before 1.", even_only(dict(exponent="to the end"))),
    ("one_frequency", "All clocks turn at the same speed; the exponent is missing.",
     even_only(dict(exponent="none"))),
    ("from_1", "Your positions begin at 1. The first row belongs to position 0: 0, 1, 0, 1, and "
     "so on.", even_only(dict(start=1))),
    ("base_ignored", "The base is always 10000, whatever is handed in.",
     even_only(dict(fixed=True))),
    ("inverted", "The clocks get faster from left to right: the position is multiplied by the "
     "power of the base instead of being divided by it.", even_only(dict(inverse=True))),
)  # fmt: skip


def precision(evidence):
    """A note on angles in float32, which are off at far positions."""
    far = evidence.ask(5001, 16, 10000.0)[-1].double() - waves(5001, 16, 10000.0)[-1]
    off = far.abs().max().item()
    text = f"at position 5000 an entry is off by {off:.0e}: angles in float32 are not exact there"
    return ((text,) if off > 1e-5 else ()) + not_float64(evidence)


def not_float64(evidence):
    """A note on a result of another dtype than asked for."""
    dtype = evidence.trials[0].got.dtype
    return () if dtype == torch.float64 else (f"asked for was float64; yours is {dtype}",)


sinusoidal_table = Checker(
    name="sinusoidal_table",
    number="2.3",
    component="positional encoding",
    right=waves,
    reread="A row of clocks",
    inputs=("length", "d_model", "base"),
    tolerance=1e-4,
    dtype=False,
    notes=precision,
    misconceptions=one_or_two(waves, TABLES),
    cases=(
        Case("an even number of dimensions", lambda draw: (draw.integer(5, 9), 8, 10000.0)),
        Case("an odd number of dimensions", lambda draw: (draw.integer(5, 9), 7, 10000.0)),
        Case("another base", lambda draw: (draw.integer(5, 9), 6, float(draw.integer(50, 500)))),
        Case("sixty positions", lambda draw: (60, 2 * draw.integer(8, 12), 10000.0)),
    ),
)


# --- the shift ------------------------------------------------------------------------------------


def shift(
    k, d_model, backwards=False, exponent="2i", layout="interleaved", signs=(1, -1), swapped=False
):
    """M (D, D) with table[p] @ M == table[p + k], rows as codes, or what wrong steps give."""
    n = d_model // 2
    angle = (-k if backwards else k) * frequencies(n, d_model, 10000.0, exponent)  # (D / 2,)
    cos, sin = (angle.sin(), angle.cos()) if swapped else (angle.cos(), angle.sin())
    one, two = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)
    if layout == "halves":
        one, two = torch.arange(n), torch.arange(n, d_model)
    m = torch.zeros(d_model, d_model, dtype=torch.float64)
    m[one, one], m[two, two] = cos, cos
    m[two, one], m[one, two] = signs[0] * sin, signs[1] * sin
    return m


SHIFTS = (
    ("backwards", "Your matrix turns the hands back: it is the transpose, the inverse. Codes are "
     "rows here, and a row meets the matrix from the left; as columns they would need it as it "
     "is.", (dict(backwards=True),)),
    ("halves", "Your blocks couple column i with column i + D/2. In this book sine and cosine of "
     "a clock are neighbours, so the blocks stand on the diagonal.", (dict(layout="halves"),)),
    ("one_frequency", "All blocks turn by the same angle. Each clock has a speed of its own, so "
     "the same shift turns it by another angle.", (dict(exponent="none"),)),
    ("exponent", "The blocks turn by angles that do not belong to the table: look at the "
     "exponent of the frequency of pair i.",
     (dict(exponent="i"), dict(exponent="4i"), dict(exponent="to the end"))),
    ("no_rotation", "Your blocks are no rotations: both sines of a block have the same sign. One "
     "of them is negative; only then a hand keeps its length.",
     (dict(signs=(1, 1)), dict(signs=(-1, -1)))),
    ("sin_cos_swapped", "Sine and cosine have changed places: a shift by 0 should change "
     "nothing, and cos 0 = 1 belongs on the diagonal.",
     (dict(swapped=True), dict(swapped=True, signs=(-1, 1)))),
)  # fmt: skip

shift_matrix = Checker(
    name="shift_matrix",
    number="2.4",
    component="positional encoding",
    right=shift,
    notes=not_float64,
    reread="A shift is a rotation",
    inputs=("k", "d_model"),
    tolerance=1e-4,
    dtype=False,
    misconceptions=one_or_two(shift, SHIFTS),
    cases=(
        Case("one step", lambda draw: (1, 6)),
        Case("several steps", lambda draw: (draw.integer(2, 30), 8)),
        Case("a negative k goes back", lambda draw: (-draw.integer(2, 9), 4)),
        Case("no step at all changes nothing", lambda draw: (0, 6)),
        Case("one clock alone", lambda draw: (draw.integer(1, 6), 2)),
    ),
)
