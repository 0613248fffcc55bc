"""Looking into a model without touching it, and the checks of chapter 13.

Every check returns None, or raises AssertionError with a message that names the likely cause.
What it measures is afterwards as it was: weights, gradients, modes, random numbers.

Axes: B batch, L length, D = d_model, H heads, N layers, C classes.
"""

from __future__ import annotations

import contextlib
import copy
import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.encoder import EncoderLayer, TransformerEncoder
from encoder_lib.masks import as_keep_mask

__all__ = [
    "Entropy",
    "activation_rms",
    "attention_entropy",
    "check_attention_spread",
    "check_attention_weights",
    "check_batch_independence",
    "check_eval_is_deterministic",
    "check_finite",
    "check_fully_padded_row",
    "check_gradients_reach_all_parameters",
    "check_initial_loss",
    "check_inputs_unchanged",
    "check_keeps_mode",
    "check_layers_independent",
    "check_loss_function",
    "check_loss_ignores_padding",
    "check_modules_registered",
    "check_order_matters",
    "check_overfits_one_batch",
    "check_padding_invariance",
    "check_permutation_equivariance",
    "check_returns_logits",
    "check_tokens_communicate",
    "check_tokens_stay_apart",
    "check_train_equals_eval",
    "check_training_step",
    "cross_entropy",
    "diagnose",
    "gradient_norms",
    "layer_gradient_norms",
    "token_similarity",
    "untouched",
]


def _norm(gradients: list[torch.Tensor]) -> float:
    """The Euclidean norm of all entries together, in float64, so that squares do not overflow."""
    return torch.stack([g.detach().double().norm() for g in gradients]).norm().item()


def _require_module(model) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")


def gradient_norms(model) -> dict[str, float | None]:
    """The norm of each parameter's gradient, as it stands, before any clipping.

    Gradients are read, never changed: ``clip_grad_norm_(..., inf)`` would turn all of them into
    NaN as soon as one is inf.

    Args:
        model: any module, after ``backward()``.

    Returns:
        Name -> norm; None for a parameter without a gradient; inf and NaN are handed on.

    Raises:
        TypeError: model is not a module.
    """
    _require_module(model)
    return {
        name: None if parameter.grad is None else _norm([parameter.grad])
        for name, parameter in model.named_parameters()
    }


def layer_gradient_norms(model) -> list[float | None]:
    """The norm of all gradients of each EncoderLayer together, the layer next to the input first.

    Args:
        model: any module with EncoderLayers in it, after ``backward()``.

    Returns:
        N norms; None for a layer without any gradient; inf and NaN are handed on.

    Raises:
        TypeError: model is not a module.
        ValueError: model has no EncoderLayer.
    """
    layers = _layers(model)
    gradients = [[p.grad for p in layer.parameters() if p.grad is not None] for layer in layers]
    return [_norm(found) if found else None for found in gradients]


def _layers(model) -> list[EncoderLayer]:
    _require_module(model)
    layers = [part for part in model.modules() if isinstance(part, EncoderLayer)]
    if not layers:
        raise ValueError(f"{type(model).__name__} holds no EncoderLayer")
    return layers


# --- Looking -------------------------------------------------------------------------------------


def activation_rms(model, x, keep_mask=None) -> list[float]:
    """The root mean square of what each EncoderLayer hands on, the layer next to the input first.

    Args:
        model: any module with EncoderLayers in it, called as ``model(x, keep_mask)`` in
            evaluation mode.
        x: ids (B, L) or features (B, L, D).
        keep_mask: bool (B, L), True = real token; only real tokens are counted.

    Returns:
        N numbers.

    Raises:
        TypeError, ValueError: as layer_gradient_norms, and whatever the model raises.
    """
    found = []

    def look(module, args, output):
        h = output[0] if isinstance(output, tuple) else output           # (B, L, D)
        h = h if keep_mask is None else h[keep_mask]
        found.append(h.double().square().mean().sqrt().item())

    handles = [layer.register_forward_hook(look) for layer in _layers(model)]
    try:
        with _evaluating(model):
            _call(model, x, keep_mask)
    finally:
        for handle in handles:
            handle.remove()
    return found


