"""Recall, precision and cost of `explore`: docs/explore.md."""

from pages.format import table, whole
from studies.page import runs


def planted() -> str:
    """Return precision and recall of what was planted."""
    rows = []
    for key, run in runs("explore").items():
        data, found = key.partition(" | ")[0], run["measured"]
        at_least = f"at least {found.get('copies: precision at least, %', 0):.1f}"
        copies = [name for name in found if name.startswith("copies") and "recall" in name]
        for name in copies:
            rows.append(
                [f"{data}, {name.removesuffix(', recall, %')}", _point(found[name]), at_least]
            )
        labels = f"{data}, wrong labels (kNN accuracy {_point(found['neighbors agree, %'])} %)"
        shares = (_point(found[f"wrong labels: {kind}, %"]) for kind in ("recall", "precision"))
        rows.append([labels, *shares])
    copies_first = sorted(rows, key=lambda row: "wrong labels" in row[0])
    return table(["planted", "recall, %", "precision, %"], copies_first)


def _point(percent: float) -> str:
    return f"{percent:.1f}"


def cost() -> str:
    """Return time and size of the page of 50,000 images."""
    result = runs("explore")["CIFAR-10 | seed 0"]["measured"]
    return (
        f"The {whole(result['images'])} images took {whole(result['processor seconds'])} seconds "
        f"of processor time, from images to page. The page has {result['page, bytes'] / 1e6:.1f} "
        "MB."
    )
