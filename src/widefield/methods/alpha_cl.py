"""alpha-CL: ascend the trace of a contrastive covariance whose pair weights are held still."""

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.infonce import half_squared_distances
from widefield.methods.precision import at_least_float32, full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import PairImportance, Recipe
from widefield.types import Loss


@full_precision
def pair_importance(f: Tensor, f0: Tensor, *, kind: PairImportance, temperature: float) -> Tensor:
    """Weights alpha_ij [b, b] of the pairs of f [b, m], without gradient; alpha_ii = 0.

    With d_ij^2 = |f[i] - f[j]|^2 / 2 and t the temperature, for j != i

        quadratic   1
        infonce     exp(-d_ij^2/t) / sum_{k != i} exp(-d_ik^2/t)
        gaussian    exp(-|f0[i] - f0[j]|^2 / (2 t))
        inverse     1 / (t + d_ij^2)

    where f0 [b, m] stands for the examples without augmentation.

    Example:
        >>> f = torch.eye(2)
        >>> pair_importance(f, f, kind="inverse", temperature=1.0)
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])

    Source: Tian (2022), equation 2, section 2.1 and Lemma 1; `inverse` is ours.
    """
    f, f0 = f.detach(), f0.detach()
    distances = half_squared_distances(f0 if kind == "gaussian" else f)
    itself = torch.eye(len(f), dtype=torch.bool, device=f.device)
    if kind == "quadratic":
        alpha = torch.ones_like(distances)
    elif kind == "infonce":
        alpha = torch.softmax((-distances / temperature).masked_fill(itself, -torch.inf), dim=1)
    elif kind == "gaussian":
        alpha = torch.exp(-distances / temperature)
    else:
        alpha = 1 / (temperature + distances)
    return alpha.masked_fill(itself, 0)


@full_precision
def alpha_cl(f: Tensor, f2: Tensor, alpha: Tensor) -> Tensor:
    """Minus the energy E_alpha of anchors f [b, m] with other views f2 [b, m], over mean alpha.

    With d_ij^2 = |f[i] - f[j]|^2 / 2, d_i^2 = |f[i] - f2[i]|^2 / 2 and alpha [b, b] held still,

        E_alpha = tr C_alpha[f] = 1/b^2 sum_ij alpha_ij (d_ij^2 - d_i^2),
        loss = -E_alpha b^2 / sum_ij alpha_ij.

    The paper ascends E_alpha itself. Divided by the mean importance, the loss does not depend on
    the scale of alpha, and with InfoNCE's importance its gradient is that of `infonce` with
    eps = 0.

    Example:
        >>> f = torch.eye(2)
        >>> float(alpha_cl(f, f, torch.ones(2, 2) - torch.eye(2)))
        -1.0

    Source: Tian (2022), equations 2 and 3.
    """
    own = (f - f2).square().sum(1, keepdim=True) / 2
    return -(alpha * (half_squared_distances(f) - own)).sum() / alpha.sum()


class AlphaCl(Method):
    """alpha-CL on the unit sphere, each view the anchor in turn.

    The paper's Gaussian importance compares examples without augmentation. A method sees their
    views alone, so the mean of an example's two projections stands for it.

    Args:
        projector: maps h [B, D] to [B, m].
        kind: how much each pair counts, see `pair_importance`.
        temperature: of the importance.
        gather: in several processes, tell the examples of all their batches apart.

    Source: Tian (2022), section 2.
    """

    view_count = 2

    def __init__(
        self,
        *,
        projector: nn.Module,
        kind: PairImportance,
        temperature: float,
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.projector = projector
        self.kind: PairImportance = kind
        self.temperature = temperature
        self.gather = gather

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        head = recipe_projector(recipe, facts.feature_dim)
        return cls(
            projector=head,
            kind=recipe.pair_importance,
            temperature=recipe.temperature,
            gather=recipe.gather,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Mean over both choices of the anchor; both views share one pass and its statistics."""
        z = self.projector(encoder(torch.cat(views)))
        f, f2 = functional.normalize(at_least_float32(z), dim=1).chunk(2)
        if self.gather:
            f, f2 = gather(f), gather(f2)
        middle = (f + f2) / 2
        totals = [
            alpha_cl(
                anchor,
                other,
                pair_importance(anchor, middle, kind=self.kind, temperature=self.temperature),
            )
            for anchor, other in ((f, f2), (f2, f))
        ]
        return Loss((totals[0] + totals[1]) / 2)
