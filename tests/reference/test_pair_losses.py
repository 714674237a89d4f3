"""Every pair loss against a formula written here from its paper, in float64, with plain loops."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from draws import draw
from widefield.methods.alpha_cl import (
    PairImportance,
    alpha_cl,
    pair_importance,
    symmetric_alpha_cl,
)
from widefield.methods.barlow_twins import barlow_twins
from widefield.methods.byol import BYOL, Directions, prediction_error
from widefield.methods.diet import DietMSE, one_hot_error
from widefield.methods.infonce import infonce, symmetric_infonce
from widefield.methods.moco import MoCo, queue_cross_entropy
from widefield.methods.simsiam import SimSiam, negative_cosine
from widefield.methods.spectral import spectral_contrastive, spectral_in_ball
from widefield.methods.target import TargetNetwork
from widefield.methods.vicreg import vicreg

TEMPERATURES = st.sampled_from([0.1, 0.5, 2.0])
SEEDS = st.integers(0, 99)


VICREG = {"invariance_weight": 25.0, "variance_weight": 25.0, "cov_weight": 1.0}


def two_views(b: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    z = draw(b, m, seed=seed)
    return z, z + 0.5 * draw(b, m, seed=seed + 1000)


def rotation(m: int) -> Tensor:
    return torch.linalg.qr(draw(m, m, seed=7)).Q


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def half_square(a: list[float], b: list[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / 2


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def moments(column: list[float]) -> tuple[float, float]:
    """Mean and sum of squared deviations."""
    mean = sum(column) / len(column)
    return mean, sum((v - mean) ** 2 for v in column)


def columns(z: Tensor) -> list[list[float]]:
    return z.T.tolist()


# Barlow Twins


@settings(max_examples=15, deadline=None)
@given(b=st.integers(3, 7), m=st.integers(1, 4), weight=st.sampled_from([0.005, 1.0]), seed=SEEDS)
def test_barlow_twins_is_its_equation_1(b: int, m: int, weight: float, seed: int) -> None:
    z1, z2 = two_views(b, m, seed)
    total = 0.0
    for i, first in enumerate(columns(z1)):
        for j, second in enumerate(columns(z2)):
            (mean1, square1), (mean2, square2) = moments(first), moments(second)
            together = sum((x - mean1) * (y - mean2) for x, y in zip(first, second, strict=True))
            deviations = math.sqrt((square1 / b + 1e-5) * (square2 / b + 1e-5))
            c = together / b / deviations
            total += (1 - c) ** 2 if i == j else weight * c**2
    assert float(barlow_twins(z1, z2, off_diagonal_weight=weight)) == pytest.approx(total, rel=1e-9)


def test_barlow_twins_does_not_see_shift_or_scale_of_a_dimension() -> None:
    z1, z2 = two_views(32, 4)
    moved = barlow_twins(1e3 * draw(4) * z1 + 5 * draw(4, seed=1), z2, off_diagonal_weight=0.1)
    signs = draw(4).sign()
    torch.testing.assert_close(
        moved, barlow_twins(signs * z1, z2, off_diagonal_weight=0.1), rtol=1e-4, atol=0
    )


# VICReg


@settings(max_examples=15, deadline=None)
@given(b=st.integers(3, 7), m=st.integers(1, 4), seed=SEEDS)
def test_vicreg_is_the_authors_formula(b: int, m: int, seed: int) -> None:
    z1, z2 = two_views(b, m, seed)
    z1 = z1 / 2  # so that some deviations fall short of 1
    apart = sum(half_square(x, y) for x, y in zip(z1.tolist(), z2.tolist(), strict=True))
    total = 25 * 2 * apart / (b * m)
    for z in (z1, z2):
        for i, first in enumerate(columns(z)):
            mean1, square = moments(first)
            total += 25 * max(0, 1 - math.sqrt(square / (b - 1) + 1e-4)) / m / 2
            for j, second in enumerate(columns(z)):
                mean2, _ = moments(second)
                pairs = zip(first, second, strict=True)
                covariance = sum((x - mean1) * (y - mean2) for x, y in pairs) / (b - 1)
                total += (i != j) * covariance**2 / m
    assert float(vicreg(z1, z2, **VICREG)) == pytest.approx(total, rel=1e-9)


def test_vicreg_does_not_see_a_common_shift_or_the_order_of_dimensions() -> None:
    z1, z2 = two_views(16, 5)
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = vicreg((z1 + 3)[:, order], (z2 + 3)[:, order], **VICREG)
    torch.testing.assert_close(moved, vicreg(z1, z2, **VICREG))


# BYOL, SimSiam


@given(b=st.integers(1, 5), seed=SEEDS)
@settings(max_examples=15, deadline=None)
def test_predictions_are_compared_by_direction(b: int, seed: int) -> None:
    p, z = two_views(b, 3, seed)
    distance, similarity = 0.0, 0.0
    for x, y in zip(p.tolist(), z.tolist(), strict=True):
        length, other = math.sqrt(dot(x, x)), math.sqrt(dot(y, y))
        distance += 2 * half_square([v / length for v in x], [v / other for v in y]) / b
        similarity += cosine(x, y) / b
    assert float(prediction_error(p, z)) == pytest.approx(distance, rel=1e-9)
    assert float(negative_cosine(p, z)) == pytest.approx(-similarity, rel=1e-9)


@pytest.mark.parametrize("loss", [prediction_error, negative_cosine])
def test_directions_do_not_see_scale_or_rotation(loss: Callable[..., Tensor]) -> None:
    p, z = two_views(6, 4)
    scales = draw(6, 1).abs() + 0.1
    moved = loss(scales * p @ rotation(4), 3 * z @ rotation(4))
    torch.testing.assert_close(moved, loss(p, z))


def linear(seed: int) -> nn.Linear:
    layer = nn.Linear(3, 3, bias=False).double()
    layer.weight.data = draw(3, 3, seed=seed)
    return layer


def byol(
    encoder: nn.Module, projector: nn.Module, predictor: nn.Module, directions: Directions = "both"
) -> BYOL:
    method = BYOL(3, encoder=encoder, steps=10, ema_decay=0.9, directions=directions)
    method.projector, method.predictor = projector, predictor
    method.target = TargetNetwork(encoder, projector)
    return method


@pytest.mark.parametrize("directions", get_args(Directions))
def test_byol_adds_its_directions_and_moves_no_target(directions: Directions) -> None:
    encoder, projector, predictor = linear(1), linear(2), linear(3)
    method = byol(encoder, projector, predictor, directions)
    x1, x2 = two_views(4, 3)
    total = method(encoder, [x1, x2], torch.arange(4)).total
    expected = 0.0
    for seen, hidden in ((x1, x2), (x2, x1)) if directions == "both" else ((x1, x2),):
        p, z = predictor(projector(encoder(seen))).tolist(), projector(encoder(hidden)).tolist()
        expected += sum(2 - 2 * cosine(a, b) for a, b in zip(p, z, strict=True)) / 4
    assert float(total.detach()) == pytest.approx(expected, rel=1e-9)
    total.backward()
    assert all(p.grad is None for p in method.target.parameters())


def test_the_target_follows_and_stands_still_in_the_end() -> None:
    """BYOL's weights after each of 10 steps, starting from a decay of 0.9."""
    encoder, projector = linear(1), linear(2)
    method = byol(encoder, projector, linear(3))
    expected = encoder.weight.detach().clone()
    encoder.weight.data += 1
    for step in range(1, 11):
        method(encoder, list(two_views(4, 3)), torch.arange(4))
        method.after_step()
        kept = 1 - 0.1 * (math.cos(math.pi * step / 10) + 1) / 2
        expected = kept * expected + (1 - kept) * encoder.weight.detach()
        torch.testing.assert_close(method.target.encoder.weight, expected)
    assert kept == 1
    encoder.weight.data += 1  # a run that goes on beyond them
    method(encoder, list(two_views(4, 3)), torch.arange(4))
    method.after_step()
    torch.testing.assert_close(method.target.encoder.weight, expected)


