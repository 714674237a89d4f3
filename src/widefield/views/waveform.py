"""Views of waveforms: pitch, speed, reverberation or noise, a missing band and a gap in time."""

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional

from widefield.views.base import AugmentContext, Views
from widefield.views.signal import SignalAugmentation, normal, run, uniform

_GRAINS = 32
"""Grains in a waveform: of 62 ms at one second, overlapping by half."""
_SHORTEST_GRAIN = 4
_ECHO = 0.25
"""Length of the reverberation, as a share of the waveform."""


class WaveAugment(SignalAugmentation):
    """Views of a sound as other voices, rooms and devices would give it.

    Each view is played at another pitch and speed, and shifted in time; half of them get an echo,
    the others noise; half lose a band of frequencies; a run of time is silent. Everything is
    batched: one gather for pitch and speed, one pair of Fourier transforms for room and band.

    Args:
        pitch: greatest change of pitch, as the logarithm of its factor.
        speed: greatest change of speed, as the logarithm of its factor.
        shift: greatest shift in time, as a share of the waveform.
        noise_db: least and greatest level of the noise below the sound, decibels.
        band: greatest width of the missing band, as a share of all frequencies.
        drop: greatest length of the gap, as a share of the waveform.

    Example:
        >>> x = torch.sin(torch.arange(4000) / 5).view(1, 1, 1, 4000)
        >>> (view,) = WaveAugment()(x, 1, torch.Generator().manual_seed(0))
        >>> view.shape, bool((view != x).any())
        (torch.Size([1, 1, 1, 4000]), True)
    """

    pixel_aligned = False

    def __init__(
        self,
        *,
        pitch: float = 0.15,
        speed: float = 0.15,
        shift: float = 0.1,
        noise_db: tuple[float, float] = (10.0, 30.0),
        band: float = 0.15,
        drop: float = 0.15,
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

        pitch, speed = (between(-most, most).exp() for most in (self.pitch, self.speed))
        played = granular(whole, pitch, speed, between(-self.shift, self.shift))
        echoing = between(0, 1) < 0.5
        heard = self._room_and_band(played, echoing, generator)
        level = 10 ** (-between(*self.noise_db) / 20) * heard.square().mean((1, 2, 3), True).sqrt()
        noise = level * normal(heard.shape, heard, generator)
        heard = torch.where(echoing, heard, heard + noise)
        silent = run(heard, self.drop, generator)
        return list(torch.where(silent, 0, heard).to(x.dtype).chunk(len(views)))

    def _room_and_band(self, x: Tensor, echoing: Tensor, generator: Generator | None) -> Tensor:
        """Add an echo where `echoing`, and take a band out of half of the waveforms."""
        steps = x.shape[-1]
        length = max(1, int(_ECHO * steps))
        padded = fast_length(steps + length)
        decay = -6.0 * torch.arange(length, device=x.device, dtype=x.dtype) / length
        tail = decay.exp() * normal((len(x), 1, 1, length), x, generator)
        tail = tail / tail.square().sum(-1, keepdim=True).sqrt()
        room = functional.pad(0.5 * tail * echoing, (0, padded - length))
        room[..., :1] += 1
        spectrum = torch.fft.rfft(x, n=padded) * torch.fft.rfft(room)
        missing = run(spectrum.real, self.band, generator)
        missing = missing & (uniform((len(x), 1, 1, 1), x, generator) < 0.5)
        spectrum = torch.where(missing, torch.zeros_like(spectrum), spectrum)
        return torch.fft.irfft(spectrum, n=padded)[..., :steps]


class PublishedWaveAugment(SignalAugmentation):
    """Views that keep a run of the waveform, with noise on its spectrum: as published.

    The run has a share of U(.08, 1) of the time and stays where it is; the rest is silent. The
    noise's level is not stated: here its deviation is a tenth of the spectrum's root mean square.

    Source: Feature Dropout (Tamkin et al. 2022), the expert views of waveforms.
    """

    SHARE, NOISE = (0.08, 1.0), 0.1

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Change each of `views` [B, C, H, T] along its last axis."""
        x = torch.cat(views)
        whole = x.to(torch.promote_types(x.dtype, torch.float32))
        each = (len(x), 1, 1, 1)
        low, high = self.SHARE
        length = low + (high - low) * uniform(each, whole, generator)
        start = uniform(each, whole, generator) * (1 - length)
        place = (torch.arange(x.shape[-1], device=x.device, dtype=torch.float32) + 0.5) / x.shape[
            -1
        ]
        kept = torch.where((place >= start) & (place < start + length), whole, 0)
        spectrum = torch.fft.rfft(kept, norm="ortho")
        size = spectrum.abs().square().mean((1, 2, 3), keepdim=True).sqrt()
        parts = [normal(spectrum.shape, kept, generator) for _ in range(2)]
        noise = self.NOISE * size * torch.complex(*parts) / math.sqrt(2)
        heard = torch.fft.irfft(spectrum + noise, n=x.shape[-1], norm="ortho")
        return list(heard.to(x.dtype).chunk(len(views)))


def granular(x: Tensor, pitch: Tensor, speed: Tensor, shift: Tensor) -> Tensor:
    """Play x [B, C, H, T] at other pitches and speeds, factors [B, 1, 1, 1], around its middle.

    Overlapping grains are taken from the sound at `speed` and played at `pitch` each:

        y(t) = sum_i w(t - i h) x(m + speed (i h - m) + pitch (t - i h) + shift T),

    w a Hann window of 2 h samples, m the middle. What lies beyond the ends is silence.
    """
    steps = x.shape[-1]
    hop = max(_SHORTEST_GRAIN, steps // _GRAINS)
    time = torch.arange(steps, device=x.device, dtype=torch.float32)
    middle = (steps - 1) / 2
    out = torch.zeros_like(x)
    for later in (0, 1):  # at any time two grains sound
        center = (torch.div(time, hop, rounding_mode="floor") + later) * hop
        weight = 0.5 + 0.5 * torch.cos(math.pi * (time - center) / hop)
        source = middle + speed * (center - middle) + pitch * (time - center) + shift * steps
        out = out + weight.to(x.dtype) * _read(x, source)
    return out


def _read(x: Tensor, place: Tensor) -> Tensor:
    """Return x [B, C, H, T] between its samples at `place` [B, 1, 1, T], silence beyond them."""
    steps = x.shape[-1]
    before = place.floor()
    share = (place - before).to(x.dtype)
    inside = (place >= 0) & (place <= steps - 1)
    first = before.long().clamp(0, steps - 1)
    second = (first + 1).clamp_max(steps - 1)
    one, two = (x.gather(3, i.expand(x.shape)) for i in (first, second))
    return torch.where(inside, one + share * (two - one), 0)


def fast_length(least: int) -> int:
    """Return the shortest length 2^a 3^b 5^c from `least` on, which is quick to transform.

    Example:
        >>> fast_length(9_999), fast_length(10_001)
        (10000, 10125)
    """
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << max(0, -(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best
