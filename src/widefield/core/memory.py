"""Total and free memory of this machine and its devices, in bytes."""

import os
from dataclasses import dataclass
from typing import Self

import torch


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory that a per-example head may use a share of."""

    host: int
    """Bytes of memory of the machine."""
    device: int = 0
    """Free bytes of memory of the GPU; 0 without one."""

    @classmethod
    def of(cls, device: torch.device) -> Self:
        """Return the memory of this machine, for training on `device`."""
        free = free_device_memory(device) if device.type == "cuda" else 0
        return cls(host=host_memory(), device=free)


def host_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(needed: int, what: str) -> None:
    """Check, before an allocation, that this machine has enough memory.

    Args:
        needed: bytes needed.
        what: the object that needs them, for the message.

    Raises:
        ValueError: the machine has less.

    Example:
        >>> check_memory(10**18, "a table")
        Traceback (most recent call last):
        ValueError: a table needs 1,000,000,000.0 GB of memory and this machine has ...
    """
    if needed > host_memory():
        raise ValueError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory and this machine has "
            f"{host_memory() / 1e9:,.1f} GB: choose less"
        )


def free_host_memory() -> int:
    """Return the bytes of this machine's memory that can be used without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # not Linux: assume that half is free
        return host_memory() // 2


def free_device_memory(device: torch.device) -> int:
    """Return the free bytes of memory of `device`; of the CPU, those of the machine."""
    if device.type != "cuda":
        return free_host_memory()
    return int(torch.cuda.mem_get_info(device)[0])
