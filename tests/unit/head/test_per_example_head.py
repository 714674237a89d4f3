"""The per-example head as a part of its own, in a plain loop."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from draws import draw
from heads import miss_step
from widefield.head import (
    DiskStorage,
    Layout,
    LazyAdamW,
    LazyOptimizer,
    LazySGD,
    MemoryStorage,
    PerExampleHead,
    batch_cross_entropy,
    decoupled_contrast,
    view_contrast,
)

N, DIM, BATCH = 11, 3, 4
EVERYONE = torch.arange(N)


def double_storage(seed: int = 5) -> MemoryStorage:
    return MemoryStorage(N, DIM, seed=seed, dtype=torch.float64)


def loss(z: Tensor, rows: Tensor) -> Tensor:
    return batch_cross_entropy(z, rows, scale=3.0, smoothing=0.2)


def test_the_default_loss_is_the_decoupled_contrast_with_rows_that_start_at_z() -> None:
    head, z = PerExampleHead(N, DIM, storage=double_storage()), draw(BATCH, DIM)
    unit = F.normalize(z, dim=1)
    value = head(z, torch.arange(BATCH))
    torch.testing.assert_close(value, decoupled_contrast(unit, unit.detach(), scale=10.0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"init": "Embedding"}, "unknown init 'Embedding': did you mean 'embedding'"),
        (
            {"storage": MemoryStorage(N - 1, DIM, seed=0)},
            f"storage holds {N - 1} rows of width {DIM}, and the PerExampleHead is for {N} of "
            f"width {DIM}",
        ),
        (
            {"storage": MemoryStorage(N, 7, seed=0)},
            f"{N} rows of width 7, .* {N} of width {DIM}: give",
        ),
    ],
)
def test_a_choice_that_is_none_gets_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        PerExampleHead(N, DIM, **wrong)
    assert "\n" not in str(error.value)


def test_the_paper_estimates_the_steps_between_visits_by_n_over_b() -> None:
    """Of 11 examples in batches of 4, a row is expected back after 3 steps: two are ahead."""
    storage, index, rate = double_storage(), torch.arange(BATCH), 0.1
    head = PerExampleHead(N, DIM, loss=loss, init="random", storage=storage)
    optimizer = LazyAdamW(head, lr=rate, update="estimated")
    z, row = draw(BATCH, DIM), storage.row[:BATCH].clone().requires_grad_()
    head(z, index).backward()
    optimizer.step()
    loss(F.normalize(z, dim=1), row).backward()
    assert row.grad is not None
    m, v, a = 0.1 * row.grad, 0.001 * row.grad**2, 1 - rate * 0.05
    direction, expected = m / (v.sqrt() + 1e-8), row.detach()
    for fade in range(3):
        expected = a * expected - rate * (0.9 / math.sqrt(0.999)) ** fade * direction
    torch.testing.assert_close(storage.row[:BATCH], expected)


@pytest.mark.parametrize("optimizer", [LazyAdamW, LazySGD])
def test_a_head_that_went_on_comes_back_to_a_copy_of_its_state(
    optimizer: type[LazyOptimizer],
) -> None:
    head = PerExampleHead(N, DIM)
    optimizer(head)
    train(head, range(5), lr=0.1)
    kept, live = copy.deepcopy(head.state_dict()), head.state_dict()
    train(head, range(5, 8), lr=0.1)
    expected = head.rows(EVERYONE)
    head(draw(BATCH, DIM).float(), torch.arange(BATCH)).backward()  # its step is never taken
    with pytest.raises(ValueError, match=r"updated after it was taken.*copy\.deepcopy") as caught:
        head.load_state_dict(live)
    assert "\n" not in str(caught.value)
    head.load_state_dict(kept)
    train(head, range(5, 8), lr=0.1)
    assert torch.equal(head.rows(EVERYONE), expected)


@pytest.mark.parametrize("optimizer", [LazyAdamW, LazySGD])
def test_rows_that_join_later_miss_the_steps_after_that_alone(
    optimizer: type[LazyOptimizer],
) -> None:
    """Weight decay shrinks a random row by each step since it joined, twice or once more."""
    states = []
    for examples, rate in ((N, 0.1), (N + 2, 0.2), (N + 3, 0.3), (N + 3, 0.4)):
        head = PerExampleHead(examples, DIM, init="random")
        optimizer(head, weight_decay=0.5)
        for state in states[-1:]:
            head.load_state_dict(state)
        train(head, range(5), lr=rate)
        states.append(head.state_dict())
    initial = MemoryStorage(N + 3, DIM, seed=0).row
    last = 0.85**5 * 0.8**5
    factors = torch.tensor([0.9**5 * last, 0.9**5 * last, last])
    torch.testing.assert_close(head.rows(torch.arange(N, N + 3)), factors[:, None] * initial[N:])


def of_layout(second_moment: Any) -> MemoryStorage:
    return MemoryStorage(N, DIM, seed=0, layout=Layout(second_moment=second_moment))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            PerExampleHead(N, 1),
            r"row \[11, 1\], m \[11, 1\], v \[11, 1\], and this storage row \[11, 3\]",
        ),
        (PerExampleHead(N, DIM + 1), r"row \[11, 4\].*with the dim, optimizer and layout"),
        (
            PerExampleHead(N, DIM, storage=of_layout("none")),
            r"v \[11, 0\], and this storage .* v \[11, 3\]",
        ),
        (
            PerExampleHead(N, DIM, storage=of_layout("row")),
            r"v \[11, 1\], and this storage .* v \[11, 3\]",
        ),
        (
            PerExampleHead(N + 1, DIM),
            "holds 12 rows, and this storage 11: make it, and its PerExampleHead, for as",
        ),
        (
            PerExampleHead(N - 1, DIM),
            "holds 10 rows, and this storage, with 11, has visited others since",
        ),
    ],
)
def test_a_state_that_does_not_fit_gets_one_line_and_changes_nothing(
    other: PerExampleHead, message: str
) -> None:
    head = adamw_head()
    train(head, range(4), lr=0.1)
    before = copy.deepcopy(head.state_dict())
    other.storage.last[-1] = 0 if other.examples <= N else 1  # type: ignore[attr-defined]
    other.history.append(0.1, weight_decay=0.05)
    with pytest.raises(ValueError, match=message) as caught:
        head.load_state_dict(other.state_dict())
    assert "\n" not in str(caught.value)
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_a_state_of_rows_on_disk_is_not_for_memory(tmp_path: Path) -> None:
    on_disk = PerExampleHead(N, DIM, storage=DiskStorage(tmp_path, N, DIM, seed=0))
    with pytest.raises(ValueError, match="into a DiskStorage on their folder"):
        PerExampleHead(N, DIM).load_state_dict(on_disk.state_dict())
    on_disk.storage.close()


def adamw_head() -> PerExampleHead:
    head = PerExampleHead(N, DIM)
    LazyAdamW(head)
    return head


def train(head: PerExampleHead, steps: range, lr: float) -> None:
    for step in steps:
        index = torch.randperm(N, generator=torch.Generator().manual_seed(step))[:BATCH]
        head(draw(BATCH, DIM, seed=step).float(), index).backward()
        miss_step(head, lr=lr)


def test_a_frozen_head_gives_its_loss_and_waits_for_no_step() -> None:
    head, index = adamw_head(), torch.arange(BATCH)
    z = draw(BATCH, DIM).float().requires_grad_()
    train(head, range(3), lr=0.1)
    before = head.state_dict()
    with torch.no_grad():
        expected = head(z, index)
    head.frozen = True
    for _ in range(2):
        head(z, index).backward()
    head.frozen = False
    assert z.grad is not None
    torch.testing.assert_close(head(z, index).detach(), expected.detach())
    torch.testing.assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_a_batch_is_read_once_a_step() -> None:
    """However often its loss is asked for, so that reading ahead can count on it."""
    head, reads = adamw_head(), []
    read = head.storage.read
    head.storage.read = lambda index: reads.append(index) or read(index)  # type: ignore
    z, index = draw(BATCH, DIM).float(), torch.arange(BATCH)
    head.frozen = True
    head(z, index)
    head.frozen = False
    head(z, index).backward()
    miss_step(head, lr=0.1)
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
    storage = (
        DiskStorage(tmp_path, N, DIM, seed=0) if place == "disk" else MemoryStorage(N, DIM, seed=0)
    )
    heads = [PerExampleHead(N, DIM, storage=storage), PerExampleHead(N, DIM)]
    for head, kind in zip(heads, (dtype, torch.int64), strict=True):
        LazyAdamW(head)
        head(draw(BATCH, DIM).float(), torch.tensor([1, 0, 7, 3]).to(kind)).backward()
        miss_step(head, lr=0.1)
    assert torch.equal(*(head.rows(EVERYONE) for head in heads))
    storage.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_an_index_of_no_integers_gets_one_line(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"is of {dtype}: give an integer") as error:
        PerExampleHead(N, DIM)(draw(BATCH, DIM).float(), torch.arange(BATCH).to(dtype))
    assert "\n" not in str(error.value)


def test_a_batch_of_one_is_told_apart_from_nothing() -> None:
    """It gets one line, and a batch that follows is as good as the first."""
    head, z, index = adamw_head(), draw(BATCH, DIM).float(), torch.arange(BATCH)
    with pytest.raises(ValueError, match=r"a batch of 1: .*drop_last=True") as error:
        head(z[:1], index[:1])
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="got a batch of 1: "):
        view_contrast(z[:1], z[:1], z[:1], scale=1.0, cross_entropy_weight=1.0, smoothing=0.0)
    head(z, index).backward()
    miss_step(head, lr=0.1)


def test_a_step_is_not_forgotten() -> None:
    head, z, index = adamw_head(), draw(BATCH, DIM).float(), torch.arange(BATCH)
    total = head(z, index)
    total.backward()
    with pytest.raises(ValueError, match=r"second batch before step\(\)") as error:
        head(z, index)
    assert "\n" not in str(error.value)
    miss_step(head, lr=0.1)
    head(z, index)


def test_a_gradient_that_comes_after_its_step_is_refused() -> None:
    head, z, index = adamw_head(), draw(BATCH, DIM).float(), torch.arange(BATCH)
    total = head(z, index)
    miss_step(head, lr=0.1)
    total.backward()
    with pytest.raises(ValueError, match=r"second batch before step\(\)"):
        head(z, index)
    with pytest.raises(ValueError, match=r"came after its step\(\): call loss\.backward") as error:
        miss_step(head, lr=0.1)
    assert "\n" not in str(error.value)
    assert head.history.steps == 1


def test_gradients_of_several_batches_do_not_add_up_unnoticed() -> None:
    """One backward over two losses would move the rows of the second alone."""
    head, z, index = adamw_head(), draw(BATCH, DIM).float(), torch.arange(BATCH)
    first = head(z, index)
    with pytest.raises(ValueError, match="would update the last rows only"):
        head(z, index + BATCH)
    first.backward()
    with torch.no_grad():  # to look at, twice
        head(z, index + BATCH)
        head(z, index + BATCH)
    miss_step(head, lr=0.1)
    assert head.storage.read(EVERYONE).last.tolist() == [1] * BATCH + [0] * (N - BATCH)
    head(z, index)
    assert head.optimizer is not None
    head.optimizer.zero_grad()  # a batch that the loop leaves out
    head(z, index).backward()
    miss_step(head, lr=0.1)
    assert head.history.steps == 2


def test_zero_grad_may_stand_between_the_loss_and_its_gradient() -> None:
    """As Lightning has it; a step that is then forgotten is noticed all the same."""
    heads = [adamw_head() for _ in range(2)]
    for head, early in zip(heads, (True, False), strict=True):
        for step in range(3):
            total = head(draw(BATCH, DIM, seed=step).float(), torch.arange(BATCH))
            assert head.optimizer is not None
            if early:
                head.optimizer.zero_grad()
            total.backward()
            if early and step == 2:
                with pytest.raises(ValueError, match=r"second batch before step\(\)"):
                    head(draw(BATCH, DIM).float(), torch.arange(BATCH))
            miss_step(head, lr=0.1)
    assert torch.equal(heads[0].rows(EVERYONE), heads[1].rows(EVERYONE))


def test_a_copy_of_a_head_goes_its_own_way() -> None:
    head = adamw_head()
    assert head.optimizer is not None
    torch.optim.lr_scheduler.ConstantLR(head.optimizer)  # it wraps the optimizer's step
    train(head, range(4), lr=0.1)
    copied = copy.deepcopy(head)
    train(copied, range(4, 8), lr=0.1)
    assert not torch.equal(copied.rows(EVERYONE), head.rows(EVERYONE))
    train(head, range(4, 8), lr=0.1)
    assert torch.equal(copied.rows(EVERYONE), head.rows(EVERYONE))


def test_a_head_without_an_optimizer_stands_still() -> None:
    head = PerExampleHead(N, DIM)
    z, index = draw(BATCH, DIM).float(), torch.arange(BATCH)
    assert not list(head.parameters())
    head(z, index).backward()
    with pytest.raises(ValueError, match=r"call step\(\) of its optimizer"):
        head(z, index)
    assert torch.equal(head.rows(EVERYONE), PerExampleHead(N, DIM).rows(EVERYONE))
