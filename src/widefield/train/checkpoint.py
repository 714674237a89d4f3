"""A checkpoint is the whole run at one step, written so that a crash leaves the last one whole.

It is one file of what all ranks share and one file for each rank, of what is its own: rows and
random state. Every rank writes its file under a name of the step; when all are there, rank 0 moves
the shared file, which names that step, into place. Only then is the last checkpoint replaced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from widefield.core.files import DiskFullError, disk_is_full, write_atomically
from widefield.train.ranks import Ranks
from widefield.types import Shard

_FULL = (
    "no space left on the disk for {}: the last checkpoint is whole; "
    "make room and run again with --resume"
)
_EXTRA = "_extra_state"  # what torch appends to the name of a module for `get_extra_state`


@contextmanager
def full_disk_as_one_line(folder: Path) -> Iterator[None]:
    """Say in one line that there is no room for a file of the run.

    Raises:
        ValueError: there is none.
    """
    try:
        yield
    except (OSError, DiskFullError) as error:
        if not isinstance(error, DiskFullError) and not disk_is_full(error):
            raise
        raise ValueError(_FULL.format(folder)) from error


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state`, a nest of dicts, lists, numbers, strings and tensors.

    Raises:
        ValueError: the disk is full; the file that was there is as it was.
    """
    with full_disk_as_one_line(path):
        write_atomically(path, lambda draft: torch.save(state, draft))


def load(path: Path, device: torch.device, *, mapped: bool = False) -> dict[str, Any]:
    """Read a state written by `save`; nothing in the file is executed.

    Where it is `mapped`, memory is taken by what is used of it alone.

    Raises:
        ValueError: the file is truncated or not a checkpoint.
    """
    try:
        state: dict[str, Any] = torch.load(
            path, map_location=device, weights_only=True, mmap=mapped
        )
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, UnpicklingError) as error:
        raise ValueError(
            f"{path} is not a whole widefield checkpoint: restore it, or start a new run"
        ) from error
    return state


def own_file(shared: Path, step: int, shard: Shard) -> Path:
    """Return the file of what is rank `shard.rank`'s own, beside the file that all share."""
    return shared.with_name(f"{shared.stem}-step-{step}-rank-{shard.name}.pt")


def save_together(path: Path, state: dict[str, Any], ranks: Ranks) -> None:
    """Write the run's `state`, each rank its own part, so that `path` is the old or the new one."""
    model = state["model"]
    extra = {key: value for key, value in model.items() if key.endswith(_EXTRA)}
    shared = {k: v for k, v in state.items() if k != "random"}
    shared["model"] = {k: v for k, v in model.items() if k not in extra}
    save(own_file(path, state["step"], ranks.shard), {"extra": extra, "random": state["random"]})
    ranks.barrier()
    ranks.on_rank_zero(lambda: save(path, {**shared, "world": ranks.shard.world}))
    world = ranks.shard.world
    current = {own_file(path, state["step"], Shard(rank, world)) for rank in range(world)}
    if ranks.is_rank_zero:
        for old in set(path.parent.glob(f"{path.stem}-step-*-rank-*.pt")) - current:
            old.unlink()


def load_together(path: Path, shard: Shard) -> dict[str, Any]:
    """The state that `save_together` wrote, for rank `shard.rank`.

    `world` tells how many ranks saved it. If they were not as many as now, the extra state of each
    module is {"shards": [...]}, those of all ranks then.

    Raises:
        ValueError: a file is missing, truncated or not a checkpoint.
    """
    shared = load(path, torch.device("cpu"))
    world = shared["world"]
    files = [own_file(path, shared["step"], Shard(rank, world)) for rank in range(world)]
    if world == shard.world:
        part = load(files[shard.rank], torch.device("cpu"))
        extra, random = part["extra"], part["random"]
    else:
        owns = [load(file, torch.device("cpu"), mapped=True) for file in files]
        extra = {key: {"shards": [o["extra"][key] for o in owns]} for key in owns[0]["extra"]}
        random = owns[shard.rank % world]["random"]
    return {**shared, "model": {**shared["model"], **extra}, "random": random}
