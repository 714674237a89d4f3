"""How often the verdict against the untrained encoder is right: docs/recipe.md."""

from typing import Any

from pages.format import read, table
from widefield.workflows.change import Change

Run = dict[str, Any]


def _runs() -> list[Run]:
    return [run for run in read("untrained")["runs"].values() if "gain" in run]


def _said_better(run: Run) -> bool:
    verdict: str = run["gain"]["verdict"]
    return verdict == "better than untrained"


def _is_better(run: Run) -> bool:
    """Return whether the labels read more off the run than off the encoder untrained."""
    return bool(run["labels"]["after"] > run["labels"]["before"])


def agreement() -> str:
    """Say in how many runs the verdict without labels agrees with their order by labels."""
    runs = _runs()
    said = [run for run in runs if _said_better(run)]
    others = [run for run in runs if not _said_better(run)]
    missed = [run for run in others if Change(**run["labels"]).word == "gained"]
    refused = [run["refused"] for run in read("untrained")["runs"].values() if "refused" in run]
    ended = f" {len(refused)} more were refused: {refused[0].split(' (')[0]}." if refused else ""
    return (
        f"Of {len(runs)} runs {len(said)} were called better, and labels read more off "
        f"{sum(map(_is_better, said))} of these. Of the other {len(others)} labels surely read "
        f"more off {len(missed)}: what is not shown may be there.{ended}"
    )


def by_encoder() -> str:
    """Return for each encoder and kind of run how often verdict and labels order them alike."""
    runs = _runs()
    kinds = list(dict.fromkeys(run["name"] for run in runs))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in runs):
        own = [run for run in runs if run["encoder"] == encoder]
        parts = [[run for run in own if run["name"] == kind] for kind in kinds]
        rows.append([encoder, *map(_alike, parts), _alike(own)])
    return table(["encoder", *kinds, "all"], rows)


def _alike(runs: list[Run]) -> str:
    return f"{sum(_said_better(run) == _is_better(run) for run in runs)} of {len(runs)}"
