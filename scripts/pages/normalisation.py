"""What normalisation and the projector do for S-DIET: docs/recipe.md."""

from pages.format import points, read, table


def normalisation() -> str:
    """Return both arms of each data set, their difference, and the projector's."""
    report = read("normalisation")
    rows = [
        [
            data,
            what,
            points(row["normalised"]),
            points(row["not"]),
            points(row["normalised minus not"], signed=True)
            if "normalised minus not" in row
            else "",
        ]
        for data, measured in report["table"].items()
        for what, row in measured.items()
    ]
    return table(["data", "what", "normalised", "not normalised", "difference"], rows)
