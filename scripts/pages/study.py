"""Row contrast beside SimCLR: README.md and docs/recipe.md."""

import statistics
from typing import Any

from pages.format import mean_percent, percent, points, read, table, whole

Run = dict[str, Any]

TITLES = {"row-contrast": "row-contrast (ours)", "simclr": "SimCLR"}
PUBLISHED = ("paper", "published loss")
"""Beginnings of the names of runs that were S-DIET's objective."""
PLANTED = {
    "image class, %": ("cifar10+digits", "class"),
    "planted digit, %": ("cifar10+digits", "digits"),
}
COLUMNS = {**PLANTED, "class, nothing planted, %": ("cifar10", "class")}
"""Heading of a column -> data and task."""


def equal_time() -> str:
    """Return both methods at equal time, with their differences and the floors."""
    study = read("recipe_study")
    runs = [
        _method_row(study, "final", "row-contrast", "one view"),
        _method_row(study, "final", "simclr", "two views"),
        _method_row(study, "rate", "simclr", "learning rate 2e-2"),
    ]
    gaps = [
        _gap_row(study, "final", "row-contrast minus SimCLR, seed by seed"),
        _gap_row(study, "rate", "row-contrast minus SimCLR at 2e-2"),
    ]
    floors = [_floor_row("pixels", "pixels"), _floor_row("random encoder", "the encoder untrained")]
    return table(["", *COLUMNS, "processor seconds"], [*runs, *gaps, *floors])


def _gap_row(study: Run, part: str, title: str) -> list[str]:
    gaps = [study[part][f"{data} / {task}"] for data, task in COLUMNS.values()]
    return [title, *(points(gap["row-contrast minus simclr"], signed=True) for gap in gaps), ""]


def _method_row(study: Run, part: str, method: str, remark: str) -> list[str]:
    """Return means over seeds on both data sets, and the mean cost of a run."""
    runs = [r for r in study["runs"].values() if (r["part"], r["method"]) == (part, method)]
    (epochs,) = {run["settings"]["epochs"] for run in runs}
    scores = [points(study[part][f"{data} / {task}"][method]) for data, task in COLUMNS.values()]
    seconds = statistics.mean(run["processor_seconds"] for run in runs)
    return [f"{TITLES[method]}, {epochs} epochs, {remark}", *scores, whole(seconds)]


def _floor_row(method: str, title: str) -> list[str]:
    runs = read("objectives")["runs"].values()
    scores = [
        [
            run["accuracy"][task]
            for run in runs
            if (run.get("method"), run.get("data")) == (method, data)
        ]
        for data, task in COLUMNS.values()
    ]
    return [f"floor: {title}", *map(mean_percent, scores), ""]


def longer() -> str:
    """Return the runs of four and of ten times as many epochs."""
    runs = [run for run in _runs() if run["part"] in ("long", "longer")]
    rows = [
        [
            f"{TITLES[run['method']]}, {run['settings']['epochs']} epochs",
            *(percent(run["accuracy"][task]) for _, task in PLANTED.values()),
        ]
        for run in sorted(runs, key=lambda run: (run["part"] == "longer", run["method"]))
    ]
    return table(["", *PLANTED], rows)


def longest() -> str:
    """Return in a sentence what both methods reach in the end."""
    scores = {run["method"]: run["accuracy"] for run in _runs() if run["part"] == "longer"}
    ours, other = (
        (percent(scores[method]["class"]), percent(scores[method]["digits"]))
        for method in ("row-contrast", "simclr")
    )
    return (
        "With time both learn it, and row-contrast pulls away on the image: after ten times as "
        f"long, one seed, it reads {ours[0]} % of class and {ours[1]} % of digits, SimCLR "
        f"{other[0]} % and {other[1]} %."
    )


def knobs() -> str:
    """Return the runs in which one setting was changed at a time."""
    rows: dict[str, dict[tuple[str, str], str]] = {}
    for run in (run for run in _runs() if run["part"] == "knobs"):
        is_published = run["name"].startswith(PUBLISHED)
        title = "S-DIET" if is_published else TITLES[run["method"]]
        row = rows.setdefault(f"{title}, {run['name']}", {})
        row |= {(run["data"], task): percent(a) for task, a in run["accuracy"].items()}
    by_method = sorted(rows.items(), key=lambda item: item[0].startswith("SimCLR"))
    cells = [[name, *(row.get(c, "") for c in COLUMNS.values())] for name, row in by_method]
    return table(["", *COLUMNS], cells)


def _runs() -> list[Run]:
    return list(read("recipe_study")["runs"].values())
