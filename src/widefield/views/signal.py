"""Views of windows and waveforms: noise, gain, gaps in time and missing channels.

The last axis is time. Units and zero points differ between data sets, so all amounts are relative:
to the mean and deviation of a channel over the batch, or to the length of a window.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Generator, Tensor

from widefield.core.batch import checked
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.policy import PolicySettings


class SignalAugmentation(Augmentation):
    """Base class of views of windows and waveforms, whose values are unbounded."""

    value_range = (-torch.inf, torch.inf)
    any_input_range = True


class Jitter(SignalAugmentation):
    """Views x + std s n: n ~ N(0, 1) for every number, s the deviation of its channel.

    Args:
        std: noise, as a share of the deviation of the channel over the batch.

    Example:
        >>> x = torch.randn(8, 3, 1, 64, generator=torch.Generator().manual_seed(0))
        >>> (view,) = Jitter(std=0.1)(x, 1, torch.Generator().manual_seed(0))
        >>> print(f"{((view - x).std() / x.std()).item():.1f}")
        0.1
    """

    @checked
    def __init__(self, *, std: Annotated[float, Ge(0)]) -> None:
        super().__init__()
        self.std = std

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Add independent noise to each of `views` [B, C, H, T]."""
        noisy = []
        for x in views:
            std = self.std * x.detach().std((0, 2, 3), keepdim=True, correction=0)
            noisy.append(x + std * normal(x.shape, x, generator))
        return noisy


class Scale(SignalAugmentation):
    """Views m + g (x - m), with one gain g = exp(spread n), n ~ N(0, 1), for each channel.

    m is the mean of the channel over the batch.

    Args:
        spread: deviation of the logarithm of the gain.

    Example:
        >>> (view,) = Scale(spread=0.2)(torch.tensor([1.0, 3.0]).expand(2, 3, 1, 2), 1)
        >>> view.mean(-1).unique()  # the mean of the channel stays
        tensor([2.])
    """

    @checked
    def __init__(self, *, spread: Annotated[float, Ge(0)]) -> None:
        super().__init__()
        self.spread = spread

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Scale each channel of each of `views` [B, C, H, T]."""
        scaled = []
        for x in views:
            mean = x.detach().mean((0, 2, 3), keepdim=True)
            gain = (self.spread * normal((*x.shape[:2], 1, 1), x, generator)).exp()
            scaled.append(mean + gain * (x - mean))
        return scaled


class TimeMask(SignalAugmentation):
    """Views in which a run of time steps is replaced by the mean of each channel.

    Args:
        share: maximum length of the run, as a share of the window; lengths are uniform.

    Example:
        >>> (view,) = TimeMask(share=0.5)(torch.rand(2, 3, 1, 16), 1)
        >>> view.shape
        torch.Size([2, 3, 1, 16])
    """

    @checked
    def __init__(self, *, share: Annotated[float, Ge(0), Le(1)]) -> None:
        super().__init__()
        self.share = share

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Cover a run of each of `views` [B, C, H, T], in all channels at once."""
        return [
            torch.where(run(x, self.share, generator), x.mean((2, 3), keepdim=True), x)
            for x in views
        ]


class ChannelDrop(SignalAugmentation):
    """Views in which random channels are replaced by their mean; at least one is unchanged.

    Args:
        prob: probability that a channel is dropped.

    Example:
        >>> (view,) = ChannelDrop(prob=1.0)(torch.rand(2, 3, 1, 16), 1)
        >>> (view.std(-1) > 0).sum((1, 2)).tolist()  # channels that are left
        [1, 1]
    """

    @checked
    def __init__(self, *, prob: Annotated[float, Ge(0), Le(1)]) -> None:
        super().__init__()
        self.prob = prob

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Drop channels of each of `views` [B, C, H, T]."""
        changed = []
        for x in views:
            # The channel with the largest number stays, so that no window loses all of them.
            u = uniform((*x.shape[:2], 1, 1), x, generator)
            dropped = (u < self.prob) & (u < u.amax(1, keepdim=True))
            changed.append(torch.where(dropped, x.mean((2, 3), keepdim=True), x))
        return changed


def run(
    x: Tensor, share: float, generator: Generator | None, *, dim: int = 3, min_share: float = 0.0
) -> Tensor:
    """Return a mask of a random run along `dim` of each of x [B, C, H, T], 1 in the other dims.

    Its length is U(min_share, share) of the whole, and its position is uniform.
    """
    steps = x.shape[dim]
    shape = [len(x), 1, 1, 1]
    length = min_share + (share - min_share) * uniform(shape, x, generator)
    start = uniform(shape, x, generator) * (1 - length)
    positions = torch.arange(steps, device=x.device, dtype=torch.float32) + 0.5
    shape[0], shape[dim] = 1, steps
    position = positions.view(shape) / steps
    return (position >= start) & (position < start + length)


def uniform(
    shape: list[int] | tuple[int, ...], like: Tensor, generator: Generator | None
) -> Tensor:
    """Return U[0, 1) numbers, float32 on the device of `like`."""
    return torch.rand(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)


def normal(shape: list[int] | tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Return N(0, 1) numbers like `like`."""
    return torch.randn(tuple(shape), generator=generator, device=like.device, dtype=like.dtype)


@dataclass(frozen=True, kw_only=True)
class JitterSettings(PolicySettings):
    """Settings of jitter."""

    argument_of: ClassVar = {"jitter_std": "std"}

    jitter_std: Annotated[float, Gt(0)] = 0.1
    """Deviation of the noise, as a share of that of the channel."""


@dataclass(frozen=True, kw_only=True)
class ScaleSettings(PolicySettings):
    """Settings of scale."""

    argument_of: ClassVar = {"scale_spread": "spread"}

    scale_spread: Annotated[float, Gt(0)] = 0.2
    """Deviation of the logarithm of a channel's gain."""


@dataclass(frozen=True, kw_only=True)
class TimeMaskSettings(PolicySettings):
    """Settings of time-mask."""

    argument_of: ClassVar = {"time_mask": "share"}

    time_mask: Annotated[float, Gt(0), Le(1)] = 0.3
    """Maximum length of the covered run, as a share of the time."""


@dataclass(frozen=True, kw_only=True)
class ChannelDropSettings(PolicySettings):
    """Settings of channel-drop."""

    argument_of: ClassVar = {"channel_drop": "prob"}

    channel_drop: Annotated[float, Ge(0), Le(1)] = 0.2
    """Probability that a channel is dropped."""
