"""`--image-size` of every command that takes an encoder, square or not, and what a cut loses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import widefield
from commands import Command
from runs import SHORT
from widefield.core.types import parse_size, size_text
from widefield.encoders import build_encoder, save_encoder_file
from widefield.inference.open_encoder import open_encoder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wide photographs of two classes, and the weights of another program's network."""
    rng = np.random.default_rng(0)
    for i in range(24):
        file = tmp_path / "images" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 80, 3), dtype=np.uint8)).save(file)
    save_encoder_file(build_encoder("resnet-tiny", seed=0), tmp_path / "net.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_embed_takes_a_size_and_says_what_is_cut(command: Command, folder: Path) -> None:
    named = ("timm:resnet10t", "images", "--image-size")
    square = command.json("embed", *named, 32, "--out", "a.npz")["notes"]
    cut = "24 of 24 images brought to 32x32: resized by the shorter side, cut around the center"
    remedy = "pretrain --fit pad or squash keeps it"
    assert f"{cut}, which loses 50% of their area: {remedy}" in square
    whole = command.json("embed", *named, "32x64", "--out", "b.npz")["notes"]
    assert any(note.endswith("cut around the center") for note in whole)


def test_every_command_takes_it(command: Command, folder: Path) -> None:
    words: dict[str, tuple[Any, ...]] = {
        "probe": ("images:test", "--train-data", "images:train", "--no-floors"),
        "explore": ("images", "--out", "page.html"),
        "audit": ("images", "--cache", "cache", "--out", "audit.html"),
        "embed": ("images", "--out", "rows.npz"),
    }
    for name, rest in words.items():
        line = command.refused(name, "pixels", *rest, "--image-size", "16by32")
        assert "--image-size is '16by32': give a side in pixels, or HEIGHTxWIDTH" in line
    explored = command.json("explore", "pixels", *words["explore"], "--image-size", "16x32")
    assert any("24 of 24 images brought to 16x32" in note for note in explored["notes"])
    probed = command.json("probe", "pixels", *words["probe"], "--image-size", 16)
    assert any("brought to 16x16" in note for note in probed["notes"])


def test_a_run_has_its_own_size(command: Command, folder: Path) -> None:
    run = {**SHORT, "epochs": 1, "image_size": "16x32", "max_examples": None}
    done = widefield.pretrain("images", out="run", **run)
    assert done.encoder.config.image_size == (16, 32)
    line = command.refused("embed", "run", "images", "--out", "a.npz", "--image-size", 32)
    assert "run was trained on examples of its own size: leave --image-size out" in line
    with pytest.raises(ValueError, match="resume without image_size"):
        widefield.pretrain("images", out="run", resume=True, image_size=(32, 32), quiet=True)


def test_positions_of_a_transformer_are_resampled() -> None:
    encoder = build_encoder("vit_tiny_patch16_224,depth=1", stem="native", image_size=32, seed=0)
    extractor = open_encoder(encoder)
    assert replace(extractor, form=replace(extractor.form, kind=None)).at_size("32x64").notes == (
        "vit_tiny_patch16_224,depth=1: 5 position embeddings became 9: resampled",
    )


def test_a_size_has_one_spelling() -> None:
    assert [size_text(x) for x in (32, "32", (32, 32), "96x128", (96, 128))] == [
        *(32, 32, 32),
        *("96x128", "96x128"),
    ]
    for wrong in ("0", "-3", "x", "3x", "1x2x3", (), (1, 2, 3), 0):
        with pytest.raises(ValueError, match="give a side in pixels"):
            parse_size(wrong)  # type: ignore[arg-type]
