"""What is asked of the machine."""

import resource

import torch

from widefield.train.hardware import keep_freed_memory


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_memory_that_was_freed_is_used_again() -> None:
    """Of a block of 64 MiB, 2^14 pages, a slightly smaller one reuses nearly all."""
    keep_freed_memory()
    block = torch.ones(2**24)
    del block
    before = faults()
    block = torch.ones(2**24 - 2**12)
    assert faults() - before < 1000
    assert len(block) < 2**24
