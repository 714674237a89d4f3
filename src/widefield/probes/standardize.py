"""Standardization of features: mean 0 and deviation 1, except for constant features."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widefield.core.scale import power_of_two

_ROWS = 4096
"""Rows that are converted at a time: wide features of all would take gigabytes."""
_CONSTANT = 1e-6
"""A deviation of at most this share of the largest value is rounding, and the feature constant.
It is about eight times the resolution of float32."""


@dataclass(frozen=True, slots=True)
class Standardization:
    """Mean and deviation of each feature."""

    mean: Tensor
    """[D]."""
    scale: Tensor
    """Standard deviations, [D]; infinite for constant features, which makes them zero."""

    @classmethod
    def of(cls, h: Tensor, dtype: torch.dtype = torch.float32) -> "Standardization":
        """Return that of features [n, D] of any type, computed in `dtype`."""
        low, high = h.amin(0).to(dtype), h.amax(0).to(dtype)  # `aminmax` takes many times as long
        largest = torch.maximum(low.abs(), high.abs())
        # Squares of the unscaled features could underflow or overflow.
        size = power_of_two(largest.amax())
        mean, square = (torch.zeros_like(low) for _ in range(2))
        for part in torch.split(h, _ROWS):
            mean += (part.to(dtype) / size).sum(0)
        mean /= len(h)
        for part in torch.split(h, _ROWS):
            square += (part.to(dtype) / size).sub_(mean).square_().sum(0)
        deviation = (square / len(h)).sqrt()
        # Rounding makes a constant feature deviate: it must not be amplified to noise.
        constant = deviation <= _CONSTANT * (largest / size)
        return cls(mean * size, torch.where(constant, torch.inf, deviation * size))

    def __call__(self, h: Tensor) -> Tensor:
        """Return (h - mean) / scale, in the type of the mean."""
        return h.to(self.mean, copy=True).sub_(self.mean).div_(self.scale)
