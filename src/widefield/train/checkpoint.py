"""A checkpoint is the whole run at one step, written so that a crash leaves the last one whole.

It is one file of what all ranks share and one file for each rank, of what is its own: rows and
random state. Every rank writes its file under a name of the step; when all are there, rank 0 moves
the shared file, which names that step, into place. Only then is the last checkpoint replaced.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from widefield.core.files import (
    DiskFullError,
    check_plain_file,
    disk_is_full,
    write_atomically,
)
from widefield.core.types import Shard
from widefield.train.distributed import DistributedContext

NOT_OURS = "{} is not a checkpoint of this run: restore it, or start a new run"
MOST_RANKS = 10**6  # a number beyond it is none
_EXTRA = "_extra_state"  # what torch appends to the name of a module for `get_extra_state`


@contextmanager
def full_disk_as_one_line(place: Path, *, last: Path) -> Iterator[None]:
    """Say in one line that there is no room for a file of the run, and how to go on.

    Args:
        place: what there is no room for.
        last: the run's last checkpoint, there or not.

    Raises:
        ValueError: there is none.
    """
    try:
        yield
    except (OSError, DiskFullError) as error:
        if not isinstance(error, DiskFullError) and not disk_is_full(error):
            raise
        begun = last.exists() or (last.parents[1] / "run.yaml").exists()  # else it was withdrawn
        raise ValueError(
            f"no space left on the disk for {place}: "
            f"{'the last checkpoint is whole' if last.exists() else 'there is no checkpoint yet'}; "
            f"make room and run again{' with --resume' if begun else ''}"
        ) from error


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state`, a nest of dicts, lists, numbers, strings and tensors, and its checksum.

    Raises:
        ValueError: the disk is full; the file that was there is as it was.
    """

    def write(draft: Path) -> None:
        torch.save(state, draft)
        _seal(draft)

    with full_disk_as_one_line(path, last=path.with_name("last.pt")):
        write_atomically(path, write)


def load(path: Path, device: torch.device, *, mapped: bool = False) -> dict[str, Any]:
    """Read a state written by `save`; nothing in the file is executed.

    Where it is `mapped`, memory is taken by what is used of it alone.

    Raises:
        ValueError: the file is missing, truncated, not a checkpoint, or no bit-wise copy of one.
    """
    try:
        _check_seal(path)
        state: dict[str, Any] = torch.load(
            path, map_location=device, weights_only=True, mmap=mapped
        )
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
    except MemoryError:
        raise
    # Whatever torch makes of a file that is none of ours: its errors have no common class.
    except Exception as error:
        reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise ValueError(
            f"{path} is not a whole widefield checkpoint{reason}: restore it, or start a new run"
        ) from error
    return state


# A checkpoint is a ZIP archive, which ends in a comment and the comment's length before it. The
# comment is a checksum of all that stands before the comment, the length included. So the file is
# one, is replaced as one, and `torch.load` reads it as before.
_SEAL = b"widefield blake2b "
_SEAL_BYTES = len(_SEAL) + 32


def _seal(path: Path) -> None:
    """Append the checksum to an archive without a comment."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        assert file.read(2) == b"\0\0", "torch has written a comment"
        file.seek(-2, os.SEEK_END)
        file.write(_SEAL_BYTES.to_bytes(2, "little"))
        digest = _digest(file, file.tell())
        file.write(_SEAL + digest.encode())


def _check_seal(path: Path) -> None:
    """Refuse a file in which a bit is not as `save` wrote it.

    Raises:
        ValueError: there is one, or the file has no checksum.
    """
    if not path.is_dir():  # of a folder the system says what it is
        check_plain_file(path, largest=sys.maxsize)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - _SEAL_BYTES
        if size < 0:
            raise ValueError("too short")
        file.seek(size)
        if file.read(len(_SEAL)) != _SEAL:  # quick, where a large file is another one
            raise ValueError("no checksum")
        digest = _digest(file, size)
        if file.read() != _SEAL + digest.encode():
            raise ValueError("the checksum does not fit")


def _digest(file: BinaryIO, size: int) -> str:
    """Return the checksum of the first `size` bytes, after which the file then stands."""
    file.seek(0)
    digest, left = hashlib.blake2b(digest_size=16), size
    while left:
        chunk = file.read(min(left, 2**20))
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def own_file(shared: Path, step: int, shard: Shard) -> Path:
    """Return the file of what is rank `shard.rank`'s own, beside the file that all share."""
    return shared.with_name(f"{shared.stem}-step-{step}-rank-{shard.name}.pt")


def save_together(path: Path, state: dict[str, Any], ranks: DistributedContext) -> None:
    """Write the run's `state`, each rank its own part, so that `path` is the old or the new one."""
    model = state["model"]
    extra = {key: value for key, value in model.items() if key.endswith(_EXTRA)}
    own = {"extra": extra, "random": state["random"], "sums": state["sums"]}
    shared = {k: v for k, v in state.items() if k not in own}
    shared["model"] = {k: v for k, v in model.items() if k not in extra}
    save(own_file(path, state["step"], ranks.shard), own)
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
    world, step = shared.get("world"), shared.get("step")
    if type(world) is not int or type(step) is not int or not 1 <= world < MOST_RANKS:
        raise ValueError(NOT_OURS.format(path))
    files = [own_file(path, step, Shard(rank, world)) for rank in range(world)]
    try:
        return _joined(shared, files, shard)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(NOT_OURS.format(path)) from error


def _joined(shared: dict[str, Any], files: list[Path], shard: Shard) -> dict[str, Any]:
    """Return what all ranks share, with what is this rank's own in `files`, one for each then."""
    cpu, world = torch.device("cpu"), len(files)
    if world == shard.world:
        part = load(files[shard.rank], cpu)
        extra, random = part["extra"], part["random"]
        sums = part["sums"]
    else:
        owns = [load(file, cpu, mapped=True) for file in files]
        extra = {key: {"shards": [o["extra"][key] for o in owns]} for key in owns[0]["extra"]}
        random = owns[shard.rank % world]["random"]
        sums = _mean([own["sums"] for own in owns])
    return {**shared, "model": {**shared["model"], **extra}, "random": random, "sums": sums}


def _mean(sums: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean over all ranks, which each of others takes for its own."""
    return {name: torch.stack([one[name] for one in sums]).mean(0) for name in sums[0]}
