"""Answers to the exercises of chapter 01."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from answers import right, wrong

WRONG_VALUES = {
    "1.1": {"spaces": 6, "abbreviation": 11, "ellipsis": 10, "abbreviation_and_ellipsis": 9,
            "every_mark": 18}
}  # fmt: skip

# --- padding --------------------------------------------------------------------------------------

PAD = "pad_batch"


@right(PAD)
def with_pad_sequence(rows, pad_id, max_len):
    tensors = [torch.tensor(row[:max_len]) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=pad_id)


@right(PAD)
def with_zip_longest(rows, pad_id, max_len):
    columns = itertools.zip_longest(*[row[:max_len] for row in rows], fillvalue=pad_id)
    return torch.tensor(list(columns)).T


@right(PAD)
def with_a_mask(rows, pad_id, max_len):
    lengths = torch.tensor([min(len(row), max_len) for row in rows])
    keep = torch.arange(int(lengths.max())) < lengths[:, None]
    flat = torch.tensor([i for row in rows for i in row[:max_len]])
    return torch.full(keep.shape, pad_id).masked_scatter(keep, flat)


@wrong(PAD, "pads_left")
def padding_in_front(rows, pad_id, max_len):
    rows = [row[:max_len] for row in rows]
    longest = max(map(len, rows))
    return torch.tensor([[pad_id] * (longest - len(row)) + row for row in rows])


@wrong(PAD, "cut_to_shortest")
def with_zip(rows, pad_id, max_len):
    return torch.tensor(list(zip(*[row[:max_len] for row in rows], strict=False))).T


@wrong(PAD, "always_max_len")
def as_wide_as_the_limit(rows, pad_id, max_len):
    ids = torch.full((len(rows), max_len), pad_id)
    for i, row in enumerate(rows):
        for j, token in enumerate(row[:max_len]):
            ids[i, j] = token
    return ids


@wrong(PAD, "off_by_one")
def last_column_lost(rows, pad_id, max_len):
    return with_pad_sequence(rows, pad_id, max_len - 1)


@wrong(PAD, "off_by_one")
def one_column_more(rows, pad_id, max_len):
    return F.pad(with_pad_sequence(rows, pad_id, max_len), (0, 1), value=pad_id)


@wrong(PAD, "cut_at_front")
def keeps_the_end(rows, pad_id, max_len):
    return with_pad_sequence([row[-max_len:] for row in rows], pad_id, max_len)


@wrong(PAD, "not_cut")
def without_a_limit(rows, pad_id, max_len):
    return pad_sequence([torch.tensor(row) for row in rows], True, pad_id)


@wrong(PAD, "not_cut")
def assert_instead_of_cutting(rows, pad_id, max_len):
    assert all(len(row) <= max_len for row in rows)
    return without_a_limit(rows, pad_id, max_len)


@wrong(PAD, "pad_id_ignored")
def zeros_first(rows, pad_id, max_len):
    rows = [row[:max_len] for row in rows]
    ids = torch.zeros(len(rows), max(len(row) for row in rows), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids


@wrong(PAD, "mutates")
def extends_the_rows(rows, pad_id, max_len):
    longest = min(max_len, max(len(row) for row in rows))
    for row in rows:
        while len(row) < longest:
            row.append(pad_id)
    return torch.tensor([row[:longest] for row in rows])


@wrong(PAD, "dtype")
def floats(rows, pad_id, max_len):
    return with_pad_sequence(rows, pad_id, max_len).float()


@wrong(PAD, "pads_left+pad_id_ignored")
def zeros_in_front(rows, pad_id, max_len):
    return padding_in_front(rows, 0, max_len)


# --- the embedding as a product -------------------------------------------------------------------

PRODUCT = "embedding_by_product"


@right(PRODUCT)
def picked(ids, weight):
    return weight[ids]


@right(PRODUCT)
def with_einsum(ids, weight):
    one_hot = torch.eye(len(weight), dtype=weight.dtype)[ids]
    return torch.einsum("blv,vd->bld", one_hot, weight)


@right(PRODUCT)
def a_bias_free_linear_layer(ids, weight):
    one_hot = torch.zeros(*ids.shape, weight.size(0), dtype=weight.dtype)
    return F.linear(one_hot.scatter(-1, ids.unsqueeze(-1), 1.0), weight.T)


@right(PRODUCT)
def stacked_row_by_row(ids, weight):
    return torch.stack([torch.stack([weight[int(i)] for i in row]) for row in ids])


@wrong(PRODUCT, "classes_from_ids")
def as_many_classes_as_seen(ids, weight):
    return F.one_hot(ids).to(weight.dtype) @ weight


@wrong(PRODUCT, "float32_only")
def always_float(ids, weight):
    return F.one_hot(ids, num_classes=weight.size(0)).float() @ weight


@wrong(PRODUCT, "transposed")
def linear_with_the_table(ids, weight):
    return F.linear(F.one_hot(ids, weight.size(0)).to(weight), weight)


@wrong(PRODUCT, "off_by_one")
def counted_from_one(ids, weight):
    numbers = torch.arange(1, weight.size(0) + 1)
    return (ids.unsqueeze(-1) == numbers).to(weight.dtype) @ weight


@wrong(PRODUCT, "off_by_one")
def the_row_before(ids, weight):
    return weight[ids - 1]


@wrong(PRODUCT, "padding_zeroed")
def nothing_for_id_0(ids, weight):
    one_hot = F.one_hot(ids, weight.size(0)).to(weight.dtype)
    one_hot[..., 0] = 0
    return one_hot @ weight


@wrong(PRODUCT, "summed_over_tokens")
def a_bag(ids, weight):
    counts = F.one_hot(ids, weight.size(0)).sum(dim=1)
    return counts.to(weight.dtype) @ weight


@wrong(PRODUCT, "gradient")
def plain_numbers(ids, weight):
    return F.one_hot(ids, weight.size(0)).to(weight.dtype) @ weight.data


@wrong(PRODUCT, "classes_from_ids+float32_only")
def two_mistakes(ids, weight):
    return F.one_hot(ids).float() @ weight


# --- the scale ------------------------------------------------------------------------------------

SCALED = "scaled_embedding"


@right(SCALED)
def masked_after(ids, weight, pad_id):
    x = weight[ids] * weight.shape[1] ** 0.5
    return x.masked_fill(ids.eq(pad_id).unsqueeze(2), 0)


@right(SCALED)
def a_copy_of_the_table(ids, weight, pad_id):
    table = weight * math.sqrt(weight.size(-1))
    table = torch.cat([table[:pad_id], torch.zeros_like(table[:1]), table[pad_id + 1 :]])
    return F.embedding(ids, table)


@right(SCALED)
class Scaled(nn.Module):
    def forward(self, ids, weight, pad_id):
        real = (ids != pad_id)[..., None].to(weight.dtype)
        return real * F.embedding(ids, weight, padding_idx=pad_id) * weight.size(1) ** 0.5


@wrong(SCALED, "not_scaled")
def without_the_factor(ids, weight, pad_id):
    return weight[ids] * (ids != pad_id)[..., None]


@wrong(SCALED, "divided")
def quieter(ids, weight, pad_id):
    return without_the_factor(ids, weight, pad_id) / math.sqrt(weight.size(1))


@wrong(SCALED, "times_d")
def without_the_root(ids, weight, pad_id):
    return without_the_factor(ids, weight, pad_id) * weight.size(1)


@wrong(SCALED, "root_of_other_size")
def root_of_the_first_axis(ids, weight, pad_id):
    return without_the_factor(ids, weight, pad_id) * len(weight) ** 0.5


@wrong(SCALED, "root_of_other_size")
def root_of_the_length(ids, weight, pad_id):
    return without_the_factor(ids, weight, pad_id) * ids.size(1) ** 0.5


@wrong(SCALED, "padding_not_zero")
def padding_idx_only(ids, weight, pad_id):
    return F.embedding(ids, weight, padding_idx=pad_id) * math.sqrt(weight.size(1))


@wrong(SCALED, "id_0_zeroed")
def truth_of_the_ids(ids, weight, pad_id):
    return weight[ids] * math.sqrt(weight.size(1)) * ids.bool()[..., None]


@wrong(SCALED, "inverted")
def keeps_the_padding(ids, weight, pad_id):
    x = weight[ids] * math.sqrt(weight.size(1))
    return x.masked_fill((ids != pad_id)[..., None], 0.0)


@wrong(SCALED, "mask_axis")
def mask_without_an_axis(ids, weight, pad_id):
    return F.embedding(ids, weight) * math.sqrt(weight.size(1)) * (ids != pad_id)


@wrong(SCALED, "mutates")
def zeroes_the_table(ids, weight, pad_id):
    with torch.no_grad():
        weight[pad_id] = 0
    return weight[ids] * math.sqrt(weight.size(1))


@wrong(SCALED, "gradient")
def detached(ids, weight, pad_id):
    return masked_after(ids, weight.detach(), pad_id)


@wrong(SCALED, "not_scaled+padding_not_zero")
def only_a_look_up(ids, weight, pad_id):
    return weight[ids]
