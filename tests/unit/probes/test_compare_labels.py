"""Linear-probe accuracy of an encoder beside raw pixels and itself untrained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.probes.compare import compare, compare_with_baseline
from widefield.probes.comparison import Comparison
from widefield.probes.label_free import Images
from widefield.probes.paired import PairedDifference

CPU = torch.device("cpu")
COUNT, SIDE = 240, 8


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


def compared(
    trained: Tensor,
    untrained: list[Tensor],
    raw: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    patches: Tensor | None = None,
) -> Comparison:
    """Compare encoders whose features of any images are these."""
    patches = features(0.1, 9) if patches is None else patches
    monkeypatch.setattr("widefield.probes.compare.pixels", lambda images: raw)
    monkeypatch.setattr("widefield.probes.compare.extract", lambda module, images: patches)
    data = texture()
    first, *others = [lambda images, h=h: h for h in untrained]
    return compare(
        first,
        lambda images: trained,
        data.images,
        data.labels,
        others=(others, ()),
        baseline="untrained",
    )


def features(share: float, seed: int) -> Tensor:
    """Features that show the class of this share of the images."""
    rng = np.random.default_rng(seed)
    y = np.asarray(texture().labels["class"])
    shown = np.where(rng.random(COUNT) < share, y, rng.integers(0, 2, COUNT))
    return torch.from_numpy(np.stack([shown, rng.normal(size=COUNT)], 1)).float()


def test_what_is_above_all_floors_is_not_below_any(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared(features(0.9, 1), [features(0.2, 2)], features(0.3, 3), monkeypatch)
    assert found.linear["class"].verdict == found.pixels["class"].verdict == "higher"
    assert "significantly" not in found.lines()[2]


def test_what_is_not_above_the_dictionary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, low, high = features(0.7, 1), features(0.2, 2), features(0.95, 4)
    found = compared(ours, [low], features(0.2, 3), monkeypatch, patches=high)
    assert found.lines()[2].endswith(": significantly below dictionary")
    assert "below a dictionary of patches" in found.answer()


@pytest.mark.parametrize(
    ("untrained", "raw", "below"),
    [
        (0.2, 0.95, "significantly below raw pixels"),
        (0.95, 0.2, "significantly below untrained"),
        (0.95, 0.95, "significantly below untrained and raw pixels"),
        (0.7, 0.2, "not significantly above untrained"),
        (0.95, 0.7, "significantly below untrained, not significantly above raw pixels"),
    ],
)
def test_what_is_not_above_a_floor_is_named(
    untrained: float, raw: float, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compared(features(0.7, 1), [features(untrained, 2)], features(raw, 3), monkeypatch)
    assert found.lines()[2].endswith(f": {below}")


def test_the_better_start_of_the_untrained_encoder_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = [features(0.1, 2), features(0.9, 4), features(0.2, 5)]
    found = compared(features(0.7, 1), starts, features(0.1, 3), monkeypatch)
    assert found.linear["class"].before > 0.85
    assert found.linear["class"].verdict != "higher"


def test_without_labels_no_other_start_is_even_asked_for() -> None:
    def refuse(images: Images) -> Tensor:
        raise AssertionError

    def flat(images: Images) -> Tensor:
        return torch.from_numpy(images.reshape(len(images), -1) / 255).float()

    found = compare(flat, flat, texture().images, others=([refuse], ()), baseline="untrained")
    assert (found.linear, found.knn, found.pixels) == ({}, {}, {})


def test_a_line_says_the_numbers_that_were_found() -> None:
    found = compare_with_baseline(Roughness(), texture(), seed=0, device=CPU)
    assert found is not None
    up = PairedDifference(before=0.314, after=0.402, low=0.05, high=0.15)
    down = PairedDifference(before=0.507, after=0.402, low=-0.2, high=-0.01)
    made = replace(
        found,
        linear={"kind": up},
        pixels={"kind": down},
        dictionary={"kind": up},
        pooled={"kind": 0.38},
    )
    assert made.lines()[2] == (
        "linear-probe accuracy (kind): 40 % (pooled 38 %), untrained 31 %, dictionary 31 %, "
        "raw pixels 51 %: significantly below raw pixels"
    )


def test_an_encoder_is_probed_beside_its_floors() -> None:
    """Smoothness shows in squares of differences; pixels and their sums do not have it."""
    found = compare_with_baseline(Roughness(), texture(), seed=0, device=CPU)
    assert found is not None
    assert found.pixels["class"].verdict == "higher"
    control = compare_with_baseline(Roughness(useful=False), texture(), seed=0, device=CPU)
    assert control is not None
    assert control.pixels["class"].verdict != "higher"
    assert len(control.lines()) == 3
    assert control.lines()[2].startswith("linear-probe accuracy (class): ")
    assert "a few labels" not in control.lines()[1]


def test_labels_that_were_trained_on_do_not_judge() -> None:
    found = compare_with_baseline(Roughness(), texture(), seed=0, device=CPU, use_labels=False)
    assert found is not None
    assert (found.linear, found.knn) == ({}, {})
    assert len(found.lines()) == 2
