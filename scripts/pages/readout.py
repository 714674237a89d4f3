"""The wide readout beside pooled features: README.md and benchmarks/NOTEBOOK.md."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pages.equal_time import TITLES as METHOD_TITLES
from pages.format import mean_interval, points, read, table

Run = dict[str, Any]
Score = tuple[str, str]
"""Planted feature and task."""
ALL = "plain-50000"
"""All training images, without a planted feature."""
COLUMNS: dict[str, Score] = {
    "class": ("plain", "class"),
    "class (50,000)": (ALL, "class"),
    "class (+digits)": ("digits", "class"),
    "digit (+digits)": ("digits", "digits"),
    "class (+shapes)": ("shapes", "class"),
    "shape (+shapes)": ("shapes", "shapes"),
    "class (+letters)": ("letters", "class"),
    "letter (+letters)": ("letters", "letters"),
}
"""Heading of a column -> what it shows; README has those that the default was measured on."""
OURS = "view-contrast"
TITLES = {
    OURS: METHOD_TITLES[OURS],
    f"{OURS}, moderate": f"{OURS}, `--views moderate`",
} | METHOD_TITLES
"""Method -> its name in a table, in order."""
BASELINES = ("untrained", "pixels")
KINDS = ("pooled", "wide")
CLASS_COLUMNS = [name for name in COLUMNS if name.startswith("class")]
SEEDS = 3
CLASS_LIMIT, FLOOR_LIMIT = -1.0, -2.0
"""Points that wide features may have less than pooled ones on the class, and than the floor."""


def summary() -> str:
    """Return the README's table: pooled and wide features of each method, and the floors."""
    runs = list(read("readout")["runs"].values())
    there = {run["method"] for run in runs}
    columns = {
        name: column
        for name, column in COLUMNS.items()
        if len(_scores(runs, OURS, "wide", column)) == SEEDS
    }
    rows = [
        [TITLES[method], kind, *(_cell(runs, method, kind, column) for column in columns.values())]
        for method in TITLES
        if method in there and method != "pixels"
        for kind in KINDS
    ]
    floor = [_cell(runs, "pixels", "pixels", column) for column in columns.values()]
    return table(["", "features", *columns], [*rows, [TITLES["pixels"], "", *floor]])


def _cell(runs: Iterable[Run], method: str, kind: str, column: Score) -> str:
    """Return the mean over seeds and its interval; the mean alone while seeds are missing."""
    return _shown(list(_scores(runs, method, kind, column).values()))


def _shown(scores: Sequence[float], *, signed: bool = False) -> str:
    if len(scores) == SEEDS:
        return points(mean_interval(scores), signed=signed)
    return f"{statistics.mean(scores):{'+' if signed else ''}.1f}" if scores else ""


def _scores(runs: Iterable[Run], method: str, kind: str, column: Score) -> dict[int, float]:
    """Return percentages by seed; probes of the baselines are those of the plain images."""
    plant, task = column
    if plant == ALL and method in BASELINES:
        plant = "plain"
    return {
        run["seed"]: 100 * run["accuracy"][kind][task]
        for run in runs
        if (run["method"], run["plant"]) == (method, plant)
    }


def gains() -> str:
    """Return the class of wide features of each method minus that of the untrained encoder."""
    runs = list(read("readout")["runs"].values())
    there = {run["method"] for run in runs} - {"pixels", "untrained"}
    rows = []
    for method in (name for name in TITLES if name in there):
        cells = []
        for column in (COLUMNS[name] for name in CLASS_COLUMNS):
            trained, untrained = (
                _scores(runs, name, "wide", column) for name in (method, "untrained")
            )
            gaps = [trained[seed] - untrained[seed] for seed in trained if seed in untrained]
            cells.append(_shown(gaps, signed=True))
        rows.append([TITLES[method], *cells])
    return table(["", *CLASS_COLUMNS], rows)


def floors() -> str:
    """Return pooled, wide and control features beside the best floor of each task."""
    rows = [
        [
            row["data"],
            row["task"],
            f"{row['encoder']}, {row['start']}",
            *(f"{row[kind]:.1f}" for kind in ("pooled", "wide", "control", "floor")),
            row["best"],
            f"{row['wide'] - row['floor']:+.1f}",
        ]
        for row in _floor_rows()
    ]
    heads = ("pooled", "wide", "control", "floor", "which", "wide − floor")
    return table(["data", "task", "encoder", *heads], rows)


