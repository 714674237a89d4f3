import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import diet_population as lab
from widefield_labs.diet_toy import outside

BROKEN = [
    ("toy_predicted", lambda a: 2 * a, "Figure 1a"),
    ("toy_alignment", lambda a: a * np.array([[1.0], [1.1]]), "Figure 1b, trainable head"),
    ("toy_alignment", lambda a: a * np.array([[1.0], [1.2]]), "furthest"),
    ("plain", lambda a: 1.01 * a, "DIET trained with isometric heads"),
    ("bounds", lambda a: a + 0.5, "within Lemma B.8's bounds"),
    ("stationary", lambda a: 1.01 * a, "stationary b/a"),
    ("printed", lambda a: a + np.array([-9.0, 9.0]), "erratum"),
    ("overlap_bounds", lambda a: a * np.array([0, 9]), "boundary"),
]

noise = st.floats(0.05, 0.9)


@given(nu1=noise, nu2=noise, phi=st.floats(0.1, 3))
@settings(max_examples=10, deadline=None)
def test_population_has_the_moments_of_the_model(nu1, nu2, phi):
    x = lab.population(nu1, nu2, phi)[1]  # class 1: u at coordinate 1, v at 3
    torch.testing.assert_close(x.mean(0), torch.tensor([0, 1, 0, 1]).double(), atol=1e-12, rtol=0)
    centered = x - x.mean(0)
    background = phi**2 / lab.AMBIENT
    variances = [background, nu1**2, background, nu2**2]
    expected = torch.diag(torch.tensor(variances, dtype=torch.float64))
    torch.testing.assert_close(centered.T @ centered / len(x), expected, atol=1e-12, rtol=1e-9)


@given(nu1=st.floats(0.05, 0.5), nu2=st.floats(0.05, 0.9), phi=st.floats(0.3, 2))
@settings(max_examples=10, deadline=None)
def test_the_gradient_vanishes_at_the_stationary_ratio(nu1, nu2, phi):
    ratio = lab.stationary_ratio(nu1, nu2, phi)
    w = torch.tensor([[1.0, 0, ratio, 0], [0, 1.0, 0, ratio]]).double().requires_grad_()
    z = lab.population(nu1, nu2, phi) @ w.T
    own = torch.stack([z[0, :, 0] / z[0].norm(dim=1), z[1, :, 1] / z[1].norm(dim=1)])
    (gradient,) = torch.autograd.grad(own.mean(), w)
    assert gradient.abs().max() < 1e-5
    low, high = lab.ratio_bounds(nu1, nu2)
    assert low <= ratio <= high


@given(seed=st.integers(0, 100), nu1=noise, nu2=noise, phi=st.floats(0.1, 3))
@settings(max_examples=10, deadline=None)
def test_plain_diet_against_least_squares_on_every_view(seed, nu1, nu2, phi):
    heads = lab.isometric_heads(1, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(heads[0].T @ heads[0], torch.eye(lab.CLASSES).double())
    x = lab.population(nu1, nu2, phi)
    rows, targets = [], []
    for example in range(lab.EXAMPLES):
        rows.append(x[example % lab.CLASSES])
        targets.append(heads[0][example].expand(x.shape[1], -1))  # W_H^T e_i, since W_H^T W_H = I
    expected = torch.linalg.lstsq(torch.cat(rows), torch.cat(targets)).solution.T
    ratio = lab.train_plain(x.unsqueeze(0), heads, 60)[0, 0]
    torch.testing.assert_close(ratio, lab.feature_ratio(expected), rtol=1e-4, atol=1e-4)
    formula = lab.plain_ratio(nu1, nu2, phi, lab.CLASSES, lab.AMBIENT)
    torch.testing.assert_close(ratio, torch.full_like(ratio, formula), rtol=1e-4, atol=1e-4)


def test_class_sums_add_the_rows_of_each_class():
    heads = lab.isometric_heads(3, torch.Generator().manual_seed(0))
    for head, sums in zip(heads, lab.class_sums(heads), strict=True):
        for c in range(lab.CLASSES):
            torch.testing.assert_close(sums[c], head[c :: lab.CLASSES].sum(0))


def test_descent_without_background_stays_at_equal_features():
    heads = lab.isometric_heads(1, torch.Generator().manual_seed(0), embedding=8)
    x = lab.population(0.1, 0.5, 0.0).unsqueeze(0)
    _, ratio = lab.descend(x, lab.class_sums(heads), 50)
    torch.testing.assert_close(ratio, torch.ones_like(ratio))


def test_printed_bounds_are_those_of_the_inverse_ratio():
    low, high = lab.ratio_bounds(0.1, 0.7)
    assert lab.ratio_bounds(0.7, 0.1) == pytest.approx((1 / high, 1 / low))


def test_outside_is_the_distance_to_the_interval():
    bounds = np.array([[0.5, 2.0]])
    assert outside(np.array([[1.0, 0.4]]), bounds) == pytest.approx(0.1)
    assert outside(np.array([[1.0, 2.3]]), bounds) == pytest.approx(0.3)
    assert outside(np.array([[1.0, 1.5]]), bounds) == pytest.approx(-0.5)
    assert math.isclose(lab.plain_ratio(0.1, 0.2, 0.0, 4, 16), 0.25)
