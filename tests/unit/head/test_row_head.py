"""The per-example head as a part of its own, in a plain loop."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from widefield.head import (
    DiskStore,
    Layout,
    MemoryStore,
    Optimizer,
    PerExampleHead,
    batch_cross_entropy,
    decoupled_contrast,
    per_example_heads,
    view_contrast,
)

N, DIM, BATCH = 11, 3, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def double_store(seed: int = 5) -> MemoryStore:
    return MemoryStore(N, DIM, seed=seed, dtype=torch.float64)


def loss(z: Tensor, rows: Tensor) -> Tensor:
    return batch_cross_entropy(z, rows, scale=3.0, smoothing=0.2)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), steps=st.integers(1, 60))
def test_the_head_equals_a_dense_adamw_under_rates_nobody_knew(seed: int, steps: int) -> None:
    """Rates are drawn as training goes; every row then stands where a dense optimizer has it."""
    generator = torch.Generator().manual_seed(seed)
    head = PerExampleHead(N, DIM, loss=loss, init="random", store=double_store(), weight_decay=0.1)
    rows = double_store().row.requires_grad_()
    adamw = torch.optim.AdamW([rows], lr=1.0, weight_decay=0.1)
    for step in range(steps):
        z = draw(BATCH, DIM, seed=seed + step)
        index = torch.randperm(N, generator=generator)[:BATCH]
        rate = 0.1 * float(torch.rand((), generator=generator))
        head(z, index).backward()
        head.step(lr=rate)
        adamw.zero_grad()
        loss(F.normalize(z, dim=1), rows[index]).backward()
        adamw.param_groups[0]["lr"] = rate
        adamw.step()
    everyone = head.table.gather(torch.arange(N))
    torch.testing.assert_close(everyone, rows.detach(), rtol=1e-9, atol=1e-11)


def test_the_default_loss_is_the_decoupled_contrast_with_rows_that_start_at_z() -> None:
    head, z = PerExampleHead(N, DIM, store=double_store()), draw(BATCH, DIM)
    unit = F.normalize(z, dim=1)
    value = head(z, torch.arange(BATCH))
    torch.testing.assert_close(value, decoupled_contrast(unit, unit.detach(), scale=10.0))


def test_under_a_gradient_scaler_the_head_equals_a_dense_adamw() -> None:
    """Steps that the scaler skips, as the encoder's gradient overflows, are taken by neither."""
    head = PerExampleHead(N, DIM, loss=loss, init="random", store=double_store())
    rows = double_store().row.requires_grad_()
    encoders = [torch.ones(DIM, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    moved = torch.optim.AdamW([encoders[0]], lr=0.1, weight_decay=0.05)
    dense = torch.optim.AdamW([encoders[1], rows], lr=0.1, weight_decay=0.05)
    scalers = [torch.amp.GradScaler("cpu", growth_interval=3) for _ in range(2)]
    for step in range(14):
        index = torch.randperm(N, generator=torch.Generator().manual_seed(step))[:BATCH]
        z = draw(BATCH, DIM, seed=step)
        scalers[0].scale(head(z * encoders[0], index)).backward()
        scalers[1].scale(loss(F.normalize(z * encoders[1], dim=1), rows[index])).backward()
        if step in (0, 1, 6):
            for encoder in encoders:
                encoder.grad[0] = math.inf  # type: ignore[index]
        scale = scalers[0].get_scale()
        for scaler, optimizer in zip(scalers, (moved, dense), strict=True):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        head.step(lr=0.1, grad_scale=scale, skipped=scalers[0].get_scale() < scale)
    assert head.table.optimizer.steps == 11
    everyone = head.table.gather(torch.arange(N))
    torch.testing.assert_close(everyone, rows.detach(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(*encoders)


def test_a_scaled_gradient_that_overflows_does_not_reach_the_rows() -> None:
    head, z = PerExampleHead(N, DIM), draw(BATCH, DIM).float()
    train(head, range(3), lr=0.1)
    before = copy.deepcopy(head.state_dict())
    (head(z, torch.arange(BATCH)) * math.inf).backward()
    head.step(lr=0.1, grad_scale=2.0**16)
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)
    train(head, range(3, 5), lr=0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimizer": "SGD"}, "unknown optimizer 'SGD': known: adamw, sgd"),
        ({"init": "Embedding"}, "unknown init 'Embedding': did you mean 'embedding'"),
        ({"rule": "Exact"}, "unknown rule 'Exact': did you mean 'exact'"),
        (
            {"store": MemoryStore(N - 1, DIM, seed=0)},
            f"store holds {N - 1} rows of width {DIM}, and the PerExampleHead is for {N} of width "
            f"{DIM}",
        ),
        ({"store": MemoryStore(N, 7, seed=0)}, f"{N} rows of width 7, .* {N} of width {DIM}: give"),
    ],
)
def test_a_choice_that_is_none_gets_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        PerExampleHead(N, DIM, **wrong)
    assert "\n" not in str(error.value)


def test_rows_learn_at_their_own_multiple_of_the_rate() -> None:
    moved = []
    for scale, lr in ((1.0, 0.2), (4.0, 0.05)):
        head = PerExampleHead(
            N, DIM, loss=loss, init="random", lr_scale=scale, store=double_store()
        )
        head(draw(BATCH, DIM), torch.arange(BATCH)).backward()
        head.step(lr=lr)
        moved.append(head.table.gather(torch.arange(N)))
    torch.testing.assert_close(*moved)


def test_the_paper_estimates_the_steps_between_visits_by_n_over_b() -> None:
    """Of 11 examples in batches of 4, a row is expected back after 3 steps: two are ahead."""
    store, index, rate = double_store(), torch.arange(BATCH), 0.1
    head = PerExampleHead(N, DIM, loss=loss, init="random", rule="estimated", store=store)
    z, row = draw(BATCH, DIM), store.row[:BATCH].clone().requires_grad_()
    head(z, index).backward()
    head.step(lr=rate)
    loss(F.normalize(z, dim=1), row).backward()
    assert row.grad is not None
    m, v, a = 0.1 * row.grad, 0.001 * row.grad**2, 1 - rate * 0.05
    direction, expected = m / (v.sqrt() + 1e-8), row.detach()
    for fade in range(3):
        expected = a * expected - rate * (0.9 / math.sqrt(0.999)) ** fade * direction
    torch.testing.assert_close(store.row[:BATCH], expected)


def test_it_survives_a_checkpoint_with_its_history(tmp_path: object) -> None:
    """Another head that loads its state goes on bit for bit, under another schedule as well."""
    first, second = (PerExampleHead(N, DIM, store=MemoryStore(N, DIM, seed=s)) for s in (1, 2))
    train(first, range(7), lr=0.1)
    second.load_state_dict(first.state_dict())
    for head in (first, second):
        train(head, range(7, 15), lr=0.03)
    rows = [head.table.gather(torch.arange(N)) for head in (first, second)]
    assert torch.equal(*rows)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_head_that_went_on_comes_back_to_a_copy_of_its_state(optimizer: Optimizer) -> None:
    head = PerExampleHead(N, DIM, optimizer=optimizer)
    train(head, range(5), lr=0.1)
    kept, live = copy.deepcopy(head.state_dict()), head.state_dict()
    train(head, range(5, 8), lr=0.1)
    expected = head.table.gather(torch.arange(N))
    head(draw(BATCH, DIM).float(), torch.arange(BATCH)).backward()  # its step is never taken
    with pytest.raises(ValueError, match=r"stepped after it was taken.*copy\.deepcopy") as caught:
        head.load_state_dict(live)
    assert "\n" not in str(caught.value)
    head.load_state_dict(kept)
    train(head, range(5, 8), lr=0.1)
    assert torch.equal(head.table.gather(torch.arange(N)), expected)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            PerExampleHead(N, 1),
            r"row \[11, 1\], m \[11, 1\], v \[11, 1\], and this store row \[11, 3\]",
        ),
        (PerExampleHead(N, DIM + 1), r"row \[11, 4\].*with the dim, optimizer and layout"),
        (PerExampleHead(N, DIM, optimizer="sgd"), r"v \[11, 0\], and this store .* v \[11, 3\]"),
        (
            PerExampleHead(
                N, DIM, store=MemoryStore(N, DIM, seed=0, layout=Layout(second_moment="row"))
            ),
            r"v \[11, 1\], and this store .* v \[11, 3\]",
        ),
        (
            PerExampleHead(N + 1, DIM),
            "holds 12 rows, and this store 11: make it, and its PerExampleHead, for as",
        ),
        (
            PerExampleHead(N - 1, DIM),
            "holds 10 rows, and this store, with 11, has visited others since",
        ),
    ],
)
def test_a_state_that_does_not_fit_gets_one_line_and_changes_nothing(
    other: PerExampleHead, message: str
) -> None:
    head = PerExampleHead(N, DIM)
    train(head, range(4), lr=0.1)
    before = copy.deepcopy(head.state_dict())
    other.table.store.last[-1] = 0 if other.examples <= N else 1  # type: ignore[attr-defined]
    other.table.optimizer.record(0.1)
    with pytest.raises(ValueError, match=message) as caught:
        head.load_state_dict(other.state_dict())
    assert "\n" not in str(caught.value)
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_a_state_of_rows_on_disk_is_not_for_memory(tmp_path: Path) -> None:
    on_disk = PerExampleHead(N, DIM, store=DiskStore(tmp_path, N, DIM, seed=0))
    with pytest.raises(ValueError, match="into a DiskStore on their folder"):
        PerExampleHead(N, DIM).load_state_dict(on_disk.state_dict())
    on_disk.close()


