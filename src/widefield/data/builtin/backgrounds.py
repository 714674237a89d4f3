"""Recordings of background sounds, by class, for `+background`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.data.decode.sounds import decode, in_parallel, resample
from widefield.data.examples import Examples
from widefield.data.readers.arrays import read_npz
from widefield.data.readers.images import read_folder
from widefield.data.readers.recordings import from_int16


def read_background(source: Path, rate: int) -> dict[str, list[NDArray[np.float32]]]:
    """Return class -> recordings, float32 at `rate`.

    Raises:
        ValueError: `source` does not exist, has no classes, or a file cannot be read.
    """
    if source.suffix.lower() == ".npz" and source.is_file():
        examples = read_npz(source)
    elif source.is_dir():
        examples = read_folder(source)
    else:
        raise ValueError(
            f"no recordings at '{source}' for '+background'; give a pack or a folder of class "
            "folders"
        )
    task = next(iter(examples.labels), None)
    if examples.recordings is None or task is None or len(examples.classes[task]) < 2:
        raise ValueError(f"'{source}' holds no sounds of two classes or more for '+background'")
    sounds = _decode(examples, rate)
    labels = examples.labels[task].tolist()
    result = {}
    for number, name in enumerate(examples.classes[task]):
        parts = [sounds[row] for row, label in enumerate(labels) if label == number]
        if parts:
            result[name] = parts
    return result


def _decode(examples: Examples, rate: int) -> list[NDArray[np.float32]]:
    recordings = examples.recordings
    assert recordings is not None
    if recordings.clips is not None:
        assert recordings.rate is not None
        source_rate = recordings.rate
        return [resample(from_int16(clip), source_rate, rate) for clip in recordings.clips]
    files = recordings.files
    assert files is not None
    done, failed = in_parallel(
        lambda row: decode(files[row], rate)[0], examples.names, range(len(files))
    )
    if failed:
        first = next(iter(failed.values()))
        raise ValueError(f"'{first.path}' for '+background' {first.reason}; remove or repair it")
    return [from_int16(done[row]) for row in range(len(files))]
