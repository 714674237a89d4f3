"""Where the rows of a run are kept, by how many they are."""

import os
from pathlib import Path
from typing import Literal

import torch

from widefield.core.types import WHOLE, Place, Shard
from widefield.head.storage.disk import DiskStorage
from widefield.head.storage.layout import FULL, Layout
from widefield.head.storage.memory import MemoryStorage

_MEMORY_SHARE = 0.25


def choose_place(
    wanted_place: Place | Literal["auto"],
    n: int,
    dim: int,
    device: torch.device,
    layout: Layout = FULL,
) -> Place:
    """Return `wanted_place`, or for `auto` the first of device, host and disk with room for n rows.

    There is room where the rows need less than 25 % of the memory: of what is free on a GPU, of
    all that the host has.

    Example:
        >>> import torch
        >>> [choose_place("auto", n, 128, torch.device("cpu")) for n in (10**3, 10**12)]
        ['host', 'disk']
    """
    if wanted_place != "auto":
        return wanted_place
    size = n * layout.row_bytes(dim)
    if device.type == "cuda" and size < _MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]:
        return "device"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "host" if size < _MEMORY_SHARE * memory else "disk"


def choose_storage(
    wanted_place: Place | Literal["auto"],
    n: int,
    dim: int,
    *,
    seed: int,
    device: torch.device,
    folder: Path | None = None,
    shard: Shard = WHOLE,
    layout: Layout = FULL,
) -> MemoryStorage | DiskStorage:
    """Build a storage for n rows of width `dim`, or a shard of them, where `choose_place` says.

    On disk each shard has a folder in `folder`.

    Raises:
        ValueError: the rows belong on disk and there is no folder.

    Example:
        >>> import torch
        >>> choose_storage("auto", 4, 2, seed=0, device=torch.device("cpu")).device
        device(type='cpu')
    """
    place = choose_place(wanted_place, n, dim, device, layout)
    if place != "disk":
        home = device if place == "device" else "cpu"
        return MemoryStorage(n, dim, seed=seed, device=home, shard=shard, layout=layout)
    if folder is None:
        raise ValueError("rows on disk need a folder: give the run one, or use head_storage host")
    return DiskStorage(
        folder / shard.name, n, dim, seed=seed, device=device, shard=shard, layout=layout
    )