def train(head: PerExampleHead, steps: range, lr: float) -> None:
    for step in steps:
        index = torch.randperm(N, generator=torch.Generator().manual_seed(step))[:BATCH]
        head(draw(BATCH, DIM, seed=step).float(), index).backward()
        head.step(lr=lr)


def test_a_frozen_head_gives_its_loss_and_waits_for_no_step() -> None:
    head, z, index = (
        PerExampleHead(N, DIM),
        draw(BATCH, DIM).float().requires_grad_(),
        torch.arange(BATCH),
    )
    train(head, range(3), lr=0.1)
    before = head.state_dict()
    expected = head(z.detach(), index)
    head.frozen = True
    for _ in range(2):
        head(z, index).backward()
    head.frozen = False
    assert z.grad is not None
    torch.testing.assert_close(head(z, index).detach(), expected.detach())
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_a_batch_is_read_once_a_step(tmp_path: object) -> None:
    """However often its loss is asked for, so that reading ahead can count on it."""
    head, reads = PerExampleHead(N, DIM), []
    read = head.table.store.read
    head.table.store.read = lambda index: reads.append(index) or read(index)  # type: ignore
    z, index = draw(BATCH, DIM).float(), torch.arange(BATCH)
    head.frozen = True
    head(z, index)
    head.frozen = False
    head(z, index).backward()
    head.step(lr=0.1)
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 1, 2, N], rf"index 0 to {N} is not in \[0, {N}\)"),
        ([-1, 1, 2, 3], "index -1 to 3 is not in"),
        ([0, 1, 2, 2], "an example is twice in one batch"),
        ([0, 1, 2], r"4 features came with an index of shape \(3,\)"),
    ],
)
def test_a_bad_index_gets_one_line(index: list[int], message: str) -> None:
    head = PerExampleHead(N, DIM)
    with pytest.raises(ValueError, match=message) as error:
        head(draw(BATCH, DIM).float(), torch.tensor(index))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint32])
