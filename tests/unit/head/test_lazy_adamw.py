"""The lazy AdamW against torch's dense one, and the published rule against its listing."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draws import generator
from heads import BATCH, DIM, N, cosine, head_of, miss_step, pull, visit, visits
from widefield.head import Layout, LazyAdamW, MemoryStorage, PerExampleHead, StepHistory


def dense(
    start: Tensor, target: Tensor, batches: list[Tensor], lr: Tensor, eps: float, wd: float
) -> Tensor:
    """Every step moves every row: gradient zero off the batch."""
    rows = start.clone().requires_grad_()
    adamw = torch.optim.AdamW([rows], lr=1.0, eps=eps, weight_decay=wd)
    for s, index in enumerate(batches):
        rows.grad = torch.zeros_like(rows)
        rows.grad[index] = pull(rows.detach()[index], target[index])
        adamw.param_groups[0]["lr"] = float(lr[s])
        adamw.step()
    return rows.detach()


def lazy(
    target: Tensor, batches: list[Tensor], lr: Tensor, eps: float, wd: float
) -> tuple[Tensor, Tensor]:
    storage = MemoryStorage(N, DIM, seed=5, dtype=torch.float64)
    start = storage.row.clone()
    head = head_of(storage)
    LazyAdamW(head, eps=eps, weight_decay=wd)
    for index, rate in zip(batches, lr.tolist(), strict=True):
        visit(head, index, pull(head.rows(index), target[index]), lr=rate)
    return start, head.rows(torch.arange(N))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 150),
    eps=st.sampled_from([1e-8, 1e-3, 1.0]),
    wd=st.sampled_from([0.0, 0.05, 5.0]),
)
def test_lazy_equals_dense_adamw(seed: int, steps: int, eps: float, wd: float) -> None:
    target = torch.randn(N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    batches, lr = visits(steps, seed), cosine(steps, 0.05)
    start, ours = lazy(target, batches, lr, eps, wd)
    theirs = dense(start, target, batches, lr, eps, wd)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gaps_far_beyond_the_horizon_stay_exact() -> None:
    """One visit, then hundreds of steps away: the truncated sum loses nothing."""
    steps = 800
    target = torch.ones(N, DIM, dtype=torch.float64)
    first, again = torch.arange(BATCH), torch.arange(BATCH, 2 * BATCH)
    batches = [first] + [again] * (steps - 2) + [first]
    lr = cosine(steps, 0.01)
    start, ours = lazy(target, batches, lr, 1e-8, 0.05)
    assert steps > 2 * LazyAdamW(head_of(MemoryStorage(N, DIM, seed=5))).horizon(torch.float64)
    theirs = dense(start, target, batches, lr, 1e-8, 0.05)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_without_bias_correction_equals_brute_force(eps: float) -> None:
    g = torch.Generator().manual_seed(0)
    lr, wd, b1, b2 = cosine(300, 0.02), 0.1, 0.9, 0.999
    storage = MemoryStorage(BATCH, DIM, seed=1, dtype=torch.float64)
    index, head = torch.arange(BATCH), head_of(storage)
    LazyAdamW(head, eps=eps, weight_decay=wd, bias_correction=False)
    row, m, v = storage.row.clone(), torch.zeros(BATCH, DIM), torch.zeros(BATCH, DIM)
    m, v = m.double(), v.double()
    for s in range(1, 301):
        grad, rate = torch.zeros_like(row), float(lr[s - 1])
        if s in (1, 2, 40, 290):
            grad = torch.randn(row.shape, generator=g, dtype=torch.float64)
            visit(head, index, grad, lr=rate)
        else:
            miss_step(head, lr=rate)
        m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad**2
        row = (1 - rate * wd) * row - rate * m / (v.sqrt() + eps)
    torch.testing.assert_close(head.rows(index), row, rtol=1e-11, atol=1e-13)


def test_float32_rows_follow_dense_float32_adamw() -> None:
    steps = 400
    g = torch.Generator().manual_seed(3)
    lr, batches = cosine(steps, 0.01), visits(steps, 3)
    storage = MemoryStorage(N, DIM, seed=5)
    start = storage.row.clone()
    grads = [torch.randn(BATCH, DIM, generator=g) for _ in batches]
    head = head_of(storage)
    LazyAdamW(head)
    rows = start.clone().requires_grad_()
    adamw = torch.optim.AdamW([rows], lr=1.0, weight_decay=0.05)
    for s, (index, grad) in enumerate(zip(batches, grads, strict=True), start=1):
        visit(head, index, grad, lr=float(lr[s - 1]))
        rows.grad = torch.zeros_like(rows)
        rows.grad[index] = grad
        adamw.param_groups[0]["lr"] = float(lr[s - 1])
        adamw.step()
    torch.testing.assert_close(head.rows(torch.arange(N)), rows.detach(), rtol=1e-4, atol=1e-5)


def listing(head: Tensor, m: Tensor, v: Tensor, g: Tensor, lr: float, t: int) -> list[Tensor]:
    """S-DIET (2025), appendix E, step by step: the far steps one at a time, not in closed form."""
    wd, b1, b2, eps = 0.05, 0.9, 0.999, 1e-8
    head = (1 - lr * wd) * head
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    direction = m / (v.sqrt() + eps)
    head = head - lr * direction
    mu = b1 / math.sqrt(b2)
    for k in range(1, t):
        head = (1 - lr * wd) * head - lr * mu**k * direction
    return [head, b1 ** (t - 1) * m, b2 ** (t - 1) * v]


@settings(max_examples=25, deadline=None)
@given(gap=st.integers(1, 200), lr=st.sampled_from([1e-3, 0.1, 1.991]), seed=st.integers(0, 99))
def test_estimated_rule_equals_the_listing(gap: int, lr: float, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    storage = MemoryStorage(BATCH, DIM, seed=2, dtype=torch.float64)
    head = head_of(storage)
    LazyAdamW(head, update="estimated", gap=gap)
    index = torch.arange(BATCH)
    row, zero = storage.row.clone(), torch.zeros(BATCH, DIM, dtype=torch.float64)
    expected = [row, zero, zero]
    for _ in range(3):
        grad = torch.randn(BATCH, DIM, dtype=torch.float64, generator=g)
        torch.testing.assert_close(head.rows(index), expected[0], rtol=1e-9, atol=1e-11)
        visit(head, index, grad, lr=lr)
        expected = listing(*expected, grad, lr, gap)
    state = storage.read(index)
    torch.testing.assert_close([state.row, state.m, state.v], expected, rtol=1e-9, atol=1e-11)


def test_bf16_moments_are_float32_ones_rounded_at_each_write() -> None:
    """What the optimizer computes is float32; the storage rounds what it is given.

    The first moment to nearest, the second to one of its two neighbors in bf16.
    """
    g, index = torch.Generator().manual_seed(0), torch.arange(BATCH)
    storage = MemoryStorage(BATCH, DIM, seed=1, layout=Layout(moments="bf16"))
    head, expected = head_of(storage), MemoryStorage(BATCH, DIM, seed=1).read(index)
    adamw = LazyAdamW(head)
    for missed in (0, 0, 4, 11):
        for _ in range(missed):
            miss_step(head, lr=0.1)
        grad = torch.randn(BATCH, DIM, generator=g)
        caught_up = adamw.catch_up(expected)
        visit(head, index, grad, lr=0.1)
        moved = adamw.gradient_step(caught_up, grad, 0.1, 0.05)
        state = storage.read(index)
        below = (moved.v.view(torch.int32) & ~0xFFFF).view(torch.float32)
        above = (below.view(torch.int32) + 0x10000).view(torch.float32)
        assert bool(((state.v == below) | (state.v == above)).all())
        assert bool((state.v == below).any())
        assert bool((state.v == above).any())
        m = moved.m.to(torch.bfloat16).float()
        expected = replace(moved, m=m, v=state.v)
        for name in ("row", "m", "last"):
            assert torch.equal(getattr(state, name), getattr(expected, name)), name


@pytest.mark.parametrize("gap", [1, 2, 4])
def test_a_second_moment_in_bf16_forgets_as_fast_as_one_in_float32(gap: int) -> None:
    """To nearest, 0.999 ** gap times a bf16 is that bf16: it would stay what it was at first."""
    first, after, index = 20, 400, torch.arange(4)
    ends = []
    for moments in ("float32", "bf16"):
        g = torch.Generator().manual_seed(0)
        storage = MemoryStorage(4, 64, seed=1, layout=Layout(moments=moments))
        head = head_of(storage)
        LazyAdamW(head)
        for count in range(first + after // gap):
            size = 1.0 if count < first else 1e-3
            visit(head, index, size * torch.randn(4, 64, generator=g), lr=1e-3)
            for _ in range(gap - 1):
                miss_step(head, lr=1e-3)
        ends.append(float(storage.read(index).v.mean()))
    assert ends[1] == pytest.approx(ends[0], rel=0.03)


@pytest.mark.parametrize("eps", [1e-8, 1e-2])
def test_one_second_moment_a_row_equals_brute_force(eps: float) -> None:
    """Every step moves every row, v being the moving average of the row's mean square gradient."""
    steps, b1, b2, wd = 120, 0.9, 0.999, 0.05
    batches, lr = visits(steps, 4), cosine(steps, 0.05)
    layout = Layout(second_moment="row")
    storage = MemoryStorage(N, DIM, seed=5, dtype=torch.float64, layout=layout)
    row, m, v = storage.row.clone(), torch.zeros(N, DIM).double(), torch.zeros(N, 1).double()
    head, target = head_of(storage), torch.ones(N, DIM).double()
    LazyAdamW(head, eps=eps)
    for s, index in enumerate(batches, start=1):
        visit(head, index, pull(head.rows(index), target[index]), lr=float(lr[s - 1]))
        grad = torch.zeros_like(row)
        grad[index] = pull(row[index], target[index])
        m = b1 * m + (1 - b1) * grad
        v = b2 * v + (1 - b2) * grad.square().sum(1, keepdim=True) / DIM
        rate, root = float(lr[s - 1]), (v / (1 - b2**s)).sqrt()
        row = (1 - rate * wd) * row - rate * m / (1 - b1**s) / (root + eps)
    assert storage.v.shape == (N, 1)
    ours = head.rows(torch.arange(N))
    torch.testing.assert_close(ours, row, rtol=1e-10, atol=1e-12)


