"""Batch normalization over processes is that of one process; and what a step carries, in bytes."""

import copy
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from processes import step_bytes
from ranks import in_processes
from small_run import batch, small_facts, small_recipe
from widefield.core.devices import CPU
from widefield.core.gather import gather
from widefield.core.types import Shard
from widefield.methods import METHODS
from widefield.train.build import build
from widefield.train.compute import Compute
from widefield.train.distributed import DistributedContext
from widefield.train.step import TrainStep
from widefield.train.sync_batch_norm import synchronize_batch_norm

BATCH, CHANNELS = 3, 4
NORMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "1d": (lambda: nn.BatchNorm1d(CHANNELS), ()),
    "2d": (lambda: nn.BatchNorm2d(CHANNELS), (5, 2)),
    "without momentum": (lambda: nn.BatchNorm2d(CHANNELS, momentum=None), (5, 2)),
    "without weights": (lambda: nn.BatchNorm1d(CHANNELS, affine=False), (5,)),
    "with activation": (lambda: BatchNormAct2d(CHANNELS), (3, 3)),
}


def batch_of(rank: int, size: tuple[int, ...], step: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return rank + (1 + rank) * torch.randn(BATCH, CHANNELS, *size, generator=generator)


def loss_of(y: Tensor) -> Tensor:
    """A mean over examples that normalization does not make constant."""
    return (y[:, :2].sigmoid() * y[:, 2:].square()).flatten(1).sum(1).mean()


def check_norm(rank: int, name: str) -> None:
    make, size = NORMS[name]
    ours, one = nn.Sequential(make()), nn.Sequential(make())
    for net in (ours, one):
        for i, p in enumerate(net.parameters()):
            nn.init.constant_(p, 0.5 + i)
    synchronize_batch_norm(ours)
    for step in range(2):
        xs = [batch_of(r, size, step).requires_grad_() for r in range(2)]
        both = torch.cat([x.detach() for x in xs]).requires_grad_()
        y, expected = ours(xs[rank]), one(both)
        part = slice(rank * BATCH, (rank + 1) * BATCH)
        torch.testing.assert_close(y, expected[part], msg=lambda m: f"{name}: {m}")
        loss_of(y).backward()
        loss_of(expected).backward()
        assert xs[rank].grad is not None
        assert both.grad is not None
        torch.testing.assert_close(xs[rank].grad / 2, both.grad[part], rtol=1e-4, atol=1e-5)
    for buffer, wanted in zip(ours.buffers(), one.buffers(), strict=True):
        torch.testing.assert_close(buffer, wanted, msg=lambda m: f"{name}: {m}")
    for p, wanted in zip(ours.parameters(), one.parameters(), strict=True):
        assert p.grad is not None
        distributed.all_reduce(p.grad)
        torch.testing.assert_close(p.grad / 2, wanted.grad, rtol=1e-4, atol=1e-5)


class Carried(TorchDispatchMode):
    """Counts the bytes that collective operations carry to this process."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            tensors = torch.utils._pytree.tree_leaves(args[0])
            name = func.overloadpacket.__name__
            self.bytes[name] = self.bytes.get(name, 0) + sum(x.nbytes for x in tensors)
        return func(*args, **(kwargs or {}))


def check_bytes(rank: int, name: str) -> None:
    recipe = small_recipe(name, gather_distributed=True, batch_size=8)
    state = build(recipe, small_facts(), device=torch.device("cpu"), shard=Shard(rank, 2))
    model = DistributedDataParallel(state.model)
    views = [torch.rand(4, 3, 16, 16) for _ in range(state.method.view_count)]
    index = torch.arange(rank, 8, 2)
    with Carried() as seen:
        model(views, index)[0].backward()
        for optimizer in state.head_optimizers:
            optimizer.step()
        state.method.after_step()
    expected = step_bytes(state, 8)
    found = seen.bytes
    assert found.pop("allreduce_") == expected.gradients + expected.gathered_gradients, name
    assert found.pop("broadcast_") == expected.buffers, name
    assert found.pop("allgather_", 0) == expected.gathered, name
    assert not found, name


class Spare(nn.Sequential):
    """A network of the user's with a layer that it has no use for."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(768, 8))
        self.unused = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x))


def check_spare_layer(rank: int) -> None:
    encoder = Spare()
    before = copy.deepcopy(encoder.state_dict())
    recipe = small_recipe("byol", batch_size=8)
    state = build(recipe, small_facts(), device=CPU, encoder=encoder, shard=Shard(rank, 2))
    step = TrainStep(state, compute=Compute(CPU, "32-true", world=2))
    for _ in range(3):
        step(batch(rank, 4, skip=2))
    moved = {k for k, value in encoder.state_dict().items() if not torch.equal(value, before[k])}
    assert moved == {"1.weight", "1.bias"}
    (weight,) = gather(encoder[1].weight[None]).diff(dim=0)
    assert not weight.any()


def check_long_act(rank: int) -> None:
    """The first process may take longer than messages may, as with the features of a teacher."""
    with mock.patch("widefield.train.distributed._TIMEOUT", timedelta(seconds=1)):
        ranks = DistributedContext(CPU, "32")
    ranks.on_rank_zero(lambda: time.sleep(2))
    assert ranks.max(rank) == 1


def check_all(rank: int) -> None:
    check_long_act(rank)
    check_spare_layer(rank)
    for name in NORMS:
        check_norm(rank, name)
    for name in METHODS:
        if name != "distill":  # which needs files of its teachers
            check_bytes(rank, name)


def test_two_processes_normalize_as_one_and_carry_what_is_planned() -> None:
    in_processes(2, check_all)


def test_one_process_and_evaluation_are_as_before() -> None:
    x = torch.rand(4, 2, 3, 3)
    plain, ours = nn.Sequential(nn.BatchNorm2d(2)), nn.Sequential(nn.BatchNorm2d(2))
    synchronize_batch_norm(ours)
    synchronize_batch_norm(ours)
    for mode in (True, False):
        assert torch.equal(ours.train(mode)(x), plain.train(mode)(x))
    assert ours.state_dict().keys() == plain.state_dict().keys()


class Own(nn.BatchNorm2d):
    """A batch normalization with a forward pass that nobody knows."""


def test_another_batch_normalization_is_refused() -> None:
    with pytest.raises(
        ValueError, match="sync_batch_norm cannot synchronize 0, a Own: use torch's"
    ):
        synchronize_batch_norm(nn.Sequential(Own(2)))


def test_the_setting_is_used_with_several_processes_alone() -> None:
    recipe = small_recipe("simclr", sync_batch_norm=True)
    state = build(recipe, small_facts(), device=torch.device("cpu"))
    kinds = {type(m).__name__ for m in state.model.modules()}
    assert "BatchNorm2d" in kinds
    assert not any(kind.startswith("Sync") for kind in kinds)