def token_similarity(h, keep_mask) -> float:
    """The mean cosine between two different real tokens of a text, averaged over the texts.

    Args:
        h: features (B, L, D).
        keep_mask: bool (B, L), True = real token.

    Returns:
        A number from -1 to 1; 1 when all tokens of a text point the same way. Texts with fewer
        than two real tokens are left out; nan if none is left.

    Raises:
        TypeError, ValueError: as as_keep_mask.

    Source: Noci et al. 2022 call it the correlation of tokens.
    """
    keep = as_keep_mask(keep_mask, h.shape[:2])
    unit = F.normalize(h.detach().double(), dim=-1) * keep.unsqueeze(-1)  # (B, L, D)
    n = keep.sum(dim=1)                                                   # (B,)
    # The square of the sum holds all pairs, and n pairs of a token with itself.
    pairs = unit.sum(dim=1).square().sum(-1) - unit.square().sum((1, 2))  # (B,)
    enough = n > 1
    return (pairs / (n * (n - 1)))[enough].mean().item()


class Entropy(NamedTuple):
    """Entropy of attention per head (H,): in nats, and as a share of the largest possible."""

    nats: torch.Tensor
    share: torch.Tensor


def attention_entropy(weights, keep_mask=None) -> Entropy:
    """How evenly the real queries of each head divide their attention.

    Args:
        weights: (B, H, L, L), rows add up to 1.
        keep_mask: bool (B, L), True = real token.

    Returns:
        ``nats`` (H,), the mean over real queries, from 0 (all on one key) to ln n for n real
        keys; ``share`` (H,), the mean of entropy / ln n, from 0 to 1, over the queries with at
        least two keys.

    Raises:
        ValueError: weights are not (B, H, L, L); keep_mask as as_keep_mask.
    """
    if weights.dim() != 4 or weights.size(-1) != weights.size(-2):
        raise ValueError(f"weights must have shape (B, H, L, L), got {tuple(weights.shape)}")
    batch, _, length, _ = weights.shape
    if keep_mask is None:
        keep_mask = torch.ones(batch, length, dtype=torch.bool, device=weights.device)
    keep = as_keep_mask(keep_mask, (batch, length))
    w = weights.detach().double()
    nats = torch.special.entr(w).sum(-1).transpose(1, 2)                  # (B, L, H)
    most = keep.sum(1).double().log()[:, None, None]                      # (B, 1, 1)
    many = keep & (keep.sum(1, keepdim=True) > 1)                         # (B, L)
    return Entropy(nats[keep].mean(0), (nats / most)[many].mean(0))


# --- Leaving everything as it was ----------------------------------------------------------------


@contextlib.contextmanager
def untouched(*things):
    """Whatever happens inside, also an exception: the modules come out as they went in.

    Weights, buffers, gradients, the mode of every part, and torch's random numbers are put back.
    Inside there are no gradients yet. Things that are not modules are passed over. Returns nothing.
    """
    modules = [m for thing in things if isinstance(thing, nn.Module) for m in thing.modules()]
    modes = [(m, m.training) for m in modules]
    places = [(d, name, tensor, tensor.detach().clone(), tensor.grad if tensor.is_leaf else None)
              for m in modules for d in (m._parameters, m._buffers)
              for name, tensor in d.items() if tensor is not None]
    for _, _, tensor, _, gradient in places:
        if gradient is not None:
            tensor.grad = None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for m, mode in modes:
                m.training = mode
            for d, name, tensor, value, gradient in places:
                d[name] = tensor
                if not torch.equal(tensor.detach(), value):
                    tensor.data.copy_(value)
                if tensor.is_leaf:
                    tensor.grad = gradient


@contextlib.contextmanager
def _evaluating(f):
    with untouched(f), torch.no_grad():
        if isinstance(f, nn.Module):
            f.eval()
        yield


def _call(f, x, keep_mask):
    out = f(x.clone()) if keep_mask is None else f(x.clone(), keep_mask.clone())
    return out[0] if isinstance(out, tuple) else out


def _real(out, keep_mask):
    return out[keep_mask] if out.dim() == 3 and keep_mask is not None else out


