"""Data of the figures of an audit: small arrays, and PNG files in base64."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widefield.core.hardware import choose_device
from widefield.core.modes import on_device
from widefield.data import Dataset
from widefield.inference.pictures import recorded, render_examples
from widefield.metrics import (
    firing_rates,
    nearest_neighbors,
    singular_values,
    tsne_map,
)
from widefield.probes.features import image_batch
from widefield.report import png

MAP_IMAGES = 300
ROWS, _NEIGHBORS = 6, 7
"""Images that are shown with neighbors, and neighbors of each."""
ACTIVATION_IMAGES = 64
"""Images on which activations are measured."""
SOUND_ROWS, SOUND_NEIGHBORS = 5, 2
"""Rows and neighbors of sounds; fewer, because a second of sound takes 20 to 40 kilobytes."""
_MAP_SIDE = 32
"""Longest side of an image in the map, in pixels."""


@dataclass(frozen=True, kw_only=True)
class ImageRow:
    """An image, and the images that explain it."""

    name: str
    pictures: tuple[str, ...]
    """PNG files in base64."""


@dataclass(frozen=True, kw_only=True)
class SoundRow:
    """A sound, and the sounds that explain it."""

    names: tuple[str, ...]
    wavs: tuple[str, ...]
    """WAV files in base64."""


@dataclass(frozen=True, kw_only=True)
class ImageMap:
    """Images as points in the plane."""

    task: str | None
    """The task whose classes `groups` are; None if there is none, and all groups are 0."""
    places: tuple[tuple[float, float], ...]
    names: tuple[str, ...]
    groups: tuple[int, ...]
    pictures: tuple[str, ...]
    """PNG files in base64."""


def normalized_spectrum(h: Tensor) -> tuple[float, ...]:
    """Return the singular values of features h [n, D] over the largest one, without zeros."""
    sigma = singular_values(h).cpu()
    sigma = sigma[sigma > 0]
    # Six digits suffice for a figure, and make the JSON a third as long.
    return tuple(float(f"{value:.6g}") for value in (sigma / sigma[:1]).tolist()) or (1.0,)


def neighbor_images(dataset: Dataset, h: Tensor) -> tuple[ImageRow, ...]:
    """Return images spread over `dataset`, each with its nearest neighbors by h [n, D].

    Empty for sounds, for which there is `neighbor_sounds`.
    """
    if dataset.kind == "sounds":
        return ()
    rows = dataset.spread_rows(ROWS)
    nearest = nearest_neighbors(h, min(_NEIGHBORS, len(h) - 1)).cpu().numpy()
    return tuple(
        ImageRow(
            name=dataset.paths[row],
            pictures=tuple(map(png, render_examples(dataset, [row, *nearest[row]]))),
        )
        for row in rows
    )


def neighbor_sounds(dataset: Dataset, h: Tensor) -> tuple[SoundRow, ...]:
    """Return sounds spread over `dataset`, each with its nearest neighbors by h [n, D].

    Empty for images and windows.
    """
    if dataset.kind != "sounds":
        return ()
    nearest = nearest_neighbors(h, min(SOUND_NEIGHBORS, len(h) - 1)).cpu().numpy()
    rows = (recorded(dataset, [row, *nearest[row]]) for row in dataset.spread_rows(SOUND_ROWS))
    return tuple(
        SoundRow(names=tuple(r.name for r in row), wavs=tuple(r.wav for r in row)) for row in rows
    )


def mean_activation_rates(encoder: nn.Module, dataset: Dataset) -> dict[str, float]:
    """Return layer -> share of images on which a neuron is active, mean over its neurons.

    Empty for an encoder whose activation functions are not modules.
    """
    device = choose_device("auto")
    try:
        with on_device(encoder, device):
            rates = firing_rates(encoder, image_batch(dataset.images[:ACTIVATION_IMAGES], device))
    except ValueError:
        return {}
    return {name.removeprefix("backbone."): float(rate.mean()) for name, rate in rates.items()}


def image_map(dataset: Dataset, h: Tensor, *, seed: int) -> ImageMap | None:
    """Map images spread over `dataset` by their features h [n, D]; None for fewer than four."""
    if len(h) < 4:
        return None
    rows = dataset.spread_rows(MAP_IMAGES)
    task = next(iter(dataset.labels), None)
    groups = [0] * len(rows) if task is None else dataset.labels[task][rows].tolist()
    names = [dataset.paths[row] for row in rows]
    if task is not None:
        classes = dataset.classes[task]
        names = [f"{classes[group]}: {name}" for group, name in zip(groups, names, strict=True)]
    points = tsne_map(h[torch.from_numpy(rows).to(h.device)], seed=seed).tolist()
    return ImageMap(
        task=task,
        places=tuple((round(x, 3), round(y, 3)) for x, y in points),
        names=tuple(names),
        groups=tuple(groups),
        pictures=tuple(png(image, _MAP_SIDE) for image in render_examples(dataset, rows)),
    )
