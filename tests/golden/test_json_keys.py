"""The keys of what every command prints with `--json`, kept as text: scripts of users read them.

After a change that means to add or remove keys, which the changelog names, write them anew:
`WRITE=1 pytest tests/golden/test_json_keys.py`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from commands import Command

FILE = Path(__file__).with_name("json_keys")

WORDS = {
    "pretrain": "pretrain {}/images:train --out {}/run --epochs 1 --encoder resnet-tiny "
    "--image-size 16 --batch-size 32 --projector-width 32 --threads 1 --precision 32",
    "probe": "probe {}/run {}/images:test --train-data {}/images:train",
    "audit": "audit {}/run",
    "explore": "explore {}/run {}/images --out {}/explore.html",
    "classify": "classify {}/run {}/images --labels {}/labels.csv --out {}/classes.csv",
    "search": "search {}/run {}/images --image {}/images/0/0.png --out {}/search.html",
    "embed": "embed {}/run {}/images --out {}/features.npz",
    "export": "export {}/run --out {}/encoder.safetensors",
    "plan": "plan {}/images --image-size 16 --epochs 1 --batch-size 32",
    "views": "views {}/images --out {}/views.html",
}
"""Commands in an order in which each finds what it needs; {} is the folder of the test."""


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each key in a JSON value; items of a list share one, and so do stages."""
    if isinstance(value, dict):
        for name, item in value.items():
            key = f"{path}.{'STAGE' if '@' in name else name}".lstrip(".")
            yield key
            yield from keys(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item, f"{path}[]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Hold 120 images of two classes, and labels of thirty of them."""
    rng = np.random.default_rng(0)
    rows = ["path,label"]
    for k in range(120):
        path = tmp_path / "images" / str(k % 2) / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 200, (16, 16, 3)) + 55 * (k % 2) * np.eye(3, dtype=int)[0]
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        rows += [f"{k % 2}/{k}.png,{'ab'[k % 2]}"] if k < 30 else []
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    return tmp_path


def test_keys_are_those_on_file(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widefield.audits.bounds.CEILING_STEPS", 4)  # no score is looked at
    for name, words in WORDS.items():
        printed = command.json(*words.replace("{}", str(folder)).split())
        found = "".join(f"{path}\n" for path in sorted(set(keys(printed))))
        file = FILE / f"{name}.txt"
        if "WRITE" in os.environ:
            file.parent.mkdir(exist_ok=True)
            file.write_text(found)
        assert found == file.read_text(), name
