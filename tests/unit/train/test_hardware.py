"""What is asked of the machine."""

import resource

import torch

from widefield.train.hardware import keep_freed_memory


def test_memory_that_was_freed_is_used_again() -> None:
    """A block of 64 MiB, 2^14 pages, is filled a second time without faulting them all in."""
    keep_freed_memory()
    block = torch.ones(2**24)
    del block
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = torch.ones(2**24)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000
    assert len(block) == 2**24
