"""Losses are computed in full precision, whatever the encoder's."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def full_precision(loss: Callable[P, T]) -> Callable[P, T]:
    """Run `loss` outside autocast, the half-precision tensors among its arguments raised.

    They become float32, given by position or by keyword; float32 and float64 stay as they are.

    Example:
        >>> @full_precision
        ... def mean(z: Tensor) -> Tensor:
        ...     return z.mean()
        >>> mean(z=torch.ones(2, dtype=torch.bfloat16)).dtype
        torch.float32
    """

    @functools.wraps(loss)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        devices = {x.device.type for x in (*args, *kwargs.values()) if isinstance(x, Tensor)}
        with ExitStack() as stack:
            # Autocast is on or off for each kind of device, and indices may lie on another one.
            for device in devices:
                stack.enter_context(torch.autocast(device, enabled=False))
            raised: dict[str, Any] = {key: _raised(x) for key, x in kwargs.items()}
            return loss(*map(_raised, args), **raised)  # type: ignore[arg-type]

    return run


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` itself, or as float32 if it is of half precision.

    Example:
        >>> at_least_float32(torch.ones(2, dtype=torch.float16)).dtype
        torch.float32
    """
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _raised(x: object) -> object:
    return at_least_float32(x) if isinstance(x, Tensor) else x
