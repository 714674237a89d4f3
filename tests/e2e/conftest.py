"""Shared by the tests of commands."""

import pytest

from widefield.audits import bounds, tasks


@pytest.fixture(autouse=True)
def _short_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits with ceilings of a few steps, and one untrained network of each kind as a floor."""
    monkeypatch.setattr(bounds, "CEILING_STEPS", 4)
    monkeypatch.setattr(tasks, "NUM_SEEDS", 1)