@pytest.mark.parametrize("place", ["host", "disk"])
def test_an_index_of_any_integers_is_taken(tmp_path: Path, dtype: torch.dtype, place: str) -> None:
    """A byte is a number too, and no mask."""
    store = DiskStore(tmp_path, N, DIM, seed=0) if place == "disk" else MemoryStore(N, DIM, seed=0)
    heads = [PerExampleHead(N, DIM, store=store), PerExampleHead(N, DIM)]
    for head, kind in zip(heads, (dtype, torch.int64), strict=True):
        head(draw(BATCH, DIM).float(), torch.tensor([1, 0, 7, 3]).to(kind)).backward()
        head.step(lr=0.1)
    assert torch.equal(*(head.table.gather(torch.arange(N)) for head in heads))
    heads[0].close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_an_index_of_no_integers_gets_one_line(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"is of {dtype}, which numbers no examples") as error:
        PerExampleHead(N, DIM)(draw(BATCH, DIM).float(), torch.arange(BATCH).to(dtype))
    assert "\n" not in str(error.value)


def test_a_batch_of_one_is_told_apart_from_nothing() -> None:
    """It gets one line, and a batch that follows is as good as the first."""
    head, z, index = PerExampleHead(N, DIM), draw(BATCH, DIM).float(), torch.arange(BATCH)
    with pytest.raises(ValueError, match=r"a batch of 1 has nothing.*drop_last=True") as error:
        head(z[:1], index[:1])
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="found no gradient"):
        head.step(lr=0.1)
    with pytest.raises(ValueError, match="a batch of 1 has nothing"):
        view_contrast(z[:1], z[:1], z[:1], scale=1.0, cross_entropy_weight=1.0, smoothing=0.0)
    head(z, index).backward()
    head.step(lr=0.1)


