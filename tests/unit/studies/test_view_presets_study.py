"""The generated images of the comparison of views: what their labels change, and its arithmetic."""

import numpy as np
import pytest

from studies import scenes
from studies.scenes import KINDS
from studies.view_presets import VIEW_PRESETS, gain


def drawn(kind: str, *labels: int) -> np.ndarray:
    """Draw an image of a kind; all but its labels is the same at every call."""
    return KINDS[kind][0](np.random.default_rng(0), *labels)


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_those_of_the_seed_and_every_class_occurs(kind: str) -> None:
    made = scenes.scenes(kind, 30, seed=1)
    assert made.images.shape == (30, 32, 32, 1 if kind == "x-rays" else 3)
    assert (made.images == scenes.scenes(kind, 30, seed=1).images).all()
    assert (made.images != scenes.scenes(kind, 30, seed=2).images).any()
    assert {task: len(names) for task, names in made.classes.items()} == KINDS[kind][1]


def test_a_stain_changes_color_and_chromatin_the_light() -> None:
    red, green, _ = np.moveaxis(drawn("cells", 0, 1, 0) - drawn("cells", 3, 1, 0), 2, 0)
    assert red.sum() > 0 > green.sum()  # hematoxylin absorbs more red, eosin more green
    pale, dark = (drawn("cells", 1, chromatin, 0) for chromatin in (0, 2))
    assert (pale >= dark - 1e-9).all()
    assert (pale > dark + 0.1).any()


def test_spots_are_on_their_sides() -> None:
    left, right = (abs(drawn("x-rays", spot, 1, 1) - drawn("x-rays", 0, 1, 1)) for spot in (1, 2))
    middle = scenes.SIDE
    assert left[:, :middle].sum() > 50 * left[:, middle:].sum()
    assert right[:, middle:].sum() > 50 * right[:, :middle].sum()


def test_a_page_is_turned_by_half_a_turn() -> None:
    """But for shade and noise, which stay where they are."""
    upright, turned = drawn("documents", 0, 1, 0), drawn("documents", 0, 1, 1)
    error = [abs(np.rot90(turned, k) - upright).mean() for k in range(4)]
    assert error[2] < 0.5 * min(error[0], error[1], error[3])


def test_a_gain_is_the_mean_difference_of_its_labels() -> None:
    runs = {
        "views for them @ cells": {"a, %": 60.0, "b, %": 80.0},
        "default views @ cells": {"a, %": 50.0, "b, %": 81.0},
    }
    assert gain("cells", "a, %")(runs) == 10
    assert gain("cells", "a, %", "b, %")(runs) == (10 - 1) / 2


def test_every_label_has_a_finding_beside_that_of_wide_features() -> None:
    assert len(VIEW_PRESETS.findings) == sum(len(labels) + 1 for _, labels in KINDS.values())
