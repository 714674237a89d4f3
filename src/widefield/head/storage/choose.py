"""Selection of a storage by the number of rows."""

from pathlib import Path
from typing import Literal

import torch

from widefield.core.errors import option
from widefield.core.hardware import Memory
from widefield.core.types import WHOLE, Place, Shard
from widefield.head.storage.disk import DiskStorage
from widefield.head.storage.layout import FULL, Layout
from widefield.head.storage.memory import MemoryStorage

# Chosen by hand: most of the memory is left to images, activations and the checkpoint in writing.
_MEMORY_SHARE = 0.25


def select_device_kind(
    requested: Place | Literal["auto"],
    n: int,
    dim: int,
    memory: Memory,
    layout: Layout = FULL,
) -> Place:
    """Return `requested`, or for `auto` the first of device, host and disk with room for n rows.

    Rows may take less than 25 % of the memory: of the free memory of a GPU, or of the host.
    """
    if requested != "auto":
        return requested
    size = n * layout.row_bytes(dim)
    if size < _MEMORY_SHARE * memory.device:
        return "device"
    return "host" if size < _MEMORY_SHARE * memory.host else "disk"


def choose_storage(
    requested: Place | Literal["auto"],
    n: int,
    dim: int,
    *,
    seed: int,
    device: torch.device,
    folder: Path | None = None,
    shard: Shard = WHOLE,
    layout: Layout = FULL,
) -> MemoryStorage | DiskStorage:
    """Build a storage for n rows of width `dim`, or a shard, where `select_device_kind` puts it.

    On disk each shard has a folder in `folder`.

    Raises:
        ValueError: the rows belong on disk and there is no folder.

    Example:
        >>> import torch
        >>> choose_storage("auto", 4, 2, seed=0, device=torch.device("cpu")).device
        device(type='cpu')
    """
    kind = select_device_kind(requested, n, dim, Memory.of(device), layout)
    if kind != "disk":
        target = device if kind == "device" else "cpu"
        return MemoryStorage(n, dim, seed=seed, device=target, shard=shard, layout=layout)
    if folder is None:
        raise ValueError(
            f"rows on disk need a folder: give the run one, or use {option('head_storage')} host"
        )
    return DiskStorage(
        folder / shard.name, n, dim, seed=seed, device=device, shard=shard, layout=layout
    )
