"""Writes docs/first_hour.md: README's commands on a folder of photographs, with what each printed.

    python scripts/first_hour.py

The folder holds 800 of the built-in photographs as PNG files, in a subfolder a class; five labels
of each class stand in labels.csv. Nothing is fetched, so that the run begins from scratch.
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from widefield.data import open_dataset

PAGE = Path(__file__).parents[1] / "docs" / "first_hour.md"
IMAGES, LABELS, WIDTH = 800, 5, 100
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
HEADER = (
    "# The first hour\n\n"
    f"The commands of the README on a folder of {IMAGES} photographs, 32 pixels a side, on two "
    "CPU cores, with their output. Written by `python scripts/first_hour.py`.\n"
)


def make_folder(root: Path) -> None:
    """Write the photographs, and labels of a few."""
    photos = open_dataset("photos", max_examples=IMAGES)
    names = [photos.classes["class"][y] for y in photos.labels["class"]]
    files = []
    for i, (image, name) in enumerate(zip(photos.images, names, strict=True)):
        file = Path(name) / f"{i:04d}.png"
        (root / "my-images" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / "my-images" / file)
        files.append((file.as_posix(), name))
    seen: dict[str, int] = {}
    with (root / "labels.csv").open("w", newline="") as handle:
        rows = csv.writer(handle)
        rows.writerow(["path", "label"])
        for path, name in files:
            seen[name] = seen.get(name, 0) + 1
            if seen[name] <= LABELS:
                rows.writerow([path, name])


def printed(root: Path, words: str) -> str:
    """Return what a command that succeeds prints, as a file gets it."""
    command = [sys.executable, "-m", "widefield", *words.split()]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "XDG_CACHE_HOME": str(root / "cache")}
    done = subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def main() -> None:
    """Run the commands and write the page."""
    page = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_folder(root)
        for why, words in STEPS:
            text = f"$ widefield {words}\n{printed(root, words)}"
            page += [f"## {why}\n" if why else "", f"```text\n{text}\n```\n"]
    PAGE.write_text("\n".join(part for part in page if part))


if __name__ == "__main__":
    main()
