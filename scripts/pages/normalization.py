"""Effect of normalization and the projector with S-DIET: benchmarks/NOTEBOOK.md."""

from pages.format import points, read, table


def normalization() -> str:
    """Return both arms of each data set, their difference, and the projector's."""
    report = read("normalization")
    rows = [
        [
            data,
            what,
            points(row["normalized"]),
            points(row["not"]),
            points(row["normalized minus not"], signed=True)
            if "normalized minus not" in row
            else "",
        ]
        for data, measured in report["table"].items()
        for what, row in measured.items()
    ]
    return table(["data", "measure", "normalized", "not normalized", "difference"], rows)
