"""Comparisons of rates, weights and batches: benchmarks/NOTEBOOK.md."""

import re
from typing import Any

from pages.format import percent, ratio, read, spread, table, whole

Run = dict[str, Any]


def learning_rates() -> str:
    """Return each encoder's class score at every multiple of the method's rate, by image size."""
    runs = [run for run in read("learning_rates")["runs"].values() if not run["beside"]]
    factors = sorted({run["factor"] for run in runs if run["factor"] is not None})
    score = {(r["encoder"], r["size"], r["factor"]): percent(r["accuracy"]) for r in runs}
    cases = sorted(dict.fromkeys((r["size"], r["encoder"]) for r in runs), key=lambda c: c[0])
    rows = [
        [f"{size}x{size}", encoder, *(score.get((encoder, size, f), "") for f in (*factors, None))]
        for size, encoder in cases
    ]
    return table(["images", "encoder", *(f"x {factor:g}" for factor in factors), "untrained"], rows)


def beside_rates() -> str:
    """Return the accuracy with other settings at the family's rate, on images of 32 pixels."""
    runs: list[Run] = list(read("learning_rates")["runs"].values())
    names = list(dict.fromkeys(run["beside"] for run in runs if run["beside"]))
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in runs if run["beside"]):
        own = {r["beside"]: r for r in runs if r["encoder"] == encoder and r["beside"]}
        factor = next(iter(own.values()))["factor"]
        usual = next(
            run["accuracy"]
            for run in runs
            if (run["encoder"], run["size"], run["factor"], run["beside"])
            == (encoder, 32, factor, "")
        )
        cells = [percent(own[name]["accuracy"]) if name in own else "" for name in names]
        rows.append([encoder, percent(usual), *cells])
    return table(["encoder", "default", *names], rows)


def row_rates() -> str:
    """Return linear-probe and kNN accuracy by the learning rate of rows."""
    runs: list[Run] = list(read("row_rates")["runs"].values())
    rates = list(dict.fromkeys(run["rows"] for run in runs))
    cases = dict.fromkeys((run["encoder"], run["method"]) for run in runs)
    rows = []
    for encoder, method in cases:
        cells = []
        for rate in rates:
            case = (encoder, method, rate)
            own = [r for r in runs if (r["encoder"], r["method"], r["rows"]) == case]
            cells.append(" / ".join(spread([100 * r[k] for r in own]) for k in ("linear", "knn")))
        rows.append([encoder, method, *cells])
    return table(["encoder", "method", *rates], rows)


def weights() -> str:
    """Return class and digit for each weight and scale of view-contrast's terms."""
    runs: list[Run] = list(read("view_contrast")["runs"].values())
    tried = sorted({run["name"] for run in runs}, key=_numbers)
    scores: dict[tuple[int, int, str], list[Run]] = {}
    for run in runs:
        key = (run["images"], run["epochs"], run["name"])
        scores.setdefault(key, []).append(run["accuracy"])

    def cell(images: int, epochs: int, name: str) -> str:
        read_there = scores.get((images, epochs, name), [])
        both = (spread([100 * s[task] for s in read_there]) for task in ("class", "digits"))
        return " / ".join(both) if read_there else ""

    rows = [
        [whole(images), str(epochs), *(cell(images, epochs, name) for name in tried)]
        for images, epochs in sorted({(r["images"], r["epochs"]) for r in runs})
    ]
    return table(["images", "epochs", *tried], rows)


def earlier_batches() -> str:
    """Return the accuracy of view-contrast with earlier batches in its loss."""
    runs: list[Run] = list(read("beyond_the_batch")["runs"].values())
    rows = []
    for images, epochs, name in dict.fromkeys((r["images"], r["epochs"], r["name"]) for r in runs):
        own = [run for run in runs if (run["images"], run["name"]) == (images, name)]
        read_there = (spread([100 * r["accuracy"][t] for r in own]) for t in ("class", "digits"))
        seconds = whole(sum(run["processor_seconds"] for run in own) / len(own))
        rows.append([whole(images), str(epochs), name, *read_there, seconds])
    return table(["images", "epochs", "", "class, %", "digit, %", "seconds"], rows)


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def batches() -> str:
    """Return the accuracy by batch size and number of images."""
    runs: list[Run] = list(read("batch_size")["runs"].values())
    sizes = sorted({run["batch_size"] for run in runs})
    score = {(r["images"], r["batch_size"]): percent(r["accuracy"]["class"]) for r in runs}
    rows = [
        [whole(images), str(epochs), *(score.get((images, size), "") for size in sizes)]
        for images, epochs in sorted({(r["images"], r["epochs"]) for r in runs})
    ]
    return table(["images", "epochs", *map(str, sizes)], rows)


def parts() -> str:
    """Return memory and time by the size of a micro-batch."""
    rows = [
        [
            "all" if case["micro_batch"] is None else whole(case["micro_batch"]),
            f"{case['peak_bytes'] / 1e9:.2f}",
            ratio(case["times"]),
        ]
        for case in read("micro_batch")["cases"]
    ]
    head = ["micro-batch", "peak memory of the process, GB", "relative time of a step"]
    return table(head, rows)
