"""Processors that a scheduler or an affinity leaves."""

import os

import pytest

from widefield.core.cpus import usable_cpus


def test_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert usable_cpus() == 3


@pytest.mark.parametrize(("given", "count"), [("2", 2), ("99", 3), ("0", 3), ("two", 3), ("", 3)])
def test_slurm_counts(monkeypatch: pytest.MonkeyPatch, given: str, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    assert usable_cpus() == count
