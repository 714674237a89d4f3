"""Diagnostics and measured audits: docs/audit.md."""

from typing import Any

from pages.format import bounds, percent, read, table
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


def feature_dropout() -> str:
    """Return how both policies change what an encoder trained with the labels sees."""
    judged = [h for h in read("feature_dropout")["histograms"] if h["judge"] == "supervised"]
    rows = [
        (
            f"{h['task']}, {h['policy']} views",
            f"{h['plain']['mean']:.2f}",
            f"{h['mean']:.2f}",
            _bimodality(h["plain"]),
            _bimodality(h),
        )
        for h in sorted(judged, key=lambda h: (h["task"] == "class", h["policy"]))
    ]
    head = (
        "scored by a supervised encoder",
        *("mean P, plain", "mean P, views"),
        *("bimodality, plain", "bimodality, views"),
    )
    return table(head, rows)


def _bimodality(histogram: dict[str, Any]) -> str:
    return bounds(*(histogram[f"bimodality{end}"] for end in ("", "_low", "_high")))
