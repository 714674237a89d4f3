"""Images that are not square: one height and width from the run on, in every command."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import widefield
from widefield.data import open_dataset
from widefield.encoders import build_encoder, load_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import open_train_test, training_data
from widefield.probes import extract
from widefield.train.run_dir import RunFolder
from widefield.workflows.embed import embed
from widefield.workflows.export import export
from widefield.workflows.pretrain import pretrain

HEIGHT, WIDTH = 16, 40
SMALL = {"method": "simclr", "batch_size": 16, "epochs": 1, "quiet": True, "device": "cpu"}
NARROW = {"projector_width": 16, "projector_dim": 8}


@pytest.fixture(scope="module", params=["resnet-tiny", "vit_tiny_patch16_224,depth=1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on a folder of images of 16 x 40, whose outer columns tell the class."""
    folder = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(0)
    for i in range(32):
        pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        pixels[:, :8] = 255 * (i % 2)
        (folder / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "images" / "ab"[i % 2] / f"{i:02d}.png")
    data, out = folder / "images", folder / "run"
    pretrain(data, out=out, encoder=request.param, views="gentle", **SMALL, **NARROW)
    return out


def pictures(run: Path) -> np.ndarray:
    return open_dataset(run.parent / "images").images


def test_every_command_sees_the_same_images(run: Path) -> None:
    images = pictures(run)
    assert images.shape == (32, HEIGHT, WIDTH, 3)
    extractor, data = open_encoder(run), run.parent / "images"
    seen = {
        "pretrain": training_data(RunFolder(path=run), quiet=True),
        "probe": extractor.open(data, like=training_data(RunFolder(path=run)), quiet=True),
        "embed": extractor.open(data, quiet=True),
    }
    assert {name: bool((s.images == images).all()) for name, s in seen.items()} == dict.fromkeys(
        seen, True
    )
    halves = open_train_test(extractor, data, max_examples=None, seed=0, quiet=True)
    assert halves.train.images.shape[1:] == halves.test.images.shape[1:] == images.shape[1:]


def test_probe_embed_and_load_give_equal_features(run: Path) -> None:
    images, extractor = pictures(run), open_encoder(run)
    encoder = widefield.load(run)
    expected = extract(encoder, images, precision="auto").cpu().numpy()
    probed = extractor.features(training_data(extractor.run, quiet=True).images).cpu().numpy()
    embedded = embed(run, run.parent / "images", quiet=True).features
    np.testing.assert_array_equal(probed, expected)
    np.testing.assert_array_equal(embedded, extract(encoder, images, precision="32").cpu().numpy())
    # Squares are other images, where the encoder takes them at all.
    cut = open_dataset(run.parent / "images", image_size=HEIGHT).images
    assert cut.shape != images.shape
    if encoder.config.name == "resnet-tiny":
        assert np.abs(extractor.features(cut).cpu().numpy() - expected).max() > 0.1


def test_what_is_exported_has_the_size_of_the_run(run: Path, tmp_path: Path) -> None:
    assert load_encoder(run).config.image_size == (HEIGHT, WIDTH)
    export(run, tmp_path / "encoder.safetensors")
    assert load_encoder(tmp_path / "encoder.safetensors").config.image_size == (HEIGHT, WIDTH)


def test_a_run_says_one_side_where_it_was_written_before(tmp_path: Path) -> None:
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    assert encoder.config.image_size == (16, 16)
    old = {**vars(encoder.config), "image_size": 16}
    assert type(encoder.config)(**old) == encoder.config
