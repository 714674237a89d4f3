import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import local_optima as lab
from widefield_labs import monomials

BROKEN = [
    ("closed_form_score", lambda a: a + 10, "closed form, both"),
    ("gap", lambda a: a + 0.1, "sampled eigengap"),
    ("escape", lambda a: a + 0.1, "stop returning"),
    ("escape_closed", lambda a: 1.01 * a, "minus its closed form"),
    ("mixed_is_lme", lambda a: ~a, "unequal rates"),
    ("categorical_share", lambda a: a * np.eye(len(a))[0], "random rows end"),
    ("categorical_share", lambda a: a * 0.9, "never fire"),
    ("summation_share", lambda a: a[:, :-1], "all-off"),
    ("summation_share", lambda a: 0.9 * a, "anywhere else"),
    ("summation_share", lambda a: a[::-1], "q > 0.4"),
    ("monomial_rho", lambda a: 1.01 * a, "t^2, t^3: eigengap"),
    ("monomial_growth", lambda a: a + 0.01, "t^2, t^3: growth of a nudge"),
    ("monomial_gap", lambda a: a + 0.1, "ceases to be"),
    ("monomial_growth", lambda a: a + 0.1, "off u_m stop returning"),
    ("monomial_growth", lambda a: a + 0.1, "Theorem 1, t^2"),
    ("monomial_growth", lambda a: -abs(a), "boundary: rates at which"),
]


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
    x = np.array([0.0, 1.0, 2.0])
    assert monomials.crossing(x, np.array([3.0, 1.0, -3.0])) == pytest.approx(1.25)
    assert monomials.crossing(x, np.ones(3)) == math.inf


@pytest.mark.parametrize("power", monomials.POWERS)
@given(q=st.floats(0.05, 0.4))
@settings(max_examples=10, deadline=None)
def test_closed_forms_of_monomials_against_the_sum_over_atoms(power, q):
    rate = torch.tensor(q, dtype=torch.float64)
    x, p = lab.summation(rate.expand(3))
    weighted = p.unsqueeze(1) * x
    for order in range(2 * power + 1):
        assert float(p @ x[:, 0] ** order) == pytest.approx(float(monomials.moment(rate, order)))
    w = torch.eye(3, dtype=torch.float64)[0].requires_grad_()
    h = (x @ w) ** power
    (gradient,) = torch.autograd.grad((p @ h**2 - (p @ h) ** 2) / (2 * power), w)
    force = lab.ascend(w.detach()[None], x, p, steps=1, step_size=1e9, slope=1.0, power=power)
    torch.testing.assert_close(force[0], gradient / gradient.norm())
    closed = monomials.closed_forms(rate, power)
    assert float(gradient[0]) == pytest.approx(float(closed["along"]))
    gate = x[:, 0] ** (power - 1)
    assert float(weighted[:, 1] * gate**2 @ x[:, 1]) == pytest.approx(float(closed["across"]))


def test_critical_rates_of_the_square_are_where_its_closed_forms_vanish():
    at_lme, at_stable = (
        monomials.closed_forms(torch.tensor(q, dtype=torch.float64), 2)
        for q in (monomials.LME_RATE, monomials.STABLE_RATE)
    )
    assert float(at_lme["along"] - at_lme["across"]) == pytest.approx(0, abs=1e-12)
    assert float(at_stable["along"] - at_stable["across"]) == pytest.approx(float(at_stable["rho"]))
