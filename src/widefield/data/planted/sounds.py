"""`+background`, `+tone` and `+clicks`: a random segment of a sound of a class, mixed into sounds.

Feature Dropout (2022) mixes spoken digits with cafe, machinery or traffic. `+background` uses the
classes of `source`, a pack of clips or a folder of class folders, or three synthetic noises. Ours
samples one segment and one signal-to-noise ratio for each example; training uses the first 80 % of
each recording, held-out examples the rest. `as-published` resamples at each read, mixes by peaks,
and uses all of a recording in training and test. The authors resample for each view; here the views
of one read share their background.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from annotated_types import Interval
from numpy.typing import ArrayLike, NDArray

from widefield.core import rng
from widefield.core.names import printable
from widefield.data.planted.overlay import Canvas, RandomOverlay

Decibels = Annotated[float, Interval(ge=-20, le=60), "dB"]
"""Level of the example above the planted sound."""

_TRAIN_SHARE = 0.8  # as of a split of examples
_NOISE_SECONDS = 20  # chosen by hand: many examples long
# Chosen by hand: about an octave apart, at any sampling rate.
_TONES = {"low": 0.06, "middle": 0.12, "high": 0.25}
"""Frequency of each tone, as a share of the Nyquist frequency."""
# Chosen by hand: an example of a second has several clicks.
_CLICKS = {"slow": (0.25,), "fast": (0.08,), "pairs": (0.05, 0.2)}
"""Seconds between clicks, in turn."""
_LEVELS = 2**16  # resolution of a random level


@dataclass(frozen=True, kw_only=True)
class SoundOverlay(RandomOverlay):
    """A planted sound prepared for examples of one length."""

    loops: tuple[NDArray[np.float32], ...]
    """Recording of each class, longer than an example, with a mean square of 1."""
    snr: tuple[float, float]
    """Minimum and maximum signal-to-noise ratio, example to planted sound, dB."""
    by_peak: bool = False
    """Whether to mix half of each, both scaled to a peak of 1, instead."""

    def labels(self, index: ArrayLike, read: int = 0) -> NDArray[np.int64]:
        return self._draw("class", self._counter(index, read), len(self.classes))

    def mask(self, index: ArrayLike, size: tuple[int, int], read: int = 0) -> NDArray[np.bool_]:
        """Return False for all samples, [n, H, T]: a planted sound hides nothing."""
        return np.zeros((len(np.asarray(index)), *size), dtype=np.bool_)

    def segments(self, index: ArrayLike, steps: int, read: int = 0) -> NDArray[np.float32]:
        """Return the planted segment of each example of `index`, float32 [n, steps]."""
        counter = self._counter(index, read)
        classes = self.labels(index, read)
        count = np.array([len(loop) - steps + 1 for loop in self.loops])[classes]
        first = self._draw("start", counter, count)
        pairs = zip(classes.tolist(), first.tolist(), strict=True)
        return np.stack([self.loops[k][start : start + steps] for k, start in pairs])

    def apply(self, images: NDArray[np.int16], index: ArrayLike, read: int = 0) -> None:
        """Mix into int16 `images` [n, 1, T, 1] in place.

        sound <- sound + gain * planted, gain = rms(sound) 10^(-snr / 20), where the rms excludes
        silence. A mixture that would clip is scaled down.
        """
        sound = images[:, 0, :, 0].astype(np.float32) / 32_768
        planted = self.segments(index, sound.shape[1], read)
        if self.by_peak:
            scaled = [
                x / np.maximum(np.abs(x).max(1, keepdims=True), 1e-6) for x in (sound, planted)
            ]
            mixed = 0.5 * (scaled[0] + scaled[1])
        else:
            # Without silence: the padding of a short recording would lower its level.
            count = np.maximum((sound != 0).sum(1), 1)
            level = np.sqrt((sound.astype(np.float64) ** 2).sum(1) / count)
            low, high = self.snr
            share = self._draw("level", self._counter(index, read), _LEVELS) / (_LEVELS - 1)
            gain = level * 10 ** (-(low + (high - low) * share) / 20)
            mixed = sound + gain[:, None].astype(np.float32) * planted
        peak = np.abs(mixed).max(1, keepdims=True)
        # Up to a peak of 32,767 / 32,768 the factor is 32,768, the inverse of the division above.
        mixed = mixed * 32_767 / np.maximum(peak, 32_767 / 32_768)
        images[:, 0, :, 0] = np.rint(mixed).astype(np.int16)


class AudioFeature(ABC):
    """The options of a feature that is mixed into sounds: the base of their dataclasses."""

    name: ClassVar[str]
    fresh: bool

    @classmethod
    @abstractmethod
    def levels(cls) -> tuple[Self, ...]:
        """Return five variants, from hard to easy to hear."""

    @abstractmethod
    def draw(self, canvas: Canvas) -> SoundOverlay:
        """Make or read the sound of each class."""

    def overlay(
        self, canvas: Canvas, sounds: Mapping[str, NDArray[np.floating]], snr: tuple[float, float]
    ) -> SoundOverlay:
        """Return an overlay of the sound of each class, at ratios `snr` as of `SoundOverlay`."""
        return SoundOverlay(
            name=self.name,
            classes=tuple(sounds),
            loops=tuple(as_loop(x, canvas.shape[1]) for x in sounds.values()),
            snr=snr,
            seed=canvas.seed,
            held_out=canvas.held_out,
            fresh=self.fresh,
        )


def as_loop(x: NDArray[np.floating], steps: int) -> NDArray[np.float32]:
    """Return a recording repeated until it is longer than `steps`, with a mean square of 1."""
    repeats = -(-(steps + 1) // len(x))
    long = np.tile(x.astype(np.float64), repeats)
    rms = np.sqrt((long**2).mean())
    return (long / max(rms, 1e-9)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Background(AudioFeature):
    name: ClassVar[str] = "background"

    as_published: bool = False
    """Resample at each read, mix by peaks, and share recordings between training and test."""
    fresh: bool = False
    high: Decibels = 10.0
    low: Decibels = 0.0
    source: str = ""
    """Pack or folder of recordings; default: three synthetic noises."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"'+background' has low={self.low:g} above high={self.high:g}")

    @classmethod
    def levels(cls) -> "tuple[Background, ...]":
        return tuple(cls(low=level, high=level) for level in (30, 20, 10, 0, -10))

    def draw(
        self, canvas: Canvas, recordings: Mapping[str, Sequence[NDArray[np.float32]]] | None = None
    ) -> SoundOverlay:
        """Return an overlay of the `recordings` of each class, which `source` holds, or noises."""
        rate = canvas.sound_rate(self.name)
        if recordings is None:
            recordings = {name: [x] for name, x in _noises(rate, canvas.seed).items()}
        held_out = None if self.as_published else canvas.held_out
        parts = {name: _concatenate(name, xs, held_out) for name, xs in recordings.items()}
        overlay = self.overlay(canvas, parts, (self.low, self.high))
        if not self.as_published:
            return overlay
        return replace(overlay, held_out=False, fresh=True, by_peak=True)


