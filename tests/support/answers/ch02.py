"""Answers to the exercises of chapter 02."""

import math

import torch
from torch import nn

import encoder_lib
from answers import right, wrong

WRONG_VALUES = {
    "2.1": {"base_10000": 47117, "exponent_one": 628, "no_turn": 86.6, "exponent_halved": 58.5}
}

# --- adding positions -----------------------------------------------------------------------------

ADD = "add_positions"


class TooShort(ValueError):
    """An error of one's own."""


@right(ADD)
def refuses_in_its_own_words(x, table):
    if len(table) < x.shape[1]:
        raise TooShort
    return torch.stack([x[:, p] + table[p].to(x) for p in range(x.shape[1])], dim=1)


def refuse(x, table):
    if x.shape[1] > table.shape[0]:
        raise ValueError("longer than the table")


@right(ADD)
def row_by_row(x, table):
    refuse(x, table)
    place = table.to(x.dtype)
    return torch.stack([x[:, p] + place[p] for p in range(x.size(1))], dim=1)


@right(ADD)
class Looked(nn.Module):
    def forward(self, x, table):
        batch, length, _ = x.shape
        if length > len(table):
            raise ValueError(f"{length} tokens, {len(table)} rows")
        ids = torch.arange(length).expand(batch, length)
        return (x + nn.functional.embedding(ids, table)).type_as(x)


@wrong(ADD, "promotes+not_refused")
def the_usual_line(x, table):
    return x + table[: x.size(1)]


@wrong(ADD, "promotes")
def checked_but_promoted(x, table):
    refuse(x, table)
    return table[None, : x.size(1)] + x


@wrong(ADD, "not_refused")
def without_a_check(x, table):
    return x + table[: x.size(1)].to(x)


@wrong(ADD, "not_refused")
def the_table_over_again(x, table):
    rows = torch.arange(x.size(1)).remainder(table.size(0))
    return x + table[rows].to(x.dtype)


@wrong(ADD, "by_batch")
def indexed_by_axis_0(x, table):
    refuse(x, table)
    return x + table[: x.size(0)].unsqueeze(1).to(x.dtype)


@wrong(ADD, "last_rows")
def counted_from_the_end(x, table):
    refuse(x, table)
    return x + table[-x.size(1) :].to(x.dtype)


@wrong(ADD, "from_1")
def first_row_left_out(x, table):
    refuse(x, table)
    return x + table[1 : 1 + x.size(1)].to(x.dtype)


@wrong(ADD, "one_row")
def row_number_l(x, table):
    refuse(x, table)
    return x + table[x.size(1) - 1].to(x.dtype)


@wrong(ADD, "whole_table")
def all_of_it(x, table):
    refuse(x, table)
    return x + table.to(x.dtype)


@wrong(ADD, "numbers_added")
def position_numbers(x, table):
    refuse(x, table)
    return x + torch.arange(x.size(1)).view(1, -1, 1)


@wrong(ADD, "multiplied")
def product(x, table):
    refuse(x, table)
    return x * table[: x.size(1)].to(x.dtype)


@wrong(ADD, "appended")
def side_by_side(x, table):
    refuse(x, table)
    place = table[: x.size(1)].to(x.dtype).repeat(x.size(0), 1, 1)
    return torch.cat((x, place), dim=2)


@wrong(ADD, "mutates")
def in_place(x, table):
    refuse(x, table)
    x += table[: x.size(1)]
    return x


@wrong(ADD, "gradient")
def detached_table(x, table):
    refuse(x, table)
    return x + table[: x.size(1)].to(x.dtype).detach()


# --- the table ------------------------------------------------------------------------------------

TABLE = "sinusoidal_table"


@right(TABLE)
def number_by_number(length, d_model, base):
    def entry(p, column):
        angle = p / base ** ((column - column % 2) / d_model)
        return math.cos(angle) if column % 2 else math.sin(angle)

    return torch.tensor([[entry(p, c) for c in range(d_model)] for p in range(length)])


@right(TABLE)
def complex_numbers(length, d_model, base):
    speed = base ** (-torch.arange(0, d_model, 2).double() / d_model)
    hands = torch.exp(1j * torch.outer(torch.arange(length).double(), speed))
    return torch.stack([hands.imag, hands.real], dim=-1).flatten(1)[:, :d_model]


@right(TABLE)
def cosine_as_a_late_sine(length, d_model, base):
    column = torch.arange(d_model, dtype=torch.float64)
    late = column.remainder(2)
    return torch.sin(
        torch.arange(length)[:, None] * base ** (-(column - late) / d_model) + late * math.pi / 2
    )


@right(TABLE, note="float32")
def exp_and_log_in_float32(length, d_model, base):
    position = torch.arange(length).unsqueeze(1)
    speed = torch.exp(torch.arange(0, d_model, 2) * (-math.log(base) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(position * speed)
    table[:, 1::2] = torch.cos(position * speed)[:, : d_model // 2]
    return table


@wrong(TABLE, "odd_width")
def as_many_cosines_as_sines(length, d_model, base):
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    speed = torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(base) / d_model))
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * speed)
    table[:, 1::2] = torch.cos(position * speed)
    return table


