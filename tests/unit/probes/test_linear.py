from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from widefield.probes import LinearProbe, fit_linear
from widefield.probes.folds import validation_split
from widefield.probes.linear import L2_GRID
from widefield.probes.paired import wilson


def problem(
    n: int = 400, dim: int = 12, classes: int = 4, seed: int = 0, noise: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Correlated features of very different loudness, and classes that overlap."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(n, dim, generator=generator)
    scores = h @ torch.randn(dim, classes, generator=generator)
    y = (scores + noise * dim**0.5 * torch.randn(n, classes, generator=generator)).argmax(1)
    mix = torch.randn(dim, dim, generator=generator) * torch.logspace(1, -2, dim)
    return h @ mix + 5, y


def objective(weight: Tensor, bias: Tensor, z: Tensor, y: Tensor, l2: float) -> Tensor:
    return functional.cross_entropy(z @ weight.T + bias, y) + l2 / 2 * weight.square().sum()


def standardized(h: Tensor) -> Tensor:
    h = h.double()
    return (h - h.mean(0)) / h.std(0, correction=0)


def in_standardized(result: LinearProbe, h: Tensor) -> tuple[Tensor, Tensor]:
    weight, h = result.weight.double(), h.double()
    return weight * h.std(0, correction=0), result.bias.double() + weight @ h.mean(0)


@pytest.mark.parametrize("l2", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(("n", "dim", "classes"), [(400, 12, 4), (300, 20, 3), (40, 90, 3)])
def test_is_the_optimum_that_scikit_learn_finds(n: int, dim: int, classes: int, l2: float) -> None:
    h, y = problem(n, dim, classes)
    result = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": classes}, l2_grid=[l2])["t"]
    z = standardized(h)
    model = LogisticRegression(C=1 / (n * l2), tol=1e-10, max_iter=10_000).fit(z.numpy(), y.numpy())
    their_weight, their_bias = torch.tensor(model.coef_), torch.tensor(model.intercept_)
    weight, bias = in_standardized(result, h)
    # f is l2-strongly convex in W, so a gradient of 1e-4 (and rounding) allows this and no more.
    gradient = 1.5e-4
    gap = objective(weight, bias, z, y, l2) - objective(their_weight, their_bias, z, y, l2)
    assert -1e-8 < gap < gradient**2 / (2 * l2)
    assert (weight - their_weight).norm() < gradient / l2
    predicted = (z @ weight.T + bias).argmax(1).numpy()
    assert (predicted == model.predict(z.numpy())).mean() > 0.995
    assert result.outcome.value == pytest.approx(model.score(z.numpy(), y.numpy()), abs=0.005)
    assert result.l2 == l2


def test_two_classes_are_scikit_learns_with_half_the_penalty() -> None:
    """It fits one difference u of logits; weights -u/2 and u/2 have half of u's square."""
    h, y = problem(300, 20, 2)
    result = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 2}, l2_grid=[1e-2])["t"]
    model = LogisticRegression(C=2 / (300 * 1e-2), tol=1e-10, max_iter=10_000)
    u = model.fit(standardized(h).numpy(), y.numpy()).coef_
    weight, _ = in_standardized(result, h)
    torch.testing.assert_close(weight[1:] - weight[:1], torch.tensor(u), rtol=0.02, atol=2e-3)
    torch.testing.assert_close(weight[1], -weight[0], rtol=0, atol=1e-3)


@pytest.mark.parametrize("l2", [1e-5, 1e-2, 10.0])
def test_the_gradient_vanishes_at_the_solution(l2: float) -> None:
    h, y = problem()
    result = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[l2])["t"]
    weight, bias = (p.requires_grad_() for p in in_standardized(result, h))
    objective(weight, bias, standardized(h), y, l2).backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert torch.hypot(weight.grad.norm(), bias.grad.norm()) < 2e-4  # 1e-4, and rounding
    start = torch.zeros_like(weight).detach().requires_grad_()
    objective(start, bias.detach(), standardized(h), y, l2).backward()
    assert start.grad is not None
    assert start.grad.norm() > 0.1


def test_accuracy_is_that_of_the_returned_weights_on_features_as_given() -> None:
    h, y = problem(800)
    result = fit_linear(h[:400], {"t": y[:400]}, h[400:], {"t": y[400:]}, classes={"t": 4})["t"]
    right = int(((h[400:] @ result.weight.T + result.bias).argmax(1) == y[400:]).sum())
    assert result.outcome.value == right / 400
    assert result.outcome.interval == wilson(right, 400)


