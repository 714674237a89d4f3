"""`widefield views` as a user types it, and the policies for kinds of images."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import widefield
from commands import Command
from widefield.views import build_views

PRESETS = ("microscopy", "xray", "satellite", "documents")


@pytest.fixture
def cells(in_tmp: Path) -> Path:
    """Pale cells of two colors on a bright ground."""
    rng = np.random.default_rng(0)
    Path("cells").mkdir()
    for i in range(24):
        pixels = np.full((24, 24, 3), 235.0)
        pixels[6:18, 6:18] = [[225, 185, 200], [200, 190, 225]][i % 2]
        pixels += rng.normal(0, 4, pixels.shape)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"cells/{i:02}.png")
    return in_tmp


@pytest.mark.usefixtures("cells")
def test_views_are_drawn_to_a_picture_or_a_page(command: Command) -> None:
    words = ["views", "cells", "--views", "expert,microscopy,none"]
    found = json.loads(command.text(*words, "--out", "v.png", "--json"))
    assert [policy["name"] for policy in found["policies"]] == ["expert", "microscopy", "none"]
    assert found["policies"][1]["summary"].startswith("Turn by a multiple of 90 degrees")
    with Image.open("v.png") as picture:
        assert picture.width > 500
    said = command.text(*words, "--out", "v.html", "--examples", "2", "--count", "3")
    assert "microscopy: Turn by a multiple of 90 degrees" in said
    assert "v.html: 2 examples, each with its views beside it" in said
    page = Path("v.html").read_text()
    assert page.count("data:image/png") == 3 * 2 * 4


@pytest.mark.usefixtures("cells")
def test_bad_input(command: Command) -> None:
    words = ["views", "cells", "--out"]
    assert "v.jpg" in command.refused(*words, "v.jpg")
    assert "need a planted object or a trained network" in command.refused(
        *words, "v.png", "--views", "viewmaker"
    )
    assert "did you mean" in command.refused(*words, "v.png", "--views", "microscop")
    assert "expected at least 1" in command.refused(*words, "v.png", "--count", "0")
    command.text(*words, "v.png", "--examples", "1", "--count", "1")
    assert "is already there" in command.refused(*words, "v.png")


def test_sounds_are_drawn_as_spectrograms() -> None:
    rng = np.random.default_rng(0)
    sounds = {"sounds": rng.normal(0, 0.1, (8, 4000)).astype(np.float32), "sample_rate": 8000}
    found = widefield.draw_views(
        {k: np.asarray(v) for k, v in sounds.items()}, views=["waveaug"], examples=2, count=2
    )
    assert [len(row) for row in found.pictures["waveaug"]] == [3, 3]


def test_the_views_of_a_short_run_are_drawn_by_default() -> None:
    assert list(widefield.draw_views("photos", examples=1, count=1).pictures) == ["moderate"]
    noise = np.random.default_rng(0).normal(0, 0.1, (8, 4000)).astype(np.float32)
    sounds = {"sounds": noise, "sample_rate": np.asarray(8000)}
    assert list(widefield.draw_views(sounds, examples=1, count=1).pictures) == ["expert"]


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_policy_for_a_kind_of_images_keeps(name: str) -> None:
    """Of a picture with one bright corner: where it can be, and what color it has."""
    x = torch.full((200, 3, 32, 32), 0.5)
    x[:, 0, :8, :8], x[:, 1:, :8, :8] = 0.7, 0.4
    (view,) = build_views(name)(x, 1, torch.Generator().manual_seed(0))
    red = (view[:, 0] - view[:, 1]).clamp(min=0)
    corners = torch.stack(
        [red[:, :16, :16], red[:, :16, 16:], red[:, 16:, :16], red[:, 16:, 16:]]
    ).mean((2, 3))  # fmt: skip
    kept = corners.sum(0) > 0.001  # not cropped away, and not gray
    places = corners[:, kept].argmax(0).bincount(minlength=4) / kept.sum()
    if name in ("microscopy", "satellite"):
        assert places.min() > 0.15  # all sides are up
    else:
        assert places[0] > 0.95
    limits = {"microscopy": 0.07, "xray": 0.25, "satellite": 0.25, "documents": 0.36}
    level = view.mean((1, 2, 3)) / x.mean((1, 2, 3))
    assert (level - 1).abs().max() < limits[name]
    (expert,) = build_views("expert")(x, 1, torch.Generator().manual_seed(0))
    assert ((expert.mean((1, 2, 3)) / x.mean((1, 2, 3))) - 1).abs().max() > 0.36  # the control


def test_all_eight_turns_are_equally_likely_and_oblong_images_keep_their_shape() -> None:
    square = torch.arange(9.0).reshape(1, 1, 3, 3).repeat(800, 1, 1, 1) / 9
    (view,) = build_views("turn")(square, 1, torch.Generator().manual_seed(0))
    found, counts = torch.unique(view.flatten(1), dim=0, return_counts=True)
    pair = square[0, 0], square[0, 0].flip(1)
    expected = [torch.rot90(m, k, (0, 1)) for m in pair for k in range(4)]
    assert {tuple(row.tolist()) for row in found} == {tuple(m.flatten().tolist()) for m in expected}
    assert counts.min() > 60
    oblong = torch.rand(40, 3, 4, 6)
    (turned,) = build_views("turn")(oblong, 1, torch.Generator().manual_seed(0))
    images = [oblong, oblong.flip(3), oblong.rot90(2, (2, 3)), oblong.rot90(2, (2, 3)).flip(3)]
    assert all(
        any(torch.equal(image[i], turned[i]) for image in images) for i in range(len(oblong))
    )
