"""Errors after suggested labels, labels by lot and the least sure ones: docs/classify.md."""

from pages.format import read, table

_WAYS = ("suggested", "by lot", "least sure")


def suggested() -> str:
    """Return the errors after each way to add labels, and the differences from by lot."""
    rows = [
        [name, ", ".join(map(str, row["sizes"])), error, *_cells(row, suffix)]
        for name, row in read("suggest")["table"].items()
        for error, suffix in (("all images", ""), ("mean of classes", ", mean of classes"))
    ]
    head = ["images", "sizes of the classes", "error of", "suggested", "by lot", "least certain"]
    return table([*head, "suggested minus by lot"], rows)


def _cells(row: dict[str, list[float]], suffix: str) -> list[str]:
    low, half = row[f"suggested{suffix} minus by lot"]
    return [*(f"{row[way + suffix]:.1f}" for way in _WAYS), f"{low:+.1f} ± {half:.1f}"]