def _gap(a, b) -> float:
    """The largest difference, relative to the largest number if that is above 1; NaN is inf."""
    if a.numel() == 0:
        return 0.0
    size = max(1.0, b.detach().abs().max().item())
    gap = (a - b).detach().abs().max().item() / size
    return gap if gap == gap else float("inf")


def _fail(what: str, likely: str):
    raise AssertionError(f"{what}. Likely: {likely}.")


def _require_same(a, b, tolerance, what, likely):
    if (gap := _gap(a, b)) > tolerance:
        _fail(f"{what} changes the answer by {gap:.1g}", likely)


def _loss(model, batch, loss):
    ids, keep_mask, labels = batch
    return loss(_call(model, ids, keep_mask), labels)


def cross_entropy(logits, labels):
    """Mean cross-entropy of logits (..., C) with labels (...); labels of -100 do not count.

    Returns a number, not a tensor of them.
    """
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


# --- Checks of structure -------------------------------------------------------------------------


def check_modules_registered(model) -> None:
    """No module hides in a plain list, tuple or dict, where nobody trains, moves or saves it.

    Raises: AssertionError naming the attribute.
    """
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            inside = value.values() if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(value, list | tuple | dict):
                continue
            if any(isinstance(item, nn.Module) for item in inside):
                where = f"{path}.{name}".lstrip(".")
                _fail(f"modules in the plain {type(value).__name__} {where!r} are not registered",
                      "it should be an nn.ModuleList or nn.ModuleDict")


def check_layers_independent(model, tied=()) -> None:
    """No weight is used under two names, and no two matrices start with the same values.

    Args:
        tied: names that may repeat another weight, for those that are tied on purpose.

    Raises: AssertionError naming both.
    """
    seen: list[tuple[str, torch.Tensor]] = []
    for name, weight in model.named_parameters(remove_duplicate=False):
        for other, before in seen:
            if name in tied or other in tied:
                continue
            if weight is before:
                _fail(f"{other} and {name} are one and the same weight",
                      "a list made by [layer] * n")
            alike = weight.shape == before.shape and torch.equal(weight, before)
            if alike and weight.dim() > 1 and weight.min() < weight.max():
                _fail(f"{other} and {name} start with equal values", "deep copies of one layer")
        seen.append((name, weight))


# --- Checks of the mask --------------------------------------------------------------------------


def check_padding_invariance(f, x, keep_mask, extra=7, pad_id=0, tolerance=1e-4) -> None:
    """More padding on the right changes no real token, and no answer per text.

    Args:
        f: a module or function, f(x, keep_mask) -> (B, L, D) or (B, C); modules are tested in
            evaluation mode.
        x: ids (B, L), lengthened with ``pad_id``, or features (B, L, D), lengthened with 100s.
        keep_mask: bool (B, L), True = real token.

    Raises: AssertionError.
    """
    longer_keep = F.pad(keep_mask, (0, extra), value=False)              # (B, L + extra)
    if x.is_floating_point():
        longer = F.pad(x, (0, 0, 0, extra), value=100.0)                 # (B, L + extra, D)
    else:
        longer = F.pad(x, (0, extra), value=pad_id)                      # (B, L + extra)
    with _evaluating(f):
        short = _real(_call(f, x, keep_mask), keep_mask)
        long = _real(_call(f, longer, longer_keep), longer_keep)
    _require_same(long, short, tolerance, f"{extra} more columns of padding",
                  "no mask reaches attention, it is inverted, or pooling counts padding")


def check_tokens_communicate(f, ids, keep_mask, tolerance=1e-4) -> None:
    """Another first word changes what the other real words of the text become.

    Args:
        f: as in check_padding_invariance, -> (B, L, D).
        ids: (B, L); texts of fewer than two real tokens are passed over.

    Raises: AssertionError; ValueError unless f returns (B, L, D) and two real tokens differ.
    """
    first = keep_mask.int().argmax(1, keepdim=True)                      # (B, 1)
    real = ids[keep_mask]
    if real.min() == real.max():
        raise ValueError("the texts must hold two different tokens")
    old = ids.gather(1, first)                                           # (B, 1)
    new = torch.where(old == real.max(), real.min(), real.max())
    others = keep_mask.scatter(1, first, False)                          # (B, L)
    with _evaluating(f):
        before = _call(f, ids, keep_mask)
        after = _call(f, ids.scatter(1, first, new), keep_mask)
    if before.dim() != 3:
        raise ValueError(f"f must return (B, L, D), got shape {tuple(before.shape)}")
    for b in others.any(1).nonzero().flatten().tolist():
        if _gap(after[b, others[b]], before[b, others[b]]) <= tolerance:
            _fail(f"in text {b} no word notices that the first one has changed",
                  "an inverted mask, one that hides everything, or attention's output is lost")