def test_a_step_is_taken_once_and_not_forgotten() -> None:
    head, z, index = PerExampleHead(N, DIM), draw(BATCH, DIM).float(), torch.arange(BATCH)
    with pytest.raises(ValueError, match="found no gradient: call it once after each"):
        head.step(lr=0.1)
    total = head(z, index)
    with pytest.raises(ValueError, match="found no gradient"):
        head.step(lr=0.1)  # no backward
    total.backward()
    with pytest.raises(ValueError, match=r"second batch before step\(\)"):
        head(z, index)
    head.step(lr=0.1)
    with pytest.raises(ValueError, match="found no gradient"):
        head.step(lr=0.1)
    head(z, index)


def test_gradients_of_several_batches_do_not_add_up_unnoticed() -> None:
    """One backward over two losses would move the rows of the second alone."""
    head, z, index = PerExampleHead(N, DIM), draw(BATCH, DIM).float(), torch.arange(BATCH)
    first = head(z, index)
    with pytest.raises(ValueError, match="would move the rows of the last alone"):
        head(z, index + BATCH)
    first.backward()
    head.step(lr=0.1)
    with torch.no_grad():  # to look at, twice
        head(z, index)
        head(z, index)
    head(z, index)
    head.miss_step(lr=0.1)  # a batch that the loop leaves out
    head(z, index).backward()
    head.step(lr=0.1)


def test_heads_are_found_wherever_they_are() -> None:
    head = PerExampleHead(N, DIM)
    assert per_example_heads(nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"deep": head}))) == [
        head
    ]
    assert per_example_heads(nn.Linear(2, 2)) == []


def test_a_head_on_disk_is_the_head_in_memory(tmp_path: object) -> None:
    disk = DiskStore(str(tmp_path), N, DIM, seed=3)
    heads = [PerExampleHead(N, DIM, store=store) for store in (MemoryStore(N, DIM, seed=3), disk)]
    for head in heads:
        train(head, range(12), lr=0.1)
    assert torch.equal(*(head.table.gather(torch.arange(N)) for head in heads))
    heads[1].close()
