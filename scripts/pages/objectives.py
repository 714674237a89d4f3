"""Accuracies of the methods in equal time: docs/methods.md and docs/objectives.md."""

from typing import Any

from pages.format import mean_percent, percent, ratio, read, spread, table
from widefield.methods import METHODS

Run = dict[str, Any]

DATA = {
    "": ("class",),
    "+shapes": ("class", "shapes"),
    "+digits": ("class", "digits"),
    "+letters": ("class", "letters"),
}
"""What is planted on CIFAR-10 -> tasks that are scored."""
PUBLISHED = {
    "": {"class": 84.5 - 86.2},
    "+shapes": {"class": 79.8 - 76.0, "shapes": 100.0 - 100.0},
    "+digits": {"class": 69.3 - 58.8, "digits": 94.3 - 86.7},
    "+letters": {"class": 71.9 - 74.8, "letters": 96.9 - 94.1},
}
"""Feature Dropout (Tamkin et al. 2022), table 1: viewmaker minus expert views, SimCLR, points."""


def _runs() -> list[Run]:
    return list(read("objectives")["runs"].values())


def overview() -> str:
    """Return the mean scores of every method under expert views, and of the floors."""
    rows: dict[str, list[Run]] = {}
    for run in _runs():
        if "data" in run and run["views"] in ("expert", "none"):
            rows.setdefault(run["method"], []).append(run)
    columns = [(f"cifar10{plant}", task) for plant, tasks in DATA.items() for task in tasks]
    order = ["pixels", "random encoder"]
    for name, config in METHODS.items():
        order += [name, *(f"{name}-{variant}" for variant in config.step_variants)]
    cells = [
        [
            method,
            str(runs[0].get("epochs", 0)),
            *(_mean([run for run in runs if run["data"] == data], task) for data, task in columns),
        ]
        for method, runs in sorted(rows.items(), key=lambda item: order.index(item[0]))
    ]
    titles = [f"{task} {data.removeprefix('cifar10')}".rstrip() for data, task in columns]
    return table(["method", "epochs", *titles], cells)


def _mean(runs: list[Run], task: str) -> str:
    return mean_percent([run["accuracy"][task] for run in runs])


def by_data(plant: str) -> str:
    """Return every run on one data set: a row for each method under each views."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for run in _runs():
        if run.get("data") == f"cifar10{plant}":
            rows.setdefault((run["method"], run["views"]), []).append(run)
    cells = [
        [
            method,
            views,
            str(same[0].get("epochs", 0)),
            *(spread([100 * run["accuracy"][task] for run in same]) for task in DATA[plant]),
        ]
        for (method, views), same in rows.items()
    ]
    return table(["method", "views", "epochs", *DATA[plant]], cells)


def learned_views() -> str:
    """Return the paired differences of learned views, and the published ones."""
    methods = ("row-contrast", "simclr")
    cells = [
        [
            f"CIFAR-10 {plant}".rstrip(),
            task,
            *(spread(_gains(method, plant, task), signed=True) for method in methods),
            f"{change:+.1f}",
        ]
        for plant, published in PUBLISHED.items()
        for task, change in published.items()
    ]
    return table(["data", "task", *methods, "published, simclr"], cells)


def _gains(method: str, plant: str, task: str) -> list[float]:
    """Return each seed's score under learned views minus that under expert views."""
    scores: dict[str, dict[int, float]] = {"expert": {}, "viewmaker": {}}
    for run in _runs():
        if (run.get("data"), run.get("method")) == (f"cifar10{plant}", method):
            scores[run["views"]][run["seed"]] = 100 * run["accuracy"][task]
    seeds = sorted(scores["expert"].keys() & scores["viewmaker"].keys())
    return [scores["viewmaker"][seed] - scores["expert"][seed] for seed in seeds]


def costs() -> str:
    """Return the step of each method in this study, as a multiple of the bare encoder's."""
    runs = read("objectives")["runs"]
    rows = [
        [name.removesuffix("/bare"), views, ratio(value)]
        for views in ("expert", "viewmaker")
        for name, value in runs[f"cost | {views}"].items()
    ]
    return table(["method", "views", "step"], rows)


def rates() -> str:
    """Return the learning rates that were compared."""
    rows = [
        [run["method"], f"{run['lr']:g}", *map(percent, run["accuracy"].values())]
        for run in _runs()
        if "lr" in run
    ]
    return table(["method", "learning rate", "class", "digits"], rows)