def test_tasks_solved_together_are_the_tasks_solved_alone() -> None:
    h, first = problem(classes=4)
    labels = {"first": first, "second": (first == 1).long(), "third": first.flip(0) % 3}
    classes = {"first": 4, "second": 2, "third": 3}
    together = fit_linear(h, labels, h, labels, classes=classes, l2_grid=[1e-3])
    for task, count in classes.items():
        alone = fit_linear(h, labels, h, labels, classes={task: count}, l2_grid=[1e-3])[task]
        assert together[task].weight.shape == (count, 12)
        torch.testing.assert_close(together[task].weight, alone.weight, rtol=0.02, atol=2e-3)
        assert together[task].outcome.value == pytest.approx(alone.outcome.value, abs=0.003)


def test_a_grid_solved_in_parts_is_the_same_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = problem()
    whole = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4})["t"]
    monkeypatch.setattr("widefield.probes.linear._LOGITS", 3 * 400 * 4)
    parts = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4})["t"]
    assert parts.validation == pytest.approx(whole.validation)
    assert parts.l2 == whole.l2


def test_strength_is_chosen_on_the_training_examples_alone() -> None:
    h, y = problem(300, 60, noise=3.0)
    once = fit_linear(h, {"t": y}, h[:50], {"t": y[:50]}, classes={"t": 4}, seed=3)["t"]
    again = fit_linear(h, {"t": y}, h[50:], {"t": 3 - y[50:]}, classes={"t": 4}, seed=3)["t"]
    assert once.validation == again.validation
    assert torch.equal(once.weight, again.weight)
    assert list(once.validation) == sorted(L2_GRID)
    assert once.validation[once.l2] == max(once.validation.values())
    assert once.l2 >= 0.1  # with this much noise a weak penalty overfits


def test_of_equally_accurate_strengths_the_lowest_cross_entropy_wins() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(200, 3, generator=generator)
    separable = (h[:, 0] > 0).long()  # the weaker the penalty the better
    result = fit_linear(h, {"t": separable}, h, {"t": separable}, classes={"t": 2})["t"]
    assert result.validation[1e-4] == result.validation[1e-5] == 1.0
    assert result.l2 == 1e-5


def test_a_hardly_penalized_separable_task_stays_finite() -> None:
    h = torch.cat([torch.eye(4) * 1e3] * 10)
    y = {"t": torch.arange(40) % 4}
    result = fit_linear(h, y, h, y, classes={"t": 4}, l2_grid=[1e-12])["t"]
    assert result.outcome.value == 1.0
    assert result.weight.isfinite().all()


def test_validation_accuracy_is_measured_on_examples_left_out() -> None:
    generator = torch.Generator().manual_seed(0)
    h, y = torch.randn(100, 300, generator=generator), torch.arange(100) % 2
    result = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 2}, l2_grid=[1e-5])["t"]
    assert result.outcome.value == 1.0  # these labels mean nothing, but were learned by heart
    assert 0.2 < result.validation[1e-5] < 0.8


def test_the_split_takes_a_fifth_of_every_class() -> None:
    first = torch.tensor([0] * 50 + [1] * 10 + [2] * 3 + [3] * 2)
    target = torch.stack([first, first.flip(0)])
    held_out = validation_split(target, 0)
    for labels, held in zip(target, held_out, strict=True):
        assert [int(held[labels == k].sum()) for k in range(4)] == [10, 2, 1, 1]
    other = validation_split(target, 1)
    assert not torch.equal(held_out, other)


def test_a_task_is_fitted_alike_alone_and_beside_another() -> None:
    for seed in range(8):
        h, y = problem(150, 30, 3, seed=seed, noise=2.0)
        labels = {"first": (y > 0).long(), "second": y, "third": (y > 1).long()}
        classes = {"first": 2, "second": 3, "third": 2}
        together = fit_linear(h, labels, h, labels, classes=classes)
        for task, count in classes.items():
            alone = fit_linear(h, labels, h, labels, classes={task: count})[task]
            assert together[task].validation == alone.validation
            assert together[task].l2 == alone.l2
            assert torch.equal(together[task].predicted, alone.predicted)


def test_constant_features_change_nothing() -> None:
    h, y = problem()
    constant = torch.tensor([0.1, -3e4, 0.0]).expand(400, 3)
    plain = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])["t"]
    padded_h = torch.cat([h, constant], dim=1)
    padded = fit_linear(padded_h, {"t": y}, padded_h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])
    assert padded["t"].weight[:, 12:].abs().max() == 0
    torch.testing.assert_close(padded["t"].weight[:, :12], plain.weight, rtol=0.02, atol=2e-3)
    dead = torch.ones(400, 5)
    result = fit_linear(dead, {"t": y}, dead, {"t": y}, classes={"t": 4})["t"]
    assert result.outcome.value == pytest.approx(float((y == y.mode().values).float().mean()))


SINGLE, BOTH = (torch.float32,), (torch.float32, torch.float64)


