"""An encoder whose features are those after the projection head."""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class Projected(nn.Module):
    """An encoder with its projection head: x[B, C, H, W] -> z[B, m], the input of the loss.

    Example:
        >>> import torch
        >>> Projected(nn.Flatten(), nn.Linear(12, 5))(torch.rand(2, 3, 2, 2)).shape
        torch.Size([2, 5])

    Source: S-DIET (2025), table 4 and figure 1c.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Call `forward`, with its types."""
            ...

    def forward(self, x: Tensor) -> Tensor:
        """Return the projections of images x[B, C, H, W], one row for each image."""
        projections: Tensor = self.projector(self.encoder(x))
        return projections
