"""`+background`, `+tone` and `+clicks`: features planted in sounds, and their levels.

Feature Dropout (2022) mixes spoken digits with cafe, machinery or traffic. `+background` uses the
classes of `source`, a pack of clips or a folder of class folders, or three synthetic noises. Ours
samples one segment and one signal-to-noise ratio for each example; training uses the first 80 % of
each recording, held-out examples the rest. `as-published` resamples at each read, mixes by peaks,
and uses all of a recording in training and test. The authors resample for each view; here the views
of one read share their background.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from widefield.core import rng
from widefield.core.names import printable
from widefield.data.planted.overlay import Canvas
from widefield.data.planted.sounds import AudioFeature, SoundOverlay, as_loop

Decibels = Annotated[float, Interval(ge=-20, le=60), "dB"]
"""Level of the example above the planted sound."""

_TRAIN_SHARE = 0.8
_NOISE_SECONDS = 20
_TONES = {"low": 0.06, "middle": 0.12, "high": 0.25}
"""Frequency of each tone, as a share of the Nyquist frequency."""
_CLICKS = {"slow": (0.25,), "fast": (0.08,), "pairs": (0.05, 0.2)}
"""Seconds between clicks, in turn."""


@dataclass(frozen=True, kw_only=True)
class Background(AudioFeature):
    """Options of `+background`."""

    name: ClassVar[str] = "background"

    as_published: bool = False
    """Resample at each read, mix by peaks, and share recordings between training and test."""
    fresh: bool = False
    high: Decibels = 10.0
    low: Decibels = 0.0
    source: str = ""
    """Pack or folder of recordings; default: three synthetic noises."""

    def __post_init__(self) -> None:
        """Check the range of levels."""
        if self.low > self.high:
            raise ValueError(f"'+background' has low={self.low:g} above high={self.high:g}")

    @classmethod
    def levels(cls) -> "tuple[Background, ...]":
        """Return five variants, from hard to easy to hear."""
        return tuple(cls(low=level, high=level) for level in (30, 20, 10, 0, -10))

    def draw(
        self, canvas: Canvas, recordings: Mapping[str, Sequence[NDArray[np.float32]]] | None = None
    ) -> SoundOverlay:
        """Return an overlay of the `recordings` of each class, which `source` holds, or noises."""
        rate, steps = canvas.sound_rate(self.name), canvas.shape[1]
        if recordings is None:
            recordings = {name: [x] for name, x in _noises(rate, canvas.seed).items()}
        held_out = None if self.as_published else canvas.held_out
        parts = {name: _concatenate(name, xs, held_out) for name, xs in recordings.items()}
        return SoundOverlay(
            name=self.name,
            classes=tuple(parts),
            loops=tuple(as_loop(part, steps) for part in parts.values()),
            snr=(self.low, self.high),
            seed=canvas.seed,
            held_out=canvas.held_out and not self.as_published,
            fresh=self.fresh or self.as_published,
            by_peak=self.as_published,
        )


@dataclass(frozen=True, kw_only=True)
class _Synthetic(AudioFeature):
    """Options of synthetic sounds."""

    name: ClassVar[str]

    fresh: bool = False
    level: Decibels = 10.0
    """Level of the example above the planted sound."""

    @classmethod
    def levels(cls) -> tuple[Self, ...]:
        """Return five variants, from hard to easy to hear."""
        return tuple(cls(level=level) for level in (40, 30, 20, 10, 0))

    def _overlay(self, canvas: Canvas, sounds: dict[str, NDArray[np.float64]]) -> SoundOverlay:
        return SoundOverlay(
            name=self.name,
            classes=tuple(sounds),
            loops=tuple(as_loop(x, canvas.shape[1]) for x in sounds.values()),
            snr=(self.level, self.level),
            seed=canvas.seed,
            held_out=canvas.held_out,
            fresh=self.fresh,
        )


@dataclass(frozen=True, kw_only=True)
class Tone(_Synthetic):
    """Options of `+tone`: a low, a middle or a high pure tone."""

    name: ClassVar[str] = "tone"

    def draw(self, canvas: Canvas) -> SoundOverlay:
        """Return an overlay of tones; the random start of a segment is the random phase."""
        canvas.sound_rate(self.name)
        time = np.arange(2 * canvas.shape[1])
        return self._overlay(
            canvas, {name: np.sin(np.pi * share * time) for name, share in _TONES.items()}
        )


@dataclass(frozen=True, kw_only=True)
class Clicks(_Synthetic):
    """Options of `+clicks`: slow, fast or paired clicks."""

    name: ClassVar[str] = "clicks"

    def draw(self, canvas: Canvas) -> SoundOverlay:
        """Return an overlay of click trains."""
        rate, steps = canvas.sound_rate(self.name), canvas.shape[1]
        trains = {name: _click_train(gaps, rate, steps) for name, gaps in _CLICKS.items()}
        return self._overlay(canvas, trains)


def _concatenate(
    name: str, recordings: Sequence[NDArray[np.float32]], held_out: bool | None
) -> NDArray[np.float32]:
    """Return the recordings of a class at equal levels, of each all, or one of its two parts."""
    parts = list(recordings)
    if held_out is not None:
        cuts = [round(_TRAIN_SHARE * len(x)) for x in recordings]
        parts = [x[k:] if held_out else x[:k] for x, k in zip(recordings, cuts, strict=True)]
    parts = [part for part in parts if len(part)]
    if not parts:
        raise ValueError(
            f"the recordings of '{printable(name)}' for '+background' are too short to be divided "
            "80 / 20: give longer ones"
        )
    return parts[0] if len(parts) == 1 else np.concatenate([as_loop(part, 0) for part in parts])


def _click_train(gaps: tuple[float, ...], rate: int, steps: int) -> NDArray[np.float64]:
    """Return short bursts of alternating samples, with `gaps` seconds between them in turn."""
    burst = np.exp(-np.arange(max(8, rate // 200)) / max(2, rate // 1000))
    burst[1::2] *= -1
    cycle = [round(gap * rate) for gap in gaps]
    x = np.zeros(sum(cycle))
    for start in np.cumsum([0, *cycle[:-1]]):
        x[start : start + len(burst)] = burst
    return np.tile(x, -(-2 * steps // len(x)))


def _noises(rate: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return 20 s of each noise: white, a 100 Hz comb, and power 1/f^2."""
    count = _NOISE_SECONDS * rate
    bits = rng.integers(seed, "made noise", np.arange(count), 2**16)
    spectrum = np.fft.rfft(bits / 2**15 - 1.0)
    spectrum[0] = 0
    frequency = np.fft.rfftfreq(count, 1 / rate)
    shapes = {
        "hiss": np.ones_like(frequency),
        "hum": (np.abs(frequency % 100 - 50) > 48) / np.maximum(frequency, 100),
        "rumble": 1 / np.maximum(frequency, 20) ** 1.0,
    }
    return {
        name: np.fft.irfft(spectrum * shape, n=count).astype(np.float32)
        for name, shape in shapes.items()
    }
