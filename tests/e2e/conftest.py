"""Shared by the tests of whole commands."""

import signal
from collections.abc import Iterator

import pytest

from commands import Command


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """What a command does to its process is undone: its signal handler and its allocator."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("widefield.train.hardware.keep_freed_memory", lambda: None)
    yield Command(monkeypatch, capsys)
    signal.signal(signal.SIGTERM, handler)
