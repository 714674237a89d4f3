"""Shared by all tests and by the examples in docstrings."""

import importlib
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders of caches, one for each test."""
    parent = tmp_path_factory.mktemp("caches")
    return (parent / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_cache(_caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never read or fill the user's cache."""
    cache = next(_caches)
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(autouse=True, scope="session")
def _no_waiting() -> Iterator[None]:
    """Leave out what takes time and changes no result of a test.

    These are the wait for the disk, which only a power failure would need (`test_power_failure.py`
    has a disk of its own), and most of the trial steps of a plan.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        plan = importlib.import_module("widefield.workflows.plan")
        patch.setattr(plan, "TRIAL_SECONDS", 0.1)
        yield


@pytest.fixture(autouse=True, scope="session")
def _signals_as_in_a_terminal() -> Iterator[None]:
    """A shell that runs the tests in its background ignores Ctrl-C for them and their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
