"""Steps of the proof of Feature Dropout's theorem 4.1, and appendix D for other parameters."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from widefield_labs import noise_helps as lab

K, D, M = 3, 4, 4


def gauss(points: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of the standard normal law."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    return torch.from_numpy(x), torch.from_numpy(w / w.sum())


def projected_gradient(u: Tensor, v: Tensor, theta: Tensor) -> Tensor:
    """Return the part of the gradient of feature 0 along its direction."""
    return lab.gradient(theta, u, v)[0][..., 0, 0]


def of_one_pair() -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]:
    """Return the projected gradient as a function of one pair's coordinates along mu_1."""
    g = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, M, K, D, generator=g, dtype=torch.float64)
    theta = 0.5 * torch.randn(K, D, generator=g, dtype=torch.float64)
    at = torch.zeros(M, K, D, dtype=torch.float64)
    at[0, 1, 0] = 1

    def f(a: Tensor, b: Tensor) -> Tensor:
        us, vs = (x * (1 - at) + at * y[..., None, None, None] for x, y in ((u, a), (v, b)))
        return projected_gradient(us, vs, theta)

    return f, u, v


def test_lemma_e3_stein() -> None:
    f, _, v = of_one_pair()
    x, w = gauss(80)
    x.requires_grad_()
    values = f(x, v[0, 1, 0].expand(80))
    (slope,) = torch.autograd.grad(values.sum(), x)
    torch.testing.assert_close((w * x * values).sum(), (w * slope).sum(), rtol=1e-7, atol=1e-9)
    assert abs((w * slope).sum()) > 1e-3


def test_lemma_e7_the_slope_in_the_correlation_is_a_mixed_derivative() -> None:
    f, _, _ = of_one_pair()
    x, w = gauss(60)
    a, xi = (grid.reshape(-1) for grid in torch.meshgrid(x, x, indexing="ij"))
    weight = (w[:, None] * w).reshape(-1)

    def view(alpha: Tensor) -> Tensor:
        return alpha * a + (1 - alpha**2).sqrt() * xi

    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((weight * f(a, view(alpha))).sum(), alpha)
    a.requires_grad_()
    b = view(torch.tensor(0.6, dtype=torch.float64)).detach().requires_grad_()
    (first,) = torch.autograd.grad(f(a, b).sum(), a, create_graph=True)
    (mixed,) = torch.autograd.grad(first.sum(), b)
    torch.testing.assert_close(slope, (weight * mixed).sum(), rtol=1e-6, atol=1e-9)
    assert abs(slope) > 1e-4


@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.9])
def test_lemma_e6_a_small_step_changes_the_angle_by_two_projections(cosine: float) -> None:
    g = torch.Generator().manual_seed(1)
    u, v = torch.randn(2, 50, M, K, D, generator=g, dtype=torch.float64)
    theta = torch.randn(K, D, generator=g, dtype=torch.float64)
    norm, sine = 0.7, math.sqrt(1 - cosine**2)
    theta[0] = norm * torch.tensor([cosine, sine, 0, 0], dtype=torch.float64)
    grad = lab.gradient(theta.expand(50, K, D), u, v)[0]
    step = 1e-6
    angle = torch.acos(lab.alignment(theta - step * grad)[:, 0])
    measured = (angle - math.acos(cosine)) / step
    expected = (sine * grad[:, 0, 0] - cosine * grad[:, 0, 1]) / norm
    torch.testing.assert_close(measured, expected, rtol=1e-3, atol=1e-4)


def test_lemma_e12_more_noise_never_lowers_the_gain_in_alignment() -> None:
    levels = torch.linspace(0, 0.9, 4).double()
    g = torch.Generator().manual_seed(2)
    u, w = torch.randn(2, 40_000, M, K, D, generator=g).double()
    theta = torch.zeros(K, D).double()
    theta[:, 0], theta[:, 1] = 0.5, 0.3
    gains = []
    for level in levels:
        alpha = torch.full((1, K), 0.9).double()
        alpha[:, 1] = level
        grad = lab.gradient(theta, u, lab.correlated(u, w, alpha))[0]
        gains.append(theta[0, 0] * grad[:, 0, 1] - theta[0, 1] * grad[:, 0, 0])
    for less, more in zip(gains[1:], gains, strict=False):
        paired = more - less
        assert paired.mean() > 4 * paired.std() / math.sqrt(len(paired))


@pytest.mark.parametrize("t", [-1.5, 0.0, 0.7, 2.0])
def test_lemma_e13_half_normal_moments(t: float) -> None:
    x = np.linspace(0, 20, 200_001)
    density = 2 * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    counted = np.trapezoid(np.exp(t * x) * density, x)
    assert counted == pytest.approx(2 * math.exp(t**2 / 2) * ndtr(t), rel=1e-7)


def weak_gain(*, weak: float, dominant: int, noisy: int, noise: float = 0.3) -> float:
    """Return how much higher noise brings the alignment of the weak feature, mean of trials."""
    iterations, trials = 120, 8
    alpha = torch.full((iterations, trials, 2, 1 + dominant), 0.95)
    alpha[..., 0] = weak
    alpha[40:, :, 1, 1 : 1 + noisy] = noise
    curves = lab.trajectories(
        alpha,
        pairs=64,
        dimension=10,
        step_size=0.2,
        noise_from=40,
        generator=torch.Generator().manual_seed(3),
    )
    without, with_noise = curves["weak_alignment"][-1].mean(0)
    return float(with_noise - without)


@pytest.mark.parametrize("weak", [0.2, 0.3, 0.5])
def test_noise_helps_at_many_correlations_of_the_weak_feature(weak: float) -> None:
    assert weak_gain(weak=weak, dominant=20, noisy=20) > 0.03
    assert weak_gain(weak=weak, dominant=20, noisy=20, noise=0.95) == 0


def test_noise_helps_less_with_fewer_dominant_or_fewer_noisy_features() -> None:
    most = weak_gain(weak=0.3, dominant=20, noisy=20)
    assert most > weak_gain(weak=0.3, dominant=5, noisy=5) + 0.02
    assert most > weak_gain(weak=0.3, dominant=20, noisy=5) + 0.02
