"""Effect of old rows, and remedies: benchmarks/NOTEBOOK.md."""

from typing import Any

from pages.format import percent, read, table, whole

Run = dict[str, Any]


def _runs() -> list[Run]:
    return list(read("staleness")["runs"].values())


def by_number() -> str:
    """Return the accuracy by method and number of images, at the same number of steps."""
    names = [name for name in dict.fromkeys(r["name"] for r in _runs()) if len(_own(name)) > 1]
    numbers = sorted({run["images"] for run in _runs()})
    rows = [
        [name, *(percent(run["class"]) for run in sorted(_own(name), key=lambda r: r["images"]))]
        for name in names
    ]
    return table(["class, %", *(f"{whole(n)} images" for n in numbers)], rows)


def match() -> str:
    """Return how often a row is the nearest to its example, by the row's age."""
    runs = [run for run in _runs() if "match" in run and len(_own(run["name"])) > 1]
    rows = [
        [
            run["name"],
            whole(run["images"]),
            *(f"{percent(p['match'])} ({whole(p['age'])})" for p in run["match"]),
        ]
        for run in sorted(runs, key=lambda run: (run["name"], run["images"]))
    ]
    groups = ("newest quarter", "second", "third", "oldest quarter")
    return table(["rows of", "images", *groups], rows)


def remedies() -> str:
    """Return the accuracy with each remedy on the most images."""
    most = max(run["images"] for run in _runs())
    rows = [
        [
            run["name"],
            percent(run["class"]),
            percent(sum(p["match"] for p in run["match"]) / 4),
            whole(run["processor_seconds"]),
        ]
        for run in _runs()
        if run["images"] == most and "match" in run
    ]
    return table(["", "class, %", "match, %", "seconds"], rows)


def _own(name: str) -> list[Run]:
    return [run for run in _runs() if run["name"] == name]
