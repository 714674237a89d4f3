"""Built-in spoken words: formant synthesis, without download.

Ten words of two vowels each, at a random time in a clip, by six speakers who differ in pitch and in
the length of the vocal tract. A voice is a sum of harmonics of the pitch, weighted by three
resonances that glide from the first vowel to the second. Pitch, tempo and resonances vary between
clips. Training and test clips are different samples of the same words and speakers. Everything is
a function of the split and the index of the clip.

Source: resonances of vowels, Peterson & Barney (1952).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.data.builtin import shuffled_rows
from widefield.data.examples import Examples
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
_CHUNK = 8
"""Clips that are synthesized at a time: they stay in the processor's cache."""
_STEPS = round(_SECONDS * SAMPLE_RATE)
_WORD = 0.55
"""Duration of a word, as a share of a clip. Its random start makes raw pixels a weak baseline."""
# Chosen by hand.
_WIDTH = 90.0
"""Half width of a resonance, Hz."""


def read_spoken(split: Split) -> Examples:
    """Return the clips of a split, with tasks `class` and `speaker`."""
    table = _table(split)
    return Examples(**vars(table), recordings=Recordings(clips=[*_clips(split)], rate=SAMPLE_RATE))


def _table(split: Split) -> Table:
    tasks = {"class": WORDS, "speaker": tuple(SPEAKERS)}
    return shuffled_rows(f"spoken/{split}", CLIPS[split], tasks)


@lru_cache(maxsize=2)  # training and test clips, shared by a run, its probe and its audit
def _clips(split: Split) -> tuple[NDArray[np.int16], ...]:
    number, labels = np.arange(CLIPS[split]), _table(split).labels
    clips: list[NDArray[np.int16]] = []
    for first in range(0, len(number), _CHUNK):
        part = slice(first, first + _CHUNK)
        clips.extend(
            _synthesize(split, number[part], labels["class"][part], labels["speaker"][part])
        )
    for clip in clips:
        clip.flags.writeable = False
    return tuple(clips)


def _synthesize(
    split: Split,
    number: NDArray[np.int64],
    word: NDArray[np.int64],
    speaker: NDArray[np.int64],
) -> NDArray[np.int16]:
    """Return clips int16 [k, T]."""

    def vary(stream: str, spread: float) -> NDArray[np.float64]:
        share = rng.integers(0, f"spoken/{split}/{stream}", number, 2**16) / 2**16
        return (1 + spread * (2 * share - 1))[:, None]

    time = np.linspace(0, 1, _STEPS)[None]
    params = np.array(list(SPEAKERS.values()))[speaker]
    length = _WORD * vary("tempo", 0.2)
    onset = (1 - length) * (vary("place", 0.5) - 0.5)
    progress = np.clip((time - onset) / length, 0, 1)  # from 0 to 1 during the word
    loudness = np.sin(np.pi * progress) ** 0.5
    pitch = params[:, :1] * vary("pitch", 0.08) * (1.05 - 0.15 * progress)
    glide = 1 / (1 + np.exp(-12 * (progress - 0.5)))
    size = params[:, 1:] * vary("size", 0.04)
    first, second = (np.array([_VOWELS[name[i]] for name in WORDS])[word] * size for i in (0, 1))
    phase = 2 * np.pi * np.cumsum(pitch, axis=1) / SAMPLE_RATE
    resonances = [
        start[:, None] + (end - start)[:, None] * glide
        for start, end in zip(first.T, second.T, strict=True)
    ]
    # It is silent before and after the word. By pitch, the samples of a harmonic below half the
    # sampling rate come first; a higher one would be heard as another.
    clip, step = np.nonzero((progress > 0) & (progress < 1))
    order = np.argsort(pitch[clip, step])
    spoken = clip[order], step[order]
    pitch, phase, *resonances = (values[spoken] for values in (pitch, phase, *resonances))
    samples = np.zeros_like(phase)
    for harmonic in range(1, _HARMONICS + 1):
        frequency = harmonic * pitch
        frequency = frequency[: np.searchsorted(frequency, 0.48 * SAMPLE_RATE)]
        heard, level = slice(len(frequency)), np.zeros_like(frequency)
        for resonance, weight in zip(resonances, (1.0, 0.6, 0.3), strict=True):
            level += weight / (1 + ((frequency - resonance[heard]) / _WIDTH) ** 2)
        samples[heard] += level * np.sin(harmonic * phase[heard])
    sound = np.zeros_like(progress)
    sound[spoken] = samples
    sound *= loudness
    peak = np.abs(sound).max(axis=1, keepdims=True)
    return to_int16((0.5 * vary("loudness", 0.5) * sound / peak).astype(np.float32))
