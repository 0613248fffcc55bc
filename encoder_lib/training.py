"""Training a model, and knowing how good it is. Built in chapter 10.

A *batch* is ``(ids, labels)`` or ``(ids, keep_mask, labels)``, as ``encoder_lib.text.batches``
makes them; the model is called with everything before the labels. Labels are ``(B,)``, one per
text, or ``(B, L)``, one per token. A label of -100 counts for nothing, and neither does the label
of a token that keep_mask calls padding: not in the loss, not in the accuracy, not in the average.

Axes: B batch, L length, C classes.
"""

from __future__ import annotations

import math
import os
import random
import sys
import warnings
import zipfile
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from encoder_lib.embedding import require_int, require_positive
from encoder_lib.masks import as_keep_mask

IGNORE = -100  # the label that counts for nothing, the default of torch's cross-entropy


# --- Learning-rate schedules ----------------------------------------------------------------


def _require_step(step):
    require_int(step=step)
    if step < 1:
        raise ValueError(f"step counts from 1, the first update; got {step}")


def noam_rate(step, d_model, warmup):
    """The learning rate of update number ``step``, counted from 1.

    Rises linearly to (d_model * warmup)^-0.5 at step == warmup, then falls as step^-0.5.

    Returns: float. Raises: ValueError for a step or size below 1, TypeError if not an int.

    Source: Vaswani et al. 2017, equation 3.
    """
    _require_step(step)
    require_positive(d_model=d_model, warmup=warmup)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def linear_rate(step, peak, warmup, total):
    """The learning rate of update number ``step``, counted from 1: up, then down, linearly.

    Rises to ``peak`` at step == warmup, then falls and would be 0 at step total + 1: all of the
    ``total`` updates move the weights, the last one with peak / (total + 1 - warmup). From
    total + 1 on the rate is 0. warmup=0 is the same as 1: the first update has the peak.

    Returns: float. Raises: ValueError for step or total below 1, warmup outside 0 to total, a
        peak that is not positive and finite; TypeError for counts that are not int.

    Source: Devlin et al. 2019, appendix A.2 (warm-up and linear decay).
    """
    _require_step(step)
    require_positive(total=total)
    require_int(warmup=warmup)
    if not 0 <= warmup <= total:
        raise ValueError(f"warmup must lie in 0 to total={total}, got {warmup}")
    if not (peak > 0 and math.isfinite(peak)):
        raise ValueError(f"peak must be positive and finite, got {peak}")
    warmup = max(warmup, 1)
    return peak * max(0.0, min(step / warmup, (total + 1 - step) / (total + 1 - warmup)))


class _Schedule:
    """Sets the rate of step 1 at once; ``step()`` after each ``optimizer.step()`` moves on."""

    def __init__(self, optimizer, formula, **settings):
        if not isinstance(optimizer, torch.optim.Optimizer):
            kind = type(optimizer).__name__
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {kind}")
        self.optimizer, self._formula, self._settings = optimizer, formula, settings
        self._optimizer_has_stepped = False
        optimizer.register_step_post_hook(self._notice)
        self._set(1)

    def _notice(self, *_):
        self._optimizer_has_stepped = True

    def _set(self, step):
        rate = self._formula(step, **self._settings)
        self.step_number = step
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @property
    def rate(self) -> float:
        """The rate that the next update will use, in every group of parameters."""
        return self.optimizer.param_groups[0]["lr"]

    def step(self) -> None:
        """Move on to the next rate. Warns (UserWarning) if the optimizer has not stepped yet."""
        if not self._optimizer_has_stepped:
            self._optimizer_has_stepped = True  # one warning is enough
            warnings.warn(
                "schedule.step() came before the first optimizer.step(), so the rate of step "
                f"{self.step_number} is never used; call it after optimizer.step()",
                stacklevel=2,
            )
        self._set(self.step_number + 1)

    def state_dict(self) -> dict:
        """The number of the next step, and the settings."""
        return {"step_number": self.step_number, **self._settings}

    def load_state_dict(self, state) -> None:
        """Go back to where the state was. Raises: ValueError if it has other settings."""
        state = dict(state)
        step = state.pop("step_number", None)
        if step is None or state != self._settings:
            raise ValueError(f"the state is of a schedule with {state}, not {self._settings}")
        self._set(step)


