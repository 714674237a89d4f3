import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import noise_helps as lab

BROKEN = [
    ("gradient_gap", lambda a: a + 1e-6, "Lemma E.2"),
    ("weak_alignment", lambda a: a[..., ::-1], "in no trial"),
    ("weak_alignment", lambda a: a[..., :1].repeat(2, -1), "final alignment (mean"),
    ("dominant_alignment", lambda a: a * np.array([1, 0.9]), "costs"),
    ("correct", lambda a: a[..., :1].repeat(2, -1), "P(correct)"),
    ("weak_alignment", lambda a: a[..., ::-1], "gains little"),
    ("norm_mean", lambda a: -a, "upper end"),
    ("norm_predicted", lambda a: 2 * a, "small-norm slope"),
    ("step_mean", lambda a: -a, "boundary"),
]


@given(seed=st.integers(0, 100), pairs=st.integers(2, 6), features=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_gradient_is_that_of_the_cross_entropy(seed, pairs, features):
    g = torch.Generator().manual_seed(seed)
    theta = torch.randn(3, features, 4, generator=g, dtype=torch.float64, requires_grad=True)
    u, v = torch.randn(2, 3, pairs, features, 4, generator=g, dtype=torch.float64)
    losses, correct = [], []
    for t, us, vs in zip(theta, u, v, strict=True):
        z = torch.stack(
            [torch.stack([((t * a).sum(1) * (t * b).sum(1)).sum() for b in vs]) for a in us]
        )
        log_p = torch.log_softmax(z, dim=1).diagonal()
        losses.append(-log_p.mean())
        correct.append(log_p.exp().mean())
    (expected,) = torch.autograd.grad(sum(losses), theta)
    grad, p = lab.gradient(theta.detach(), u, v)
    torch.testing.assert_close(grad, expected)
    torch.testing.assert_close(p, torch.stack(correct).detach())


def test_views_have_the_same_law_and_the_named_correlation():
    g = torch.Generator().manual_seed(0)
    u, w = torch.randn(2, 200_000, 1, 2, 3, generator=g)
    alpha = torch.tensor([[0.9, 0.2]])
    v = lab.correlated(u, w, alpha)
    product = (u * v).mean((0, 1))
    torch.testing.assert_close(product[:, 0], alpha[0], atol=0.01, rtol=0)
    torch.testing.assert_close(product[:, 1:], torch.zeros(2, 2), atol=0.01, rtol=0)
    torch.testing.assert_close(v.std((0, 1)), torch.ones(2, 3), atol=0.01, rtol=0)


def test_alignment_is_a_cosine():
    theta = torch.tensor([[3.0, 4.0], [-1.0, 0.0], [0.0, 2.0]])
    torch.testing.assert_close(lab.alignment(theta), torch.tensor([0.6, 1.0, 0.0]))


def test_noise_on_a_feature_that_theta_does_not_see_changes_nothing():
    cells = torch.tensor([[0.5, 0.5, 1.0, 0.0, 0.01]]).double()
    change = lab.one_step(cells, draws=50, generator=torch.Generator().manual_seed(0))
    # theta_k' has no part along mu_k', the only coordinate that noise replaces.
    assert change.abs().max() < 1e-10
    assert lab.small_norm_slope(cells).abs().max() == 0


def test_small_norm_slope_by_hand():
    cells = torch.tensor([[0.1, 0.6, 0.5, 0.8, 0.01]]).double()
    taken = 0.7 * lab.CORRELATION * (0.5 * 0.8) ** 2
    expected = -2 * lab.CORRELATION * 0.6 * 0.8 * (7 / 8) * taken / 8
    assert float(lab.small_norm_slope(cells)) == pytest.approx(expected)


def test_the_arms_differ_in_the_noise_of_dominant_features_alone(monkeypatch):
    class Seen(Exception):
        pass

    def look(alpha, **_):
        raise Seen(alpha)

    monkeypatch.setattr(lab, "trajectories", look)
    with pytest.raises(Seen) as seen:
        lab.measure(scale="tiny", generator=torch.Generator(), weak=0.3, noise_from=50)
    (alpha,) = seen.value.args
    without, with_noise = alpha.unbind(2)
    assert torch.equal(without[:50], with_noise[:50])
    assert torch.equal(without[..., 0], with_noise[..., 0])
    for found, expected in (
        (with_noise[..., 0], 0.3),
        (with_noise[50:, :, 1:], 0.3),
        (without[..., 1:], 0.95),
    ):
        torch.testing.assert_close(found, torch.full_like(found, expected))


def test_without_noise_both_arms_are_one():
    alpha = torch.full((4, 2, 2, 3), 0.8)
    arrays = lab.trajectories(
        alpha,
        pairs=8,
        dimension=3,
        step_size=0.2,
        noise_from=2,
        generator=torch.Generator().manual_seed(0),
    )
    for name in ("weak_alignment", "dominant_alignment", "correct"):
        assert (arrays[name][..., 0] == arrays[name][..., 1]).all()
    assert arrays["weak_alignment"].shape == (5, 2, 2)
    assert math.isclose(arrays["correct"][0, 0, 0], 1 / 8, rel_tol=0.1)
