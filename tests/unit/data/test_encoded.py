"""Images that stay encoded: the same examples, and crops of them at full resolution."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torchvision.transforms import RandomResizedCrop

from made_images import png16, saved
from ranks import in_processes
from runs import SMALL, Killed, assert_same, die_at
from widefield import embed, pretrain, probe
from widefield.core.types import Crop
from widefield.data import Loader, open_dataset
from widefield.data import cache as cache_module
from widefield.data.decode import decoding
from widefield.data.decode.crops import UNIFORMS, decode_crops, random_box
from widefield.data.encoded import EncodedImages
from widefield.train.run_dir import RunFolder
from widefield.views import build_views
from widefield.views.base import AugmentContext

CPU = torch.device("cpu")
CROP = Crop((0.08, 1.0), (3 / 4, 4 / 3))
FITS = ("crop", "pad", "squash")


def photo(height, width, seed=0):
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image, **options):
    return saved(image, "JPEG", quality=95, subsampling=0, **options)


def turned(image):
    exif = Image.Exif()
    exif[274] = 6
    return jpeg(image, exif=exif)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos of two classes, upright and turned, of 8 and 16 bits, and one that is cut off."""
    path = tmp_path_factory.mktemp("photos")
    for i in range(36):
        content = jpeg(photo(60, 80 + i, i)) if i % 3 else turned(photo(64, 90, i))
        (path / "ab"[i % 2]).mkdir(exist_ok=True)
        (path / "ab"[i % 2] / f"{i:02d}.jpg").write_bytes(content)
    (path / "a" / "deep.png").write_bytes(png16(np.arange(40 * 50).reshape(40, 50) * 20))
    (path / "b" / "cut.jpg").write_bytes(jpeg(photo(60, 80))[:700])
    return path


@pytest.mark.parametrize("fit", FITS)
def test_examples_are_those_of_the_decoded_data(folder, fit):
    decoded = open_dataset(folder, image_size=32, pixels="decoded", fit=fit)
    kept = open_dataset(folder, image_size=32, pixels="encoded", fit=fit)
    assert (kept.encoded, decoded.encoded) == (kept.images, None)
    assert len(kept) == 37
    assert (kept.digests() == decoded.digests()).all()
    np.testing.assert_array_equal(kept.images, decoded.images)
    np.testing.assert_array_equal(list(kept.images), decoded.images)
    for rows in (7, slice(3, 20, 5), np.array([9, 2, 2])):
        np.testing.assert_array_equal(kept.images[rows], decoded.images[rows])
        if not isinstance(rows, int):
            part = kept.subset(rows)
            assert part.encoded is not None
            np.testing.assert_array_equal(part.decoded().images, decoded.images[rows])
            assert (part.digests() == decoded.digests()[rows]).all()
    assert kept.skipped == decoded.skipped
    assert [skipped.path for skipped in kept.skipped] == ["b/cut.jpg"]
    for name in ("notes", "paths", "black_white", "fit"):
        assert getattr(kept, name) == getattr(decoded, name), name
    assert kept.form == decoded.form
    np.testing.assert_allclose(kept.channel_mean_std(), decoded.channel_mean_std())


def test_it_is_opened_once_and_then_known(folder, monkeypatch):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    first = open_dataset(folder, image_size=40, pixels="encoded")
    read = []
    again = open_dataset(folder, image_size=40, pixels="encoded", progress=read.append)
    assert read == []
    assert (first.digests() == again.digests()).all()
    assert again.black_white == first.black_white
    np.testing.assert_array_equal(first.images[:], again.images[:])


def test_auto_goes_by_memory_and_disk(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_dataset(folder, image_size=32).encoded is None
    on_disk = open_dataset(folder, image_size=32, memory_budget=0)
    assert isinstance(on_disk.images, np.memmap)
    monkeypatch.setattr(cache_module, "MAX_CACHE_BYTES", 38 * 48 * 48 * 3 - 1)
    small = open_dataset(folder, image_size=48, memory_budget=0)
    assert small.encoded is not None
    assert "decoded at each read: decoded images would take 0.3 MB, and" in small.storage
    assert isinstance(open_dataset(folder, image_size=32, memory_budget=0).images, np.memmap)
    monkeypatch.setattr(cache_module, "MAX_CACHE_BYTES", 1)  # what is there already is used
    assert isinstance(open_dataset(folder, image_size=32, memory_budget=0).images, np.memmap)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"x": np.zeros((9, 8, 8, 3), np.uint8)}, "have no encoded images"),
        ("photos", "have no encoded images"),
        ("{}:channels", "keep depth and channels"),
        ("{}+digits", "have planted features"),
    ],
)
def test_other_data_are_refused_in_one_line(folder, data, reason):
    data = data.format(folder) if isinstance(data, str) else data
    with pytest.raises(ValueError, match=f"{reason}: set it to auto or decoded"):
        open_dataset(data, pixels="encoded")
    with pytest.raises(ValueError, match=r"pixels 'encode'.*did you mean 'encoded'"):
        open_dataset(data, pixels="encode")


