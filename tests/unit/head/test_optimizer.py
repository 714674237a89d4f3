"""The optimizers of the head as torch's: schedulers, scalers and states, beside dense ones."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

from draws import draw
from heads import head_of, miss_step, visit
from widefield.head import (
    Layout,
    LazyAdamW,
    LazyOptimizer,
    LazySGD,
    MemoryStorage,
    PerExampleHead,
    RowState,
    batch_cross_entropy,
)

N, DIM, BATCH, STEPS = 11, 3, 4, 60
EVERYONE = torch.arange(N)
BOTH = pytest.mark.parametrize("kind", [LazyAdamW, LazySGD])


def batch(step: int) -> Tensor:
    return torch.randperm(N, generator=torch.Generator().manual_seed(step))[:BATCH]


def double_storage() -> MemoryStorage:
    return MemoryStorage(N, DIM, seed=5, dtype=torch.float64)


def loss(z: Tensor, rows: Tensor) -> Tensor:
    return batch_cross_entropy(z, rows, scale=3.0, smoothing=0.2)


def double_head() -> PerExampleHead:
    return PerExampleHead(N, DIM, loss=loss, init="random", storage=double_storage())


def dense_rows() -> Tensor:
    return double_storage().row.requires_grad_()


def assert_equal(head: PerExampleHead, rows: Tensor) -> None:
    torch.testing.assert_close(head.rows(EVERYONE), rows.detach(), rtol=1e-9, atol=1e-11)


def one_cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS, cycle_momentum=False)


def sequential(optimizer: torch.optim.Optimizer) -> LRScheduler:
    warm_up = LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    cosine = CosineAnnealingLR(optimizer, T_max=STEPS - 10)
    return SequentialLR(optimizer, [warm_up, cosine], milestones=[10])


def by_lambda(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 0.97**step)


@pytest.mark.parametrize("schedule", [one_cycle, sequential, by_lambda])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 999))
def test_under_a_scheduler_every_row_stands_where_a_dense_adamw_has_it(
    schedule: Callable[[torch.optim.Optimizer], LRScheduler], seed: int
) -> None:
    head, rows = double_head(), dense_rows()
    lazy = LazyAdamW(head, lr=0.05, weight_decay=0.1)
    dense = torch.optim.AdamW([rows], lr=0.05, weight_decay=0.1)
    schedulers = [schedule(lazy), schedule(dense)]
    for step in range(STEPS):
        z, index = draw(BATCH, DIM, seed=seed + step), batch(seed + step)
        head(z, index).backward()
        loss(F.normalize(z, dim=1), rows[index]).backward()
        for optimizer, scheduler in zip((lazy, dense), schedulers, strict=True):
            optimizer.step()
            if step < STEPS - 1:
                scheduler.step()
            optimizer.zero_grad()
        assert_equal(head, rows)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999), steps=st.integers(1, 60))
def test_the_head_equals_a_dense_adamw_under_rates_nobody_knew(seed: int, steps: int) -> None:
    """Rates and decays are drawn as training goes, some steps taken without the head, any betas."""
    generator = torch.Generator().manual_seed(seed)
    head, rows = double_head(), dense_rows()
    betas = (0.2 + 0.7 * seed / 999, 0.999 - 0.1 * seed / 999)
    lazy, dense = LazyAdamW(head, betas=betas), torch.optim.AdamW([rows], betas=betas)
    for step in range(steps):
        z, index = draw(BATCH, DIM, seed=seed + step), batch(seed + step)
        rate, decay, missed = torch.rand(3, generator=generator).tolist()
        for optimizer in (lazy, dense):
            optimizer.param_groups[0].update(lr=0.1 * rate, weight_decay=decay)
        rows.grad = torch.zeros_like(rows)
        if missed < 0.8:
            head(z, index).backward()
            loss(F.normalize(z, dim=1), rows[index]).backward()
        for optimizer in (lazy, dense):
            optimizer.step()
    assert_equal(head, rows)


def test_the_rate_of_a_step_is_the_groups_own_when_it_is_taken() -> None:
    head = double_head()
    optimizer = LazyAdamW(head, lr=0.1)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for step in range(3):
        head(draw(BATCH, DIM), batch(step)).backward()
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(
        head.history.lr(torch.arange(1, 4)), torch.tensor([0.1, 0.05, 0.1 / 3]).double()
    )


@pytest.mark.parametrize("clip", [False, True])
def test_under_a_gradient_scaler_the_head_equals_a_dense_adamw(clip: bool) -> None:
    """Steps that the scaler skips, as a gradient overflows, are taken by neither."""
    head, rows = double_head(), dense_rows()
    lazy = LazyAdamW(head, lr=0.1, weight_decay=0.05)
    dense = torch.optim.AdamW([rows], lr=0.1, weight_decay=0.05)
    scalers = [torch.amp.GradScaler("cpu", growth_interval=3) for _ in range(2)]
    for step in range(14):
        index, z = batch(step), draw(BATCH, DIM, seed=step)
        scale = math.inf if step in (0, 1, 6) else 1.0
        scalers[0].scale(scale * head(z, index)).backward()
        scalers[1].scale(scale * loss(F.normalize(z, dim=1), rows[index])).backward()
        for scaler, optimizer in zip(scalers, (lazy, dense), strict=True):
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert head.history.steps == 11
    assert_equal(head, rows)


@BOTH
def test_a_skipped_step_leaves_no_trace(kind: type[LazyOptimizer]) -> None:
    head = PerExampleHead(N, DIM)
    optimizer, scaler = kind(head, lr=0.1), torch.amp.GradScaler("cpu")
    head(draw(BATCH, DIM).float(), batch(0)).backward()
    optimizer.step()
    before = copy.deepcopy(head.state_dict())
    scaler.scale(math.inf * head(draw(BATCH, DIM).float(), batch(1))).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)
    head(draw(BATCH, DIM).float(), batch(1)).backward()
    optimizer.step()


@BOTH
def test_it_is_an_optimizer_of_torch_with_one_group(kind: type[LazyOptimizer]) -> None:
    head = PerExampleHead(N, DIM)
    optimizer = kind(head, lr=0.1, weight_decay=0.02)
    assert isinstance(optimizer, torch.optim.Optimizer)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.1, 0.02)
    own = {"betas", "eps", "bias_correction"} if kind is LazyAdamW else {"momentum"}
    assert group.keys() == {"params", "lr", "weight_decay", *own}
    assert all(
        f"    {name}: {group[name]}\n" in repr(optimizer) for name in group.keys() - {"params"}
    )
    head(draw(BATCH, DIM).float(), batch(0)).backward()
    (rows,) = group["params"]
    assert rows.shape == rows.grad.shape == (BATCH, DIM)


@BOTH
def test_a_state_goes_on_where_it_was_saved(kind: type[LazyOptimizer]) -> None:
    """Rows and history are the head's state; rate and decay the optimizer's, as torch's are."""
    heads, pairs = [PerExampleHead(N, DIM, seed=s) for s in (1, 2)], []
    for head, lr in zip(heads, (0.1, 0.7), strict=True):
        optimizer = kind(head, lr=lr)
        pairs.append((head, optimizer, CosineAnnealingLR(optimizer, T_max=20)))

    def train(steps: range, head: PerExampleHead, *parts: Any) -> None:
        for step in steps:
            head(draw(BATCH, DIM, seed=step).float(), batch(step)).backward()
            for part in parts:
                part.step()

    train(range(7), *pairs[0])
    states = [copy.deepcopy(part.state_dict()) for part in pairs[0]]
    assert states[1]["param_groups"][0]["params"] == [0]
    for part, state in zip(pairs[1], states, strict=True):
        part.load_state_dict(state)
    for pair in pairs:
        train(range(7, 15), *pair)
    assert torch.equal(heads[0].rows(EVERYONE), heads[1].rows(EVERYONE))
    assert pairs[0][1].state_dict() == pairs[1][1].state_dict()


