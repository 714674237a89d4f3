"""LiDAR where its eigenvalues are known, and against a generalized eigenproblem."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from widefield.metrics import effective_rank, lidar
from widefield.metrics.lidar import DELTA


def draw(n: int, q: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(n, q, dim, generator=torch.Generator().manual_seed(seed)).double()


def entropy(eigenvalues: np.ndarray) -> float:
    share = eigenvalues / eigenvalues.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def test_diagonal_covariances_give_their_ratios() -> None:
    """Every example has every deviation: the covariances are b_k^2 / D and w_k^2 / D."""
    b, w = torch.tensor([[3.0, 2.0, 1.0, 4.0], [1.0, 0.5, 2.0, 0.1]]).double()
    signs = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    share = DELTA * float((b.square() + w.square()).mean())
    expected = entropy((b.square() / (w.square() + share)).numpy())
    assert lidar((signs * b)[:, None] + signs * w) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "q", "dim"), [(30, 4, 5), (6, 3, 12), (4, 2, 40), (2, 2, 3)])
def test_it_is_the_entropy_of_generalized_eigenvalues(n: int, q: int, dim: int) -> None:
    h = (draw(n, 1, dim) + 0.7 * draw(n, q, dim, seed=1) + 2).numpy()
    means = h.mean(1)
    within = (h - means[:, None]).reshape(-1, dim)
    sigma_b, sigma_w = np.cov(means.T, bias=True), within.T @ within / (n * q)
    sigma_w += DELTA * np.trace(sigma_b + sigma_w) / dim * np.eye(dim)
    eigenvalues = np.sort(scipy.linalg.eigh(sigma_b, sigma_w, eigvals_only=True))[::-1]
    expected = entropy(eigenvalues[: min(n - 1, dim)])
    assert lidar(torch.from_numpy(h)) == pytest.approx(expected, rel=1e-6)


def test_directions_that_change_with_the_view_alone_do_not_count() -> None:
    """Three dimensions tell examples apart; the mean of 40 views of the other three is small."""
    told_apart, noise = draw(200, 1, 3).expand(200, 40, 3), draw(200, 40, 3, seed=1)
    h = torch.cat([told_apart + 0.1 * noise, draw(200, 40, 3, seed=2)], dim=2)
    assert lidar(h) < 3.2
    assert effective_rank(h.flatten(0, 1)) > 5.5


def test_it_does_not_see_rotation_scale_nor_shift() -> None:
    h = draw(20, 3, 6) + 2 * draw(20, 1, 6, seed=1)
    rotation = torch.linalg.qr(draw(1, 6, 6, seed=2)[0]).Q
    for moved in (h @ rotation, 1e-6 * h, 1e6 * h, h + 5):
        assert lidar(moved) == pytest.approx(lidar(h), rel=1e-6)


def test_equal_views_leave_the_rank_of_the_means_and_equal_means_leave_none() -> None:
    means = torch.cat([torch.eye(4), -torch.eye(4)])
    assert lidar(means[:, None].expand(8, 3, 4)) == pytest.approx(4)
    assert lidar(torch.ones(5, 3, 4)) == 0
    assert lidar(draw(1, 8, 4).expand(5, 8, 4)) == 0


@pytest.mark.parametrize("shape", [(5, 4), (5, 1, 4), (1, 5, 4)])
def test_features_without_views_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"give \[n, q, D\] with n, q >= 2"):
        lidar(torch.ones(shape))


def test_features_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        lidar(torch.full((5, 2, 4), torch.nan))
