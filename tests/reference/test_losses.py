"""Every loss against a formula written here from its paper, in float64, with plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draws import draw
from widefield.head import batch_cross_entropy, decoupled_contrast, view_contrast
from widefield.methods.diet import Diet
from widefield.methods.simclr import nt_xent, one_sided
from widefield.methods.supervised import Supervised


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt()))


def smoothed_cross_entropy(logits: list[float], target: int, smoothing: float) -> float:
    """-sum_j q_j log p_j with q = (1 - smoothing) onehot + smoothing / K."""
    log_total = math.log(sum(math.exp(v) for v in logits))
    k = len(logits)
    q = [smoothing / k + (1 - smoothing) * (j == target) for j in range(k)]
    return -sum(q_j * (v - log_total) for q_j, v in zip(q, logits, strict=True))


@settings(max_examples=20, deadline=None)
@given(b=st.integers(2, 7), temperature=st.sampled_from([0.07, 0.2, 1.0]), seed=st.integers(0, 99))
def test_nt_xent_is_equation_1_of_simclr(b: int, temperature: float, seed: int) -> None:
    z1, z2 = draw(b, 3, seed=seed), draw(b, 3, seed=seed + 1000)
    everything = [*z1, *z2]
    total = 0.0
    for i, anchor in enumerate(everything):
        partner = (i + b) % (2 * b)
        scores = {j: cosine(anchor, z) / temperature for j, z in enumerate(everything) if j != i}
        total += -scores[partner] + math.log(sum(math.exp(s) for s in scores.values()))
    ours = float(nt_xent(z1, z2, temperature=temperature))
    assert ours == pytest.approx(total / (2 * b), rel=1e-5)


@settings(max_examples=15, deadline=None)
@given(b=st.integers(1, 5), temperature=st.sampled_from([0.07, 1.0]), seed=st.integers(0, 99))
def test_one_sided_is_the_code_of_feature_dropout(b: int, temperature: float, seed: int) -> None:
    """Of the authors' code: no second view is an anchor, and each anchor meets itself."""
    z1, z2 = draw(b, 3, seed=seed), draw(b, 3, seed=seed + 1)
    total = 0.0
    for i in range(b):
        others = [math.exp(cosine(z1[i], z) / temperature) for z in (*z1, *z2)]
        total += math.log(sum(others)) - cosine(z1[i], z2[i]) / temperature
    ours = float(one_sided(z1, z2, temperature=temperature))
    assert ours == pytest.approx(total / b, rel=1e-5)


def test_nt_xent_does_not_see_scale_or_rotation() -> None:
    z1, z2 = draw(6, 4).float(), draw(6, 4, seed=1).float()
    rotation = torch.linalg.qr(draw(4, 4, seed=2).float()).Q
    scales = torch.rand(6, 1) + 0.5
    moved = nt_xent(scales * z1 @ rotation, 3 * z2 @ rotation, temperature=0.2)
    torch.testing.assert_close(moved, nt_xent(z1, z2, temperature=0.2))


