"""Learning rates of encoders, batches of few images, batches in parts: docs/recipe.md."""

from typing import Any

from pages.format import percent, ratio, read, table, whole

Run = dict[str, Any]


def learning_rates() -> str:
    """Return each encoder's class score at every multiple of the method's rate."""
    runs: list[Run] = list(read("learning_rates")["runs"].values())
    factors = sorted({run["factor"] for run in runs})
    rows = []
    for encoder in dict.fromkeys(run["encoder"] for run in runs):
        own = {run["factor"]: run for run in runs if run["encoder"] == encoder}
        scores = [percent(own[factor]["accuracy"]["class"]) for factor in factors]
        rows.append([encoder, *scores, percent(own[factors[0]]["untrained"]["class"])])
    return table(["encoder", *(f"x {factor:g}" for factor in factors), "untrained"], rows)


def batches() -> str:
    """Return what is read after training with batches of different sizes, by number of images."""
    runs: list[Run] = list(read("batch_size")["runs"].values())
    sizes = sorted({run["batch_size"] for run in runs})
    score = {(r["images"], r["batch_size"]): percent(r["accuracy"]["class"]) for r in runs}
    rows = [
        [whole(images), str(epochs), *(score.get((images, size), "") for size in sizes)]
        for images, epochs in sorted({(r["images"], r["epochs"]) for r in runs})
    ]
    return table(["images", "epochs", *map(str, sizes)], rows)


def parts() -> str:
    """Return what a batch takes that passes through the encoder in parts."""
    rows = [
        [
            "all" if case["micro_batch"] is None else whole(case["micro_batch"]),
            f"{case['peak_bytes'] / 1e9:.2f}",
            ratio(case["times"]),
        ]
        for case in read("micro_batch")["cases"]
    ]
    head = ["examples at a time", "peak of the process, GB", "a step's time over the whole batch's"]
    return table(head, rows)