@wrong(TABLE, "halves")
def sines_left_cosines_right(length, d_model, base):
    speed = 1 / base ** (torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.arange(length).double()[:, None] * speed
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


@wrong(TABLE, "halves")
def halves_of_any_width(length, d_model, base):
    return torch.cat([complex_numbers(length, d_model, base)[:, s::2] for s in (0, 1)], dim=1)


def by_column(length, d_model, base, angle, even=math.sin, odd=math.cos, start=0):
    rows = range(start, length + start)
    return torch.tensor([[(odd if c % 2 else even)(angle(p, c)) for c in range(d_model)]
                         for p in rows])  # fmt: skip


@wrong(TABLE, "cos_first")
def cosine_in_even_columns(length, d_model, base):
    def angle(p, c):
        return p * base ** (-2 * (c // 2) / d_model)

    return by_column(length, d_model, base, angle, even=math.cos, odd=math.sin)


@wrong(TABLE, "only_sines")
def nothing_but_sines(length, d_model, base):
    def angle(p, c):
        return p * base ** (-2 * (c // 2) / d_model)

    return by_column(length, d_model, base, angle, odd=math.sin)


@wrong(TABLE, "own_frequency")
def column_in_the_exponent(length, d_model, base):
    return by_column(length, d_model, base, lambda p, c: p / base ** (c / d_model))


@wrong(TABLE, "own_frequency")
def column_doubled(length, d_model, base):
    return by_column(length, d_model, base, lambda p, c: p / base ** (2 * c / d_model))


@wrong(TABLE, "exponent_halved")
def pair_in_the_exponent(length, d_model, base):
    return by_column(length, d_model, base, lambda p, c: p / base ** ((c // 2) / d_model))


@wrong(TABLE, "exponent_doubled")
def twice_two(length, d_model, base):
    table = torch.zeros(length, d_model)
    for p in range(length):
        for i in range(0, d_model, 2):
            angle = p / base ** (2 * i / d_model)
            table[p, i] = math.sin(angle)
            table[p, i + 1] = math.cos(angle)
    return table


@wrong(TABLE, "exponent_to_the_end")
def evenly_spread(length, d_model, base):
    n = math.ceil(d_model / 2)
    speed = torch.logspace(0, -math.log10(base), n, dtype=torch.float64).repeat_interleave(2)
    angle = torch.arange(length)[:, None] * speed[:d_model]
    return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos())


@wrong(TABLE, "one_frequency")
def all_at_one_speed(length, d_model, base):
    return by_column(length, d_model, base, lambda p, c: p)


@wrong(TABLE, "from_1")
def first_position_is_1(length, d_model, base):
    return complex_numbers(length + 1, d_model, base)[1:]


@wrong(TABLE, "base_ignored")
def the_book_s_table(length, d_model, base):
    return encoder_lib.sinusoidal_table(length, d_model)


@wrong(TABLE, "inverted")
def multiplied_by_the_power(length, d_model, base):
    return by_column(length, d_model, base, lambda p, c: p * base ** (2 * (c // 2) / d_model))


@wrong(TABLE, "halves+from_1")
def two_mistakes(length, d_model, base):
    return halves_of_any_width(length + 1, d_model, base)[1:]


# --- the shift ------------------------------------------------------------------------------------

SHIFT = "shift_matrix"


def speeds(d_model):
    return [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]


def blocks(k, d_model, block):
    return torch.block_diag(
        *[torch.tensor(block(math.cos(k * s), math.sin(k * s))) for s in speeds(d_model)]
    )


@right(SHIFT)
def fitted_to_the_table(k, d_model):
    table, n = encoder_lib.sinusoidal_table(2000, d_model), abs(k)
    before, after = (table[: 2000 - n], table[n:]) if k >= 0 else (table[n:], table[: 2000 - n])
    return torch.linalg.lstsq(before, after).solution


@right(SHIFT)
def an_exponential(k, d_model):
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i, speed in enumerate(speeds(d_model)):
        turn[2 * i + 1, 2 * i], turn[2 * i, 2 * i + 1] = speed, -speed
    return torch.linalg.matrix_exp(k * turn)


@right(SHIFT)
def step_by_step(k, d_model):
    one = blocks(1 if k > 0 else -1, d_model, lambda c, s: [[c, -s], [s, c]])
    return torch.linalg.matrix_power(one, abs(k))


@wrong(SHIFT, "backwards")
def for_columns(k, d_model):
    return blocks(k, d_model, lambda c, s: [[c, s], [-s, c]])


@wrong(SHIFT, "halves")
def four_diagonals(k, d_model):
    angle = k * torch.tensor(speeds(d_model), dtype=torch.float64)
    c, s = angle.cos().diag(), angle.sin().diag()
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


@wrong(SHIFT, "one_frequency")
def one_block_repeated(k, d_model):
    block = torch.tensor([[math.cos(k), -math.sin(k)], [math.sin(k), math.cos(k)]])
    return torch.kron(torch.eye(d_model // 2), block)


@wrong(SHIFT, "exponent")
def without_the_2(k, d_model):
    m = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        c, s = (f(k / 10000 ** (i / d_model)) for f in (math.cos, math.sin))
        m[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, -s], [s, c]])
    return m


@wrong(SHIFT, "no_rotation")
def both_signs_alike(k, d_model):
    return blocks(k, d_model, lambda c, s: [[c, s], [s, c]])


@wrong(SHIFT, "sin_cos_swapped")
def sine_on_the_diagonal(k, d_model):
    return blocks(k, d_model, lambda c, s: [[s, -c], [c, s]])


@wrong(SHIFT, "backwards+halves")
def two_mistakes_of_shift(k, d_model):
    return four_diagonals(-k, d_model)
