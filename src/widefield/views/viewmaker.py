"""Viewmaker: a network trained as an adversary of the encoder perturbs images within a budget."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Generator, Tensor, nn

from widefield.core.batch import Positive, check_examples, checked
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.policy import PolicySettings

ConstraintSet = Literal["sphere", "ball"]

_SMALLEST_SIDE = 5
"""Reflection padding of a 9 x 9 convolution needs more than 4 pixels."""


class Viewmaker(Augmentation):
    """Views x + delta, where delta is the output of a network with an L1 budget.

    Let d = tanh(net(x, noise)) and |d| its mean absolute value over an image's numbers. Then

        sphere:  delta = budget d / |d|                  on the sphere, as published
        ball:    delta = d min(1, budget / |d|)          inside the sphere.

    The network minimizes minus the encoder's loss: `widefield.train.step` takes its steps.

    Args:
        channels: C of the images.
        budget: mean absolute value of delta, in units of the images' range.
        shape: set that delta lies in, `sphere` or `ball`.
        clamp: whether to clamp views to [0, 1].
        lr: learning rate of the network (Adam, constant).
        slack: number added to |d|; 1e-4 as published, with which delta is below its budget.
        exclude_object: whether delta is 0 inside the mask of the planted object. The rest of delta
            is not scaled up.

    Raises:
        ValueError: images smaller than 5 pixels a side.

    Example:
        >>> views = Viewmaker(channels=3, budget=0.05, shape="sphere", clamp=True, lr=1e-3)
        >>> x = torch.full((2, 3, 16, 20), 0.5)
        >>> first, second = views(x, 2, torch.Generator().manual_seed(0))
        >>> print(f"{(first - x).abs().mean().item():.3f}")
        0.050

    Source: Feature Dropout (Tamkin et al. 2022), section 3 and appendix C.1 (`exclude_object`).
    """

    @checked
    def __init__(
        self,
        *,
        channels: Positive,
        budget: Annotated[float, Ge(0)],
        shape: ConstraintSet,
        clamp: bool,
        lr: Annotated[float, Gt(0)],
        slack: Annotated[float, Ge(0)] = 0.0,
        exclude_object: bool = False,
    ) -> None:
        super().__init__()
        self.net = ViewmakerNet(channels)
        self.budget, self.shape, self.slack = budget, shape, slack
        self.clamp = clamp
        self.lr = lr
        self.needs_mask = exclude_object
        if not clamp:
            self.value_range = (-torch.inf, torch.inf)

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Perturb each of `views` [B, C, H, W]; each has its own noise."""
        x = torch.cat(views)
        y = self.net(x.to(next(self.net.parameters()).dtype), generator)
        delta = self.on_budget(y.float().tanh()).to(x.dtype)
        if self.needs_mask:
            assert context.mask is not None
            delta = torch.where(context.mask.repeat(len(views), 1, 1, 1), 0, delta)
        perturbed = (x + delta).clamp(0, 1) if self.clamp else x + delta
        return list(perturbed.chunk(len(views)))

    def on_budget(self, d: Tensor) -> Tensor:
        """Scale each image's change `d` [B, C, H, W] onto the L1 sphere or into the ball."""
        size = d.abs().mean((1, 2, 3), keepdim=True) + self.slack
        # A zero change stays zero: the scale is finite.
        scale = self.budget / size.clamp_min(torch.finfo(d.dtype).tiny)
        return d * (scale if self.shape == "sphere" else scale.clamp_max(1))