@dataclass(frozen=True, kw_only=True)
class _Synthetic(AudioFeature):
    fresh: bool = False
    level: Decibels = 10.0
    """Level of the example above the planted sound."""

    @classmethod
    def levels(cls) -> tuple[Self, ...]:
        return tuple(cls(level=level) for level in (40, 30, 20, 10, 0))


@dataclass(frozen=True, kw_only=True)
class Tone(_Synthetic):
    """Options of `+tone`: a low, a middle or a high pure tone."""

    name: ClassVar[str] = "tone"

    def draw(self, canvas: Canvas) -> SoundOverlay:
        """Return an overlay of tones; the random start of a segment is the random phase."""
        canvas.sound_rate(self.name)
        time = np.arange(2 * canvas.shape[1])
        tones = {name: np.sin(np.pi * share * time) for name, share in _TONES.items()}
        return self.overlay(canvas, tones, (self.level, self.level))


@dataclass(frozen=True, kw_only=True)
class Clicks(_Synthetic):
    """Options of `+clicks`: slow, fast or paired clicks."""

    name: ClassVar[str] = "clicks"

    def draw(self, canvas: Canvas) -> SoundOverlay:
        rate, steps = canvas.sound_rate(self.name), canvas.shape[1]
        trains = {name: _click_train(gaps, rate, steps) for name, gaps in _CLICKS.items()}
        return self.overlay(canvas, trains, (self.level, self.level))


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
        "rumble": 1 / np.maximum(frequency, 20),
    }
    return {
        name: np.fft.irfft(spectrum * shape, n=count).astype(np.float32)
        for name, shape in shapes.items()
    }
