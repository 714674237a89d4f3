"""Accuracy of the verdict against the untrained encoder: docs/notebook.md."""

from typing import Any

from pages.format import table
from studies import page
from widefield.probes.paired import PairedDifference

Run = dict[str, Any]


def _runs() -> dict[str, Run]:
    """Return what was measured of each `ENCODER, DATA, RUN`."""
    found = page.runs("untrained")
    return {key.partition(" | ")[0]: run["measured"] for key, run in found.items()}


def _by_labels(run: Run) -> str:
    return PairedDifference(**{k: v for k, v in run.items() if k != "comparison"}).verdict


def _significant(runs: dict[str, Run]) -> dict[str, Run]:
    """Return the runs whose labels differ significantly from the encoder untrained."""
    return {k: run for k, run in runs.items() if _by_labels(run) in ("higher", "lower")}


def _judged_better(run: Run) -> bool:
    return bool(run["comparison"]["without_labels"] == "better")


def _is_better(run: Run) -> bool:
    """Return whether the run's linear-probe accuracy is above that of the encoder untrained."""
    return bool(run["after"] > run["before"])


def _alike(runs: list[Run]) -> int:
    return sum(_judged_better(run) == _is_better(run) for run in runs)


def agreement() -> str:
    """Return in a sentence how often the verdict without labels agrees with labels."""
    runs = _runs()
    sure = list(_significant(runs).values())
    wrong = [r for r in runs.values() if _judged_better(r) and _by_labels(r) == "lower"]
    missed = [r for r in sure if _is_better(r) and not _judged_better(r)]
    return (
        f"In {len(sure)} of {len(runs)} runs the linear-probe accuracy differs significantly from "
        f"untrained, and the verdict agrees in {_alike(sure)} of these "
        f"({100 * _alike(sure) / len(sure):.0f} %); higher accuracy without the verdict better: "
        f"{len(missed)}, lower accuracy with it: {len(wrong)}. Of all runs, significant or not, "
        f"{_alike(list(runs.values()))} agree."
    )


def by_encoder() -> str:
    """Return for each encoder and kind of run how often verdict and labels order them alike."""
    # The name of a run may have a comma too, such as "simsiam, rate x 10".
    split = {key: key.split(", ", 2) for key in _runs()}
    encoders, kinds = (list(dict.fromkeys(s[k] for s in split.values())) for k in (0, 2))
    sure, rows = _significant(_runs()), []
    for encoder in encoders:
        own = {k: run for k, run in sure.items() if split[k][0] == encoder}
        parts = [[run for k, run in own.items() if split[k][2] == kind] for kind in kinds]
        parts.append(list(own.values()))
        rows.append([encoder, *(f"{_alike(part)} of {len(part)}" for part in parts)])
    return table(["encoder", *kinds, "all"], rows)
