"""A grammar of windows and sound files: sound ones with the numbers that must be read, and others.

Windows are arrays [n, channels, time] in `.npz` or Parquet; sounds are files of one channel or two.
"""

import io
import random
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
from numpy.typing import NDArray

from pictures import DAMAGE, Check, Rng

RATES = (1_000, 4_000, 8_000, 11_025, 16_000)
"""Samples a second that are kept as they are."""

KINDS = (
    *(("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "PCM_U8")),
    *(("WAV", "FLOAT"), ("WAV", "DOUBLE"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24")),
    *(("AIFF", "PCM_16"), ("WAVEX", "PCM_16"), ("RF64", "PCM_16")),
)
"""Formats and codings that lose nothing but the bits below their last."""

ENDS = (".wav", ".flac", ".ogg", ".aif", ".mp3", ".WAV")
"""Names that a sound file may have, right or not."""


class Sound(NamedTuple):
    """A file, and what must be read of it."""

    content: bytes
    rate: int
    samples: NDArray[np.float64]
    """The mean of its channels without its offset, in [-1, 1]."""
    rounding: float


def sound_file(rng: Rng) -> Sound:
    """Return a file that loses at most the bits below its last."""
    rate, channels = int(rng.choice(RATES)), int(rng.integers(1, 3))
    x = rng.uniform(-0.9, 0.9, (int(rng.integers(300, 1_000)), channels))
    kind, coding = KINDS[rng.integers(len(KINDS))]
    buffer = io.BytesIO()
    soundfile.write(buffer, x, rate, format=kind, subtype=coding)
    rounding = 1 / 128 if coding == "PCM_U8" else 1 / 16_384
    return Sound(buffer.getvalue(), rate, x.mean(axis=1) - x.mean(), rounding)


def odd_sound(rng: Rng) -> bytes:
    """Return a file that may be no sound: damaged, of another kind, or with absurd facts."""
    rate = int(rng.choice([1, 7, 999, 1_000, 44_101, 655_350, 2**31 - 1]))
    x = rng.uniform(-1, 1, (int(rng.integers(0, 600)), int(rng.choice([1, 2, 7, 200]))))
    match int(rng.integers(6)):
        case 0:
            x = np.zeros_like(x)
        case 1:
            x[len(x) // 2 :] = rng.choice([np.nan, np.inf, 1e30])
        case 2:
            return rng.bytes(int(rng.integers(0, 200)))
        case 3:
            return bytes(DAMAGE[rng.integers(len(DAMAGE))](rng, sound_file(rng).content))
    buffer = io.BytesIO()
    soundfile.write(buffer, x, rate, format="WAV", subtype="FLOAT")
    return buffer.getvalue()


def windows(rng: Rng) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return windows and what must be read of them, float32 [n, channels, time]."""
    n, channels, steps = int(rng.integers(4, 9)), int(rng.integers(1, 5)), int(rng.integers(16, 40))
    x = rng.normal(9.81, 3, (n, channels, steps))
    kind = rng.integers(4)
    if kind == 0:
        x = x.astype(rng.choice([np.float16, np.float32, ">f4", ">f8"]))
    elif kind == 1:
        x = np.round(x * 100).astype(rng.choice([np.int16, np.int32, np.int64, ">i2"]))
    elif kind == 2:
        x = np.asfortranarray(x)
    elif channels == 1:
        x = x[:, 0]
    return x, (x[:, None] if x.ndim == 2 else x).astype(np.float32)


def odd_windows(rng: Rng) -> NDArray[Any]:
    """Return an array that is no windows."""
    x = rng.normal(size=(6, 3, 20))
    wrong: list[Any] = [
        np.where(x > 1, np.nan, x),
        np.where(x > 1, np.inf, x),
        x * 1e300,
        x.astype(complex),
        x.astype(str),
        x > 0,
        x.astype("M8[s]"),
        x[:, :, :3],
        x.swapaxes(1, 2),
        x[0, 0],
        x[None],
        x[:0],
        x[:, :0],
        np.float64(3),
    ]
    return np.asarray(wrong[rng.integers(len(wrong))])


def npz(x: NDArray[Any], **tasks: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, windows=x, **tasks)
    return buffer.getvalue()


def parquet(x: NDArray[Any], **tasks: NDArray[Any]) -> bytes:
    columns = {"window": x, **tasks}
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: column.tolist() for name, column in columns.items()}), buffer)
    return buffer.getvalue()


def strange_signal(folder: Path, rng: random.Random) -> tuple[list[str], Check | None]:
    """Put windows or sounds into a folder; return a call that reads them, and what checks it."""
    draw = np.random.default_rng(rng.randrange(2**32))
    seen = None
    if rng.random() < 0.5:
        name = "sounds"
        (folder / name).mkdir()
        for number in range(rng.randrange(1, 4)):
            data = sound_file(draw).content if rng.random() < 0.5 else odd_sound(draw)
            (folder / name / f"{number}{rng.choice(ENDS)}").write_bytes(data)
    else:
        x, seen = windows(draw) if rng.random() < 0.6 else (odd_windows(draw), None)
        name = "w.npz" if seen is None else rng.choice(("w.npz", "w.parquet"))
        data = npz(x) if name == "w.npz" else parquet(x)
        if rng.random() < 0.3:
            data, seen = rng.choice(DAMAGE)(draw, data), None
        (folder / name).write_bytes(data)
    check = None if seen is None else partial(misread, expected=seen)
    return ["embed", "pixels", name, "--out", "seen.npz"], check


def misread(features: Path, expected: NDArray[np.float32]) -> str | None:
    """Return how sound windows were misread, in words; None if they were not."""
    found = np.load(features)["features"]
    same = found.shape == (len(expected), expected[0].size)
    if same and (found == expected.reshape(found.shape)).all():
        return None
    return f"misread: windows {list(expected.shape)} became {list(found.shape)}"
