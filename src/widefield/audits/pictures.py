"""What an audit shows of features: diagnostics of views, small arrays, and PNG files in base64."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode, on_device
from widefield.core.hardware import choose_device, choose_precision
from widefield.data import Dataset
from widefield.inference.features import FeatureExtractor
from widefield.inference.pictures import recorded, render_examples
from widefield.metrics import firing_rates, nearest_neighbors, singular_values, tsne_map
from widefield.probes.features import batches, features, image_batch
from widefield.report import png
from widefield.views import ViewSettings

# Numbers and sizes are chosen by hand, so that the JSON stays below 1.5 MB, which a test holds.
MAP_IMAGES = 300
ROWS, _NEIGHBORS = 6, 7
"""Images that are shown with neighbors, and neighbors of each."""
ACTIVATION_IMAGES = 64
SOUND_ROWS, SOUND_NEIGHBORS = 5, 2
"""Rows and neighbors of sounds; fewer, because a second of sound takes 20 to 40 kilobytes."""
_MAP_SIDE = 32
"""Longest side of an image in the map, in pixels."""
MAX_EXAMPLES, VIEW_COUNT = 256, 8
"""Examples that views are drawn of, at most, and views of each."""
_BATCH = 64


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


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What figures show of the features of the examples scored."""

    firing: Mapping[str, float]
    """Layer -> share of images on which a neuron is active, mean over its neurons."""
    spectrum: tuple[float, ...]
    """Singular values of the centered features, as shares of the largest."""
    neighbors: tuple[ImageRow, ...]
    """An image, then its nearest neighbors."""
    map: ImageMap | None
    """A t-SNE map of the images; None for fewer than four images."""
    sounds: tuple[SoundRow, ...] = ()
    """A sound, then its nearest neighbors; empty for images and windows."""


def draw_pictures(
    extractor: FeatureExtractor, dataset: Dataset, h: Tensor, *, seed: int
) -> Pictures:
    """Return the pictures of features h [n, D] of a data set."""
    images, sounds = _neighbors(dataset, h)
    return Pictures(
        firing=mean_activation_rates(extractor.build(dataset.images[:1]), dataset),
        spectrum=normalized_spectrum(h),
        neighbors=images,
        map=_image_map(dataset, h, seed=seed),
        sounds=sounds,
    )


def normalized_spectrum(h: Tensor) -> tuple[float, ...]:
    """Return the singular values of features h [n, D] over the largest one, without zeros."""
    sigma = singular_values(h).cpu()
    sigma = sigma[sigma > 0]
    # Without zeros, because the axis is logarithmic; six digits suffice for a figure, and make the
    # JSON a third as long.
    return tuple(float(f"{value:.6g}") for value in (sigma / sigma[:1]).tolist()) or (1.0,)


def _neighbors(dataset: Dataset, h: Tensor) -> tuple[tuple[ImageRow, ...], tuple[SoundRow, ...]]:
    """Return examples spread over `dataset`, each with its nearest neighbors by h [n, D].

    The first are images or windows, the second sounds.
    """
    is_sound = dataset.kind == "sounds"
    count, k = (SOUND_ROWS, SOUND_NEIGHBORS) if is_sound else (ROWS, _NEIGHBORS)
    nearest = nearest_neighbors(h, min(k, len(h) - 1)).cpu().numpy()
    rows = [[row, *nearest[row]] for row in dataset.spread_rows(count).tolist()]
    if is_sound:
        found = [zip(*recorded(dataset, row), strict=True) for row in rows]
        return (), tuple(SoundRow(names=names, wavs=wavs) for names, wavs in found)
    images = (
        ImageRow(
            name=dataset.paths[row[0]], pictures=tuple(map(png, render_examples(dataset, row)))
        )
        for row in rows
    )
    return tuple(images), ()


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


def _image_map(dataset: Dataset, h: Tensor, *, seed: int) -> ImageMap | None:
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


def view_features(extractor: FeatureExtractor, data: Dataset, *, seed: int) -> Tensor:
    """Return the features [n, q, D] of q expert views of each of n examples from all over `data`.

    The views are the same for every encoder, whatever it was trained with.
    """
    images = data.images[data.spread_rows(MAX_EXAMPLES)]
    device = choose_device("auto")
    precision = choose_precision("auto", device)
    draw = ViewSettings.named("expert").build(
        channels=images.shape[3], kind=data.kind, front_end=extractor.front_end
    )
    generator = torch.Generator(device).manual_seed(seed)
    encoder, rows = extractor.build(images), []
    with on_device(encoder, device), eval_mode(encoder):
        for batch in batches(images, _BATCH, device):
            seen = draw(batch, VIEW_COUNT, generator)
            rows.append(torch.stack([features(encoder, x, precision) for x in seen], dim=1))
    return torch.cat(rows)