def test_boxes_are_distributed_as_torchvisions():
    uniforms, frame = np.random.default_rng(0).random((4000, UNIFORMS)).tolist(), (60, 90)
    ours = np.array([random_box(u, frame, CROP) for u in uniforms])
    torch.manual_seed(0)
    image = torch.empty(3, *frame)
    theirs = np.array([RandomResizedCrop.get_params(image, *CROP) for _ in range(4000)])
    for facts in (lambda b: b[:, 2] * b[:, 3], lambda b: b[:, 3] / b[:, 2], lambda b: b[:, 0]):
        for q in (0.1, 0.5, 0.9):
            a, b = np.quantile(facts(ours), q), np.quantile(facts(theirs), q)
            assert a == pytest.approx(b, rel=0.05, abs=1)
    assert random_box(uniforms[0], (10, 400), Crop((1.0, 1.0), (1.0, 1.0))) == (0, 195, 10, 10)
    inside = (ours[:, :2] >= 0).all() and (ours[:, :2] + ours[:, 2:] <= frame).all()
    assert inside


def whole_frame(image, fit, size):
    """Return what crops are taken of, at full resolution, in another way."""
    scale = max(image.height / size[0], image.width / size[1])
    frame = round(size[1] * scale), round(size[0] * scale)
    if fit == "crop":
        return image
    if fit == "squash":
        return image.resize(frame, Image.Resampling.BILINEAR)
    whole = Image.new("RGB", frame)
    whole.paste(image, ((frame[0] - image.width) // 2, (frame[1] - image.height) // 2))
    return whole


@pytest.mark.parametrize("side", [40, 200], ids=["small", "scaled by the JPEG"])
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("upright", [True, False])
def test_a_crop_is_that_of_the_whole_image(fit, upright, side):
    height, width = side, 2 * side
    image, size = photo(height, width), (24, 32)
    content = jpeg(image) if upright else turned(image.rotate(90, expand=True))
    frames = []

    def boxes(frame):
        frames.append(frame)
        h, w = frame
        return [(h // 4, w // 5, h // 2, w // 2), (0, 0, h, w)]

    out = np.empty((2, *size, 3), np.uint8)
    decode_crops(memoryview(content), out, boxes, fit=fit)
    whole = whole_frame(image, fit, size)
    assert frames == [(whole.height, whole.width)]
    gaps = []
    for crop, (top, left, h, w) in zip(out, boxes((whole.height, whole.width)), strict=True):
        part = whole.crop((left, top, left + w, top + h))
        expected = np.asarray(part.resize(size[::-1], Image.Resampling.BILINEAR)).astype(int)
        gaps.append(np.abs(crop - expected).mean())
        assert gaps[-1] < 10  # of the borders: half a pixel of a JPEG at a quarter of its size
    other = whole.crop((0, 0, whole.width // 2, whole.height // 2)).resize(size[::-1])
    control = np.abs(out[0] - np.asarray(other).astype(int)).mean()
    assert control > 3 * max(gaps), (control, gaps)


def test_a_jpeg_is_decoded_only_as_large_as_its_crops_need(monkeypatch):
    asked, original = [], JpegImageFile.draft
    monkeypatch.setattr(
        JpegImageFile,
        "draft",
        lambda image, mode, size: asked.append(size) or original(image, mode, size),
    )
    content, out = memoryview(jpeg(photo(160, 160))), np.empty((1, 32, 32, 3), np.uint8)
    for side, size in ((160, (32, 32)), (96, (53, 53)), (60, None)):
        asked.clear()
        decode_crops(content, out, lambda frame, side=side: [(0, 0, side, side)])
        assert asked == ([] if size is None else [size])


def batches(dataset, epoch=0, start=0, seed=0, views=2):
    loader = Loader(dataset, batch_size=8, device=CPU, seed=seed, crop=CROP, views=views)
    return list(loader.epoch(epoch, start))


def same(a, b):
    return all(
        torch.equal(x.index, y.index) and all(map(torch.equal, x.crops, y.crops))
        for x, y in zip(a, b, strict=True)
    )


def test_crops_are_a_function_of_seed_epoch_view_and_example(folder, monkeypatch):
    dataset = open_dataset(folder, image_size=32, pixels="encoded")
    first = batches(dataset)
    assert [len(batch.crops) for batch in first] == [2, 2, 2, 2]
    for batch in first:
        one, two = batch.crops
        assert one.shape == (8, 3, 32, 32)
        assert torch.equal(batch.x, one)
        assert not torch.equal(one, two)
        assert one.min() >= 0
        assert one.max() <= 1
    for count in (1, 5):  # whatever the number of threads
        monkeypatch.setattr(decoding, "available_cpus", lambda count=count: count)
        assert same(batches(dataset), first)
    assert same(batches(dataset, start=2), first[2:])
    where = {int(i): x for batch in first for i, x in zip(batch.index, batch.x, strict=True)}
    for changed in (batches(dataset, epoch=1), batches(dataset, seed=1)):
        shared = [
            torch.equal(x, where[int(i)])
            for batch in changed
            for i, x in zip(batch.index, batch.x, strict=True)
            if int(i) in where
        ]
        assert shared
        assert not any(shared)
    labels = dataset.labels["class"]
    assert all((b.labels["class"].numpy() == labels[b.index.numpy()]).all() for b in first)


def test_without_a_crop_batches_are_whole_images(folder):
    kept, decoded = (
        open_dataset(folder, image_size=32, pixels=kind) for kind in ("encoded", "decoded")
    )
    pairs = (Loader(x, batch_size=8, device=CPU).epoch(3) for x in (kept, decoded))
    for a, b in zip(*pairs, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.index, b.index)
        assert a.crops == ()


def test_views_do_not_crop_again_what_is_cropped():
    x = torch.rand(4, 3, 16, 16)
    crops = tuple(torch.rand(4, 3, 16, 16) for _ in range(2))
    given = AugmentContext(crops=crops)
    only = build_views("crop")
    assert only.crop == CROP
    assert all(map(torch.equal, only(x, 2, None, given), crops))
    assert not any(map(torch.equal, only(x, 2), crops))
    twice = build_views("crop+expert")
    assert twice.crop == CROP
    views = twice(x, 2, torch.Generator().manual_seed(0), given)
    assert not any(map(torch.equal, views, crops))
    assert [build_views(name).crop for name in ("color", "noise+crop")] == [None, None]
    assert build_views("gentle").crop.scale == (0.7, 1.0)
    assert math.isclose(build_views("documents").crop.ratio[0], 0.9)


RUN = {**SMALL, "max_examples": None, "batch_size": 8, "image_size": 32, "method": "simclr"}
RUN |= {"pixels": "encoded", "epochs": 2, "fit": "pad"}


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    return pretrain(f"{folder}:train", out=tmp_path_factory.mktemp("whole") / "run", **RUN).run


def test_a_killed_run_ends_as_one_that_was_not(folder, whole, tmp_path):
    with pytest.raises(Killed):
        pretrain(f"{folder}:train", out=tmp_path / "run", on_step=die_at(3), **RUN)
    pretrain(f"{folder}:train", out=tmp_path / "run", resume=True, quiet=True)
    assert_same(tmp_path / "run", whole)
    with pytest.raises(ValueError, match="has pixels 'encoded', not 'decoded'"):
        pretrain(f"{folder}:train", out=whole, resume=True, pixels="decoded")


def test_a_run_is_probed_as_if_it_were_decoded(folder, whole, tmp_path):
    own = probe(whole, floors=False, quiet=True)
    files = embed(whole, folder, quiet=True)
    pixels = open_dataset(folder, image_size=32, fit="pad", pixels="decoded")
    assert own.tasks["class"].score.train_examples > 0
    decoded = embed(whole, {"x": pixels.images}, quiet=True)
    np.testing.assert_array_equal(files.features, decoded.features)
    cut = open_dataset(folder, image_size=32, pixels="decoded")  # the control
    assert np.abs(embed(whole, {"x": cut.images}, quiet=True).features - files.features).max() > 0


def train_where_memory_lacks(rank, folder, out, lacking):
    """Train in two processes, of which `lacking` has no memory, and note what this one reads."""
    cache_module.MAX_CACHE_BYTES = 1
    cache_module.free_host_memory = lambda: 0 if rank == lacking else 2**40
    read, crops = [], EncodedImages.crops
    EncodedImages.crops = lambda *args, **options: read.append(1) or crops(*args, **options)
    pretrain(f"{folder}:train", out=out / f"{lacking}", **{**RUN, "pixels": "auto", "epochs": 1})
    (out / f"{lacking}-{rank}").write_text("encoded" if read else "decoded")


@pytest.mark.parametrize(("lacking", "kept"), [(0, "encoded"), (1, "decoded")])
def test_all_processes_go_by_the_first(folder, tmp_path, monkeypatch, lacking, kept):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    in_processes(2, train_where_memory_lacks, folder, tmp_path, lacking)
    assert [(tmp_path / f"{lacking}-{rank}").read_text() for rank in range(2)] == [kept] * 2
    assert RunFolder(path=tmp_path / f"{lacking}").recipe().pixels == kept


def test_a_file_that_is_gone_ends_the_run_in_one_line(folder, tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(16):
        (tmp_path / "images" / f"{i}.jpg").write_bytes(jpeg(photo(40, 40, i)))

    def remove(metrics):
        (tmp_path / "images" / "3.jpg").unlink(missing_ok=True)

    with pytest.raises(ValueError, match=r"^3\.jpg was read .* \(No such file.*\): restore it$"):
        pretrain(tmp_path / "images", out=tmp_path / "run", on_step=remove, **{**RUN, "epochs": 9})
