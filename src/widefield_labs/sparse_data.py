"""Sparse-coding data and their masked views (Wen & Li 2021, Definitions 2.1 and 2.3).

Shapes: A arms, B pairs, d atoms, d1 ambient dimensions.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class SparseCoding:
    """Definition 2.1: atoms [d1, d], the probability of a non-zero z_j, sigma^2 of each arm [A]."""

    atoms: Tensor
    active: float
    variance: Tensor

    @classmethod
    def random(
        cls, d: int, d1: int, sparsity: float, noise: Tensor, generator: Generator
    ) -> "SparseCoding":
        """Draw orthonormal atoms: their entries are O~(1/sqrt(d1))."""
        atoms = torch.linalg.qr(torch.randn(d1, d, generator=generator)).Q
        active = sparsity * math.log(math.log(d)) / d
        return cls(atoms, active, noise * math.sqrt(math.log(d)) / d)

    def sample(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw z [n, d] and xi [A, n, d1]; arms share the draw."""
        d1, d = self.atoms.shape
        u = torch.rand(count, d, generator=generator)
        z = (u < self.active / 2).float() - (u > 1 - self.active / 2).float()
        xi = torch.randn(count, d1, generator=generator)
        return z, self.variance.sqrt().view(-1, 1, 1) * xi


def masked_pair(x: Tensor, keep: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return x+ and x++ [A, B, d1]: D x / q and (I - D) x / (1 - q) in even arms, x in odd ones.

    `keep` [B, d1] holds uniform draws; D keeps a coordinate where they are below q [A, 1, 1].
    """
    first = (keep < q).float()
    plain = (torch.arange(len(x)) % 2 == 1).view(-1, 1, 1)
    return (torch.where(plain, x, x * first / q), torch.where(plain, x, x * (1 - first) / (1 - q)))
