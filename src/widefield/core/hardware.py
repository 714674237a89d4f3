"""What this machine can do: device, precision, versions."""

import ctypes
import platform

import torch

from widefield.core.cpus import cpu_name, usable_cpus
from widefield.core.types import Precision


def choose_device(wanted: str) -> torch.device:
    """The device that `asked` names; auto takes a GPU when there is one.

    Raises:
        ValueError: a GPU was asked for and there is none.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no GPU: use --device cpu")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """Autocast to bf16, or plain float32; auto takes bf16 where it is done in hardware."""
    if wanted == "auto":
        wanted = "bf16" if _has_bf16(device) else "32"
    return "bf16-mixed" if wanted == "bf16" else "32-true"


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keep_freed_memory() -> None:
    """Let this process keep the memory that tensors free; does nothing without glibc.

    By default glibc hands large blocks back to the system, and every step gets them anew, page by
    page: a tenth of a bare step's time on a CPU, and more where two views make tensors twice as
    large. Memory that the process holds stays at its peak in return.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)  # no threshold; a number could not exceed 2 GiB


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of malloc.h: free memory to keep, and the size from which a block is mapped alone."""


def machine(device: torch.device) -> dict[str, str]:
    """Names and versions that belong beside every number.

    The instructions are the widest that PyTorch uses on the processor, and the precision is what
    `--precision auto` takes: where it is bf16, a run may take a third of the time.
    """
    facts = {
        "cpu": f"{cpu_name()}, {usable_cpus()} cores",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "default precision": choose_precision("auto", device),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts
