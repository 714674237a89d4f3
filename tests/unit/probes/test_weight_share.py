"""The share of trained weights that a run from initial weights keeps, without labels."""

import numpy as np
import pytest
import torch
from torch import nn

from widefield.data import Dataset, open_dataset
from widefield.encoders import averaged, build_encoder
from widefield.probes.explained import MIN_EXPLAINED, SHARES, explained, trained_share
from widefield.probes.features import extract

CPU = torch.device("cpu")
IMAGES = np.random.default_rng(0).integers(0, 256, (600, 4, 4, 3), dtype=np.uint8)
"""Independent pixels, of equal variance."""
WIDTH = 12


def linear(seed: int, size: float = 1.0) -> nn.Module:
    """Return h = W x with orthonormal rows of W, which are random: those of two seeds differ."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, WIDTH, bias=False))
    weight = torch.linalg.qr(torch.randn(48, WIDTH, generator=torch.Generator().manual_seed(seed)))
    with torch.no_grad():
        module[1].weight.copy_(size * weight[0].T)  # type: ignore[operator]
    return module


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return open_dataset(IMAGES)


def share_of(end: nn.Module, dataset: Dataset) -> float:
    return trained_share(linear(0), end, dataset, device=CPU)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_an_average_has_the_weights_between(share: float) -> None:
    start, end = (build_encoder("resnet-tiny", seed=seed) for seed in (0, 1))
    first, last = start.state_dict(), end.state_dict()
    for name, weight in averaged(start, end, share).state_dict().items():
        if weight.is_floating_point():
            expected = (1 - share) * first[name] + share * last[name]
            torch.testing.assert_close(weight, expected)
        else:
            assert torch.equal(weight, last[name])


def test_an_average_changes_neither_end() -> None:
    both = [linear(seed) for seed in (0, 1)]
    before = [w.clone() for module in both for w in module.parameters()]
    averaged(both[0], both[1], 0.5)
    after = [w for module in both for w in module.parameters()]
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("size", [0.1, 0.5, 1.0, 4.0])
def test_the_share_is_the_largest_that_keeps_the_features(dataset: Dataset, size: float) -> None:
    """Of an independent end, R^2 = (1 - s)^2 / ((1 - s)^2 + (size s)^2), up to what they share."""
    s = np.array(SHARES)
    expected = (1 - s) ** 2 / ((1 - s) ** 2 + (size * s) ** 2)
    share = share_of(linear(1, size), dataset)
    assert share == SHARES[int(np.flatnonzero(expected >= MIN_EXPLAINED)[0])]


def test_a_larger_share_keeps_less(dataset: Dataset) -> None:
    """The search relies on it."""
    before = extract(linear(0), IMAGES)
    kept = [
        explained(before, extract(averaged(linear(0), linear(1), share), IMAGES))
        for share in SHARES
    ]
    r2 = [found.r2 for found in kept if found is not None]
    assert r2 == sorted(r2)
    assert r2[0] < MIN_EXPLAINED < r2[-1]


def test_training_that_keeps_the_features_is_kept_whole(dataset: Dataset) -> None:
    assert share_of(averaged(linear(0), linear(1), 0.01), dataset) == 1
    assert share_of(linear(0, size=5.0), dataset) == 1  # other units


def test_weights_that_no_average_saves_have_the_smallest_share(dataset: Dataset) -> None:
    assert share_of(linear(1, size=1e4), dataset) == SHARES[-1]


def test_too_few_examples_to_measure_have_a_half() -> None:
    assert share_of(linear(0), open_dataset(IMAGES[:19])) == 0.5
    assert share_of(linear(0), open_dataset(IMAGES[:20])) == 1
