"""Shared by the tests of whole commands."""

import pytest

from commands import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command does to its process is left out: its allocator and its limit of memory."""
    monkeypatch.setattr("widefield.train.hardware.keep_freed_memory", lambda: None)
    monkeypatch.setattr("widefield.cli.limit_memory", lambda: None)
    return Command(monkeypatch, capsys)
