"""Whitened features, against the inverse square root of a covariance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from widefield.metrics import view_agreement, whitened


def features(seed: int, n: int = 40, dim: int = 6) -> Tensor:
    noise = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
    return 5 + noise * torch.logspace(0, -2, dim)


@given(seed=st.integers(0, 10_000), dim=st.integers(1, 8), ridge=st.floats(1e-3, 10))
def test_products_are_those_of_the_inverse_covariance(seed: int, dim: int, ridge: float) -> None:
    h, other = features(seed, dim=dim).double(), features(seed + 1, n=7, dim=dim).double()
    white, seen = whitened(h, other, ridge=ridge)
    covariance = torch.cov(h.T, correction=0).reshape(dim, dim)
    largest = torch.linalg.eigvalsh(covariance)[-1]
    inverse = torch.linalg.inv(covariance + ridge * largest * torch.eye(dim))
    mean = h.mean(0)
    torch.testing.assert_close(white @ white.T, (h - mean) @ inverse @ (h - mean).T)
    torch.testing.assert_close(seen @ white.T, (other - mean) @ inverse @ (h - mean).T)


def test_strong_directions_count_alike_and_weak_ones_less() -> None:
    (white,) = whitened(features(0, n=5000, dim=3), ridge=1e-2)
    std = white.std(0, correction=0)
    assert std[0].item() == pytest.approx((1 / 1.01) ** 0.5, abs=1e-3)
    assert std[1].item() == pytest.approx(0.5**0.5, abs=0.02)  # a variance of ridge l_1
    assert std[2].item() < 0.15


def test_more_features_than_examples() -> None:
    h, views = features(0, n=10, dim=50), features(1, n=10, dim=50)
    white, seen = whitened(h, views, ridge=0.1)
    assert white.shape == seen.shape == (10, 10)
    torch.testing.assert_close(white.mean(0), torch.zeros(10).double())


def test_neighbors_go_by_weak_directions_too() -> None:
    """What is kept through views is the second direction alone; as they are, the first hides it."""
    strong, weak, fresh = (features(seed, n=300, dim=1) - 5 for seed in range(3))
    h, views = torch.cat([10 * strong, weak], 1), torch.cat([10 * fresh, weak], 1)
    h, views = (torch.cat([x, x.square()], 1) for x in (h, views))
    kept = view_agreement(*whitened(h, views, ridge=1e-3), 10).mean()
    assert kept > view_agreement(h, views, 10).mean() + 0.02


@pytest.mark.parametrize("value", [0.0, 0.3, 1e6])
def test_constant_features_become_zeros(value: float) -> None:
    h = torch.full((30, 5), value)
    for white in whitened(h, h + 1, ridge=0.1):
        assert white.shape == (30, 5)
        assert not white.any()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="have widths 6 and 5: give those of one encoder"):
        whitened(features(0), features(0, dim=5), ridge=0.1)
    with pytest.raises(ValueError, match="contain NaN or infinity"):
        whitened(features(0) / 0, ridge=0.1)
