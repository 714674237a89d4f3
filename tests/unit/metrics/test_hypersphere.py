import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.preprocessing import normalize

from widefield.metrics import alignment, hypersphere, uniformity


def features(n: int = 60, dim: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)) + 0.5


def test_uniformity_is_scipys_mean_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    h = features()
    expected = math.log(np.exp(-2 * pdist(normalize(h.numpy()), "sqeuclidean")).mean())
    assert uniformity(h) == pytest.approx(expected, rel=1e-5)
    monkeypatch.setattr(hypersphere, "_PAIRS", 60 * 7)  # several chunks, the last one smaller
    assert uniformity(h) == pytest.approx(expected, rel=1e-5)
    assert uniformity(torch.ones(9, 3)) == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.zeros(9, 3)) == 0
    half_dead = torch.cat([h, torch.zeros_like(h)])
    expected = math.log(np.exp(-2 * pdist(normalize(half_dead.numpy()), "sqeuclidean")).mean())
    assert uniformity(half_dead) == pytest.approx(expected, rel=1e-5)


def test_a_uniform_sphere_of_many_dimensions_comes_near_minus_four() -> None:
    h = torch.randn(1500, 400, generator=torch.Generator().manual_seed(0))
    assert uniformity(h) == pytest.approx(-4 + 0.5 * 16 / 400, abs=0.02)  # to second order in 1/D


def test_alignment_is_twice_one_minus_the_cosine() -> None:
    first, second = features(seed=1), features(seed=2)
    cosine = torch.nn.functional.cosine_similarity(first, second)
    assert alignment(first, second) == pytest.approx(float((2 - 2 * cosine).mean()), rel=1e-5)
    assert alignment(first, 3 * first) == pytest.approx(0, abs=1e-12)


def test_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[60, 7\] and \[60, 6\]"):
        alignment(features(), features(dim=6))
    with pytest.raises(ValueError, match="NaN"):
        uniformity(torch.full((4, 2), torch.nan))