class ViewmakerNet(nn.Module):
    """Image-to-image network of the viewmaker, x[B, C, H, W] -> y[B, C, H, W].

    A channel of U[0, 1) noise is appended to the image and another before each residual block.
    Sides need not be even: upsampling restores the sizes before each downsampling.

        9x9 C+1 -> 32, 3x3/2 -> 64, 3x3/2 -> 128            each instance-normalized, ReLU
        3 residual blocks at 129, 130, 131 channels
        2 x (nearest upsampling, 3x3) -> 64 -> 32            each instance-normalized, ReLU
        9x9 -> C

    All convolutions pad by reflection.

    Source: Feature Dropout (Tamkin et al. 2022); Viewmaker Networks (Tamkin et al. 2021). The
    authors' code also allocates unused blocks; they are omitted here.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down_1 = _block(channels + 1, 32, kernel=9)
        self.down_2 = _block(32, 64, stride=2)
        self.down_3 = _block(64, 128, stride=2)
        self.residual = nn.ModuleList(_Residual(width) for width in (129, 130, 131))
        self.up_2 = _block(131, 64)
        self.up_1 = _block(64, 32)
        self.out = _conv(32, channels, kernel=9)

    def forward(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """Return the perturbation before tanh and budget, [B, C, H, W]."""
        check_examples(x, channels=self.out.out_channels)
        if min(x.shape[-2:]) < _SMALLEST_SIDE:
            raise ValueError(
                f"viewmaker views need images of at least {_SMALLEST_SIDE} pixels a side; "
                f"these are {x.shape[-2]}x{x.shape[-1]}"
            )
        whole = self.down_1(_with_noise(x, generator))
        half = self.down_2(whole)
        y = self.down_3(half)
        for block in self.residual:
            y = block(_with_noise(y, generator))
        y = self.up_2(F.interpolate(y, size=half.shape[-2:]))
        y = self.up_1(F.interpolate(y, size=whole.shape[-2:]))
        return self.out(y)


class _Residual(nn.Module):
    """Residual block y + IN(conv(ReLU(IN(conv(y)))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _block(width, width), _conv(width, width), nn.InstanceNorm2d(width, affine=True)
        )

    def forward(self, y: Tensor) -> Tensor:
        return y + self.branch(y)


def _conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, padding_mode="reflect"
    )


def _block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    conv = _conv(inputs, outputs, kernel=kernel, stride=stride)
    return nn.Sequential(conv, nn.InstanceNorm2d(outputs, affine=True), nn.ReLU())


def _with_noise(x: Tensor, generator: Generator | None) -> Tensor:
    """Return `x` [B, C, H, W] with one more channel of U[0, 1) noise."""
    shape = (len(x), 1, *x.shape[-2:])
    noise = torch.rand(shape, generator=generator, device=x.device, dtype=torch.float32)
    return torch.cat([x, noise.to(x.dtype)], dim=1)


@dataclass(frozen=True, kw_only=True)
class PublishedViewmakerSettings(PolicySettings):
    """Settings of viewmaker:published: unclamped, on the sphere."""

    argument_of: ClassVar = {"viewmaker_budget": "budget", "viewmaker_lr": "lr"}

    viewmaker_budget: Annotated[float, Gt(0)] = 0.05
    """Mean absolute change of a number, in units of the images' range."""
    viewmaker_lr: Annotated[float, Gt(0)] = 1e-3
    """Learning rate of the viewmaker (Adam, constant)."""

    def arguments(self, channels: int) -> dict[str, Any]:
        """Return the arguments of the augmentation."""
        return {"channels": channels, **super().arguments(channels)}


@dataclass(frozen=True, kw_only=True)
class ViewmakerSettings(PublishedViewmakerSettings):
    """Settings of viewmaker and mask-viewmaker.

    Example:
        >>> ViewmakerSettings(viewmaker_budget=0.1).changed({"viewmaker_lr": 2e-3}).viewmaker_budget
        0.1
    """

    argument_of: ClassVar = PublishedViewmakerSettings.argument_of | {
        "viewmaker_shape": "shape",
        "viewmaker_clamp": "clamp",
    }

    viewmaker_shape: ConstraintSet = "sphere"
    """Set that the change lies in: the L1 sphere of the budget, or the ball inside it."""
    viewmaker_clamp: bool = True
    """Clamp views to [0, 1]."""
