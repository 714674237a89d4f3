"""BYOL: predict the target network's projection of one view from the other view."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
import torch.nn.functional as F
from annotated_types import Ge, Interval
from torch import Tensor, nn

from widefield.core.batch import Positive, Rows, check_number, checked
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method, MethodConfig
from widefield.methods.projector import ProjectorConfig, projection_std
from widefield.methods.target import TargetNetwork

Directions = Literal["both", "one"]


@checked
@full_precision
def prediction_error(p: Rows, z: Rows) -> Tensor:
    """Return the squared distance of directions, predictions p [b, m] from targets z [b, m].

        loss = 1/b sum_i |p_i/|p_i| - z_i/|z_i||^2 = 1/b sum_i (2 - 2 cos(p_i, z_i)).

    No gradient flows into the target.

    Example:
        >>> import torch
        >>> float(prediction_error(torch.eye(2), 3 * torch.eye(2)))
        0.0

    Source: BYOL (Grill et al. 2020), equation 2.
    """
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=1).mean()


@dataclass(frozen=True, kw_only=True)
class BYOLConfig(MethodConfig):
    """Settings of `BYOL`."""

    name: ClassVar[str] = "byol"
    step_variants: ClassVar[dict[str, dict[str, Any]]] = {"both-directions": {"directions": "both"}}

    projector: ProjectorConfig = ProjectorConfig(layers=2)
    """The projection head."""
    predictor_width: Annotated[int, Ge(1)] = 512
    """Hidden width of the predictor."""
    ema_decay: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Share of itself that the target network keeps at a step."""
    directions: Directions = "one"
    """Predict the second view from the first, or both ways as published, at twice the cost."""

    def build(self, context: BuildContext) -> Method:
        return BYOL(context.feature_dim, self, encoder=context.encoder, steps=context.steps)


class BYOL(Method):
    """Predict from one view the target network's projection of the other.

    The paper sums the errors of both directions. The four passes share nothing, so one
    direction, as in `moco`, is half the work and has half the expected gradient where both views
    have the same distribution. docs/methods.md compares both at equal time.

    After step k of K the target network keeps 1 - (1 - ema_decay)(cos(pi k/K) + 1)/2 of itself:
    it is constant at the end.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        encoder: initial encoder of the target network, which is copied.
        steps: K, the steps of the training.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(2, 4, 1, 2, 4))
        >>> method = BYOL(8, encoder=encoder, steps=100)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: BYOL (Grill et al. 2020), section 3.
    """

    config_class = BYOLConfig
    view_count = 2
    moves_after_step = True

    def __init__(
        self,
        encoder_dim: int,
        config: BYOLConfig | None = None,
        *,
        encoder: nn.Module,
        steps: int,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        check_number("steps", Positive, steps)
        config = BYOLConfig.of(config, settings)
        self.projector = config.projector.build(encoder_dim)
        self.predictor = config.projector.build_predictor(encoder_dim, config.predictor_width)
        self.target = TargetNetwork(encoder, self.projector)
        self.ema_decay = config.ema_decay
        self.steps = steps
        self.directions = config.directions
        self.step = 0
        self._trained: tuple[nn.Module, ...] = ()  # a tuple, so that it is not a submodule

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return prediction errors, summed over directions; each view has its own statistics."""
        x1, x2 = views
        pairs = [(x1, x2), (x2, x1)] if self.directions == "both" else [(x1, x2)]
        predictions = [self.predictor(self.projector(encoder(seen))) for seen, _ in pairs]
        targets = [self.target(hidden) for _, hidden in pairs]
        errors = [prediction_error(p, t) for p, t in zip(predictions, targets, strict=True)]
        self._trained = (encoder,)
        return Loss(torch.stack(errors).sum(), {"projection_std": projection_std(targets[-1])})

    def _move(self) -> None:
        self.step += 1
        done = min(self.step / self.steps, 1)
        left = (math.cos(math.pi * done) + 1) / 2
        (encoder,) = self._trained
        self.target.update(encoder, self.projector, ema_decay=1 - (1 - self.ema_decay) * left)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the number of steps, on which the moving average depends."""
        return {"step": self.step}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the number of steps that `get_extra_state` returned, on any rank."""
        self.step = state.get("shards", [state])[0]["step"]
