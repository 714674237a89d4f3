"""What the probe workflow scores, on what, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import widefield
from elsewhere import Elsewhere
from widefield.core import rng
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.workflows.probe import probe

COLORS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220)}


def paint(folder: Path, colors: list[str], count: int) -> Path:
    rng = np.random.default_rng(0)
    for color in colors:
        (folder / color).mkdir(parents=True)
        for i in range(count):
            noise = rng.integers(-30, 30, (16, 16, 3))
            pixels = np.clip(np.array(COLORS[color]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / color / f"{i:02}.png")
    return folder


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    """Test data with fewer classes number them differently; names decide."""
    train = paint(tmp_path / "train", ["red", "green", "blue"], 12)
    test = paint(tmp_path / "test", ["red", "green"], 8)
    found = probe("pixels", test, train_data=train).tasks["class"]
    assert found.score.value == 1.0
    assert len(found.score.parts) == 3


def test_a_column_split_is_what_the_note_names(tmp_path: Path) -> None:
    names = [str(path) for path in sorted(paint(tmp_path, ["red", "green"], 8).rglob("*.png"))]
    rows = [f"{name},{'test' if i % 2 else 'train'}" for i, name in enumerate(names)]
    (tmp_path / "table.csv").write_text("\n".join(["path,split", *rows]) + "\n")
    labels = {name: Path(name).parent.name for name in names}
    found = probe("pixels", tmp_path / "table.csv", labels=labels, floors=False, quiet=True)
    note = "the data are split by the column split: fitted on one part, scored on the other"
    assert found.notes[0] == note
    assert len(found.tasks["label"].score) == 8


def test_a_class_that_was_never_fitted_is_left_out(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 6)
    test = paint(tmp_path / "test", ["red", "green", "blue"], 6)
    found = probe("pixels", test, train_data=train, floors=False, quiet=True)
    assert found.tasks["class"].score.value == 1.0
    assert any(
        "6 examples to score are left out" in note and "'blue'" in note for note in found.notes
    )
    with pytest.raises(ValueError, match=r"class 'blue' of .* is not in"):
        probe("pixels", paint(tmp_path / "other", ["blue"], 6), train_data=train)


def test_a_class_without_an_example_to_fit_on_is_left_out() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    fitted = {"x": images, "kind": np.arange(40) % 2 * 2}  # 0 and 2
    scored = {"x": images[:12], "kind": np.arange(12) % 3}
    report = probe("pixels", scored, train_data=fitted, floors=False)
    note = "task 'kind': 4 examples are left out, of classes with fewer than two to fit on: '1'"
    assert any(note in said for said in report.notes)
    scored["kind"] = fitted["kind"][:12]  # that it is listed does no harm
    report = probe("pixels", scored, train_data=fitted, floors=False)
    assert len(report.tasks["kind"].score.parts) == 3


def test_scored_images_that_were_fitted_on_are_said(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    test = paint(tmp_path / "test", ["red", "green"], 4)  # its red ones are in `train` too
    for scored, count in ((train, "of 16 test images, 16"), (test, "of 8 test images, 4")):
        (said, *_) = probe("pixels", scored, train_data=train, floors=False).notes
        assert said.startswith(f"{count} occur in the training data of the probe, so")
    halves = (f"{train}:test+shapes", f"{train}:train+shapes")
    clean = probe("pixels", halves[0], train_data=halves[1], floors=False)
    assert not [note for note in clean.notes if "occur in" in note]
    planted = probe("pixels", f"{train}+shapes", train_data=f"{train}+shapes", floors=False)
    assert planted.notes[0].startswith("of 16 test images, 16 occur")


def test_a_class_of_one_image_leaves_the_others_scored(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green", "blue"], 6)
    for path in sorted((train / "blue").iterdir())[1:]:
        path.unlink()
    test = paint(tmp_path / "test", ["red", "green"], 4)
    report = probe("pixels", test, train_data=train, floors=False)
    said = [note for note in report.notes if "fewer than two to fit on: 'blue'" in note]
    assert len(said) == 1
    for path in (train / "blue").iterdir():
        path.unlink()
    (train / "blue").rmdir()
    alone = probe("pixels", test, train_data=train, floors=False)  # the class was never there
    (score,), (control,) = (found.tasks.values() for found in (report, alone))
    assert score.score.value == control.score.value


def test_the_encoder_is_never_changed(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    encoder.train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    probe(encoder, train, train_data=train)
    assert encoder.training
    for key, value in encoder.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_the_encoder_goes_back_to_its_device(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    encoder = Elsewhere()
    probe(encoder, train, train_data=train, floors=False)
    assert encoder.came_back()


def test_floors_are_left_out_when_told(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    report = probe("random", train, train_data=train, floors=False)
    assert report.tasks["class"].floor == {}
    assert probe("random", train, train_data=train).tasks["class"].floor.keys() == {
        "pixels",
        "random",
        "dictionary",
        "majority",
    }


def test_every_kind_of_encoder_opens(tmp_path: Path) -> None:
    images = np.zeros((3, 32, 32, 3), np.uint8)
    assert open_encoder("pixels").features(images).shape == (3, 3072)
    assert open_encoder("random").features(images).shape == (3, 128)
    assert open_encoder("timm:mobilenetv3_small_050").features(images).shape == (3, 1024)
    with pytest.raises(ValueError, match="no encoder 'nowhere': give a run's folder"):
        open_encoder("nowhere")


@pytest.mark.parametrize("max_examples", [0, -1])
@pytest.mark.parametrize("divided", [False, True])
def test_a_limit_below_one_is_refused_however_the_data_are_divided(
    tmp_path: Path, max_examples: int, divided: bool
) -> None:
    folder = paint(tmp_path / "all", ["red", "blue"], 20)
    table = {p.relative_to(folder).as_posix(): p.parent.name for p in folder.rglob("*.png")}
    apart = {"labels": table} if divided else {"train_data": folder}
    with pytest.raises(ValueError, match=f"max_examples is {max_examples}; expected at least 1"):
        probe("pixels", folder, max_examples=max_examples, floors=False, quiet=True, **apart)


def test_public_names_are_the_workflows() -> None:
    assert widefield.probe is probe
    assert set(widefield.__all__) <= set(dir(widefield))
    with pytest.raises(AttributeError, match=r"attribute prob$"):
        _ = widefield.prob


def test_features_before_pooling(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 12)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    plain = probe(encoder, train, train_data=train, floors=False)
    assert (plain.to_json()["protocol"], plain.features) == ("linear", "pooled")
    before = probe(encoder, train, train_data=train, features="feature-map", floors=False)
    assert before.features == "feature-map"
    assert before.tasks["class"].score.value > 0.9
    with pytest.raises(ValueError, match="unknown features 'featuremap': did you mean 'feature-m"):
        probe(encoder, train, train_data=train, features="featuremap")  # type: ignore[arg-type]


def with_copies(copies: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Notes of a probe of 100 scored images, so many of which are among those fitted on."""
    images = np.random.default_rng(0).integers(0, 256, (500, 4, 4, 3), dtype=np.uint8)
    monkeypatch.setattr(rng, "bits", lambda *_: np.uint64(2**63) * (np.arange(500) % 5 > 0))
    scored = np.arange(0, 500, 5)
    images[scored[:copies]] = images[scored[:copies] + 1]
    labels = {f"row {i}": "ab"[i % 2] for i in range(500)}
    return probe("pixels", images, labels=labels, floors=False).notes[1:]


@pytest.mark.parametrize(
    ("copies", "said"),
    [
        (1, "which raises the score by at most 1.0 points"),
        (4, "which raises the score by at most 4.0 points"),
        (5, "so the score is biased: leave out"),
    ],
)
def test_what_copies_among_the_scored_images_can_do_is_said(
    copies: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (note,) = [note for note in with_copies(copies, monkeypatch) if "occur in" in note]
    start = f"of 100 test images, {copies} occur in the training data of the probe, "
    assert note.startswith(start + said)
    assert not any("occur in" in note for note in with_copies(0, monkeypatch))


def test_others_to_score_on_are_advised_where_they_are_the_same(tmp_path: Path) -> None:
    data = paint(tmp_path / "data", ["red", "green"], 8)
    for scored in (data, f"{data}:test"):
        (note, *_) = probe("pixels", scored, train_data=data, floors=False).notes
        assert "score on others, as DATA:test" in note
