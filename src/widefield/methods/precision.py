"""Losses are computed in full precision, whatever the encoder's."""

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def full_precision(loss: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Run `loss` outside autocast, half-precision tensors among its positional arguments raised.

    They become float32; float32 and float64 stay as they are.

    Example:
        >>> @full_precision
        ... def mean(z: Tensor) -> Tensor:
        ...     return z.mean()
        >>> mean(torch.ones(2, dtype=torch.bfloat16)).dtype
        torch.float32
    """

    @functools.wraps(loss)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first = args[0]
        assert isinstance(first, Tensor), "a loss takes its tensors by position"
        with torch.autocast(first.device.type, enabled=False):
            raised = (at_least_float32(x) if isinstance(x, Tensor) else x for x in args)
            return loss(*raised, **kwargs)  # type: ignore[arg-type]

    return run


def at_least_float32(x: Tensor) -> Tensor:
    """`x` itself, or as float32 if it is of half precision.

    Example:
        >>> at_least_float32(torch.ones(2, dtype=torch.float16)).dtype
        torch.float32
    """
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
