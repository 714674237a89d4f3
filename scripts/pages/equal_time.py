"""The methods at equal time: benchmarks/NOTEBOOK.md."""

import statistics
from collections.abc import Iterable
from typing import Any

from pages.format import mean_interval, percent, points, read, table
from widefield.config.defaults import DEFAULT_METHOD, LONG_METHOD, method_for
from widefield.config.recipe import Recipe

Run = dict[str, Any]
Score = tuple[str, str]
"""Data and task."""

TITLES = {
    "view-contrast": "view-contrast (ours)",
    "row-contrast": "row-contrast (ours)",
    "s-diet": "S-DIET",
    "simclr": "SimCLR",
    "barlow-twins": "Barlow Twins",
    "vicreg": "VICReg",
    "byol": "BYOL",
    "moco": "MoCo",
    "diet": "DIET",
    "untrained": "untrained encoder",
    "pixels": "raw pixels",
}
COLUMNS: dict[str, Score] = {
    "class, %": ("cifar10", "class"),
    "class (+digits), %": ("cifar10+digits", "class"),
    "digit (+digits), %": ("cifar10+digits", "digits"),
    "class (+shapes), %": ("cifar10+shapes", "class"),
    "shape (+shapes), %": ("cifar10+shapes", "shapes"),
}
"""Heading of a column -> data and task."""
LENGTHS = dict.fromkeys(
    ("epochs-1", "epochs-2", "epochs-5", "table", "twice", "epochs-50", "longer"), 5000
) | dict.fromkeys(("all-1", "all-2", "all", "all-longer", "all-longest"), 50_000)
"""Part, from the shortest on -> images."""
LONGER = ("twice", "longer", "all", "all-longer", "all-longest")
"""Parts that have a table of all their methods."""


def _runs(part: str) -> list[Run]:
    return [run for run in read("equal_time")["runs"].values() if run["part"] == part]


def _table_runs() -> list[Run]:
    """Return the table's runs; settings that were chosen once, and are no more, are left out."""
    chosen = read("equal_time")["chosen"]
    return [run for run in _runs("table") if run["name"] == chosen[run["method"]]]


def _scores(runs: Iterable[Run], method: str, column: Score) -> dict[int, float]:
    """Return a method's percentages by seed."""
    data, task = column
    return {
        run["seed"]: 100 * run["accuracy"][task]
        for run in runs
        if (run["method"], run["data"]) == (method, data)
    }


def _methods(runs: list[Run]) -> list[str]:
    """Return the methods that have runs, in the order of `TITLES`."""
    there = {run["method"] for run in runs}
    return [method for method in TITLES if method in there]


def equal_time() -> str:
    """Return every method at equal time, and the baselines."""
    runs, floors = _table_runs(), _runs("floor")
    rows = [
        [TITLES[m], *_about(runs, m), *(_cell(runs, m, c) for c in COLUMNS.values())]
        for m in _methods(runs)
    ]
    rows += [
        [TITLES[m], "", "", *(_cell(floors, m, c) for c in COLUMNS.values())]
        for m in _methods(floors)
    ]
    return table(["", "epochs", "relative time", *COLUMNS], rows)


def _epochs(runs: list[Run], method: str) -> str:
    """Return the epochs of a method; nothing for a baseline."""
    return next((str(run.get("epochs", "")) for run in runs if run["method"] == method), "")


def _about(runs: list[Run], method: str) -> tuple[str, str]:
    """Return epochs, and how many of row-contrast take as long."""
    epochs = _epochs(runs, method)
    return epochs, f"{int(epochs) * _epoch(method) / _epoch(LONG_METHOD):.1f}"


def _epoch(method: str) -> float:
    """Return the median of what an epoch costs, in processor seconds."""
    timed = (run for run in _runs("time") if run["method"] == method)
    return statistics.median(run["processor_seconds_an_epoch"] for run in timed)


def _cell(runs: list[Run], method: str, column: Score) -> str:
    """Return the mean over seeds and its interval, the score of one seed alone, or nothing."""
    scores = list(_scores(runs, method, column).values())
    if len(scores) > 1:
        return points(mean_interval(scores))
    return f"{scores[0]:.1f}" if scores else ""


