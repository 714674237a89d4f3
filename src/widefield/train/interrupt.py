"""Stopping a run between two steps at Ctrl-C or SIGTERM."""

import signal
import threading
import time
from types import FrameType
from typing import Any, Self

# Chosen by hand: a shell, a scheduler and torchrun send theirs within seconds, and a user who
# presses Ctrl-C again later does not want to wait for the step.
STOP_TIMEOUT = 5.0
"""Seconds after a first signal before another one takes effect at once."""


class Stop(Exception):
    """Raised between two steps of a run that has got a signal."""


class StopRequest:
    """Context that holds back SIGINT and SIGTERM, so that no step is interrupted.

    The caller saves its state, leaves the context, and calls `send_signal`, which raises the signal
    again. Signals that follow within `STOP_TIMEOUT` seconds are ignored, because a shell, a
    scheduler and torchrun may each send one. A later one takes effect at once.
    """

    def __init__(self) -> None:
        self.signal = 0
        """Number of the signal that came first; 0 for none."""
        self._since = 0.0
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Handle the signals that are not ignored; has no effect outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            for sign in (signal.SIGINT, signal.SIGTERM):
                # A shell ignores Ctrl-C for background processes.
                if signal.getsignal(sign) is not signal.SIG_IGN:
                    self._handlers[sign] = signal.signal(sign, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def send_signal(self, number: int) -> None:
        """Raise signal `number` again for the previous handler; 0 does nothing."""
        if number:
            signal.raise_signal(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > STOP_TIMEOUT:
            self._release()
            signal.raise_signal(number)

    def _release(self) -> None:
        for sign, handler in self._handlers.items():
            signal.signal(sign, handler)
        self._handlers.clear()
