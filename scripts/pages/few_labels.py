"""What suggested labels are worth: docs/classify.md."""

from pages.format import points, read, table


def few_labels() -> str:
    """Return accuracies after labels as suggested and by lot."""
    rows = [
        [data, added, *(points(row[how], signed=how == "difference") for how in row)]
        for data, by_count in read("few_labels")["table"].items()
        for added, row in by_count.items()
    ]
    return table(["features", "labels added", "as suggested", "by lot", "difference"], rows)
