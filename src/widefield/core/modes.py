"""Evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

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
