"""How often the verdict against the untrained encoder is right: docs/recipe.md."""

from typing import Any

from pages.format import read, table
from widefield.evaluation.paired import Change

Run = dict[str, Any]


def _runs() -> list[Run]:
    return [run for run in read("untrained")["runs"].values() if "gain" in run]


def _told(runs: list[Run]) -> list[Run]:
    """Return the runs whose order against the encoder untrained labels tell surely."""
    return [run for run in runs if Change(**run["labels"]).word]


def _said_better(run: Run) -> bool:
    verdict: str = run["gain"]["verdict"]
    return verdict == "better than untrained"


def _is_better(run: Run) -> bool:
    """Return whether the labels read more off the run than off the encoder untrained."""
    return bool(run["labels"]["after"] > run["labels"]["before"])


def _alike(runs: list[Run]) -> int:
    return sum(_said_better(run) == _is_better(run) for run in runs)


def agreement() -> str:
    """Say in how many runs the verdict without labels agrees with their order by labels."""
    runs = _runs()
    refused = [run["refused"] for run in read("untrained")["runs"].values() if "refused" in run]
    sure, said = _told(runs), [run for run in runs if _said_better(run)]
    wrong = [run for run in said if Change(**run["labels"]).word == "lost"]
    missed = [run for run in sure if _is_better(run) and not _said_better(run)]
    return (
        f"Of {len(runs)} runs labels surely order {len(sure)}, and {_alike(sure)} of these "
        f"({100 * _alike(sure) / len(sure):.0f} %) as the verdict does; better and not shown to "
        f"be: {len(missed)}, worse and called better: {len(wrong)}. Of all runs, those "
        f"included whose order labels do not surely tell, {_alike(runs)} are ordered alike. "
        f"{len(refused)} runs more were refused: {refused[0].split(' (')[0]}."
    )


def by_encoder() -> str:
    """Return for each encoder and kind of run how often verdict and labels order them alike."""
    sure = _told(_runs())
    kinds = list(dict.fromkeys(run["name"] for run in _runs()))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in _runs()):
        own = [run for run in sure if run["encoder"] == encoder]
        parts = [*([run for run in own if run["name"] == kind] for kind in kinds), own]
        rows.append([encoder, *(f"{_alike(part)} of {len(part)}" for part in parts)])
    return table(["encoder", *kinds, "all"], rows)
