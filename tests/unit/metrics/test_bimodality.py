import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.metrics import bimodality, bimodality_coefficient


@settings(max_examples=50, deadline=None)
@given(n=st.integers(4, 60), seed=st.integers(0, 999), power=st.integers(1, 3))
def test_it_follows_scipys_unbiased_moments(n: int, seed: int, power: int) -> None:
    values = np.random.default_rng(seed).normal(size=n) ** power
    skewness = scipy.stats.skew(values, bias=False)
    kurtosis = scipy.stats.kurtosis(values, bias=False)
    expected = (skewness**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))
    assert bimodality_coefficient(torch.from_numpy(values)) == pytest.approx(expected, rel=1e-9)


def test_known_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    assert bimodality_coefficient(torch.randn(40000, generator=generator)) == pytest.approx(
        1 / 3, abs=0.01
    )
    assert bimodality_coefficient(torch.rand(40000, generator=generator)) == pytest.approx(
        5 / 9, abs=0.01
    )
    heaps = torch.cat([torch.randn(500, generator=generator) - 6, torch.randn(500) + 6])
    assert bimodality_coefficient(heaps) > 0.85


def test_the_interval_is_scipys_bootstrap() -> None:
    values = np.random.default_rng(0).beta(0.5, 0.4, size=300)
    found = bimodality(torch.from_numpy(values), resamples=1500)

    def statistic(x: np.ndarray, axis: int) -> np.ndarray:
        n = x.shape[axis]
        g = scipy.stats.skew(x, axis=axis, bias=False)
        k = scipy.stats.kurtosis(x, axis=axis, bias=False)
        return (g**2 + 1) / (k + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))

    theirs = scipy.stats.bootstrap(
        (values,), statistic, n_resamples=1500, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.low < found.coefficient < found.high
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    assert bimodality(torch.from_numpy(values)) == bimodality(torch.from_numpy(values))


def clustered(groups: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Values that differ much from group to group and little within one."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.rand(int(groups.max()) + 1, generator=generator)
    return centers[groups] + 0.02 * torch.randn(len(groups), generator=generator)


def test_groups_of_like_values_widen_the_interval() -> None:
    groups = torch.arange(1200) % 64  # of 18 and of 19
    values = clustered(groups)
    apart, together = bimodality(values), bimodality(values, groups=groups)
    assert together.coefficient == apart.coefficient
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


def test_the_interval_over_groups_covers_what_many_groups_show() -> None:
    """Of uniform centers 5/9, less a little for the noise; of 60 intervals 57 should hold it."""
    groups = torch.arange(320) % 64
    found = [
        bimodality(clustered(groups, seed), groups=groups, resamples=100) for seed in range(60)
    ]
    truth = bimodality_coefficient(clustered(torch.arange(100_000)))
    assert truth == pytest.approx(5 / 9, abs=0.01)
    assert sum(one.low <= truth <= one.high for one in found) >= 52


def test_groups_of_one_value_each_change_nothing() -> None:
    values = torch.rand(40, generator=torch.Generator().manual_seed(0))
    assert bimodality(values, groups=torch.arange(40) + 7) == bimodality(values)


def test_one_group_is_refused_and_samples_of_few_values_are_left_out() -> None:
    with pytest.raises(ValueError, match="all values are of one group"):
        bimodality(torch.rand(9), groups=torch.zeros(9))
    few = bimodality(torch.tensor([0.0, 1, 2, 4, 5, 9]), groups=torch.tensor([0, 1, 2, 2, 2, 2]))
    assert few.low < few.high


@pytest.mark.parametrize("count", [5, 20])
def test_every_value_has_a_group(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} groups for 9 values"):
        bimodality(torch.rand(9), groups=torch.arange(count))


def test_what_has_no_coefficient_is_refused() -> None:
    with pytest.raises(ValueError, match="all values are equal"):
        bimodality(torch.ones(9))
    with pytest.raises(ValueError, match="n >= 4"):
        bimodality(torch.rand(3))
    with pytest.raises(ValueError, match="NaN"):
        bimodality(torch.tensor([0.0, 1, 2, torch.nan]))


def test_it_has_no_scale() -> None:
    """Resamples of equal values are left out, whatever their mean rounds to."""
    values = torch.tensor([1.0] * 6 + [3.0], dtype=torch.float64)
    expected = bimodality(values)
    for scale in (0.1, 1e-90, 1e90):
        found = bimodality(scale * values)
        assert (found.coefficient, found.low, found.high) == pytest.approx(
            (expected.coefficient, expected.low, expected.high)
        )
