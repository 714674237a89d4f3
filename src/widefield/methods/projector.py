"""The projection head: trained beside the encoder, dropped afterwards."""

import itertools
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.precision import at_least_float32
from widefield.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ProjectorSettings(Settings):
    """Shape of the projection head."""

    layers: Annotated[int, Ge(1)] = 3
    """Linear layers of the projection head."""
    width: Annotated[int, Ge(1)] = 512
    """Hidden width of the projection head."""
    dim: Annotated[int, Ge(1)] = 128
    """Output width of the projection head, and of a row of the per-example head."""
    batch_norm: bool = True
    """Normalise the projection head's hidden layers over the batch."""

    def build(self, feature_dim: int) -> nn.Sequential:
        """Build the head for features of width `feature_dim`."""
        return projector(
            feature_dim,
            layers=self.layers,
            width=self.width,
            out_dim=self.dim,
            batch_norm=self.batch_norm,
        )

    def build_predictor(self, width: int) -> nn.Sequential:
        """Build a two-layer predictor of hidden width `width`, [B, m] -> [B, m].

        Source: BYOL (Grill et al. 2020), section 3.3; SimSiam (Chen & He 2021), section 3.
        """
        return projector(
            self.dim, layers=2, width=width, out_dim=self.dim, batch_norm=self.batch_norm
        )


def projector(
    in_dim: int, *, layers: int, width: int, out_dim: int, batch_norm: bool
) -> nn.Sequential:
    """Build an MLP [B, in_dim] -> [B, out_dim] with ReLU between its `layers` linear layers.

    `batch_norm` normalises each hidden layer before its ReLU, as SimCLR's public code does; the
    S-DIET paper has none. Embeddings are taken before this head: what it makes invariant is lost
    to the loss, not to the user.

    Example:
        >>> len(projector(128, layers=3, width=512, out_dim=64, batch_norm=False))
        5

    Source: S-DIET (2025), section 5.1.2; SimCLR (Chen et al. 2020), section 4.2.
    """
    widths = [in_dim, *[width] * (layers - 1)]
    modules: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        modules.append(nn.Linear(a, b, bias=not batch_norm))
        if batch_norm:
            modules.append(nn.BatchNorm1d(b))
        modules.append(nn.ReLU(inplace=True))
    return nn.Sequential(*modules, nn.Linear(widths[-1], out_dim))


@torch.no_grad()
def projection_std(z: Tensor) -> Tensor:
    """Return the spread of the directions of z [B, m]: 1 for spread out, 0 for all the same.

    Mean over dimensions of the deviation of z / |z| over the batch, times sqrt(m). A projector can
    collapse while the features before it have not, so the log of a loss that allows it says so.

    Example:
        >>> float(projection_std(torch.ones(8, 4)))
        0.0

    Source: SimSiam (Chen & He 2021), section 4.1.
    """
    unit = functional.normalize(at_least_float32(z), dim=1)
    return unit.std(0, correction=0).mean() * z.shape[1] ** 0.5
