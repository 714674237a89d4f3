"""Shared by the tests of commands."""

import pytest

from widefield.audits import bounds, planting, tasks
from widefield.encoders.untrained import untrained_starts
from widefield.inference import features


@pytest.fixture(autouse=True)
def _short_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits have ceilings of a few steps, and two grades of plants.

    Floors are of one draw and initialization of the untrained network.
    """
    monkeypatch.setattr(
        features,
        "untrained_starts",
        lambda *network, **seed: untrained_starts(*network, **seed)[:1],
    )
    monkeypatch.setattr(bounds, "CEILING_STEPS", 4)
    monkeypatch.setattr(tasks, "NUM_SEEDS", 1)
    middle = {name: grades[2:4] for name, grades in planting.GRADES.items()}
    monkeypatch.setattr(planting, "GRADES", middle)
    monkeypatch.setattr(planting, "MIDDLE", 0)
