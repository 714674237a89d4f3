"""Decoding of sound files to mono samples of one rate; needs the extra `[audio]`.

Functions that choose something also return the names of their choices, which `data.notes` counts.
"""

import importlib.util
import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from widefield.data.clips import SILENCE
from widefield.data.readers.recordings import to_int16

if TYPE_CHECKING:
    from soundfile import SoundFile

# Chosen by hand: an hour of stereo floats at 48 kHz is 1.4 GB for each thread.
_MAX_SECONDS = 3_600.0
"""Limit of the duration of a file; longer ones are skipped."""
_BLOCK = 1 << 20
# Chosen by hand: lower rates in a header are damage; telephones have 8,000 Hz.
_MIN_RATE = 1_000
_MAX_SAMPLE = 8.0
"""Limit of the samples of a file with full scale 1: floats and lossy codecs exceed 1."""
_MIN_PEAK, _QUIET_PEAK = 4, 16
"""Smallest peak of a file in 16 bits, and that below which its lowest 16 of 24 bits are kept."""
_GAIN = 256
"""Factor of such a file, 48 dB."""
_NO_LENGTH = 0x7F00_0000
"""Least length in the header of a WAV stream that stands for none, bytes."""
_FIRST_FRAME = 4_096
"""Bytes in which the first frame of an MP3 file begins, unless images precede it."""
_MAX_PAGE = 65_307
"""Maximum size of a page of an Ogg file, bytes."""
_END_OF_STREAM = 4
"""Flag of the last page of a stream."""


