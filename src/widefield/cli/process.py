"""What a command does to its process: streams that can be written, signals, a limit of memory."""

import contextlib
import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import TextIO

from widefield.core.cpus import all_cpus, usable_cpus

PATIENCE = 5.0
"""Seconds that a command has to tidy up after a signal, before another one kills it."""


def mend_streams() -> None:
    """Let everything be printed: closed streams swallow it, narrow ones escape characters.

    Without this the next file that is opened would take the place of a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            stream = os.fdopen(number, "r" if number == 0 else "w", closefd=False)
            setattr(sys, name, stream)
    for printed in (sys.stdout, sys.stderr):
        reconfigure = getattr(printed, "reconfigure", None)  # a test's stream may have none
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def finish_output() -> None:
    """Write what is still held back of the output.

    Raises:
        OSError: it cannot be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)  # else Python tries again as it ends, and complains
        raise


def print_error(line: str) -> None:
    """Print a line on stderr, if that can be written."""
    with contextlib.suppress(OSError):
        finish_output()
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Send what is held back for `stream`, and what follows, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class Ending:
    """Ends the command at the first SIGINT or SIGTERM, once, so that it can tidy up.

    Others that follow are ignored, because a shell, a scheduler and torchrun may each send one;
    after `PATIENCE` seconds the next one kills the process.
    """

    def __init__(self) -> None:
        self.signal = 0
        """Number of the signal that came first; 0 for none."""
        self._since = 0.0

    def listen(self) -> None:
        """Take over the signals that are not ignored."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            # A shell ignores Ctrl-C for what runs in its background; so it stays.
            if signal.getsignal(sign) is not signal.SIG_IGN:
                signal.signal(sign, self._end)

    def is_over(self) -> None:
        """Ignore what comes now: the work is done, and Python only shuts down."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, signal.SIG_IGN)

    @property
    def line(self) -> str:
        """The line that the command prints at its end."""
        return "interrupted" if self.signal == signal.SIGINT else "terminated"

    @property
    def code(self) -> int:
        """Exit code, as a shell counts."""
        return 128 + self.signal

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.signal == 0:
            self.signal, self._since = number, time.monotonic()
            # Not KeyboardInterrupt: where that passes through code made of a string, as namedtuple
            # makes it, Python ends by the signal itself, even if somebody caught it.
            raise SystemExit(self.code)
        if time.monotonic() - self._since > PATIENCE:
            os._exit(self.code)


def take_granted_cpus() -> None:
    """Let libraries start as many threads as a scheduler granted, where they would take more.

    They go by the affinity, and read this when they are imported.
    """
    if usable_cpus() < all_cpus():
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))


def limit_memory() -> None:
    """Let an allocation of more memory than there is fail, instead of the process when it is used.

    Linux promises memory freely and kills whoever takes it up. Machines with a GPU are left alone:
    its driver maps far more than it uses.
    """
    if sys.platform != "linux" or os.path.exists("/dev/nvidiactl"):
        return
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + _swap()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if most < min(x for x in (soft, hard, most + 1) if x != resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _swap() -> int:
    """Return the bytes of swap space."""
    try:
        with open("/proc/meminfo") as lines:
            facts = dict(line.split(":", 1) for line in lines)
        return int(facts["SwapTotal"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
