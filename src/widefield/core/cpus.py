"""Name and number of the CPUs that this process may use."""

import os
import platform
import re
from pathlib import Path

from widefield.core.container import cpu_limit


def available_cpus() -> int:
    """Return the number of CPUs that affinity, container and SLURM leave a process, at least 1."""
    limit = os.environ.get("SLURM_CPUS_PER_TASK", "")
    is_number = limit.isascii() and limit.isdecimal() and len(limit) < 9
    requested = int(limit) if is_number else 0
    return min(all_cpus(), requested or all_cpus(), cpu_limit() or all_cpus())


def all_cpus() -> int:
    """Return the number of CPUs that the affinity mask allows this process, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the CPU, or of its architecture where the system gives no name."""
    if info.is_file():
        match = re.search(
            r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE
        )
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()
