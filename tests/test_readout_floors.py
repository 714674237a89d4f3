"""The data and the arithmetic of the comparison of wide features with their floors."""

from typing import Any

import numpy as np
import pytest

from pages import readout
from readout_floors import SQUARE, Sets, _with_square, features_of, hues, probed
from widefield.data import open_dataset
from widefield.encoders import build_encoder


def test_the_hue_is_that_of_most_of_the_saturation() -> None:
    images = np.full((4, 6, 6, 3), 128, np.uint8)  # gray counts nowhere
    colors = [(255, 0, 0), (255, 255, 0), (0, 255, 0), (0, 0, 255)]
    for image, color in zip(images, colors, strict=True):
        image[:2] = color
        image[5, 5] = (0, 255, 255)  # one pixel of another hue
    assert hues(images).tolist() == [0, 1, 2, 4]


def test_a_square_lies_in_its_quadrant_of_the_image() -> None:
    plain = open_dataset("photos", max_examples=64)
    made = _with_square(plain, seed=0)
    assert set(made["place"]) == {0, 1, 2, 3}
    for before, after, place in zip(plain.images, made["x"], made["place"], strict=True):
        y, x = np.nonzero((before != after).any(2))
        assert (set(y // 16), set(x // 16)) == ({place // 2}, {place % 2})
        assert max(np.ptp(y), np.ptp(x)) < SQUARE


def test_the_control_has_the_columns_of_the_wide_readout_and_misses_what_pooling_hides() -> None:
    """The place of a square in noise: readable on a grid, not from averages."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (900, 16, 16, 3), dtype=np.uint8)
    place = rng.integers(4, size=900)
    for image, k in zip(images, place, strict=True):
        image[k // 2 * 8 : k // 2 * 8 + 8, k % 2 * 8 : k % 2 * 8 + 8] //= 2
    arrays = {"x": images, "place": place}
    train, test = (
        open_dataset({name: a[rows] for name, a in arrays.items()})
        for rows in (slice(600), slice(600, None))
    )
    sets = Sets(source=arrays, train=train, test=test)
    found = features_of(build_encoder("resnet-tiny", image_size=16, seed=0), sets)
    assert found["control"][0].shape == found["wide"][0].shape
    accuracy = {kind: probed(h, sets)["place"] for kind, h in found.items()}
    assert accuracy["wide"] > 0.95
    assert accuracy["control"] < accuracy["wide"] - 0.1


def test_the_floor_is_the_best_of_four_and_misses_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(start: str, **accuracy: float) -> dict[str, Any]:
        encoder = "none" if start == "pixels" else "e"
        scores = {kind: {"class": value} for kind, value in accuracy.items()}
        return {"data": "d", "encoder": encoder, "start": start, "seed": 0, "accuracy": scores}

    def result(wide: float) -> dict[str, Any]:
        runs = (
            run("pixels", pixels=0.5, majority=0.1),
            run("untrained", pooled=0.4, wide=0.6, control=0.0),
            run("trained", pooled=0.58, wide=wide, control=0.55),
        )
        return {"runs": dict(enumerate(runs))}

    monkeypatch.setattr(readout, "read", lambda name: result(0.59))
    assert "| 58.0 | 59.0 | 55.0 | 60.0 | untrained, wide | -1.0 |" in readout.floors()
    assert "below the floor in 0 of 1 rows" in readout.criteria()
    assert "below that of pooled features in 0 of 1" in readout.criteria()
    assert "The control is more than 2 points below the floor in 1." in readout.criteria()
    monkeypatch.setattr(readout, "read", lambda name: result(0.56))
    assert "below the floor in 1 of 1 rows" in readout.criteria()
    assert "below that of pooled features in 1 of 1" in readout.criteria()