def test_a_target_of_loaded_weights_has_statistics_of_its_own() -> None:
    """Loaded encoders are in evaluation mode; the target's statistics are of what it sees."""
    encoder = nn.Sequential(nn.BatchNorm1d(3)).double().eval()
    method = byol(encoder, nn.Identity(), nn.Identity())
    encoder.train()
    method(encoder, list(two_views(4, 3)), torch.arange(4))
    (norm,) = method.target.encoder
    assert int(norm.num_batches_tracked) == 2
    assert not torch.equal(norm.running_mean, torch.zeros(3).double())


def test_simsiam_moves_the_prediction_alone() -> None:
    """Its gradient is that of a target computed apart; without the stop-gradient it is not."""
    x1, x2 = two_views(4, 3)
    predictor, projector = linear(3), linear(2)

    def gradient(stop: bool, encoder: nn.Module, targets: list[Tensor] | None = None) -> Tensor:
        method = SimSiam(3, stop_gradient=stop)
        method.projector, method.predictor = projector, predictor
        if targets is None:
            total = method(encoder, [x1, x2], torch.arange(4)).total
        else:
            p1, p2 = (predictor(projector(encoder(x))) for x in (x1, x2))
            total = (negative_cosine(p1, targets[1]) + negative_cosine(p2, targets[0])) / 2
        return torch.autograd.grad(total, list(encoder.parameters()))[0]

    encoder = linear(1)
    fixed = [projector(encoder(x)).detach() for x in (x1, x2)]
    torch.testing.assert_close(gradient(True, encoder), gradient(True, encoder, fixed))
    assert not torch.allclose(gradient(False, encoder), gradient(True, encoder))


