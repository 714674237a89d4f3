"""Stopping between two steps: Ctrl-C and SIGTERM ask, the loop answers when it is consistent."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Stop(Exception):
    """Raised between two steps of a run that was asked to stop."""


class StopRequest:
    """While entered, SIGINT and SIGTERM set a flag instead of breaking a step in the middle.

    A second SIGINT is not held back: it interrupts at once, as usual.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Take over the signals; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            for sign in (signal.SIGINT, signal.SIGTERM):
                self._before[sign] = signal.signal(sign, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        self._release()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._release()

    def _release(self) -> None:
        for sign, handler in self._before.items():
            signal.signal(sign, handler)
        self._before.clear()
