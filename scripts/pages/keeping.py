"""What keeps a digit: docs/views.md, docs/keeping.svg and benchmarks/NOTEBOOK.md."""

import statistics
from collections.abc import Iterable
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pages.drawing import FAINT, INK, style, svg_text
from pages.format import mean_interval, percent, points, read, signed, table, whole

Run = dict[str, Any]
Case = tuple[int, str, float]
"""Images, views, and weight of the decoder."""

COLUMNS = {
    f"{title}, {features}": (features, data, task)
    for features in ("pooled", "wide")
    for title, data, task in (
        ("class (+digits)", "digits", "class"),
        ("digit (+digits)", "digits", "digits"),
        ("class (plain)", "plain", "class"),
    )
}
VIEWS = {
    "expert": "`expert` (8 to 100 %, mirrored)",
    "crop20noflip": "crop 20 to 100 %",
    "crop40": "`moderate+flip` (40 to 100 %, mirrored)",
    "crop40noflip": "`moderate` (40 to 100 %)",
    "gentle": "`gentle` (70 to 100 %)",
}
"""Views in the order of the table -> area of the crop."""
USUAL = ("expert", 0.0)
"""Views and weight that the others are compared with."""


def _cases() -> dict[Case, list[Run]]:
    """Return the runs of each case, in the order of the table."""
    runs: list[Run] = list(read("keeping")["runs"].values())
    cases = {(run["images"], run["views"], run["decoder_weight"]) for run in runs}
    order = sorted(cases, key=lambda case: (case[0], case[2], list(VIEWS).index(case[1])))
    return {
        case: [r for r in runs if (r["images"], r["views"], r["decoder_weight"]) == case]
        for case in order
    }


def _values(runs: Iterable[Run], column: str) -> dict[int, float]:
    """Return seed -> accuracy, %."""
    features, data, task = COLUMNS[column]
    return {run["seed"]: 100 * run[features][task] for run in runs if run["data"] == data}


def keeping() -> str:
    """Return the accuracies with each policy of views, with and without a decoder, of seed 0."""
    rows = []
    for (images, views, weight), runs in _cases().items():
        values = [_values(runs, column).get(0) for column in COLUMNS]
        cells = ["" if value is None else percent(value / 100) for value in values]
        rows.append([whole(images), VIEWS[views], f"{weight:g}" if weight else "", *cells])
    return table(["images", "views", "decoder", *COLUMNS], rows)


def differences() -> str:
    """Return the paired differences from `expert` without a decoder, of several seeds."""
    cases, rows = _cases(), []
    for (images, views, weight), runs in cases.items():
        usual = cases.get((images, *USUAL), [])
        cells = [_difference(_values(runs, name), _values(usual, name)) for name in COLUMNS]
        if (views, weight) != USUAL and any(cells):
            rows.append([whole(images), VIEWS[views], f"{weight:g}" if weight else "", *cells])
    return table(["images", "views", "decoder", *COLUMNS], rows)


def _gaps(one: dict[int, float], other: dict[int, float]) -> list[float]:
    """Return the differences between values of the same seeds."""
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]


def _difference(one: dict[int, float], other: dict[int, float]) -> str:
    gaps = _gaps(one, other)
    if len(gaps) < 3:  # too few for an interval
        return signed(gaps) if len(gaps) == 2 else ""
    return points(mean_interval(gaps), signed=True)


DEFAULT = "default"
"""The objective that the others are compared with."""
COLORS = {
    DEFAULT: "#22262b",
    "moderate": "#0b5fa5",
    "gentle": "#2ea8e0",
    "decoder": "#c2410c",
    "moderate, decoder": "#7c3aed",
    "stage 3": "#15803d",
    "grid rows": "#65a30d",
    "AugSelf": "#be185d",
    "LooC": "#a16207",
    "coupled": "#94a3b8",
    "IFM": "#57534e",
    "S-DIET": "#ef4444",
}
"""Objectives in the order of the table -> color."""


def _objectives() -> dict[str, list[Run]]:
    """Return the runs of each objective, in the order of the table."""
    runs: list[Run] = list(read("keeping_objectives")["runs"].values())
    return {arm: [run for run in runs if run["arm"] == arm] for arm in COLORS}


def objectives() -> str:
    """Return the accuracies of each objective: one seed, or the mean of three."""
    rows = []
    for arm, runs in _objectives().items():
        values = [list(_values(runs, column).values()) for column in COLUMNS]
        seconds = statistics.mean(run["processor_seconds"] for run in runs)
        cells = [_accuracy(one) for one in values]
        rows.append([arm, str(runs[0]["epochs"]), whole(seconds), *cells])
    return table(["", "epochs", "seconds", *COLUMNS], rows)


def _accuracy(values: list[float]) -> str:
    if len(values) == 3:
        return points(mean_interval(values))
    return f"{values[0]:.1f}" if values else ""


def objective_differences() -> str:
    """Return the differences from the default, paired by seed, of objectives with three seeds."""
    arms = _objectives()
    rows = []
    for arm, runs in arms.items():
        gaps = [_difference(_values(runs, c), _values(arms[DEFAULT], c)) for c in COLUMNS]
        if arm != DEFAULT and any(gaps):
            rows.append([arm, *gaps])
    return table(["", *COLUMNS], rows)


def svg() -> str:
    """Draw the difference from the default in the class against that in the digit."""
    with rc_context(style("keeping")):
        figure = Figure(figsize=(9.6, 4.6))
        figure.set_layout_engine("constrained", w_pad=0.1)
        axes = figure.subplots(1, 2)
        for panel, features in zip(axes, ("pooled", "wide"), strict=True):
            _panel(panel, features)
        axes[0].set_ylabel("digit, points above the default")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        return svg_text(figure)


def _panel(axes: Axes, features: str) -> None:
    """Draw a dot for each objective, hollow if it has one seed, and the front of all."""
    axes.set_title(features, fontsize=10, fontweight="bold")
    axes.set_xlabel("class, points above the default")
    axes.grid(color="#e5e8eb", linewidth=0.8)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    places = {}
    for arm, runs in _objectives().items():
        x, y, seeds = _place(runs, features)
        places[arm] = (x, y)
        color = COLORS[arm]
        face = color if seeds == 3 else "white"
        axes.plot(x, y, "o", color=color, markerfacecolor=face, markersize=8, label=arm, zorder=3)
    front = _front(list(places.values()))
    axes.step(*zip(*front, strict=True), where="pre", color=FAINT, linestyle=":", zorder=1)
    axes.axhline(0, color=INK, linewidth=0.6, zorder=1)
    axes.axvline(0, color=INK, linewidth=0.6, zorder=1)


def _place(runs: list[Run], features: str) -> tuple[float, float, int]:
    """Return the mean differences in class and digit, paired by seed, and the number of seeds."""
    default = _objectives()[DEFAULT]
    columns = (f"{task} (+digits), {features}" for task in ("class", "digit"))
    x, y = (_gaps(_values(runs, column), _values(default, column)) for column in columns)
    return statistics.mean(x), statistics.mean(y), len(x)


def _front(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places that no other one exceeds in both, from left to right."""
    return sorted(
        (x, y)
        for x, y in places
        if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in places)
    )
