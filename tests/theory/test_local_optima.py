import math

import pytest
import torch

from widefield.labs import local_optima as lab


def test_a_feature_is_an_lme_exactly_below_the_critical_rate():
    assert pytest.approx(lab.CRITICAL_RATE) == (1 - lab.CRITICAL_RATE) ** 2
    q = lab.CRITICAL_RATE + torch.tensor([-1e-3, 1e-3], dtype=torch.float64)
    a = lab.gated_covariance(torch.eye(2).double(), *lab.summation(q))
    assert lab.is_lme(a, torch.eye(2).double()).tolist() == [True, False]
    assert lab.closed_escape_rates(q)[0] < 0 < lab.closed_escape_rates(q)[1]


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
