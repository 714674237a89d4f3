"""alpha-CL: maximize the trace of a contrastive covariance with detached pair weights."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, get_args

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional

from widefield.core.batch import ContrastedRows, Rows, Shape, checked
from widefield.core.names import check_name
from widefield.core.precision import full_precision
from widefield.methods.infonce import half_squared_distances
from widefield.methods.pair import Compare, PairConfig, PairMethod

# Chosen by hand: e^-50 times a distance is far from the smallest float32, e^-87.
_MAX_EXPONENT = 50
"""Largest distance over the temperature of the nearest pair."""

PairImportance = Literal["quadratic", "infonce", "gaussian", "inverse"]


@checked
@full_precision
def pair_importance(
    f: Rows, f0: Rows, *, kind: PairImportance, temperature: Annotated[float, Gt(0)]
) -> Tensor:
    """Return weights alpha_ij [b, b] of the pairs of f [b, m], without gradient; alpha_ii = 0.

    With d_ij^2 = |f[i] - f[j]|^2 / 2 and t the temperature, for j != i

        quadratic   1
        infonce     exp(-d_ij^2/t) / sum_{k != i} exp(-d_ik^2/t)
        gaussian    exp(-|f0[i] - f0[j]|^2 / (2 t))
        inverse     1 / (t + d_ij^2)

    where f0 [b, m] stands for the examples without augmentation. Where all weights of `gaussian`
    would be below e^-50, they are larger by one factor, so that they do not round to 0.

    Raises:
        ValueError: `kind` is unknown.

    Example:
        >>> f = torch.eye(2)
        >>> pair_importance(f, f, kind="inverse", temperature=1.0)
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])

    Source: Tian (2022), section 2, equation 2 and Lemma 1; `inverse` is ours.
    """
    check_name("pair importance", kind, get_args(PairImportance))
    # Weights without gradient are what makes the ascent a PCA of a covariance (Tian 2022).
    f, f0 = f.detach(), f0.detach()
    distances = half_squared_distances(f0 if kind == "gaussian" else f)
    is_anchor = torch.eye(len(f), dtype=torch.bool, device=f.device)
    if kind == "quadratic":
        alpha = torch.ones_like(distances)
    elif kind == "infonce":
        alpha = torch.softmax((-distances / temperature).masked_fill(is_anchor, -torch.inf), dim=1)
    elif kind == "gaussian":
        exponents = (-distances / temperature).masked_fill(is_anchor, -torch.inf)
        alpha = torch.exp(exponents - (exponents.max() + _MAX_EXPONENT).clamp_max(0))
    else:
        alpha = 1 / (temperature + distances)
    return alpha.masked_fill(is_anchor, 0)


@checked
@full_precision
def alpha_cl(
    f: ContrastedRows, f2: ContrastedRows, alpha: Annotated[Tensor, Shape("b b")]
) -> Tensor:
    """Return -E_alpha of anchors f [b, m] with other views f2 [b, m], over the mean alpha.

    With d_ij^2 = |f[i] - f[j]|^2 / 2, d_i^2 = |f[i] - f2[i]|^2 / 2 and alpha [b, b] constant,

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
    positive = (f - f2).square().sum(1, keepdim=True) / 2
    return -(alpha * (half_squared_distances(f) - positive)).sum() / alpha.sum()


@checked
@full_precision
def symmetric_alpha_cl(
    z1: ContrastedRows,
    z2: ContrastedRows,
    *,
    kind: PairImportance,
    temperature: Annotated[float, Gt(0)],
) -> Tensor:
    """Return the mean of `alpha_cl` over both choices of the anchor, of z [b, m] scaled to norm 1.

    The paper's Gaussian importance compares examples without augmentation. Only their views are
    here, so the mean of an example's two projections stands for it.

    Example:
        >>> z1, z2 = torch.eye(4), torch.eye(4).roll(1, 0)
        >>> loss = symmetric_alpha_cl(z1, z2, kind="infonce", temperature=0.5)
        >>> torch.equal(loss, symmetric_alpha_cl(z2, z1, kind="infonce", temperature=0.5))
        True

    Source: Tian (2022), section 2.
    """
    f1, f2 = functional.normalize(z1, dim=1), functional.normalize(z2, dim=1)
    importance = partial(pair_importance, f0=(f1 + f2) / 2, kind=kind, temperature=temperature)
    return (alpha_cl(f1, f2, importance(f1)) + alpha_cl(f2, f1, importance(f2))) / 2


@dataclass(frozen=True, kw_only=True)
class AlphaCLConfig(PairConfig):
    """Settings of `AlphaCL`."""

    name: ClassVar[str] = "alpha-cl"

    temperature: Annotated[float, Gt(0)] = 0.1
    """Temperature of the pair importance."""
    pair_importance: PairImportance = "infonce"
    """How much each pair of examples counts."""

    def pair_loss(self) -> Compare:
        return partial(symmetric_alpha_cl, kind=self.pair_importance, temperature=self.temperature)


class AlphaCL(PairMethod[AlphaCLConfig]):
    """alpha-CL on the unit sphere, each view the anchor in turn.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> method = AlphaCL(8, pair_importance="quadratic")
        >>> method(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: Tian (2022), section 2.
    """

    config_class = AlphaCLConfig
