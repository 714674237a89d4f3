import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from widefield.metrics import (
    alpha_req,
    dimension_std,
    effective_rank,
    feature_std,
    large_singular_values,
    participation_ratio,
    rankme,
    singular_values,
    stable_rank,
)

MEASURES = [
    singular_values,
    large_singular_values,
    effective_rank,
    rankme,
    participation_ratio,
    stable_rank,
    alpha_req,
    dimension_std,
    feature_std,
]


def with_singular_values(sigma: Tensor, n: int, dim: int, mean: float = 3.0) -> Tensor:
    """Features [n, dim], not centered, whose centered singular values are `sigma`."""
    generator = torch.Generator().manual_seed(len(sigma))
    left = torch.randn(n, len(sigma), generator=generator, dtype=torch.float64)
    left = torch.linalg.qr(left - left.mean(0))[0]
    right = torch.randn(dim, len(sigma), generator=generator, dtype=torch.float64)
    return left * sigma @ torch.linalg.qr(right)[0].T + mean


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 30), dim=st.integers(1, 30), seed=st.integers(0, 999))
def test_singular_values_are_scipys_of_centered_features(n: int, dim: int, seed: int) -> None:
    h = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, dim)) + 4).float()
    centered = h.double().numpy() - h.double().numpy().mean(0)
    sigma = singular_values(h)
    assert sigma.shape == (min(n, dim),)
    np.testing.assert_allclose(sigma, scipy.linalg.svdvals(centered), atol=2e-5)


@pytest.mark.parametrize(("n", "dim"), [(200, 30), (64, 512)])
def test_constructed_singular_values_are_found(n: int, dim: int) -> None:
    sigma = torch.tensor([9.0, 3.0, 1.0, 0.5, 0.89, 0.01], dtype=torch.float64)
    h = with_singular_values(sigma, n, dim).float()
    found = singular_values(h)
    torch.testing.assert_close(found[:6], sigma.sort(descending=True).values, rtol=1e-4, atol=0)
    assert found[6:].max() < 1e-4
    assert large_singular_values(h) == 3  # 9, 3 and 1 reach 0.9
    assert large_singular_values(h, alpha=0.05) == 5
    assert large_singular_values(h, alpha=1.0) == 1


def test_effective_rank_is_the_exponential_of_scipys_entropy() -> None:
    sigma = torch.tensor([5.0, 2.0, 1.0, 0.1], dtype=torch.float64)
    expected = math.exp(scipy.stats.entropy(sigma.numpy()))
    assert effective_rank(with_singular_values(sigma, 50, 20)) == pytest.approx(expected, rel=1e-5)
    equal = torch.full((7,), 2.0, dtype=torch.float64)
    assert effective_rank(with_singular_values(equal, 50, 20)) == pytest.approx(7, rel=1e-5)


def test_rankme_is_the_same_without_centering() -> None:
    h = with_singular_values(torch.tensor([5.0, 2.0, 1.0], dtype=torch.float64), 50, 20)
    expected = math.exp(scipy.stats.entropy(scipy.linalg.svdvals(h.numpy())))
    assert rankme(h) == pytest.approx(expected, rel=1e-5)
    assert rankme(h) < effective_rank(h)  # the mean dominates
    assert rankme(torch.ones(10, 4)) == pytest.approx(1)


def test_participation_ratio_follows_the_covariance() -> None:
    h = torch.randn(80, 9, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 10)
    covariance = np.cov(h.double().numpy().T)
    expected = np.trace(covariance) ** 2 / np.trace(covariance @ covariance)
    assert participation_ratio(h) == pytest.approx(expected)


def test_stable_rank_is_the_ratio_of_the_two_norms() -> None:
    h = torch.randn(80, 9, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 10) + 5
    centered = h.double().numpy() - h.double().numpy().mean(0)
    expected = np.linalg.norm(centered, "fro") ** 2 / np.linalg.norm(centered, 2) ** 2
    assert stable_rank(h) == pytest.approx(expected)
    assert stable_rank(3 * h - 7) == pytest.approx(expected)
    assert 1 <= stable_rank(h) <= participation_ratio(h) <= 9
    assert stable_rank(torch.ones(10, 4)) == 0


@pytest.mark.parametrize("decay", [0.5, 1.0, 2.5])
def test_alpha_req_is_the_exponent_of_a_power_law(decay: float) -> None:
    eigenvalues = torch.arange(1, 41, dtype=torch.float64) ** -decay
    h = with_singular_values(eigenvalues.sqrt(), 100, 60, mean=0.0)
    assert alpha_req(h) == pytest.approx(decay, rel=1e-3)


def test_alpha_req_is_scipys_regression() -> None:
    h = torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    eigenvalues = np.linalg.eigvalsh(np.cov(h.double().numpy().T))[::-1]
    slope = scipy.stats.linregress(np.log(np.arange(1, 13)), np.log(eigenvalues)).slope
    assert alpha_req(h) == pytest.approx(-slope)


def test_alpha_req_needs_two_directions() -> None:
    with pytest.raises(ValueError, match="fewer than two directions"):
        alpha_req(torch.arange(10.0)[:, None].expand(10, 3))


def test_feature_std_is_one_for_isotropic_features_and_zero_for_equal_ones() -> None:
    h = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0))
    assert feature_std(h) == pytest.approx(1, abs=0.01)
    assert feature_std(h * torch.rand(4000, 1)) == pytest.approx(1, abs=0.01)
    assert feature_std(torch.ones(10, 64)) == pytest.approx(0, abs=1e-9)
    rows = (h[:50] + 1).double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert feature_std(h[:50] + 1) == pytest.approx(np.std(unit, axis=0).mean() * 8)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_centered_measures_ignore_shift_scale_rotation_and_order(
    seed: int, shift: float, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(40, 8, generator=generator, dtype=torch.float64) * torch.arange(1, 9)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64))[0]
    moved = (scale * h @ rotation + shift)[torch.randperm(40, generator=generator)]
    for measure in (effective_rank, participation_ratio, large_singular_values, alpha_req):
        assert measure(moved) == pytest.approx(measure(h), rel=1e-6)
    assert 1 <= participation_ratio(h) <= effective_rank(h) <= 8


@pytest.mark.parametrize("constant", [0.0, 0.1, -7e5])
def test_equal_rows_have_no_direction(constant: float) -> None:
    h = torch.full((33, 5), constant)
    assert singular_values(h).abs().max() == 0
    assert effective_rank(h) == 0
    assert participation_ratio(h) == 0
    assert large_singular_values(h) == 0


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (torch.ones(1, 4), r"\[1, 4\]"),
        (torch.ones(4), r"\[4\]"),
        (torch.ones(4, 0), r"\[4, 0\]"),
        (torch.full((4, 2), torch.nan), "NaN"),
    ],
)
def test_other_features_are_refused(measure: object, bad: Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        measure(bad)


@pytest.mark.parametrize("measure", MEASURES)
def test_features_are_left_alone(measure: object) -> None:
    h = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before = h.detach().clone()
    result = measure(h)
    assert torch.equal(h, before)
    assert not getattr(result, "requires_grad", False)


def test_dimension_std_says_which_dimension_sleeps() -> None:
    h = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    h[:, 3] = 0
    rows = h.double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(dimension_std(h), np.std(unit, axis=0) * math.sqrt(5), rtol=1e-6)
    assert dimension_std(h)[3] == 0
