"""Untrained networks with the statistics of the data in their BatchNorm layers.

A run at a learning rate of 0 changes these statistics alone, and with them the features. Without
this floor, such a run appears to be better than an untrained network.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.modes import eval_mode, on_device
from widefield.data.select import spread_rows
from widefield.probes.features import image_batch

_BATCH = 250
_EXAMPLES = 2000


def with_data_statistics(
    encoder: nn.Module, images: np.ndarray, *, device: torch.device
) -> nn.Module:
    """Return a copy of `encoder` with the mean and variance of `images` in its BatchNorm layers.

    Both are means over batches of the statistics that a layer has in training mode (Ioffe and
    Szegedy 2015, algorithm 2). Each batch is spread over all images. Weights do not change.

    Args:
        encoder: x[B, C, H, W] -> h[B, D].
        images: [n, H, W, C] with n > 1; at most 2,000 of them are used.
        device: where the encoder runs.

    Example:
        >>> network = nn.Sequential(nn.BatchNorm2d(1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> images = np.full((4, 8, 8, 1), 51, dtype=np.uint8)
        >>> adapted = with_data_statistics(network, images, device=torch.device("cpu"))
        >>> [round(float(net[0].running_mean), 3) for net in (network, adapted)]
        [0.0, 0.2]
    """
    result = copy.deepcopy(encoder)
    layers = _layers(result)
    momenta = [layer.momentum for layer in layers]
    rows = spread_rows(len(images), _EXAMPLES)
    batches = -(-len(rows) // _BATCH)
    with eval_mode(result), on_device(result, device), torch.no_grad():
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
            layer.momentum = None  # the mean over all batches
        for k in range(batches):
            result(image_batch(images[rows[k::batches]], device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    return result


def also_with_data_statistics(
    untrained: Sequence[nn.Module], images: np.ndarray, *, device: torch.device
) -> list[nn.Module]:
    """Return the untrained encoders, and the first of them also with the statistics of `images`.

    It is left out without BatchNorm layers, and for fewer than two images [n, H, W, C].

    Example:
        >>> network = nn.Sequential(nn.BatchNorm2d(1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> images = np.full((4, 8, 8, 1), 51, dtype=np.uint8)
        >>> len(also_with_data_statistics([network], images, device=torch.device("cpu")))
        2
    """
    if len(images) < 2 or not keeps_statistics(untrained[0]):
        return [*untrained]
    return [*untrained, with_data_statistics(untrained[0], images, device=device)]


def keeps_statistics(network: nn.Module) -> bool:
    """Return whether a network has BatchNorm layers with statistics for evaluation.

    Example:
        >>> keeps_statistics(nn.BatchNorm2d(1)), keeps_statistics(nn.LayerNorm(1))
        (True, False)
    """
    return bool(_layers(network))


def _layers(network: nn.Module) -> list[_BatchNorm]:
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    ]
