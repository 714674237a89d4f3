"""The lazy SGD against torch's dense one, and the paper's visit against steps one at a time."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heads import BATCH, DIM, N, cosine, head_of, pull, visit, visits
from runs import Killed, assert_same_weights, die_at, images, small
from widefield.config.recipes import make_recipe
from widefield.head import (
    DiskStorage,
    Layout,
    LazySGD,
    MemoryStorage,
    PerExampleHead,
    Update,
)
from widefield.workflows.pretrain import pretrain

LAYOUT = Layout(second_moment="none")


def double_storage() -> MemoryStorage:
    return MemoryStorage(N, DIM, seed=5, dtype=torch.float64, layout=LAYOUT)


def dense(target: Tensor, batches: list[Tensor], lr: Tensor, wd: float, momentum: float) -> Tensor:
    """Torch's SGD moves every row at every step; its weight decay, decoupled, comes first."""
    rows = double_storage().row.clone().requires_grad_()
    sgd = torch.optim.SGD([rows], lr=1.0, momentum=momentum)
    for s, index in enumerate(batches):
        rows.grad = torch.zeros_like(rows)
        rows.grad[index] = pull(rows.detach()[index], target[index])
        with torch.no_grad():
            rows.mul_(1 - float(lr[s]) * wd)
        sgd.param_groups[0]["lr"] = float(lr[s])
        sgd.step()
    return rows.detach()


