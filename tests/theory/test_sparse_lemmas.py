"""Steps of the proofs of Wen and Li (2021), numerically.

Asymptotic bounds are tested with explicit constants at d = 64 atoms in d1 = 1024 dimensions.
"""

import math

import pytest
import torch
from torch import Tensor

from draws import generator
from widefield_labs import sparse_learner as learner
from widefield_labs.sparse_learner import SparseCoding, masked_pair

D, D1, NEURONS = 64, 1024, 1024
LOG = math.log(D)


@pytest.fixture(scope="module")
def data() -> SparseCoding:
    return SparseCoding.random(D, D1, 2.0, torch.ones(1), generator(0))


@pytest.fixture(scope="module")
def start() -> Tensor:
    """Weights w [m, d1] at initialization, with deviation 1."""
    return torch.randn(NEURONS, D1, generator=generator(1))


def draw(data: SparseCoding, count: int, seed: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return z, x = M z + xi and xi."""
    z, xi = data.sample(count, generator(seed))
    return z, z @ data.atoms.T + xi[0], xi[0]


def masks(count: int, seed: int = 3) -> Tensor:
    """Return the diagonals of I - 2 D, [n, d1]."""
    return torch.randint(0, 2, (count, D1), generator=generator(seed)) * 2.0 - 1


def dense_directions(data: SparseCoding, count: int) -> Tensor:
    """Return orthonormal columns outside the span of the atoms, [d1, count]."""
    v = torch.randn(D1, count, generator=generator(4))
    v = v - data.atoms @ (data.atoms.T @ v)
    return torch.linalg.qr(v).Q


def along(w: Tensor, atom: Tensor, length: float) -> Tensor:
    """Return w with its part along an atom set to `length`."""
    return w + (length - w @ atom) * atom


def positive_gradient(w: Tensor, b: float, pair: tuple[Tensor, Tensor], v: Tensor) -> Tensor:
    """Return the mean of h(x++) <grad h(x+), v> over pairs, [directions], of one neuron."""
    first, second = pair
    y = first @ w
    h = learner.respond((second @ w)[:, None], torch.tensor([b]))[:, 0]
    return ((h * (y.abs() > b))[:, None] * (first @ v)).mean(0)


def masked(x: Tensor, seed: int = 5) -> tuple[Tensor, Tensor]:
    keep = torch.rand(x.shape, generator=generator(seed))
    first, second = masked_pair(x[None], keep, torch.full((1, 1, 1), 0.5))
    return first[0], second[0]


def test_weights_at_the_start_have_the_sizes_of_lemma_b2(data, start):
    inside = start @ data.atoms
    squares = start.square().sum(1)
    assert (squares / D1 - 1).abs().max() < 5 * math.sqrt(2 / D1)  # (a)
    assert (inside.square().sum(1) / D - 1).abs().max() < 5 * math.sqrt(2 / D)  # (b)
    share = inside.square() / inside.square().sum(1, keepdim=True)
    lucky = share >= 2 * LOG / D
    assert lucky.any(0).float().mean() > 0.9  # (c): nearly every atom has a lucky neuron
    assert lucky.sum(0).max() < D / 4
    assert (inside.abs() <= 1 / D).float().mean() < 2 / D  # (d): the density of N(0, 1) is < 0.4
    together = lucky.float().T @ lucky.float()
    assert together.fill_diagonal_(0).max() <= LOG  # (e)
    assert lucky.sum(1).max() <= 4  # (f)
    assert (inside.abs() > LOG**0.25).float().mean() < 2 * 2 ** -math.sqrt(LOG)


def test_masks_correlate_atoms_by_one_over_the_root_of_the_dimension_as_lemma_b3(data):
    signs, dense = masks(40), dense_directions(data, 32)
    for v in (data.atoms, dense):
        overlap = torch.einsum("rj,nr,rk->njk", data.atoms, signs, v)
        assert overlap.abs().max() < 8 / math.sqrt(D1)
        assert overlap.std() == pytest.approx(1 / math.sqrt(D1), rel=0.15)


def test_pre_activations_have_the_tails_of_lemma_b4(data, start):
    z, x, xi = draw(data, 2000)
    w = start[0] / start[0].norm()
    atom, signs = data.atoms[:, 0], masks(2000)
    flipped = signs @ (w * atom)
    for size in (1.0, 2.0, 3.0):  # 1: Hoeffding with its own constant
        assert (flipped.abs() > size * atom.abs().max()).float().mean() <= 2 * math.exp(
            -(size**2) / 2
        )
    scale = math.sqrt(LOG) / D
    for y in (x @ w, (signs * x) @ w, xi @ w):  # 2: Chebyshev; E y^2 is at most 2 sqrt(log d)/d
        assert y.square().mean() < 2 * scale
        for size in (2.0, 5.0, 20.0):
            assert (y.square() > size * scale).float().mean() <= 2 / size
    sparse = (signs * (z @ data.atoms.T)) @ w
    assert sparse.square().max() < data.atoms.abs().max() ** 2 * LOG**4  # 3
    for y in ((signs * xi) @ w, xi @ w):
        assert y.square().max() < LOG**4 / D  # 4


def test_a_bias_above_the_weights_along_atoms_silences_a_neuron_as_lemma_b5(data, start):
    _, x, _ = draw(data, 2000)
    w = start[0] / start[0].norm()
    for y in (masked(x)[0] @ w, x @ w):
        small, large = ((y.abs() >= math.sqrt(k * LOG / D)).float().mean() for k in (2, 8))
        assert small < 0.3
        assert large < 0.05


def test_a_bias_lets_a_neuron_fire_for_its_own_atom_alone_as_lemma_b6(data, start):
    z, x, _ = draw(data, 2000)
    atom = data.atoms[:, 0]
    w = along(start[0] / start[0].norm(), atom, 2.0)
    rest = x - z[:, :1] * atom
    bias = 1.8  # |w|^2 = O(d b^2 / polylog d)
    assert (masked(rest)[0] @ w).abs().ge(0.99 * bias).float().mean() < 0.01
    own = z[:, 0] != 0
    assert (masked(x)[0] @ w)[own].abs().ge(bias).float().mean() > 0.5


def test_with_a_bias_the_gradients_have_the_bounds_of_lemmas_a2_and_a3(data, start):
    z, x, xi = draw(data, 4000)
    dense = dense_directions(data, 16)
    w = along(start[0] / start[0].norm(), data.atoms[:, 0], 2.0)
    bias = math.sqrt(2 * LOG / D) * float(w.norm())
    fires = ((x @ w).abs() >= bias).float()
    directions = torch.cat([data.atoms[:, :1], dense], dim=1)
    sparse, *noise = positive_gradient(w, bias, masked(x), directions)
    share = float((z[:, 0].square() * fires).mean())
    assert (2.0 - bias) * share < sparse < 2.0 * share  # h is between y - b and y
    spread = ((xi @ dense).square() * fires[:, None]).mean(0)
    error = 4 * float(w.norm()) * math.sqrt(LOG / D1)
    assert (torch.stack(noise).abs() < ((w @ dense).abs() + error) * spread + 0.005).all()
    assert torch.stack(noise).abs().max() < 0.2 * sparse


def test_with_masks_the_gradient_along_dense_directions_vanishes_as_lemma_c2(data, start):
    _, x, _ = draw(data, 4000)
    w = along(start[0] / start[0].norm(), data.atoms[:, 0], 0.5)
    dense = dense_directions(data, 32)
    w = along(w, dense[:, 0], 0.5)
    directions = torch.cat([data.atoms[:, :1], dense[:, :1]], dim=1)
    sparse, noise = positive_gradient(w, 0.0, masked(x), directions)
    assert sparse == pytest.approx(0.5 * data.active, rel=0.2)
    assert noise.abs() < 0.2 * sparse  # four standard errors


def test_without_masks_the_gradient_is_that_of_lemma_f1_and_dense_directions_grow(data, start):
    _, x, _ = draw(data, 5000)
    dense = dense_directions(data, 4)
    directions = torch.cat([data.atoms[:, :1], dense[:, :1]], dim=1)
    w = start[0] / start[0].norm()
    for k in (0, 1):
        w = along(w, directions[:, k], 0.5)
    found = positive_gradient(w, 0.0, (x, x), directions)
    expected = 0.5 * (x @ directions).square().mean(0)
    torch.testing.assert_close(found, expected, rtol=0.12, atol=0)
    # A.5: the rates differ by 1 + E z^2 / sigma^2, a constant, where masks leave none of the second
    variance = float(data.variance)
    assert found[0] / found[1] == pytest.approx(1 + data.active / variance, rel=0.15)


def test_the_dense_gradient_is_the_larger_without_masks_and_vanishes_with(data, start):
    """A.5: the gradient along each part of the weights, which sampling errors do not bias."""
    _, x, _ = draw(data, 4000)
    w = start[:64] / D1**0.5
    sparse = w @ data.atoms @ data.atoms.T
    ratio = {}
    for name, (first, second) in {"with": masked(x), "without": (x, x)}.items():
        h = second @ w.T
        inside, outside = (
            float((h * (first @ part.T)).mean(0).div(part.norm(dim=1)).mean())
            for part in (sparse, w - sparse)
        )
        ratio[name] = outside / inside
    assert ratio["without"] > 1
    assert abs(ratio["with"]) < 0.3


def test_dense_neurons_reach_a_low_loss_as_lemma_f2(data):
    losses = []
    dense = dense_directions(data, 256).T[None]
    _, x, _ = draw(data, 512)
    tau = torch.ones(1, 1, 1)
    for size in (0.5, 1.0, 2.0):
        f = learner.respond(x[None] @ (size * dense).mT, torch.zeros(1, 256))
        similar = learner.similarities(f[:, :256], f[:, :256], f[:, 256:])
        losses.append(float(learner.contrastive_loss(similar, tau)))
        assert losses[-1] <= LOG * D / (256 * size**2)
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.01


def test_without_masks_norms_grow_and_stay_dense_as_lemma_f3_and_fact_f4_say():
    """Where the noise is ten times sqrt(log d) / d: at one time the sparse part outgrows it."""
    row = {"tau": 1.0, "lam": 0.002, "mask_rate": 0.5, "noise": 10.0, "trained": 0.0}
    how = learner.Training(
        neurons=16, batch=128, steps=50, step_size=0.1, initial_norm=3e-4, bias_factor=0.0
    )
    arms = learner.Arms.paired([row])
    data = SparseCoding.random(32, 512, 2.0, arms.noise, generator(6))
    w, _, _ = learner.train(data, arms, how, generator(7))
    masked_norm, norm = learner.norms(w).mean(1) / how.initial_norm
    assert norm > 10
    assert masked_norm < norm / 3
    _, outside = learner.parts(w, data.atoms)
    assert (outside / learner.norms(w))[1].square().mean() > 0.8


def singletons(data: SparseCoding, size: float) -> Tensor:
    """Return a neuron of a length for each atom, [1, d, d1]."""
    return size * data.atoms.T[None]


def test_one_constant_bounds_the_error_of_sampled_gradients_as_fact_a1(data, start):
    _, x, _ = draw(data, 8000)
    w, pair = start[0] / start[0].norm(), masked(x)
    errors = []
    for count in (125, 500, 2000):
        batches = zip(*(view.split(count) for view in pair), strict=True)
        found = torch.stack([positive_gradient(w, 0.0, each, data.atoms) for each in batches])
        errors.append(float(found.std(0).mean()) * math.sqrt(count))
    assert max(errors) < 0.3 * float(w.norm())
    assert max(errors) / min(errors) < 1.3  # poly(d) examples make it as small as one likes


def test_one_constant_bounds_the_logits_of_small_weights_as_lemma_c3(data, start):
    constants = []
    for batch in (64, 256):
        _, x, _ = draw(data, 2 * batch)
        first, second = masked(x[:batch])
        for share in (0.1, 0.3):  # of tau / d, which the weights must stay below
            for tau in (0.3, 3.0):
                w = start / start.norm() * math.sqrt(share * tau / D)
                f = [learner.respond(y @ w.T, torch.zeros(NEURONS)) for y in (first, second, x)]
                similar = learner.similarities(f[0], f[1], f[2][batch:])
                off = (torch.softmax(similar / tau, 1) - 1 / (batch + 1)).abs().max()
                constants.append(float(off) * tau * (batch + 1) / float(w.square().sum()))
    assert max(constants) < LOG
    assert max(constants) / min(constants) < 3


@pytest.mark.parametrize("over_bias", [0.3, 0.6, 0.9, 1.2, 1.6, 2.0])
def test_the_gradient_along_an_atom_is_that_of_lemma_d3_with_one_constant(data, start, over_bias):
    z, x, xi = draw(data, 4000)
    atom, bias, own = data.atoms[:, 0], math.sqrt(2 * LOG / D), z[:, 0]
    alpha = over_bias * bias
    w = along(start[0] / start[0].norm(), atom, alpha)
    first, second = masked(x)
    found = (learner.respond((second @ w)[:, None], torch.tensor([bias]))[:, 0] * own)[
        (first @ w).abs() >= bias
    ].sum() / len(z)
    aligned = ((x @ w).abs() >= bias + ((first - x) @ w).abs()).float()
    main = (alpha if alpha < bias else alpha - bias) * (own.square() * aligned).mean()
    rest, signs = x - own[:, None] * atom, 1 - first / x
    flipped, turned = (signs * rest) @ w, (signs * atom) @ w
    y = rest @ w
    half = (alpha - bias) / 2
    events = (
        (y >= bias - alpha, flipped >= bias - turned)
        if alpha < bias
        else ((flipped + turned).abs() >= half, y >= half)
    )
    either = sum(event.float() for event in events)
    noise = (xi @ w).square().mean()
    errors = (flipped.square() * either).mean().div(noise).sqrt() + events[0].float().mean()
    scale = (alpha + turned.square().mean().sqrt()) * own.square().mean() * errors
    assert found - main < 2 * scale
    if alpha > bias:  # (b) is an equality
        assert abs(found - main) < 2 * scale


def test_a_neuron_fires_where_its_atom_is_present_alone_as_fact_e3(data, start):
    z, x, _ = draw(data, 4000)
    w, present = data.atoms[:, 0] + 0.1 * start[0] / start[0].norm(), z[:, 0] != 0
    for view in (x, *masked(x)):
        fires = (view @ w).abs() > 0.8
        assert (fires & ~present).float().mean() < 0.01
        assert fires.float().mean() <= 1.2 * data.active


def test_the_gradient_is_the_sum_of_the_four_parts_of_definition_e4(data, start):
    z, x, xi = draw(data, 500)
    keep = torch.rand(x.shape, generator=generator(5))
    first, second = (part[0] for part in masked_pair(x[None], keep, torch.full((1, 1, 1), 0.5)))
    w, bias = along(start[0] / start[0].norm(), data.atoms[:, 0], 1.0), 0.3
    for view, of in ((second, z), (x, z)):  # of a partner, and of a negative
        y, part = view @ w, of[:, 0] * (w @ data.atoms[:, 0])
        above, below = (y > bias).float(), (y < -bias).float()
        psi = (part - bias) * above - (part + bias) * below
        phi = (y - part) * (above - below)
        h = learner.respond(y[:, None], torch.tensor([bias]))[:, 0]
        signed = (part - bias) * above - (-part - bias) * below + (y - part) * (above + below)
        torch.testing.assert_close(signed, h, atol=1e-5, rtol=0)
        assert not torch.allclose(psi + phi, h, atol=1e-3)  # as printed, with minus for y < -b
    signs = 2 * (keep < 0.5).float() - 1
    parts = (
        (signs * (z @ data.atoms.T)) @ data.atoms[:, 0],
        (2 * (keep < 0.5) * xi) @ data.atoms[:, 0],
    )
    torch.testing.assert_close(first @ data.atoms[:, 0], z[:, 0] + sum(parts), atol=1e-4, rtol=0)


def test_a_feature_grows_until_its_neurons_hold_tau_log_d_as_lemmas_e5_and_e6(data):
    """Psi over the weight along the atom, of one neuron for each atom."""
    z, x, _ = draw(data, 1500)
    first, second = masked(x[:750])
    growth = []
    for size in (0.5, 1.0, 2.0, 4.0):
        w, bias = singletons(data, size), torch.full((1, D), 0.3 * size)
        f = [learner.respond(y @ w.mT, bias) for y in (first, second, x[750:])]
        p = torch.softmax(learner.similarities(*f), dim=-1)[0]
        y = (second @ w[0].T, x[750:] @ w[0].T)
        part = (z[:750] * size, z[750:] * size)
        psi = [
            (a - 0.3 * size) * (v > 0.3 * size) + (a + 0.3 * size) * (v < -0.3 * size)
            for a, v in zip(part, y, strict=True)
        ]
        fires = ((first @ w[0].T).abs() >= 0.3 * size) * z[:750]
        total = (1 - p[:, :1]) * psi[0] - p[:, 1:] @ psi[1]
        growth.append(float((total * fires).mean()) / size / float(z.abs().mean()))
    assert growth[0] > growth[1] > growth[2] > growth[3]
    assert abs(growth[3]) < growth[0] / 8  # E.6 has 0, for more negatives than are here
