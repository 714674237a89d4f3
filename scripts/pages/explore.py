"""What `explore` finds, what it costs, and why its libraries: docs/explore.md."""

from pages.format import percent, read, table, whole


def planted() -> str:
    """Return precision and recall of what was planted."""
    results = read("explore")["runs"]
    copies = results["CIFAR-10"]["copies"]
    at_least = f"{percent(copies['precision_at_least'])} at least"
    rows = [
        [f"CIFAR-10, copies: {kind}", percent(recall), at_least]
        for kind, recall in copies["recall"].items()
    ]
    for data, result in results.items():
        found = result["labels"]
        agree = percent(found["neighbors_agree"])
        what = f"{data}, wrong labels; neighbors name {agree} % of all labels"
        rows.append([what, percent(found["recall"]), percent(found["precision"])])
    return table(["planted", "found, %", "of those found, planted, %"], rows)


def cost() -> str:
    """Return time and size of the page of 50,000 images."""
    result = read("explore")["runs"]["CIFAR-10"]
    return (
        f"The {whole(result['images'])} images took {whole(result['cpu_seconds'])} seconds of "
        f"processor time, from images to page, and the page has "
        f"{result['page_bytes'] / 1e6:.1f} MB."
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
            "of ten neighbors kept, %",
            "nearest has the class, %",
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
    head = ["clusters", "processor seconds", "how many", "images in none, %", "shared with classes"]
    return table(head, rows)