def test_a_closure_gives_the_loss() -> None:
    head = PerExampleHead(N, DIM)
    optimizer, index, z = LazyAdamW(head), batch(0), draw(BATCH, DIM).float()

    def closure() -> float:
        value = head(z, index)
        value.backward()
        return float(value.detach())

    with torch.no_grad():
        expected = float(head(z, index))
        assert optimizer.step(closure) == expected
    assert head.history.steps == 1
    assert set(head.storage.read(index).last.tolist()) == {1}


WRONG = [
    ({"lr": math.nan}, "head learning rate must be finite and at least 0, got nan"),
    ({"lr": -0.1}, r"head learning rate must be finite and at least 0, got -0\.1"),
    ({"lr": math.inf}, "head learning rate must be finite and at least 0, got inf"),
    ({"weight_decay": -1.0}, "head weight decay must be finite and at least 0, got -1"),
    (
        {"lr": 2.0, "weight_decay": 0.5},
        r"head learning rate 2 times weight decay 0\.5 reaches 1: lower lr, head_lr_scale or",
    ),
]


@BOTH
@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_rate_that_no_step_can_have_gets_one_line(
    kind: type[LazyOptimizer], wrong: dict[str, float], message: str
) -> None:
    """When the optimizer is made, and when a scheduler sets it; no step is then taken."""
    with pytest.raises(ValueError, match=message) as error:
        kind(head_of(double_storage()), **wrong)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    head = head_of(double_storage())
    optimizer = kind(head, lr=0.1)
    visit(head, batch(0), torch.ones(BATCH, DIM).double(), lr=0.1)
    before = copy.deepcopy(head.state_dict())
    optimizer.param_groups[0].update(wrong)
    head(torch.ones(BATCH, DIM).double(), batch(1)).backward()
    with pytest.raises(ValueError, match=message):
        optimizer.step()
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


