"""Before and after: encoders that are the same, better by design, or ruined."""

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.encoders import Encoder, build_encoder
from widefield.probes import pixels
from widefield.probes.compare import compare, compare_with_baseline
from widefield.probes.comparison import Comparison
from widefield.probes.label_free import Images

CPU = torch.device("cpu")


class Colors(nn.Module):
    """Mean of each channel of images [B, 3, H, W], and what a fixed network makes of their rest.

    Args:
        weight: how much the means count.
        noise: how much of each feature is drawn anew from the pixels, whatever they show.
    """

    def __init__(self, weight: float, noise: float = 0.0) -> None:
        super().__init__()
        self.weight, self.noise = weight, noise
        self.network = build_encoder(
            "resnet-tiny", image_size=16, zero_init_last=False, seed=0
        ).eval()

    def forward(self, x: Tensor) -> Tensor:
        h = self.network(x - x.mean((2, 3), keepdim=True) + 0.5)
        h = torch.cat([h / h.norm(dim=1, keepdim=True), self.weight * x.mean((2, 3))], dim=1)
        chaos = torch.frac(1e4 * torch.sin(1e4 * h.cumsum(1)))
        return (1 - self.noise) * h + self.noise * chaos


def data(n: int = 99, *, labels: bool = True) -> Dataset:
    """Noise in one of three colors, which is the class."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = rng.integers(0, 200, (n, 16, 16, 3))
    x[np.arange(n), :, :, y] += 15
    return open_dataset({"x": x.astype(np.uint8), **({"y": y} if labels else {})})


def compared(start: nn.Module, encoder: nn.Module, images: Dataset) -> Comparison:
    found = compare_with_baseline(encoder, images, initial=start, seed=0, device=CPU)
    assert found is not None
    return found


def test_the_same_encoder_is_no_different() -> None:
    encoder = Colors(1.0)
    found = compared(encoder, copy.deepcopy(encoder), data())
    same = "no significant difference"
    assert (found.verdict, found.without_labels) == (same, same)
    assert found.cka == pytest.approx(1.0)
    for score in (*found.label_free.values(), *found.planted.values(), *found.linear.values()):
        assert (score.low, score.high) == (0, 0)


def test_features_of_the_class_are_better_and_their_loss_is_worse() -> None:
    blind, seeing = Colors(0.0), Colors(1.0)
    gained = compared(blind, seeing, data())
    assert gained.verdict == "better"
    assert gained.linear["y"].verdict == gained.knn["y"].verdict == "higher"
    lost = compared(seeing, blind, data())
    assert lost.verdict == "worse"
    assert lost.linear["y"].difference == pytest.approx(-gained.linear["y"].difference)


@pytest.mark.parametrize("labels", [True, False])
def test_ruined_features_are_refused(labels: bool) -> None:
    start = Colors(1.0)
    for ruined in (Colors(1.0, noise=1.0), _constant()):
        found = compared(start, ruined, data(labels=labels))
        assert found.verdict == found.without_labels == "worse"


def _constant() -> Encoder:
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0).eval()
    for parameter in encoder.parameters():
        parameter.data.zero_()
    return encoder


def test_labels_that_were_trained_on_say_nothing() -> None:
    found = compare_with_baseline(
        Colors(0.0), data(), initial=Colors(1.0), seed=0, device=CPU, use_labels=False
    )
    assert found is not None
    assert (found.linear, found.knn) == ({}, {})


def test_few_images_and_rare_classes_are_left_out() -> None:
    assert compare_with_baseline(Colors(1), data(20), initial=Colors(1), seed=0, device=CPU) is None
    rare = data(60)
    rare.labels["y"][:] = np.arange(60) // 5  # classes of five: too few for three folds
    assert compared(Colors(1), Colors(1), rare).linear == {}


def test_what_is_planted_already_is_not_planted_again() -> None:
    planted = open_dataset("photos+shapes", max_examples=60, image_size=16)
    assert "shapes" not in compared(Colors(1), Colors(1), planted).planted


def test_it_is_written_as_it_is_told(tmp_path: Path) -> None:
    found = compared(Colors(0.0), Colors(1.0), data())
    found.write(tmp_path / "comparison.json")
    values = json.loads((tmp_path / "comparison.json").read_text())
    assert values["verdict"] == "better"
    assert values["linear"]["y"]["after"] == found.linear["y"].after
    verdict, *lines = found.lines()
    assert verdict == f"better than the initial encoder: {found.reason}"
    consistency = found.label_free["neighbor_consistency"]
    assert lines[0] == f"neighbor consistency under augmentation: {consistency.line()}"
    assert any(line.startswith("linear-probe accuracy (y): ") for line in lines)


def shows(share: float) -> Callable[[Images], Tensor]:
    """Return features that show the class of this share of the images, beside noise."""
    rng = np.random.default_rng(round(100 * share))
    y = np.arange(300) % 3
    known = np.where(rng.random(300) < share, y, rng.integers(0, 3, 300))
    h = np.concatenate([np.eye(3)[known], rng.normal(size=(300, 12))], axis=1)
    return lambda images: torch.from_numpy(h).float()


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (0.5, 0.9)])
def test_swapping_the_encoders_swaps_better_and_worse(low: float, high: float) -> None:
    images, labels = data(300).images, {"y": np.arange(300) % 3}
    a, b = shows(low), shows(high)
    compared = partial(compare, images=images, labels=labels, plants=())
    forth, back = compared(a, b), compared(b, a)
    assert (forth.verdict, back.verdict) == ("better", "worse")
    assert forth.linear["y"].verdict == "higher"
    assert back.linear["y"].verdict == "lower"
    assert compared(a, a).verdict == "no significant difference"


def test_another_encoder_is_compared_without_labels_and_plants() -> None:
    images = data(labels=False).images
    found = compare(pixels, lambda x: torch.ones(len(x), 3), images, baseline="other")
    assert (found.verdict, found.health) == ("worse", ("healthy", "collapsed"))
    assert found.text == "worse than the other encoder"
    assert (found.planted, found.linear, found.cka) == ({}, {}, None)
    control = compare(pixels, pixels, images, baseline="other")
    assert control.verdict == "no significant difference"
    assert control.cka == pytest.approx(1)
