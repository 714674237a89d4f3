"""What a container leaves of the machine's CPUs and memory, by the control groups of Linux.

A container sees its own group at the root of the file system of groups, version 2 or 1.

Source: the kernel's documentation, admin-guide/cgroup-v2.rst and admin-guide/cgroup-v1.
"""

import math
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")


def cpu_limit(group: Path = GROUP) -> int | None:
    """Return how many CPUs a container may keep busy, at least 1; None without a limit."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not quota:
        quota = _text(group / "cpu" / "cpu.cfs_quota_us")
        period = _text(group / "cpu" / "cpu.cfs_period_us")
    # No limit is "max", or -1.
    if not (quota.isdecimal() and period.isdecimal()):
        return None
    return max(1, math.ceil(int(quota) / int(period)))


def memory_limit(group: Path = GROUP) -> int | None:
    """Return the bytes of memory that a container may have; None without a limit."""
    limit = _text(group / "memory.max") or _text(group / "memory" / "memory.limit_in_bytes")
    return int(limit) if limit.isdecimal() else None


def memory_in_use(group: Path = GROUP) -> int:
    """Return the bytes of memory of a container's processes, without files in the page cache."""
    stat = _text(group / "memory.stat") or _text(group / "memory" / "memory.stat")
    fields = dict(line.split(" ", 1) for line in stat.splitlines())
    return int(fields.get("anon") or fields.get("total_rss") or 0)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
