"""The audit's plants of test images are others than those of training images."""

import numpy as np
import pytest

from widefield.audits.planting import GRADES, MIDDLE
from widefield.data import open_dataset
from widefield.data.planted.digits import Digits
from widefield.inference.splits import TrainTest


def planted(feature: Digits, count: int) -> TrainTest:
    """Equal black images in both splits, so that only the pool can tell their plants apart."""
    black = open_dataset({"x": np.zeros((count, 32, 32, 3), np.uint8)})
    return TrainTest(train=black, test=black).planted(feature, seed=0)


def test_test_images_have_digits_that_no_training_image_has() -> None:
    """At a fixed place and in a fixed color, an image is its digit."""
    splits = planted(Digits(), 600)
    train, test = ({image.tobytes() for image in d.images} for d in (splits.train, splits.test))
    assert len(train) > 300
    assert not train & test


@pytest.mark.parametrize("name", ["digits", "shapes", "letters"])
def test_test_labels_are_drawn_anew(name: str) -> None:
    """From the pool of the training images, equal rows would have equal labels."""
    splits = planted(GRADES[name][MIDDLE], 200)  # type: ignore[arg-type]
    train, test = splits.train.labels[name], splits.test.labels[name]
    classes = len(splits.train.classes[name])
    assert (train == test).mean() < 1 / classes + 0.15
