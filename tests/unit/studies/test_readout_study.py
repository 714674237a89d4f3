"""The data and the arithmetic of the comparison of wide features with their floors."""

from typing import Any

import numpy as np

from studies.readout import (
    READOUT_FLOORS,
    SQUARE,
    features_of,
    hues,
    probed,
    with_square,
)
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
    made = with_square(plain, seed=0)
    places = made.labels["place"]
    assert set(places) == {0, 1, 2, 3}
    for before, after, place in zip(plain.images, made.images, places, strict=True):
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
    sets = train, test
    found = features_of(build_encoder("resnet-tiny", image_size=16, seed=0), sets)
    assert found["control"][0].shape == found["wide"][0].shape
    accuracy = {kind: probed(h, sets)["place"] for kind, h in found.items()}
    assert accuracy["wide"] > 95
    assert accuracy["control"] < accuracy["wide"] - 10


def _runs(wide: float) -> dict[str, Any]:
    return {
        "d, raw pixels": {"class, pixels, %": 50, "class, majority class, %": 10},
        "d, e, untrained": {"class, pooled, %": 40, "class, wide, %": 60, "class, control, %": 0},
        "d, e, labels": {"class, pooled, %": 58, "class, wide, %": wide, "class, control, %": 55},
    }


def _holds(runs: dict[str, Any]) -> list[bool]:
    return [finding.value(runs) > 0 for finding in READOUT_FLOORS.findings]


def test_the_floor_is_the_best_of_four_and_the_findings_are_beside_it() -> None:
    """Wide features one point below the floor are near it, and four points are not."""
    wide, _, control = (finding.value(_runs(59)) for finding in READOUT_FLOORS.findings)
    assert (wide, control) == (2 + 59 - 60, 60 - 55 - 2)
    assert _holds(_runs(59)) == [True, True, True]
    assert _holds(_runs(56)) == [False, False, True]
