"""SimSiam: predict one view's projection from the other's, with a stop-gradient on the target."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Unpack

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from widefield.core.batch import Rows, checked
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import Method, MethodConfig
from widefield.methods.projector import ProjectorConfig, projection_std


@checked
@full_precision
def negative_cosine(p: Rows, z: Rows) -> Tensor:
    """Return -1/b sum_i cos(p_i, z_i) of predictions p [b, m] and targets z [b, m].

    Example:
        >>> import torch
        >>> float(negative_cosine(torch.eye(2), 3 * torch.eye(2)))
        -1.0

    Source: SimSiam (Chen & He 2021), equation 1.
    """
    return -F.cosine_similarity(p, z, dim=1).mean()


@dataclass(frozen=True, kw_only=True)
class SimSiamConfig(MethodConfig):
    """Settings of `SimSiam`."""

    name: ClassVar[str] = "simsiam"

    projector: ProjectorConfig = ProjectorConfig(dim=512)
    """The projection head."""
    predictor_width: Annotated[int, Ge(1)] = 128
    """Hidden width of the predictor."""


class SimSiam(Method):
    """Mean of the negative cosines of both directions: the minimum -1 is also that of collapse.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        stop_gradient: detach the targets; False shows the collapse that this prevents.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> views = list(torch.rand(2, 4, 8))
        >>> SimSiam(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: SimSiam (Chen & He 2021), equations 2 to 4; section 4.1 without the stop-gradient.
    """

    config_class = SimSiamConfig
    view_count = 2

    def __init__(
        self,
        encoder_dim: int,
        config: SimSiamConfig | None = None,
        *,
        stop_gradient: bool = True,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        config = SimSiamConfig.of(config, settings)
        self.projector = config.projector.build(encoder_dim)
        self.predictor = config.projector.build_predictor(encoder_dim, config.predictor_width)
        self.stop_gradient = stop_gradient

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the mean of both directions; each view has its own statistics, as published."""
        z1, z2 = (self.projector(encoder(view)) for view in views)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        if self.stop_gradient:
            # Without it all features become one (SimSiam, section 4.1; tests/conformance/
            # test_collapse.py).
            z1, z2 = z1.detach(), z2.detach()
        total = (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2
        return Loss(total, {"projection_std": projection_std(z1)})
