"""MMCR: maximize the nuclear norm of the mean projections of each example's views."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from widefield.core.batch import ContrastedRows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod
from widefield.methods.projector import ProjectorConfig


@checked
@full_precision
def mmcr(
    z1: ContrastedRows, z2: ContrastedRows, *, local_weight: Annotated[float, Ge(0)]
) -> Tensor:
    """Return minus the nuclear norm of the means of two views' normalized projections, [b, m] each.

    With the rows z normalized, C [b, m] of rows c_i = (z1_i + z2_i) / 2, and |A|_* the sum of the
    singular values of A,

        loss = -|C|_* + local_weight 1/b sum_i |(z1_i, z2_i)|_*.

    |C|_* is largest where the views of an example agree, so that c_i has norm 1, and means of
    different examples are orthogonal. It makes the second term small by itself: the authors train
    with `local_weight` 0.

    Example:
        >>> z = torch.eye(4)
        >>> float(mmcr(z, z, local_weight=0.0))
        -4.0

    Source: MMCR (Yerxa et al. 2023).
    """
    z = torch.stack([F.normalize(z1, dim=1), F.normalize(z2, dim=1)], dim=1)  # [b, 2, m]
    loss = -torch.linalg.matrix_norm(z.mean(1), ord="nuc")
    if local_weight > 0:  # a singular value decomposition for each example is slow
        loss = loss + local_weight * torch.linalg.matrix_norm(z, ord="nuc").mean()
    return loss


@dataclass(frozen=True, kw_only=True)
class MMCRConfig(PairConfig):
    """Settings of `MMCR`."""

    name: ClassVar[str] = "mmcr"

    projector: ProjectorConfig = ProjectorConfig(dim=512)
    local_weight: Annotated[float, Ge(0)] = 0.0
    """Weight of the nuclear norm of each example's two views; the paper's lambda."""

    def pair_loss(self) -> Compare:
        return partial(mmcr, local_weight=self.local_weight)


class MMCR(PairMethod[MMCRConfig]):
    """Maximum manifold capacity: the nuclear norm of the means of two views' projections.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> MMCR(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: MMCR (Yerxa et al. 2023).
    """

    config_class = MMCRConfig
