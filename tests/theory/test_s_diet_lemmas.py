"""Theorem B.1 and Lemmas B.2 and B.6 to B.8 of S-DIET, on small data sets."""

from itertools import combinations

import pytest
import torch

from widefield_labs import diet_is_spectral as lab
from widefield_labs import diet_population as toy

SUBSETS = [s for size in range(4) for s in combinations(range(4), size)]


def data_sets(seed=0):
    g = torch.Generator().manual_seed(seed)
    return lab.DataSets.from_views(torch.randn(1, 6, 3, 4, generator=g, dtype=torch.float64))


def critical(data, subset, width=3):
    """Return the W [1, width, d] with W^T W M the part of M^+ M_pos in a subset, rotated."""
    values, vectors = torch.linalg.eigh(data.m[0])
    inverse_half = (vectors / values.sqrt()) @ vectors.T
    lam, q = torch.linalg.eigh(inverse_half @ data.m_pos[0] @ inverse_half)
    lam, q = lam.flip(0)[list(subset)], q.flip(1)[:, list(subset)]
    w = torch.zeros(width, 4, dtype=torch.float64)
    w[: len(subset)] = lam.sqrt()[:, None] * (q.T @ inverse_half)
    g = torch.Generator().manual_seed(7)
    rotation = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64)).Q
    return (rotation @ w)[None], lam


def largest_gradient(loss, *at):
    at = [x.detach().clone().requires_grad_() for x in at]
    return max(float(g.abs().max()) for g in torch.autograd.grad(loss(*at).sum(), at))


def spectral_gradient(data, w):
    return largest_gradient(lambda x: lab.spectral_loss(data, x), w)


@pytest.mark.parametrize("subset", SUBSETS)
def test_each_subset_of_eigenvectors_is_a_critical_point_of_the_spectral_loss(subset):
    data = data_sets()
    w, lam = critical(data, subset)
    assert spectral_gradient(data, w) < 1e-12
    torch.testing.assert_close(lab.spectral_loss(data, w)[0], -lam.square().sum() / 2)
    if subset:
        assert spectral_gradient(data, 1.1 * w) > 1e-4


def test_only_the_leading_subset_is_a_global_minimum():
    data = data_sets()
    losses = {s: float(lab.spectral_loss(data, critical(data, s)[0])) for s in SUBSETS}
    assert min(losses, key=losses.__getitem__) == (0, 1, 2)
    assert sorted(losses.values())[1] > losses[0, 1, 2] + 1e-6


