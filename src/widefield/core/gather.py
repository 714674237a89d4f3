"""All-gather of tensors over processes, with its gradient."""

from typing import Any

import torch
from torch import Tensor, distributed


def rank_and_world() -> tuple[int, int]:
    """Return rank and number of processes: (0, 1) unless `torch.distributed` is initialized."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def gather(x: Tensor) -> Tensor:
    """Stack every rank's x [b, ...] in rank order, [world b, ...]; x itself in one process.

    All ranks call it together, with the same shape. With L_r the loss of rank r, backward gives
    rank r the gradient

        sum_q dL_q / dx_r,

    of the sum of all ranks' losses with respect to its own slice. So, to get what one process
    with the batch of all ranks would get, compute the loss of the gathered batch on every rank:

    - its value L is then the one-process value, the same on all ranks;
    - x_r receives world dL / dx_r, and the mean over ranks that DistributedDataParallel takes of
      the parameters' gradients makes it dL / dtheta, the one-process gradient;
    - a leaf that no such mean touches, such as a row of the per-example head, receives
      world dL / dx_r: divide it by world.

    The same holds if each rank computes the loss of its own b anchors against the gathered batch:
    the run's loss is then the mean of the ranks' losses.
    """
    return x if rank_and_world()[1] == 1 else _Gather.apply(x)


def over_world(grad: Tensor) -> Tensor:
    """Return grad / world: the gradient of the mean loss over ranks, from that of one rank."""
    return grad / rank_and_world()[1]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rank, world = rank_and_world()
        ctx.local = slice(rank * len(x), (rank + 1) * len(x))
        # all_gather takes contiguous tensors alone.
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world)]
        distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        grad: Tensor = total[ctx.local]
        return grad
