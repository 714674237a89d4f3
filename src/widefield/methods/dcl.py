"""DCL: SimCLR without the positive pair in the denominator."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor

from widefield.core.batch import ContrastedRows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod


@checked
@full_precision
def dcl(z1: ContrastedRows, z2: ContrastedRows, *, temperature: Annotated[float, Gt(0)]) -> Tensor:
    """Return the decoupled contrastive loss of two views' projections, each [b, m].

    With the 2b rows z normalized, s_ij = z_i . z_j / temperature and p(i) the other view of i,

        loss = 1/(2b) sum_i ( -s_{i p(i)} + log sum_{j not in {i, p(i)}} exp s_ij ).

    NT-Xent has the positive pair in the sum as well. There, a pair that is already alike scales
    the whole gradient down, the more so the smaller the batch; here it does not.

    Example:
        >>> z = torch.eye(4)
        >>> bool(dcl(z, z, temperature=0.1) < dcl(z, z.roll(1, 0), temperature=0.1))
        True

    Source: Decoupled contrastive learning (Yeh et al. 2022).
    """
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T / temperature
    row = torch.arange(len(z), device=z.device)
    positive = row.roll(len(z1))
    positives = similarity[row, positive]
    same_example = (row[:, None] == row) | (positive[:, None] == row)
    negatives = similarity.masked_fill(same_example, float("-inf"))
    return (negatives.logsumexp(1) - positives).mean()


@dataclass(frozen=True, kw_only=True)
class DCLConfig(PairConfig):
    """Settings of `DCL`."""

    name: ClassVar[str] = "dcl"

    temperature: Annotated[float, Gt(0)] = 0.1
    """Temperature of the softmax."""

    def pair_loss(self) -> Compare:
        return partial(dcl, temperature=self.temperature)


class DCL(PairMethod[DCLConfig]):
    """SimCLR without the positive pair among the negatives.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> DCL(8, temperature=0.2)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: Decoupled contrastive learning (Yeh et al. 2022).
    """

    config_class = DCLConfig
