"""Planted features drawn on a canvas: the packs and recordings that they name are read here."""

from collections.abc import Mapping
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from widefield.data import planted
from widefield.data.decode.decoding import in_parallel
from widefield.data.decode.sounds import decode, require_audio, resample
from widefield.data.examples import Examples
from widefield.data.readers.arrays import read_npz
from widefield.data.readers.images import read_folder
from widefield.data.readers.recordings import from_int16


@overload
def draw(feature: planted.ImageFeature, canvas: planted.Canvas) -> planted.Overlay: ...
@overload
def draw(feature: planted.AudioFeature, canvas: planted.Canvas) -> planted.SoundOverlay: ...
@overload
def draw(feature: planted.Appended, canvas: planted.Canvas) -> planted.AppendedChannels: ...
def draw(
    feature: planted.Feature, canvas: planted.Canvas
) -> planted.Overlay | planted.SoundOverlay | planted.AppendedChannels:
    """Draw a feature; the file or folder that its option `source` names is read first."""
    if isinstance(feature, planted.Digits | planted.StackedDigits) and feature.source is not None:
        return feature.draw(canvas, _read_digits(feature.source))
    if isinstance(feature, planted.Background) and feature.source:
        rate = canvas.sound_rate(feature.name)
        return feature.draw(canvas, _read_background(Path(feature.source).expanduser(), rate))
    return feature.draw(canvas)


def _read_digits(source: str) -> planted.DigitPack:
    path = Path(source).expanduser()
    if not path.is_file():
        raise ValueError(f"no digits at '{source}'; expected a .npz pack with images and labels")
    examples = read_npz(path)
    if examples.pixels is None or examples.pixels.shape[-1] != 1 or not examples.labels:
        raise ValueError(f"'{source}' holds no gray digits; expected keys 'images' and 'labels'")
    task = next(iter(examples.labels))
    return planted.DigitPack(examples.pixels[..., 0], examples.labels[task], examples.classes[task])


def _read_background(source: Path, rate: int) -> Mapping[str, list[NDArray[np.float32]]]:
    """Return class -> recordings, float32 at `rate`."""
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
    sounds, labels = _waveforms(examples, rate), examples.labels[task]
    return {
        name: [sounds[row] for row in np.flatnonzero(labels == k)]
        for k, name in enumerate(examples.classes[task])
        if (labels == k).any()
    }


def _waveforms(examples: Examples, rate: int) -> list[NDArray[np.float32]]:
    recordings = examples.recordings
    assert recordings is not None
    if recordings.rate != rate:
        require_audio()

    def read(row: int) -> NDArray[np.float32]:
        sound = recordings.sounds[row]
        if isinstance(sound, Path):
            return from_int16(decode(sound, rate)[0])
        return resample(from_int16(sound), recordings.rate, rate)

    waveforms = []
    for row, found in in_parallel(read, range(len(recordings))):
        if isinstance(found, str):
            name = examples.names[row]
            raise ValueError(f"'{name}' for '+background' {found}; remove or repair it")
        waveforms.append(found)
    return waveforms
