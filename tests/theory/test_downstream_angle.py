import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import downstream_angle as lab

BROKEN = [
    ("error", lambda a: a + 0.05, "gaussian law"),
    ("predicted", lambda a: a[::-1], "laplace law"),
    ("error", lambda a: a + 0.05, "sphere law"),
    ("error", lambda a: a - 0.05, "student law"),
    ("error", lambda a: a + 0.05, "stretched law"),
    ("fitted", lambda a: a - 0.02, "by less than"),
    ("fitted", lambda a: a + 0.05, "nor by more"),
]


def plane(law, count, stretch, rng):
    """Points of the plane of theta and mu, drawn by numpy."""
    if law == "laplace":
        return rng.laplace(size=(count, 2))
    u = rng.standard_normal((count, 2))
    if law == "sphere":
        return u / np.linalg.norm(u, axis=1, keepdims=True)
    if law == "student":
        return u / np.sqrt(rng.chisquare(2, size=(count, 1)) / 2)
    return u * np.array([1.0, stretch if law == "stretched" else 1.0])


@pytest.mark.parametrize("law", lab.LAWS)
@given(angle=st.floats(0.01, 1.56), stretch=st.floats(0.2, 5.0))
@settings(max_examples=6, deadline=None)
def test_predicted_error_against_counting(law, angle, stretch):
    u = plane(law, 100_000, stretch, np.random.default_rng(0))
    scores = u @ np.array([math.cos(angle), math.sin(angle)])
    counted = (np.sign(scores) != np.sign(u[:, 0])).mean()
    predicted = float(lab.predicted_error(law, torch.tensor(angle).double(), stretch))
    assert counted == pytest.approx(predicted, abs=5 * math.sqrt(0.25 / 100_000))


@pytest.mark.parametrize("law", lab.LAWS)
def test_samples_follow_their_law(law):
    u = lab.sample(law, 100_000, 3, 2.0, torch.Generator().manual_seed(0)).numpy()
    drawn = plane(law, 100_000, 2.0, np.random.default_rng(1))
    # Quartiles of |coordinate|: they exist for every law, the Student one included.
    if law == "sphere":  # its coordinates depend on the dimension: uniform on [-1, 1] for three
        expected = np.array([0.25, 0.5, 0.75])
    else:
        expected = np.quantile(np.abs(drawn[:, 0]), [0.25, 0.5, 0.75])
        if law == "student":
            expected /= math.sqrt(2)  # ours divides by the root of chi^2, not of chi^2 / 2
    measured = np.quantile(np.abs(u[:, 0]), [0.25, 0.5, 0.75])
    np.testing.assert_allclose(measured, expected, rtol=0.03)


def test_directions_have_their_angle():
    angle = torch.tensor([0.0, 0.4, math.pi / 2]).double()
    theta = lab.directions(angle, 5)
    torch.testing.assert_close(theta[:, 0], angle.cos())
    torch.testing.assert_close(theta.norm(dim=1), torch.ones(3).double())
