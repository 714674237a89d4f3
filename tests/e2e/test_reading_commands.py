"""What commands print of images that are hard to read, and of names that a terminal would obey."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from commands import Command


def odd_folder(folder: Path) -> Path:
    """Make 40 sound images in two classes with control characters or bytes that are no text."""
    rng = np.random.default_rng(0)
    for i in range(40):
        place = folder / ("dog\x1b[2J", "cat\udcff")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (8, 12, 3), dtype=np.uint8) + np.uint8(127 * (i % 2))
        Image.fromarray(pixels).save(place / f"{i:02d}.png")
    (place / "bad\x1b]0;title\x07.png").write_text("no image")
    (folder / "photo.heic").write_text("another kind")
    os.mkfifo(folder / "pipe.png")
    return folder


def test_embed_tells_what_it_skipped(tmp_path: Path, command: Command) -> None:
    folder = odd_folder(tmp_path / "im\x1b[31mages")
    for suffix in (".npz", ".parquet"):
        told = command.everything("embed", "pixels", folder, "--out", tmp_path / f"e{suffix}")
        assert all(line.isprintable() for line in told.splitlines())
        assert "note: not read, because they are not images of a known type: 1 .heic" in told
        assert "1 pipes, sockets or devices" in told
        assert r"the first 'cat\xff/bad\x1b]0;title\x07.png': not an image" in told
    with np.load(tmp_path / "e.npz") as saved:
        assert saved["classes_class"].tolist() == [r"cat\xff", r"dog\x1b[2J"]
        assert len(saved["features"]) == 40


def test_probe_tells_what_it_skipped(tmp_path: Path, command: Command) -> None:
    folder = odd_folder(tmp_path / "im\x1b[31mages")
    words = ("probe", "pixels", f"{folder}:test", "--train-data", f"{folder}:train", "--no-floors")
    told = command.everything(*words)
    assert all(line.isprintable() for line in told.splitlines())
    # Both are parts of one folder, of which it is said once.
    assert told.count("not read, because they are not images of a known type: 1 .heic") == 1
    assert "scored on: test split" in told
    assert command.json(*words)["tasks"]["class"]["accuracy"] == 1


def test_splits_are_refused_by_every_command(tmp_path: Path, command: Command) -> None:
    for split in ("train", "test"):
        odd_folder(tmp_path / "data" / split)
    data, out = tmp_path / "data", tmp_path / "out"
    for words in (
        ("pretrain", data, "--out", out),
        ("embed", "pixels", data, "--out", f"{out}.npz"),
        ("probe", "pixels", data, "--train-data", data),
        ("audit", "pixels", data),
    ):
        assert "splits, not classes; name one of them" in command.refused(*words)
    assert sorted(os.listdir(tmp_path)) == ["data"]
