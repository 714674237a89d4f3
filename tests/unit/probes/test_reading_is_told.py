"""What was skipped, resized or chosen in reading is told by every call; misfits are refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_images import png16
from widefield.audits.audit import audit
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.workflows.embed import embed
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe

SMALL = {"method": "simclr", "batch_size": 16, "epochs": 1, "quiet": True, "device": "cpu"}
NARROW = {"projector_width": 16, "projector_dim": 8, "encoder": "resnet-tiny"}
SIDE = 16


def twelve_bits(brightness: float, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 4096, (SIDE, SIDE))
    return np.round(values * brightness)


@pytest.fixture(scope="module")
def camera(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images of 12 bits in 16, some of another size, one of them broken."""
    folder = tmp_path_factory.mktemp("camera")
    for i in range(48):
        path = folder / "images" / "ab"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png16(twelve_bits(1 - i % 2 / 2, i)))
    (folder / "images" / "a" / "broken.png").write_text("no image")
    (folder / "images" / "a" / "raw.nef").write_text("another kind")
    pretrain(folder / "images", out=folder / "run", **SMALL, **NARROW)
    return folder


def test_later_data_of_a_run_are_read_by_its_white(camera: Path, tmp_path: Path) -> None:
    dim = tmp_path / "dim"
    dim.mkdir()
    for i in range(8):
        (dim / f"{i}.png").write_bytes(png16(twelve_bits(0.1, i)))
    assert open_encoder(camera / "run").form.black_white == pytest.approx((0, 4095), abs=20)
    by_run = open_encoder(camera / "run").open(dim, quiet=True).images
    assert by_run.max() <= 26
    assert open_encoder("pixels").open(dim, quiet=True).images.max() > 200  # by their own
    few = open_encoder("pixels").open(dim, like=open_encoder("pixels").open(camera / "images"))
    assert (few.images == by_run).all()


def test_every_call_tells_what_reading_did(
    camera: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widefield.audits.bounds.CEILING_STEPS", 4)
    data, run = camera / "images", camera / "run"
    embedding = embed(run, data, quiet=True)
    report = probe(run, f"{data}:test", train_data=f"{data}:train", floors=False, quiet=True)
    judged = audit(run, data, quiet=True, cache=tmp_path)
    for notes in (embedding.notes, report.notes, judged.notes):
        text = "\n".join(notes)
        assert "unreadable file skipped, the first 'a/broken.png': not an image" in text
        assert "1 .nef" in text
        black, white = open_encoder(run).form.black_white
        assert f"values from {black:.7g} to {white:.7g} became 0 to 255" in text
        assert "pretrain PATH:channels keeps all values" in text
    assert any(note.startswith("scored on: test split") for note in report.notes)
    assert any(note.startswith("fitted on: train split") for note in report.notes)
    assert report.to_json()["notes"] == list(report.notes)


def test_resizing_is_told(camera: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    notes = embed(camera / "run", tmp_path, quiet=True).notes
    assert any("1 of 1 images brought to 16x16" in note for note in notes)


def test_gray_images_go_through_a_color_encoder_and_it_is_said() -> None:
    encoder = build_encoder("resnet-tiny", image_size=SIDE, seed=0)
    gray = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 1), dtype=np.uint8)
    shown = embed(encoder, gray, quiet=True)
    three = embed(encoder, gray.repeat(3, axis=3), quiet=True)
    np.testing.assert_array_equal(shown.features, three.features)
    assert any("three equal channels" in note for note in shown.notes)
    assert three.notes == ()


@pytest.mark.parametrize(("encoder_channels", "data_channels"), [(3, 4), (3, 2), (1, 3), (4, 1)])
def test_other_channels_are_refused(encoder_channels: int, data_channels: int) -> None:
    encoder = build_encoder("resnet-tiny", channels=encoder_channels, image_size=SIDE, seed=0)
    x = np.zeros((8, SIDE, SIDE, data_channels), dtype=np.uint8)
    data = {"x": x, "y": np.arange(8) % 2}
    expected = f"{data_channels} for memory, {encoder_channels} for resnet-tiny"
    for call in (embed, audit):
        with pytest.raises(ValueError, match=expected):
            call(encoder, data, quiet=True)
    with pytest.raises(ValueError, match=expected):
        probe(encoder, data, train_data=data, quiet=True)


def test_both_sets_of_a_probe_have_the_same_channels() -> None:
    rng, y = np.random.default_rng(0), np.arange(24) % 2
    fit = {"x": rng.integers(0, 256, (24, 8, 8, 4), dtype=np.uint8), "y": y}
    score = {"x": fit["x"][..., :2], "y": y}
    with pytest.raises(ValueError, match=r"number of channels differs: 2 for .*, 4 for memory"):
        probe("pixels", score, train_data=fit, floors=False, quiet=True)
