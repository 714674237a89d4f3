"""Copies from host memory to the device that nothing waits for."""

import torch
from torch import Tensor


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return `x` on `device`; from host memory without waiting for what the device computes.

    Only page-locked memory is copied in the order of the device's work. Other memory is copied at
    once, when all of that is done.

    Example:
        >>> to_device(torch.ones(2), torch.device("cpu"))
        tensor([1., 1.])
    """
    if device.type == "cpu" or x.device.type != "cpu":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)
