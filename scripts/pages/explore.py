"""Recall, precision and cost of `explore`, and the choice of its libraries: docs/explore.md."""

from pages.format import percent, read, table, whole


def planted() -> str:
    """Return precision and recall of what was planted."""
    results = read("explore")["runs"]
    copies = results["CIFAR-10"]["copies"]
    at_least = f"at least {percent(copies['precision_at_least'])}"
    rows = [
        [f"CIFAR-10, copies: {kind}", percent(recall), at_least]
        for kind, recall in copies["recall"].items()
    ]
    for data, result in results.items():
        found = result["labels"]
        agree = percent(found["neighbors_agree"])
        what = f"{data}, wrong labels (kNN accuracy {agree} %)"
        rows.append([what, percent(found["recall"]), percent(found["precision"])])
    return table(["planted", "recall, %", "precision, %"], rows)


def cost() -> str:
    """Return time and size of the page of 50,000 images."""
    result = read("explore")["runs"]["CIFAR-10"]
    return (
        f"The {whole(result['images'])} images took {whole(result['cpu_seconds'])} seconds of "
        f"processor time, from images to page. The page has {result['page_bytes'] / 1e6:.1f} MB."
    )


def maps() -> str:
    """Return time and quality of each map."""
    rows = [
        [
            name,
            whole(row["cpu_seconds"]),
            percent(row["neighbors_kept"]),
            percent(row["nearest_has_class"]),
            percent(row["order_kept"]),
        ]
        for name, row in read("explore_choices")["runs"].items()
        if "order_kept" in row
    ]
    return table(
        [
            "map",
            "processor seconds",
            "neighbors kept (of ten), %",
            "1-NN accuracy (class), %",
            "order of far distances kept, %",
        ],
        rows,
    )


def clusters() -> str:
    """Return time and quality of each way to find clusters."""
    rows = [
        [
            name,
            whole(row["cpu_seconds"]),
            whole(row["clusters"]),
            percent(row["in_none"]),
            f"{row['ami']:.3f}",
        ]
        for name, row in read("explore_choices")["runs"].items()
        if "ami" in row
    ]
    head = ["clusters", "processor seconds", "count", "images in none, %", "AMI with classes"]
    return table(head, rows)


def granularity() -> str:
    """Return the agreement with the classes of each way to find clusters, on several data sets."""
    sets = {
        k: row for k, row in read("clusters").items() if isinstance(row, dict) and "found" in row
    }
    methods = dict.fromkeys(method for row in sets.values() for method in row["found"])
    head = [f"{name} ({row['classes']} classes)" for name, row in sets.items()]
    rows = [
        [method, *(_cell(row["found"].get(method)) for row in sets.values())] for method in methods
    ]
    return table(["clusters", *head], rows)


def _cell(found: dict[str, float] | None) -> str:
    """Return agreement, number and share in none."""
    if found is None:
        return ""
    counts = f"{whole(found['clusters'])}, {percent(found['in_none'])} % in none"
    return f"{found['ami']:.2f}, {found['ari']:.2f} ({counts})"
