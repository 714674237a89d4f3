"""Sound files to mono samples of one rate, in parallel; needs the extra `[audio]`."""

import importlib.util
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.cpus import usable_cpus
from widefield.core.names import printable
from widefield.core.types import ProgressCallback
from widefield.data.readers.recordings import to_int16
from widefield.data.skipped import Skipped

_LONGEST = 3_600.0
"""Seconds; a longer file is skipped unread."""
_BLOCK = 1 << 20
_LOWEST_RATE = 1_000
_LOUDEST = 2.0
"""Greatest sample of a file whose full scale is 1: codecs that lose bits and sums go beyond 1."""
_FIRST_FRAME = 4_096
"""Bytes in which the first frame of an MP3 file begins, unless pictures come before it."""
_LARGEST_PAGE = 65_307
"""Bytes of a page of an Ogg file, at most."""
_END_OF_STREAM = 4
"""Flag of a page that is the last of its stream."""


class Unreadable(Exception):
    """A file that cannot be used, with the reason in words."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a sound file says of itself."""

    frames: int
    rate: int
    channels: int


def need_audio() -> None:
    """Refuse to go on without the packages that read sounds.

    Raises:
        ValueError: one is not installed.
    """
    for package in ("soundfile", "soxr"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"sounds need the package {package}: pip install 'widefield[audio]'")


def header(path: Path) -> Header:
    """Return what the file says of itself.

    Raises:
        Unreadable: it is no sound file, or holds nothing that can be used.
    """
    import soundfile

    try:
        if path.stat().st_size == 0:
            raise Unreadable("is empty")
        path.open("rb").close()  # soundfile does not say why it cannot
        _refuse_cut_mp3(path)
        with soundfile.SoundFile(path) as opened:
            found = Header(len(opened), opened.samplerate, opened.channels)
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be opened") from None
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        raise Unreadable("is damaged or no sound of a known kind") from None
    if found.rate < _LOWEST_RATE:
        raise Unreadable(f"says that it has {found.rate} samples a second")
    if found.frames < 1:
        raise Unreadable("holds no samples")
    if found.frames > _LONGEST * found.rate:
        hours = found.frames / found.rate / 3600
        raise Unreadable(f"is {hours:.1f} hours long, above 1; cut it into shorter files")
    _refuse_cut_short(path)
    return found


def _refuse_cut_short(path: Path) -> None:
    """Refuse a file that ends before it says: what is left may not be what its name says.

    WAV and AIFF say how long they are, and Ogg marks its last page.
    """
    with path.open("rb") as opened:
        start = opened.read(12)
    if start[:4] == b"OggS":
        _refuse_cut_ogg(path)
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        (promised,) = struct.unpack("<I", start[4:8])
    elif start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        (promised,) = struct.unpack(">I", start[4:8])
    else:
        return
    missing = promised + 8 - path.stat().st_size
    # Streams that were never closed promise 0 or 4 GB and hold what there is.
    if promised < 2**32 - 2**20 and missing > 1:
        raise Unreadable(f"is cut short by {missing} bytes")


def _refuse_cut_ogg(path: Path) -> None:
    """Refuse an Ogg file whose last page is not whole, or not marked as the last of its stream."""
    with path.open("rb") as opened:
        opened.seek(max(0, path.stat().st_size - 2 * _LARGEST_PAGE))
        end = opened.read()
    page = end[end.rfind(b"OggS") :]
    sizes = page[27 : 27 + page[26]] if len(page) > 27 else b""
    is_whole = len(page) > 27 and len(page) >= 27 + page[26] + sum(sizes)
    if not is_whole or not page[5] & _END_OF_STREAM:
        raise Unreadable("is cut short: its last page is missing")


def _refuse_cut_mp3(path: Path) -> None:
    """Refuse an MP3 file that is shorter than its first frame says, where that says anything.

    The frame names a number of bytes after "Xing" or "Info", if the second of its flags is set.
    Without this check the decoder plays what is left, and warns on standard error.
    """
    if path.suffix.lower() != ".mp3":
        return
    with path.open("rb") as opened:
        start = opened.read(_FIRST_FRAME)
    places = [place for tag in (b"Xing", b"Info") if (place := start.find(tag)) >= 0]
    head = start[min(places) : min(places) + 16] if places else b""
    if len(head) < 16:
        return
    flags, one, two = struct.unpack(">III", head[4:])
    if not flags & 2:
        return
    missing = (two if flags & 1 else one) - path.stat().st_size
    if missing > 0:
        raise Unreadable(f"is cut short by {missing} bytes")


def decode(path: Path, rate: int) -> NDArray[np.int16]:
    """Return the samples of a file, channels averaged, at `rate`.

    Raises:
        Unreadable: it is damaged, silent, or holds numbers that are not finite or far beyond 1.
    """
    import soundfile

    found = header(path)
    try:
        with soundfile.SoundFile(path) as opened:
            parts = [
                block.mean(axis=1)
                for block in opened.blocks(_BLOCK, dtype="float32", always_2d=True)
            ]
    except (soundfile.SoundFileError, RuntimeError, ValueError, OSError):
        raise Unreadable("is damaged") from None
    x = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    if len(x) < found.frames:
        raise Unreadable(f"is cut short: {len(x)} of {found.frames} samples")
    if not np.isfinite(x).all():
        raise Unreadable("holds NaN or infinity")
    _refuse_other_scale(x)
    samples = to_int16(resample(x, found.rate, rate))
    if not samples.any():
        raise Unreadable("is silent")
    return samples


def _refuse_other_scale(x: NDArray[np.float32]) -> None:
    """Refuse floats in units of integers, which would all be clipped."""
    peak = float(np.abs(x).max(initial=0))
    if peak > _LOUDEST:
        raise Unreadable(
            f"holds samples up to {peak:.6g}, beyond [-1, 1]: divide them by their full scale, "
            "such as 32768"
        )


def resample(x: NDArray[np.float32], old: int, new: int) -> NDArray[np.float32]:
    """Return samples x at another rate, band-limited by soxr; its length is rounded up.

    Raises:
        ValueError: the extra `[audio]` is not installed.
    """
    if old == new:
        return x
    need_audio()
    import soxr

    out: NDArray[np.float32] = soxr.resample(x, old, new).astype(np.float32)
    wanted = resampled_length(len(x), old, new)
    return np.pad(out[:wanted], (0, max(0, wanted - len(out))))


def resampled_length(frames: int, old: int, new: int) -> int:
    """Return how many samples at rate `new` there are of `frames` at rate `old`."""
    return -(-frames * new // old)


def in_parallel(
    work: Callable[[int], Any],
    names: Sequence[str],
    rows: Sequence[int],
    progress: ProgressCallback | None = None,
) -> tuple[dict[int, Any], dict[int, Skipped]]:
    """Call `work` for each of `rows` on all processors; return results and failures by row."""
    done: dict[int, Any] = {}
    failed: dict[int, Skipped] = {}

    def guarded(row: int) -> Any:
        try:
            return work(row)
        except Unreadable as error:
            return error

    with ThreadPoolExecutor(usable_cpus()) as pool:
        for count, (row, result) in enumerate(zip(rows, pool.map(guarded, rows), strict=True), 1):
            if isinstance(result, Unreadable):
                failed[row] = Skipped(names[row], printable(str(result)))
            else:
                done[row] = result
            if progress is not None and (count % 32 == 0 or count == len(rows)):
                progress(count, len(rows))
    return done, failed
