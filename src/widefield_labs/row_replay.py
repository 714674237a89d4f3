"""The library's row optimizer beside an optimizer that takes every step.

Shapes: R rows of m weights, T steps.
"""

import math

import torch
from torch import Generator, Tensor

from widefield.head import MemoryStorage, PerExampleHead
from widefield.head.lazy_adamw import LazyAdamW
from widefield_labs.lab import Arrays


def replay(
    start: Tensor, grads: Tensor, visits: Tensor, rates: Tensor, weight_decay: float
) -> Tensor:
    """Return rows [R, m] after T steps of the library's row optimizer, which skips missed ones.

    Step t has the learning rate `rates` [T]; row r is visited if `visits` [T, R], with gradient
    `grads` [T, R, m].
    """
    storage = MemoryStorage(*start.shape, seed=0, dtype=start.dtype)
    storage.row.copy_(start)
    head = PerExampleHead(
        *start.shape,
        loss=lambda gradient, rows: (gradient * rows).sum(),
        normalize=False,
        init="random",
        storage=storage,
    )
    optimizer = LazyAdamW(head, weight_decay=weight_decay)
    for rate, grad, visited in zip(rates.tolist(), grads, visits, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        index = visited.nonzero().squeeze(1)
        if len(index):
            head(grad[index], index).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return head.rows(torch.arange(len(start)))


def every_step(
    start: Tensor, grads: Tensor, visits: Tensor, rates: Tensor, weight_decay: float
) -> Tensor:
    """Return rows after T steps of `torch.optim.AdamW`; off its visits a row's gradient is zero."""
    rows = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([rows], weight_decay=weight_decay)
    for rate, grad, visited in zip(rates.tolist(), grads, visits, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        rows.grad = grad * visited.unsqueeze(-1)
        optimizer.step()
    return rows.detach()


def compare_head(learning_rate: float, weight_decay: float, generator: Generator) -> Arrays:
    """Compare the library's row optimizer with every step taken, over shuffled epochs.

    With bias correction and eps as in training. `head_error` is the largest difference of a weight,
    relative to the largest weight.
    """
    epochs, batches, batch, width = 6, 8, 4, 3
    examples, steps = batches * batch, epochs * batches
    shuffled = [torch.randperm(examples, generator=generator) for _ in range(epochs)]
    visits = torch.zeros(steps, examples, dtype=torch.bool)
    visits.scatter_(1, torch.cat(shuffled).view(steps, batch), True)
    grads = torch.randn(steps, examples, width, generator=generator, dtype=torch.float64)
    start = torch.randn(examples, width, generator=generator, dtype=torch.float64) / 16
    cosine = torch.cos(math.pi / 2 * torch.arange(steps, dtype=torch.float64) / steps)
    run = (start, grads, visits, learning_rate * cosine, weight_decay)
    dense = every_step(*run)
    return {"head_error": ((replay(*run) - dense).abs().max() / dense.abs().max()).numpy()}
