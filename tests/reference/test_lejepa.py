"""LeJEPA against closed forms: the Epps-Pulley integral has one, and so has the invariance."""

import cmath
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from draws import draw
from widefield.methods.lejepa import LeJEPA, lejepa, sigreg


def epps_pulley(x: list[float]) -> float:
    """The integral over all of R, by the Gaussian integrals of its three terms."""
    n = len(x)
    pairs = sum(math.exp(-((a - b) ** 2) / 2) for a in x for b in x) * math.sqrt(2 * math.pi) / n**2
    cross = sum(math.exp(-(a**2) / 4) for a in x) * math.sqrt(math.pi) / n
    return n * (pairs - 2 * cross + math.sqrt(2 * math.pi / 3))


def trapezoids(x: list[float]) -> float:
    """The integral by the trapezoidal rule on 17 points of [-5, 5], in complex numbers."""
    points = [-5 + 10 * k / 16 for k in range(17)]
    heights = [
        abs(sum(cmath.exp(1j * t * a) for a in x) / len(x) - math.exp(-(t**2) / 2)) ** 2
        * math.exp(-(t**2) / 2)
        for t in points
    ]
    return len(x) * 10 / 16 * (sum(heights) - (heights[0] + heights[-1]) / 2)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 9), seed=st.integers(0, 99), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_sigreg_is_the_mean_statistic_of_its_slices(n: int, seed: int, scale: float) -> None:
    z, directions = scale * draw(n, 3, seed=seed), F.normalize(draw(3, 4, seed=seed + 1), dim=0)
    expected = sum(trapezoids(column.tolist()) for column in (z @ directions).T) / 4
    assert float(sigreg(z, directions)) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 9), seed=st.integers(0, 99), scale=st.sampled_from([0.1, 1.0, 1.5]))
def test_the_statistic_is_the_integral_of_epps_and_pulley(n: int, seed: int, scale: float) -> None:
    """The rule sees features at most 5 apart; points 10 apart would look the same to it."""
    z = (scale * draw(n, 3, seed=seed)).clamp(-2.5, 2.5)
    expected = sum(epps_pulley(column.tolist()) for column in z.T) / 3
    assert float(sigreg(z, torch.eye(3))) == pytest.approx(expected, rel=1e-4, abs=1e-5 * n)


@settings(max_examples=10, deadline=None)
@given(b=st.integers(1, 6), weight=st.sampled_from([0.05, 0.5]), seed=st.integers(0, 99))
def test_lejepa_weighs_invariance_and_gaussianity(b: int, weight: float, seed: int) -> None:
    z1, z2, directions = draw(b, 3, seed=seed), draw(b, 3, seed=seed + 1), torch.eye(3).double()
    # Both views are at half their distance from the middle.
    invariance = sum(
        (a - c) ** 2 / 4 for a, c in zip(z1.ravel().tolist(), z2.ravel().tolist(), strict=True)
    )
    gaussianity = (sigreg(z1, directions) + sigreg(z2, directions)) / 2
    expected = (1 - weight) * invariance / (3 * b) + weight * float(gaussianity)
    ours = lejepa(z1, z2, directions, sigreg_weight=weight)
    assert float(ours) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("spoil", ["shift", "scale", "collapse", "one direction"])
def test_a_gaussian_scores_better_than_what_is_none(spoil: str) -> None:
    z, directions = draw(2000, 4), F.normalize(draw(4, 32, seed=1), dim=0)
    spoiled = {
        "shift": z + 0.5,
        "scale": 2 * z,
        "collapse": z * 0.01,
        "one direction": z * torch.tensor([2.0, 0.1, 1.0, 1.0]),
    }[spoil]
    assert float(sigreg(z, directions)) < 3
    assert float(sigreg(spoiled, directions)) > 10 * float(sigreg(z, directions))


def test_directions_are_unit_and_new_after_each_step() -> None:
    generator = torch.Generator().manual_seed(0)
    method = LeJEPA(3, generator=generator, projector_layers=0, slices=5)
    x, index = draw(4, 3).float(), torch.arange(4)
    first = method.directions.clone()
    method(nn.Identity(), [x, x], index)
    assert torch.equal(method.directions, first)
    method.after_step()
    assert not torch.equal(method.directions, first)
    torch.testing.assert_close(method.directions.norm(dim=0), torch.ones(5))
