"""Looking into a model without touching it: how large the gradients are, and where.

Axes: N layers.
"""

from __future__ import annotations

import torch

from encoder_lib.encoder import EncoderLayer

__all__ = ["gradient_norms", "layer_gradient_norms"]


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
    _require_module(model)
    layers = [part for part in model.modules() if isinstance(part, EncoderLayer)]
    if not layers:
        raise ValueError(f"{type(model).__name__} holds no EncoderLayer")
    gradients = [[p.grad for p in layer.parameters() if p.grad is not None] for layer in layers]
    return [_norm(found) if found else None for found in gradients]
