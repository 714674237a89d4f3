"""How many processors this process may use."""

import os


def usable_cpus() -> int:
    """Return the processors that affinity and SLURM leave to this process, 1 or more.

    Example:
        >>> 1 <= usable_cpus() <= os.cpu_count()
        True
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    granted = int(given) if given.isascii() and given.isdecimal() and len(given) < 9 else 0
    return max(1, min(count or 1, granted or count or 1))
