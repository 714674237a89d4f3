"""Diagnostics and measured audits: docs/audit.md."""

from pages.format import percent, read, table
from widefield.evaluation.verdicts import SHARE_VERDICTS
from widefield.metrics import DIAGNOSTICS


def diagnostics() -> str:
    """Return every diagnostic and what it says."""
    rows = [(f"`{name}`", entry.meaning) for name, entry in DIAGNOSTICS.items()]
    return table(("diagnostic", "what it says"), rows)


def calibration() -> str:
    """Return how often each verdict is given to encoders whose truth is known."""
    confusion = read("verdicts")["confusion"]
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
    result = read("verdicts")
    wrong, known, unclear = len(result["wrong"]), result["known"], result["unclear"]
    return (
        f"Of {known} verdicts {wrong} are wrong ({percent(wrong / known)} %), and {unclear} are "
        "unclear. A learned feature that pixels predict is correctly called easy."
    )
