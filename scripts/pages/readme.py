"""The tables of the README: pooled and wide features of every method, in equal time."""

from pages.format import table
from studies.page import runs
from studies.registry import study
from studies.verdict import by_seed, interval

COLUMNS = {
    "class": ("plain", "class"),
    "class (+digits)": ("+digits", "class"),
    "digit (+digits)": ("+digits", "digits"),
    "class (+shapes)": ("+shapes", "class"),
    "shape (+shapes)": ("+shapes", "shapes"),
    "class (+letters)": ("+letters", "class"),
    "letter (+letters)": ("+letters", "letters"),
}
"""Heading -> planted feature and task."""
KINDS = {"pooled": "", "wide": ", wide"}
EXPERT = ", expert"
"""Ending of the names of runs with `expert` views."""


def summary() -> str:
    """Return a row for the pooled and one for the wide features of each method."""
    rows = []
    for method in _methods("equal-time"):
        if method.endswith(EXPERT):
            continue
        for kind, ending in KINDS.items():
            cells = [_cell("equal-time", method, *where, ending) for where in COLUMNS.values()]
            if any(cells):
                rows.append([method, "" if method == "raw pixels" else kind, *cells])
    return table(["", "features", *COLUMNS], rows)


def all_images() -> str:
    """Return the class accuracy of each method on all 50,000 images."""
    name = "equal-time-50000"
    cells = {
        method: [_cell(name, method, "plain", "class", ending) for ending in KINDS.values()]
        for method in _methods(name)
    }
    rows = [[method, *values] for method, values in cells.items() if any(values)]
    return table(["", *KINDS], rows)


def _methods(name: str) -> list[str]:
    return list(dict.fromkeys(arm.partition(" @ ")[0] for arm in study(name).arms))


def _cell(name: str, method: str, plant: str, task: str, ending: str) -> str:
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
