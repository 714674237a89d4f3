"""Accuracies with suggested and with random labels: docs/classify.md."""

from pages.format import points, read, table


def few_labels() -> str:
    """Return accuracies after suggested and after random labels."""
    rows = [
        [data, added, *(points(row[how], signed=how == "difference") for how in row)]
        for data, by_count in read("few_labels")["table"].items()
        for added, row in by_count.items()
    ]
    return table(["features", "labels added", "suggested", "random", "difference"], rows)
