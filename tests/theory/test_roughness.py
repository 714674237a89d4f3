import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from widefield_labs import disc
from widefield_labs import roughness as lab

BROKEN = [
    ("roughness_law", lambda a: 1.01 * a, "minus (a), over lambda_1, mixtures"),
    ("stable", lambda a: ~a, "in which a nudge grows"),
    ("relative_roughness", lambda a: 0 * a, "lambda_max(A - H M)"),
    ("gap", lambda a: abs(a), "no LME at all"),
    ("tau_roughness_law", lambda a: 1.1 * a, "densities on a disc"),
    ("tau_pull", lambda a: -a, "pull on a nudge"),
    ("radius_r", lambda a: a / 10, "Theorem 2 with C0^2"),
    ("radius_r", lambda a: 10 * a, "as printed"),
    ("tau_z0", lambda a: a**2, "Corollary 2"),
    ("tau_z0", lambda a: a / 2, "rho_g - z_0 rho_u"),
]

densities = st.lists(st.floats(-2, 2), min_size=4, max_size=4).map(
    lambda c: torch.tensor([c], dtype=torch.float64)
)


@given(separation=st.floats(0, 3), positive=st.floats(0.1, 1))
@settings(max_examples=20, deadline=None)
def test_mixture_laws_are_integrals(separation, positive):
    t = np.linspace(-12, 12, 200_001)
    step = t[1] - t[0]
    normal = np.exp(-((t[:, None] - [separation, -separation]) ** 2) / 2) / math.sqrt(2 * math.pi)
    p = normal @ [positive, 1 - positive]
    h = np.maximum(t, 0)
    mean = (p * h).sum() * step
    expected = {
        "variance": (p * h**2).sum() * step - mean**2,
        "active": (p * (t > 0)).sum() * step,
        "h": mean,
        "density": p[100_000],
    }
    laws = lab.mixture_laws(torch.tensor(separation, dtype=torch.float64), positive)
    for name, value in expected.items():
        assert float(laws[name]) == pytest.approx(value, abs=1e-4)


def test_mixture_covariance_matches_samples():
    g = torch.Generator().manual_seed(0)
    m, widths, positive, n = 0.8, torch.tensor([0.5, 1.5]).double(), 0.3, 400_000
    x = torch.randn(n, 3, generator=g, dtype=torch.float64)
    x[:, 1:] *= widths
    x[:, 0] += torch.where(torch.rand(n, generator=g) < positive, m, -m)
    w = normalize(torch.tensor([0.8, -0.5, 0.4]).double(), dim=0)
    gated = (x * (x @ w > 0).unsqueeze(-1)).view(100, -1, 3)
    replicates = torch.stack([torch.cov(batch.T) for batch in gated])
    a = lab.mixture_covariance(w, torch.tensor(m).double(), widths, positive)
    assert ((replicates.mean(0) - a).abs() < 5 * replicates.std(0) / 10).all()


def test_the_linearized_dynamics_are_those_of_the_hessian():
    # (A - lambda_1 - H M) u is the Riemannian Hessian of Var[h(w.x)]/2: take it by differences.
    separation, widths = torch.tensor(0.7).double(), torch.tensor([0.9]).double()
    laws = lab.mixture_laws(separation, 0.5)

    def energy(angle):
        w = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        return float(w @ lab.mixture_covariance(w, separation, widths, 0.5) @ w) / 2

    curvature = (energy(1e-3) - 2 * energy(0.0) + energy(-1e-3)) / 1e-6
    across = widths[0] ** 2 * (laws["active"] - laws["h"] * laws["density"])
    assert curvature == pytest.approx(float(across - laws["variance"]), abs=1e-5)


@pytest.mark.parametrize("radius", [0.1, 1.0, 3.0])
def test_the_constant_density_by_hand(radius):
    found = disc.disc(torch.zeros(1, 4, dtype=torch.float64), radius, None)
    mean = 2 / (3 * math.pi)
    by_hand = {
        "top": (1 / 8 - mean**2) * radius**2,
        "gap": -(mean**2) * radius**2,
        "roughness": mean**2 * radius**2,
        "roughness_law": mean**2 * radius**2,
        "z0": 1.0,
        "r": 1 / (math.pi * radius**2),
    }
    for name, value in by_hand.items():
        assert found[name].item() == pytest.approx(value, rel=1e-6), name
    assert abs(found["pull"].item()) < 1e-6 * radius**2  # every direction is the same


@pytest.mark.parametrize("temperature", [0.1, 0.5, 5.0])
def test_gaussian_alpha_is_the_double_sum_over_pairs(temperature, monkeypatch):
    # Equal on the same nodes, however few.
    monkeypatch.setattr(disc, "RADIAL", 6)
    monkeypatch.setattr(disc, "ANGULAR", 8)
    c = torch.tensor([[0.7, 1.5, -0.4, 0.9]], dtype=torch.float64)
    found = disc.disc(c, 1.0, temperature)
    x, mass = (
        torch.cat(both, dim=dim)
        for both, dim in zip(
            zip(*(disc.half_disc(c, angle, 1.0) for angle in (0.0, math.pi)), strict=True),
            (0, 1),
            strict=True,
        )
    )
    p = (mass / mass.sum()).squeeze(0)
    h = x[:, 0].clamp_min(0)
    pairs = torch.outer(p, p) * torch.exp(-((h[:, None] - h) ** 2) / (2 * temperature))
    gated = x * (x[:, 0] > 0).unsqueeze(-1)
    # 1/2 sum_ij K p_i p_j (x_i - x_j)(x_i - x_j)^T, one coordinate at a time
    a = [(pairs * (one[:, None] - one) ** 2).sum() / 2 for one in gated.T]
    assert found["top"].item() == pytest.approx(a[0].item(), rel=1e-9)
    assert found["gap"].item() == pytest.approx((a[0] - a[1]).item(), abs=1e-12)
    assert found["z0"].item() == pytest.approx((p * torch.exp(-(h**2) / 2 / temperature)).sum())


@given(c=densities)
@settings(max_examples=10, deadline=None)
def test_roughness_scales_like_length_squared_and_the_printed_bound_does_not(c):
    small, large = (disc.disc(c, radius, None) for radius in (0.5, 2.0))
    assert (large["roughness"] / small["roughness"]).item() == pytest.approx(16, rel=1e-4)
    bounds = [radius**4 * one["r"] for radius, one in ((0.5, small), (2.0, large))]
    assert (bounds[1] / bounds[0]).item() == pytest.approx(16)  # C0^2 vol/pi r


def test_half_discs_carry_the_whole_mass():
    for angle in (0.0, math.pi, 0.3, -0.3):
        x, mass = disc.half_disc(torch.zeros(1, 4, dtype=torch.float64), angle, 2.0)
        assert mass.sum().item() == pytest.approx(2 * math.pi)
        assert (x @ torch.tensor([math.cos(angle), math.sin(angle)]).double() > 0).all()


def test_a_nudge_that_comes_to_rest_on_the_other_side_has_grown():
    # Nine tenths of the data lie around -m: a nudge off e_1 ends at -e_1, where it is small again.
    arrays = lab.mixtures(
        torch.tensor([5 / 7], dtype=torch.float64),
        torch.tensor([1.53], dtype=torch.float64),
        dimension=4,
        positive=0.1,
        generator=torch.Generator().manual_seed(0),
    )
    assert arrays["relative_roughness"] < 1 - 1.1 / 1.53
    assert not arrays["stable"].any()
