"""Answers to the exercises of chapter 00."""

import collections
import statistics

import numpy as np
import torch
from torch import nn

from answers import right, wrong

WRONG_VALUES = {"0.2": {"heads": "heads", "length": "length", "batch": "batch"}}

# --- the number of parameters ---------------------------------------------------------------------

COUNT = "parameter_count"


@right(COUNT)
def by_identity(module):
    seen, total = set(), 0
    for part in module.modules():
        for p in part._parameters.values():
            if p is not None and id(p) not in seen:
                seen.add(id(p))
                total += p.numel()
    return total


@right(COUNT)
def as_one_vector(module):
    return nn.utils.parameters_to_vector(module.parameters()).numel()


@right(COUNT)
def as_a_tensor(module):
    sizes = [torch.tensor(p.shape).prod() for p in set(module.parameters())]
    return torch.stack([size.long() for size in sizes]).sum()


@right(COUNT)
def with_numpy(module):
    return sum(np.prod(p.shape) for p in module.parameters())


@wrong(COUNT, "state_dict")
def what_is_saved(module):
    return sum(tensor.numel() for tensor in module.state_dict().values())


@wrong(COUNT, "buffers_counted")
def with_buffers(module):
    return sum(t.numel() for t in [*module.parameters(), *module.buffers()])


@wrong(COUNT, "shared_twice")
def part_by_part(module):
    return sum(
        p.numel() for part in list(module.named_modules(remove_duplicate=False))
        for p in part[1].parameters(recurse=False)
    )  # fmt: skip


@wrong(COUNT, "shared_twice")
def each_by_itself(module):
    total = 0
    for part in module.modules():
        total += sum(p.numel() for p in part.parameters(recurse=False))
    return total


@wrong(COUNT, "frozen_left_out")
def trainable_only(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@wrong(COUNT, "matrices_only")
def rows_times_columns(module):
    return sum(p.shape[0] * p[0].numel() for p in module.parameters() if len(p.shape) >= 2)


@wrong(COUNT, "matrices_only")
def weights_without_biases(module):
    total = 0
    for name, p in module.named_parameters():
        if "weight" in name:
            total += p.numel()
    return total


@wrong(COUNT, "tensors_counted")
def length_of_the_list(module):
    return len(list(module.parameters()))


@wrong(COUNT, "bytes")
def memory(module):
    return sum(p.nbytes for p in module.parameters())


@wrong(COUNT, "not_deep")
def children_only(module):
    return sum(p.numel() for child in module.children() for p in child._parameters.values())


@wrong(COUNT, "frozen_left_out+bytes")
def trainable_bytes(module):
    return sum(4 * p.numel() for p in module.parameters() if p.requires_grad)


# --- the baseline ---------------------------------------------------------------------------------

BASELINE = "majority_baseline"


@right(BASELINE)
def with_a_counter(train_labels, test_labels):
    (most, _), = collections.Counter(train_labels.tolist()).most_common(1)  # fmt: skip
    right_ones = [label for label in test_labels.tolist() if label == most]
    return len(right_ones) / len(test_labels)


@right(BASELINE)
def with_bincount(train_labels, test_labels):
    counts = torch.bincount(train_labels)
    return (test_labels == counts.argmax()).float().mean()


@right(BASELINE)
class Majority(nn.Module):
    def forward(self, train_labels, test_labels):
        guess = torch.full_like(test_labels, statistics.mode(train_labels.tolist()))
        return guess.eq(test_labels).sum() / test_labels.numel()


@wrong(BASELINE, "majority_of_test")
def looks_at_the_test_set(train_labels, test_labels):
    return (test_labels == test_labels.mode()[0]).float().mean().item()


@wrong(BASELINE, "both_sets")
def counts_everything(train_labels, test_labels):
    everything = [*train_labels.tolist(), *test_labels.tolist()]
    most = max(set(everything), key=everything.count)
    return test_labels.tolist().count(most) / len(test_labels)


@wrong(BASELINE, "share_in_train")
def most_frequent_share(train_labels, test_labels):
    return max(train_labels.bincount()).item() / len(train_labels)


@wrong(BASELINE, "one_over_classes")
def blind_guess(train_labels, test_labels):
    return 1 / len(set(train_labels.tolist()))


@wrong(BASELINE, "proportional")
def guesses_in_proportion(train_labels, test_labels):
    p = torch.bincount(train_labels, minlength=9) / len(train_labels)
    q = torch.bincount(test_labels, minlength=9) / len(test_labels)
    return float(p @ q)


@wrong(BASELINE, "least_frequent")
def smallest_instead_of_largest(train_labels, test_labels):
    labels = train_labels.tolist()
    least = min(set(labels), key=labels.count)
    return sum(label == least for label in test_labels.tolist()) / len(test_labels)


@wrong(BASELINE, "class_returned")
def the_class_itself(train_labels, test_labels):
    return train_labels.bincount().argmax().item()


@wrong(BASELINE, "count_returned")
def not_divided(train_labels, test_labels):
    return int((test_labels == train_labels.mode()[0]).sum())


@wrong(BASELINE, "error_rate")
def share_of_errors(train_labels, test_labels):
    return (test_labels != train_labels.mode()[0]).float().mean()


@wrong(BASELINE, "percent")
def in_percent(train_labels, test_labels):
    return 100 * with_bincount(train_labels, test_labels)


@wrong(BASELINE, "majority_of_test+count_returned")
def two_mistakes(train_labels, test_labels):
    return test_labels.bincount().max()
