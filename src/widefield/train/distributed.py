"""The processes of one run, as started by torchrun, and their communication."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, distributed

from widefield.core.hardware import choose_precision
from widefield.core.types import Precision, Shard

if TYPE_CHECKING:  # slow to import, and needed for training only
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.precision import Precision as PrecisionPlugin

_TIMEOUT = timedelta(minutes=10)  # after which a rank counts as failed

T = TypeVar("T")


def single_fabric(device: torch.device) -> "Fabric":
    """Return Fabric for this process alone, with the precision `auto` of `device`."""
    from lightning.fabric import Fabric

    precision_plugin = _precision_plugin(device, choose_precision("auto", device))
    return Fabric(accelerator=device.type, devices=1, plugins=precision_plugin, loggers=[])


def _precision_plugin(device: torch.device, precision: Precision) -> "PrecisionPlugin":
    """Return a precision plugin: for a precision by name Fabric would print a line."""
    from lightning.fabric.plugins import precision as plugins

    if precision == "32-true":
        return plugins.Precision()
    return plugins.MixedPrecision(precision="bf16-mixed", device=device.type)


class DistributedContext:
    """One process of a run: its rank, the number of processes, and collective operations.

    Without torchrun there is one process. All ranks have to make the same calls in the same order.

    Args:
        device: kind of device to train on; each rank takes one of its own.
        precision: arithmetic of the encoder.

    Raises:
        ValueError: the environment variables of torchrun are invalid.

    Example:
        >>> ranks = DistributedContext(torch.device("cpu"), "32-true")
        >>> ranks.shard.name, ranks.is_rank_zero, ranks.max(3), ranks.mean({"loss": 2.0})
        ('0-of-1', True, 3, {'loss': 2.0})
    """

    def __init__(self, device: torch.device, precision: Precision) -> None:
        from lightning.fabric import Fabric
        from lightning.fabric.strategies.ddp import DDPStrategy

        rank, world, local = _read_torchrun_env()
        self.shard = Shard(rank, world)
        self.fabric = Fabric(
            accelerator=device.type,
            devices=local,
            num_nodes=world // local,
            strategy=DDPStrategy(timeout=_TIMEOUT) if world > 1 else "auto",
            plugins=_precision_plugin(device, precision),
            loggers=[],
        )
        self._control: distributed.ProcessGroup | None = None
        if world > 1:
            with self.rank_failure_errors():
                self.fabric.launch()
                # A group of its own, so that control messages never wait for a GPU.
                group = distributed.new_group(backend="gloo", timeout=_TIMEOUT)
                assert isinstance(group, distributed.ProcessGroup)
                self._control = group

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes the run's files and shows its progress."""
        return self.shard.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.max(0)

    def max(self, value: int) -> int:
        """Return the largest `value` of all ranks."""
        if self._control is None:
            return value
        values = torch.tensor(value, dtype=torch.int32)
        distributed.all_reduce(values, distributed.ReduceOp.MAX, group=self._control)
        return int(values)

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the mean over the ranks of each value."""
        if self._control is None:
            return dict(values)
        total: Tensor = torch.tensor(list(values.values()), dtype=torch.float64)
        distributed.all_reduce(total, group=self._control)
        return dict(zip(values, (total / self.shard.world).tolist(), strict=True))

    def broadcast(self, value: T) -> T:
        """Return the value of rank 0."""
        if self._control is None:
            return value
        values = [value]
        distributed.broadcast_object_list(values, group=self._control)
        return values[0]

    def on_rank_zero(self, act: Callable[[], None]) -> None:
        """Call `act` on rank 0 while the other ranks wait."""
        if self.is_rank_zero:
            act()
        self.barrier()

    @contextmanager
    def rank_failure_errors(self) -> Iterator[None]:
        """Context that turns the failure of another rank into a one-line error.

        Raises:
            ValueError: another rank ended or did not answer.
        """
        try:
            yield
        except RuntimeError as error:
            # Errors of gloo are plain, but name its source file.
            if not (isinstance(error, distributed.DistError) or "gloo" in str(error).lower()):
                raise
            raise ValueError(
                f"rank {self.shard.rank} of {self.shard.world} stops, because another rank ended "
                f"or did not answer for {_TIMEOUT.seconds // 60} minutes: see what that one says, "
                "and start all of them again with --resume"
            ) from error


def _read_torchrun_env() -> tuple[int, int, int]:
    """Return rank, number of ranks, and number of ranks on this machine."""
    counts = {
        name: os.environ.get(name, default)
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "1"))
    }
    for name, text in counts.items():
        if not (text.isascii() and text.isdecimal() and len(text) < 9):
            raise ValueError(f"{name} is {text!r}, no whole number: unset it, or start by torchrun")
    rank, world, local = map(int, counts.values())
    if rank >= world or not 1 <= local <= world or world % local:
        raise ValueError(
            f"RANK {rank}, WORLD_SIZE {world} and LOCAL_WORLD_SIZE {local} do not fit together: "
            "unset them, or start by torchrun"
        )
    return rank, world, local
