"""Mix the channels of a recording to one waveform, without offset and within full scale.

Each function also returns the names of its choices, which `data.notes` counts.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from widefield.data.clips import SILENCE

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
_NOTED_OFFSET = 0.1
"""Smallest offset that is reported, as a share of the deviation."""


def to_mono(read: Callable[[], Iterator[Waveform]]) -> tuple[Waveform, Choices]:
    """Average the channels that sound, or return the loudest one if they cancel.

        x = sum_c x_c / k, over the k channels with var(x_c) >= 1e-6 max_c var(x_c)

    Independent channels have var(x) = sum_c var(x_c) / k^2. Channels in opposite phase have less
    than a tenth of it: they cancel. `read` yields blocks [samples, channels], a second time for
    those that cancel.
    """
    averages, moments, channels = [np.zeros(0, np.float32)], [], 1
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
        for block in read():
            channels = block.shape[1]
            averages.append(block.mean(axis=1))
            if channels > 1:
                columns = np.column_stack([block, averages[-1]]).astype(np.float64)
                moments.append((len(columns), columns.sum(0), (columns**2).sum(0)))
    average = np.concatenate(averages)
    if not moments or not np.isfinite(average).all():
        return average, ()
    count, total, square = (sum(part) for part in zip(*moments, strict=True))
    variance = square / count - (total / count) ** 2
    power, together = variance[:-1].clip(0), variance[-1]
    sounding = power >= SILENCE * power.max()
    k = int(sounding.sum())
    if k > 1 and together * channels**2 < _CANCELED * power[sounding].sum():
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
    noted = offset**2 > _NOTED_OFFSET**2 * variance
    return np.where(flat, np.float32(0), x - np.float32(offset)), ("offset",) if noted else ()


def _flat(x: Waveform, least: int) -> NDArray[np.bool_]:
    """Return which samples of x are in runs of one value, of at least `least` samples."""
    same = np.concatenate([[False], x[1:] == x[:-1], [False]])  # as the sample before
    first, last = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2).T
    flat = np.zeros(len(x), dtype=np.bool_)
    is_long = last - first + 1 >= least
    for start, end in zip(first[is_long].tolist(), last[is_long].tolist(), strict=True):
        flat[start : end + 1] = True
    return flat
