"""What does a batch cost that passes through the encoder in parts?

    python benchmarks/micro_batch.py --json benchmarks/results/micro_batch.json

SimCLR with a ResNet-18 on the built-in photographs, 32 pixels, batches of 128 images, two views of
each. Each case takes steps in a process of its own, turn by turn with the others, so that a machine
that slows down does so for all. Memory is the peak of the process, its libraries included; time is
the median of a step in processor seconds, as a multiple of the whole batch's in the same turn.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from widefield.core.files import write_atomically
from widefield.core.hardware import choose_device, machine

CASES = (None, 64, 16)
"""Examples that pass through the encoder at a time; None for all at once."""
BATCH, STEPS, TURNS, SEED = 128, 3, 3, 0

TAKE_STEPS = """
import json, resource, statistics, sys, tempfile, time
from pathlib import Path
import widefield
part, batch, steps, seed = json.loads(sys.argv[1])
peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = []
with tempfile.TemporaryDirectory() as folder:
    widefield.pretrain(
        "photos", out=Path(folder) / "run", method="simclr", encoder="resnet18", epochs=1,
        batch_size=batch, micro_batch=part, max_examples=steps * batch, precision="32", seed=seed,
        quiet=True,
        on_step=lambda metrics: seen.append((time.process_time(), peak())),
    )
times = [b[0] - a[0] for a, b in zip(seen, seen[1:])]
print(json.dumps({"seconds": statistics.median(times), "peak_bytes": seen[-1][1]}))
"""


def one_turn(part: int | None) -> dict[str, Any]:
    """Take the steps in a process of its own."""
    arguments = json.dumps([part, BATCH, STEPS, SEED])
    command = [sys.executable, "-c", TAKE_STEPS, arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Play all cases turn by turn, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    turns = [{str(part): one_turn(part) for part in CASES} for _ in range(TURNS)]
    whole = str(None)
    cases = [
        {
            "micro_batch": part,
            "peak_bytes": statistics.median(turn[str(part)]["peak_bytes"] for turn in turns),
            "times": statistics.median(
                turn[str(part)]["seconds"] / turn[whole]["seconds"] for turn in turns
            ),
        }
        for part in CASES
    ]
    report = {
        "command": "python benchmarks/micro_batch.py",
        "machine": machine(choose_device("auto")),
        "seed": SEED,
        "batch_size": BATCH,
        "cases": cases,
        "turns": turns,
    }
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(args.json, lambda draft: draft.write_text(text))


if __name__ == "__main__":
    main()
