"""Full precision for losses, whatever the precision of the encoder."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def full_precision(loss: Callable[P, T]) -> Callable[P, T]:
    """Decorate `loss` to run outside autocast, with half-precision arguments as float32.

    Positional and keyword arguments are converted; float32 and float64 are unchanged.
    """

    @functools.wraps(loss)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        named = dict(zip(kwargs, map(at_least_float32, kwargs.values()), strict=True))
        with ExitStack() as stack:
            # Autocast is set per device type, and indices may be on another device.
            for x in (*args, *kwargs.values()):
                if isinstance(x, Tensor):
                    stack.enter_context(torch.autocast(x.device.type, enabled=False))
            return loss(*map(at_least_float32, args), **named)  # type: ignore[arg-type]

    return run


def at_least_float32(x: T) -> T:
    """Return `x` itself, or as float32 if it is a tensor of half precision."""
    if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16):
        return x.float()  # type: ignore[return-value]
    return x
