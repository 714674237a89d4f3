"""Accuracy of the verdict against the untrained encoder: benchmarks/NOTEBOOK.md."""

from typing import Any

from pages.format import read, table
from widefield.evaluation.paired import Change

Run = dict[str, Any]


def _runs() -> list[Run]:
    return [run for run in read("untrained")["runs"].values() if "gain" in run]


def _significant(runs: list[Run]) -> list[Run]:
    """Return the runs that labels show to differ significantly from the untrained encoder."""
    return [run for run in runs if Change(**run["labels"]).word]


def _called_better(run: Run) -> bool:
    verdict: str = run["gain"]["verdict"]
    return verdict == "better than untrained"


def _is_better(run: Run) -> bool:
    """Return whether the accuracy of the run is above that of the untrained encoder."""
    return bool(run["labels"]["after"] > run["labels"]["before"])


def _agreeing(runs: list[Run]) -> int:
    return sum(_called_better(run) == _is_better(run) for run in runs)


def agreement() -> str:
    """Return in a sentence how often the verdict without labels agrees with labels."""
    runs = _runs()
    refused = [run["refused"] for run in read("untrained")["runs"].values() if "refused" in run]
    sure, called = _significant(runs), [run for run in runs if _called_better(run)]
    wrong = [run for run in called if Change(**run["labels"]).word == "lost"]
    missed = [run for run in sure if _is_better(run) and not _called_better(run)]
    return (
        f"By labels, {len(sure)} of {len(runs)} runs differ significantly from the untrained "
        f"encoder. The verdict agrees in {_agreeing(sure)} of these "
        f"({100 * _agreeing(sure) / len(sure):.0f} %). False negatives: {len(missed)}; "
        f"significantly worse but called better: {len(wrong)}. Over all runs, including those "
        f"without a significant difference, {_agreeing(runs)} agree. {len(refused)} more runs were "
        f"refused: {refused[0].split(' (')[0]}."
    )


def by_encoder() -> str:
    """Return how often verdict and labels agree, by encoder and kind of run."""
    sure = _significant(_runs())
    kinds = list(dict.fromkeys(run["name"] for run in _runs()))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in _runs()):
        own = [run for run in sure if run["encoder"] == encoder]
        parts = [*([run for run in own if run["name"] == kind] for kind in kinds), own]
        rows.append([encoder, *(f"{_agreeing(part)} of {len(part)}" for part in parts)])
    return table(["encoder", *kinds, "all"], rows)
