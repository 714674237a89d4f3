"""How often the verdict against the untrained encoder is right: docs/recipe.md."""

from typing import Any

from pages.format import read, table
from widefield.workflows.change import Change

Run = dict[str, Any]

FITTED, TEST = (3, 4), (5,)
"""Seeds whose runs the rule was made on, and those whose runs it had not seen."""


def _runs(seeds: tuple[int, ...]) -> list[Run]:
    return [r for r in read("untrained")["runs"].values() if r["seed"] in seeds and "gain" in r]


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
    refused = [run["refused"] for run in read("untrained")["runs"].values() if "refused" in run]
    return (
        f"{_of('Runs on which the rule was made', FITTED)} {_of('Others', TEST)} "
        f"{len(refused)} runs more were refused: {refused[0].split(' (')[0]}."
    )


def _of(name: str, seeds: tuple[int, ...]) -> str:
    runs = _runs(seeds)
    sure, said = _told(runs), [run for run in runs if _said_better(run)]
    wrong = [run for run in said if Change(**run["labels"]).word == "lost"]
    missed = [run for run in sure if _is_better(run) and not _said_better(run)]
    seeds_there = " and ".join(map(str, sorted({run["seed"] for run in runs})))
    return (
        f"{name}, seed {seeds_there}: of {len(runs)} runs labels surely order {len(sure)}, and "
        f"{_alike(sure)} of these ({100 * _alike(sure) / len(sure):.0f} %) as the verdict does; "
        f"{len(missed)} are better and not shown to be, {len(wrong)} are worse and called better. "
        f"Of all runs, those included whose order labels do not surely tell, {_alike(runs)} are "
        "ordered alike."
    )


def by_encoder() -> str:
    """Return for each encoder and kind of run how often verdict and labels order them alike."""
    sure = _told(_runs(TEST))
    kinds = list(dict.fromkeys(run["name"] for run in _runs(TEST)))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in _runs(TEST)):
        own = [run for run in sure if run["encoder"] == encoder]
        parts = [*([run for run in own if run["name"] == kind] for kind in kinds), own]
        rows.append([encoder, *(f"{_alike(part)} of {len(part)}" for part in parts)])
    return table(["encoder", *kinds, "all"], rows)