class WarmupSchedule(_Schedule):
    """The schedule of ``noam_rate`` for an optimizer: linear warm-up, then step^-0.5.

    Sets the rate of step 1 when made; call ``step()`` after each ``optimizer.step()``. All
    groups of parameters get the same rate.

    Raises: ValueError, TypeError as noam_rate; TypeError for what is not an optimizer.
    """

    def __init__(self, optimizer, d_model, warmup):
        super().__init__(optimizer, noam_rate, d_model=d_model, warmup=warmup)


class LinearSchedule(_Schedule):
    """The schedule of ``linear_rate`` for an optimizer: linear warm-up, linear decay.

    Sets the rate of step 1 when made; call ``step()`` after each ``optimizer.step()``. All
    groups of parameters get the same rate.

    Raises: ValueError, TypeError as linear_rate; TypeError for what is not an optimizer.
    """

    def __init__(self, optimizer, peak, warmup, total):
        super().__init__(optimizer, linear_rate, peak=peak, warmup=warmup, total=total)


# --- Chance ---------------------------------------------------------------------------------


def set_seed(seed):
    """Start the generators of Python's random, torch, and numpy if it is loaded, from one seed.

    The same seed gives the same numbers again on the same machine with the same versions; other
    systems, devices and versions of torch may differ.

    Returns nothing. Raises: TypeError if not an int, ValueError outside 0 to 2**32 - 1.
    """
    require_int(seed=seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in 0 to 2**32 - 1, got {seed}")
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _rng_state():
    """All generators that set_seed starts, as plain data."""
    state = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_rng_state(state):
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def stratified_split(labels, test_fraction, seed=0):
    """Split examples at random so that every class is in both parts, in the same shares.

    Args:
        labels: one label (int or str) per example, as a list or a tensor (N,).
        test_fraction: share of each class for the test part, above 0 and below 1; rounded, but
            at least one example and never all of them.

    Returns: (train indices, test indices), two shuffled lists of ints.

    Raises: ValueError for a fraction outside (0, 1), no labels, or a class with one example;
        TypeError for labels that are not int or str.
    """
    require_int(seed=seed)
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
    members = _members(labels)
    draw = torch.Generator().manual_seed(seed)
    train, test = [], []
    for label in sorted(members, key=lambda label: (str(type(label)), label)):
        found = members[label]
        if len(found) < 2:
            raise ValueError(f"class {label!r} has one example, which cannot be in both parts")
        cut = min(max(round(test_fraction * len(found)), 1), len(found) - 1)
        found = _shuffled(found, draw)
        test += found[:cut]
        train += found[cut:]
    return _shuffled(train, draw), _shuffled(test, draw)


def _members(labels):
    """{label: indices of its examples}"""
    labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if not labels:
        raise ValueError("labels is empty: there is nothing to split")
    members = defaultdict(list)
    for i, label in enumerate(labels):
        if not isinstance(label, int | str):
            raise TypeError(f"a label must be an int or a str, got {label!r}")
        members[label].append(i)
    return members


def _shuffled(items, draw):
    return [items[i] for i in torch.randperm(len(items), generator=draw).tolist()]


# --- Losses ---------------------------------------------------------------------------------


def classification_loss(logits, labels):
    """Cross-entropy of one label per text: logits (B, C), labels (B,) -> mean, shape ().

    Texts with the label -100 are left out. Without any text left the loss is exactly 0, with
    zero gradients (torch's own mean would be 0/0 = NaN).

    Raises: ValueError for other shapes, or a label outside 0 to C - 1; TypeError for labels
        that are not integers.
    """
    if logits.dim() != 2:
        raise ValueError(
            f"logits must have shape (B, C), got {tuple(logits.shape)}; "
            "for one label per token use token_loss"
        )
    return _cross_entropy(logits, labels, IGNORE)


def token_loss(logits, labels, keep_mask=None, ignore_index=IGNORE):
    """Cross-entropy of one label per token: logits (B, L, C), labels (B, L) -> mean, shape ().

    The mean is over real tokens: those that keep_mask (B, L) keeps, where it is given, and
    whose label is not ignore_index. Without any the loss is exactly 0, with zero gradients.

    Raises: ValueError for other shapes, or a label outside 0 to C - 1; TypeError for labels
        that are not integers; and as as_keep_mask.
    """
    if logits.dim() != 3:
        raise ValueError(
            f"logits must have shape (B, L, C), got {tuple(logits.shape)}; "
            "for one label per text use classification_loss"
        )
    if keep_mask is not None:
        labels = labels.masked_fill(~as_keep_mask(keep_mask, labels.shape), ignore_index)
    return _cross_entropy(logits, labels, ignore_index)


def _cross_entropy(logits, labels, ignore_index):
    """Mean over the labels that count. The others get a gradient of exactly 0."""
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    if logits.shape[:-1] != labels.shape:
        shapes = f"{tuple(logits.shape)} and labels of shape {tuple(labels.shape)}"
        raise ValueError(f"logits of shape {shapes} do not belong together")
    real = labels != ignore_index
    logits, labels = logits[real], labels[real].long()             # (n, C), (n,)
    if ((labels < 0) | (labels >= logits.size(-1))).any():
        wrong = f"{labels.min().item()} to {labels.max().item()}"
        raise ValueError(f"labels must lie in 0 to {logits.size(-1) - 1}, got {wrong}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


# --- Batches --------------------------------------------------------------------------------


def split_batch(batch, device=None):
    """A batch -> (what the model is called with, labels), on one device.

    ``(ids, labels)`` gives ``(ids,)``; ``(ids, keep_mask, labels)`` gives ``(ids, keep_mask)``,
    and labels (B, L), one per token, are set to -100 where keep_mask says padding.

    Raises: TypeError for anything but these two, ValueError for a batch without labels.
    """
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else batch
        raise TypeError(f"a batch must be (ids, labels) or (ids, keep_mask, labels), got {kind}")
    for part in batch:
        if not (part is None or torch.is_tensor(part)):
            raise TypeError(f"a batch must hold tensors, got {type(part).__name__}")
    *inputs, labels = (part if part is None else part.to(device) for part in batch)
    if labels is None:
        raise ValueError("the batch has no labels: give them to batches(sequences, labels)")
    if len(inputs) == 2 and inputs[1] is not None and labels.dim() == 2:
        labels = labels.masked_fill(~as_keep_mask(inputs[1], labels.shape), IGNORE)
    return tuple(inputs), labels


def _device(model):
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@contextmanager
def in_mode(model, training):
    """Inside ``with``, model.train(training); afterwards each module has its own mode back.

    Also after an exception. Returns a context manager.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield model.train(training)
    finally:
        for module, mode in modes:
            module.training = mode


# --- Evaluation -----------------------------------------------------------------------------


def evaluate(model, batches, loss=classification_loss):
    """How good a model is on labelled batches, without changing anything in it.

    Runs without dropout and without gradients; each module's mode is restored, also after an
    exception. Every example (or real token) has the same weight, whatever batch it is in.

    Args:
        batches: an iterable of batches (see the top of this module).
        loss: (logits, labels) -> mean over the labels that are not -100; token_loss for labels
            per token.

    Returns: {"loss", "accuracy", "balanced_accuracy", "count"}. Balanced accuracy is the mean
        over the classes that occur of the share found of each: 1/C for a model that always
        says the same. Without any label everything is 0.
    """
    total, right, seen = 0.0, 0, 0
    with in_mode(model, training=False), torch.no_grad():
        for batch in batches:
            inputs, labels = split_batch(batch, _device(model))
            logits = model(*inputs)                                # (B, C) or (B, L, C)
            real = labels != IGNORE
            n = real.sum().item()
            if n == 0:
                continue
            total += n * loss(logits, labels).item()
            labels, found = labels[real], logits[real].argmax(dim=-1)      # (n,), (n,)
            seen = seen + torch.bincount(labels, minlength=logits.size(-1))
            right = right + torch.bincount(labels[found == labels], minlength=logits.size(-1))
    return _metrics(total, torch.as_tensor(right), torch.as_tensor(seen))


def _metrics(total, right, seen):
    n = seen.sum().item()
    occurs = seen > 0
    shares = right[occurs].double() / seen[occurs]
    return {
        "loss": total / max(n, 1),
        "accuracy": right.sum().item() / max(n, 1),
        "balanced_accuracy": shares.mean().item() if n else 0.0,
        "count": n,
    }


# --- Training -------------------------------------------------------------------------------


def clip_gradients(model, max_norm=1.0):
    """Shorten the gradient of all parameters together to at most ``max_norm``.

    Args:
        max_norm: above 0, or None to measure only.

    Returns: its norm before that, a float.

    Raises: FloatingPointError naming the first parameter whose gradient is inf or NaN, and
        leaves all as it was: scaling by 1/inf or 1/NaN would repair nothing and turn every
        other gradient into 0 or NaN.
    """
    limit = math.inf if max_norm is None else max_norm
    try:
        norm = nn.utils.clip_grad_norm_(model.parameters(), limit, error_if_nonfinite=True)
    except RuntimeError as error:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                raise FloatingPointError(f"the gradient of {name} is not finite") from None
        raise FloatingPointError(str(error)) from None
    return norm.item()


def train_step(model, batch, optimizer, loss=classification_loss, clip=1.0):
    """One update of the weights. Returns: (loss, gradient norm before clipping), two floats.

    Raises: FloatingPointError for a loss or gradient that is inf or NaN; the weights are then
        as they were.
    """
    inputs, labels = split_batch(batch, _device(model))
    optimizer.zero_grad()
    value = loss(model(*inputs), labels)
    value.backward()
    try:
        norm = clip_gradients(model, clip)
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} (the loss is {value.item():.4g})") from None
    if not value.isfinite():
        raise FloatingPointError(f"the loss is {value.item()}, though all gradients are finite")
    optimizer.step()
    return value.item(), norm


def train(
    model, batches, optimizer, *, schedule=None, epochs=None, steps=None,
    loss=classification_loss, clip=1.0, validation=None, patience=None, every=None,
    checkpoint=None, resume=False, nonfinite="stop", progress=False,
):
    """Train a model in place.

    Args:
        batches: a list of batches, used in this order in every epoch, or a function
            ``batches(epoch)`` of the epoch's number 1, 2, ... that returns an iterable of them,
            such as ``lambda epoch: text.batches(ids, labels, 32, shuffle=True, seed=epoch)``.
            To be resumed exactly, the order must depend on the epoch alone.
        schedule: its step() is called after each update.
        epochs, steps: how long; one of the two, one epoch if neither is given. The numbers
            count from the very beginning, also after resume.
        loss: as in evaluate.
        clip: largest norm of the gradient; None for no limit.
        validation: a list of batches to evaluate on.
        patience: stop after so many validations in a row without a lower loss than the best.
            With it the model ends with the weights of the best validation (the optimizer
            does not go back with them).
        every: validate and save after so many steps; after each epoch if None. Both happen at
            the end in any case.
        checkpoint: file to save everything in. With ``resume`` go on from it, if it is there.
        nonfinite: "stop" at the first loss or gradient that is inf or NaN, or "skip" the update.
        progress: a bar on stderr, only if that is a terminal and tqdm is installed. Off by
            default; none in notebooks, where it would be stored with the outputs.

    Returns: the history, plain data: lists "step", "loss", "rate", "gradient_norm" with one
        entry per step; "skipped", a list of steps; "validation", a list of dicts with "step",
        "epoch" and what evaluate returns. The model's modes are restored.

    Raises: FloatingPointError naming step and parameter; ValueError, TypeError for settings or
        batches that do not fit, and as load_checkpoint.
    """
    _require_fitting(model, optimizer, schedule, batches)
    _require_settings(validation, patience, clip, nonfinite)
    epochs, steps = _duration(epochs, steps, every)
    place = _Place(patience)
    run = _Run(model, optimizer, schedule, loss, clip, validation, checkpoint, place)
    run.prepare(resume)
    with in_mode(model, training=True), _bar(progress, place, batches, epochs, steps) as advance:
        while not place.over(epochs, steps):
            for batch in place.remaining(batches):
                run.update(batch, skip=nonfinite == "skip")
                advance()
                if every is not None and place.done % every == 0:
                    run.look()
                if place.over(epochs, steps):
                    break
            else:
                place.end_epoch()
                if every is None:
                    run.look()
        run.finish()
    return place.history


class _Place:
    """Where a run stands: what happened, which batch is next, which weights were best."""

    def __init__(self, patience):
        self.patience = patience
        names = ("step", "loss", "rate", "gradient_norm", "skipped", "validation")
        self.history = {name: [] for name in names}
        self.epoch, self.batch = 1, 0  # the epoch, and how many of its batches were used
        self.epoch_rng = self.best = None

    @property
    def done(self):
        return len(self.history["step"])

    def over(self, epochs, steps):
        late = steps is not None and self.done >= steps
        return late or (epochs is not None and self.epoch > epochs) or self.stopped()

    def stopped(self):
        since = self.best["step"] if self.best else 0
        stale = sum(look["step"] > since for look in self.history["validation"])
        return self.patience is not None and stale >= self.patience

    def remaining(self, batches):
        """The batches of this epoch that are still to come, drawn as at its beginning."""
        now = _rng_state()
        if self.batch == 0:
            self.epoch_rng = now
        _set_rng_state(self.epoch_rng)
        source = iter(batches(self.epoch) if callable(batches) else batches)
        for used in range(self.batch):
            if next(source, None) is None:
                raise ValueError(
                    f"epoch {self.epoch} has {used} batches, but {self.batch} were used before"
                )
        if self.batch:
            _set_rng_state(now)
        return source

    def add(self, **entry):
        for name, value in entry.items():
            self.history[name].append(value)
        self.batch += 1

    def end_epoch(self):
        if self.batch == 0:
            raise ValueError(f"epoch {self.epoch} has no batches")
        self.epoch, self.batch = self.epoch + 1, 0


class _Run:
    """A training run: the parts, and what is done with them besides the order of things."""

    def __init__(self, model, optimizer, schedule, loss, clip, validation, checkpoint, place):
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.loss, self.clip, self.validation = loss, clip, validation
        self.checkpoint, self.place, self.looked_at = checkpoint, place, None

    def prepare(self, resume):
        if self.checkpoint is None:
            if resume:
                raise ValueError("resume needs the checkpoint to resume from")
            return
        folder = Path(self.checkpoint).absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to save the checkpoint in")
        if resume and Path(self.checkpoint).exists():
            saved = load_checkpoint(self.checkpoint, self.model, self.optimizer, self.schedule)
            if "position" not in saved:
                raise ValueError(f"{self.checkpoint} was not written by train")
            place = self.place
            place.history, place.best = saved["history"], saved["best"]
            place.epoch, place.batch, place.epoch_rng = saved["position"]
            self.looked_at = place.done

    def update(self, batch, skip):
        step, rate = self.place.done + 1, float(self.optimizer.param_groups[0]["lr"])
        try:
            loss, norm = train_step(self.model, batch, self.optimizer, self.loss, self.clip)
        except FloatingPointError as error:
            if not skip:
                raise FloatingPointError(f"step {step}: {error}") from None
            loss = norm = math.nan
            self.place.history["skipped"].append(step)
        else:
            if self.schedule is not None:
                self.schedule.step()
        self.place.add(step=step, loss=loss, rate=rate, gradient_norm=norm)

    def look(self):
        """Validate, remember the best weights, save; once per step."""
        place, step = self.place, self.place.done
        if self.looked_at == step:
            return
        self.looked_at = step
        if self.validation is not None:
            metrics = evaluate(self.model, self.validation, self.loss)
            epoch = place.epoch if place.batch else place.epoch - 1
            place.history["validation"].append({"step": step, "epoch": epoch, **metrics})
            best = place.best["loss"] if place.best else math.inf
            if place.patience is not None and metrics["loss"] < best:
                weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
                place.best = {"step": step, "loss": metrics["loss"], "weights": weights}
        if self.checkpoint is not None:
            position = (place.epoch, place.batch, place.epoch_rng)
            save_checkpoint(self.checkpoint, self.model, self.optimizer, self.schedule,
                            place.history, position=position, best=place.best)  # fmt: skip

    def finish(self):
        self.look()
        if self.place.best is not None:
            self.model.load_state_dict(self.place.best["weights"])


def _require_fitting(model, optimizer, schedule, batches):
    own = {id(p) for p in model.parameters()}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(own):
        raise ValueError("the optimizer holds no parameter of the model; make it anew")
    if getattr(schedule, "optimizer", optimizer) is not optimizer:
        raise ValueError("the schedule belongs to another optimizer; make it anew")
    _require_rereadable(batches=batches)


def _require_settings(validation, patience, clip, nonfinite):
    if validation is not None:
        _require_rereadable(validation=validation)
    if patience is not None:
        require_positive(patience=patience)
        if validation is None:
            raise ValueError("patience needs validation batches to judge by")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be above 0, or None for no limit; got {clip}")
    if nonfinite not in ("stop", "skip"):
        raise ValueError(f'nonfinite must be "stop" or "skip", got {nonfinite!r}')


def _require_rereadable(**sources):
    for name, source in sources.items():
        if hasattr(source, "__next__"):
            raise TypeError(f"{name} can be read only once; give a list of batches")


def _duration(epochs, steps, every):
    if epochs is not None and steps is not None:
        raise ValueError(f"give epochs or steps, not both; got {epochs} and {steps}")
    if epochs is None and steps is None:
        epochs = 1
    given = {"epochs": epochs, "steps": steps, "every": every}
    require_positive(**{name: n for name, n in given.items() if n is not None})
    return epochs, steps


@contextmanager
def _bar(progress, place, batches, epochs, steps):
    """Yields what to call after each step. The bar is for terminals (disable=None) alone."""
    try:
        if not progress:
            raise ImportError
        from tqdm import tqdm
    except ImportError:
        yield lambda: None
        return
    total = steps or (epochs * len(batches) if hasattr(batches, "__len__") else None)
    with tqdm(initial=place.done, total=total, leave=False, disable=None) as bar:
        yield bar.update


# --- Checkpoints ----------------------------------------------------------------------------


FORMAT = "encoder_lib checkpoint 1"


def save_checkpoint(path, model, optimizer=None, schedule=None, history=None, **extra):
    """Write all that is needed to go on: weights, optimizer, schedule, history, generators.

    The file is written under another name and then renamed: whenever the process is killed,
    ``path`` is the whole old file or the whole new one.

    Args:
        extra: more to keep; tensors, numbers, strings, None, and lists, tuples and dicts of
            these, because only such things can be read back without running code.

    Returns nothing. Raises: TypeError for anything else in extra, history or a state; OSError
        if the file cannot be written.
    """
    _require_plain(history, "history")
    _require_plain(extra, "extra")
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    states = {name: dict(part.state_dict()) for name, part in parts.items() if part is not None}
    _require_plain(states, "state")
    kinds = {name: type(parts[name]).__name__ for name in states if name != "model"}
    content = {"format": FORMAT, "states": states, "kinds": kinds, "rng": _rng_state()}
    path = Path(path)
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with open(unfinished, "wb") as file:
            torch.save({**content, "history": history, "extra": extra}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _require_plain(value, name):
    kind = type(value)
    if kind is dict:
        for key, inner in value.items():
            _require_plain(key, f"a key of {name}")
            _require_plain(inner, f"{name}[{key!r}]")
    elif kind in (list, tuple):
        for i, inner in enumerate(value):
            _require_plain(inner, f"{name}[{i}]")
    elif not (value is None or kind in (bool, int, float, str) or torch.is_tensor(value)):
        raise TypeError(f"{name} is a {kind.__name__}, which a checkpoint cannot hold")


def load_checkpoint(path, model, optimizer=None, schedule=None):
    """Read what save_checkpoint wrote into model, optimizer and schedule.

    With an optimizer the run goes on, so the generators of random numbers are set back as well;
    without one they are left alone. Nothing is changed if anything does not fit. The file is
    read with ``weights_only=True``: it cannot run code.

    Returns: {"history": ..., and whatever was saved as extra}.

    Raises: FileNotFoundError without such a file; ValueError naming the file if it is damaged,
        not a checkpoint, or of another model, optimizer or schedule.
    """
    saved = _read(Path(path))
    states, wanted = saved["states"], {"optimizer": optimizer, "schedule": schedule}
    _require_same_shapes(path, model.state_dict(), states["model"])
    wanted = {name: part for name, part in wanted.items() if part is not None}
    for name, part in wanted.items():
        kind = saved["kinds"].get(name, "none")
        if kind != type(part).__name__:
            raise ValueError(f"{path}: {name} is {type(part).__name__}, the file holds {kind}")
    before = {name: part.state_dict() for name, part in wanted.items()}
    try:
        for name, part in wanted.items():
            part.load_state_dict(states[name])
    except (ValueError, KeyError) as error:
        for other, part in wanted.items():
            part.load_state_dict(before[other])
        raise ValueError(f"{path} does not fit the {name}: {error}") from None
    model.load_state_dict(states["model"])
    if optimizer is not None:
        _set_rng_state(saved["rng"])
    return {"history": saved["history"], **saved["extra"]}


def _read(path):
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        with zipfile.ZipFile(path) as file:  # torch.load does not compare the checksums
            damaged = file.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is damaged or not a checkpoint: {reason}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} was not written by save_checkpoint")
    return content


def _require_same_shapes(path, ours, theirs):
    for name in [*ours, *theirs]:
        shapes = [
            tuple(getattr(state[name], "shape", ())) if name in state else "missing"
            for state in (ours, theirs)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{path} is of another model: {name} is {shapes[0]} here, {shapes[1]} in the file"
            )
