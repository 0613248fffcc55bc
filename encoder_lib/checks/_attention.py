"""Checks of chapter 03: the softmax, attention, the way back through the softmax."""

import functools
import inspect
import math

import torch
from torch import nn

from encoder_lib.attention import scaled_dot_product_attention as reference
from encoder_lib.checks._attend import WRONG_STEPS, Steps, attend, filled, said, wrong_pairs
from encoder_lib.checks._checker import Case, Checker
from encoder_lib.checks._compare import apart
from encoder_lib.checks._learner import NotAttempted, Trouble, answer, as_function, copied
from encoder_lib.checks._softmax import softmax, softmax_backward
from encoder_lib.checks.report import Misconception

__all__ = ["scaled_dot_product_attention", "softmax", "softmax_backward"]


# --- what is asked of an answer -------------------------------------------------------------------


def takes(f, n):
    """Whether f can be called with n positional arguments; True when nobody can say."""
    try:
        inspect.signature(f).bind(*range(n))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def mask_name(f, place):
    """The name by which f wants its mask where that is not argument number ``place``; or None."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters) and not takes(f, place + 1):
        return "keep_mask" if place == 1 else "mask"
    named = [i for i, p in enumerate(parameters) if "mask" in p.name.lower()]
    if not named or place in named and parameters[place].kind is not inspect.Parameter.KEYWORD_ONLY:
        return None
    return parameters[named[0]].name if named[0] >= place else None


def with_mask(f, signature, args, mask):
    """What f gives for args, with the mask at the place or by the name that its signature has.

    Without a mask, or where f takes none, it is called without one if it can be. Raises as
    ``answer``.
    """
    n = len(args)
    name = mask_name(signature, n)
    if mask is not None and name is not None:
        return answer(functools.partial(f, **{name: mask}), *args)
    short = takes(signature, n) and (mask is None or not takes(signature, n + 1))
    return answer(f, *args) if short else answer(f, *args, mask)


def attention_function(attempt, draw):
    """The answer as f(q, k, v, mask) -> (output, weights); weights are None when not returned."""
    (f,) = as_function(attempt).args
    signature = f.forward if isinstance(f, nn.Module) else f

    def run(q, k, v, mask):
        result = with_mask(f, signature, (q, k, v), mask)
        if isinstance(result, torch.Tensor):
            result = (result, None)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise Trouble("the function should return (output, weights)", "type")
        return tuple(result)

    return run


@functools.cache
def unmasked(form):
    """(key, form) of a wrong form with the steps that count without a mask; many share a key."""
    if not isinstance(form, functools.partial):
        return form, form
    options = form.keywords | {"steps": form.keywords.get("steps", Steps()).without_mask}
    return (form.func, frozenset(options.items())), functools.partial(form.func, **options)


class AttentionChecker(Checker):
    """Outputs are always compared; weights when the answer returns them."""

    def apart(self, got, want):
        """The first difference, or None; weights that were not returned are not compared."""
        if isinstance(got, tuple) and len(got) == 2 and got[1] is None:
            got, want = got[:1], want[:1]
        return super().apart(got, want)

    def beginning(self, form):
        """(key, form) without what a mask does, as the first trial has none."""
        return unmasked(form)


# --- signs that no single formula has -------------------------------------------------------------


def masked_case(evidence):
    """Arguments of a trial with a mask, and q, k of equal length."""
    return next(t.args for t in evidence.trials if t.args[3] is not None and t.args[0].dim() == 4)


def right_without_mask(evidence):
    """Whether the first trial, which has no mask, is right."""
    trial = evidence.trials[0]
    return torch.allclose(trial.got[0], trial.want[0], atol=1e-4)


def ignores_mask(evidence):
    """The output is the same with the mask and without."""
    q, k, v, mask = masked_case(evidence)
    if not right_without_mask(evidence):
        return False
    with_mask, without = evidence.ask(q, k, v, mask)[0], evidence.ask(q, k, v, None)[0]
    return torch.allclose(with_mask, without, atol=1e-6)


def masks_queries(evidence):
    """Only the rows of forbidden positions change, while forbidden keys keep their weight."""
    q, k, v, mask = masked_case(evidence)
    if not right_without_mask(evidence):
        return False
    with_mask, without = evidence.ask(q, k, v, mask)[0], evidence.ask(q, k, v, None)[0]
    changed = ~torch.isclose(with_mask, without, atol=1e-6).all(dim=-1)  # (B, H, L_q)
    hidden = ~mask[:, :, 0, :].expand_as(changed)  # (B, H, L): positions that no query may see
    return bool(changed.any()) and not bool((changed & ~hidden).any())


def mixes_samples(evidence):
    """A sample gives another result alone than in its batch."""
    q, k, v, _ = next(t.args for t in evidence.trials if t.args[0].dim() == 4)
    together, alone = evidence.ask(q, k, v, None)[0], evidence.ask(q[:1], k[:1], v[:1], None)[0]
    return not torch.allclose(together[:1], alone, atol=1e-5)


def wrong_weights(evidence):
    """The output is right everywhere, what is returned as its weights is not."""
    trials = evidence.trials
    return all(t.got[1] is not None for t in trials) and all(
        apart(t.got[0], t.want[0], 1e-4) is None for t in trials)  # fmt: skip


def front_axes():
    """Attention with a softmax over axis 1 or 2, with each kind of fill."""
    ways = filled(Steps(weigh="axis 1"), Steps(weigh="axis 2"))
    return tuple(functools.partial(attend, steps=steps) for steps in ways)


def in_place_of(i, j):
    """Attention in which argument ``j`` of q, k, v stands in the place of argument ``i``."""

    def form(*args):
        used = list(args)
        used[i] = args[j]
        return attend(*used)

    return form


WRONG_WEIGHTS = ("The output is right, but what you return beside it is not the weights that made "
                 "it: the scores, a mean over the heads, or weights transposed or not yet "
                 "masked?")  # fmt: skip
OTHERS = (
    Misconception(
        "results_swapped", "What you return first are the weights. The output comes first, the "
        "weights second.", (lambda *args: attend(*args)[::-1],
                            lambda *args: (attend(*args)[1], None))),
    Misconception(
        "softmax_front", "Your softmax runs over an axis that is counted from the front (1 or 2). "
        "With heads, with a batch alone and with neither that is another axis each time; the keys "
        "are the last one.", front_axes()),
    Misconception(
        "operands", "Of queries, keys and values one is used in another's place. Scores are made "
        "of queries and keys, and what is added up are the values.",
        (in_place_of(0, 1), in_place_of(1, 0), in_place_of(2, 1), in_place_of(2, 0))),
    Misconception(
        "mask_values", "The mask sets the values of forbidden keys to 0 and leaves their weights: "
        "they still take their share, and the weights of the others no longer add up to 1.",
        lambda q, k, v, mask: (attend(q, k, v, mask, Steps(hide="after softmax"))[0],
                               attend(q, k, v)[1])),
    Misconception("wrong_weights", WRONG_WEIGHTS, signs=wrong_weights),
)  # fmt: skip
SIGNS = {"mask_ignored": ignores_mask, "mask_query": masks_queries}


def misconceptions():
    """What the attention check recognises, the special before the general."""
    found = [Misconception(key, said(key), signs=signs) for key, signs in SIGNS.items()]
    for key, text, ways in WRONG_STEPS:
        forms = tuple(functools.partial(attend, steps=steps) for steps in ways)
        found.append(Misconception(key, text, forms))
    found.insert(2, Misconception("qk_swapped", "Queries and keys are swapped: the scores are "
                 "transposed, so each key asks and each query answers.",
                 lambda q, k, v, mask: attend(k, q, v, mask)))  # fmt: skip
    found += OTHERS
    for key, text, other, also, steps in wrong_pairs():
        form = functools.partial(attend, steps=steps)
        found.append(Misconception(f"{key}+{other}", f"{text} And: {also}", form))
    found.append(Misconception("mixes_samples", "The sentences of a batch influence each other: "
                 "the first gives another result alone than beside others. Did a reshape or a "
                 "softmax run over the batch axis?", signs=mixes_samples))  # fmt: skip
    return tuple(found)


def notes(evidence):
    """What a right answer does with an empty row, with large scores, and without weights."""
    found = []
    q, k, v, mask = copied(masked_case(evidence))
    try:
        if evidence.ask(q, k, v, torch.zeros_like(mask))[0].abs().max().nan_to_num(math.inf) > 1e-6:
            found.append("a query that may attend to nothing does not give 0 (the library's "
                         "choice, chapter 04)")  # fmt: skip
        if evidence.ask(100 * q, 100 * k, v, mask)[0].isnan().any():
            found.append("scores in the thousands give NaN: subtract the largest score of a row")
    except (Trouble, NotAttempted):
        found.append("a query that may attend to nothing raises an error (the library gives 0)")
    if evidence.trials[0].got[1] is None:
        found.append("no weights were returned, so only outputs were compared")
    return tuple(found)


def padded(draw, batch, heads, length, d_k):
    """q, k, v (B, H, L, d_k) and a mask (B, 1, 1, L), True = attend, of unequal lengths."""
    lengths = [max(1, length - b) for b in range(batch)]
    q, k, v = (draw.normal(batch, heads, length, d_k) for _ in range(3))
    return q, k, v, draw.keep(lengths, length)[:, None, None, :]


def per_query(draw):
    """A mask (L_q, L_k) of its own for every query, in which every query has a key."""
    mask = draw.normal(5, 5) > 0
    return *(draw.normal(2, 5, 6) for _ in range(3)), mask | torch.eye(5, dtype=torch.bool)


def loud_padding(draw):
    """q, k, v (5, 16) and a mask (1, 5): allowed scores near -60, forbidden ones near 0."""
    q, k, v = (draw.normal(5, 16) for _ in range(3))
    keep = draw.keep([3], 5)  # (1, 5)
    q[:, 0], k[:, 0] = 40.0, torch.where(keep[0], -6.0, 0.0)
    return q, k, v, keep


scaled_dot_product_attention = AttentionChecker(
    name="scaled_dot_product_attention",
    number="3.5",
    component="attention",
    right=reference,
    reread="Then without",
    inputs=("q", "k", "v", "mask"),
    outputs=("the output", "the weights"),
    gradient=(0, 1, 2),
    adapt=attention_function,
    notes=notes,
    misconceptions=misconceptions(),
    cases=(
        Case("as many queries as keys, several heads",
             lambda draw: (*(draw.normal(2, 3, 5, 6) for _ in range(3)), None)),
        Case("padding hidden by a mask (B, 1, 1, L)", lambda draw: padded(draw, 3, 2, 5, 6)),
        Case("a mask for every query", per_query),
        Case("more keys than queries, values of another width",
             lambda draw: (draw.normal(2, 3, 8), draw.normal(2, 5, 8), draw.normal(2, 5, 4), None)),
        Case("batch, heads and length equal, so that a wrong broadcast would not be an error",
             lambda draw: padded(draw, 3, 3, 3, 6)),
        Case("scores up to about 40 in size",
             lambda draw: (4 * draw.normal(2, 2, 4, 16), 3 * draw.normal(2, 2, 4, 16),
                           draw.normal(2, 2, 4, 16), None)),
        Case("no batch, and forbidden keys with far larger scores than all others", loud_padding),
    ),
)  # fmt: skip
