"""SimCLR: contrast two views of one example with the views of the other examples."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor

from widefield.core.batch import Rows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod


@checked
@full_precision
def nt_xent(z1: Rows, z2: Rows, *, temperature: Annotated[float, Gt(0)]) -> Tensor:
    """Return the temperature-scaled cross-entropy of two views' normalized projections, [b, m].

    With the 2b rows z normalized, s_ij = z_i . z_j / temperature and p(i) the other view of i,

        loss = 1/(2b) sum_i ( -s_{i p(i)} + log sum_{j != i} exp s_ij ).

    The standard form: both views are anchors, self-similarity is left out.

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> bool(nt_xent(z, z, temperature=0.1) < nt_xent(z, z.roll(1, 0), temperature=0.1))
        True

    Source: SimCLR (Chen et al. 2020), equation 1.
    """
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))  # [2b, 2b]; exp of it is 0 in the sum
    positive = torch.arange(len(z), device=z.device).roll(len(z1))
    return F.cross_entropy(similarity, positive)


@checked
@full_precision
def one_sided(z1: Rows, z2: Rows, *, temperature: Annotated[float, Gt(0)]) -> Tensor:
    """Return the cross-entropy of finding the second view of each first one, each [b, m].

    With the 2b rows z normalized, s_ij = z_i . z_j / temperature and p(i) the other view of i,

        loss = 1/b sum_{i <= b} ( -s_{i p(i)} + log sum_j exp s_ij ).

    Unlike `nt_xent`, first views alone are anchors, and one's similarity to itself is in the sum.

    Example:
        >>> import torch
        >>> z = torch.eye(2)
        >>> print(f"{one_sided(z, z, temperature=0.1):.3f}")  # itself and its positive
        0.693

    Source: Feature Dropout (Tamkin et al. 2022), the authors' code.
    """
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    anchors = len(z1)
    positive = torch.arange(anchors, device=z.device) + anchors
    return F.cross_entropy(z[:anchors] @ z.T / temperature, positive)


LOSSES = {"nt-xent": nt_xent, "one-sided": one_sided}


@dataclass(frozen=True, kw_only=True)
class SimCLRConfig(PairConfig):
    """Settings of `SimCLR`."""

    name: ClassVar[str] = "simclr"

    # 0.02 has a higher class accuracy and a lower digit accuracy (studies/results/
    # rate-simclr.cpu.json).
    lr: Annotated[float, Gt(0)] = 6e-3
    temperature: Annotated[float, Gt(0)] = 0.1
    """Temperature of the softmax."""
    loss: Literal["nt-xent", "one-sided"] = "nt-xent"
    """The standard loss, or the one-sided one of Feature Dropout's code."""

    def pair_loss(self) -> Compare:
        return partial(LOSSES[self.loss], temperature=self.temperature)


class SimCLR(PairMethod[SimCLRConfig]):
    """NT-Xent on the projections of two views.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(2, 4, 1, 2, 4))
        >>> method = SimCLR(8, temperature=0.2)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: SimCLR (Chen et al. 2020).
    """

    config_class = SimCLRConfig