@settings(max_examples=20, deadline=None)
@given(
    b=st.integers(1, 7),
    scale=st.sampled_from([1.0, 8.0]),
    smoothing=st.sampled_from([0.0, 0.3, 0.8]),
    seed=st.integers(0, 99),
)
def test_batch_cross_entropy_is_equation_5_of_s_diet(
    b: int, scale: float, smoothing: float, seed: int
) -> None:
    z, rows = draw(b, 4, seed=seed), draw(b, 4, seed=seed + 1000)
    total = 0.0
    for i in range(b):
        logits = [scale * float(z[i] @ rows[j]) for j in range(b)]
        total += smoothed_cross_entropy(logits, i, smoothing)
    ours = float(batch_cross_entropy(z, rows, scale=scale, smoothing=smoothing))
    assert ours == pytest.approx(total / b, rel=1e-5, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(b=st.integers(2, 7), scale=st.sampled_from([1.0, 8.0]), seed=st.integers(0, 99))
def test_decoupled_contrast_sums_over_what_is_not_the_examples_own(
    b: int, scale: float, seed: int
) -> None:
    z, rows = F.normalize(draw(b, 4, seed=seed), dim=1), draw(b, 4, seed=seed + 1000)
    total = 0.0
    for i in range(b):
        others = [j for j in range(b) if j != i]
        near = [cosine(z[i], rows[j]) for j in others] + [cosine(z[i], z[j]) for j in others]
        total -= scale * cosine(z[i], rows[i])
        total += math.log(sum(math.exp(scale * s) for s in near))
    assert float(decoupled_contrast(z, rows, scale=scale)) == pytest.approx(total / b, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(b=st.integers(2, 6), weight=st.sampled_from([0.5, 3.0]), seed=st.integers(0, 99))
def test_view_contrast_is_a_contrast_of_views_and_a_cross_entropy_with_rows(
    b: int, weight: float, seed: int
) -> None:
    scale, smoothing = 4.0, 0.3
    z, v = (F.normalize(draw(b, 4, seed=seed + s), dim=1) for s in (0, 2000))
    rows, total = draw(b, 4, seed=seed + 1000), 0.0
    for i in range(b):
        far = 0.0
        for j in set(range(b)) - {i}:
            far += math.exp(scale * cosine(z[i], v[j])) + math.exp(scale * cosine(z[i], z[j]))
        total += math.log(far) - scale * cosine(z[i], v[i])
        logits = [float(z[i] @ rows[j]) for j in range(b)]
        total += weight * smoothed_cross_entropy(logits, i, smoothing)
    loss = view_contrast(z, rows, v, scale=scale, cross_entropy_weight=weight, smoothing=smoothing)
    assert float(loss) == pytest.approx(total / b, rel=1e-6)


def test_decoupled_contrast_does_not_see_the_length_of_rows_or_a_rotation() -> None:
    z, rows = F.normalize(draw(6, 4), dim=1), draw(6, 4, seed=1)
    rotation = torch.linalg.qr(draw(4, 4, seed=2)).Q
    lengths = torch.rand(6, 1, dtype=torch.float64) + 0.5
    moved = decoupled_contrast(z @ rotation, lengths * rows @ rotation, scale=5.0)
    torch.testing.assert_close(moved, decoupled_contrast(z, rows, scale=5.0))


def test_batch_cross_entropy_of_all_rows_is_full_cross_entropy() -> None:
    """With b = n the two losses are one (S-DIET, equation 5)."""
    z, rows = draw(5, 3).float(), draw(5, 3, seed=1).float()
    full = torch.nn.functional.cross_entropy(z @ rows.T, torch.arange(5), label_smoothing=0.8)
    torch.testing.assert_close(batch_cross_entropy(z, rows, scale=1.0, smoothing=0.8), full)


def test_diet_is_cross_entropy_against_the_example() -> None:
    method = Diet(3, examples=9)
    h, index = draw(2, 3).float(), torch.tensor([7, 2])
    ours = float(method(torch.nn.Identity(), [h], index).total.detach())
    expected = 0.0
    for i in range(2):
        logits = [float(h[i] @ row) for row in method.rows.detach()]
        expected += smoothed_cross_entropy(logits, int(index[i]), 0.8) / 2
    assert ours == pytest.approx(expected, rel=1e-5)


def test_supervised_leaves_out_who_has_no_label() -> None:
    labels = {"shape": torch.tensor([0, 2, -1, -1]), "color": torch.tensor([1, 0, 0, 1])}
    method, h = Supervised(3, labels=labels), draw(3, 3).float()
    parts = method(torch.nn.Identity(), [h], torch.tensor([2, 1, 3])).parts
    alone = method(torch.nn.Identity(), [h[1:2]], torch.tensor([1])).parts
    torch.testing.assert_close(parts["loss_shape"], alone["loss_shape"])
    out = method(torch.nn.Identity(), [h[:2]], torch.tensor([2, 3]))
    assert float(out.parts["loss_shape"]) == 0
    out.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


def test_supervised_is_the_sum_of_its_tasks() -> None:
    labels = {"shape": torch.tensor([0, 2, 1, 1]), "color": torch.tensor([1, 0, 0, 1])}
    method = Supervised(3, labels=labels)
    h, index = draw(2, 3).float(), torch.tensor([3, 0])
    out = method(torch.nn.Identity(), [h], index)
    expected = 0.0
    for y, classify in zip(labels.values(), method.classifiers, strict=True):
        logits = classify(h).tolist()
        for row, i in zip(logits, index.tolist(), strict=True):
            expected += smoothed_cross_entropy(row, int(y[i]), 0.0) / 2
    assert float(out.total.detach()) == pytest.approx(expected, rel=1e-5)
    assert float(out.total.detach()) == pytest.approx(float(sum(out.parts.values())), rel=1e-6)
