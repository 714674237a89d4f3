"""Processor seconds and peak memory of commands, beside those of an older version.

    python benchmarks/costs.py --before OLD/src --json benchmarks/results/costs.json
    python benchmarks/costs.py RUN TRAIN.npz TEST.npz --before OLD/src --json ...

Without data: commands that only refuse or print help. With a run and data: `probe` with its floors,
fitted on TRAIN and scored on TEST, and `explore` of TRAIN. OLD is a checkout of the older version;
without it, its numbers in the file stay.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from widefield.core.hardware import choose_device, machine

REFUSED = (
    "--help",
    "pretrain missing --out run",
    "pretrain photos --out run --epochs 0",
    "probe missing photos",
    "explore missing photos --out page.html",
)
COMMAND = "python benchmarks/costs.py [RUN TRAIN TEST] [--before OLD/src]"
SOURCE = Path(__file__).parents[1] / "src"


def cost(words: list[str], source: Path) -> dict[str, float]:
    """Return processor seconds and peak memory of `widefield WORDS`, in its own process and folder.

    In a folder with the output of an older version it would refuse to work.
    """
    command = [sys.executable, "-c", _MEASURE, sys.executable, "-m", "widefield", *words]
    env = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=True
        )
    seconds, kilobytes = map(float, done.stdout.split())
    return {"cpu_seconds": round(seconds, 2), "peak_mb": round(kilobytes / 1000, 1)}


_MEASURE = """
import resource, subprocess, sys
quiet = subprocess.DEVNULL
subprocess.run(sys.argv[1:], stdout=quiet, stderr=quiet)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Run in a small process, because the peak memory of a child begins with that of its parent."""


def commands(given: list[Path]) -> dict[str, list[str]]:
    """Return the words of each command under its name."""
    if not given:
        return {line: line.split() for line in REFUSED}
    run, train, test = (str(path.absolute()) for path in given)
    return {
        "probe": ["probe", run, test, "--train-data", train, "--json"],
        "explore": ["explore", run, train, "--out", "page.html", "--json"],
    }


def main() -> None:
    """Measure the commands, and keep the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("given", nargs="*", type=Path, help="RUN TRAIN TEST, or nothing")
    parser.add_argument("--before", type=Path, help="src of the older version")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    found = json.loads(args.json.read_text()) if args.json.exists() else {"runs": {}}
    found |= {"command": COMMAND, "machine": machine(choose_device("cpu"))}
    sources = {"now": SOURCE} if args.before is None else {"before": args.before, "now": SOURCE}
    for name, words in commands(args.given).items():
        values = {version: cost(words, path.absolute()) for version, path in sources.items()}
        values = found["runs"].get(name, {}) | values
        found["runs"][name] = values
        args.json.write_text(json.dumps(found, indent=1) + "\n")
        print(name, values, flush=True)


if __name__ == "__main__":
    main()
