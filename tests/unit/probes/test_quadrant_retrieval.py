"""Opposite quadrants of images, retrieved by their features."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from widefield.probes.label_free import RIDGE, FeatureFunction, Images, quadrant_retrieval

COUNT, SIDE = 60, 8


def tinted(height: int = SIDE, width: int = SIDE) -> Images:
    """Noise in the red and, all over an image, one tint in the two other channels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (COUNT, height, width, 3), dtype=np.uint8)
    angle = 2 * np.pi * np.arange(COUNT) / COUNT
    images[..., 1:] = (128 + 100 * np.stack([np.sin(angle), np.cos(angle)], 1))[:, None, None]
    return images


def tint(images: Images) -> Tensor:
    return torch.from_numpy(images).float()[..., 1:].mean((1, 2))


def noise(images: Images) -> Tensor:
    return torch.from_numpy(images).float()[..., 0].flatten(1)


def dead(images: Images) -> Tensor:
    return torch.ones(len(images), 3)


@pytest.mark.parametrize("sides", [(SIDE, SIDE), (9, 7), (6, 12)])
def test_quadrants_are_retrieved_by_what_all_of_an_image_shows(sides: tuple[int, int]) -> None:
    images = tinted(*sides)
    shapes = set()

    def seen(x: Images) -> Tensor:
        shapes.add(x.shape)
        return tint(x)

    assert quadrant_retrieval(seen, images, 1).tolist() == [1.0] * COUNT
    assert shapes == {images.shape}


@pytest.mark.parametrize("features", [noise, dead])
def test_the_controls_are_at_chance(features: FeatureFunction) -> None:
    """Features of what each part has for itself, and none."""
    found = quadrant_retrieval(features, tinted(), 6)
    assert found.mean() == pytest.approx(6 / COUNT, abs=0.06)


def test_every_pixel_is_in_one_quadrant_and_seen_four_times() -> None:
    images = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1).repeat(2, 0)
    shown = []

    def seen(x: Images) -> Tensor:
        shown.append(x)
        return torch.ones(len(x), 1)

    quadrant_retrieval(seen, images, 1)
    assert len(shown) == 4
    assert np.bincount(np.stack(shown)[:, 0].ravel()).tolist() == [4] * 64
    assert shown[1][0, :2, :2, 0].tolist() == [[4, 4], [4, 4]]
    assert shown[2][0, 0, 0, 0] == 32


def inverse_root(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (C + RIDGE l_1)^(-1/2) of the covariance C of x [n, D], l_1 its largest eigenvalue."""
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True).reshape(x.shape[1], -1))
    root: NDArray[np.float64] = vectors / np.sqrt(values + RIDGE * values[-1]) @ vectors.T
    return root


@given(seed=st.integers(0, 10_000), k=st.integers(1, 7), dim=st.integers(1, 3))
def test_shares_are_those_of_ranks_counted_one_by_one(seed: int, k: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.integers(-2, 3, (7, dim)).astype(float) for _ in range(4)]
    turn = iter(parts)
    found = quadrant_retrieval(
        lambda _: torch.from_numpy(next(turn)), np.zeros((7, 2, 2, 3), np.uint8), k
    )
    white = inverse_root(np.concatenate(parts))
    centered = [(part - np.concatenate(parts).mean(0)) @ white for part in parts]
    norms = [np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in centered]
    unit = [part / norm for part, norm in zip(centered, norms, strict=True)]
    expected = np.zeros(7)
    for a, b in ((0, 3), (3, 0), (1, 2), (2, 1)):
        for i in range(7):
            cosine = unit[b] @ unit[a][i]
            nearer = sum(c > cosine[i] + 1e-9 for c in cosine)
            as_near = sum(abs(c - cosine[i]) <= 1e-9 for c in cosine)
            places = range(nearer, nearer + as_near)  # which of them it takes is chance
            expected[i] += sum(place < k for place in places) / as_near / 4
    assert found == pytest.approx(expected)
