"""Device, threads, precision, memory and versions of this machine.

`cpus.py` is loaded before torch.
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch
from threadpoolctl import threadpool_limits

from widefield.core.container import memory_in_use, memory_limit
from widefield.core.cpus import available_cpus, cpu_name
from widefield.core.errors import option
from widefield.core.types import Precision


def choose_device(wanted: str) -> torch.device:
    """Return the device `wanted`; auto is the GPU, or the CPU where there is none."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device cuda was asked for, but torch sees no GPU: use {option('device', 'cpu')}"
        )
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let torch and every BLAS and OpenMP library compute with at most `count` threads."""
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """Return the precision `wanted`; auto is bf16 where the hardware supports it, else float32."""
    has_bf16 = wanted.startswith("bf16")
    if wanted == "auto" and device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    elif wanted == "auto":
        has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16-mixed" if has_bf16 else "32-true"


def keep_freed_memory() -> None:
    """Make glibc's allocator keep freed memory; do nothing without glibc.

    By default glibc returns large blocks to the system, and every step faults them in again: a
    tenth of a step's time on a CPU, and more with two views. In return, the memory of the process
    stays at its peak.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        # Smaller blocks come from the heap, which keeps what is freed.
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)  # no threshold; a number could not exceed 2 GiB


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of malloc.h: free memory to keep, and the least size of a block mapped by itself."""


def machine(device: torch.device) -> dict[str, str]:
    """Return names and versions of hardware and software, to be reported with every result.

    The instructions are the widest that PyTorch uses on the CPU; the precision is that of
    `--precision auto`.
    """
    info = {
        "cpu": f"{cpu_name()}, {available_cpus()} cores",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "default precision": choose_precision("auto", device),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if device.type == "cuda":
        info["gpu"] = torch.cuda.get_device_name(device)
    return info


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
    """Return the bytes of memory of the machine, or of its container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, memory_limit() or memory)


def check_memory(needed: int, what: str) -> None:
    """Check, before an allocation, that this machine has the bytes that `what` needs."""
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
        free, limit = int(fields["MemAvailable"].split()[0]) * 1024, memory_limit()
        return free if limit is None else max(0, min(free, limit - memory_in_use()))
    except (OSError, KeyError):  # not Linux: assume that half is free
        return host_memory() // 2


def free_device_memory(device: torch.device) -> int:
    """Return the free bytes of memory of `device`; of the CPU, those of the machine."""
    if device.type != "cuda":
        return free_host_memory()
    return int(torch.cuda.mem_get_info(device)[0])
