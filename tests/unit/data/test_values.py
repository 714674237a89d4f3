"""Images of any depth and number of channels, kept end to end."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from runs import SMALL
from widefield import embed, pretrain, probe
from widefield.data import open_dataset
from widefield.encoders import load_encoder
from widefield.train.run_dir import RunFolder
from widefield.views import build_views


def stack(path, pages):
    """Write pages [C, H, W] as a TIFF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [Image.fromarray(page) for page in pages]
    first.save(path, save_all=True, append_images=rest)


def values(count=20, channels=5, dtype=np.uint16, side=12):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return rng.normal(-300, 900, (count, channels, side, side)).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, (count, channels, side, side)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "channels"), [(np.uint8, 5), (np.uint16, 1), (np.uint16, 2), (np.float32, 64)]
)
def test_every_form_keeps_depth_and_channels(tmp_path, dtype, channels):
    x = values(channels=channels, dtype=dtype)
    for i, image in enumerate(x):
        stack(tmp_path / "tiff" / f"{i:02d}.tif", image)
        for folder, saved in {"npy": np.moveaxis(image, 0, -1), "first": image}.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            np.save(tmp_path / folder / f"{i:02d}.npy", saved)
    np.savez(tmp_path / "x.npz", x=x)
    array = open_dataset(tmp_path / "x.npz")
    assert array.images.shape == (20, 12, 12, channels)
    assert array.images.dtype == dtype
    for other in (f"{tmp_path}/tiff:channels", f"{tmp_path}/npy", f"{tmp_path}/first"):
        dataset = open_dataset(other)
        assert dataset.images.shape == array.images.shape
        assert (dataset.images == array.images).all()
        assert dataset.black_white == array.black_white
    x = np.moveaxis(x, 1, -1).astype(np.float64)
    if dtype == np.uint8:
        assert (array.images == x).all()
        return
    assert array.black_white is not None
    low, high = np.array(array.black_white).T
    assert np.allclose(
        np.percentile(x, [0.1, 99.9], axis=(0, 1, 2)), [low, high], rtol=1e-3, atol=30
    )
    white = 65535 if dtype == np.uint16 else 1
    back = array.images / white * (high - low) + low
    inside = (x >= low) & (x <= high)
    assert np.abs(back - x)[inside].max() <= (0.51 if dtype == np.uint16 else 1e-3)


def test_more_pages_than_channels_are_refused_at_any_height(tmp_path):
    stack(tmp_path / "0.tif", values(1, 70)[0])
    with pytest.raises(ValueError, match=r"an array \[12, 12, 70\]: expected .* C up to 64"):
        open_dataset(f"{tmp_path}:channels")


def test_no_level_between_the_percentiles_is_lost():
    x = np.arange(4096, dtype=np.uint16).reshape(1, 64, 64, 1)
    levels = np.unique(open_dataset(x).images)
    assert len(levels) >= 4096 * 0.998


def test_pages_as_examples(tmp_path):
    x = values(count=4, channels=6)
    for i, pages in enumerate(x):
        stack(tmp_path / "ab"[i // 2] / f"{i}.tif", pages)
    dataset = open_dataset(f"{tmp_path}:pages")
    assert dataset.images.shape == (24, 12, 12, 1)
    assert dataset.paths[:2] == ["a/0.tif page 1", "a/0.tif page 2"]
    assert dataset.labels["class"].tolist() == [0] * 12 + [1] * 12
    train, test = (open_dataset(f"{tmp_path}:pages:{split}") for split in ("train", "test"))
    assert len(train) + len(test) == 24
    assert train.spec.endswith(":pages:train")
    files = [{path.partition(" page ")[0] for path in half.paths} for half in (train, test)]
    assert files[0].isdisjoint(files[1])
    assert [len(np.unique(half.groups)) for half in (train, test)] == [2, 2]
    assert "pages of a file are a group: 4 groups of 24 pages" in train.notes


def test_pages_of_one_file_are_split_on_request_alone(tmp_path):
    stack(tmp_path / "0.tif", values(1, 30)[0])
    assert open_dataset(f"{tmp_path}:pages").groups is None
    with pytest.raises(ValueError, match="pages of one file, which resemble each other"):
        open_dataset(f"{tmp_path}:pages:train")
    halves = (
        open_dataset(f"{tmp_path}:pages:{split}", group=r"regex:(page \d+)")
        for split in ("train", "test")
    )
    assert [len(half) for half in halves] == [24, 6]


def test_files_of_one_page_each_have_no_groups(tmp_path):
    for i, pages in enumerate(values(12, 1)):
        stack(tmp_path / f"{i}.tif", pages)
    assert open_dataset(f"{tmp_path}:pages").groups is None


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.uint16, (12, 12, 3)), (np.uint32, (12, 12)), (np.int8, (12, 12))],
)
def test_pages_of_every_depth_are_their_own(tmp_path, dtype, shape):
    span = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(span.min, span.max, (20, 2, *shape), dtype, endpoint=True)
    for i, pages in enumerate(x):
        photometric = "rgb" if len(shape) == 3 else "minisblack"
        tifffile.imwrite(tmp_path / f"{i:02d}.tif", pages, photometric=photometric)
    x = x.reshape(20, 2, 12, 12, -1)
    for spec, want in (
        ("pages", x.reshape(40, 12, 12, -1)),
        ("channels", np.concatenate([*x.swapaxes(0, 1)], -1)),
    ):
        dataset = open_dataset(f"{tmp_path}:{spec}")
        array = open_dataset(want.astype(np.uint16 if dtype == np.uint16 else np.float32))
        assert dataset.images.dtype == array.images.dtype
        assert np.allclose(dataset.images, array.images, rtol=1e-6)
        assert np.allclose(dataset.black_white, array.black_white)


