from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import widefield
from widefield.inference.open_encoder import open_encoder


def images(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of which half are brighter, and which."""
    rng = np.random.default_rng(seed)
    bright = np.arange(n) % 2
    noise = rng.integers(0, 60, (n, 16, 16, 3))
    return (noise + 90 * bright[:, None, None, None]).astype(np.uint8), bright


def test_a_pipeline_is_fitted_and_cross_validated() -> None:
    x, y = images()
    pipeline = make_pipeline(widefield.Embedder("pixels"), LogisticRegression())
    assert cross_val_score(pipeline, x, y, cv=4).mean() == 1.0
    lot = np.random.default_rng(1).permutation(y)
    assert cross_val_score(pipeline, x, lot, cv=4).mean() < 0.8


def test_features_are_those_of_the_encoder() -> None:
    x, _ = images()
    found = widefield.Embedder("random").fit(x).transform(x[:5])
    exact = open_encoder("random").features(x[:5], precision="32").cpu().numpy()
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(widefield.embed("random", x[:5]).features, exact)
    assert found.dtype == np.float32


def test_fit_pretrains_where_no_encoder_is_named(tmp_path: Path) -> None:
    x, _ = images(n=32)
    settings = {"epochs": 1, "batch_size": 16, "encoder": "resnet-tiny", "device": "cpu"}
    embedder = widefield.Embedder(out=tmp_path / "run", settings=settings).fit(x)
    again = widefield.Embedder(tmp_path / "run").fit(x)
    np.testing.assert_array_equal(embedder.transform(x), again.transform(x))
    untrained = widefield.Embedder("random").fit(x).transform(x)
    assert not np.allclose(embedder.transform(x), untrained)
    unkept = widefield.Embedder(settings=settings).fit(x)
    np.testing.assert_array_equal(unkept.transform(x), embedder.transform(x))


def test_it_is_cloned_and_refused_as_scikit_learn_expects() -> None:
    embedder = widefield.Embedder("pixels", features="pooled")
    assert clone(embedder).get_params() == embedder.get_params()
    with pytest.raises(NotFittedError):
        embedder.transform(images()[0])
    with pytest.raises(ValueError, match="random"):
        widefield.Embedder("randon").fit(images()[0])


def test_paths_and_pil_images_give_the_features_of_their_folder(tmp_path: Path) -> None:
    """Sizes and modes differ, and so do the images that are fitted on."""
    x, y = images(6)
    modes = ("RGB", "L", "RGBA", "P", "CMYK", "1")
    pictures = [
        Image.fromarray(pixels).convert(mode).resize((16 + i, 20))
        for i, (pixels, mode) in enumerate(zip(x, modes, strict=True))
    ]
    paths = []
    for i, picture in enumerate(pictures):
        paths.append(tmp_path / f"{i}.tif")
        picture.save(paths[-1])
    embedder = widefield.Embedder("random").fit(pictures)
    found = embedder.transform(paths)
    whole = widefield.embed("random", tmp_path, quiet=True).features
    np.testing.assert_allclose(found, whole, atol=1e-5)
    np.testing.assert_array_equal(embedder.transform(pictures), found)
    np.testing.assert_array_equal(embedder.transform(np.array(paths)), found)
    np.testing.assert_allclose(embedder.transform([str(p) for p in paths[:2]]), found[:2])
    pipeline = make_pipeline(widefield.Embedder("pixels"), LogisticRegression())
    assert cross_val_score(pipeline, paths, y, cv=3).shape == (3,)


def test_features_have_names() -> None:
    x, _ = images(4)
    embedder = widefield.Embedder("pixels").fit(x)
    names = embedder.get_feature_names_out()
    assert len(names) == embedder.transform(x).shape[1] == 16 * 16 * 3
    assert names[0] == "embedder0"


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    good = Image.new("RGB", (16, 16))
    embedder = widefield.Embedder("pixels").fit([good])
    with pytest.raises(ValueError, match=r"some images cannot be read: .*a\.png"):
        embedder.transform([*[good] * 30, tmp_path / "a.png"])
    with pytest.raises(ValueError, match="item 1 of the list is of type int: give paths or PIL"):
        embedder.transform([good, 3])
    with pytest.raises(ValueError, match="list of images is empty"):
        embedder.transform([])