# MoCo


@settings(max_examples=15, deadline=None)
@given(b=st.integers(1, 5), length=st.integers(0, 6), temperature=TEMPERATURES, seed=SEEDS)
def test_moco_is_cross_entropy_over_batch_and_queue(
    b: int, length: int, temperature: float, seed: int
) -> None:
    q, keys = two_views(b, 3, seed)
    queue, usable = draw(length, 3, seed=seed + 1), draw(length, seed=seed + 2) > 0
    candidates = keys.tolist() + [u for u, ok in zip(queue.tolist(), usable, strict=True) if ok]
    total = 0.0
    for i, query in enumerate(q.tolist()):
        scores = [cosine(query, key) / temperature for key in candidates]
        total += math.log(sum(map(math.exp, scores))) - scores[i]
    ours = queue_cross_entropy(q, keys, queue, usable, temperature=temperature)
    assert float(ours) == pytest.approx(total / b, rel=1e-9)


def test_moco_does_not_see_the_order_of_its_queue() -> None:
    q, keys = two_views(4, 3)
    queue, usable = draw(9, 3, seed=5), torch.arange(9) % 3 > 0
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    moved = queue_cross_entropy(q, keys, queue[order], usable[order], temperature=0.2)
    torch.testing.assert_close(moved, queue_cross_entropy(q, keys, queue, usable, temperature=0.2))


def test_the_queue_keeps_the_newest_keys_and_leaves_out_the_batch() -> None:
    encoder = nn.Identity()
    method = MoCo(3, encoder=encoder, examples=5, projector_layers=0, temperature=0.5)
    batches = [([0, 1], 10), ([2, 3], 11), ([4, 0], 12)]
    for index, seed in batches:
        views = [draw(2, 3, seed=seed).float(), draw(2, 3, seed=seed + 50).float()]
        method(encoder, views, torch.tensor(index))
        method.after_step()
    assert method.queue_index.tolist() == [4, 0, 2, 3, 0]
    newest = torch.cat([draw(2, 3, seed=seed + 50).float() for _, seed in reversed(batches)])
    torch.testing.assert_close(method.queue, newest[:5])
    q, keys = draw(2, 3, seed=1).float(), draw(2, 3, seed=2).float()
    ours = method(encoder, [q, keys], torch.tensor([0, 9])).total
    others = method.queue[[0, 2, 3]]  # both keys of example 0 are left out
    everything = torch.ones(3, dtype=torch.bool)
    expected = queue_cross_entropy(q, keys, others, everything, temperature=0.5)
    torch.testing.assert_close(ours, expected)


# Spectral


@settings(max_examples=15, deadline=None)
@given(b=st.integers(1, 6), seed=SEEDS)
def test_spectral_is_equation_2_of_s_diet(b: int, seed: int) -> None:
    """Expectations over all b^2 pairs of views, times b."""
    z1, z2 = two_views(b, 3, seed)
    attract, repel = 0.0, 0.0
    for i, x in enumerate(z1.tolist()):
        for j, y in enumerate(z2.tolist()):
            attract += (i == j) * dot(x, y) / b**2
            repel += dot(x, y) ** 2 / b**2
    expected = b * (-attract + repel / 2)
    assert float(spectral_contrastive(z1, z2)) == pytest.approx(expected, rel=1e-9)


