"""Context managers for evaluation mode and for another device."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

CPU = torch.device("cpu")


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode; on exit restore the mode of every submodule.

    Example:
        >>> net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
        >>> with eval_mode(net):
        ...     print(net[0].training)
        False
        >>> net[0].training, net[1].training
        (True, False)
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def device_of(module: nn.Module, *, default: torch.device = CPU) -> torch.device:
    """Return the device of the weights of a module; `default` if it has none.

    Example:
        >>> device_of(nn.Linear(2, 2))
        device(type='cpu')
    """
    first = next(chain(module.parameters(), module.buffers()), None)
    return default if first is None else first.device


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Move `module` to `device`; on exit move it back.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> with on_device(net, torch.device("cpu")):
        ...     print(net.weight.device)
        cpu
    """
    original = device_of(module, default=device)
    module.to(device)
    try:
        yield
    finally:
        module.to(original)
