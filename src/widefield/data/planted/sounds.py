"""Overlays on sounds: a random segment of the recording of a class, at a random level.

An overlay is a function of (seed, index, held_out), as for images.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.data.planted.overlay import Canvas
from widefield.data.planted.random_overlay import RandomOverlay

_LEVELS = 2**16


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
        """Return the planted class id of each example of `index` at a read, int64 [n]."""
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
            count = np.maximum((sound != 0).sum(1), 1)
            level = np.sqrt((sound.astype(np.float64) ** 2).sum(1) / count)
            low, high = self.snr
            share = self._draw("level", self._counter(index, read), _LEVELS) / (_LEVELS - 1)
            gain = level * 10 ** (-(low + (high - low) * share) / 20)
            mixed = sound + gain[:, None].astype(np.float32) * planted
        peak = np.abs(mixed).max(1, keepdims=True)
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


def as_loop(x: NDArray[np.floating], steps: int) -> NDArray[np.float32]:
    """Return a recording repeated until it is longer than `steps`, with a mean square of 1."""
    repeats = -(-(steps + 1) // len(x))
    long = np.tile(x.astype(np.float64), repeats)
    rms = np.sqrt((long**2).mean())
    return (long / max(rms, 1e-9)).astype(np.float32)
