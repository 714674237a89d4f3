"""The table of the README and those of docs/results.md: methods and baselines in equal time."""

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
DEFAULT = (
    ("dictionary", "view-contrast", "**default: view-contrast, dictionary-tiny**"),
    ("dictionary", "dictionary", "dictionary of patches alone"),
)
"""Study, arm and row of the default encoder and of its floor."""
STUDIES = {("dictionary", "+digits"): "dictionary-digits"}
"""Study and planted feature -> the study that has it."""
FLOORS = ("dictionary", "raw pixels")
"""Arms without pooled and wide features."""
KINDS = {"pooled": "", "wide": ", wide"}
EXPERT = ", expert"
"""Ending of the names of runs with `expert` views."""


SHORT = {
    ("equal-time", "raw pixels"): ("",),
    ("equal-time", "untrained, data statistics"): ("wide",),
    ("equal-time", "SimCLR"): ("pooled", "wide"),
    ("equal-time", "S-DIET"): ("pooled", "wide"),
    ("dictionary", "dictionary"): ("",),
    ("dictionary", "untrained"): ("pooled", "wide"),
    ("dictionary", "view-contrast"): ("pooled", "wide"),
}
"""Study and method -> features: the rows of the README."""
SHORT_NAMES = {
    "untrained, data statistics": "untrained ResNet",
    "SimCLR": "ResNet, SimCLR",
    "S-DIET": "ResNet, S-DIET",
    "dictionary": "dictionary of patches, k-means",
    "untrained": "default encoder, untrained",
    "view-contrast": "**default encoder, default objective**",
}
SHORT_COLUMNS = ("class", "class (+digits)", "digit (+digits)")


def short() -> str:
    """Return the rows and columns of the README."""
    rows = []
    for (study_id, method), kinds in SHORT.items():
        for kind in kinds:
            cells = [
                _cell(study_id, method, *COLUMNS[name], KINDS.get(kind, ""))
                for name in SHORT_COLUMNS
            ]
            rows.append([SHORT_NAMES.get(method, method), kind, *cells])
    return table(["", "features", *SHORT_COLUMNS], rows)


def summary() -> str:
    """Return a row for the pooled and one for the wide features of each method."""
    rows = []
    methods = [("equal-time", name, name) for name in _methods("equal-time")]
    for study_id, method, shown in [*DEFAULT, *methods]:
        if method.endswith(EXPERT):
            continue
        for kind, ending in KINDS.items():
            cells = [_cell(study_id, method, *where, ending) for where in COLUMNS.values()]
            if any(cells):
                rows.append([shown, "" if method in FLOORS else kind, *cells])
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


def dictionary() -> str:
    """Return linear-probe and kNN accuracy of the default encoder and of its controls."""
    measures = {
        "linear": "class",
        "kNN": "class by neighbors",
        "linear, wide": "class, wide",
        "kNN, wide": "class by neighbors, wide",
    }
    rows = [
        [arm, *(_cell("dictionary", arm, "plain", name, "") for name in measures.values())]
        for arm in _methods("dictionary")
    ]
    return table(["", *measures], rows)


def _methods(name: str) -> list[str]:
    return list(dict.fromkeys(arm.partition(" @ ")[0] for arm in study(name).arms))


def _cell(name: str, method: str, plant: str, task: str, ending: str) -> str:
    """Return the mean over seeds and its 95 % interval; nothing if there are no three seeds."""
    name = STUDIES.get((name, plant), name)
    values = [
        seed[arm][measure]
        for seed in by_seed(runs(name)).values()
        if (arm := f"{method} @ {plant}") in seed and (measure := f"{task}{ending}, %") in seed[arm]
    ]
    if len(values) < 3:
        return ""
    mean, half = interval(values)
    return f"{mean:.1f} ± {half:.1f}"
