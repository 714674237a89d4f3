"""Built-in photos: small crops of the photographs in scikit-image and scikit-learn.

Each of the 16 photographs is a class. It is divided into 3 x 3 cells: the three on the diagonal are
for testing, the other six for training, so that each row and column of cells has both. A crop is a
square window inside one cell, its side between 1/8 and 1/4 of the shorter side of the photograph.
Training and test crops therefore share no pixels. Of three candidate windows for each crop, the one
with the highest contrast is used, because plain sky has no content. Everything is a function of the
photograph, the split and the index of the crop.
"""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from widefield.core import rng
from widefield.core.errors import option
from widefield.data.examples import Examples
from widefield.data.spec import Split

PHOTOS = (
    "astronaut",
    "brick",
    "camera",
    "chelsea",
    "china",
    "coffee",
    "coins",
    "flower",
    "grass",
    "gravel",
    "hubble_deep_field",
    "ihc",
    "moon",
    "motorcycle_left",
    "retina",
    "rocket",
)
_FROM_SCIKIT_LEARN = {"china", "flower"}
# Numbers of crops, candidates and points of the grid are chosen by hand.
_CROPS = {"train": 4_000, "test": 1_000}
# Cells of a grid of 3 x 3: a crop lies within one, so the two splits share no pixel.
_CELLS = {
    "train": ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)),
    "test": ((0, 0), (1, 1), (2, 2)),
}
_CANDIDATES, _GRID = 3, 8
# Windows are an eighth to a quarter of the shorter side of a photograph: pixels of larger crops
# would be interpolated.
_DEFAULT_SIDE, _SMALLEST_SIDE, _LARGEST_SIDE = 32, 16, 64


def read_photos(split: Split = "train", image_size: int | None = None) -> Examples:
    """Cut 4,000 training or 1,000 test crops, RGB uint8 [n, S, S, 3], S = 32 by default."""
    side = _DEFAULT_SIDE if image_size is None else image_size
    if not _SMALLEST_SIDE <= side <= _LARGEST_SIDE:
        raise ValueError(
            f"{option('image_size')} {side} does not suit the built-in photos; "
            f"choose {_SMALLEST_SIDE} to {_LARGEST_SIDE}"
        )
    counts = _counts(split)
    return Examples(
        names=[f"{p}/{i:04d}" for p, count in counts.items() for i in range(count)],
        labels={"class": np.repeat(np.arange(len(PHOTOS)), list(counts.values()))},
        classes={"class": PHOTOS},
        pixels=_crops(split, side).copy(),
    )


def _counts(split: Split) -> dict[str, int]:
    base, extra = divmod(_CROPS[split], len(PHOTOS))
    return {photo: base + (i < extra) for i, photo in enumerate(PHOTOS)}


@lru_cache(maxsize=4)  # training and test crops of two sizes, shared by a run and its probes
def _crops(split: Split, side: int) -> NDArray[np.uint8]:
    crops = []
    for photo, count in _counts(split).items():
        rgb = load_photo(photo)
        for window in windows(photo, np.asarray(rgb), split, count).tolist():
            # Crop first: resizing with a box would use pixels outside the window.
            crop = rgb.crop(window).resize((side, side), Image.Resampling.BICUBIC)
            crops.append(np.asarray(crop))
    return np.stack(crops)


def windows(photo: str, image: NDArray[np.uint8], split: Split, count: int) -> NDArray[np.int64]:
    """Return the first `count` windows of a photograph `image` [H, W, 3].

    int64 [count, 4]: left, top, right, bottom, the last two exclusive.
    """
    candidates = _candidates(photo, image.shape[:2], split, count)
    # Of the candidates the one of most contrast, because many windows are plain, such as sky.
    best = _contrast(image, candidates).argmax(axis=0)
    selected: NDArray[np.int64] = candidates[best, np.arange(count)]
    return selected


def _candidates(photo: str, size: tuple[int, ...], split: Split, count: int) -> NDArray[np.int64]:
    """Return candidate windows for each crop, int64 [candidates, count, 4]."""
    crop = np.arange(_CANDIDATES * count).reshape(_CANDIDATES, count)

    def draw(stream: str, high: int | NDArray[np.int64]) -> NDArray[np.int64]:
        return rng.integers(0, f"photos/{photo}/{split}/{stream}", crop, high)

    smallest, largest = min(size) // 8, min(size) // 4
    side = smallest + draw("side", largest - smallest + 1)
    cell = np.array(_CELLS[split])[draw("cell", len(_CELLS[split]))]
    height, width = size[0] // 3, size[1] // 3
    top = cell[..., 0] * height + draw("top", height - side + 1)
    left = cell[..., 1] * width + draw("left", width - side + 1)
    return np.stack([left, top, left + side, top + side], axis=-1)


def _contrast(image: NDArray[np.uint8], window: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the variance of gray values on a regular grid in each window."""
    left, top, right, _ = np.moveaxis(window, -1, 0)[..., None, None]
    steps = np.arange(_GRID) * (right - left) // _GRID
    points = image[top + np.swapaxes(steps, -1, -2), left + steps]
    variance: NDArray[np.float64] = points.sum(axis=-1).var(axis=(-1, -2))
    return variance


def load_photo(photo: str) -> Image.Image:
    """Return one of `PHOTOS` in RGB."""
    with Image.open(_photo_path(photo)) as image:
        return image.convert("RGB")


def _photo_path(photo: str) -> Path:
    package = "sklearn" if photo in _FROM_SCIKIT_LEARN else "skimage"
    folder = "datasets/images" if photo in _FROM_SCIKIT_LEARN else "data"
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    files = sorted((Path(spec.origin).parent / folder).glob(f"{photo}.*"))
    if not files:
        raise ValueError(f"photograph '{photo}' is missing from {package}; reinstall that package")
    return files[0]