def check_attention_weights(weights, keep_mask=None) -> None:
    """Rows of real queries add up to 1, nothing is negative, padded keys get exactly 0.

    Args:
        weights: (B, H, L, L), or a list of them.

    Raises: AssertionError.
    """
    for w in weights if isinstance(weights, list | tuple) else [weights]:
        keep = w.new_ones(w.size(0), w.size(-1)).bool() if keep_mask is None else keep_mask
        rows = w.transpose(1, 2)[keep]                                   # (n, H, L)
        hidden = ~keep.unsqueeze(1).expand(-1, w.size(-2), -1)[keep]     # (n, L)
        on_padding = (rows * hidden.unsqueeze(1)).sum().item() / rows.sum().item()
        if on_padding > 0:
            with_padding = rows * hidden.any(-1)[:, None, None]          # (n, H, L)
            share = (with_padding * hidden.unsqueeze(1)).sum() / with_padding.sum()
            _fail(f"{share:.0%} of the attention goes to padding",
                  "the mask is inverted" if share > 0.99 else
                  "the mask is missing, too weak, or hides queries instead of keys")
        added_up = torch.allclose(rows.sum(-1), torch.ones_like(rows[..., 0]), atol=1e-3)
        if not added_up or rows.min() < 0:
            columns = torch.allclose(w.sum(-2), torch.ones_like(w[..., 0, :]), atol=1e-3)
            _fail("the weights of a query are not shares that add up to 1",
                  "the softmax runs over the queries" if columns else
                  "no softmax, or something changes the weights after it")


def check_fully_padded_row(f, ids, keep_mask, pad_id=0, tolerance=1e-4) -> None:
    """A text without any token gives finite numbers and gradients, and harms no other text.

    Args:
        f: as in check_padding_invariance; gradients are looked at if it is a module.

    Raises: AssertionError.
    """
    with _evaluating(f):
        before = _call(f, ids, keep_mask)
        ids = torch.cat([ids, torch.full_like(ids[:1], pad_id)])         # (B + 1, L)
        keep_mask = torch.cat([keep_mask, torch.zeros_like(keep_mask[:1])])
        parameters = f.parameters() if isinstance(f, nn.Module) else []
        weights = [p for p in parameters if p.requires_grad]
        with torch.enable_grad():
            after = _call(f, ids, keep_mask)
            gradients = []
            if weights:
                total = _real(after, keep_mask).sum()
                gradients = torch.autograd.grad(total, weights, allow_unused=True)
        if not after.isfinite().all():
            _fail("a fully padded text gives NaN", "0/0 in a softmax over nothing, or in a mean")
        if not all(g.isfinite().all() for g in gradients if g is not None):
            _fail("a fully padded text gives NaN gradients",
                  "a softmax over nothing, whose NaN is dropped or replaced too late")
        _require_same(after[:-1], before, tolerance, "a fully padded text beside the others",
                      "something mixes the texts of a batch")


# --- Checks of batch and order -------------------------------------------------------------------


def check_batch_independence(f, x, keep_mask, tolerance=1e-4) -> None:
    """Each text gets the answer that it gets alone; also in a batch with B = L.

    A mask that is broadcast along the wrong axis shows only where two axes are equally long.

    Args:
        f, x, keep_mask: as in check_padding_invariance.

    Raises: AssertionError.
    """
    batch, length = keep_mask.shape
    with _evaluating(f):
        alone = [_call(f, x[b : b + 1], keep_mask[b : b + 1]) for b in range(batch)]
        for rows in (torch.arange(length) % batch, torch.arange(batch)):
            keep = keep_mask[rows]
            together = _call(f, x[rows], keep)
            for i, b in enumerate(rows.tolist()):
                _require_same(_real(together[i : i + 1], keep[i : i + 1]),
                              _real(alone[b], keep[i : i + 1]), tolerance,
                              "other company in the batch",
                              "positions or a norm or a mask act along the batch axis")


