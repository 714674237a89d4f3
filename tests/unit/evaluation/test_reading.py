"""What labels tell of an encoder beside pixels and itself untrained."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.evaluation.gain import compare_with_untrained
from widefield.evaluation.paired import Change
from widefield.evaluation.reading import Reading, read_labels

CPU = torch.device("cpu")
COUNT, SIDE = 300, 8


def texture(labels: bool = True) -> Dataset:
    """Noise as images, whose class is whether it is smooth."""
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 2, COUNT)
    noise = rng.normal(size=(COUNT, SIDE, SIDE))
    smooth = (
        noise + np.roll(noise, 1, 1) + np.roll(noise, 1, 2) + np.roll(noise, (1, 1), (1, 2))
    ) / 2
    pixels = np.where(rough[:, None, None] == 1, noise, smooth)
    images = np.clip(128 + 30 * pixels, 0, 255).astype(np.uint8)[..., None].repeat(3, 3)
    return open_dataset({"x": images} | ({"class": rough} if labels else {}))


class Roughness(nn.Module):
    """A linear map of the mean square difference between neighbors; not useful: of mean pixels."""

    def __init__(self, useful: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.useful = useful

    def forward(self, x: Tensor) -> Tensor:
        gray = 4 * (x.mean(1) - 0.5)
        down, across = gray.diff(dim=1).square(), gray.diff(dim=2).square()
        if not self.useful:
            down, across = gray, gray
        means = [t.flatten(1).mean(1) for t in (down, across, gray, gray)]
        h: Tensor = self.linear(torch.stack(means, 1))
        return h


def reading(trained: Tensor, untrained: list[Tensor], raw: Tensor) -> Reading:
    return read_labels(texture(), trained, untrained, raw, seed=0)["class"]


def features(share: float, seed: int) -> Tensor:
    """Features that show the class of this share of the images."""
    rng = np.random.default_rng(seed)
    y = np.asarray(texture().labels["class"])
    shown = np.where(rng.random(COUNT) < share, y, rng.integers(0, 2, COUNT))
    return torch.from_numpy(np.stack([shown, rng.normal(size=COUNT)], 1)).float()


def test_what_is_above_both_floors_is_said_to_be_above() -> None:
    found = reading(features(0.9, 1), [features(0.2, 2)], features(0.3, 3))
    assert found.below() == []
    assert "surely" not in found.line("class")


@pytest.mark.parametrize(
    ("untrained", "raw", "below"),
    [
        (0.2, 0.95, "surely below raw pixels"),
        (0.95, 0.2, "surely below itself untrained"),
        (0.95, 0.95, "surely below itself untrained and raw pixels"),
        (0.7, 0.2, "not surely above itself untrained"),
        (0.95, 0.7, "surely below itself untrained, not surely above raw pixels"),
    ],
)
def test_what_is_not_above_a_floor_is_named(untrained: float, raw: float, below: str) -> None:
    found = reading(features(0.7, 1), [features(untrained, 2)], features(raw, 3))
    assert found.line("class").endswith(f": {below}")


def test_the_better_start_of_the_untrained_encoder_counts() -> None:
    starts = [features(0.1, 2), features(0.9, 4), features(0.2, 5)]
    found = reading(features(0.7, 1), starts, features(0.1, 3))
    assert found.untrained.before > 0.85
    assert found.untrained.word != "gained"


def test_without_labels_no_start_is_even_asked_for() -> None:
    def asked() -> Tensor:
        raise AssertionError

    starts = (asked() for _ in range(1))
    assert read_labels(texture(labels=False), features(1, 0), starts, features(1, 0), seed=0) == {}


def test_a_line_says_the_numbers_that_were_found() -> None:
    up = Change(before=0.314, after=0.402, low=0.05, high=0.15)
    down = Change(before=0.507, after=0.402, low=-0.2, high=-0.01)
    assert Reading(untrained=up, pixels=down).line("kind") == (
        "a linear probe reads kind: 40 %, untrained 31 %, raw pixels 51 %: surely below raw pixels"
    )


def test_an_encoder_is_read_beside_its_floors() -> None:
    """Smoothness shows in squares of differences; pixels and their sums do not have it."""
    found = compare_with_untrained(Roughness(), texture(), seed=0, device=CPU)
    assert found is not None
    assert found.labels["class"].pixels.word == "gained"
    control = compare_with_untrained(Roughness(useful=False), texture(), seed=0, device=CPU)
    assert control is not None
    assert control.labels["class"].pixels.word != "gained"
    assert control.lines()[1:] == [control.labels["class"].line("class")]
    assert "labels of a few images" not in control.lines()[0]


def test_labels_that_were_trained_on_do_not_judge() -> None:
    found = compare_with_untrained(Roughness(), texture(), seed=0, device=CPU, labels_unseen=False)
    assert found is not None
    assert found.labels == {}
    assert len(found.lines()) == 1
