"""Split a result of `widefield bench step --json` into one file a method.

    widefield bench step --encoder resnet-tiny --json > steps.json
    python benchmarks/split_steps.py steps.json --into benchmarks/results/bench_step/resnet-tiny

Each file is what `widefield bench step --methods NAME --json` prints: the ratio of the method's
step to the bare encoder's, both measured in one process, with the machine and versions of that
measurement. So one method can be measured and added alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any


def split(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, for each method, the part of a result that is about it and the bare encoder."""
    names = [ratio.removesuffix("/bare") for ratio in result["ratios"]]
    parts = {}
    for name in names:
        others = {f"{other}_seconds" for other in names if other != name}
        parts[name] = {
            "ratios": {f"{name}/bare": result["ratios"][f"{name}/bare"]},
            "values": {key: v for key, v in result["values"].items() if key not in others},
            "machine": result["machine"],
        }
    return parts


def main() -> None:
    """Write a file for each method of the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("result", type=Path, help="what bench step printed")
    parser.add_argument("--into", type=Path, required=True, help="folder of the files")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    for name, part in split(json.loads(args.result.read_text())).items():
        (args.into / f"{name}.json").write_text(json.dumps(part, indent=2) + "\n")


if __name__ == "__main__":
    main()
