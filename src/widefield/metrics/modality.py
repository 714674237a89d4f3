"""Sarle's bimodality coefficient of a sample, with a bootstrap interval."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

UNIFORM = 5 / 9
"""The coefficient of a uniform distribution; bimodal samples have more, unimodal ones less."""


@dataclass(frozen=True, slots=True)
class Bimodality:
    """Coefficient of a sample and its 95 % percentile-bootstrap interval.

    Example:
        >>> Bimodality(coefficient=0.8, low=0.6, high=0.9).low > 5 / 9  # no uniform sample
        True
    """

    coefficient: float
    low: float
    high: float


def bimodality_coefficient(values: Tensor) -> float:
    """Return (g^2 + 1) / (k + 3 (n-1)^2 / ((n-2)(n-3))) of values [n].

    g is the sample skewness, k the excess kurtosis. The coefficient is 1/3 for a normal sample, 5/9
    for a uniform one, and near 1 for two points; heavy skew raises it too, so look at the
    histogram. Pfister et al. (2013), "Good things peak in pairs", equation 1. Raises `ValueError`
    for fewer than 4 values, all equal, or not finite.

    Example:
        >>> round(bimodality_coefficient(torch.tensor([0.0, 1.0]).repeat(500)), 2)
        1.0
    """
    values = _check_values(values)
    if values.amax() == values.amin():
        raise ValueError("all values are equal: no coefficient of bimodality is defined")
    return float(_coefficients(values[None]))


def bimodality(
    values: Tensor, *, groups: Tensor | None = None, resamples: int = 1000, seed: int = 0
) -> Bimodality:
    """Return the coefficient of `values` [n] and its interval over bootstrap samples.

    Values of one source, such as views of one image, are not independent: with the group of each
    in `groups` [n], whole groups are resampled. A bootstrap sample of fewer than 4 values, or of
    equal ones, has no coefficient and is left out. Raises `ValueError` as `bimodality_coefficient`
    does, if all values are of one group, and if a value has none.

    Example:
        >>> result = bimodality(torch.linspace(0, 1, 1000))
        >>> result.low < UNIFORM < result.high
        True
    """
    coefficient, values = bimodality_coefficient(values), _check_values(values).cpu()
    groups = torch.arange(len(values)) if groups is None else groups.cpu()
    if groups.shape != values.shape:
        raise ValueError(f"{len(groups)} groups for {len(values)} values: give the group of each")
    samples = [values[rows] for rows in _resampled(groups, resamples, seed)]
    coefficients = torch.cat([_coefficients(s[None]) for s in samples if len(s) >= 4])
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = coefficients[coefficients.isfinite()].quantile(ends).tolist()
    return Bimodality(coefficient=coefficient, low=low, high=high)


def _resampled(groups: Tensor, resamples: int, seed: int) -> Iterator[Tensor]:
    """Yield the rows of a bootstrap sample of groups, once for each resample."""
    _, member, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise ValueError("all values are of one group: give at least two for an interval")
    rows, starts = member.argsort(stable=True), sizes.cumsum(0) - sizes
    generator = torch.Generator().manual_seed(seed)
    for sample in torch.randint(len(sizes), (resamples, len(sizes)), generator=generator):
        size = sizes[sample]
        before = size.cumsum(0) - size  # rows of the groups sampled before
        yield rows[(starts[sample] - before).repeat_interleave(size) + torch.arange(size.sum())]


def _coefficients(samples: Tensor) -> Tensor:
    """Return the coefficient of each row of [m, n]; NaN for rows of equal values."""
    n = samples.shape[1]
    lowest, highest = samples.aminmax(dim=1, keepdim=True)
    samples = (samples - lowest) / (highest - lowest)  # powers of tiny values would underflow
    centered = samples - samples.mean(1, keepdim=True)
    m2, m3, m4 = (centered.pow(p).mean(1) for p in (2, 3, 4))
    # The unbiased forms: G1 and G2 of Joanes and Gill (1998).
    skewness = (n * (n - 1)) ** 0.5 / (n - 2) * m3 / m2**1.5
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (m4 / m2**2 - 3) + 6)
    normal = 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))
    coefficients: Tensor = (skewness.square() + 1) / (kurtosis + normal)
    return coefficients


def _check_values(values: Tensor) -> Tensor:
    if values.ndim != 1 or len(values) < 4:
        raise ValueError(f"values have shape {list(values.shape)}: give [n] with n >= 4")
    if not values.isfinite().all():
        raise ValueError("values contain NaN or infinity")
    return values.detach().double()
