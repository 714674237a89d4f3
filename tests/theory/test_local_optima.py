import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.labs import local_optima as lab

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
    torch.testing.assert_close(lab.push(w.unsqueeze(0), x, p, slope=slope).squeeze(0), a @ w)


@given(rate=rates)
@settings(max_examples=15, deadline=None)
def test_eq_35_is_the_double_sum_at_each_feature(rate):
    x, p = lab.summation(rate)
    for m, w in enumerate(torch.eye(len(rate), dtype=rate.dtype)):
        torch.testing.assert_close(lab.at_summand(rate)[m], by_pairs(w, x, p))


@given(weight=st.lists(st.floats(0.1, 1), min_size=2, max_size=5))
@settings(max_examples=15, deadline=None)
def test_eq_34_is_the_double_sum_at_each_feature(weight):
    probability = torch.tensor(weight, dtype=torch.float64)
    x, p = lab.categorical(probability / probability.sum())
    for m, w in enumerate(x):
        torch.testing.assert_close(lab.at_category(p)[m], by_pairs(w, x, p))


@given(rate=rates)
@settings(max_examples=15, deadline=None)
def test_summands_are_standardised_and_independent(rate):
    x, p = lab.summation(rate)
    assert float(p.sum()) == pytest.approx(1)
    torch.testing.assert_close(p @ x, torch.zeros_like(rate), atol=1e-12, rtol=0)
    torch.testing.assert_close((p.unsqueeze(-1) * x).T @ x, torch.eye(len(rate)).double())


def test_push_is_half_the_gradient_of_the_variance():
    x, p = lab.summation(torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64))
    w = torch.tensor([[0.6, 0.5, -0.3], [-0.2, 0.9, 0.1]], dtype=torch.float64).requires_grad_()
    h = torch.relu(w @ x.T)
    variance = (p * h**2).sum(-1) - (p * h).sum(-1) ** 2
    (gradient,) = torch.autograd.grad(variance.sum(), w)
    torch.testing.assert_close(lab.push(w.detach(), x, p), gradient / 2)


def test_a_feature_is_an_lme_exactly_below_the_critical_rate():
    assert pytest.approx(lab.CRITICAL_RATE) == (1 - lab.CRITICAL_RATE) ** 2
    q = lab.CRITICAL_RATE + torch.tensor([-1e-3, 1e-3], dtype=torch.float64)
    a = lab.gated_covariance(torch.eye(2).double(), *lab.summation(q))
    assert lab.is_lme(a, torch.eye(2).double()).tolist() == [True, False]
    assert lab.closed_escape_rates(q)[0] < 0 < lab.closed_escape_rates(q)[1]


def test_a_tie_is_no_lme():
    assert not lab.is_lme(torch.eye(2).double(), torch.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize(("rate", "expected"), [(0.2, True), (0.3, False)])
def test_the_all_off_direction_is_an_lme_while_m_q_is_below_one(rate, expected):
    q = torch.full((4,), rate, dtype=torch.float64)
    w = lab.all_off(q)
    assert bool(lab.is_lme(lab.gated_covariance(w, *lab.summation(q)), w)) is expected


def test_samples_are_unbiased_even_when_tiny():
    q = torch.tensor([0.3, 0.2], dtype=torch.float64)
    x, p = lab.summation(q)
    w = torch.tensor([1.0, 0.0], dtype=torch.float64)
    a = lab.sampled(w, x, p, size=3, replicates=40_000, generator=torch.Generator().manual_seed(0))
    error = a.std(0) / math.sqrt(len(a))
    assert ((a.mean(0) - lab.at_summand(q)[0]).abs() <= 5 * error + 1e-12).all()


def test_crossing_is_interpolated():
    x = torch.tensor([0.0, 1.0, 2.0])
    assert lab.crossing(x, torch.tensor([3.0, 1.0, -3.0])) == pytest.approx(1.25)
    assert lab.crossing(x, torch.ones(3)) == math.inf
