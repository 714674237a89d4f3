"""Writes docs/first_hour.md: from `pip install` to labeled predictions, with outputs and times.

    python scripts/first_hour.py cifar10_train.npz

The wheel is built and installed into a new environment, with the versions of constraints.txt. The
folder holds the first 2,000 images of CIFAR-10 as PNG files, in a subfolder a class; ten labels of
each class stand in labels.csv. Nothing else is fetched, so that the run begins from scratch.
benchmarks/results/first_hour.json keeps the times and the machine.
"""

import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from release_check import ROOT, run
from widefield.core.hardware import machine
from widefield.data import open_dataset

PAGE = ROOT / "docs" / "first_hour.md"
RESULTS = ROOT / "benchmarks" / "results" / "first_hour.json"
IMAGES, LABELS, WIDTH = 2000, 10, 100
STEPS = (
    ("Plan: memory and time", "plan ./my-images --epochs 30"),
    ("Train without labels", "pretrain ./my-images --epochs 30 --out run"),
    ("Explore the images", "explore run ./my-images --out explore.html"),
    (
        "Classify all images from a few labels",
        "classify run ./my-images --labels labels.csv --out predictions.parquet",
    ),
    (
        "Linear-probe and kNN accuracy",
        "probe run ./my-images:test --train-data ./my-images:train",
    ),
    (
        "Audit: learned, hidden and lost features",
        "audit run ./my-images --max-examples 400 --out audit.html",
    ),
    ("Export features and encoder", "embed run ./my-images --out features.parquet"),
    ("", "export run --out encoder.safetensors"),
)


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
    """Return what a command that succeeds prints, as a file gets it."""
    text = run(words, root, COLUMNS=str(WIDTH), XDG_CACHE_HOME=str(root / "cache"))
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


def page(outputs: list[tuple[str, str, str, float]], seconds: dict[str, float]) -> str:
    """Return the page."""
    to_predictions = sum(seconds[name] for name in ("install", "plan", "pretrain", "classify"))
    parts = [
        "# The first hour\n",
        f"The commands of the README on {IMAGES:,} photographs, 32 pixels a side, on two CPU "
        "cores, with what they print and how long they take. From `pip install` to a predicted "
        f"label for every photograph it takes {to_predictions / 60:.1f} minutes. Written by "
        "`python scripts/first_hour.py cifar10_train.npz` "
        "([times](../benchmarks/results/first_hour.json)).\n",
        f"## Install ({seconds['install']:.0f} s)\n",
        "```text\n$ python -m venv env\n$ env/bin/pip install .\n```\n",
    ]
    for why, words, text, took in outputs:
        title = f"## {why} ({took:.0f} s)\n" if why else ""
        parts += [title, f"```text\n$ {words}\n{text}\n```\n"]
    return "\n".join(part for part in parts if part)


def main(source: str) -> None:
    """Run the commands; write page and times."""
    outputs, seconds = [], {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_folder(root, source)
        seconds["install"] = install(root)
        for why, words in STEPS:
            begin = time.monotonic()
            text = printed(root, ["env/bin/widefield", *words.split()])
            took = seconds[words.split()[0]] = time.monotonic() - begin
            outputs.append((why, f"widefield {words}", text, took))
    PAGE.write_text(page(outputs, seconds))
    times = {name: round(value, 1) for name, value in seconds.items()}
    facts = {"machine": machine(torch.device("cpu")), "images": IMAGES, "labels": 10 * LABELS}
    RESULTS.write_text(json.dumps(facts | {"seconds": times}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