def test_spectral_is_haochens_loss_of_larger_projections() -> None:
    """-2 E[z.z+] + E[(z.z')^2] of sqrt(b) z is twice b times ours."""
    z1, z2 = two_views(5, 3)
    large1, large2 = math.sqrt(5) * z1, math.sqrt(5) * z2
    haochen = -2 * (large1 * large2).sum(1).mean() + (large1 @ large2.T).square().mean()
    torch.testing.assert_close(haochen, 2 * 5 * spectral_contrastive(z1, z2))


def test_spectral_projections_are_held_in_haochens_ball() -> None:
    """Longer rows come to its edge, shorter ones stay, and the loss is that of what is left."""
    b, shrunk = 8, torch.diag(torch.linspace(0.1, 3, 8, dtype=torch.float64))
    loss = spectral_in_ball(shrunk, shrunk)
    inside = shrunk.diagonal().clamp(max=math.sqrt(10 / b))
    expected = (inside**4 / 2 - inside**2).mean()
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)


def test_spectral_does_not_see_rotation() -> None:
    z1, z2 = two_views(6, 4)
    moved = spectral_contrastive(z1 @ rotation(4), z2 @ rotation(4))
    torch.testing.assert_close(moved, spectral_contrastive(z1, z2))


# InfoNCE, alpha-CL


@settings(max_examples=15, deadline=None)
@given(
    b=st.integers(2, 6),
    temperature=TEMPERATURES,
    eps=st.sampled_from([0.0, 0.3, 1.0]),
    seed=SEEDS,
)
def test_infonce_is_equation_1_of_tian(b: int, temperature: float, eps: float, seed: int) -> None:
    f, f2 = two_views(b, 3, seed)
    total = 0.0
    for i, (anchor, other) in enumerate(zip(f.tolist(), f2.tolist(), strict=True)):
        own = math.exp(-half_square(anchor, other) / temperature)
        rest = sum(
            math.exp(-half_square(anchor, x) / temperature)
            for j, x in enumerate(f.tolist())
            if j != i
        )
        total -= temperature * math.log(own / (eps * own + rest))
    ours = infonce(f, f2, temperature=temperature, eps=eps)
    assert float(ours) == pytest.approx(total / b, rel=1e-9, abs=1e-12)


def test_infonce_does_not_see_translation_or_rotation() -> None:
    f, f2 = two_views(6, 4)
    moved = infonce(f @ rotation(4) + 3, f2 @ rotation(4) + 3, temperature=0.5, eps=1.0)
    torch.testing.assert_close(moved, infonce(f, f2, temperature=0.5, eps=1.0))


def alpha(kind: PairImportance, f: Tensor, f0: Tensor, temperature: float = 0.5) -> Tensor:
    return pair_importance(f, f0, kind=kind, temperature=temperature)


def test_the_nearest_pair_counts_alone_at_a_tiny_temperature() -> None:
    z1, z2 = (draw(5, 3, seed=seed).float() for seed in (0, 1))
    z1.requires_grad_()
    f1, f2 = (torch.nn.functional.normalize(z, dim=1) for z in (z1, z2))
    for temperature in (1e-3, 1e-5):
        weights = alpha("gaussian", f1, (f1 + f2) / 2, temperature)
        apart = torch.pdist((f1 + f2).detach() / 2)
        i, j = torch.triu_indices(5, 5, 1)[:, apart.argmin()].tolist()
        assert weights[i, j] > 0
        torch.testing.assert_close(weights.sum(), 2 * weights[i, j])
        loss = symmetric_alpha_cl(z1, z2, kind="gaussian", temperature=temperature)
        z1.grad = None
        loss.backward()
        assert loss.isfinite()
        assert z1.grad is not None
        assert z1.grad.isfinite().all()


def test_pair_importance_is_its_formula() -> None:
    f, f0 = draw(5, 3), draw(5, 3, seed=1)
    t = 0.7
    for i in range(5):
        near = {j: half_square(f[i].tolist(), f[j].tolist()) for j in range(5) if j != i}
        total = sum(math.exp(-d / t) for d in near.values())
        for j, d in near.items():
            apart = 2 * half_square(f0[i].tolist(), f0[j].tolist())
            expected = {
                "quadratic": 1.0,
                "infonce": math.exp(-d / t) / total,
                "gaussian": math.exp(-apart / (2 * t)),
                "inverse": 1 / (t + d),
            }
            assert expected.keys() == set(get_args(PairImportance))
            for kind in get_args(PairImportance):
                found = float(alpha(kind, f, f0, t)[i, j])
                assert found == pytest.approx(expected[kind], rel=1e-9), kind


