"""Which views, with a decoder beside the loss or not, keep class and digit in the features?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from studies.equal_time import data
from studies.study import TINY, Arm, Measured, Scale, cpu_study
from studies.trained import Trained, probes
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.methods.view_contrast import ViewContrast, ViewContrastConfig

SIDE = 16


class Decoder(nn.Module):
    """A linear map from features to a small gray copy of their own view.

    With LN(h) the features of views x [b, C, H, W], each row with mean 0 and variance 1, and g(x)
    the mean over channels, averaged over a grid of 16 x 16 positions,

        t = (g(x) - mean_i g(x_i)) / s,         s the deviation of g(x) over examples and positions
        error = 1/(256 b) sum_i |W LN(h_i) + c - t_i|^2.
    """

    def __init__(self, encoder_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(encoder_dim, SIDE**2)

    @full_precision
    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the error for features h [b, D] of views x [b, C, H, W]."""
        gray = functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), SIDE).flatten(1)
        target = (gray - gray.mean(0)) / gray.std(correction=0)
        return functional.mse_loss(self.linear(functional.layer_norm(h, h.shape[1:])), target)


class Decoded(ViewContrast):
    """view-contrast, plus the error of a decoder of the first view."""

    def __init__(self, encoder_dim: int, config: "DecodedConfig", **data: Any) -> None:
        super().__init__(encoder_dim, config, **data)
        self.decoder = Decoder(encoder_dim)
        self.decoder_weight = config.decoder_weight

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss and the error, for which each view is encoded once."""
        h = encoder(views[0])
        with torch.no_grad():
            second = encoder(views[1])
        loss = super()._loss(lambda x: h if x is views[0] else second, views, index)
        error = self.decoder(h, views[0])
        total = loss.total + self.decoder_weight * error
        return Loss(total, loss.parts | {"decoder_error": error.detach()})


@dataclass(frozen=True, kw_only=True)
class DecodedConfig(ViewContrastConfig):
    """Settings of `Decoded`."""

    name: ClassVar[str] = "view-contrast+decoder"
    method_class = Decoded  # type: ignore[assignment]

    decoder_weight: Annotated[float, Ge(0)] = 10.0
    """Weight of the decoder's error."""


def kept(trained: Trained) -> Measured:
    """Return pooled and wide accuracies on further images of the training file, in percent."""
    return probes(trained, trained.choice_sets())


def _view_arms() -> Iterator[tuple[str, Arm]]:
    """Yield views by crops, from `expert` (8 to 100 % of the area, mirrored) to `gentle`."""
    digits, plain = data("+digits"), data("plain")
    for views in ("expert", "moderate+flip", "moderate", "gentle"):
        for plant in (digits, plain):
            arm = Arm(data=plant, settings={"method": "view-contrast", "views": views}, images=5000)
            yield f"{views}, 5,000 images @ {'plain' if plant == plain else '+digits'}", arm
        if views in ("expert", "moderate"):
            settings: dict[str, Any] = {"method": DecodedConfig(), "views": views}
            arm = Arm(data=digits, settings=settings, images=5000)
            yield f"{views}, decoder, 5,000 images @ +digits", arm
            settings = {"method": "view-contrast", "views": views}
            yield (
                f"{views}, 45,000 images @ plain",
                Arm(data=plain, settings=settings, epochs=4 / 18),
            )


VIEWS_STUDY = cpu_study(
    id="views",
    question="Which views, and a linear decoder beside the loss or not, keep class and digit?",
    tiny=replace(TINY, arms=2),
    cpu=Scale(images=45_000, epochs=18, minutes=60, probed=5000),
    arms=dict(_view_arms()),
    measure=kept,
    conclusion=(
        "moderate keeps more of the digit than expert, and its class accuracy is not lower. The "
        "decoder, a linear map from the features to a small gray copy of their view, gives back "
        "as much of the digit and costs a point or more of the class. The default remains expert: "
        "the other methods were measured with it only."
    ),
)

STUDIES = [VIEWS_STUDY]
