"""Built-in spoken words: formant synthesis, without download.

Ten words of two vowels each, at a random time in a clip, by six speakers who differ in pitch and in
the length of the vocal tract. A voice is a sum of harmonics of the pitch, weighted by three
resonances that glide from the first vowel to the second. Pitch, tempo and resonances vary between
clips. Training and test clips are different samples of the same words and speakers. Everything is
a function of the split and the index of the clip.

Source: resonances of vowels, Peterson & Barney (1952).
"""

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.data.builtin import shuffled_rows
from widefield.data.examples import Examples, LazyFiles
from widefield.data.readers.recordings import Recordings, to_int16
from widefield.data.spec import Split
from widefield.data.table import Table

# As of a telephone: all resonances below are under 4 kHz.
SAMPLE_RATE = 8000
CLIPS = {"train": 2400, "test": 600}
_VOWELS = {
    "a": (730.0, 1090.0, 2440.0),
    "e": (530.0, 1840.0, 2480.0),
    "i": (270.0, 2290.0, 3010.0),
    "o": (570.0, 840.0, 2410.0),
    "u": (300.0, 870.0, 2240.0),
}
"""Resonances of each vowel, Hz."""
WORDS = ("ai", "au", "ea", "eo", "ia", "iu", "oe", "oi", "ua", "ue")
SPEAKERS = {
    "Ann": (210.0, 1.16),
    "Ben": (110.0, 0.97),
    "Cho": (240.0, 1.22),
    "Dev": (130.0, 1.02),
    "Eva": (185.0, 1.1),
    "Fil": (95.0, 0.92),
}
"""Pitch, Hz, and scale of the resonances."""
_SECONDS, _HARMONICS = 0.5, 36  # chosen by hand
_STEPS = round(_SECONDS * SAMPLE_RATE)
_WORD = 0.55
"""Duration of a word, as a share of a clip. Its random start makes raw pixels a weak baseline."""
# Chosen by hand.
_WIDTH = 90.0
"""Half width of a resonance, Hz."""


def read_spoken(split: Split) -> Examples:
    """Return the clips of a split, with tasks `class` and `speaker`."""
    clips = LazyFiles(CLIPS[split], partial(_clip, split))
    recordings = Recordings(sounds=clips, rate=SAMPLE_RATE)
    return Examples(**vars(_table(split)), recordings=recordings)


@lru_cache
def _table(split: Split) -> Table:
    tasks = {"class": WORDS, "speaker": tuple(SPEAKERS)}
    return shuffled_rows(f"spoken/{split}", CLIPS[split], tasks)


@lru_cache(maxsize=sum(CLIPS.values()))  # shared by a run, its probe and its audit
def _clip(split: Split, row: int) -> NDArray[np.int16]:
    """Synthesize a clip, int16 [T]."""

    def random_factor(stream: str, spread: float) -> float:
        value = rng.integers(0, f"spoken/{split}/{stream}", np.array([row]), 2**16)
        return float(1 + spread * (2 * value[0] / 2**16 - 1))

    labels = _table(split).labels
    word, speaker = (int(labels[task][row]) for task in ("class", "speaker"))
    voice, scale = list(SPEAKERS.values())[speaker]
    length = _WORD * random_factor("tempo", 0.2)
    onset = (1 - length) * (random_factor("place", 0.5) - 0.5)
    progress = np.clip((np.linspace(0, 1, _STEPS) - onset) / length, 0, 1)  # during the word
    pitch = voice * random_factor("pitch", 0.08) * (1.05 - 0.15 * progress)
    glide = 1 / (1 + np.exp(-12 * (progress - 0.5)))
    size = scale * random_factor("size", 0.04)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    resonances = [
        start * size + (end * size - start * size) * glide
        for start, end in zip(*(_VOWELS[vowel] for vowel in WORDS[word]), strict=True)
    ]
    # It is silent before and after the word. The pitch falls, so the last samples are those of a
    # harmonic below half the sampling rate; a higher one would be heard as another.
    voiced = np.flatnonzero((progress > 0) & (progress < 1))[::-1]
    pitch, phase, *resonances = (values[voiced] for values in (pitch, phase, *resonances))
    sound = np.zeros_like(progress)
    sound[voiced] = _voice(pitch, phase, resonances)
    sound *= np.sin(np.pi * progress) ** 0.5  # loudness
    sound *= 0.5 * random_factor("loudness", 0.5) / np.abs(sound).max()
    clip = to_int16(sound.astype(np.float32))
    clip.flags.writeable = False
    return clip


def _voice(
    pitch: NDArray[np.float64], phase: NDArray[np.float64], resonances: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the sum of the harmonics of a rising `pitch` below half the sampling rate."""
    samples = np.zeros_like(phase)
    # sin((h + 1) x) = 2 cos(x) sin(h x) - sin((h - 1) x), faster than a sine for each harmonic.
    twice_cos, before, sine = 2 * np.cos(phase), np.zeros_like(phase), np.sin(phase)
    for harmonic in range(1, _HARMONICS + 1):
        frequency = harmonic * pitch
        frequency = frequency[: np.searchsorted(frequency, 0.48 * SAMPLE_RATE)]
        kept, level = slice(len(frequency)), np.zeros_like(frequency)
        for resonance, weight in zip(resonances, (1.0, 0.6, 0.3), strict=True):
            distance = frequency - resonance[kept]
            distance *= distance
            distance += _WIDTH**2
            level += np.divide(weight * _WIDTH**2, distance, out=distance)
        samples[kept] += level * sine[kept]
        before, sine = sine[kept], twice_cos[kept] * sine[kept] - before[kept]
    return samples
