"""Shared by the tests of commands."""

import pytest

from widefield.audits import bounds, planting, tasks


@pytest.fixture(autouse=True)
def _short_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits have ceilings of a few steps, one draw of each floor, and three grades of plants."""
    monkeypatch.setattr(bounds, "CEILING_STEPS", 4)
    monkeypatch.setattr(tasks, "NUM_SEEDS", 1)
    middle = {name: grades[1:4] for name, grades in planting.GRADES.items()}
    monkeypatch.setattr(planting, "GRADES", middle)
    monkeypatch.setattr(planting, "MIDDLE", 1)
