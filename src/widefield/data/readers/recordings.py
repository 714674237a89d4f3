"""Recordings as a source: sound files, packs of clips, arrays in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SUFFIXES = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"}
"""Suffixes of sound files."""


@dataclass(frozen=True, kw_only=True)
class Recordings:
    """Sounds before decoding, resampling and cutting: all files, or all mono samples."""

    sounds: Sequence[Path | NDArray[np.int16]]
    """[n]."""
    rate: int = 0
    """Sampling rate of samples, Hz; 0 of files, which state their own."""

    def __len__(self) -> int:
        return len(self.sounds)

    def take(self, rows: NDArray[np.int64]) -> "Recordings":
        return replace(self, sounds=[self.sounds[row] for row in rows.tolist()])


def of_pack(arrays: dict[str, NDArray[np.generic]], source: str) -> Recordings:
    """Read a pack of clips: concatenated `audio`, `offsets` [n + 1] and `sample_rate`."""
    missing = {"offsets", "sample_rate"} - arrays.keys()
    if missing:
        raise ValueError(
            f"{source} holds audio without key {', '.join(map(repr, sorted(missing)))}"
        )
    audio = as_samples(arrays["audio"], "audio")
    if audio.ndim != 1:
        raise ValueError(f"key 'audio' has shape {list(audio.shape)}; expected [samples]")
    clips = [audio[part] for part in split_at(arrays["offsets"], len(audio))]
    return Recordings(sounds=clips, rate=_rate(arrays["sample_rate"]))


def split_at(offsets: NDArray[np.generic], size: int) -> list[slice]:
    """Return the slices between `offsets` [n + 1] of an array with `size` items."""
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise ValueError(
            f"key 'offsets' is {offsets.dtype} {list(offsets.shape)}; expected integers [n + 1]"
        )
    ends = offsets.astype(np.int64)
    if ends[0] < 0 or ends[-1] > size or (np.diff(ends) < 0).any():
        raise ValueError(f"key 'offsets' must rise from 0 to at most {size}, the data's length")
    return [slice(start, end) for start, end in pairwise(ends.tolist())]


def of_array(arrays: dict[str, NDArray[np.generic]], source: str) -> Recordings:
    """Read sounds of one length: `sounds` [n, time] and `sample_rate`."""
    if "sample_rate" not in arrays:
        raise ValueError(f"{source} holds sounds without key 'sample_rate', in Hz")
    samples = as_samples(arrays["sounds"], "sounds")
    if samples.ndim != 2 or 0 in samples.shape:
        raise ValueError(f"key 'sounds' has shape {list(samples.shape)}; expected [n, time]")
    return Recordings(sounds=list(samples), rate=_rate(arrays["sample_rate"]))


def as_samples(x: NDArray[np.generic], key: str) -> NDArray[np.int16]:
    """Return samples as int16; floats are in [-1, 1]."""
    if x.dtype.newbyteorder("=") == np.int16:
        return x.astype(np.int16, copy=False)
    if x.dtype.kind != "f":
        raise ValueError(f"key '{key}' is {x.dtype}; expected int16, or float in [-1, 1]")
    if not np.isfinite(x).all():
        raise ValueError(f"key '{key}' holds values that are not finite (NaN or infinity)")
    if np.abs(x).max(initial=0) > 1:
        raise ValueError(f"key '{key}' is float beyond [-1, 1]; divide it by its greatest value")
    return to_int16(x.astype(np.float32))


def to_int16(x: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return samples in [-1, 1] as int16; other values are clipped."""
    return np.rint(np.clip(x * 32_768, -32_768, 32_767)).astype(np.int16)


def from_int16(x: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return samples as floats in [-1, 1)."""
    return x.astype(np.float32) * np.float32(1 / 32_768)


def _rate(value: NDArray[np.generic]) -> int:
    if value.size != 1 or value.dtype.kind not in "iuf" or not 1_000 <= value.item() <= 384_000:
        raise ValueError(
            f"key 'sample_rate' is {value.tolist()!r}; expected one number of 1,000 to 384,000 Hz"
        )
    return round(float(value.item()))
