"""LayerNorm and RMSNorm over the last axis. Built in chapter 07.

Axes: B batch, L length, D = d_model.
"""

import math

import torch
from torch import nn

from encoder_lib.embedding import require_positive


def require_width(x, d_model):
    """Refuse anything but floating-point features (..., d_model).

    Raises: TypeError for another type or dtype, ValueError naming both widths otherwise.
    """
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor (..., {d_model}), got {kind}")
    if x.dim() == 0 or x.size(-1) != d_model:
        raise ValueError(f"the last axis of x must be d_model={d_model}, got {tuple(x.shape)}")


def require_eps(eps):
    """Refuse an eps that is not a positive number, which constant rows would divide by 0.

    Raises: TypeError for anything but a number, ValueError for 0, negative or infinite ones.
    """
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps must be a small positive number such as 1e-5, got {eps!r}")
    if not 0 < eps < math.inf:
        raise ValueError(f"eps must be a small positive number such as 1e-5, got {eps}")


class LayerNorm(nn.Module):
    """Give every token mean 0 and variance 1 over its D numbers, then scale and shift.

    (..., D) -> (..., D). The variance is the biased one and eps stands inside the root
    (Ba et al. 2016, equation 4). Half precision is computed in float32 inside.

    Raises: ValueError, TypeError for d_model below 1 or not int, eps that is not a positive
        number, x of another width.
    """

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        require_positive(d_model=d_model)
        require_eps(eps)
        self.d_model, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.empty(d_model))
        self.bias = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self):
        """Set the scale to 1 and the shift to 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        """x: (..., D). Returns the same shape and dtype."""
        require_width(x, self.d_model)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        centred = wide - wide.mean(dim=-1, keepdim=True)             # (..., D)
        variance = centred.square().mean(dim=-1, keepdim=True)       # (..., 1)
        normal = centred * (variance + self.eps).rsqrt()             # (..., D)
        return (normal * self.weight + self.bias).to(x.dtype)


class RMSNorm(nn.Module):
    """Give every token the root mean square 1, then scale: (..., D) -> (..., D).

    No mean is subtracted and nothing is added (Zhang and Sennrich 2019, equation 4). Half
    precision is computed in float32 inside.

    Raises: as LayerNorm.
    """

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        require_positive(d_model=d_model)
        require_eps(eps)
        self.d_model, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self):
        """Set the scale to 1."""
        nn.init.ones_(self.weight)

    def forward(self, x):
        """x: (..., D). Returns the same shape and dtype."""
        require_width(x, self.d_model)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean_square = wide.square().mean(dim=-1, keepdim=True)       # (..., 1)
        return (wide * (mean_square + self.eps).rsqrt() * self.weight).to(x.dtype)
