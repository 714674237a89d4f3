import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from draws import draw
from widefield_labs import LABS
from widefield_labs import power_iteration as lab
from widefield_labs.one_layer import smooth_covariance

BROKEN = [
    ("gamma", lambda a: a * np.inf, "Theorem 3 applies"),
    ("gamma", lambda a: a / 2, "bound gamma^t"),
    ("gamma", lambda a: a / 2, "over gamma (1 - c_t)"),
    ("miss", lambda a: a / 100, "eq. 127"),
    ("miss", lambda a: a / 100, "radius of B_gamma"),
    ("ratio", lambda a: a * 0.9, "lambda_2/lambda_1"),
    ("nearest", lambda a: a[..., ::-1], "another feature"),
]


def symmetric(seed, *shape):
    a = draw(*shape, seed=seed)
    return (a + a.mT) / 2


@given(seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_roughest_bounds_every_direction(seed):
    atoms, p = draw(4, 3, seed=seed), torch.full((4,), 0.25, dtype=torch.float64)
    w, noise = normalize(draw(3, seed=seed + 1), dim=0), torch.tensor(0.5).double()
    steps = 1e-4 * normalize(draw(20, 3, seed=seed + 2), dim=-1)
    change = smooth_covariance(w + steps, atoms, p, noise) - smooth_covariance(w, atoms, p, noise)
    slopes = torch.linalg.matrix_norm(change, 2) / 1e-4
    bound = lab.roughest(w, atoms, p, noise)
    assert slopes.max() <= 1.001 * bound
    assert bound <= 3 * slopes.max()


@given(seed=st.integers(0, 500), size=st.floats(0.01, 0.95))
@settings(max_examples=60, deadline=None)
def test_our_kappa_bounds_the_second_order_of_the_eigenvector(seed, size):
    values, vectors = torch.linalg.eigh(symmetric(seed, 5, 5))
    gap = values[-1] - values[-2]
    a, top = (vectors * values) @ vectors.T, vectors[:, -1]
    change = symmetric(seed + 1, 5, 5)
    change = size * gap * change / torch.linalg.matrix_norm(change, 2)
    first_order = sum(
        (vectors[:, j] @ change @ top) / (values[-1] - values[j]) * vectors[:, j] for j in range(4)
    )
    moved = torch.linalg.eigh(a + change).eigenvectors[:, -1]
    moved = moved * torch.sign(moved @ top)
    rest = torch.linalg.vector_norm(moved - top - first_order)
    assert rest <= lab.eigenvector_bound(gap, size * gap) * (size * gap) ** 2
    assert lab.eigenvector_bound(gap, gap) == math.inf


@given(seed=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_mu_bounds_one_step_with_a_constant_matrix(seed):
    root = draw(4, 4, seed=seed)
    a, w = root @ root.T, normalize(draw(4, seed=seed + 1), dim=0)
    miss, top, second = lab.spectrum(a, w)
    after, _, _ = lab.spectrum(a, normalize(a @ w, dim=0))
    zero = torch.zeros_like(miss)
    mu = lab.irregularity(miss, top, second, zero, zero)
    assert after <= mu * miss * (1 + 1e-9) + 1e-30
    c = 1 - miss
    torch.testing.assert_close(mu, (1 + c) / (2 * c**2) * (1 - (top - second) / top) ** 2)


@given(gamma=st.floats(0.01, 0.9), miss=st.floats(1e-6, 1e-3))
@settings(max_examples=20, deadline=None)
def test_the_radius_is_the_cap_of_eq_96(gamma, miss):
    size = float(lab.radius(*torch.tensor([gamma, miss], dtype=torch.float64)))
    c_gamma = 2 * math.sqrt(gamma) / (1 + gamma)
    cosine = (1 - miss - c_gamma) / (1 - c_gamma)
    assert 1 - size**2 / 2 == pytest.approx(cosine, rel=1e-9)


def test_u_is_as_orthogonal_as_asked():
    g = torch.Generator().manual_seed(0)
    u = lab.nearly_orthogonal(torch.tensor([0.0, 0.1]).double(), 3, 6, 4, generator=g)
    gram = u.mT @ u - torch.eye(4).double()
    assert gram[0].abs().max() < 1e-12
    assert 0.05 < gram[1].abs().max() < 1
    torch.testing.assert_close(u.square().sum(-2), torch.ones(2, 3, 4).double())


def test_a_ball_without_noise_is_jump_free_until_it_meets_an_atoms_plane():
    atoms = torch.tensor([[3.0, 4.0], [1.0, 0.0]]).double()
    w, zero = torch.tensor([1.0, 0.0]).double(), torch.tensor(0.0).double()
    sizes = torch.tensor([0.59, 0.61]).double()
    assert lab.jump_free(w, atoms, zero, sizes).tolist() == [True, False]
    assert lab.jump_free(w, atoms, zero + 0.1, sizes).tolist() == [True, True]


def test_steps_towards_edges_stop_at_the_size_or_on_the_plane():
    atoms = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, -2.0]]).double()
    w, sizes = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.1, 0.9]).double()
    steps = lab.towards_edges(w, atoms, sizes)
    torch.testing.assert_close(steps[0].norm(dim=-1), torch.tensor([0.1, 0.1]).double())
    # The planes of the last and of the first atom are the nearest, at 0.447 and 0.6.
    reached = (w + steps[1]) @ atoms.T
    assert reached[0, 2].abs() < 1e-12
    assert reached[1, 0].abs() < 1e-12


def test_rounding_of_the_last_steps_is_no_slower_rate():
    result = LABS["power-iteration"].run(scale="tiny", seed=1, features=2, rate=0.3)
    assert [check for check in result.checks if not check.holds] == []