@pytest.mark.parametrize("l2_grid", [(1e-2,), L2_GRID])
@pytest.mark.parametrize(("failing", "raises"), [(SINGLE, True), (BOTH, True), (SINGLE, False)])
@pytest.mark.parametrize(("n", "dim"), [(400, 12), (60, 90)])
def test_eigenvectors_that_lapack_does_not_reach_are_not_needed(
    n: int,
    dim: int,
    failing: tuple[torch.dtype, ...],
    raises: bool,
    l2_grid: Sequence[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On features most of which were constant it gave up, or returned NaN and said nothing."""
    (h, y), sizes, eigh = problem(n, dim), {"task": 4}, torch.linalg.eigh
    found = fit_linear(h, {"task": y}, h, {"task": y}, classes=sizes, l2_grid=l2_grid)["task"]

    def fails(gram: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = eigh(gram)
        if gram.dtype not in failing:
            return values, vectors
        if raises:
            raise RuntimeError("the algorithm failed to converge")
        return values, vectors * torch.nan

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    again = fit_linear(h, {"task": y}, h, {"task": y}, classes=sizes, l2_grid=l2_grid)["task"]
    assert again.l2 == found.l2
    assert again.outcome.value == found.outcome.value
    assert torch.equal(again.predicted, found.predicted)
    gap = (a - b for a, b in zip(in_standardized(again, h), in_standardized(found, h), strict=True))
    assert all(part.norm() < 3e-4 / found.l2 for part in gap)  # each within half of the optimum


def test_reduced_precision_of_matrix_products_does_no_harm() -> None:
    h, y = problem()
    exact = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])["t"]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        rough = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])["t"]
    finally:
        torch.set_float32_matmul_precision(before)
    assert rough.outcome.value == pytest.approx(exact.outcome.value, abs=0.01)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (731, 1000)])
def test_wilson_equals_scipy(hits: int, trials: int) -> None:
    expected = binomtest(hits, trials).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(hits, trials), expected, atol=1e-7)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"h": torch.full((20, 3), torch.nan)}, "training features contain NaN"),
        ({"h": torch.full((20, 3), 1e39, dtype=torch.float64)}, "training features contain NaN"),
        ({"h": torch.randn(20)}, r"training features have shape \[20\]"),
        ({"test_h": torch.randn(20, 4)}, "3 columns and test features 4"),
        ({"y": torch.arange(19) % 2}, r"'t': training labels have shape \[19\] for 20 rows"),
        ({"test_y": torch.arange(21) % 2}, r"'t': test labels have shape \[21\] for 20 rows"),
        ({"y": torch.zeros(20).long()}, "'t': training labels hold one class"),
        ({"y": (torch.arange(20) == 7).long()}, "'t': class 1 has one training example"),
        ({"y": torch.arange(20) % 3}, "'t': training labels run from 0 to 2: .* 0 to 1"),
        ({"y": torch.arange(20) % 2 - 1}, "run from -1 to 0"),
        ({"y": torch.arange(20) % 2 / 1.0}, "'t': training labels have dtype torch.float32"),
        ({"y": torch.arange(20) % 2 > 0}, "labels have dtype torch.bool: give class ids, int64"),
        ({"y": (torch.arange(20) % 2).short()}, "labels have dtype torch.int16"),
        ({"task": "other"}, "'other': training labels are missing"),
        ({"l2_grid": [0.0, 1.0]}, "all above 0"),
        ({"l2_grid": []}, "at least one strength"),
    ],
)
def test_input_that_cannot_work_is_refused(change: dict[str, object], reason: str) -> None:
    given = {
        "h": torch.randn(20, 3, generator=torch.Generator().manual_seed(0)),
        "y": torch.arange(20) % 2,
        "test_h": torch.ones(20, 3),
        "test_y": torch.arange(20) % 2,
        "task": "t",
        "l2_grid": [1.0],
        **change,
    }
    with pytest.raises(ValueError, match=reason) as caught:
        fit_linear(
            given["h"],
            {"t": given["y"]},
            given["test_h"],
            {"t": given["test_y"]},
            classes={given["task"]: 2},
            l2_grid=given["l2_grid"],
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_the_scale_of_features_changes_no_score(scale: float) -> None:
    """Squares of such features vanish or overflow in single precision."""
    h, y = problem()
    plain = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])["t"]
    h = scale * h
    scaled = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 4}, l2_grid=[1e-2])["t"]
    assert plain.outcome.value > 0.4
    assert scaled.outcome.value == pytest.approx(plain.outcome.value, abs=0.003)
    torch.testing.assert_close(scale * scaled.weight, plain.weight, rtol=0.01, atol=1e-3)
    assert ((h @ scaled.weight.T + scaled.bias).argmax(1) == scaled.predicted).all()