@BOTH
def test_what_missed_steps_are_taken_with_cannot_change(kind: type[LazyOptimizer]) -> None:
    """OneCycleLR would change the momentum as well; the rows are then left as they were."""
    head = double_head()
    optimizer = kind(head)
    OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS)
    head(draw(BATCH, DIM), batch(0)).backward()
    before = copy.deepcopy(head.state_dict())
    with pytest.raises(ValueError, match=r"is now .*0\.95.*cycle_momentum=False"):
        optimizer.step()
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


@BOTH
def test_rows_cannot_be_taken_back_in_time(kind: type[LazyOptimizer]) -> None:
    zero = torch.zeros(1, DIM)
    with pytest.raises(AssertionError, match="back in time"):
        kind(double_head()).catch_up(RowState(zero, zero, zero, torch.tensor([5])))


@BOTH
def test_a_state_without_the_constants_takes_those_of_the_optimizer(
    kind: type[LazyOptimizer],
) -> None:
    """A run that began before they were in the group goes on; a later state brings its own."""
    first, second = kind(double_head(), lr=0.3), kind(double_head())
    state = first.state_dict()
    for name in state["param_groups"][0].keys() - {"lr", "weight_decay", "params"}:
        del state["param_groups"][0][name]
    second.load_state_dict(state)
    assert second.state_dict() == first.state_dict()
    if kind is LazyAdamW:
        other = LazyAdamW(double_head(), betas=(0.5, 0.9))
        other.load_state_dict(first.state_dict())
        other.step()
        assert other.decay == first.decay


def test_settings_that_do_not_fit_get_one_line() -> None:
    no_moments = MemoryStorage(N, DIM, seed=0, layout=Layout(second_moment="none"))
    taken = head_of(double_storage())
    LazyAdamW(taken)
    for make, message in (
        (lambda: LazyAdamW(taken), "has an optimizer.*change its param_groups"),
        (lambda: LazyAdamW(head_of(double_storage()), betas=(0.9, 0.8)), "betas must be.*0.8"),
        (lambda: LazyAdamW(head_of(no_moments)), "keeps no second moments.*use LazySGD"),
        (
            lambda: LazySGD(head_of(no_moments), update="Exact"),  # type: ignore[arg-type]
            "unknown update 'Exact': did you mean 'exact'",
        ),
    ):
        with pytest.raises(ValueError, match=message) as error:
            make()
        assert "\n" not in str(error.value)


@BOTH
def test_a_step_without_a_gradient_is_one_of_gradient_zero(kind: type[LazyOptimizer]) -> None:
    """Rows keep coasting and decaying, those of the batch before as all others."""
    heads = [head_of(double_storage()) for _ in range(2)]
    for head, zero in zip(heads, (True, False), strict=True):
        kind(head)
        visit(head, batch(0), torch.ones(BATCH, DIM).double(), lr=0.1)
        for _ in range(5):
            if zero:
                visit(head, batch(0), torch.zeros(BATCH, DIM).double(), lr=0.1)
            else:
                miss_step(head, lr=0.1)
    assert heads[0].history.steps == heads[1].history.steps == 6
    assert_equal(heads[0], heads[1].rows(EVERYONE))


@pytest.mark.parametrize("optimizer", [LazyAdamW, LazySGD])
def test_parameters_in_place_of_the_head_are_refused_with_the_remedy(optimizer: Any) -> None:
    head = PerExampleHead(examples=4, dim=2)
    for wrong in (head.parameters(), [*torch.nn.Linear(2, 2).parameters()]):
        with pytest.raises(ValueError, match=r"give head in place of head.parameters\(\)"):
            optimizer(wrong)
