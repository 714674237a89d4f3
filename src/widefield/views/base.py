"""The contract of every view policy."""

from abc import ABC, abstractmethod

from torch import Generator, Tensor, nn


class Views(nn.Module, ABC):
    """Draws views of a batch of images; a policy with parameters of its own is a second player.

    Views see images in [0, 1] and return images in that space: normalisation belongs to the
    encoder, so that views, attacks and pictures share one space.
    """

    @abstractmethod
    def forward(self, x: Tensor, count: int, generator: Generator | None = None) -> list[Tensor]:
        """Draw `count` views of `x` [B, C, H, W] jointly; `generator` lives on x's device."""
