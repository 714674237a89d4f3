"""Views of waveforms: pitch and speed, reverberation or noise, a band stop and a gap in time."""

import math
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Generator, Tensor
from torch.nn import functional

from widefield.core.batch import checked
from widefield.views.base import AugmentContext, Views
from widefield.views.signal import SignalAugmentation, normal, run, uniform

_NUM_WINDOWS = 32
"""Number of windows in a waveform: 62 ms each for one second, with half overlap."""
# Chosen by hand, for windows of few steps.
_MIN_HOP = 4
# Chosen by hand.
_REVERB_LENGTH = 0.25
"""Length of the reverberation, as a share of the waveform."""


class WaveAugment(SignalAugmentation):
    """Views of a sound with another pitch, speed, reverberation and frequency response.

    Each view has another pitch and speed and is shifted in time; half of the views get
    reverberation, the others noise; half lose a band of frequencies; a run of time is silent. All
    is batched: one gather for pitch and speed, one pair of Fourier transforms for the rest.

    Args:
        pitch: maximum change of pitch, as the logarithm of its factor.
        speed: maximum change of speed, as the logarithm of its factor.
        shift: maximum shift in time, as a share of the waveform.
        noise_db: minimum and maximum level of the noise below the sound, decibels.
        band: maximum width of the missing band, as a share of all frequencies.
        drop: maximum length of the gap, as a share of the waveform.

    Example:
        >>> x = torch.sin(torch.arange(4000) / 5).view(1, 1, 1, 4000)
        >>> (view,) = WaveAugment()(x, 1, torch.Generator().manual_seed(0))
        >>> view.shape, bool((view != x).any())
        (torch.Size([1, 1, 1, 4000]), True)
    """

    pixel_aligned = False

    @checked
    def __init__(
        self,
        *,
        pitch: Annotated[float, Ge(0)] = 0.15,
        speed: Annotated[float, Ge(0)] = 0.15,
        shift: Annotated[float, Ge(0)] = 0.1,
        noise_db: tuple[float, float] = (10.0, 30.0),
        band: Annotated[float, Ge(0), Le(1)] = 0.15,
        drop: Annotated[float, Ge(0), Le(1)] = 0.15,
    ) -> None:
        super().__init__()
        self.pitch, self.speed, self.shift = pitch, speed, shift
        self.noise_db, self.band, self.drop = noise_db, band, drop

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Change each of `views` [B, C, H, T] along its last axis."""
        x = torch.cat(views)
        whole = x.to(torch.promote_types(x.dtype, torch.float32))
        each = (len(x), 1, 1, 1)

        def between(low: float, high: float) -> Tensor:
            return low + (high - low) * uniform(each, whole, generator)

        pitch, speed = (between(-limit, limit).exp() for limit in (self.pitch, self.speed))
        stretched = time_stretch(whole, pitch, speed, between(-self.shift, self.shift))
        has_reverb = between(0, 1) < 0.5
        output = self._reverb_and_band_stop(stretched, has_reverb, generator)
        level = 10 ** (-between(*self.noise_db) / 20) * output.square().mean((1, 2, 3), True).sqrt()
        noise = level * normal(output.shape, output, generator)
        output = torch.where(has_reverb, output, output + noise)
        gap = run(output, self.drop, generator)
        return list(torch.where(gap, 0, output).to(x.dtype).chunk(len(views)))

    def _reverb_and_band_stop(
        self, x: Tensor, has_reverb: Tensor, generator: Generator | None
    ) -> Tensor:
        """Add reverberation where `has_reverb`, and remove a band from half of the waveforms."""
        from scipy.fft import next_fast_len  # imported where sounds are, not with every view

        steps = x.shape[-1]
        length = max(1, int(_REVERB_LENGTH * steps))
        # Padded, because the convolution is circular: the tail of the end would be heard at the
        # start.
        padded = next_fast_len(steps + length, real=True)
        # At its end the tail is at exp(-6), -52 dB, so that it does not stop audibly.
        decay = -6.0 * torch.arange(length, device=x.device, dtype=x.dtype) / length
        tail = decay.exp() * normal((len(x), 1, 1, length), x, generator)
        tail = tail / tail.square().sum(-1, keepdim=True).sqrt()
        impulse_response = functional.pad(0.5 * tail * has_reverb, (0, padded - length))
        impulse_response[..., :1] += 1
        spectrum = torch.fft.rfft(x, n=padded) * torch.fft.rfft(impulse_response)
        missing = run(spectrum.real, self.band, generator)
        missing = missing & (uniform((len(x), 1, 1, 1), x, generator) < 0.5)
        spectrum = torch.where(missing, torch.zeros_like(spectrum), spectrum)
        return torch.fft.irfft(spectrum, n=padded)[..., :steps]


class PublishedWaveAugment(SignalAugmentation):
    """Views that keep a run of the waveform, with noise on its spectrum, as published.

    The run has a share of U(.08, 1) of the time; the rest is silent. The level of the noise is not
    published: here its deviation is a tenth of the root mean square of the spectrum.

    Example:
        >>> (view,) = PublishedWaveAugment()(torch.zeros(2, 1, 1, 4000), 1)
        >>> view.shape
        torch.Size([2, 1, 1, 4000])

    Source: Feature Dropout (Tamkin et al. 2022), the expert views of waveforms.
    """

    SHARE, NOISE = (0.08, 1.0), 0.1

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Change each of `views` [B, C, H, T] along its last axis."""
        x = torch.cat(views)
        whole = x.to(torch.promote_types(x.dtype, torch.float32))
        low, high = self.SHARE
        kept = torch.where(run(whole, high, generator, min_share=low), whole, 0)
        spectrum = torch.fft.rfft(kept, norm="ortho")
        size = spectrum.abs().square().mean((1, 2, 3), keepdim=True).sqrt()
        parts = [normal(spectrum.shape, kept, generator) for _ in range(2)]
        noise = self.NOISE * size * torch.complex(*parts) / math.sqrt(2)
        output = torch.fft.irfft(spectrum + noise, n=x.shape[-1], norm="ortho")
        return list(output.to(x.dtype).chunk(len(views)))


