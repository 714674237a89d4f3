"""Common starts, what they cost, and what runs from weights keep and gain: docs/start.md."""

from pages.format import read, table
from studies.page import runs
from studies.starts import AVERAGES
from studies.verdict import by_seed, interval

_MEASURES = ("class, %", "class by neighbors, %", "R²")
READOUTS = {"pooled": "", "wide": ", wide"}


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
    """Return the accuracy of frozen and adapted features from few and all labels."""
    counts = ("5", "20", "all")
    rows = [
        [
            data,
            readout,
            *(
                _cell("keeping-photographs", data, f"{which}{ending}, {count} labels, %")
                for count in counts
                for which in ("frozen", "adapted")
            ),
        ]
        for data in ("clothes", "x-rays")
        for readout, ending in READOUTS.items()
    ]
    heads = [f"{count}, {which}" for count in counts for which in ("frozen", "adapted")]
    return table(["data", "features", *heads], rows)


def pairs() -> str:
    """Return the accuracy of every task of six pairs of start and data, frozen and adapted."""
    name, rows = "keeping-starts", []
    for arm, found in by_seed(runs(name))[0].items():
        tasks = [m.removeprefix("frozen: ") for m in found if m.startswith("frozen: ")]
        for task in (t for t in tasks if ", wide" not in t):
            named = task.removesuffix(", %")
            cells = [
                _cell(name, arm, f"{which}: {named}{ending}, %")
                for ending in READOUTS.values()
                for which in ("frozen", "adapted")
            ]
            rows.append([*arm.split(" @ "), named, *cells])
    heads = [f"{readout}, {which}" for readout in READOUTS for which in ("frozen", "adapted")]
    return table(["start", "data", "task", *heads], rows)


def _cell(name: str, arm: str, measure: str) -> str:
    """Return the mean over seeds and its 95 % interval."""
    mean, half = interval([seed[arm][measure] for seed in by_seed(runs(name)).values()])
    return f"{mean:.1f}" if half is None else f"{mean:.1f} ± {half:.1f}"
