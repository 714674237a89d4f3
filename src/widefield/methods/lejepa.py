"""LeJEPA: views of one example agree, and embeddings follow an isotropic Gaussian."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Unpack

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor, nn

from widefield.core.batch import Rows, Shape, checked
from widefield.core.gather import gather
from widefield.core.hardware import check_memory
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import ProjectionConfig
from widefield.methods.projector import ProjectorConfig

# As published.
LAST_FREQUENCY, FREQUENCIES = 5.0, 9
"""The test compares characteristic functions at 17 points of [-5, 5]; by symmetry 9 are enough."""


UnitDirections = Annotated[Tensor, Shape("m k")]
"""Floats [m, k]: directions in the space of the rows."""


@checked
@full_precision
def sigreg(z: Rows, directions: UnitDirections) -> Tensor:
    """Return how far z [b, m] is from an isotropic Gaussian, along unit `directions` [m, k].

    The Epps-Pulley statistic of each projection x = z . a_l, averaged over the k directions:

        1/k sum_l b integral |1/b sum_i exp(i t x_i) - exp(-t^2/2)|^2 exp(-t^2/2) dt,

    by the trapezoidal rule on 17 points of [-5, 5]. It grows with b wherever z is not Gaussian.

    Example:
        >>> normal = torch.randn(512, 2, generator=torch.Generator().manual_seed(0))
        >>> bool(sigreg(normal, torch.eye(2)) < sigreg(normal + 1, torch.eye(2)))
        True

    Source: LeJEPA (Balestriero & LeCun 2025), SIGReg; the test is Epps & Pulley's.
    """
    t = torch.linspace(0, LAST_FREQUENCY, FREQUENCIES, dtype=z.dtype, device=z.device)
    gaussian = (-t.square() / 2).exp()
    angles = (z @ directions.to(z.dtype))[..., None] * t  # [b, k, t]
    real, imaginary = angles.cos().mean(0), angles.sin().mean(0)
    distance = (real - gaussian).square() + imaginary.square()
    # The integrand is even: twice its integral from 0.
    return len(z) * 2 * torch.trapezoid(distance * gaussian, t, dim=1).mean()


@checked
@full_precision
def lejepa(
    z1: Rows,
    z2: Rows,
    directions: UnitDirections,
    *,
    sigreg_weight: Annotated[float, Interval(ge=0, le=1)],
) -> Tensor:
    """Return LeJEPA's loss of two views' projections [b, m], with unit `directions` [m, k].

        loss = (1 - sigreg_weight) 1/(2 b m) sum_v sum_i |z^v_i - (z^1_i + z^2_i)/2|^2
             + sigreg_weight (sigreg(z^1) + sigreg(z^2)) / 2.

    Both views are global ones here: the paper's smaller local views are left out.

    Example:
        >>> z = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
        >>> agree, differ = (
        ...     lejepa(z, other, torch.eye(2), sigreg_weight=0.05) for other in (z, z.roll(1, 0))
        ... )
        >>> bool(agree < differ)
        True

    Source: LeJEPA (Balestriero & LeCun 2025).
    """
    middle = (z1 + z2) / 2
    invariance = (F.mse_loss(z1, middle) + F.mse_loss(z2, middle)) / 2
    regularization = (sigreg(z1, directions) + sigreg(z2, directions)) / 2
    return (1 - sigreg_weight) * invariance + sigreg_weight * regularization


@dataclass(frozen=True, kw_only=True)
class LeJEPAConfig(ProjectionConfig):
    """Settings of `LeJEPA`."""

    name: ClassVar[str] = "lejepa"

    # 0.02 has a higher class accuracy and a lower digit accuracy (studies/results/
    # rate-lejepa.cpu.json).
    lr: Annotated[float, Gt(0)] = 6e-3
    projector: ProjectorConfig = ProjectorConfig()
    sigreg_weight: Annotated[float, Interval(gt=0, lt=1)] = 0.05
    """Weight of the distance from a Gaussian; the paper's lambda."""
    slices: Annotated[int, Ge(1)] = 256
    """Number of random directions a step."""

    def build(self, context: BuildContext) -> Method:
        return LeJEPA(context.feature_dim, self, generator=context.generator)


class LeJEPA(Method):
    """LeJEPA's loss on the projections of two views, along random directions.

    The directions are a buffer, sampled again after each step: two losses of one step are equal,
    and all processes use those of the first.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        generator: draws the directions; by default torch's global generator.
        **settings: single settings to replace, by name.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> LeJEPA(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: LeJEPA (Balestriero & LeCun 2025).
    """

    config_class = LeJEPAConfig
    view_count = 2
    moves_after_step = True
    directions: Tensor

    def __init__(
        self,
        encoder_dim: int,
        config: LeJEPAConfig | None = None,
        *,
        generator: Generator | None = None,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        config = LeJEPAConfig.of(config, settings)
        dim, slices = config.projector.out_dim(encoder_dim), config.slices
        self.projector = config.projector.build(encoder_dim)
        check_memory(4 * dim * slices, f"slices {slices} of {dim} numbers each")
        self.sigreg_weight = config.sigreg_weight
        self.generator = generator
        self.gather_distributed = config.gather_distributed
        device = None if generator is None else generator.device
        self.register_buffer("directions", torch.zeros(dim, slices, device=device))
        self._move()

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of the two views, which share one pass."""
        z1, z2 = self.projector(encoder(torch.cat(views))).chunk(2)
        if self.gather_distributed:
            z1, z2 = gather(z1), gather(z2)
        return Loss(lejepa(z1, z2, self.directions, sigreg_weight=self.sigreg_weight))

    def _move(self) -> None:
        """Draw the directions of the next step, uniform on the sphere."""
        shape, device = self.directions.shape, self.directions.device
        sample = torch.randn(shape, generator=self.generator, device=device)
        self.directions.copy_(F.normalize(sample, dim=0))
