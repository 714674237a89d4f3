"""Accuracy of the class by the number of planted bits: benchmarks/NOTEBOOK.md."""

from pages.format import read, table


def bits(task: str) -> str:
    """Return the accuracy of a task of each objective by the number of planted bits."""
    rows = read("bits")[task]
    counts = list(rows[max(rows, key=lambda method: len(rows[method]))])
    return table(
        ["objective", *(f"{count} bits" for count in counts)],
        [
            (method, *(f"{row[c]:.1f}" if c in row else "" for c in counts))
            for method, row in rows.items()
        ],
    )