@pytest.mark.parametrize("kind", get_args(PairImportance))
def test_alpha_cl_is_the_trace_of_the_contrastive_covariance(kind: PairImportance) -> None:
    """Equation 3 as a matrix, summed pair by pair; its trace over the mean importance."""
    f, f2 = two_views(5, 3)
    weights = alpha(kind, f, f2)
    c = torch.zeros(3, 3, dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            between, within = f[i] - f[j], f[i] - f2[i]
            outer = torch.outer(between, between) - torch.outer(within, within)
            c += weights[i, j] * outer / (2 * 5**2)
    torch.testing.assert_close(alpha_cl(f, f2, weights), -c.trace() / weights.mean())
    torch.testing.assert_close(alpha_cl(f, f2, 7 * weights), alpha_cl(f, f2, weights))


@settings(max_examples=15, deadline=None)
@given(b=st.integers(2, 8), temperature=TEMPERATURES, seed=SEEDS)
def test_infonce_without_eps_has_alpha_cls_gradient(b: int, temperature: float, seed: int) -> None:
    """To 1e-6, through a nonlinear encoder; the constant is 1."""
    w = (draw(3, 4, seed=seed) / 2).requires_grad_()
    f, f2 = (torch.tanh(x @ w) for x in two_views(b, 3, seed))
    loss = infonce(f, f2, temperature=temperature, eps=0.0)
    energy = alpha_cl(f, f2, alpha("infonce", f, f, temperature))
    of_loss, of_energy = (torch.autograd.grad(t, w, retain_graph=True)[0] for t in (loss, energy))
    assert float((of_loss - of_energy).norm()) <= 1e-6 * float(of_loss.norm())


@pytest.mark.parametrize("kind", get_args(PairImportance))
def test_alpha_cl_on_the_sphere_takes_each_view_as_the_anchor(kind: PairImportance) -> None:
    views = [view.float() for view in two_views(6, 4)]
    f, f2 = (view / view.norm(dim=1, keepdim=True) for view in views)
    middle = (f + f2) / 2
    expected = (
        alpha_cl(f, f2, alpha(kind, f, middle)) + alpha_cl(f2, f, alpha(kind, f2, middle))
    ) / 2
    ours = symmetric_alpha_cl(*views, kind=kind, temperature=0.5)
    torch.testing.assert_close(ours, expected)


def test_infonce_on_the_sphere_takes_each_view_as_the_anchor() -> None:
    z1, z2 = two_views(6, 4)
    f, f2 = (view / view.norm(dim=1, keepdim=True) for view in (z1, z2))
    options = {"temperature": 0.5, "eps": 0.3}
    expected = (infonce(f, f2, **options) + infonce(f2, f, **options)) / 2
    torch.testing.assert_close(symmetric_infonce(z1, z2, **options), expected)


# DIET with squared error


@settings(max_examples=15, deadline=None)
@given(b=st.integers(1, 5), n=st.integers(5, 8), seed=SEEDS)
def test_diet_mse_is_squared_error_to_one_hot_labels(b: int, n: int, seed: int) -> None:
    h, rows = draw(b, 3, seed=seed), draw(n, 3, seed=seed + 1)
    target = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:b]
    total = 0.0
    for i, own in enumerate(target.tolist()):
        logits = [dot(row, h[i].tolist()) for row in rows.tolist()]
        total += half_square(logits, [float(j == own) for j in range(n)])
    assert float(one_hot_error(h, rows, target)) == pytest.approx(total / b, rel=1e-9)


def test_diet_mse_does_not_see_a_common_rotation_of_features_and_head() -> None:
    h, rows, target = draw(4, 3), draw(6, 3, seed=1), torch.arange(4)
    moved = one_hot_error(h @ rotation(3), rows @ rotation(3), target)
    torch.testing.assert_close(moved, one_hot_error(h, rows, target))


def test_diet_mse_looks_up_the_row_of_its_example() -> None:
    method = DietMSE(3, examples=9)
    h, index = draw(2, 3).float(), torch.tensor([7, 2])
    ours = method(nn.Identity(), [h], index).total
    torch.testing.assert_close(ours, one_hot_error(h, method.rows, index))