def criteria() -> str:
    """Return in sentences whether the criteria are met, and by how much not."""
    rows = _floor_rows()
    below = _misses(rows, lambda row: row["wide"] - row["floor"], FLOOR_LIMIT)
    classes = [row for row in rows if row["task"] == "class"]
    lost = _misses(classes, lambda row: row["wide"] - row["pooled"], CLASS_LIMIT)
    control = sum(row["control"] - row["floor"] < FLOOR_LIMIT for row in rows)
    return (
        f"Wide features are more than 2 points below the floor in {below} of {len(rows)} rows, "
        f"and their class more than 1 point below that of pooled features in {lost} of "
        f"{len(classes)}. The control is more than 2 points below the floor in {control}."
    )


def _misses(rows: list[Run], gap: Callable[[Run], float], limit: float) -> int:
    return sum(gap(row) < limit for row in rows)


def _floor_rows() -> list[Run]:
    """Return the means over seeds of each data set, task and encoder, with the best floor."""
    runs = list(read("readout_floors")["runs"].values())
    rows = []
    trained = [run for run in runs if run["start"] not in ("pixels", "untrained")]
    names = dict.fromkeys((r["data"], r["encoder"], r["start"]) for r in trained)
    for data, encoder, start in names:
        own = _by_seed(runs, data, encoder, start)
        untrained = _by_seed(runs, data, encoder, "untrained")
        pixels = _by_seed(runs, data, "none", "pixels")
        seeds = own.keys() & untrained.keys() & pixels.keys()
        for task in next(iter(own.values()))["pooled"] if seeds else ():
            found = {
                "pixels": _mean(pixels, seeds, "pixels", task),
                "majority class": _mean(pixels, seeds, "majority", task),
                "untrained, pooled": _mean(untrained, seeds, "pooled", task),
                "untrained, wide": _mean(untrained, seeds, "wide", task),
            }
            best = max(found, key=found.__getitem__)
            scores = {kind: _mean(own, seeds, kind, task) for kind in (*KINDS, "control")}
            about = {"data": data, "task": task, "encoder": encoder, "start": start}
            rows.append({**about, **scores, "floor": found[best], "best": best})
    return rows


def _by_seed(runs: Iterable[Run], data: str, encoder: str, start: str) -> dict[int, Any]:
    """Return the accuracies by seed."""
    key = (data, encoder, start)
    return {
        run["seed"]: run["accuracy"]
        for run in runs
        if (run["data"], run["encoder"], run["start"]) == key
    }


def _mean(by_seed: dict[int, Any], seeds: Iterable[int], kind: str, task: str) -> float:
    return 100 * statistics.mean(by_seed[seed][kind][task] for seed in seeds)


MEASURES = ("few labels", "neighbors", "clusters")


def few() -> str:
    """Return accuracies with five labels a class, and the agreement of neighbors and clusters."""
    runs = list(read("readout_few")["runs"].values())
    rows = []
    for data, start in dict.fromkeys((run["data"], run["start"]) for run in runs):
        own = [run["accuracy"] for run in runs if (run["data"], run["start"]) == (data, start)]
        for task in own[0]["pooled"]:
            cells = [
                _shown([100 * accuracy[kind][task][measure] for accuracy in own])
                for measure in MEASURES
                for kind in ("pixels", *KINDS)
            ]
            rows.append([data, task, start, *cells])
    heads = (f"{measure}: {kind}" for measure in MEASURES for kind in ("pixels", *KINDS))
    return table(["data", "task", "encoder", *heads], rows)


REDUCTIONS = ("pooled", "residual PCA", "residuals", "PCA", "random", "group lasso", "all")


def reductions() -> str:
    """Return the accuracy of each reduction of the sources."""
    runs = list(read("readout_reductions")["runs"].values())
    rows = []
    for data, start in dict.fromkeys((run["data"], run["start"]) for run in runs):
        own = [run["accuracy"] for run in runs if (run["data"], run["start"]) == (data, start)]
        for task in own[0]["pooled"]:
            cells = (_shown([100 * a[name][task] for a in own]) for name in REDUCTIONS)
            rows.append([data, task, start, *cells])
    return table(["data", "task", "encoder", *REDUCTIONS], rows)