def test_points_without_a_gradient_have_the_eigenvectors_of_a_subset():
    """Found from random starts by minimizing the gradient's length, which stops at saddles too."""
    data, found = data_sets(), set()
    expected = torch.stack(
        [(w.mT @ w @ data.m)[0] for w in (critical(data, s)[0] for s in SUBSETS)]
    )
    for seed in range(6):
        g = torch.Generator().manual_seed(seed)
        w = (0.7 * torch.randn(1, 3, 4, generator=g, dtype=torch.float64)).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [w], max_iter=150, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure(w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = lab.spectral_loss(data, w).sum()
            (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
            length = gradient.square().sum()
            length.backward()
            return length

        optimizer.step(closure)
        if spectral_gradient(data, w) > 1e-10:
            continue  # a minimum of the length that is no critical point
        gap = (expected - (w.mT @ w @ data.m)[0].detach()).abs().amax((1, 2))
        assert gap.min() < 1e-5
        found.add(SUBSETS[int(gap.argmin())])
    assert len(found) > 1


@pytest.mark.parametrize("subset", [s for s in SUBSETS if s])
def test_a_critical_point_of_one_loss_is_one_of_the_other(subset):
    """Lemma B.2, both directions, with the partial isometry of its proof."""
    data = data_sets()
    w, _ = critical(data, subset)
    head = data.b @ w.mT @ torch.linalg.pinv(w @ data.m @ w.mT, rtol=1e-9)
    inner = head.mT @ head
    torch.testing.assert_close(inner @ inner, inner)
    assert torch.linalg.matrix_rank(inner[0], tol=1e-6) == len(subset)
    assert largest_gradient(lambda *at: lab.diet_loss(data, *at), w, head) < 1e-12


def test_a_critical_point_of_diet_needs_the_isometry_to_be_one_of_the_spectral_loss():
    data = data_sets()
    start = lab.random_start(data, 3, torch.Generator().manual_seed(1))
    head, path = lab.minimize_diet(data, *start, 60, free=True)
    q, r = torch.linalg.qr(head)
    assert largest_gradient(lambda *at: lab.diet_loss(data, *at), path[-1], head) < 1e-8
    assert spectral_gradient(data, r @ path[-1]) < 1e-8
    assert spectral_gradient(data, path[-1]) > 1e-4
    torch.testing.assert_close(q.mT @ q, torch.eye(3).double()[None])


CASES = [(0.1, 0.3, 1.0), (0.1, 0.9, 0.5), (0.3, 0.1, 2.0)]
ASIDE = torch.tensor([0.5, -0.2], dtype=torch.float64)


def views(case, *, symmetric=True):
    """Return a population [C, A, 2C + 2] with noise along two directions that no class has."""
    x = toy.population(*case)
    signs = (1.0, -1.0) if symmetric else (1.0, 1.0)
    return torch.cat(
        [torch.cat([x, sign * ASIDE.expand(*x.shape[:2], 2)], -1) for sign in signs], 1
    )


def sums(*, square=True):
    g = torch.Generator().manual_seed(0)
    heads = toy.isometric_heads(1, g, embedding=8 if square else 2)
    return toy.class_sums(heads)[0]


def gradient(x, r, w):
    """Return the gradient of normalized DIET up to its constant: -E[norm(W x).r_c]/n."""
    w = w.clone().requires_grad_()
    z = torch.nn.functional.normalize(x @ w.T, dim=-1)
    loss = -(z * r[:, None]).sum(-1).mean(1).sum() / toy.EXAMPLES
    return torch.autograd.grad(loss, w)[0]


def path(x, r, steps=400):
    """Yield W after each step from 0, whose first step has the identity as its Jacobian."""
    w = torch.einsum("cm,cd->md", r, x.mean(1)) / toy.EXAMPLES
    for _ in range(steps):
        yield w
        w = w - 0.5 * gradient(x, r, w)


def off_the_class_sums(w, r):
    """Return how far W u_c and W v_c are from parallel to r_c, relative to their lengths."""
    features = torch.stack([w[:, :2], w[:, 2:4]])  # [2, m, C]
    unit = torch.nn.functional.normalize(r, dim=1)
    along = torch.einsum("fmc,cm->fc", features, unit)
    rest = features - torch.einsum("fc,cm->fmc", along, unit)
    return float((rest.norm(dim=1) / features.norm(dim=1)).max())


@pytest.mark.parametrize("case", CASES)
def test_features_stay_parallel_to_the_class_sum_at_every_step(case):
    """Lemma B.6, and controls: lopsided noise, and class sums that are not orthogonal."""
    r = sums()
    for w in path(views(case), r):
        assert off_the_class_sums(w, r) < 1e-9
        assert w[:, 4:].abs().max() < 1e-12
    *_, lopsided = path(views(case, symmetric=False), r, 20)
    assert lopsided[:, 4:].abs().max() > 1e-3
    *_, overlapping = path(views(case), sums(square=False), 20)
    assert off_the_class_sums(overlapping, sums(square=False)) > 1e-3


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("missing", [0, 2])
def test_a_feature_that_is_missing_is_gained(case, missing):
    """Lemma B.7: where W u_c or W v_c is 0, a step adds to it along r_c."""
    r, x = sums(), views(case)
    *_, w = path(x, r, 20)
    w[:, missing] = 0
    assert float(r[0] @ gradient(x, r, w)[:, missing]) < -1e-4


@pytest.mark.parametrize("case", CASES)
def test_the_ratio_of_both_features_ends_within_the_bounds(case):
    """Lemma B.8, whose printed bounds are those of the inverse ratio."""
    *_, w = path(views(case), sums())
    ratio = w[:, 2:4].norm(dim=0) / w[:, :2].norm(dim=0)
    low, high = toy.ratio_bounds(*case[:2])
    assert (ratio > low).all()
    assert (ratio < high).all()
    stationary = toy.stationary_ratio(*case)
    assert (ratio - stationary).abs().max() < 0.02
