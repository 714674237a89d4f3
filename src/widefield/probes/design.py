"""The design matrix x [n, d] of a linear probe, in memory or computed from features at each use.

L-BFGS needs two products of them, for a stack of P problems with K classes: W x^T of weights
W [P, K, d], and R x of residuals R [P, K, n].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from widefield.probes.standardize import Standardization

_BLOCK = 2**19
"""Features that are standardized at a time: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class DenseDesign:
    """A design matrix x [n, d] in memory."""

    x: Tensor

    @property
    def width(self) -> int:
        """Number of columns d."""
        return self.x.shape[1]

    def times(self, weight: Tensor) -> Tensor:
        """Return W x^T, [P, K, n], of W [P, K, d]."""
        return _product(weight, self.x.T)

    def sums(self, residual: Tensor) -> Tensor:
        """Return R x, [P, K, d], of R [P, K, n]."""
        return _product(residual, self.x)

    def mean_squares(self) -> Tensor:
        """Return the mean square of each column, [d]."""
        return self.x.square().mean(0)


@dataclass(frozen=True, slots=True)
class RotatedDesign:
    """x = [z A, 1] of standardized features z [n, D], which are computed in blocks.

    Instead of z, the weights are rotated: with the last column b of W for the bias and V the
    others, W x^T = (V A^T) z^T + b and R x = [(R z) A, R 1].
    """

    h: Tensor
    """Numbers of any type [n, D], such as bytes."""
    standardize: Standardization
    axes: Tensor
    """A, orthonormal columns [D, d - 1]."""
    variance: Tensor
    """Mean squares of z A, [d - 1]."""

    @property
    def width(self) -> int:
        """Number of columns d."""
        return self.axes.shape[1] + 1

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        size = max(1, _BLOCK // self.h.shape[1])
        for start in range(0, len(self.h), size):
            rows = slice(start, start + size)
            yield rows, self.standardize(self.h[rows])

    def times(self, weight: Tensor) -> Tensor:
        """Return W x^T, [P, K, n], of W [P, K, d]."""
        rotated = _product(weight[:, :, :-1], self.axes.T).flatten(0, 1)
        bias = weight[:, :, -1].reshape(-1, 1)
        logits = rotated.new_empty(len(rotated), len(self.h))
        for rows, z in self._blocks():
            logits[:, rows] = torch.addmm(bias, rotated, z.T)
        return logits.view(*weight.shape[:2], -1)

    def sums(self, residual: Tensor) -> Tensor:
        """Return R x, [P, K, d], of R [P, K, n]."""
        flat = residual.flatten(0, 1)
        total = flat.new_zeros(len(flat), self.h.shape[1])
        for rows, z in self._blocks():
            total.addmm_(flat[:, rows], z)
        sums = torch.cat([total @ self.axes, flat.sum(1, keepdim=True)], dim=1)
        return sums.view(*residual.shape[:2], -1)

    def mean_squares(self) -> Tensor:
        """Return the mean square of each column, [d]."""
        return torch.cat([self.variance, self.variance.new_ones(1)])


DesignMatrix = DenseDesign | RotatedDesign
"""x [n, d], whose rows are examples."""


def _product(stack: Tensor, x: Tensor) -> Tensor:
    """Return [P, K, a] @ [a, b] as one matrix product, [P, K, b]."""
    product = stack.flatten(0, 1) @ x
    return product.view(*stack.shape[:2], x.shape[1])
