"""Setting the weights of a learner's module by name, so that no seed matters.

``WEIGHTS`` names what a module of the book holds; ``find`` looks for the same under the names that
people use. Where it does not find them, the learner hands in an adapter: a function
``adapter(module, weights)`` that copies them, where ``weights[name]`` is (out, in) like the weight
of an ``nn.Linear`` and ``weights["b" + name[1:]]`` is its bias, (out,).
"""

import torch
from torch import nn

from encoder_lib.checks._learner import Trouble

ALIASES = {
    "w_q": ("w_q", "wq", "q_proj", "query", "to_q", "q_linear", "linear_q", "fc_q", "lin_q", "proj_q",
            "query_proj", "q_lin", "linear_query", "wquery", "q"),
    "w_k": ("w_k", "wk", "k_proj", "key", "to_k", "k_linear", "linear_k", "fc_k", "lin_k", "proj_k",
            "key_proj", "k_lin", "linear_key", "wkey", "k"),
    "w_v": ("w_v", "wv", "v_proj", "value", "to_v", "v_linear", "linear_v", "fc_v", "lin_v", "proj_v",
            "value_proj", "v_lin", "linear_value", "wvalue", "v"),
    "w_o": ("w_o", "wo", "out_proj", "o_proj", "out", "to_out", "out_linear", "linear_o", "fc_o",
            "linear_out", "fc_out", "lin_o", "proj", "output", "c_proj", "w_out", "wout", "o",
            "proj_out", "dense", "fc", "output_proj"),
    "w_qkv": ("w_qkv", "wqkv", "qkv", "to_qkv", "in_proj", "qkv_proj", "c_attn", "proj_qkv"),
}  # fmt: skip


def own_name(module, name):
    """What the module calls ``name``, or None; capital letters do not matter."""
    own = [n for n, _ in (*module.named_children(), *module.named_parameters(recurse=False))]
    held = {key.lower(): key for key in own}
    return next((held[alias] for alias in ALIASES.get(name, (name,)) if alias in held), None)


def parts(module, name):
    """The sub-module or parameter called ``name``, and whether it is a bare parameter."""
    found = getattr(module, name)
    return found, isinstance(found, nn.Parameter)


def copy_(module, name, weight, bias):
    """Copy weight (out, in) and bias into what the module calls ``name``.

    Raises: Trouble when the shapes do not fit.
    """
    target, bare = parts(module, name)
    target = target if bare or isinstance(target, nn.Linear) else first_linear(target, name)
    own = target if bare else target.weight
    if own.shape != weight.shape and bare and own.shape == weight.T.shape:
        weight = weight.T  # x @ P instead of P x; a square P is drawn symmetric, see ``bare_maps``
    if own.shape != weight.shape:
        raise Trouble(f"{name} should hold a map of shape {tuple(weight.shape)} (out, in), like "
                      f"nn.Linear; it is {tuple(own.shape)}", "shape")  # fmt: skip
    with torch.no_grad():
        own.copy_(weight)
        if not bare and target.bias is not None and bias is not None:
            target.bias.copy_(bias)


def first_linear(module, name):
    """The linear map inside a small module such as nn.Sequential."""
    for inner in module.modules():
        if isinstance(inner, nn.Linear):
            return inner
    raise Trouble(f"{name} holds no nn.Linear whose weights could be set", "names")


def has_bias(module, name):
    """Whether the map that the module calls ``name`` has a bias."""
    target, bare = parts(module, name)
    return not bare and any(isinstance(m, nn.Linear) and m.bias is not None for m in target.modules())


def set_by_name(module, weights, names=None):
    """Copy ``weights`` into a module under its own names; returns the names that were not found.

    Args:
        weights: {"w_q": (out, in), "b_q": (out,), ...}.
        names: {"w_q": "my_query", ...} where the module uses other names than ``ALIASES`` knows.
    """
    missing = []
    for key in (key for key in weights if key.startswith("w_")):
        name = (names or {}).get(key) or own_name(module, key)
        if name is None:
            missing.append(key)
        else:
            copy_(module, name, weights[key], weights.get("b" + key[1:]))
    return missing


def bare_maps(module, names):
    """Whether a map is a bare parameter: nobody can know if it is used as x @ P or as P x.

    Its weights are then drawn symmetric, and the two are the same.
    """
    found = [own_name(module, name) for name in names]
    return any(name is not None and parts(module, name)[1] for name in found)