def time_stretch(x: Tensor, pitch: Tensor, speed: Tensor, shift: Tensor) -> Tensor:
    """Change pitch and speed of x [B, C, H, T] by factors [B, 1, 1, 1], around its middle.

    Granular synthesis: overlapping windows advance at `speed` and are resampled at `pitch`:

        y(t) = sum_i w(t - i h) x(m + speed (i h - m) + pitch (t - i h) + shift T),

    w a Hann window of 2 h samples, m the middle. Beyond the ends is silence.
    """
    steps = x.shape[-1]
    hop = max(_MIN_HOP, steps // _NUM_WINDOWS)
    time = torch.arange(steps, device=x.device, dtype=torch.float32)
    middle = (steps - 1) / 2
    out = torch.zeros_like(x)
    for offset in (0, 1):  # two windows overlap at any time
        center = (torch.div(time, hop, rounding_mode="floor") + offset) * hop
        weight = 0.5 + 0.5 * torch.cos(math.pi * (time - center) / hop)
        source = middle + speed * (center - middle) + pitch * (time - center) + shift * steps
        out = out + weight.to(x.dtype) * _interpolate(x, source)
    return out


def _interpolate(x: Tensor, position: Tensor) -> Tensor:
    """Interpolate x [B, C, H, T] linearly at `position` [B, 1, 1, T]; 0 beyond its ends."""
    steps = x.shape[-1]
    floor = position.floor()
    share = (position - floor).to(x.dtype)
    valid = (position >= 0) & (position <= steps - 1)
    first = floor.long().clamp(0, steps - 1)
    second = (first + 1).clamp_max(steps - 1)
    one, two = (x.gather(3, i.expand(x.shape)) for i in (first, second))
    return torch.where(valid, one + share * (two - one), 0)
