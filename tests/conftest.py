"""Shared by all tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from commands import Command

hypothesis.settings.register_profile(
    "any machine",
    deadline=None,  # a busy machine is slower
    derandomize=True,  # the same examples at every run
)
hypothesis.settings.load_profile("any machine")

LONG = ("test_hostile_kills.py", "test_hostile_signals.py", "test_hostile_calls.py")
"""Tests of minutes; they begin first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long tests before the others."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture
def in_tmp(tmp_path: Path) -> Iterator[Path]:
    """Run in an empty folder."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Give back the signals that a command took over for its process."""
    before = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    yield
    for sign, handler in before.items():
        signal.signal(sign, handler)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command does to its process is left out: its allocator and its limit of memory."""
    monkeypatch.setattr("widefield.core.hardware.keep_freed_memory", lambda: None)
    monkeypatch.setattr("widefield.cli.limit_memory", lambda: None)
    return Command(monkeypatch, capsys)
