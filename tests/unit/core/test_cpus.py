"""Processors that a scheduler or an affinity leaves."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import widefield
from widefield.core.cpus import available_cpus, cpu_name


def test_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert available_cpus() == 3


@pytest.mark.parametrize(("given", "count"), [("2", 2), ("99", 3), ("0", 3), ("two", 3), ("", 3)])
def test_slurm_counts(monkeypatch: pytest.MonkeyPatch, given: str, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    assert available_cpus() == count


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: Some CPU 7 @ 2.1GHz \nmodel name\t: Other\n",
            "Some CPU 7 @ 2.1GHz",
        ),
        ("processor\t: 0\nBogoMIPS\t: 48.00\n", "anvil"),
        (None, "anvil"),
    ],
    ids=["named", "not named", "no such file"],
)
def test_the_processor_has_the_name_that_the_system_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: str | None, name: str
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "anvil")
    file = tmp_path / "cpuinfo"
    if info is not None:
        file.write_text(info)
    assert cpu_name(file) == name


THREADS = """
import os
os.sched_getaffinity = lambda pid: set(range(8))
from widefield.cli.process import limit_threads
limit_threads()
print(os.environ.get("OMP_NUM_THREADS"), os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize(
    ("slurm", "own", "count", "policy"),
    [("3", None, "3", None), (None, None, "None", None), ("3", "5", "5", "ACTIVE")],
)
def test_a_command_starts_as_many_threads_as_slurm_granted(
    slurm: str | None, own: str | None, count: str, policy: str | None
) -> None:
    """Without a grant libraries go by the affinity; what the user says stays."""
    given = {"SLURM_CPUS_PER_TASK": slurm, "OMP_NUM_THREADS": own, "OMP_WAIT_POLICY": policy}
    env = {name: value for name, value in os.environ.items() if name not in given}
    env |= {name: value for name, value in given.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, env=env)
    assert done.stdout == f"{count} {policy or 'PASSIVE'}\n", done.stderr


def test_nothing_else_counts_processors() -> None:
    """Every file of the package goes by this count."""
    sources = Path(widefield.__file__).parent.rglob("*.py")
    counting = [path.name for path in sources if "cpu_count" in path.read_text()]
    assert counting == ["cpus.py"]
