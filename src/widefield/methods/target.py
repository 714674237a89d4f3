"""The target network: an exponential moving average of the trained one, without gradient."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn


class TargetNetwork(nn.Module):
    """Moving average of encoder and projector: x[B, C, H, W] -> z[B, m] without gradient.

    Its weights are an exponential moving average of the trained ones; its batch normalization has
    its own statistics. It is part of the state dict of the method.

    Source: MoCo (He et al. 2020), equation 2; BYOL (Grill et al. 2020), equation 1.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        # Copies of networks in evaluation mode would keep the statistics of the start.
        self.encoder = copy.deepcopy(encoder).requires_grad_(False).train()
        self.projector = copy.deepcopy(projector).requires_grad_(False).train()
        self._seen = (self.encoder,)  # a tuple, so that the state dict has the weights once

    def encode_by(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        """Encode images by `wrap(encoder)`, such as in micro-batches."""
        self._seen = (wrap(self.encoder),)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return projections [B, m] of images [B, C, H, W]."""
        (encoder,) = self._seen
        return self.projector(encoder(x))

    @torch.no_grad()
    def update(self, encoder: nn.Module, projector: nn.Module, *, ema_decay: float) -> None:
        """Set theta <- ema_decay theta + (1 - ema_decay) theta of the trained networks."""
        trained = (*encoder.parameters(), *projector.parameters())
        for average, weight in zip(self.parameters(), trained, strict=True):
            average.lerp_(weight, 1 - ema_decay)


def target_networks(module: nn.Module) -> list[TargetNetwork]:
    """Return the target networks inside `module`.

    Example:
        >>> from widefield.methods import BYOL
        >>> len(target_networks(BYOL(8, encoder=nn.Flatten(), steps=100)))
        1
    """
    return [part for part in module.modules() if isinstance(part, TargetNetwork)]
