"""A second network that follows the trained one, and that no gradient reaches."""

import copy

import torch
from torch import Tensor, nn


class Teacher(nn.Module):
    """Encoder and projector as they were, averaged over the steps: h -> z without gradient.

    Its weights are an exponential moving average of the trained ones; its batch normalisation
    uses statistics of its own. It travels in the checkpoint with the method that holds it.

    Example:
        >>> encoder, projector = nn.Linear(3, 2), nn.Linear(2, 2)
        >>> teacher = Teacher(encoder, projector)
        >>> _ = nn.init.zeros_(projector.bias)
        >>> teacher.follow(encoder, projector, momentum=0.0)
        >>> x = torch.rand(4, 3)
        >>> torch.equal(teacher(x), projector(encoder(x)))
        True

    Source: MoCo (He et al. 2020), equation 2; BYOL (Grill et al. 2020), equation 1.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.projector = copy.deepcopy(projector).requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Projections [B, m] of images [B, C, H, W]."""
        z: Tensor = self.projector(self.encoder(x))
        return z

    @torch.no_grad()
    def follow(self, encoder: nn.Module, projector: nn.Module, *, momentum: float) -> None:
        """theta <- momentum theta + (1 - momentum) theta of the trained networks."""
        trained = (*encoder.parameters(), *projector.parameters())
        for own, theirs in zip(self.parameters(), trained, strict=True):
            own.lerp_(theirs, 1 - momentum)
