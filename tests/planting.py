"""A feature drawn on images, without a data set."""

from types import SimpleNamespace

import numpy as np

from widefield.data.plant import draw
from widefield.data.planted import Canvas


def plant(images, feature, *, seed=0, index=None, held_out=False):
    """Return a copy of uint8 images [n, H, W, C] with the feature, its labels, classes and mask."""
    overlay = draw(feature, Canvas(shape=images.shape[1:], seed=seed, held_out=held_out))
    index = np.arange(len(images)) if index is None else np.asarray(index)
    result = np.array(images, order="C")
    mask = overlay.apply(result, index)
    return SimpleNamespace(
        images=result, labels=overlay.labels(index), classes=overlay.classes, mask=mask
    )
