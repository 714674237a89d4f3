"""The untrained floor: the best of the untrained networks of an architecture.

They have each usual initialization, and the first one also the statistics of the data in its
BatchNorm layers: a run at a learning rate of 0 changes these alone, and with them the features.
Without this floor, such a run appears to be better than an untrained network. Each network counts
with its pooled and with its wide features.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.devices import eval_mode, on_device
from widefield.data.select import spread_rows
from widefield.encoders import Wide
from widefield.probes.features import image_batch
from widefield.probes.wide import has_stages, wide_or_none

# Statistics of a small last batch would count as much as those of the others: 2,000 examples are a
# whole number of batches, and fewer ones are divided evenly.
_BATCH = 250
_EXAMPLES = 2000
"""Examples whose statistics are taken, as many as a readout of the floor is fitted on."""


@dataclass(frozen=True, kw_only=True)
class Untrained:
    """One untrained network of the floor; its modules are built when they are first used."""

    start: nn.Module
    """The network as it was initialized, x[B, C, H, W] -> h[B, D]."""
    with_statistics: bool
    """Whether its BatchNorm layers get the statistics of the images."""
    images: np.ndarray
    """Training images, [n, H, W, C]."""
    device: torch.device

    @cached_property
    def pooled(self) -> nn.Module:
        """The network that computes the pooled features."""
        if not self.with_statistics:
            return self.start
        return with_data_statistics(self.start, self.images, device=self.device)

    @property
    def has_wide(self) -> bool:
        """Whether it has wide features."""
        return has_stages(self.start, self.images)

    @cached_property
    def wide(self) -> Wide | None:
        """The network with a readout fitted on some of the images; None without stages."""
        return wide_or_none(self.pooled, self.images, device=self.device)

    def models(self) -> Iterator[nn.Module]:
        """Yield the networks of the pooled and of the wide features."""
        yield self.pooled
        if self.wide is not None:
            yield self.wide


def untrained_floor(
    starts: Sequence[nn.Module], images: np.ndarray, *, device: torch.device
) -> list[Untrained]:
    """Return the networks that the floor is the best of, on training images [n, H, W, C].

    `starts` are the architecture with each usual initialization.
    """
    adapted = starts[:1] if len(images) > 1 and keeps_statistics(starts[0]) else []
    return [
        Untrained(start=start, with_statistics=with_statistics, images=images, device=device)
        for networks, with_statistics in ((starts, False), (adapted, True))
        for start in networks
    ]


def with_data_statistics(
    encoder: nn.Module, images: np.ndarray, *, device: torch.device
) -> nn.Module:
    """Return a copy of `encoder` with the mean and variance of `images` in its BatchNorm layers.

    Both are means over batches of the statistics that a layer has in training mode (Ioffe and
    Szegedy 2015, algorithm 2). Each batch is spread over all images [n, H, W, C], of which 2,000
    are used at most. Weights do not change.
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


def keeps_statistics(network: nn.Module) -> bool:
    """Return whether a network has BatchNorm layers with statistics for evaluation."""
    return bool(_layers(network))


def _layers(network: nn.Module) -> list[_BatchNorm]:
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    ]
