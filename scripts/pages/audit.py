"""Diagnostics and measured audits: docs/audit.md."""

from typing import Any

from pages.format import percent, table
from studies.calibration import summary
from studies.page import runs
from widefield.metrics import DIAGNOSTICS
from widefield.probes.verdicts import SHARE_VERDICTS


def diagnostics() -> str:
    """Return every diagnostic and what it says."""
    rows = [(f"`{name}`", entry.meaning) for name, entry in DIAGNOSTICS.items()]
    return table(("diagnostic", "what it says"), rows)


def calibration() -> str:
    """Return how often each verdict is given to encoders whose truth is known."""
    confusion = _summary()["confusion"]
    found = {verdict for row in confusion.values() for verdict in row}
    names = [verdict for verdict in SHARE_VERDICTS if verdict in found]
    rows = [
        [truth, *(f"{confusion[truth].get(verdict, 0)}" for verdict in names)]
        for truth in SHARE_VERDICTS
        if truth in confusion
    ]
    return table(["truth", *names], rows)


def calibration_summary() -> str:
    """Return the number of encoders and of wrong verdicts in one sentence."""
    result = _summary()
    wrong, known, unclear = len(result["wrong"]), result["known"], result["unclear"]
    return (
        f"Of {known} verdicts {wrong} are wrong ({percent(wrong / known)} %), and {unclear} are "
        "unclear. A learned feature that pixels predict is correctly called easy."
    )


def _summary() -> dict[str, Any]:
    groups = runs("calibration") | runs("calibration-vit")
    return summary({key: run["measured"] for key, run in groups.items()})
