"""Views that learn: a network trained against the encoder perturbs images within a budget."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from widefield.recipe import Budget
from widefield.views.base import BARE, Scene, Views

SMALLEST_SIDE = 5
"""Reflection padding of a 9 x 9 convolution needs more than 4 pixels."""


class Viewmaker(Views):
    """view = x + delta, delta = scale tanh(net(x, noise)), with an L1 budget on delta.

    With |delta| the mean absolute value over an image's numbers and d = tanh(net(x, noise)),

        sphere:  delta = budget d / |d|                  on the sphere, as published
        ball:    delta = d min(1, budget / |d|)          inside it.

    The network minimises minus the encoder's loss; see `widefield.train.loop`.

    Args:
        channels: C of the images.
        budget: |delta|, in units of the images' range.
        shape: `sphere` or `ball`.
        clamp: hold views in [0, 1].
        slack: added to |d|; 1e-4 as published, which leaves delta short of its budget.
        spare_object: set delta to 0 inside the planted object's mask, so that what it says
            survives. The rest of delta is not scaled up.

    Raises:
        ValueError: images smaller than 5 pixels a side.

    Example:
        >>> views = Viewmaker(channels=3, budget=0.05, shape="sphere", clamp=True)
        >>> x = torch.full((2, 3, 16, 20), 0.5)
        >>> one, other = views(x, 2, torch.Generator().manual_seed(0))
        >>> print(f"{(one - x).abs().mean().item():.3f}")
        0.050

    Source: Feature Dropout (Tamkin et al. 2022), section 3 and appendix C.1 (`spare_object`).
    """

    def __init__(
        self,
        *,
        channels: int,
        budget: float,
        shape: Budget,
        clamp: bool,
        slack: float = 0.0,
        spare_object: bool = False,
    ) -> None:
        super().__init__()
        self.net = ViewmakerNet(channels)
        self.budget, self.shape, self.slack = budget, shape, slack
        self.clamp = clamp
        self.needs_mask = spare_object
        if not clamp:
            self.value_range = (-torch.inf, torch.inf)

    @classmethod
    def as_published(cls, *, channels: int, budget: float) -> "Viewmaker":
        """As in the authors' released configurations: views unclamped, 1e-4 beside |d|."""
        return cls(channels=channels, budget=budget, shape="sphere", clamp=False, slack=1e-4)

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Perturb each of `views` [B, C, H, W] with noise of its own."""
        x = torch.cat(views)
        y = self.net(x.to(next(self.net.parameters()).dtype), generator)
        delta = self.on_budget(y.float().tanh()).to(x.dtype)
        if self.needs_mask:
            assert scene.mask is not None
            delta = torch.where(scene.mask.repeat(len(views), 1, 1, 1), 0, delta)
        altered = x + delta
        return list((altered.clamp(0, 1) if self.clamp else altered).chunk(len(views)))

    def on_budget(self, d: Tensor) -> Tensor:
        """Scale each of `d` [B, C, H, W] onto the L1 sphere, or into the ball."""
        size = d.abs().mean((1, 2, 3), keepdim=True) + self.slack
        scale = self.budget / size.clamp_min(torch.finfo(d.dtype).tiny)
        return d * (scale if self.shape == "sphere" else scale.clamp_max(1))


class ViewmakerNet(nn.Module):
    """Image-to-image network of the viewmaker, x[B, C, H, W] -> y[B, C, H, W].

    One channel of U[0, 1) noise is added to the image and one before each residual block. Sides
    need not be even: the way up restores the sizes of the way down.

        9x9 C+1 -> 32, 3x3/2 -> 64, 3x3/2 -> 128            each instance-normalised, ReLU
        3 residual blocks at 129, 130, 131 channels
        2 x (nearest upsampling, 3x3) -> 64 -> 32            each instance-normalised, ReLU
        9x9 -> C

    All convolutions pad by reflection.

    Source: Feature Dropout (Tamkin et al. 2022); Viewmaker Networks (Tamkin et al. 2021); the
    authors' code also allocates blocks that it never uses.
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
        """Perturbation before tanh and budget, [B, C, H, W]."""
        if min(x.shape[-2:]) < SMALLEST_SIDE:
            raise ValueError(
                f"viewmaker views need images of at least {SMALLEST_SIDE} pixels a side; "
                f"these are {x.shape[-2]}x{x.shape[-1]}"
            )
        whole = self.down_1(_with_noise(x, generator))
        half = self.down_2(whole)
        y = self.down_3(half)
        for block in self.residual:
            y = block(_with_noise(y, generator))
        y = self.up_2(F.interpolate(y, size=half.shape[-2:]))
        y = self.up_1(F.interpolate(y, size=whole.shape[-2:]))
        out: Tensor = self.out(y)
        return out


class _Residual(nn.Module):
    """y + IN(conv(ReLU(IN(conv(y)))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _block(width, width), _conv(width, width), nn.InstanceNorm2d(width, affine=True)
        )

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = y + self.branch(y)
        return out


def _conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, padding_mode="reflect"
    )


def _block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    conv = _conv(inputs, outputs, kernel=kernel, stride=stride)
    return nn.Sequential(conv, nn.InstanceNorm2d(outputs, affine=True), nn.ReLU())


def _with_noise(x: Tensor, generator: Generator | None) -> Tensor:
    """`x` [B, C, H, W] and one more channel of U[0, 1)."""
    shape = (len(x), 1, *x.shape[-2:])
    noise = torch.rand(shape, generator=generator, device=x.device, dtype=torch.float32)
    return torch.cat([x, noise.to(x.dtype)], dim=1)