def differences() -> str:
    """Return the default method minus every other one, seed by seed."""
    runs = _table_runs()
    rows = [
        [f"minus {TITLES[m]}", *(_gap(runs, m, c) for c in COLUMNS.values())]
        for m in _methods(runs)
        if m != DEFAULT_METHOD
    ]
    return table([DEFAULT_METHOD, *COLUMNS], rows)


def _gap(runs: list[Run], method: str, column: Score) -> str:
    ours, other = (_scores(runs, name, column) for name in (DEFAULT_METHOD, method))
    return points(mean_interval([ours[seed] - other[seed] for seed in sorted(ours)]), signed=True)


def winners() -> str:
    """Return in a sentence in how many columns each method has the highest mean."""
    runs = _table_runs()
    leads = dict.fromkeys(_methods(runs), 0)
    for column in COLUMNS.values():
        means = {m: statistics.mean(_scores(runs, m, column).values()) for m in leads}
        leads[max(means, key=means.__getitem__)] += 1
    said = [f"{TITLES[m]} {n}" for m, n in leads.items() if n]
    return f"Highest mean, by number of the {len(COLUMNS)} columns: {', '.join(said)}."


def settings() -> str:
    """Return in a sentence which settings every method has in the table."""
    chosen = {method: _chosen(method) for method in _methods(_table_runs())}
    said = [f"{TITLES[m]}: {name}" for m, name in chosen.items() if name != "default"]
    return f"Settings in the table that differ from the default: {'; '.join(said) or 'none'}."


def longer() -> str:
    """Return the runs of twice and of eight times as many epochs, and the longer on all images."""
    planted = {name: column for name, column in COLUMNS.items() if column[0] != "cifar10"}
    rows = []
    for part in LONGER:
        runs = _runs(part)
        for method in _methods(runs):
            own = [run for run in runs if run["method"] == method]
            name = "" if own[0]["name"] == _chosen(method) else f", {own[0]['name']}"
            cells = [_cell(own, method, column) for column in planted.values()]
            images = f"{LENGTHS[part]:,}"
            rows.append([f"{TITLES[method]}{name}", images, *_about(own, method), *cells])
    return table(["", "images", "epochs", "relative time", *planted], rows)


def lengths() -> str:
    """Return the default beside SimCLR, from the shortest runs to the longest."""
    columns = {name: column for name, column in COLUMNS.items() if "shape" not in name}
    rows = []
    for part, images in LENGTHS.items():
        runs = _table_runs() if part == "table" else _runs(part)
        for ours in _methods([run for run in runs if _is_default(run, images)]):
            epochs, theirs = (_about(runs, method)[0] for method in (ours, "simclr"))
            pairs = (_cell(runs, m, c) for c in columns.values() for m in (ours, "simclr"))
            rows.append([f"{images:,}", theirs, f"{ours}, {epochs}", *pairs])
    heads = (f"{name[:-3]}: {whose}, %" for name in columns for whose in ("default", "SimCLR"))
    return table(["images", "SimCLR epochs", "default, epochs", *heads], rows)


def _is_default(run: Run, images: int) -> bool:
    """Return whether a run has the method that one of its length takes by default."""
    steps = images // Recipe.batch_size
    return run["method"] == method_for(epochs=run["epochs"], init=None, steps_per_epoch=steps)


def _chosen(method: str) -> str:
    """Return the name of a method's settings in the table."""
    name: str = read("equal_time")["chosen"][method]
    return name


def choices() -> str:
    """Return the runs with other settings; a star marks the Pareto front of class and digit."""
    runs = sorted(_runs("choices"), key=lambda run: list(TITLES).index(run["method"]))
    planted = [run for run in runs if run["data"] == "cifar10+digits"]
    plain = {(r["method"], r["name"]): r["accuracy"]["class"] for r in runs if r not in planted}
    rows = [
        [
            f"{TITLES[run['method']]}, {run['name']}",
            *(percent(run["accuracy"][task]) for task in ("class", "digits")),
            percent(plain[key]) if (key := (run["method"], run["name"])) in plain else "",
            "*" if _on_front(run, planted) else "",
        ]
        for run in planted
    ]
    return table(["", "class (+digits), %", "digit (+digits), %", "class, %", "front"], rows)


def _on_front(run: Run, runs: list[Run]) -> bool:
    """Return whether no run has a higher accuracy on both features."""
    c, d = run["accuracy"]["class"], run["accuracy"]["digits"]
    return not any(
        other["accuracy"]["class"] > c and other["accuracy"]["digits"] > d for other in runs
    )
