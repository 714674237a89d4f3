"""The projection head: trained beside the encoder, dropped afterwards."""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.methods.precision import at_least_float32
from widefield.recipe import Recipe


def projector(
    in_dim: int, *, layers: int, width: int, out_dim: int, batch_norm: bool
) -> nn.Sequential:
    """MLP [B, in_dim] -> [B, out_dim] with ReLU between its `layers` linear layers.

    `batch_norm` normalises each hidden layer before its ReLU, as SimCLR's public code does; the
    S-DIET paper has none. Embeddings are taken before this head: what it makes invariant is lost
    to the loss, not to the user.

    Example:
        >>> len(projector(128, layers=3, width=512, out_dim=64, batch_norm=False))
        5

    Source: S-DIET (2025), section 5.2; SimCLR (Chen et al. 2020), section 4.2.
    """
    widths = [in_dim, *[width] * (layers - 1)]
    modules: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        modules.append(nn.Linear(a, b, bias=not batch_norm))
        if batch_norm:
            modules.append(nn.BatchNorm1d(b))
        modules.append(nn.ReLU(inplace=True))
    return nn.Sequential(*modules, nn.Linear(widths[-1], out_dim))


def recipe_projector(recipe: Recipe, feature_dim: int) -> nn.Sequential:
    """The projection head that a recipe asks for."""
    return projector(
        feature_dim,
        layers=recipe.projector_layers,
        width=recipe.projector_width,
        out_dim=recipe.projector_dim,
        batch_norm=recipe.projector_batch_norm,
    )


def recipe_predictor(recipe: Recipe) -> nn.Sequential:
    """The two-layer predictor that a recipe asks for, [B, m] -> [B, m].

    Source: BYOL (Grill et al. 2020), section 3.3; SimSiam (Chen & He 2021), section 3.
    """
    return projector(
        recipe.projector_dim,
        layers=2,
        width=recipe.predictor_width,
        out_dim=recipe.projector_dim,
        batch_norm=recipe.projector_batch_norm,
    )


@torch.no_grad()
def projection_std(z: Tensor) -> Tensor:
    """Spread of the directions of projections z [B, m]: 1 for spread out, 0 for all the same.

    Mean over dimensions of the deviation of z / |z| over the batch, times sqrt(m). A projector can
    collapse while the features before it have not, so the log of a loss that allows it says so.

    Example:
        >>> float(projection_std(torch.ones(8, 4)))
        0.0

    Source: SimSiam (Chen & He 2021), section 4.1.
    """
    unit = functional.normalize(at_least_float32(z), dim=1)
    spread: Tensor = unit.std(0, correction=0).mean() * z.shape[1] ** 0.5
    return spread
