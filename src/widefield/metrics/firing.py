"""Firing rates of neurons: the share of inputs on which an activation is above zero."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Hardswish, nn.Mish)
"""Layers whose outputs are neurons."""


def firing_rates(encoder: nn.Module, x: Tensor, *, batch_size: int = 128) -> dict[str, Tensor]:
    """Return the firing rate of each neuron on images x [n, C, H, W], layer -> float [neurons].

    A rate is the share of images on which the neuron is above zero. A layer is an activation
    module of `encoder`, by name in the order of the forward pass; a module used twice is two
    layers, `relu` and `relu (2)`. A neuron is one element of the output of its layer, so a channel
    of a convolution has one neuron at each position. The encoder is not changed.

    Wen and Li (2021), Figure 4: the mean over a layer measures its sparsity.
    Raises `ValueError` for an encoder without such layers, and without images.

    Example:
        >>> layer = nn.Sequential(nn.Flatten(), nn.ReLU())
        >>> firing_rates(layer, torch.tensor([[-1.0, 2.0], [3.0, 4.0]]))["1"]
        tensor([0.5000, 1.0000])
    """
    if len(x) == 0:
        raise ValueError("there are no images: give at least one")
    counts: dict[str, Tensor] = {}
    names = [name for name, module in encoder.named_modules() if isinstance(module, ACTIVATIONS)]
    with record_outputs(encoder, names) as outputs, torch.inference_mode():
        for start in range(0, len(x), batch_size):
            outputs.clear()
            encoder(x[start : start + batch_size])
            for name, out in outputs.items():
                count = (out > 0).flatten(1).sum(0).float()
                counts[name] = counts[name] + count if name in counts else count
    if not counts:
        raise ValueError("the encoder has no activation layers that are modules: give one that has")
    return {name: count.clone() / len(x) for name, count in counts.items()}


@contextmanager
def record_outputs(encoder: nn.Module, names: Collection[str]) -> Iterator[dict[str, Tensor]]:
    """Record the outputs of the modules `names` in forward passes, in evaluation mode.

    Clear the dictionary, name -> output, between passes.
    """
    outputs: dict[str, Tensor] = {}
    with ExitStack() as stack:
        stack.enter_context(eval_mode(encoder))
        for name, module in encoder.named_modules():
            if name in names:
                handle = module.register_forward_hook(_keep(outputs, name))
                stack.callback(handle.remove)
        yield outputs


def _keep(outputs: dict[str, Tensor], name: str) -> Any:
    def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        use = 1 + sum(key == name or key.startswith(f"{name} (") for key in outputs)
        # A clone: a later layer may change this output in place.
        outputs[name if use == 1 else f"{name} ({use})"] = output.clone()

    return hook
