"""Which processors this process runs on, and how many of them it may use."""

import os
import platform
import re
from pathlib import Path


def usable_cpus() -> int:
    """Return the processors that affinity and SLURM leave to this process, 1 or more.

    Example:
        >>> 1 <= usable_cpus() <= os.cpu_count()
        True
    """
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    granted = int(given) if given.isascii() and given.isdecimal() and len(given) < 9 else 0
    return min(all_cpus(), granted or all_cpus())


def all_cpus() -> int:
    """Return the processors that the affinity leaves to this process, 1 or more."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system tells it.

    Example:
        >>> len(cpu_name()) > 0
        True
    """
    if info.is_file():
        named = re.search(
            r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE
        )
        if named:
            return named[1].strip()
    return platform.processor() or platform.machine()
