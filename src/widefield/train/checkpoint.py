"""A checkpoint is the whole run at one step, written so that a crash leaves the last one whole.

It is one file of what all ranks share and one file for each rank, of what is its own: rows and
random state. Every rank writes its file under a name of the step; when all are there, rank 0 moves
the shared file, which names that step, into place. Only then is the last checkpoint replaced.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from widefield.train.ranks import Ranks
from widefield.types import Shard

_FULL = (
    "no space left on the disk for {}: the last checkpoint is whole; "
    "make room and run again with --resume"
)
_EXTRA = "_extra_state"  # what torch appends to the name of a module for `get_extra_state`


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one step.

    Raises:
        ValueError: the disk is full; `path` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        write(draft)
        with open(draft, "rb") as f:
            os.fsync(f.fileno())
        os.replace(draft, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        draft.unlink(missing_ok=True)
        if _disk_is_full(error):
            raise ValueError(_FULL.format(path.name)) from error
        raise


@contextmanager
def full_disk_as_one_line(folder: Path) -> Iterator[None]:
    """Say in one line that there is no room for a file of the run.

    Raises:
        ValueError: there is none.
    """
    try:
        yield
    except OSError as error:
        if not _disk_is_full(error):
            raise
        raise ValueError(_FULL.format(folder)) from error


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state`, a nest of dicts, lists, numbers, strings and tensors."""
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
    """Where rank `shard.rank` keeps what is its own, beside the file that all share."""
    return shared.with_name(f"{shared.stem}-step-{step}-rank-{shard.name}.pt")


def save_together(path: Path, state: dict[str, Any], ranks: Ranks) -> None:
    """Write the run's `state`, each rank its own part, so that `path` is the old or the new one."""
    objective = state["objective"]
    extra = {key: value for key, value in objective.items() if key.endswith(_EXTRA)}
    shared = {k: v for k, v in state.items() if k != "random"}
    shared["objective"] = {k: v for k, v in objective.items() if k not in extra}
    mine = own_file(path, state["step"], ranks.shard)
    save(mine, {"extra": extra, "random": state["random"]})
    ranks.wait()
    ranks.by_first(lambda: save(path, {**shared, "world": ranks.shard.world}))
    world = ranks.shard.world
    kept = {own_file(path, state["step"], Shard(rank, world)) for rank in range(world)}
    if ranks.first:
        for old in set(path.parent.glob(f"{path.stem}-step-*-rank-*.pt")) - kept:
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
        own = load(files[shard.rank], torch.device("cpu"))
        extra, random = own["extra"], own["random"]
    else:
        owns = [load(file, torch.device("cpu"), mapped=True) for file in files]
        extra = {key: {"shards": [o["extra"][key] for o in owns]} for key in owns[0]["extra"]}
        random = owns[shard.rank % world]["random"]
    return {**shared, "objective": {**shared["objective"], **extra}, "random": random}


def _disk_is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # torch and safetensors lose the errno; these are their words for a write that came up short.
    words = ("unexpected pos", "failed writing", "No space left", "quota exceeded", "too large")
    return any(word in str(error) for word in words)
