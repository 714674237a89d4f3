"""Gradients of kernels larger than their map, parts of which bf16 on a CPU leaves unwritten."""

import torch
from torch import Tensor, nn

from widefield.core.modes import eval_mode

Conv = nn.Conv1d | nn.Conv2d


def clear_unseen_taps(network: nn.Module, x: Tensor) -> None:
    """Let the gradient of a kernel be 0 at its taps that see nothing but padding.

    That is what it is. Where a map is smaller than a kernel, oneDNN's gradient in bf16 skips these
    taps, and leaves there what the memory held: any number, or NaN.

    Args:
        network: its convolutions are looked at; the weights stay as they are.
        x: a batch of the size that it will be trained on.

    Example:
        >>> conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        >>> clear_unseen_taps(conv, torch.zeros(1, 1, 1, 1))
        >>> conv.weight.backward(torch.full((1, 1, 3, 3), float("nan")))
        >>> int(conv.weight.grad.isnan().sum())
        1
    """
    unseen: dict[Conv, Tensor] = {}

    def look(module: Conv, inputs: tuple[Tensor, ...]) -> None:
        here = unseen_taps(module, tuple(inputs[0].shape[2:]))
        unseen[module] = unseen[module] & here if module in unseen else here

    convolutions = [module for module in network.modules() if isinstance(module, Conv)]
    handles = [module.register_forward_pre_hook(look) for module in convolutions]
    try:
        with torch.no_grad(), eval_mode(network):
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    for module, taps in unseen.items():
        if taps.any() and module.weight.requires_grad:
            module.weight.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient, taps=taps: gradient.masked_fill(taps, 0)
            )


def unseen_taps(convolution: Conv, size: tuple[int, ...]) -> Tensor:
    """Return which taps of the kernel see nothing but padding on a map of `size`, bool [kH, kW].

    A convolution over time has bool [k]. None are unseen where a layer has a `forward` of its own:
    it may pad the map before it calls the library, which then sees a map as large as the kernel.
    """
    if type(convolution).forward not in (nn.Conv1d.forward, nn.Conv2d.forward):
        return torch.zeros(convolution.kernel_size, dtype=torch.bool)
    seen = torch.ones((), dtype=torch.bool)
    for axis, length in enumerate(size):
        left, right = _padding(convolution, axis)
        step, apart = convolution.stride[axis], convolution.dilation[axis]
        taps = torch.arange(convolution.kernel_size[axis]) * apart
        room = max(0, length + left + right - int(taps[-1]))  # none: the layer itself will refuse
        places = torch.arange(0, room, step) - left
        at = taps[:, None] + places
        seen = seen[..., None] & ((at >= 0) & (at < length)).any(1)
    return ~seen


def _padding(convolution: Conv, axis: int) -> tuple[int, int]:
    """Return how far a map is padded before and after, also where the padding has a name."""
    both = convolution._reversed_padding_repeated_twice  # of the last axis first
    start = 2 * (len(convolution.kernel_size) - 1 - axis)
    return both[start], both[start + 1]
