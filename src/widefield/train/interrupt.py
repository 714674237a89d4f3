"""Stopping between two steps: Ctrl-C and SIGTERM ask, the loop answers when it is consistent."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

STOP_TIMEOUT = 5.0
"""Seconds that a run which was asked to stop has before another signal acts at once."""


class Stop(Exception):
    """Raised between two steps of a run that was asked to stop."""


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
        """Take over the signals that are not ignored; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            for sign in (signal.SIGINT, signal.SIGTERM):
                # A shell ignores Ctrl-C for what runs in its background; so it stays.
                if signal.getsignal(sign) is not signal.SIG_IGN:
                    self._handlers[sign] = signal.signal(sign, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        self._release()

    def send_signal(self, number: int) -> None:
        """Send signal `number` on to whoever handled it before; 0 is none.

        Raises:
            KeyboardInterrupt: it is SIGINT, and Python's own handler gets it.
        """
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