def test_new_rows_start_at_their_features_and_the_others_stay() -> None:
    seen = list[Tensor]()
    head = PerExampleHead(
        4, 2, loss=lambda z, rows: seen.append(rows.detach()) or rows.sum(), normalize=False
    )
    LazyAdamW(head)
    old, both = torch.tensor([1]), torch.tensor([1, 3])
    visit(head, old, torch.ones(1, 2), lr=0.1)
    expected = head.rows(old)
    with torch.no_grad():
        head(torch.full((2, 2), 7.0), both)
    assert torch.equal(seen[-1][:1], expected)
    assert seen[-1][1].tolist() == [7.0, 7.0]


@settings(max_examples=10, deadline=None)
@given(before=st.integers(0, 2500), after=st.integers(0, 1500), seed=st.integers(0, 99))
def test_the_history_of_learning_rates_survives_a_checkpoint(
    before: int, after: int, seed: int
) -> None:
    """Saved at any step and loaded elsewhere, it goes on as if it had never been away."""
    rates = torch.rand(before + after, dtype=torch.float64, generator=generator(seed)).tolist()
    whole, first, second = (StepHistory() for _ in range(3))
    for rate in rates:
        whole.append(rate, weight_decay=0.05)
    for rate in rates[:before]:
        first.append(rate, weight_decay=0.05)
    second.load_state_dict(first.state_dict())
    for rate in rates[before:]:
        second.append(rate, weight_decay=0.05)
    steps = torch.arange(before + after + 1)
    assert second.steps == whole.steps
    assert torch.equal(second.lr(steps), whole.lr(steps))
    assert torch.equal(second.log_decay(steps), whole.log_decay(steps))
    decay = math.prod(1 - 0.05 * rate for rate in rates)
    assert math.exp(float(whole.log_decay(steps)[0])) == pytest.approx(decay)
