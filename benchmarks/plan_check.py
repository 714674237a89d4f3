"""Is `widefield plan` right? What it says, beside what a short run of the same takes.

    python benchmarks/plan_check.py photos --json benchmarks/results/plan_check.json

Each case is planned in one process and run in another, several times turn by turn, since a
machine may be slower one minute than the next. Compared are the peak of the host's memory, on a
GPU that of the device, and the median seconds of the epochs after the first; the ratio is the
median of the turns. Written down is also the share of a run's time that it waited for data.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ratios.command import Result, command
from widefield.core.names import check_name

TURNS = 3
SHARED: dict[str, Any] = {"max_examples": 1536, "batch_size": 128, "epochs": 4}

CASES: dict[str, dict[str, Any]] = {
    "row-contrast": {"method": "row-contrast"},
    "row-contrast, rows on disk": {"method": "row-contrast", "head_storage": "disk"},
    "simclr": {"method": "simclr"},
    "diet": {"method": "diet"},
    "row-contrast, resnet18": {"method": "row-contrast", "encoder": "resnet18"},
    "view-contrast, sounds": {"data": "spoken+background", "method": "view-contrast"},
    "view-contrast, windows": {"data": "motion", "method": "view-contrast"},
}
"""Settings of each case, and its `data` where they are not those of the command."""

PLAN = """
import json, sys, widefield
data, settings = json.loads(sys.argv[1])
print(json.dumps(widefield.plan(data, **settings).to_json()))
"""

RUN = """
import csv, json, resource, statistics, sys, torch, widefield
data, settings, out = json.loads(sys.argv[1])
done = widefield.pretrain(data, out=out, quiet=True, **settings)
with open(done.run / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
speed, wait = ([float(row[name]) for row in rows] for name in ("images_per_second", "data_wait"))
print(json.dumps({
    "host_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    "device_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    "images_per_second": statistics.median(speed[1:]),
    "data_wait": statistics.median(wait[1:]),
    "steps_per_epoch": done.steps // len(speed),
}))
"""


def bench(data: str, *, case: list[str] | None = None) -> Result:
    """Compare what `widefield plan` says of each case with what a short run takes."""
    results = {}
    for name in case or CASES:
        check_name("case", name, CASES)
        settings = SHARED | CASES[name]
        results[name] = compare(settings.pop("data", data), settings)
    typed = f"python benchmarks/plan_check.py {data} --json FILE"
    return {"command": typed, "data": data, "cases": results}


def compare(data: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Planned, measured, and measured over planned."""
    done = [one_turn(data, settings) for _ in range(TURNS)]
    ratios = {name: [turn["ratio"][name] for turn in done] for name in done[0]["ratio"]}
    median = {name: statistics.median(values) for name, values in ratios.items()}
    return {"settings": settings, "ratio": median, "turns": done}


def one_turn(data: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Plan once and run once."""
    planned = last_line(PLAN, data, settings)
    with tempfile.TemporaryDirectory(prefix="widefield-plan-check-") as folder:
        measured = last_line(RUN, data, settings, str(Path(folder) / "run"))
    images = settings["batch_size"] * measured["steps_per_epoch"]
    measured["epoch_seconds"] = images / measured["images_per_second"]
    names = [n for n in ("host_bytes", "device_bytes", "epoch_seconds") if measured[n] is not None]
    return {
        "planned": {name: planned[name] for name in names},
        "measured": {name: measured[name] for name in (*names, "data_wait")},
        "ratio": {name: round(measured[name] / planned[name], 3) for name in names},
    }


def last_line(code: str, *arguments: Any) -> dict[str, Any]:
    """Return what a process that runs `code` prints last, read as JSON."""
    words = [sys.executable, "-c", code, json.dumps(arguments)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure as the command line says."""
    command(bench)


if __name__ == "__main__":
    main()
