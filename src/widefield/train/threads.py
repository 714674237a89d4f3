"""The number of CPU threads of a training.

The number can change the last bits of sums, so a run keeps the one that it began with.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from widefield.core.cpus import usable_cpus


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let torch and every BLAS and OpenMP library compute with at most `count` threads.

    Example:
        >>> with limited_threads(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def check_threads(threads: int | None) -> None:
    """Check that there are as many cores.

    Raises:
        ValueError: there are fewer, or `threads` is below 1.
    """
    most = usable_cpus()
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads is {threads}; expected 1 to {most}, the cores of this process")


def default_threads() -> int:
    """Return the threads of torch, which OMP_NUM_THREADS sets, up to the cores of this process."""
    return min(torch.get_num_threads(), usable_cpus())