def check_permutation_equivariance(f, x, keep_mask=None, tolerance=1e-4) -> None:
    """Without positions, permuted tokens give the permuted output.

    Args:
        f: a stack, a layer or attention alone, f(x, keep_mask) -> (B, L, D).
        x: features (B, L, D), or ids (B, L) for a model that has no positions.

    Raises: AssertionError.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(x.size(1), generator=generator).to(x.device)
    keep = None if keep_mask is None else keep_mask[:, order]
    with _evaluating(f):
        straight, mixed = _call(f, x, keep_mask)[:, order], _call(f, x[:, order], keep)
    _require_same(_real(mixed, keep), _real(straight, keep), tolerance,
                  "the order of the tokens, which this part cannot know,",
                  "heads are split or merged without a transpose")


def check_order_matters(f, ids, keep_mask, tolerance=1e-4) -> None:
    """Two words that change places at the end of the longest text change more than their places.

    Args:
        f: a whole model, as in check_padding_invariance.

    Raises: AssertionError; ValueError for a text of equal tokens.
    """
    b = int(keep_mask.sum(1).argmax())
    places = keep_mask[b].nonzero().flatten().tolist()
    last = places[-1]
    differ = [i for i in places if ids[b, i] != ids[b, last]]
    if not differ:
        raise ValueError("the longest text must hold two different tokens")
    order = torch.arange(ids.size(1), device=ids.device)
    order[[differ[-1], last]] = order[[last, differ[-1]]]
    ids, keep = ids[b : b + 1], keep_mask[b : b + 1]
    with _evaluating(f):
        before, after = _call(f, ids, keep), _call(f, ids[:, order], keep)
    after = after[:, order] if after.dim() == 3 else after
    if _gap(_real(after, keep), _real(before, keep)) <= tolerance:
        _fail(f"nothing notices that words {differ[-1]} and {last} have changed places",
              "no positions, positions along the batch axis, or max_len is too small")


# --- Checks of modes and side effects ------------------------------------------------------------


def check_finite(model, x, keep_mask=None) -> None:
    """No part of the model makes inf or NaN out of finite numbers.

    Raises: AssertionError naming the first part that does.
    """
    found = []

    def look(name):
        def hook(module, args, output):
            out = output[0] if isinstance(output, tuple) else output
            if isinstance(out, torch.Tensor) and not out.isfinite().all():
                found.append(name or type(module).__name__)

        return hook

    handles = [m.register_forward_hook(look(name)) for name, m in model.named_modules()]
    try:
        with _evaluating(model):
            _call(model, x, keep_mask)
    finally:
        for handle in handles:
            handle.remove()
    if found:
        _fail(f"{found[0]} is the first part with inf or NaN",
              "a division, root or log at 0, or a softmax over nothing")


def check_eval_is_deterministic(model, x, keep_mask=None) -> None:
    """Two calls in evaluation mode give the same numbers, bit for bit.

    Raises: AssertionError.
    """
    with _evaluating(model):
        one, two = _call(model, x, keep_mask), _call(model, x, keep_mask)
    _require_same(two, one, 0.0, "asking twice in evaluation mode",
                  "dropout built in forward, or F.dropout without training=self.training")


def check_train_equals_eval(model, x, keep_mask=None, tolerance=1e-4) -> None:
    """A model built with dropout 0 answers alike in training and in evaluation mode.

    Raises: AssertionError.
    """
    with _evaluating(model):
        calm = _call(model, x, keep_mask)
        model.train()
        _require_same(_real(_call(model, x, keep_mask), keep_mask), _real(calm, keep_mask),
                      tolerance, "the mode", "BatchNorm, or a dropout that is not 0")


def check_inputs_unchanged(f, x, keep_mask=None) -> None:
    """What was handed in is the same afterwards.

    Raises: AssertionError.
    """
    given = x.clone(), None if keep_mask is None else keep_mask.clone()
    try:
        with _evaluating(f):
            f(x) if keep_mask is None else f(x, keep_mask)
        same = torch.equal(x, given[0]) and (keep_mask is None or torch.equal(keep_mask, given[1]))
        if not same:
            _fail("the call has changed its own input", "an in-place operation such as x += y")
    finally:
        with torch.no_grad():
            x.copy_(given[0])
            if keep_mask is not None:
                keep_mask.copy_(given[1])


def check_keeps_mode(function, model) -> None:
    """``function(model)``, an evaluation for instance, leaves every part in the mode it was in.

    Raises: AssertionError.
    """
    for mode in (True, False):
        with untouched(model):
            model.train(mode)
            function(model)
            left = [name for name, part in model.named_modules() if part.training != mode]
            if left:
                before, after = ("training", "evaluation") if mode else ("evaluation", "training")
                _fail(f"the model came in {before} mode and left in {after} mode",
                      "model.eval() without restoring the mode")


# --- Checks of the start -------------------------------------------------------------------------


def check_attention_spread(weights, keep_mask=None, low=0.4, high=0.99) -> None:
    """At the start attention is neither decided nor exactly even, head by head.

    Args:
        weights: (B, H, L, L), or a list of them, of an untrained model.
        low, high: bounds for the share of the largest possible entropy. Made for texts of about
            ten words: longer texts have larger shares.

    Raises: AssertionError.
    """
    for w in weights if isinstance(weights, list | tuple) else [weights]:
        share = attention_entropy(w, keep_mask).share                    # (H,)
        if share.min() < low:
            _fail(f"a head starts with {share.min():.0%} of the largest entropy: it has decided",
                  "scores not divided by sqrt(d_k), or projections that start too large")
        if share.max() > 1 + 1e-6:
            _fail(f"a head spreads over more keys than are real ({share.max():.0%} of the entropy)",
                  "attention to padding")
        if share.max() > high:
            _fail(f"a head starts with {share.max():.1%} of the largest entropy: it is flat",
                  "scores divided by too much, or projections that start too small")


def check_tokens_stay_apart(f, x, keep_mask, most=0.9) -> None:
    """The words of a text do not all become the same vector.

    Args:
        f: a module or function, f(x, keep_mask) -> (B, L, D).

    Raises: AssertionError.
    """
    with _evaluating(f):
        similarity = token_similarity(_call(f, x, keep_mask), keep_mask)
    if not similarity <= most:
        _fail(f"the mean cosine between two words of a text is {similarity:.2f}",
              "a residual connection is missing")


def check_loss_function(loss, n_classes=4) -> None:
    """Equal logits cost exactly ln C, and extreme logits give finite losses and gradients.

    Args:
        loss: loss(logits (B, C), labels (B,)) -> a tensor of shape ().

    Raises: AssertionError.
    """
    labels = torch.arange(n_classes)
    even = float(loss(torch.zeros(n_classes, n_classes), labels))
    if abs(even - math.log(n_classes)) > 1e-3:
        _fail(f"equal logits cost {even:.3f}, not ln {n_classes} = {math.log(n_classes):.3f}",
              "another average than over examples, or something after the logits")
    for sign in (1, -1):
        logits = (sign * 1000.0 * torch.eye(n_classes)).requires_grad_()
        value = loss(logits, labels)
        (gradient,) = torch.autograd.grad(value, logits)
        if not (value.isfinite() and gradient.isfinite().all()):
            _fail("the loss is not finite for large logits",
                  "exp and log by hand; use F.cross_entropy on logits")


def check_loss_ignores_padding(loss, n_classes=4) -> None:
    """A loss per token is the mean over real tokens; those labelled -100 do not exist.

    Args:
        loss: loss(logits (B, L, C), labels (B, L)) -> a tensor of shape ().

    Raises: AssertionError.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, n_classes, generator=generator)
    labels = torch.arange(6).reshape(2, 3) % n_classes
    plain = loss(logits, labels)
    padded = loss(F.pad(logits, (0, 0, 0, 5), value=9.0), F.pad(labels, (0, 5), value=-100))
    _require_same(padded, plain, 1e-5, "padding behind the labels",
                  "padded positions are counted in the mean, or have labels")