def lazy(target: Tensor, batches: list[Tensor], lr: Tensor, wd: float, momentum: float) -> Tensor:
    head = head_of(double_storage())
    LazySGD(head, weight_decay=wd, momentum=momentum)
    for index, rate in zip(batches, lr.tolist(), strict=True):
        visit(head, index, pull(head.rows(index), target[index]), lr=rate)
    return head.rows(torch.arange(N))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 150),
    wd=st.sampled_from([0.0, 0.05, 5.0]),
    momentum=st.sampled_from([0.0, 0.5, 0.9, 0.99]),
)
def test_lazy_equals_dense_sgd(seed: int, steps: int, wd: float, momentum: float) -> None:
    target = torch.randn(N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    batches, lr = visits(steps, seed), cosine(steps, 0.05)
    ours, theirs = (way(target, batches, lr, wd, momentum) for way in (lazy, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gaps_far_beyond_the_horizon_stay_exact() -> None:
    """One visit, then hundreds of steps away: the truncated sum loses nothing."""
    steps = 800
    target = torch.ones(N, DIM, dtype=torch.float64)
    first, again = torch.arange(BATCH), torch.arange(BATCH, 2 * BATCH)
    batches, lr = [first] + [again] * (steps - 2) + [first], cosine(steps, 0.01)
    assert steps > 2 * LazySGD(head_of(double_storage())).horizon(torch.float64)
    ours, theirs = (way(target, batches, lr, 0.05, 0.9) for way in (lazy, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_float32_rows_follow_a_dense_float32_sgd() -> None:
    steps, g = 400, torch.Generator().manual_seed(3)
    lr, batches = cosine(steps, 0.01), visits(steps, 3)
    storage = MemoryStorage(N, DIM, seed=5, layout=LAYOUT)
    rows = storage.row.clone().requires_grad_()
    head, sgd = head_of(storage), torch.optim.SGD([rows], lr=1.0, momentum=0.9)
    LazySGD(head)
    for s, index in enumerate(batches):
        grad = torch.randn(BATCH, DIM, generator=g)
        visit(head, index, grad, lr=float(lr[s]))
        rows.grad = torch.zeros_like(rows)
        rows.grad[index] = grad
        with torch.no_grad():
            rows.mul_(1 - float(lr[s]) * 0.05)
        sgd.param_groups[0]["lr"] = float(lr[s])
        sgd.step()
    torch.testing.assert_close(head.rows(torch.arange(N)), rows.detach(), rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    gap=st.integers(1, 200),
    lr=st.sampled_from([1e-3, 0.1, 0.2]),
    wd=st.sampled_from([0.0, 0.05, 0.5]),
    seed=st.integers(0, 99),
)
def test_the_papers_visit_equals_its_steps(gap: int, lr: float, wd: float, seed: int) -> None:
    """Equations 6 and 7, whose second sign is a minus; 0.2 x 0.5 makes a = momentum."""
    g, index = torch.Generator().manual_seed(seed), torch.arange(BATCH)
    storage = double_storage()
    row, m = storage.row[:BATCH].clone(), torch.zeros(BATCH, DIM, dtype=torch.float64)
    head = head_of(storage)
    LazySGD(head, weight_decay=wd, update="estimated", gap=gap)
    for _ in range(3):
        grad = torch.randn(BATCH, DIM, dtype=torch.float64, generator=g)
        torch.testing.assert_close(head.rows(index), row, rtol=1e-9, atol=1e-11)
        visit(head, index, grad, lr=lr)
        for step in range(gap):
            m = 0.9 * m + (grad if step == 0 else 0)
            row = (1 - lr * wd) * row - lr * m
    state = storage.read(index)
    torch.testing.assert_close([state.row, state.m], [row, m], rtol=1e-9, atol=1e-11)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), steps=st.integers(2, 60))
def test_rows_saved_and_loaded_go_on_as_if_never_away(seed: int, steps: int) -> None:
    target = torch.randn(N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    batches, lr = visits(steps, seed), cosine(steps, 0.05)
    head = head_of(double_storage())
    LazySGD(head)
    for step, (index, rate) in enumerate(zip(batches, lr.tolist(), strict=True)):
        if step == steps // 2:
            state, head = head.state_dict(), head_of(double_storage())
            LazySGD(head)
            head.load_state_dict(state)
        visit(head, index, pull(head.rows(index), target[index]), lr=rate)
    expected = lazy(target, batches, lr, 0.05, 0.9)
    assert torch.equal(head.rows(torch.arange(N)), expected)


@pytest.mark.parametrize("update", ["exact", "estimated"])
def test_rows_on_disk_are_those_in_memory(tmp_path: Path, update: Update) -> None:
    expected = None
    for storage in (
        MemoryStorage(N, DIM, seed=1, layout=LAYOUT),
        DiskStorage(tmp_path / "rows", N, DIM, seed=1, layout=LAYOUT),
    ):
        head = head_of(storage)
        LazySGD(head, update=update, gap=5)
        for step, index in enumerate(visits(60, 2)):
            visit(head, index, torch.full((BATCH, DIM), 0.1 * step), lr=0.01)
        rows = head.rows(torch.arange(N))
        assert storage.read(torch.arange(N)).v.shape == (N, 0)
        assert expected is None or torch.equal(rows, expected)
        expected = rows
        storage.close()


def test_a_row_takes_two_thirds_of_the_space() -> None:
    assert LAYOUT.row_bytes(128) == 2 * 4 * 128
    recipe = make_recipe(head_optimizer="sgd", method="s-diet")
    assert recipe.method.head.layout == LAYOUT  # type: ignore[attr-defined]


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 1.5, float("nan")])
def test_a_momentum_that_does_not_fade_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1, got"):
        LazySGD(head_of(double_storage()), momentum=momentum)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_optimizer": "adam"}, "head_optimizer must be adamw or sgd, got 'adam'"),
        (
            {"head_optimizer": "sgd", "head_second_moment": "row"},
            "head_second_moment row is for rows by adamw",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        make_recipe(method="s-diet", **settings)
    assert "\n" not in str(refused.value)


def test_a_head_steps_its_rows_by_sgd() -> None:
    head = PerExampleHead(N, DIM, init="random")
    optimizer = LazySGD(head, lr=0.5, weight_decay=0.0)
    z, index = torch.randn(BATCH, DIM), torch.arange(BATCH)
    before = head.rows(index)
    head(z, index).backward()
    (rows,) = optimizer.param_groups[0]["params"]
    grad = rows.grad
    optimizer.step()
    torch.testing.assert_close(head.rows(index), before - 0.5 * grad)


@pytest.mark.parametrize("place", ["host", "disk"])
def test_a_run_that_died_goes_on_as_one_that_did_not(tmp_path: Path, place: str) -> None:
    settings = {**small("s-diet"), "head_optimizer": "sgd", "head_storage": place}
    pretrain(images(), out=tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        pretrain(images(), out=tmp_path / "parts", on_step=die_at(10), **settings)
    pretrain(images(), out=tmp_path / "parts", resume=True, quiet=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
