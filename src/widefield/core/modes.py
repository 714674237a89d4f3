"""Evaluation mode, or another device, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put `module` into evaluation mode; every submodule then gets its own mode back.

    Example:
        >>> net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
        >>> with evaluating(net):
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


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Move `module`, which is on one device, to another; it then goes back to where it was.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> with on_device(net, torch.device("cpu")):
        ...     print(net.weight.device)
        cpu
    """
    first = next(chain(module.parameters(), module.buffers()), None)
    home = device if first is None else first.device
    module.to(device)
    try:
        yield
    finally:
        module.to(home)
