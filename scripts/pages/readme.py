"""The table of the README: pooled and wide features of every method, in equal time."""

from pages.format import table
from studies.page import runs
from studies.registry import study
from studies.verdict import by_seed, interval

COLUMNS = {
    "class": ("equal-time", "plain", "class"),
    "class (50,000)": ("equal-time-50000", "plain", "class"),
    "class (+digits)": ("equal-time", "+digits", "class"),
    "digit (+digits)": ("equal-time", "+digits", "digits"),
    "class (+shapes)": ("equal-time", "+shapes", "class"),
    "shape (+shapes)": ("equal-time", "+shapes", "shapes"),
    "class (+letters)": ("equal-time", "+letters", "class"),
    "letter (+letters)": ("equal-time", "+letters", "letters"),
}
"""Heading -> study, planted feature and task."""
KINDS = {"pooled": "", "wide": ", wide"}


def summary() -> str:
    """Return a row for the pooled and one for the wide features of each method."""
    rows = []
    for method in _methods():
        for kind, ending in KINDS.items():
            cells = [_cell(method, *where, ending) for where in COLUMNS.values()]
            if any(cells):
                rows.append([method, "" if method == "raw pixels" else kind, *cells])
    return table(["", "features", *COLUMNS], rows)


def _methods() -> list[str]:
    return list(dict.fromkeys(arm.partition(" @ ")[0] for arm in study("equal-time").arms))


def _cell(method: str, name: str, plant: str, task: str, ending: str) -> str:
    """Return the mean over seeds and its 95 % interval; nothing if there are no three seeds."""
    values = [
        seed[arm][measure]
        for seed in by_seed(runs(name)).values()
        if (arm := f"{method} @ {plant}") in seed and (measure := f"{task}{ending}, %") in seed[arm]
    ]
    if len(values) < 3:
        return ""
    mean, half = interval(values)
    return f"{mean:.1f} ± {half:.1f}"
