"""How many processors this process may use."""

import os


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