def check_returns_logits(model, ids, keep_mask=None) -> None:
    """The model returns logits, not probabilities.

    Raises: AssertionError.
    """
    with _evaluating(model):
        out = _call(model, ids, keep_mask)
    if out.min() >= 0 and torch.allclose(out.sum(-1), torch.ones_like(out[..., 0]), atol=1e-4):
        _fail("the outputs are probabilities", "a softmax in the model; the loss has one")


def check_initial_loss(
    model, batch, n_classes, loss=cross_entropy, below=0.5, above=1.5
) -> None:
    """An untrained classifier knows nothing: its loss is about ln C.

    Args:
        batch: ids (B, L), keep_mask (B, L), labels (B,) or (B, L).
        below, above: how far from ln C is still right. Healthy models start up to 1.2 above it
            (chapter 13): their outputs are random, but alike for all texts.

    Raises: AssertionError.
    """
    with _evaluating(model):
        value = float(_loss(model, batch, loss))
    if not -below <= value - math.log(n_classes) <= above:
        _fail(f"the loss starts at {value:.2f}, but ln {n_classes} is {math.log(n_classes):.2f}",
              "a head that starts too large, a wrong average, or labels of another task")


def check_gradients_reach_all_parameters(model, batch, loss=cross_entropy) -> None:
    """Each weight is in the graph, no gradient is NaN, and no matrix has a gradient of zeros.

    A bias may rightly have none: that of the keys cancels in the softmax (chapter 05).

    Raises: AssertionError naming the weights.
    """
    with untouched(model):
        model.eval()
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        value = _loss(model, batch, loss)
        found = torch.autograd.grad(value, [p for _, p in named], allow_unused=True)
    pairs = [(name, g) for (name, _), g in zip(named, found, strict=True)]
    unused = [name for name, g in pairs if g is None]
    if unused:
        _fail(f"no gradient reaches {_some(unused)}", "detach, .data or a part that is not called")
    broken = [name for name, g in pairs if not g.isfinite().all()]
    if broken:
        _fail(f"the gradient of {_some(broken)} is not finite", "a root, log or division at 0")
    zero = [name for name, g in pairs if g.dim() > 1 and not g.any()]
    if zero:
        _fail(f"the gradient of {_some(zero)} is zero", "a saturated softmax or dead units")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + rest


