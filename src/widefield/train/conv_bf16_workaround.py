"""Workaround for gradients of kernels larger than their input, in bf16 on a CPU."""

import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode

Conv = nn.Conv1d | nn.Conv2d


def zero_padding_gradients(network: nn.Module, x: Tensor) -> None:
    """Set the gradient of a kernel to 0 at positions that see only padding.

    Where an input is smaller than the kernel, oneDNN's gradient in bf16 leaves these positions
    uninitialized: they have any number, or NaN.
    """
    masks: dict[Conv, Tensor] = {}

    def look(module: Conv, inputs: tuple[Tensor, ...]) -> None:
        mask = padding_mask(module, tuple(inputs[0].shape[2:]))
        masks[module] = masks[module] & mask if module in masks else mask

    convs = [module for module in network.modules() if isinstance(module, Conv)]
    handles = [module.register_forward_pre_hook(look) for module in convs]
    try:
        with torch.no_grad(), eval_mode(network):
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    for module, mask in masks.items():
        if mask.any() and module.weight.requires_grad:
            module.weight.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient, mask=mask: gradient.masked_fill(mask, 0)
            )


def padding_mask(convolution: Conv, size: tuple[int, ...]) -> Tensor:
    """Return which positions of the kernel see only padding on an input of `size`, bool [kH, kW].

    A convolution over time has bool [k]. The mask is empty for layers with their own `forward`,
    which may pad the input first.
    """
    if type(convolution).forward not in (nn.Conv1d.forward, nn.Conv2d.forward):
        return torch.zeros(convolution.kernel_size, dtype=torch.bool)
    seen = torch.ones((), dtype=torch.bool)
    for axis, length in enumerate(size):
        # Both sides of the last axis come first; padding by name is resolved there.
        first = 2 * (len(size) - 1 - axis)
        left, right = convolution._reversed_padding_repeated_twice[first : first + 2]
        step, dilation = convolution.stride[axis], convolution.dilation[axis]
        offsets = torch.arange(convolution.kernel_size[axis]) * dilation
        # Where the kernel is larger than the padded map, the layer itself raises an error.
        length_out = max(0, length + left + right - int(offsets[-1]))
        positions = torch.arange(0, length_out, step) - left
        at = offsets[:, None] + positions
        seen = seen[..., None] & ((at >= 0) & (at < length)).any(1)
    return ~seen
