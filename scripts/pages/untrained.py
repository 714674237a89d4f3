"""Accuracy of the verdict against the untrained encoder: docs/notebook.md."""

from typing import Any

from pages.format import read, table
from widefield.evaluation.paired import PairedDifference

Run = dict[str, Any]


def _runs() -> list[Run]:
    return [run for run in read("untrained")["runs"].values() if "comparison" in run]


def _by_labels(run: Run) -> str:
    return PairedDifference(**run["labels"]).verdict


def _significant(runs: list[Run]) -> list[Run]:
    """Return the runs whose labels differ significantly from the encoder untrained."""
    return [run for run in runs if _by_labels(run) in ("higher", "lower")]


def _judged_better(run: Run) -> bool:
    return bool(run["comparison"]["without_labels"] == "better")


def _is_better(run: Run) -> bool:
    """Return whether the run's linear-probe accuracy is above that of the encoder untrained."""
    return bool(run["labels"]["after"] > run["labels"]["before"])


def _alike(runs: list[Run]) -> int:
    return sum(_judged_better(run) == _is_better(run) for run in runs)


def agreement() -> str:
    """Return in a sentence how often the verdict without labels agrees with labels."""
    runs = _runs()
    refused = [run["refused"] for run in read("untrained")["runs"].values() if "refused" in run]
    sure, said = _significant(runs), [run for run in runs if _judged_better(run)]
    wrong = [run for run in said if _by_labels(run) == "lower"]
    missed = [run for run in sure if _is_better(run) and not _judged_better(run)]
    return (
        f"In {len(sure)} of {len(runs)} runs the linear-probe accuracy differs significantly from "
        f"untrained, and the verdict agrees in {_alike(sure)} of these "
        f"({100 * _alike(sure) / len(sure):.0f} %); higher accuracy without the verdict better: "
        f"{len(missed)}, lower accuracy with it: {len(wrong)}. Of all runs, significant or not, "
        f"{_alike(runs)} agree. "
        f"{len(refused)} runs more were refused: {refused[0].split(' (')[0]}."
    )


def by_encoder() -> str:
    """Return for each encoder and kind of run how often verdict and labels order them alike."""
    sure = _significant(_runs())
    kinds = list(dict.fromkeys(run["name"] for run in _runs()))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in _runs()):
        own = [run for run in sure if run["encoder"] == encoder]
        parts = [*([run for run in own if run["name"] == kind] for kind in kinds), own]
        rows.append([encoder, *(f"{_alike(part)} of {len(part)}" for part in parts)])
    return table(["encoder", *kinds, "all"], rows)
