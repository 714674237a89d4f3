"""Checkpoints, written so that a crash leaves the last one intact.

A checkpoint is one shared file and one file for each rank, of its rows and random state. Every rank
writes its file under a name with the step. Rank 0 then moves the shared file, which names that
step, into place: this replaces the last checkpoint atomically.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch

from widefield.core.errors import option
from widefield.core.files import DiskFullError, check_plain_file, disk_is_full, write_atomically
from widefield.core.types import Shard
from widefield.train.distributed import DistributedContext

INVALID_CHECKPOINT = "{} is not a checkpoint of this run: restore it, or start a new run"
MAX_WORLD_SIZE = 10**6  # larger numbers are damage
_EXTRA_STATE = "_extra_state"  # the key of `get_extra_state` in a state dict


@contextmanager
def disk_full_errors(path: Path, *, last: Path) -> Iterator[None]:
    """Context of writing `path` that turns a full disk into a one-line error."""
    try:
        yield
    except (OSError, DiskFullError) as error:
        if not isinstance(error, DiskFullError) and not disk_is_full(error):
            raise
        has_run = last.exists() or (last.parents[1] / "run.yaml").exists()  # else it was removed
        resume_option = f" with {option('resume', True)}" if has_run else ""
        raise ValueError(
            f"no space left on the disk for {path}: "
            f"{'the last checkpoint is whole' if last.exists() else 'there is no checkpoint yet'}; "
            f"make room and run again{resume_option}"
        ) from error


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state`, nested dicts and lists of numbers, strings and tensors, with a checksum."""

    def write(tmp: Path) -> None:
        torch.save(state, tmp)
        _append_hash(tmp)

    with disk_full_errors(path, last=path.with_name("last.pt")):
        write_atomically(path, write)


def load(path: Path, device: torch.device, *, mapped: bool = False) -> dict[str, Any]:
    """Read a state written by `save`; nothing in the file is executed.

    With `mapped` only tensors that are used take memory.

    Raises:
        ValueError: the file is missing, damaged, or not a checkpoint.
    """
    try:
        _check_hash(path)
        state: dict[str, Any] = torch.load(
            path, map_location=device, weights_only=True, mmap=mapped
        )
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
    except MemoryError:
        raise
    # The errors of `torch.load` have no common class.
    except Exception as error:
        reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise ValueError(
            f"{path} is not a whole widefield checkpoint{reason}: restore it, or start a new run"
        ) from error
    return state


# A checkpoint is a ZIP archive, which ends in the length of a comment and the comment. The comment
# is a checksum of everything before it, so that `torch.load` can still read the file.
_HASH_PREFIX = b"widefield blake2b "
_HASH_BYTES = len(_HASH_PREFIX) + 32


def _append_hash(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        assert file.read(2) == b"\0\0", "torch has written a comment"
        file.seek(-2, os.SEEK_END)
        file.write(_HASH_BYTES.to_bytes(2, "little"))
        value = _hash(file, file.tell())
        file.write(_HASH_PREFIX + value.encode())


def _check_hash(path: Path) -> None:
    if not path.is_dir():  # opening a folder raises its own error
        check_plain_file(path, largest=sys.maxsize)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - _HASH_BYTES
        if size < 0:
            raise ValueError("too short")
        file.seek(size)
        if file.read(len(_HASH_PREFIX)) != _HASH_PREFIX:  # before the whole file is read
            raise ValueError("no checksum")
        value = _hash(file, size)
        if file.read() != _HASH_PREFIX + value.encode():
            raise ValueError("the checksum does not fit")


def _hash(file: BinaryIO, size: int) -> str:
    """Return the checksum of the first `size` bytes, and leave the file at that position."""
    file.seek(0)
    blake2b, remaining = hashlib.blake2b(digest_size=16), size
    while remaining:
        chunk = file.read(min(remaining, 2**20))
        blake2b.update(chunk)
        remaining -= len(chunk)
    return blake2b.hexdigest()


def rank_file(shared: Path, step: int, shard: Shard) -> Path:
    """Return the path of the file of rank `shard.rank`, beside the `shared` file."""
    return shared.with_name(f"{shared.stem}-step-{step}-rank-{shard.name}.pt")


def save_sharded(path: Path, state: dict[str, Any], ranks: DistributedContext) -> None:
    """Write the run's `state`, each rank its own part; `path` is replaced atomically."""
    model = state["model"]
    extra = {key: value for key, value in model.items() if key.endswith(_EXTRA_STATE)}
    local = {"extra": extra, "random": state["random"], "sums": state["sums"]}
    shared = {k: v for k, v in state.items() if k not in local}
    shared["model"] = {k: v for k, v in model.items() if k not in extra}
    # The parts of the ranks have the step in their names, so they leave those of the last
    # checkpoint whole. It is replaced once all are there, and then the old parts go.
    save(rank_file(path, state["step"], ranks.shard), local)
    ranks.barrier()
    ranks.on_rank_zero(lambda: save(path, {**shared, "world": ranks.shard.world}))
    world = ranks.shard.world
    current = {rank_file(path, state["step"], Shard(rank, world)) for rank in range(world)}
    if ranks.is_rank_zero:
        for old in set(path.parent.glob(f"{path.stem}-step-*-rank-*.pt")) - current:
            old.unlink()


def load_sharded(path: Path, shard: Shard) -> dict[str, Any]:
    """Return the state that `save_sharded` wrote, for rank `shard.rank`.

    `world` is the number of ranks that saved it. If there are more or fewer now, the extra state of
    each module is {"shards": [...]}, one for each of those ranks.
    """
    shared = load(path, torch.device("cpu"))
    world, step = shared.get("world"), shared.get("step")
    if type(world) is not int or type(step) is not int or not 1 <= world < MAX_WORLD_SIZE:
        raise ValueError(INVALID_CHECKPOINT.format(path))
    files = [rank_file(path, step, Shard(rank, world)) for rank in range(world)]
    try:
        return _merge(shared, files, shard)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(INVALID_CHECKPOINT.format(path)) from error


def _merge(shared: dict[str, Any], files: list[Path], shard: Shard) -> dict[str, Any]:
    cpu, world = torch.device("cpu"), len(files)
    if world == shard.world:
        part = load(files[shard.rank], cpu)
        extra, random, sums = part["extra"], part["random"], part["sums"]
    else:
        states = [load(file, cpu, mapped=True) for file in files]
        extra = {key: {"shards": [o["extra"][key] for o in states]} for key in states[0]["extra"]}
        random = states[shard.rank % world]["random"]
        parts = [state["sums"] for state in states]
        sums = {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}
    return {**shared, "model": {**shared["model"], **extra}, "random": random, "sums": sums}