def test_mixed_channels_and_depths_are_skipped_and_counted(tmp_path):
    for i, pages in enumerate(values(count=60)):
        stack(tmp_path / f"{i:02d}.tif", pages)
    stack(tmp_path / "60.tif", values(1, 4)[0])
    stack(tmp_path / "61.tif", values(1, 5, np.uint8)[0])
    stack(tmp_path / "62.tif", np.full((5, 12, 12), np.nan, np.float32))
    dataset = open_dataset(f"{tmp_path}:channels")
    assert len(dataset) == 60
    assert [skipped.reason for skipped in dataset.skipped] == [
        "4 channels, and the others have 5",
        "values of type uint8, and the others are uint16",
        "values that are not finite (NaN or infinity)",
    ]
    stack(tmp_path / "63.tif", values(1, 3)[0])
    with pytest.raises(ValueError, match="4 of 64 files cannot be read, more than 5%"):
        open_dataset(f"{tmp_path}:channels")


def low_bits(count, seed):
    """Five channels of 16 bits whose class is the texture of the low byte; the high byte is alike.

    The high byte of a channel is the same everywhere, but for a bright pixel in every fifth image
    and five random ones in each; the low byte is one of two gratings, in a random phase.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    phase = rng.integers(0, 8, count)
    row, column = np.mgrid[:16, :16]
    along = np.where(y[:, None, None] == 1, row, column)
    grating = 40 + 80 * (((along + phase[:, None, None]) // 2) % 2)
    x = (
        256 * np.array([30, 31, 30, 32, 30])
        + grating[..., None]
        + rng.integers(0, 20, (count, 16, 16, 5))
    )
    for _ in range(5):
        place = np.arange(count), rng.integers(0, 16, count), rng.integers(0, 16, count)
        x[place] += 256 * rng.integers(-4, 5, (count, 5))
    x[::5, 3, 4] = 65000
    return {"x": x.astype(np.uint16), "grating": y}


def test_the_low_bits_carry_the_task(tmp_path):
    """A probe finds the class in 16 bits; in a copy of 8 bits it is at chance."""
    settings = {**SMALL, "max_examples": None, "batch_size": 40, "epochs": 1, "image_size": None}
    settings |= {"method": "simclr", "seed": 0}
    train, test = low_bits(80, 0), low_bits(80, 1)
    accuracy = {}
    for name in ("16 bits", "8 bits"):
        if name == "8 bits":
            train, test = ({**d, "x": (d["x"] >> 8).astype(np.uint8)} for d in (train, test))
        run = tmp_path / name
        pretrain({"x": train["x"]}, out=run, **settings)
        report = probe(run, test, train_data=train, floors=False, quiet=True)
        accuracy[name] = report.tasks["grating"].score.value
    assert accuracy["16 bits"] > 0.9
    assert 0.35 < accuracy["8 bits"] < 0.65
    form = RunFolder(path=tmp_path / "16 bits").form().black_white
    assert np.shape(form) == (5, 2)
    assert load_encoder(tmp_path / "16 bits").config.black_white == form
    assert load_encoder(tmp_path / "8 bits").config.black_white is None
    first = embed(tmp_path / "16 bits", low_bits(80, 0), quiet=True).features
    again = embed(tmp_path / "16 bits", {"x": low_bits(80, 0)["x"][:20]}, quiet=True).features
    assert np.allclose(first[:20], again, atol=1e-5)  # the run's scale, not that of these images


@pytest.mark.parametrize("views", ["expert", "gentle", "expert+channel-drop", "moderate"])
def test_views_of_many_channels(views):
    """Each channel has a jitter of its own, and channels stay apart."""
    augmentation = build_views(views, channels=8)
    x = torch.full((64, 8, 12, 12), 0.5)
    x[:, ::2] = 0.25
    x[:, 3] += 0.1 * torch.rand(12, 12, generator=torch.Generator().manual_seed(0))
    (view,) = augmentation(x, 1, torch.Generator().manual_seed(1))
    assert view.shape == x.shape
    means = view.mean((2, 3))
    assert (view - means[..., None, None]).abs()[:, [0, 1, 2, 4, 5, 6, 7]].max() < 1e-5
    changed = (means - x.mean((2, 3))).abs() > 1e-4
    if views != "none":
        assert 0.6 < changed.any(1).float().mean() <= 1
        ratio = means[:, 0] / means[:, 2]  # equal channels get different factors
        assert (ratio - 1).abs()[changed.any(1)].median() > 0.02


def test_planted_features_are_drawn_in_16_bits():
    x = np.random.default_rng(0).integers(0, 65536, (12, 32, 32, 3)).astype(np.uint16)
    dataset = open_dataset({"x": x})
    from widefield.data.planted import Canvas, read_plant

    overlay = read_plant("digits", {}).draw(
        Canvas(shape=(32, 32, 3), seed=0, held_out=False, class_ids=None, class_count=0)
    )
    planted = dataset.with_overlay(overlay)
    assert planted.images.dtype == np.uint16
    covered = planted.masks(np.arange(12))[..., 0]
    assert planted.images[covered].max() == 65535
    assert (planted.images == dataset.images)[~covered].all()
