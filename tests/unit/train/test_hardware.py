"""What is asked of the machine."""

import ctypes
import resource

import torch

from widefield.train.hardware import keep_freed_memory


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


MIB = 2**18  # float32


def test_memory_that_was_freed_is_used_again() -> None:
    """Of a block of 64 MiB, 2^14 pages, a slightly smaller one reuses nearly all."""
    keep_freed_memory()
    block = torch.ones(64 * MIB)
    del block
    before = faults()
    block = torch.ones(64 * MIB - 2**12)
    assert faults() - before < 1000
    assert len(block) < 64 * MIB


def test_more_than_two_gib_freed_at_once_are_kept_too() -> None:
    """As a pair method's backward pass frees them: the heap ends where it did."""
    keep_freed_memory()
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(900 * 2**20))) for _ in range(3)]
    end = libc.sbrk(0)
    for block in blocks:
        libc.free(block)
    assert libc.sbrk(0) == end
