"""Starting from a pretrained encoder: docs/start.md, docs/classify.md."""

from collections import Counter
from typing import Any

from pages.format import mean_interval, percent, points, read, spread, table, whole
from widefield.evaluation.paired import PairedDifference
from widefield.evaluation.verdicts import judge_with_labels

Run = dict[str, Any]
Cell = tuple[str, str, int]
"""Start, target and how many images of it."""

STARTS = {
    "labels": "labels, CIFAR-100",
    "s-diet": "S-DIET, CIFAR-100",
    "random": "random weights",
}
TARGETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "photos": "photos"}


def start_table() -> str:
    """Return the accuracies before and after, those from scratch, and the verdicts."""
    runs = _runs()
    cells = sorted(runs, key=lambda c: (list(STARTS).index(c[0]), list(TARGETS).index(c[1]), c[2]))
    head = ["start", "target", "images", "frozen, %", "adapted, %", "adapted − frozen"]
    head += ["from scratch, %", "verdict", "without labels"]
    return table(head, [_row(runs, cell) for cell in cells])


def choices() -> str:
    """Return the settings that were tried."""
    tried = [run for run in read("start_table")["runs"].values() if run["part"] == "choices"]
    runs = sorted(tried, key=lambda run: list(TARGETS).index(run["target"]))
    rows = [
        [
            TARGETS[run["target"]],
            run["name"],
            percent(run["frozen"]),
            percent(run["adapted"]),
            whole(run["processor_seconds"]),
        ]
        for run in runs
    ]
    return table(["target", "settings", "frozen, %", "adapted, %", "CPU seconds"], rows)


def audits() -> str:
    """Return the accuracies of audits before and after, and which differ significantly."""
    runs = [run for run in read("start_table")["runs"].values() if run["part"] == "audits"]
    rows = [
        [TARGETS[run["target"]], name, percent(t["before"]), percent(t["after"]), t["difference"]]
        for run in runs
        for name, t in run["tasks"].items()
    ]
    return table(["target", "feature", "start, %", "adapted, %", "difference"], rows)


def planted() -> str:
    """Return in a sentence which planted features differ significantly, in how many runs."""
    counts: Counter[tuple[str, str]] = Counter()
    runs = [run for cell in _runs().values() for run in cell.values() if run["start"] != "random"]
    for run in runs:
        for name, score in run["comparison"]["planted"].items():
            counts[name, PairedDifference(**score).verdict] += 1
    parts = [
        f"{name} {word} in {n}"
        for (name, word), n in sorted(counts.items())
        if word in ("higher", "lower")
    ]
    return f"Significant differences of planted features: {', '.join(parts) or 'none'}."


def balance() -> str:
    """Return in a sentence how often adapting gained and lost, and the verdicts of the losses."""
    runs = [r for c, cell in _runs().items() for r in cell.values() if c[0] != "random"]
    gaps = [(100 * (run["adapted"] - run["frozen"]), _verdict(run)) for run in runs]
    lost = [verdict for gap, verdict in gaps if gap < -1]
    gained = sum(gap >= 2 for gap, _ in gaps)
    return (
        f"Of {len(runs)} runs that went on from a start, {gained} ended 2 points or more above it "
        f"and {len(lost)} more than a point below; of these {lost.count('worse')} were judged "
        f"worse and {lost.count('inconclusive')} inconclusive."
    )


def _runs() -> dict[Cell, dict[int, Run]]:
    """Return the runs of each cell by their seed."""
    runs: dict[Cell, dict[int, Run]] = {}
    for run in read("start_table")["runs"].values():
        if run["part"] != "table":
            continue
        runs.setdefault((run["start"], run["target"], run["images"]), {})[run["seed"]] = run
    return runs


def _row(runs: dict[Cell, dict[int, Run]], cell: Cell) -> list[str]:
    start, target, n = cell
    own, anew = runs[cell], runs.get(("random", target, n), {})
    frozen, adapted = ([100 * run[name] for run in own.values()] for name in ("frozen", "adapted"))
    gaps = [after - before for before, after in zip(frozen, adapted, strict=True)]
    return [
        STARTS[start],
        TARGETS[target],
        whole(n),
        _mean(frozen),
        _mean(adapted),
        _mean(gaps, signed=True),
        _mean([100 * run["adapted"] for run in anew.values()]),
        _counts([_verdict(run) for run in own.values()]),
        _counts([run["comparison"]["without_labels"] for run in own.values()]),
    ]


def _mean(values: list[float], *, signed: bool = False) -> str:
    """Return the mean with the half width of its 95 % t-interval, where there are seeds for one."""
    if len(values) < 2:
        return spread(values, signed=signed) if values else ""
    return points(mean_interval(values), signed=signed)


def _verdict(run: Run) -> str:
    """Return the verdict that today's rule gives on what was measured."""
    scores = [*run["comparison"]["linear"].values(), *run["comparison"]["knn"].values()]
    return judge_with_labels([PairedDifference(**score) for score in scores])[0]


def _counts(verdicts: list[str]) -> str:
    return ", ".join(f"{word} ({n})" for word, n in Counter(verdicts).most_common())


def labels() -> str:
    """Return the accuracy with five labels a class on each kind of features, over seeds."""
    runs = [run for run in read("start_labels")["runs"].values() if run["part"] == "table"]
    kinds = list(runs[0]["accuracy"])
    rows = []
    for target in dict.fromkeys(run["target"] for run in runs):
        own = [run["accuracy"] for run in runs if run["target"] == target]
        rows.append([TARGETS[target], *(spread([100 * a[kind] for a in own]) for kind in kinds)])
    return table(["images", *(f"{kind}, %" for kind in kinds)], rows)


def tuning() -> str:
    """Return in a sentence how fine-tuning was set."""
    chosen = read("start_labels")["chosen"]
    said = "; ".join(f"{TARGETS[target]} {name}" for target, name in chosen.items())
    tried = [r for r in read("start_labels")["runs"].values() if r["part"] == "choices"]
    each = len({run["name"] for run in tried})
    return f"Fine-tuning uses the best of {each} settings, chosen on other labels: {said}."


def transformer() -> str:
    """Return the accuracy of a vision transformer trained in full and by LoRA."""
    runs = read("start_vit")["runs"]
    rows = [
        [
            name,
            percent(run["class"]),
            whole(run.get("processor_seconds", 0)) if name != "frozen" else "",
        ]
        for name, run in runs.items()
    ]
    return table(["settings", "class, %", "CPU seconds"], rows)
