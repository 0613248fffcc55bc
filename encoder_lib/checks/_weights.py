"""Setting the weights of a learner's module by name, so that no seed matters.

``WEIGHTS`` names what a module of the book holds; ``find`` looks for the same under the names that
people use. Where it does not find them, the learner hands in an adapter: a function
``adapter(module, weights)`` that copies them, where ``weights[name]`` is (out, in) like the weight
of an ``nn.Linear`` and ``weights["b" + name[1:]]`` is its bias, (out,).
"""

import functools

import torch
from torch import nn

from encoder_lib.checks._learner import Trouble

MAPS = (nn.Linear, nn.Conv1d)
ALIASES = {
    "w_q": ("w_q", "wq", "q_proj", "query", "to_q", "q_linear", "linear_q", "fc_q", "lin_q",
            "proj_q", "query_proj", "q_lin", "linear_query", "wquery", "q"),
    "w_k": ("w_k", "wk", "k_proj", "key", "to_k", "k_linear", "linear_k", "fc_k", "lin_k", "proj_k",
            "key_proj", "k_lin", "linear_key", "wkey", "k"),
    "w_v": ("w_v", "wv", "v_proj", "value", "to_v", "v_linear", "linear_v", "fc_v", "lin_v",
            "proj_v", "value_proj", "v_lin", "linear_value", "wvalue", "v"),
    "w_o": ("w_o", "wo", "out_proj", "o_proj", "out", "to_out", "out_linear", "linear_o", "fc_o",
            "linear_out", "fc_out", "lin_o", "proj", "output", "c_proj", "w_out", "wout", "o",
            "proj_out", "dense", "fc", "output_proj"),
    "w_qkv": ("w_qkv", "wqkv", "qkv", "to_qkv", "in_proj", "qkv_proj", "c_attn", "proj_qkv"),
    "w_1": ("w_1", "w1", "linear1", "linear_1", "lin1", "lin_1", "fc1", "fc_1", "dense1", "dense_1",
            "layer1", "layer_1", "first", "up", "up_proj", "c_fc", "w_in", "expand", "inner",
            "hidden", "conv1", "conv_1"),
    "w_2": ("w_2", "w2", "linear2", "linear_2", "lin2", "lin_2", "fc2", "fc_2", "dense2", "dense_2",
            "layer2", "layer_2", "second", "down", "down_proj", "c_proj", "w_out", "contract",
            "outer", "output", "out", "conv2", "conv_2"),
}  # fmt: skip


def own_name(module, name):
    """What the module calls ``name``, or None; capital letters do not matter."""
    own = [n for n, _ in (*module.named_children(), *module.named_parameters(recurse=False))]
    held = {key.lower(): key for key in own}
    return next((held[alias] for alias in ALIASES.get(name, (name,)) if alias in held), None)


def parts(module, name):
    """The sub-module or parameter called ``name`` ("net.0", too), and whether it is a parameter."""
    found = functools.reduce(getattr, name.split("."), module)
    return found, isinstance(found, nn.Parameter)


def bare_bias(module, key):
    """The bias of the map ``key`` that is a parameter of its own ("b_q", "q_bias"), or None."""
    forms = ("b_{}", "b{}", "bias_{}", "bias{}", "{}_bias", "w_{}_bias")
    usual = [form.format(key[2:]) for form in forms]
    held = {name.lower(): own for name, own in module.named_parameters(recurse=False)}
    return next((held[name] for name in usual if name in held), None)


def copy_(module, name, weight, bias, separate=None):
    """Copy weight (out, in) and bias into what the module calls ``name``.

    separate: the parameter that holds the bias where the map itself has none.

    Raises: Trouble when the shapes do not fit.
    """
    target, bare = parts(module, name)
    target = target if bare or isinstance(target, MAPS) else first_linear(target, name)
    own = target if bare else target.weight
    if own.shape != weight.shape and bare and own.shape == weight.T.shape:
        weight = weight.T  # x @ P instead of P x; a square P is drawn symmetric, see ``bare_maps``
    if isinstance(target, nn.Conv1d) and own.dim() == 3 and own.size(-1) == 1:
        weight = weight[..., None]  # a convolution over windows of one position
    if own.shape != weight.shape:
        raise Trouble(f"{name} should hold a map of shape {tuple(weight.shape)} (out, in), like "
                      f"nn.Linear; it is {tuple(own.shape)}", "shape")  # fmt: skip
    with torch.no_grad():
        own.copy_(weight)
        held = separate if bare or target.bias is None else target.bias
        if held is not None and bias is not None:
            held.copy_(bias.view_as(held))


def first_linear(module, name):
    """The linear map inside a small module such as nn.Sequential."""
    for inner in module.modules():
        if isinstance(inner, MAPS):
            return inner
    raise Trouble(f"{name} holds no nn.Linear whose weights could be set", "names")


def has_bias(module, name, key=""):
    """Whether the map that the module calls ``name`` has a bias, or ``key`` one of its own."""
    target, bare = parts(module, name)
    if key and bare_bias(module, key) is not None:
        return True
    return not bare and any(isinstance(m, MAPS) and m.bias is not None for m in target.modules())


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
            bias = weights.get("b" + key[1:])
            copy_(module, name, weights[key], bias, bare_bias(module, key))
    return missing


def bare_maps(module, names):
    """Whether a map is a bare parameter: nobody can know if it is used as x @ P or as P x.

    Its weights are then drawn symmetric, and the two are the same.
    """
    found = [own_name(module, name) for name in names]
    return any(name is not None and parts(module, name)[1] for name in found)
