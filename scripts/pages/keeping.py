"""Views and a decoder that keep a digit: docs/views.md and benchmarks/NOTEBOOK.md."""

from collections.abc import Iterable
from typing import Any

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


def _difference(one: dict[int, float], other: dict[int, float]) -> str:
    gaps = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    if len(gaps) < 3:  # too few for an interval
        return signed(gaps) if len(gaps) == 2 else ""
    return points(mean_interval(gaps), signed=True)
