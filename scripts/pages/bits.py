"""Accuracy of the class by the number of planted bits: benchmarks/NOTEBOOK.md."""

from pages.format import read, spread, table


def bits(task: str) -> str:
    """Return the accuracy of a task of each objective by the number of planted bits."""
    cells: dict[str, dict[int, list[float]]] = {}
    for run in read("bits")["runs"].values():
        if task in run["accuracy"]:
            row = cells.setdefault(run["method"], {}).setdefault(run["bits"], [])
            row.append(100 * run["accuracy"][task])
    counts = sorted({count for row in cells.values() for count in row})
    rows = [(method, *(spread(row[c]) for c in counts)) for method, row in cells.items()]
    return table(["objective", *(f"{count} bits" for count in counts)], rows)
