"""Running what a learner wrote: nothing it does comes out of here as anything but a sentence."""

import contextlib
import functools
import random
import secrets
import traceback
import warnings

import torch
from torch import nn


class NotAttempted(Exception):
    """The answer is still the stub; the text says how it showed."""


class Trouble(Exception):
    """What the learner's code did instead of answering, as a sentence; key names the kind."""

    def __init__(self, text, key="raised", error=None):
        super().__init__(text)
        self.text, self.key, self.error = text, key, error


class Draw:
    """Fresh random inputs; the same seed gives the same ones."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, dtype=torch.float32):
        """Standard normal numbers of the given shape."""
        return torch.randn(*shape, generator=self.generator, dtype=dtype)

    def uniform(self, low, high, *shape):
        """Numbers between low and high of the given shape."""
        return low + (high - low) * torch.rand(*shape, generator=self.generator)

    def integers(self, low, high, *shape):
        """Integers from low to high - 1 of the given shape."""
        return torch.randint(low, high, shape, generator=self.generator)

    def integer(self, low, high):
        """One integer from low to high - 1."""
        return int(self.integers(low, high, 1))

    def permutation(self, n):
        """The numbers 0 to n - 1 in random order."""
        return torch.randperm(n, generator=self.generator)

    def keep(self, lengths, length):
        """keep_mask (B, L): the first ``lengths[b]`` of ``length`` positions are real."""
        return torch.arange(length) < torch.tensor(lengths)[:, None]  # (B, L)


def settings():
    """The settings of torch and Python that an answer may change: (how to set it, value)."""
    return (
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.set_default_device, torch.get_default_device()),
        (torch.set_num_threads, torch.get_num_threads()),
        (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()),
        (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled()),
        (random.setstate, random.getstate()),
    )


@contextlib.contextmanager
def isolated(seed):
    """Random numbers, warnings and settings are after the check as they were before."""
    seed = secrets.randbits(31) if seed is None else seed
    before = settings()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        try:
            yield Draw(seed)
        finally:
            for (set_back, value), (_, now) in zip(before, settings(), strict=True):
                if now != value:
                    set_back(value)


@contextlib.contextmanager
def as_it_was(attempt):
    """A module that was handed in is in its modes (train or eval) after the check as before."""
    known = isinstance(attempt, nn.Module) and "_modules" in vars(attempt)
    modes = [(part, part.training) for part in attempt.modules()] if known else []
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def sentence(text):
    """The text as a sentence: a capital letter, and something at its end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def kind(value):
    """What a value is, in a few words that can always be written down."""
    try:
        if isinstance(value, torch.Tensor):
            return f"a tensor {tuple(value.shape)} of {value.dtype}".replace("torch.", "")
        if isinstance(value, tuple | list):
            return f"a {type(value).__name__} of {len(value)}"
        if isinstance(value, type):
            return f"the class {value.__name__}"
        return f"of type {type(value).__name__}"
    except BaseException:  # an object may refuse even this
        return "an object that cannot be described"


def is_stub(value):
    """Whether a value is what a stub leaves: None, ``...``, NotImplemented, ``...`` in a tuple."""
    if value is None or value is Ellipsis or value is NotImplemented:
        return True
    return type(value) is tuple and any(part is Ellipsis for part in value)


def place(error):
    """`` in line N: code`` of the learner's last line in the traceback, or nothing."""
    inside = ("site-packages", "dist-packages", "encoder_lib", "<frozen")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in inside)]
    if not own:
        return ""
    return f" in line {own[-1].lineno}" + (f" ({own[-1].line})" if own[-1].line else "")


def unwritten(attempt):
    """Whether a module or its class has no forward of its own yet."""
    maker = attempt if isinstance(attempt, type) else type(attempt)
    return issubclass(maker, nn.Module) and maker.forward is nn.Module.forward


def call(f, *args, **kwargs):
    """f(*args, **kwargs), where every error is a Trouble and every stub a NotAttempted.

    Raises: NotAttempted for NotImplementedError and for errors about ``...``; Trouble for every
        other error, except KeyboardInterrupt, which is the reader's own.
    """
    try:
        return f(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except (NotAttempted, Trouble):
        raise
    except BaseException as error:
        try:
            text = " ".join(str(error).split())[:200]
        except BaseException:
            text = ""
        of_torch = "not implemented for" in text or "Could not run" in text  # of a dtype, a layout
        if isinstance(error, NotImplementedError) and not of_torch or "ellipsis" in text:
            raise NotAttempted(f"{type(error).__name__} was raised") from None
        what = f"{type(error).__name__}{place(error)}" + (f": {text}" if text else "")
        raise Trouble(f"your code raised {what}", error=error) from None


def answer(f, *args):
    """What f gives; a stub's None or ``...`` is a NotAttempted.

    Raises: NotAttempted, Trouble as ``call``.
    """
    value = call(f, *args)
    if is_stub(value):
        raise NotAttempted("None or `...` came back; is a `return` missing?")
    return value


def as_function(attempt):
    """A function or module as something to call; a module's class is made without arguments.

    Raises: NotAttempted for None and ``...``; Trouble for what cannot be called. So does calling
        what is returned, as ``answer``.
    """
    if is_stub(attempt):
        raise NotAttempted("nothing was handed in")
    if unwritten(attempt):
        raise NotAttempted("the class has no forward yet")
    if isinstance(attempt, type) and issubclass(attempt, nn.Module):
        attempt = call(attempt)
    if isinstance(attempt, nn.Module):
        attempt.eval()
    if not callable(attempt):
        came = kind(attempt)
        raise Trouble(f"this check needs a function or a module; what came is {came}", "type")
    return functools.partial(answer, attempt)


def made(attempt, *sizes, wants="a class, or a function that makes a module"):
    """A module of the learner's class (or from its function) for these sizes, in evaluation mode.

    An instance is made anew from its class. What is drawn in the making is the same every time, so
    that weights nobody sets do not look like dropout.

    Raises: NotAttempted for what is not written yet; Trouble for what is no module.
    """
    if is_stub(attempt) or unwritten(attempt):
        raise NotAttempted("nothing was handed in, or the class has no forward yet")
    maker = type(attempt) if isinstance(attempt, nn.Module) else attempt
    if type(attempt) in (nn.Sequential, nn.ModuleList, nn.ModuleDict):  # its sizes are fixed
        raise Trouble(f"this check needs {wants}; what came is one that is made already, "
                      f"{kind(attempt)}", "type")  # fmt: skip
    if not callable(maker):
        raise Trouble(f"this check needs {wants}; what came is {kind(attempt)}", "type")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = answer(maker, *sizes)
    if not isinstance(module, nn.Module):
        raise Trouble(f"this check needs {wants}; calling it gave {kind(module)}", "type")
    return module.eval()


def copied(value):
    """The value with every tensor in it cloned, so that nobody can change the original."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():  # a subclass might say anything of itself
            return value.detach().clone().as_subclass(torch.Tensor)
    if isinstance(value, tuple):
        return tuple(copied(part) for part in value)
    if isinstance(value, list):
        return [copied(part) for part in value]
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return value
