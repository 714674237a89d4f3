import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draw
from widefield_labs import contrastive_covariance as lab
from widefield_labs import pair_gradients
from widefield_labs.pair_weights import gaussian_weights

BROKEN = [
    ("gradient_error", lambda a: a + 1e-6, "eps = 0"),
    ("gradient_error", lambda a: a + 1e-6, "eps > 0"),
    ("alpha_cl_error", lambda a: a + 1e-6, "alpha-CL's loss"),
    ("gradient_ratio", lambda a: a / 32, "factor between"),
    ("mean_score", lambda a: a + 10, "sum of variances"),
    ("square_law", lambda a: 2 * a, "over its predicted value"),
    ("square_law", lambda a: a**2, "exponent of N"),
    ("negative_share", lambda a: a[::-1], "negative eigenvalue"),
    ("triplet_error", lambda a: a + 1e-6, "triplet loss: |grad L"),
    ("soft_triplet_error", lambda a: a + 1e-6, "soft triplet loss: the same"),
    ("views_score", lambda a: 0 * a, "boundary"),
]


@given(seed=st.integers(0, 99), tau=st.floats(0.1, 5), eps=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=20, deadline=None)
def test_the_loss_and_its_weights_are_those_of_eq_1(seed, tau, eps):
    f, f2 = draw(2, 5, 2, seed=seed)
    loss = 5 * pair_gradients.infonce(f, f2, temperature=tau, eps=eps)
    alpha = pair_gradients.infonce_weights(f, f2, temperature=tau, eps=eps)
    total = 0.0
    for i in range(5):
        own = math.exp(-float((f[i] - f2[i]).square().sum()) / (2 * tau))
        others = [math.exp(-float((f[i] - f[j]).square().sum()) / (2 * tau)) for j in range(5)]
        others[i] = 0.0
        total -= tau * math.log(own / (eps * own + sum(others)))
        expected = torch.tensor(others).double() / (eps * own + sum(others))
        torch.testing.assert_close(alpha[i], expected)
    assert loss.item() == pytest.approx(total)


def test_the_gradient_needs_alpha_held_fixed():
    f, f2 = draw(2, 6, 3, seed=0)
    f = f.requires_grad_()
    loss = 6 * pair_gradients.infonce(f, f2, temperature=0.7, eps=0.0)
    alpha = pair_gradients.infonce_weights(f, f2, temperature=0.7, eps=0.0)
    assert not alpha.requires_grad
    (of_loss,) = torch.autograd.grad(loss, f, retain_graph=True)
    (fixed,) = torch.autograd.grad(pair_gradients.energy(f, f2, alpha), f, retain_graph=True)
    torch.testing.assert_close(of_loss, -36 * fixed)
    distances = pair_gradients.squared_distances(f) / (2 * 0.7)
    attached = torch.softmax(-distances.masked_fill(torch.eye(6).bool(), math.inf), dim=-1)
    (through,) = torch.autograd.grad(pair_gradients.energy(f, f2, attached), f)
    assert (of_loss + 36 * through).abs().max() > 0.1


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_conditional_moments_by_hand(noise):
    x0 = torch.tensor([0.2, 1.5], dtype=torch.float64)
    mean, variance = lab.conditional(x0, noise)
    damped = torch.cos(2 * x0) * math.exp(-2 * noise**2)
    expected = torch.stack([x0, x0**2 + noise**2, damped], dim=-1)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(variance[:, 0, 0], torch.full_like(x0, noise**2))
    torch.testing.assert_close(variance[:, 0, 1], 2 * x0 * noise**2)


@pytest.mark.parametrize(("temperature", "noise"), [(0.1, 0.0), (0.5, 0.3), (2.0, 1.0)])
def test_the_sum_of_variances_is_the_double_integral(temperature, noise):
    x0, weight = lab.nodes_on_support()
    mean, _ = lab.conditional(x0, noise)
    kernel = gaussian_weights(x0.unsqueeze(-1), temperature) * torch.outer(weight, weight)
    apart = mean.unsqueeze(1) - mean.unsqueeze(0)
    expected = torch.einsum("ij,ija,ijb->ab", kernel, apart, apart) / 2
    torch.testing.assert_close(lab.limit(temperature, noise)[0], expected)


def test_uniform_alpha_without_augmentation_is_a_variance():
    goal, within = lab.limit(1e9, 0.0)
    assert goal[0, 0].item() == pytest.approx(1 / 3)  # of x0 uniform on [0, 2]
    assert goal[1, 1].item() == pytest.approx(16 / 5 - (4 / 3) ** 2)
    assert within.abs().max() < 1e-12


def test_the_error_law_of_a_variance_by_hand():
    g = torch.Generator().manual_seed(0)
    zeta_1, zeta_2 = lab.error_law(1e9, 0.0, draws=100_000, generator=g)
    # k = (x - y)^2/2, E[k | x] = ((x - 1)^2 + 1/3)/2, x and y uniform on [0, 2]
    assert zeta_1[0, 0].item() == pytest.approx((1 / 5 - 1 / 9) / 4, rel=0.01)
    assert zeta_2[0, 0].item() == pytest.approx((2 / 5 + 6 / 9 - 4 / 9) / 4, rel=0.01)


def test_the_librarys_importance_completed_by_its_diagonal_is_the_kernel():
    points = draw(3, 6, 1, seed=0)
    torch.testing.assert_close(lab.gaussian_importance(points, 0.4), gaussian_weights(points, 0.4))


@pytest.mark.parametrize("tau", [0.2, 1.5])
def test_triplet_losses_against_loops_over_pairs(tau):
    g = torch.Generator().manual_seed(0)
    f, f2 = torch.randn(2, 6, 3, generator=g, dtype=torch.float64)
    hard = soft = 0.0
    for i in range(6):
        for j in set(range(6)) - {i}:
            short = float((f[i] - f2[i]).square().sum() - (f[i] - f[j]).square().sum()) / 2
            hard += max(short + tau, 0.0)
            soft += tau * math.log1p(math.exp(short / tau))
    found, alpha = pair_gradients.triplet(f, f2, margin=tau)
    assert float(found) == pytest.approx(hard)
    assert 0 < alpha.sum() < 30
    assert set(alpha.unique().tolist()) == {0.0, 1.0}
    found, alpha = pair_gradients.soft_triplet(f, f2, temperature=tau)
    assert float(found) == pytest.approx(soft)
    assert alpha.diagonal().abs().max() == 0


def test_the_triplet_loss_does_not_ascend_the_energy_of_other_weights(monkeypatch):
    right = pair_gradients.triplet

    def all_pairs(f, f2, *, margin):
        return right(f, f2, margin=margin)[0], 1 - torch.eye(len(f), dtype=f.dtype)

    monkeypatch.setattr(pair_gradients, "triplet", all_pairs)
    errors = pair_gradients.triplet_gradients(
        nets=1, pairs=8, generator=torch.Generator().manual_seed(0)
    )
    assert errors["triplet_error"].max() > 0.1
    assert errors["soft_triplet_error"].max() < 1e-10
