"""The number of CPU threads of a training.

The number can change the last bits of sums, so a run keeps the one that it began with.
"""

import torch

from widefield.core.cpus import usable_cpus


def check_threads(threads: int | None) -> None:
    """Check that there are as many cores."""
    most = usable_cpus()
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads is {threads}; expected 1 to {most}, the cores of this process")


def default_threads() -> int:
    """Return the threads of torch, which OMP_NUM_THREADS sets, up to the cores of this process."""
    return min(torch.get_num_threads(), usable_cpus())
