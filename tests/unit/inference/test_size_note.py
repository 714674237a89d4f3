"""Images much smaller than those of the weights are told, with the remedy."""

from pathlib import Path

import numpy as np
import pytest

import widefield
from made_weights import resnet_file
from widefield.data import open_dataset
from widefield.encoders import Encoder, build_encoder
from widefield.inference.initial_weights import open_init


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of an architecture that timm trains at 224 pixels."""
    return f"{resnet_file(tmp_path_factory.mktemp('weights') / 'a.safetensors')}@resnet10t"


def told(encoder: str | Encoder, side: int, **settings: int) -> list[str]:
    """Return the notes on sizes."""
    images = np.random.default_rng(0).integers(0, 256, (2, side, side, 3)).astype(np.uint8)
    notes = list[str]()
    widefield.embed(encoder, images, on_note=notes.append, quiet=True, **settings)
    return [note for note in notes if "is for images of" in note]


@pytest.mark.parametrize(("side", "count"), [(32, 1), (111, 1), (112, 0)])
def test_less_than_half_of_the_size_is_told(weights: str, side: int, count: int) -> None:
    notes = told(weights, side)
    assert len(notes) == count
    assert all("224 pixels" in x and f"have {side}" in x and "image_size=224" in x for x in notes)


def test_nothing_is_told_of_a_size_that_was_chosen(weights: str) -> None:
    assert told(weights, 32, image_size=48) == []


def test_nothing_is_told_of_an_encoder_of_this_size() -> None:
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    assert told(encoder, 16) == []


def test_nothing_is_told_of_a_network_whose_size_nobody_knows(tmp_path: Path) -> None:
    """It takes images of 48 pixels or more, of which 224 are only the first that are tried."""
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 48), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    assert told(f"{file}:build", 64) == []
    images = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3)).astype(np.uint8)
    dataset = open_dataset(images)
    notes = open_init(f"{file}:build", download=False).adapted(dataset).notes
    assert not any("image_size" in note for note in notes)


@pytest.mark.parametrize(("side", "hinted"), [(32, True), (112, False)])
def test_a_run_from_these_weights_says_so_too(weights: str, side: int, hinted: bool) -> None:
    dataset = open_dataset(np.zeros((4, side, side, 3), np.uint8))
    notes = open_init(weights, download=False).adapted(dataset).notes
    (note,) = [x for x in notes if "continues at" in x]
    assert ("image_size=224" in note) == hinted
