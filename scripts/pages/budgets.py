"""Short runs, and learning rates of encoders: docs/recipe.md."""

import statistics
from typing import Any

from pages.format import percent, ratio, read, spread, table, whole
from widefield.methods import DEFAULT_METHOD

Run = dict[str, Any]


def budgets() -> str:
    """Return every method at each number of images and of epochs, and the floors."""
    runs: list[Run] = list(read("budgets")["runs"].values())
    keys = dict.fromkeys((r["images"], r["method"], r.get("epochs")) for r in runs)
    trained = sorted(key for key in keys if key[0] is not None)
    rows = [_row(runs, *key) for key in [*trained, *(k for k in keys if k[0] is None)]]
    return table(["images", "method", "epochs", "seconds", "class, %", "seeds"], rows)


def _row(runs: list[Run], images: int | None, method: str, epochs: int | None) -> list[str]:
    found = [
        r for r in runs if (r["images"], r["method"], r.get("epochs")) == (images, method, epochs)
    ]
    scores = [100 * r["accuracy"]["class"] for r in found]
    if images is None:
        return ["", f"floor: {method}", "", "", spread(scores), str(len(found))]
    seconds = statistics.mean(r["processor_seconds"] for r in found)
    return [
        *(whole(images), method, str(epochs), whole(seconds)),
        *(spread(scores), str(len(found))),
    ]


def gaps() -> str:
    """Say how far the default is from the best other, where all have a short and a long run."""
    trained = [run for run in read("budgets")["runs"].values() if run["images"] and not run["seed"]]
    said = []
    for images in sorted({run["images"] for run in trained}):
        scores: dict[str, list[float]] = {}
        for run in sorted((r for r in trained if r["images"] == images), key=_epochs):
            scores.setdefault(run["method"], []).append(100 * run["accuracy"]["class"])
        own = scores.pop(DEFAULT_METHOD)
        if {len(own), *map(len, scores.values())} == {2}:
            gap = [mine - max(others) for mine, *others in zip(own, *scores.values(), strict=True)]
            said.append(f"{gap[0]:+.1f} and {gap[1]:+.1f} points on {whole(images)} images")
    return (
        "The default against the best other method, in the shorter and the longer runs, one seed: "
        f"{'; '.join(said)}."
    )


def largest() -> str:
    """Return in a sentence what each method's longest run on the most images reads."""
    runs: list[Run] = list(read("budgets")["runs"].values())
    most = max(run["images"] or 0 for run in runs)
    longest: dict[str, Run] = {}
    for run in runs:
        if run["images"] == most and run["seed"] == 0:
            longest[run["method"]] = max(longest.get(run["method"], run), run, key=_epochs)
    pixels = next(run for run in runs if run["method"] == "pixels")
    said = [
        f"{m} {percent(r['accuracy']['class'])} % ({_epochs(r)} "
        f"{'epoch' if _epochs(r) == 1 else 'epochs'}, {whole(r['processor_seconds'])} s)"
        for m, r in longest.items()
    ]
    floor = percent(pixels["accuracy"]["class"])
    return (
        f"On all {whole(most)} images, one seed, the class reads: {'; '.join(said)}; "
        f"raw pixels {floor} %."
    )


def _epochs(run: Run) -> int:
    epochs: int = run["epochs"]
    return epochs


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
