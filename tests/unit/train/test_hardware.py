"""What is asked of the machine, each time of a fresh process, whose heap no other test has used."""

import subprocess
import sys

import torch

from widefield.core.cpus import available_cpus, cpu_name
from widefield.core.hardware import choose_precision, machine

PROGRAM = """
import ctypes, resource, sys
import torch
from widefield.core.hardware import keep_freed_memory

torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()

MIB = 2**18  # float32
block = torch.ones(64 * MIB)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = torch.ones(64 * MIB - 2**12)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(900 * 2**20))) for _ in range(3)]
end = libc.sbrk(0)
for block in blocks:
    libc.free(block)
print(end - libc.sbrk(0))
"""


def test_memory_that_was_freed_is_used_again() -> None:
    """Of a block of 64 MiB, 2^14 pages, a slightly smaller one reuses nearly all.

    More than two GiB freed at once, as a pair method's backward pass frees them, are kept too: the
    heap ends where it did.
    """
    found = {}
    for arm in ("kept", "given back"):
        command = [sys.executable, "-c", PROGRAM, arm]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found[arm] = [int(number) for number in done.stdout.split()]
    (faults, returned), (faults_without, _) = found.values()
    assert faults < faults_without / 10
    assert returned == 0


def test_a_number_stands_beside_what_made_it() -> None:
    """Two processors that differ in speed or rounding are not given one name."""
    facts = machine(torch.device("cpu"))
    assert facts["cpu"] == f"{cpu_name()}, {available_cpus()} cores"
    assert facts["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert facts["default precision"] == choose_precision("auto", torch.device("cpu"))
    assert facts["torch"] == torch.__version__
