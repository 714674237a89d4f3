"""Sounds planted in sounds: `+background`, `+tone`, `+clicks`.

Each class has a recording, or one that is made. An example hears a segment of one of them, below
its own level by a signal-to-noise ratio that is drawn too: all a pure function of (seed, index,
held_out), as for images.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.data.planted.draws import Draws
from widefield.data.planted.overlay import Canvas

_LEVELS = 2**16


@dataclass(frozen=True, kw_only=True)
class SoundOverlay(Draws):
    """One planted sound, ready to be mixed into examples of one length."""

    banks: tuple[NDArray[np.float32], ...]
    """What each class sounds like, longer than an example, with a mean square of 1."""
    snr: tuple[float, float]
    """Least and greatest level of the example above the planted sound, decibels."""
    by_peak: bool = False
    """Whether to mix by peaks instead: half of each, both scaled to a peak of 1."""

    def labels(self, index: ArrayLike, read: int = 0) -> NDArray[np.int64]:
        """Return the class id planted in each example of `index`, int64 [n], at its read `read`."""
        return self._draw("class", self._counter(index, read), len(self.classes))

    def mask(self, index: ArrayLike, size: tuple[int, int], read: int = 0) -> NDArray[np.bool_]:
        """Return nothing, [n, H, T] without a single place: a sound covers no part of another."""
        return np.zeros((len(np.asarray(index)), *size), dtype=np.bool_)

    def levels(self, index: ArrayLike, read: int = 0) -> NDArray[np.float64]:
        """Return the signal-to-noise ratio of each example of `index`, decibels."""
        low, high = self.snr
        share = self._draw("level", self._counter(index, read), _LEVELS) / (_LEVELS - 1)
        return low + (high - low) * share

    def segments(self, index: ArrayLike, steps: int, read: int = 0) -> NDArray[np.float32]:
        """Return what is planted in each example of `index`, float32 [n, steps]."""
        counter = self._counter(index, read)
        classes = self.labels(index, read)
        room = np.array([len(bank) - steps + 1 for bank in self.banks])[classes]
        first = self._draw("start", counter, room)
        pairs = zip(classes.tolist(), first.tolist(), strict=True)
        return np.stack([self.banks[k][begin : begin + steps] for k, begin in pairs])

    def paint(self, images: NDArray[np.int16], index: ArrayLike, read: int = 0) -> None:
        """Mix into int16 `images` [n, 1, T, 1] in place.

        sound <- sound + gain * planted, gain = rms(sound) 10^(-snr / 20); silence around a sound
        does not count to its level. A mixture that would clip is made quieter as a whole.
        """
        sound = images[:, 0, :, 0].astype(np.float32) / 32_768
        planted = self.segments(index, sound.shape[1], read)
        if self.by_peak:
            loud = [x / np.maximum(np.abs(x).max(1, keepdims=True), 1e-6) for x in (sound, planted)]
            mixed = 0.5 * (loud[0] + loud[1])
        else:
            heard = np.maximum((sound != 0).sum(1), 1)
            level = np.sqrt((sound.astype(np.float64) ** 2).sum(1) / heard)
            gain = level * 10 ** (-self.levels(index, read) / 20)
            mixed = sound + gain[:, None].astype(np.float32) * planted
        peak = np.abs(mixed).max(1, keepdims=True)
        mixed = mixed * 32_767 / np.maximum(peak, 32_767 / 32_768)
        images[:, 0, :, 0] = np.rint(mixed).astype(np.int16)


class AudioOverlay(ABC):
    """The options of a feature that is mixed into sounds: the base of their dataclasses."""

    name: ClassVar[str]
    fresh: bool

    @classmethod
    @abstractmethod
    def grades(cls) -> tuple[Self, ...]:
        """Return five, from hard to easy to hear."""

    @abstractmethod
    def draw(self, canvas: Canvas) -> SoundOverlay:
        """Make or read the sound of each class."""


def as_bank(x: NDArray[np.floating], steps: int) -> NDArray[np.float32]:
    """Return a recording as a bank: repeated until it is longer than `steps`, of mean square 1."""
    repeats = -(-(steps + 1) // len(x))
    long = np.tile(x.astype(np.float64), repeats)
    size = np.sqrt((long**2).mean())
    return (long / max(size, 1e-9)).astype(np.float32)