class UnreadableError(Exception):
    """A file that cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Header:
    frames: int
    rate: int


def require_audio() -> None:
    for package in ("soundfile", "soxr"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"sounds need the package {package}: pip install 'widefield[audio]'")


def header(path: Path) -> Header:
    import soundfile

    try:
        if path.stat().st_size == 0:
            raise UnreadableError("is empty")
        path.open("rb").close()  # soundfile does not report the reason of a failure
        _check_complete_mp3(path)
        with _open(path) as file:
            info = Header(len(file), file.samplerate)
    except OSError as error:
        raise UnreadableError(error.strerror or "cannot be opened") from None
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        raise UnreadableError("is damaged or has an unknown audio format") from None
    if info.rate < _MIN_RATE:
        raise UnreadableError(f"has a header with {info.rate} samples a second")
    if info.frames < 1:
        raise UnreadableError("has no samples")
    if info.frames >= 2**62:  # a FLAC stream, which soundfile cannot read
        raise UnreadableError("does not state its length: encode it again")
    if info.frames > _MAX_SECONDS * info.rate:
        hours = info.frames / info.rate / 3600
        raise UnreadableError(f"is {hours:.1f} hours long, above 1; cut it into shorter files")
    _check_complete(path)
    return info


def _open(path: Path) -> "SoundFile":
    """Open a file; a WAV stream with a length of 0 gets that of the file."""
    from soundfile import SoundFile

    position = _unset_length(path)
    if position is None:
        return SoundFile(path)
    content = bytearray(path.read_bytes())
    for start in (4, position):  # of the file, and of the samples
        content[start : start + 4] = struct.pack("<I", min(len(content) - start - 4, 2**32 - 1))
    return SoundFile(io.BytesIO(content))


def _unset_length(path: Path) -> int | None:
    """Return the position of the length of the samples in a WAV file, if it is 0 and they exist."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(12)
        if start[:4] != b"RIFF" or start[8:] != b"WAVE":
            return None
        for name, length in _chunks(file):
            if name == b"data":
                position = file.tell() - 4
                other_chunks = size - position - 4 == sum(8 + n + n % 2 for _, n in _chunks(file))
                return None if length or other_chunks else position
    return None


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield name and length of each chunk from the position of `file` on."""
    while len(head := file.read(8)) == 8:
        name, length = struct.unpack("<4sI", head)
        yield name, length
        file.seek(length + length % 2, io.SEEK_CUR)


def _check_complete(path: Path) -> None:
    """Check that a file is as long as its header says.

    WAV and AIFF store their length, and Ogg marks its last page.
    """
    with path.open("rb") as file:
        start = file.read(12)
    if start[:4] == b"OggS":
        _check_complete_ogg(path)
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        (size,) = struct.unpack("<I", start[4:8])
    elif start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        (size,) = struct.unpack(">I", start[4:8])
    else:
        return
    missing = size + 8 - path.stat().st_size
    # Streams that were not closed have a length of 0, 2 or 4 GB in the header.
    if size < _NO_LENGTH and missing > 1:
        raise UnreadableError(f"is cut short by {missing} bytes")


def _check_complete_ogg(path: Path) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2 * _MAX_PAGE))
        end = file.read()
    page = end[end.rfind(b"OggS") :]
    sizes = page[27 : 27 + page[26]] if len(page) > 27 else b""
    is_whole = len(page) > 27 and len(page) >= 27 + page[26] + sum(sizes)
    if not is_whole or not page[5] & _END_OF_STREAM:
        raise UnreadableError("is cut short: its last page is missing")


def _check_complete_mp3(path: Path) -> None:
    """Check that an MP3 file is as long as its first frame says, if it does.

    The frame has the number of bytes after "Xing" or "Info" if its second flag is set. Without this
    check, the decoder returns what is left and warns on standard error. Files that are MP3 may have
    any suffix.
    """
    with path.open("rb") as file:
        start = file.read(_FIRST_FRAME)
    if start[:4] in (b"RIFF", b"RF64", b"FORM", b"OggS", b"fLaC"):
        return
    positions = [position for tag in (b"Xing", b"Info") if (position := start.find(tag)) >= 0]
    head = start[min(positions) : min(positions) + 16] if positions else b""
    if len(head) < 16:
        return
    flags, one, two = struct.unpack(">III", head[4:])
    if not flags & 2:
        return
    missing = (two if flags & 1 else one) - path.stat().st_size
    if missing > 0:
        raise UnreadableError(f"is cut short by {missing} bytes")


Waveform = NDArray[np.float32]
Choices = tuple[str, ...]
"""Which of `canceled`, `silent_channel`, `offset` and `loud` a recording is."""

# Chosen by hand: channels of equal sound have a share of k, independent ones of 1, and those of a
# microphone with a swapped wire of nearly 0.
_CANCELED = 0.1
"""Variance of the average of channels that cancel, as a share of that of independent channels."""
_FLAT_SECONDS = 0.05
"""Shortest run of one value that is silence: a period of 20 Hz."""
# Chosen by hand.
_MIN_OFFSET = 0.1
"""Smallest offset that is reported, as a share of the deviation."""


def to_mono(read: Callable[[], Iterator[Waveform]]) -> tuple[Waveform, Choices]:
    """Average the channels that sound, or return the loudest one if they cancel.

        x = sum_c x_c / k, over the k channels with var(x_c) >= 1e-6 max_c var(x_c)

    Independent channels have var(x) = sum_c var(x_c) / k^2. Channels in opposite phase have less
    than a tenth of it: they cancel. `read` yields blocks [samples, channels], a second time for
    those that cancel.
    """
    means, moments, channels = [np.zeros(0, np.float32)], [], 1
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
        for block in read():
            channels = block.shape[1]
            means.append(block.mean(axis=1))
            if channels > 1:
                columns = np.column_stack([block, means[-1]]).astype(np.float64)
                moments.append((len(columns), columns.sum(0), (columns**2).sum(0)))
    average = np.concatenate(means)
    if not moments or not np.isfinite(average).all():
        return average, ()
    count, total, square = (sum(part) for part in zip(*moments, strict=True))
    variance = square / count - (total / count) ** 2
    power, average_power = variance[:-1].clip(0), variance[-1]
    active = power >= SILENCE * power.max()
    k = int(active.sum())
    if k > 1 and average_power * channels**2 < _CANCELED * power[active].sum():
        loudest = int(power.argmax())
        return np.concatenate([block[:, loudest] for block in read()]), ("canceled",)
    if k < channels:
        return average * np.float32(channels / k), ("silent_channel",)
    return average, ()


@np.errstate(over="ignore")  # the caller refuses samples far beyond 1
def without_offset(x: Waveform, rate: int) -> tuple[Waveform, Choices]:
    """Subtract the mean of x, where it sounds: runs of one value become 0.

    Data sets pad recordings with zeros, which keep no part of the offset of the sound.
    """
    least = round(_FLAT_SECONDS * rate)
    flat = _flat(x, least)
    sound = x[~flat]
    if len(sound) < least and flat.any():  # a click in silence has no mean of its own
        return x - np.median(x[flat]), ()
    offset = sound.mean(dtype=np.float64)
    variance = float(sound @ sound) / len(sound) - offset**2
    has_offset = offset**2 > _MIN_OFFSET**2 * variance
    return np.where(flat, np.float32(0), x - np.float32(offset)), ("offset",) if has_offset else ()


def _flat(x: Waveform, least: int) -> NDArray[np.bool_]:
    """Return which samples of x are in runs of one value, of at least `least` samples."""
    same = np.concatenate([[False], x[1:] == x[:-1], [False]])  # as the sample before
    first, last = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2).T
    flat = np.zeros(len(x), dtype=np.bool_)
    is_long = last - first + 1 >= least
    for start, end in zip(first[is_long].tolist(), last[is_long].tolist(), strict=True):
        flat[start : end + 1] = True
    return flat


def decode(path: Path, rate: int) -> tuple[NDArray[np.int16], Choices]:
    """Return the samples of a file at `rate`, mixed to one channel without offset, and how.

    Raises:
        UnreadableError: damaged, silent, or samples that are NaN, infinite or far beyond 1.
    """
    import soundfile

    info = header(path)

    def blocks() -> Iterator[NDArray[np.float32]]:
        with _open(path) as file:
            yield from file.blocks(_BLOCK, dtype="float32", always_2d=True)

    try:
        x, mixing = to_mono(blocks)
    except (soundfile.SoundFileError, RuntimeError, ValueError, OSError):
        raise UnreadableError("is damaged") from None
    if len(x) < info.frames:
        raise UnreadableError(f"is cut short: {len(x)} of {info.frames} samples")
    if not np.isfinite(x).all():
        raise UnreadableError("holds NaN or infinity")
    samples, choices = leveled(x, info.rate, rate)
    if np.abs(samples.astype(np.int32)).max() < _QUIET_PEAK:
        samples, choices = leveled(x * np.float32(_GAIN), info.rate, rate)
        choices = (*choices, "quiet")
    if np.abs(samples.astype(np.int32)).max() < _MIN_PEAK:
        raise UnreadableError(
            f"is silent in 24 bits, with samples up to {np.abs(x).max():.2g}: multiply all files "
            "by one factor, unless it is silence"
        )
    return samples, (*mixing, *choices)


def leveled(x: NDArray[np.float32], old: int, new: int) -> tuple[NDArray[np.int16], Choices]:
    """Return the samples of a waveform without its offset, within full scale and at rate `new`."""
    x, offset = without_offset(x, old)
    peak = float(np.abs(x).max(initial=0))
    if peak == 0:
        raise UnreadableError("is silent" if len(x) else "has no samples")
    if peak > _MAX_SAMPLE:  # in units of integers
        raise UnreadableError(
            f"holds samples up to {peak:.6g}, beyond [-1, 1]: divide them by their full scale, "
            "such as 32768"
        )
    if peak <= 1:
        return to_int16(resample(x, old, new)), offset
    return to_int16(resample(x / np.float32(peak), old, new)), (*offset, "loud")


def resample(x: NDArray[np.float32], old: int, new: int) -> NDArray[np.float32]:
    """Return samples x at another rate, band-limited by soxr; the length is rounded up."""
    if old == new:
        return x
    require_audio()
    import soxr

    out: NDArray[np.float32] = soxr.resample(x, old, new).astype(np.float32)
    length = resampled_length(len(x), old, new)
    return np.pad(out[:length], (0, max(0, length - len(out))))


def resampled_length(frames: int, old: int, new: int) -> int:
    """Return the number of samples at rate `new` of `frames` samples at rate `old`."""
    return -(-frames * new // old)
