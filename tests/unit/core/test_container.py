"""Limits of a container, from files as Linux has them in either version."""

from pathlib import Path

import pytest

from widefield.core import cpus, hardware
from widefield.core.container import cpu_limit, memory_in_use, memory_limit

UNLIMITED = {"cpu.max": "max 100000\n", "memory.max": "max\n"}
UNLIMITED_1 = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}
LIMITED = {
    "cpu.max": "150000 100000\n",
    "memory.max": "2147483648\n",
    "memory.stat": "anon 500000000\nfile 900000000\n",
}
LIMITED_1 = {
    "cpu/cpu.cfs_quota_us": "150000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.limit_in_bytes": "2147483648\n",
    "memory/memory.stat": "cache 900000000\nrss 1\ntotal_rss 500000000\n",
}


def group(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("files", [LIMITED, LIMITED_1], ids=["version 2", "version 1"])
def test_limits_are_those_of_the_group(tmp_path: Path, files: dict[str, str]) -> None:
    folder = group(tmp_path, files)
    assert cpu_limit(folder) == 2  # one and a half
    assert memory_limit(folder) == 2**31
    assert memory_in_use(folder) == 500_000_000


@pytest.mark.parametrize("files", [UNLIMITED, UNLIMITED_1, {}], ids=["2", "1", "no groups"])
def test_without_limits_there_are_none(tmp_path: Path, files: dict[str, str]) -> None:
    folder = group(tmp_path, files)
    assert cpu_limit(folder) is None
    assert memory_limit(folder) is None
    assert memory_in_use(folder) == 0


def test_a_share_of_a_cpu_is_one(tmp_path: Path) -> None:
    assert cpu_limit(group(tmp_path, {"cpu.max": "20000 100000"})) == 1


def test_threads_and_memory_are_those_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    machine = hardware.host_memory()
    monkeypatch.setattr(cpus, "cpu_limit", lambda: 3)
    monkeypatch.setattr(hardware, "memory_limit", lambda: 10**8)
    monkeypatch.setattr(hardware, "memory_in_use", lambda: 4 * 10**7)
    assert cpus.available_cpus() == 3
    assert hardware.host_memory() == 10**8
    assert hardware.free_host_memory() == 6 * 10**7
    with pytest.raises(ValueError, match=r"this machine has 0\.1 GB"):
        hardware.check_memory(2 * 10**8, "a head")
    monkeypatch.setattr(hardware, "memory_limit", lambda: 2**63)  # unlimited, in version 1
    assert hardware.host_memory() == machine
