"""What the probe workflow scores, on what, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import widefield
from widefield.encoders import build_encoder
from widefield.workflows.extractor import open_encoder
from widefield.workflows.probe import probe

COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220)}


def paint(folder: Path, colours: list[str], count: int) -> Path:
    rng = np.random.default_rng(0)
    for colour in colours:
        (folder / colour).mkdir(parents=True)
        for i in range(count):
            noise = rng.integers(-30, 30, (16, 16, 3))
            pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / colour / f"{i:02}.png")
    return folder


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    """Test data with fewer classes number them differently; names decide."""
    train = paint(tmp_path / "train", ["red", "green", "blue"], 12)
    test = paint(tmp_path / "test", ["red", "green"], 8)
    found = probe("pixels", test, fit_on=train).tasks["class"]
    assert found.score.accuracy == 1.0
    assert found.score.classes == 3


def test_a_class_that_was_never_fitted_is_refused(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 6)
    test = paint(tmp_path / "test", ["red", "blue"], 6)
    with pytest.raises(ValueError, match=r"class 'blue' of .* is not in"):
        probe("pixels", test, fit_on=train)


def test_the_encoder_is_never_changed(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    encoder.train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    probe(encoder, train, fit_on=train)
    assert encoder.training
    for key, value in encoder.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_floors_are_left_out_when_told(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 8)
    report = probe("random", train, fit_on=train, floors=False)
    assert report.tasks["class"].floor == {}
    assert probe("random", train, fit_on=train).tasks["class"].floor.keys() == {"pixels", "random"}


def test_every_kind_of_encoder_opens(tmp_path: Path) -> None:
    images = np.zeros((3, 32, 32, 3), np.uint8)
    assert open_encoder("pixels").features(images).shape == (3, 3072)
    assert open_encoder("random").features(images).shape == (3, 128)
    assert open_encoder("timm:mobilenetv3_small_050").features(images).shape == (3, 1024)
    with pytest.raises(ValueError, match="no encoder 'nowhere': give a run's folder"):
        open_encoder("nowhere")


def test_public_names_are_the_workflows() -> None:
    assert widefield.probe is probe
    assert set(widefield.__all__) <= set(dir(widefield))
    with pytest.raises(AttributeError, match="no attribute 'prob'"):
        _ = widefield.prob


def test_features_before_pooling_and_feature_dropouts_protocol(tmp_path: Path) -> None:
    train = paint(tmp_path / "train", ["red", "green"], 12)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    plain = probe(encoder, train, fit_on=train, floors=False)
    assert (plain.protocol, plain.features) == ("linear", "pooled")
    before = probe(encoder, train, fit_on=train, features="feature-map", floors=False)
    assert before.features == "feature-map"
    report = probe(encoder, train, fit_on=train, protocol="feature-dropout")
    assert (report.protocol, report.features) == ("feature-dropout", "feature-map")
    found = report.tasks["class"]
    assert found.score.accuracy > 0.9
    assert found.floor.keys() == {"pixels", "random"}
    assert found.score.knn == before.tasks["class"].score.knn
    assert report.to_json()["protocol"] == "feature-dropout"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"protocol": "linaer"}, "unknown protocol 'linaer': did you mean 'linear'"),
        ({"features": "featuremap"}, "unknown features 'featuremap': did you mean 'feature-map'"),
    ],
)
def test_unknown_ways_to_probe_are_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        probe("random", "photos:test", fit_on="photos", **options)
