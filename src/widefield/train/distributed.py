"""The processes of one run, as started by torchrun."""

import atexit
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

from widefield.core.errors import option
from widefield.core.hardware import choose_precision
from widefield.core.types import Precision, Shard
from widefield.train.compute import Compute

# After which a rank counts as failed. Chosen by hand; the others wait while rank 0 writes files.
_TIMEOUT = timedelta(minutes=10)
# Features of teachers for every example, for instance; chosen by hand.
_LONGEST_ACT = timedelta(days=7)

T = TypeVar("T")


class DistributedContext:
    """One process of a run: its rank, the number of processes, and collective operations.

    Without torchrun there is one process. All ranks have to make the same calls in the same order.
    """

    def __init__(self, device: torch.device, precision: Precision) -> None:
        rank, world, local_rank = _read_torchrun_env()
        if device.type == "cuda":
            device = torch.device("cuda", local_rank)
        self.shard, self.compute = Shard(rank, world), Compute(device, precision, world)
        self._control: distributed.ProcessGroup | None = None
        self._waiting: distributed.ProcessGroup | None = None
        if world > 1:
            with self.rank_failure_errors():
                _join_processes(device)
                # Groups of their own, so that control messages never wait for a GPU.
                self._control, self._waiting = _group(_TIMEOUT), _group(_LONGEST_ACT)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes the run's files and shows its progress."""
        return self.shard.rank == 0

    def barrier(self) -> None:
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
        """Call `act` on rank 0 while the other ranks wait, as long as it takes.

        A rank that ends is noticed at once.
        """
        if self.is_rank_zero:
            act()
        if self._waiting is not None:
            distributed.all_reduce(torch.zeros(()), group=self._waiting)

    @contextmanager
    def rank_failure_errors(self) -> Iterator[None]:
        """Context that turns the failure of another rank into a one-line error."""
        try:
            yield
        except RuntimeError as error:
            # Errors of gloo are plain, but name its source file.
            if not (isinstance(error, distributed.DistError) or "gloo" in str(error).lower()):
                raise
            raise ValueError(
                f"rank {self.shard.rank} of {self.shard.world} stops, because another rank ended "
                f"or did not answer for {_TIMEOUT.seconds // 60} minutes: see what that one says, "
                f"and start all of them again with {option('resume', True)}"
            ) from error


def single_process(device: torch.device) -> Compute:
    """Return the settings of one process on `device`, with its precision `auto`."""
    return Compute(device, choose_precision("auto", device))


def _group(timeout: timedelta) -> distributed.ProcessGroup:
    group = distributed.new_group(backend="gloo", timeout=timeout)
    assert isinstance(group, distributed.ProcessGroup)
    return group


def _join_processes(device: torch.device) -> None:
    """Join the processes of the run, unless the caller has."""
    if distributed.is_initialized():
        return
    if device.type == "cpu":
        distributed.init_process_group("gloo", timeout=_TIMEOUT)
        return
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", timeout=_TIMEOUT, device_id=device)
    atexit.register(distributed.destroy_process_group)  # else NCCL warns


def _read_torchrun_env() -> tuple[int, int, int]:
    """Return rank, number of ranks, and rank among those of this machine."""
    defaults = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    counts = {name: os.environ.get(name, default) for name, default in defaults.items()}
    for name, text in counts.items():
        if not (text.isascii() and text.isdecimal() and len(text) < 9):
            raise ValueError(f"{name} is {text!r}, no whole number: unset it, or start by torchrun")
    rank, world, local, local_rank = map(int, counts.values())
    if rank >= world or not 1 <= local <= world or world % local or local_rank >= local:
        raise ValueError(
            f"RANK {rank}, WORLD_SIZE {world}, LOCAL_RANK {local_rank} and LOCAL_WORLD_SIZE "
            f"{local} do not fit together: unset them, or start by torchrun"
        )
    return rank, world, local_rank
