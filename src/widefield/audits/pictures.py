"""What the pictures of an audit are drawn from: small arrays, and PNG files in base64."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widefield.core.hardware import choose_device
from widefield.core.modes import on_device
from widefield.data import Dataset
from widefield.inference.pictures import pictures_of, recorded
from widefield.metrics import (
    activation_maximization,
    color_axes,
    firing_rates,
    nearest_neighbors,
    singular_values,
    tsne_map,
)
from widefield.probes import Pixels
from widefield.probes.features import image_batch
from widefield.report import png

MAP_IMAGES, ROWS, _NEIGHBORS, FEATURES, EXCITING, FIRING_IMAGES = 300, 6, 7, 8, 4, 64
"""Images in the map; images with neighbors, and neighbors of each; features whose preferred image
is made, and real images beside it; images that neurons fire at."""
HEARD_ROWS, HEARD_BESIDE = 5, 2
"""Sounds with neighbors, and neighbors of each: a second of sound takes 20 to 40 kilobytes."""
STEPS = 128
"""Steps of gradient ascent towards a preferred image."""
_MAP_SIDE = 32
"""Longest side of a picture in the map, in pixels: there are many."""


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """Pictures side by side: the first is what the others explain."""

    name: str
    pictures: tuple[str, ...]
    """PNG files in base64."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "pictures": list(self.pictures)}


@dataclass(frozen=True, kw_only=True)
class SoundRow:
    """Sounds side by side: the first is what the others explain."""

    names: tuple[str, ...]
    wavs: tuple[str, ...]
    """WAV files in base64."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"names": list(self.names), "wavs": list(self.wavs)}


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

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "places": [list(place) for place in self.places]}


def spectrum_shares(h: Tensor) -> tuple[float, ...]:
    """Return the singular values of features h [n, D] as shares of the largest, without zeros."""
    sigma = singular_values(h).cpu()
    sigma = sigma[sigma > 0]
    # Six digits are more than a figure shows, and a third of the JSON.
    return tuple(float(f"{share:.6g}") for share in (sigma / sigma[:1]).tolist()) or (1.0,)


def neighbor_rows(dataset: Dataset, h: Tensor) -> tuple[PictureRow, ...]:
    """Return images from all over `dataset`, each with the images nearest to it by h [n, D].

    Sounds give none: `neighbor_sounds` lets them be heard.
    """
    if dataset.kind == "sounds":
        return ()
    rows = dataset.spread_rows(ROWS)
    nearest = nearest_neighbors(h, min(_NEIGHBORS, len(h) - 1)).cpu().numpy()
    return tuple(
        PictureRow(
            name=dataset.paths[row],
            pictures=tuple(map(png, pictures_of(dataset, [row, *nearest[row]]))),
        )
        for row in rows
    )


def neighbor_sounds(dataset: Dataset, h: Tensor) -> tuple[SoundRow, ...]:
    """Return sounds from all over `dataset`, each with the sounds nearest to it by h [n, D].

    Images and windows, which cannot be listened to, give none.
    """
    if dataset.kind != "sounds":
        return ()
    nearest = nearest_neighbors(h, min(HEARD_BESIDE, len(h) - 1)).cpu().numpy()
    rows = (recorded(dataset, [row, *nearest[row]]) for row in dataset.spread_rows(HEARD_ROWS))
    return tuple(
        SoundRow(names=tuple(r.name for r in row), wavs=tuple(r.wav for r in row)) for row in rows
    )


def mean_firing(encoder: nn.Module, dataset: Dataset) -> dict[str, float]:
    """Return layer -> share of images on which a neuron is active, mean over its neurons.

    An encoder without activations that are modules of their own gives an empty dictionary.
    """
    device = choose_device("auto")
    try:
        with on_device(encoder, device):
            rates = firing_rates(encoder, image_batch(dataset.images[:FIRING_IMAGES], device))
    except ValueError:
        return {}
    return {name.removeprefix("backbone."): float(rate.mean()) for name, rate in rates.items()}


def preferred_rows(
    encoder: nn.Module, dataset: Dataset, h: Tensor, *, seed: int
) -> tuple[PictureRow, ...]:
    """Return a made image for each feature of h [n, D] that varies most, and real images with it.

    Raw pixels give none: what excites a pixel is plain. Nor do windows and sounds, for which no
    prior says what a made one should look like.
    """
    if isinstance(encoder, Pixels) or dataset.kind != "images":
        return ()
    device = choose_device("auto")
    x = image_batch(dataset.images[:FIRING_IMAGES], device)
    units = h.std(0).topk(min(FEATURES, h.shape[1])).indices.tolist()
    with on_device(encoder, device):
        made = activation_maximization(
            encoder,
            units,
            shape=(x.shape[1], x.shape[2], x.shape[3]),
            color=color_axes(x),
            steps=STEPS,
            seed=seed,
        )
    shown = (255 * made).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    exciting = h[:, units].topk(min(EXCITING, len(h)), dim=0).indices.cpu().numpy()
    return tuple(
        PictureRow(
            name=f"feature {unit}",
            pictures=(png(shown[i]), *(png(dataset.images[row]) for row in exciting[:, i])),
        )
        for i, unit in enumerate(units)
    )


def image_map(dataset: Dataset, h: Tensor, *, seed: int) -> ImageMap | None:
    """Lay out images from all over `dataset` by their features h [n, D]; None below four."""
    if len(h) < 4:
        return None
    rows = dataset.spread_rows(MAP_IMAGES)
    task = next(iter(dataset.labels), None)
    groups = [0] * len(rows) if task is None else dataset.labels[task][rows].tolist()
    names = [dataset.paths[row] for row in rows]
    if task is not None:
        classes = dataset.classes[task]
        names = [f"{classes[group]}: {name}" for group, name in zip(groups, names, strict=True)]
    places = tsne_map(h[torch.from_numpy(rows).to(h.device)], seed=seed).tolist()
    return ImageMap(
        task=task,
        places=tuple((round(x, 3), round(y, 3)) for x, y in places),
        names=tuple(names),
        groups=tuple(groups),
        pictures=tuple(png(image, _MAP_SIDE) for image in pictures_of(dataset, rows)),
    )
