import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from draws import draw
from widefield_labs import one_layer as lab
from widefield_labs.local_optima import at_category, at_summand

rates = st.lists(st.floats(0.05, 0.9), min_size=2, max_size=4).map(
    lambda q: torch.tensor(q, dtype=torch.float64)
)


def by_pairs(w, x, p, slope=0.0):
    """Eq. 3 for uniform alpha without augmentation, as the double sum that it is."""
    gated = [row * (1.0 if float(row @ w) > 0 else slope) for row in x]
    total = torch.zeros(len(w), len(w), dtype=w.dtype)
    for a, pa in zip(gated, p, strict=True):
        for b, pb in zip(gated, p, strict=True):
            total += pa * pb / 2 * torch.outer(a - b, a - b)
    return total


@given(rate=rates, slope=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_gated_covariance_is_the_double_sum_over_pairs(rate, slope, seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(len(rate), generator=g, dtype=torch.float64)
    x, p = lab.summation(rate)
    a = lab.gated_covariance(w, x, p, slope=slope)
    torch.testing.assert_close(a, by_pairs(w, x, p, slope))
    torch.testing.assert_close(
        lab.ascent_direction(w.unsqueeze(0), x, p, slope=slope).squeeze(0), a @ w
    )


@given(rate=rates)
@settings(max_examples=15, deadline=None)
def test_summands_are_standardized_and_independent(rate):
    x, p = lab.summation(rate)
    assert float(p.sum()) == pytest.approx(1)
    torch.testing.assert_close(p @ x, torch.zeros_like(rate), atol=1e-12, rtol=0)
    torch.testing.assert_close((p.unsqueeze(-1) * x).T @ x, torch.eye(len(rate)).double())


def test_the_ascent_direction_is_half_the_gradient_of_the_variance():
    x, p = lab.summation(torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64))
    w = torch.tensor([[0.6, 0.5, -0.3], [-0.2, 0.9, 0.1]], dtype=torch.float64).requires_grad_()
    h = torch.relu(w @ x.T)
    variance = (p * h**2).sum(-1) - (p * h).sum(-1) ** 2
    (gradient,) = torch.autograd.grad(variance.sum(), w)
    torch.testing.assert_close(lab.ascent_direction(w.detach(), x, p), gradient / 2)


def test_a_tie_is_no_lme():
    assert not lab.is_lme(torch.eye(2).double(), torch.tensor([1.0, 0.0]).double())


@given(rate=rates)
@settings(max_examples=15, deadline=None)
def test_eq_35_is_the_double_sum_at_each_feature(rate):
    x, p = lab.summation(rate)
    for m, w in enumerate(torch.eye(len(rate), dtype=rate.dtype)):
        torch.testing.assert_close(at_summand(rate)[m], by_pairs(w, x, p))


@given(weight=st.lists(st.floats(0.1, 1), min_size=2, max_size=5))
@settings(max_examples=15, deadline=None)
def test_eq_34_is_the_double_sum_at_each_feature(weight):
    probability = torch.tensor(weight, dtype=torch.float64)
    x, p = lab.categorical(probability / probability.sum())
    for m, w in enumerate(x):
        torch.testing.assert_close(at_category(p)[m], by_pairs(w, x, p))


def test_smooth_covariance_matches_samples():
    atoms, p, noise = draw(5, 3, seed=0), torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15]).double(), 0.7
    w = normalize(draw(3, seed=1), dim=0)
    g = torch.Generator().manual_seed(2)
    rows = torch.multinomial(p, 400_000, replacement=True, generator=g)
    x = atoms[rows] + noise * torch.randn(400_000, 3, generator=g, dtype=torch.float64)
    gated = (x * (x @ w > 0).unsqueeze(-1)).view(100, -1, 3)
    replicates = torch.stack([torch.cov(batch.T) for batch in gated])
    expected = lab.smooth_covariance(w, atoms, p, torch.tensor(noise).double())
    error = replicates.std(0) / 10
    assert ((replicates.mean(0) - expected).abs() < 5 * error).all()


@given(seed=st.integers(0, 99), length=st.floats(0.1, 10))
@settings(max_examples=15, deadline=None)
def test_without_noise_it_is_the_discrete_covariance_whatever_the_length_of_w(seed, length):
    x, p = lab.summation(torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64))
    w = draw(3, seed=seed)
    smooth = lab.smooth_covariance(length * w, x, p, torch.tensor(0.0).double())
    torch.testing.assert_close(smooth, lab.gated_covariance(w, x, p))