# --- Checks of training --------------------------------------------------------------------------


def check_training_step(step, model, optimizer, schedule=None) -> None:
    """Two training steps move every matrix and, with a schedule, the rate.

    Args:
        step: a function without arguments that does one whole training step.
        schedule: anything with state_dict and load_state_dict that changes the rate.

    Raises: AssertionError naming the weights. Weights, optimizer and schedule are put back.
    """
    saved = copy.deepcopy(optimizer.state_dict())
    clock = None if schedule is None else copy.deepcopy(schedule.state_dict())
    try:
        with untouched(model):
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            step()
            first = [group["lr"] for group in optimizer.param_groups]
            step()
            rates = [group["lr"] for group in optimizer.param_groups]
            still = [name for name, p in model.named_parameters()
                     if p.dim() > 1 and p.requires_grad and torch.equal(p, before[name])]
            _explain_still(still, model, optimizer)
            if schedule is not None and rates == first:
                _fail(f"the learning rate stays at {rates[0]:.2g}", "schedule.step() is not called")
    finally:
        optimizer.load_state_dict(saved)
        if schedule is not None:
            schedule.load_state_dict(clock)


def _explain_still(still, model, optimizer):
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters())
    strangers = [name for name in still if id(named[name]) not in held]
    if strangers:
        _fail(f"training steps do not move {_some(strangers)}",
              "they were not given to the optimizer")
    if still and all(group["lr"] == 0 for group in optimizer.param_groups):
        _fail("no weight moves", "the learning rate is 0")
    if len(still) == sum(p.dim() > 1 for p in named.values()):
        _fail(f"training steps do not move {_some(still)}",
              "zero_grad between backward and step, or no step")
    if still:
        _fail(f"training steps do not move {_some(still)}", "no gradient reaches them")


