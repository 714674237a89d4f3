"""Common starts, what they cost, and what runs from weights keep and gain: docs/start.md."""

import statistics
from collections.abc import Iterable

from pages.format import read, table
from studies.page import runs
from studies.photographs import SIDES, THRESHOLDS
from studies.starts import AVERAGES
from studies.verdict import by_seed, interval

_MEASURES = ("class, %", "class by neighbors, %", "R²")
READOUTS = {"pooled": "", "wide": ", wide"}
COUNTS = ("5", "20", "all")
"""Labels a class."""


WAYS = {
    "weights as they are": ("frozen",),
    "weights, adapted": ("adapt", "adapted"),
    "from scratch": ("pretrain", "scratch"),
}
"""What the first hour compares -> the steps that it takes."""


def first_hour() -> str:
    """Return the accuracy on images without a label, and the minutes, of each way to features."""
    found = read("first_hour")
    rows = [
        [
            way,
            f"{found['accuracy'][way]:.1f}",
            f"{sum(found['seconds'][step] for step in steps) / 60:.1f}",
        ]
        for way, steps in WAYS.items()
    ]
    return table(["features", "accuracy, %", "minutes"], rows)


def common_starts() -> str:
    """Return weights, license and the cost of a run of each start."""
    rows = [
        [
            f"`{name}`",
            f"{run['weights'] / 1e6:.1f}",
            f"{run['features']:,}",
            str(run["trained_at"]),
            run["license"],
            f"{run['host_bytes'] / 1e9:.1f}",
            f"{run['seconds_per_1000']:.0f}",
        ]
        for name, run in read("common_starts")["starts"].items()
    ]
    columns = ["start", "million weights", "features", "trained at, pixels", "license"]
    return table([*columns, "memory, GB", "CPU seconds for 1,000 images"], rows)


def averages() -> str:
    """Return class accuracy by probe and neighbors, and R², of each start, rate and average."""
    rows = []
    for arm, found in by_seed(runs("start-averages"))[0].items():
        start, _, rate = arm.partition(", lr x ")
        cells = []
        for share in (0.0, *AVERAGES):
            linear, knn, r2 = (found[f"{share:g}: {measure}"] for measure in _MEASURES)
            cells.append(f"{linear:.1f} / {knn:.1f} ({r2:.2f})")
        rows.append([*start.split(" @ "), rate, *cells])
    return table(["start", "data", "rate", *(f"share {x:g}" for x in (0, *AVERAGES))], rows)


def photographs() -> str:
    """Return the accuracy of frozen features from few and all labels, and what adapting gains."""
    name, rows = "keeping-photographs", []
    for data in ("clothes", "x-rays"):
        for readout, ending in READOUTS.items():
            measures = [f"{ending}, {count} labels, %" for count in COUNTS]
            rows.append([data, readout, *_frozen_and_gains(name, data, measures)])
    return table(["data", "features", *_heads(COUNTS)], rows)


def thresholds() -> str:
    """Return what the average that each threshold chooses gains over the start, in points."""
    seeds, rows = by_seed(runs("start-thresholds")).values(), []
    for data in SIDES:
        for threshold in (f"{t:g}" for t in THRESHOLDS):
            shares = [seed[data][f"{threshold}, share"] for seed in seeds]
            gains = [
                _gain(
                    (
                        seed[data][f"frozen, {count} labels, %"],
                        seed[data][f"{threshold}, {count} labels, %"],
                    )
                    for seed in seeds
                )
                for count in COUNTS
            ]
            rows.append([data, threshold, f"{statistics.mean(shares):.2f}", *gains])
    return table(["data", "threshold", "share", *(f"{count}, gain" for count in COUNTS)], rows)


def pairs() -> str:
    """Return the accuracy of every task of six pairs of start and data, and what was gained."""
    name, rows = "keeping-starts", []
    for arm, found in by_seed(runs(name))[0].items():
        tasks = [m.removeprefix("frozen: ").removesuffix(", %") for m in found if "frozen: " in m]
        for task in (t for t in tasks if ", wide" not in t):
            measures = [f": {task}{ending}, %" for ending in READOUTS.values()]
            rows.append([*arm.split(" @ "), task, *_frozen_and_gains(name, arm, measures)])
    return table(["start", "data", "task", *_heads(READOUTS)], rows)


def _heads(names: Iterable[str]) -> list[str]:
    return [f"{name}, {which}" for name in names for which in ("frozen", "gain")]


def _frozen_and_gains(name: str, arm: str, measures: Iterable[str]) -> list[str]:
    """Return means over seeds, and those of paired differences with their 95 % intervals."""
    seeds, cells = [seed[arm] for seed in by_seed(runs(name)).values()], []
    for measure in measures:
        scores = [(seed[f"frozen{measure}"], seed[f"adapted{measure}"]) for seed in seeds]
        cells += [f"{statistics.mean(frozen for frozen, _ in scores):.1f}", _gain(scores)]
    return cells


def _gain(scores: Iterable[tuple[float, float]]) -> str:
    """Return the mean of paired differences with its 95 % interval, from (frozen, adapted)."""
    mean, half = interval([adapted - frozen for frozen, adapted in scores])
    return f"{round(mean, 1) + 0:+.1f} ± {half:.1f}"
