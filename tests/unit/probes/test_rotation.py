"""Rotations of images, predicted by a linear probe."""

import numpy as np
import pytest
import torch
from torch import Tensor

from widefield.probes.label_free import FeatureFunction, Images, rotation_accuracy

COUNT, SIDE = 90, 8


def shaded(up: bool, width: int = SIDE) -> Images:
    """Noise, with a bright edge above if it has a way `up`."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, SIDE, width, 3), dtype=np.uint8)
    if up:
        images[:, :2] = 255
    return images


def rows(images: Images) -> Tensor:
    """The mean of each edge's two lines: above, below, left, right."""
    x = torch.from_numpy(images).float().mean(3)
    edges = (x[:, :2], x[:, -2:], x[:, :, :2], x[:, :, -2:])
    return torch.stack([edge.mean((1, 2)) for edge in edges], 1)


def blind(images: Images) -> Tensor:
    """What is the same at every turn."""
    x = torch.from_numpy(images).float()
    return torch.stack([x.mean((1, 2, 3)), x.std((1, 2, 3))], 1)


def share(images: Images, features: FeatureFunction = rows) -> float:
    found = rotation_accuracy(features(images), features, images, seed=0)
    assert found.shape == (len(images),)
    assert set(np.unique(found * 4)) <= {0, 1, 2, 3, 4}
    return float(found.mean())


def test_every_rotation_is_predicted_where_images_are_upright() -> None:
    assert share(shaded(up=True)) == 1


@pytest.mark.parametrize(("up", "features"), [(False, rows), (True, blind)])
def test_the_controls_are_at_chance(up: bool, features: FeatureFunction) -> None:
    """Images without a way up, and features that do not show it."""
    assert share(shaded(up), features) == pytest.approx(0.25, abs=0.1)


def test_images_that_are_not_square_are_rotated_by_180_degrees() -> None:
    images = shaded(up=True, width=2 * SIDE)
    shapes = []

    def seen(x: Images) -> Tensor:
        shapes.append(x.shape)
        return rows(x)

    assert rotation_accuracy(rows(images), seen, images, seed=0).mean() == 1
    assert shapes == [images.shape]
