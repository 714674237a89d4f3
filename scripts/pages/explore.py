"""Recall, precision and cost of `explore`: docs/explore.md."""

from pages.format import read, table, whole
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


def iterations() -> str:
    """Return cost and quality of maps by their number of iterations."""
    rows = [
        [
            f"{data}, {whole(run['examples'])} images: {schedule}",
            whole(found["cpu_seconds"]),
            *(_point(found[name]) for name in ("kept_of_10", "kept_of_30", "label_accuracy")),
        ]
        for data, run in read("map_cost")["runs"].items()
        for schedule, found in run["maps"].items()
    ]
    head = ["early + late iterations", "processor seconds", "kept of 10, %", "kept of 30, %"]
    return table([*head, "10-NN accuracy, %"], rows)


def commands() -> str:
    """Return processor seconds and memory of commands, before and now."""
    names = {"probe": "`probe` with its floors", "explore": "`explore`"}
    found = read("costs")["runs"]
    rows = [
        [names[name]]
        + [
            whole(found[name][version][measure])
            for measure in ("cpu_seconds", "peak_mb")
            for version in ("before", "now")
        ]
        for name in names
    ]
    units = ("processor seconds", "peak MB")
    return table(["", *(f"{unit}, {when}" for unit in units for when in ("before", "now"))], rows)


def cost() -> str:
    """Return the size of the page of 50,000 images."""
    result = runs("explore")["CIFAR-10 | seed 0"]["measured"]
    return f"The page of {whole(result['images'])} images has {result['page, bytes'] / 1e6:.1f} MB."
