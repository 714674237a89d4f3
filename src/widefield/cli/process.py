"""Process settings of a command: standard streams, signals, threads and a memory limit."""

import contextlib
import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import TextIO

from widefield.core.cpus import all_cpus, available_cpus

TIMEOUT = 5.0
"""Seconds for cleanup after a signal, after which another one kills the process."""


def fix_streams() -> None:
    """Make standard streams writable: closed ones discard output, others escape characters.

    Otherwise the next opened file would get the number of a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, this one
        if getattr(sys, name) is None:
            stream = os.fdopen(number, "r" if number == 0 else "w", closefd=False)
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        configure = getattr(output, "reconfigure", None)  # missing in streams of tests
        if configure is not None:
            configure(errors="backslashreplace")


def finish_output() -> None:
    """Flush the output."""
    try:
        sys.stdout.flush()
    except OSError:
        _redirect_to_null(sys.stdout)  # else Python tries again at exit
        raise


def print_error(line: str) -> None:
    """Print a line on stderr, if it is writable."""
    with contextlib.suppress(OSError):
        finish_output()
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _redirect_to_null(sys.stderr)


def _redirect_to_null(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class SignalExit:
    """Ends the command with cleanup at the first SIGINT or SIGTERM.

    Later signals are ignored, because a shell, a scheduler and torchrun may each send one; after
    `TIMEOUT` seconds the next one kills the process.
    """

    def __init__(self) -> None:
        self.signal = 0
        """Number of the signal that came first; 0 for none."""
        self._since = 0.0

    def install(self) -> None:
        """Handle the signals that are not ignored."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            # A shell ignores Ctrl-C for background processes.
            if signal.getsignal(sign) is not signal.SIG_IGN:
                signal.signal(sign, self._handle)

    def ignore_signals(self) -> None:
        """Ignore further signals, while Python shuts down."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, signal.SIG_IGN)

    @property
    def line(self) -> str:
        """Message at the end of the command."""
        return "interrupted" if self.signal == signal.SIGINT else "terminated"

    @property
    def code(self) -> int:
        """Exit code by the convention of shells."""
        return 128 + self.signal

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal == 0:
            self.signal, self._since = number, time.monotonic()
            # Not KeyboardInterrupt: if it passes through code made from a string, as of namedtuple,
            # Python ends by the signal even if the exception is caught.
            raise SystemExit(self.code)
        if time.monotonic() - self._since > TIMEOUT:
            os._exit(self.code)


def limit_threads() -> None:
    """Limit the threads of libraries to the CPUs granted to the process, and let them wait idly.

    Libraries read the variables when they are imported, and otherwise use the CPU affinity. By
    default a thread that waits for others keeps its CPU busy: where other programs run, small steps
    of a training then take 30 times the processor time.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if available_cpus() < all_cpus():
        os.environ.setdefault("OMP_NUM_THREADS", str(available_cpus()))


def limit_memory() -> None:
    """Make allocations beyond the memory fail, which Linux would grant and later kill the process.

    There is no limit on machines with a GPU, whose driver maps more memory than it uses.
    """
    if sys.platform != "linux" or os.path.exists("/dev/nvidiactl"):
        return
    max_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + _swap()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if max_bytes < min(x for x in (soft, hard, max_bytes + 1) if x != resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, hard))


def _swap() -> int:
    try:
        with open("/proc/meminfo") as lines:
            meminfo = dict(line.split(":", 1) for line in lines)
        return int(meminfo["SwapTotal"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
