"""A per-example head whose rows get the gradients that a test gives."""

import math

import torch
from torch import Tensor

from widefield.head import PerExampleHead, Storage

N, DIM, BATCH = 23, 3, 4


def cosine(steps: int, peak: float) -> Tensor:
    """Return the learning rates of a schedule with warm-up."""
    s = torch.arange(1, steps + 1, dtype=torch.float64)
    return peak * (s / 20).clamp(max=1) * 0.5 * (1 + torch.cos(math.pi * s / steps))


def visits(steps: int, seed: int) -> list[Tensor]:
    """Batches of distinct examples, some examples in bursts, some after long absences."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.rand(N, generator=g) ** 4 + 1e-3
    return [torch.multinomial(weight, BATCH, generator=g) for _ in range(steps)]


def pull(rows: Tensor, target: Tensor) -> Tensor:
    """Gradient of a small nonlinear loss, so that an early error would grow."""
    return torch.tanh(rows - target) + 0.1 * rows**3


def head_of(storage: Storage) -> PerExampleHead:
    """Return a head on `storage` whose gradient is the features that it is called with."""
    return PerExampleHead(
        storage.n,
        storage.dim,
        loss=lambda z, rows: (z * rows).sum(),
        normalize=False,
        init="random",
        storage=storage,
    )


def visit(head: PerExampleHead, index: Tensor, gradient: Tensor, *, lr: float) -> None:
    """Let the optimizer of `head_of` take a step of the rows `index` [b] with `gradient` [b, m]."""
    head(gradient, index).backward()
    miss_step(head, lr=lr)


def miss_step(head: PerExampleHead, *, lr: float) -> None:
    """Let the optimizer take a step; without a gradient all rows miss it."""
    assert head.optimizer is not None
    head.optimizer.param_groups[0]["lr"] = lr
    head.optimizer.step()
