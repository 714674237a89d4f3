"""Shared by all tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def in_tmp(tmp_path: Path) -> Iterator[Path]:
    """Run in an empty folder."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