def check_overfits_one_batch(
    model, batch, loss=cross_entropy, steps=80, rate=3e-3, below=0.1
) -> None:
    """The model learns a few examples by heart. Necessary, and not sufficient.

    Args:
        batch: as in check_initial_loss; about a dozen examples.

    Raises: AssertionError. The weights are put back.
    """
    with untouched(model):
        weights = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(weights, lr=rate)
        model.train()
        for i in range(steps):
            value = _loss(model, batch, loss)
            if not value.isfinite():
                _fail(f"the loss is {value.item()} at step {i}", "see the checks of the loss")
            # Not backward(): it would also reach weights that model.parameters() does not know.
            gradients = torch.autograd.grad(value, weights, allow_unused=True)
            for p, gradient in zip(weights, gradients, strict=True):
                p.grad = gradient
            optimizer.step()
        model.eval()
        with torch.no_grad():
            value = _loss(model, batch, loss).item()
    if not value < below:
        _fail(f"after {steps} steps on one batch the loss is {value:.2f}",
              "a second softmax, no gradient, or a model that differs in evaluation mode")


# --- All of them ---------------------------------------------------------------------------------


def diagnose(
    model, batch, n_classes, loss=cross_entropy, step=None, optimizer=None, schedule=None
) -> dict[str, str | None]:
    """All checks in the order in which they are worth looking at.

    Args:
        model: a classifier around a TransformerEncoder, untrained, with dropout 0.
        batch: ids (B, L), keep_mask (B, L), labels; about a dozen texts with some padding.
        step, optimizer, schedule: as in check_training_step, which is left out without them.

    Returns:
        Name of the check, without "check\\_" -> None if it passes, else what it says. An error
        of another kind is handed on as its text.

    Raises: ValueError if the model holds no TransformerEncoder.
    """
    body = next((m for m in model.modules() if isinstance(m, TransformerEncoder)), None)
    if body is None:
        raise ValueError(f"{type(model).__name__} holds no TransformerEncoder")
    found = {}
    for check, arguments in _routine(model, body, batch, n_classes, loss):
        found[check.__name__.removeprefix("check_")] = _outcome(check, arguments)
    if step is not None:
        arguments = [step, model, optimizer, schedule]
        found["training_step"] = _outcome(check_training_step, arguments)
    found["overfits_one_batch"] = _outcome(check_overfits_one_batch, [model, batch, loss])
    return found


def _outcome(check, arguments) -> str | None:
    try:
        check(*[a() if isinstance(a, _Later) else a for a in arguments])
    except Exception as error:  # noqa: BLE001 - a report must not end at the first broken part
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return kind + str(error)
    return None


class _Later:
    """An argument that is computed when its check begins, so that its errors are the check's."""

    def __init__(self, f):
        self.f = f

    def __call__(self):
        return self.f()


def _routine(model, body, batch, n_classes, loss):
    ids, keep, _ = batch

    def features():
        with _evaluating(body):
            return body.embedding(ids)                                   # (B, L, D)

    def weights():
        with _evaluating(body):
            return body(ids, keep, return_weights=True)[1]               # N of (B, H, L, L)

    x, w = _Later(features), _Later(weights)
    return [
        (check_modules_registered, [model]),
        (check_layers_independent, [model]),
        (check_loss_function, [loss, n_classes]),
        (check_returns_logits, [model, ids, keep]),
        (check_finite, [model, ids, keep]),
        (check_eval_is_deterministic, [model, ids, keep]),
        (check_train_equals_eval, [model, ids, keep]),
        (check_inputs_unchanged, [body.encoder, x, keep]),
        (check_attention_weights, [w, keep]),
        (check_tokens_communicate, [body, ids, keep]),
        (check_padding_invariance, [model, ids, keep]),
        (check_fully_padded_row, [model, ids, keep]),
        (check_batch_independence, [model, ids, keep]),
        (check_permutation_equivariance, [body.encoder, x, keep]),
        (check_order_matters, [model, ids, keep]),
        (check_attention_spread, [w, keep]),
        (check_tokens_stay_apart, [body, ids, keep]),
        (check_initial_loss, [model, batch, n_classes, loss]),
        (check_gradients_reach_all_parameters, [model, batch, loss]),
    ]
