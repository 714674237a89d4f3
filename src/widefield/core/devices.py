"""Modules and tensors on a device, and evaluation mode."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast; devices such as `meta` have none to leave."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class _WithoutRandomInit(TorchFunctionMode):
    """Leaves tensors as they are where they would be drawn by lot."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


@contextmanager
def on_meta() -> Iterator[None]:
    """Build modules on the device `meta`, where they take no memory and have no values."""
    # Draws on this device would import two seconds of torch's compiler.
    with torch.device("meta"), _WithoutRandomInit():
        yield


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode; on exit restore the mode of every submodule."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def device_of(module: nn.Module, *, default: torch.device = CPU) -> torch.device:
    """Return the device of the weights of a module; `default` if it has none."""
    first = next(chain(module.parameters(), module.buffers()), None)
    return default if first is None else first.device


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Move `module` to `device`; on exit move it back."""
    original = device_of(module, default=device)
    module.to(device)
    try:
        yield
    finally:
        module.to(original)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return `x` on `device`; from host memory without waiting for what the device computes.

    Only page-locked memory is copied in the order of the device's work. Other memory is copied at
    once, when all of that is done.
    """
    if device.type == "cpu" or x.device.type != "cpu":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)
