"""One rule of what is read: the same tree of files in a folder, archives, shards and by URL."""

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

import made_sources
from made_images import saved
from made_sources import CLASSES, add, encoded
from widefield.data import Dataset, open_dataset
from widefield.data.readers.archives import sample_keys

Files = dict[str, bytes]
BASE = encoded(12)
SHADOW = b"\0\5\x16\7" + bytes(200)


def other(name: str = "png", side: int = 12) -> bytes:
    return saved(Image.new("RGB", (side, side), "red"), name)


def shards(files: Files, path: Path) -> Path:
    """Write two plain tar files, which are one source."""
    path = path / "parts"
    path.mkdir()
    for part in range(2):
        with tarfile.open(path / f"{part}.tar", "w") as archive:
            for name in list(files)[part::2]:
                add(archive, name, files[name])
    return path


def with_dots(files: Files, path: Path) -> Path:
    """Write a tar file as `tar cf x.tar .` does."""
    return made_sources.tar({f"./{name}": content for name, content in files.items()}, path)


def windows_zip(files: Files, path: Path) -> Path:
    """Write a zip file as older programs of Windows do."""
    return made_sources.zipped({n.replace("/", "\\"): x for n, x in files.items()}, path)


def url(files: Files, path: Path) -> str:
    memory = fsspec.filesystem("memory")
    for name, content in files.items():
        memory.pipe(f"{path}/data/{name}", content)
    return f"memory:/{path}/data"


SOURCES: dict[str, Callable[[Files, Path], Path | str]] = {
    "folder": made_sources.folder,
    "zip": made_sources.zipped,
    "zip of Windows": windows_zip,
    "tar": made_sources.tar,
    "tar of .": with_dots,
    "tar files": shards,
    "url": url,
}

THUMBNAILS = {f"{n.split('/')[0]}/@eaDir/{n}/SYNOPHOTO_THUMB_M.png": other() for n in BASE}
EXTRA: dict[str, tuple[Files, str | None]] = {
    "nothing": ({}, None),
    "thumbnails": (THUMBNAILS, "12 files in @eaDir, which other programs write"),
    "recycle bin": ({f"$RECYCLE.BIN/$R{i}.png": other() for i in range(6)}, "in $RECYCLE.BIN"),
    "snapshots": ({"#snapshot/1/ant/0.png": other()}, "1 files in #snapshot"),
    "macOS": ({f"__MACOSX/{n.replace('/', '/._')}": SHADOW for n in BASE}, "12 files in __MACOSX"),
    "shadows": ({n.replace("/", "/._"): SHADOW for n in BASE}, None),
    "hidden": ({f".cache/{i}.png": other() for i in range(6)}, None),
    "masks": (
        {f"masks/{i}.png": other() for i in range(6)},
        "6 files in masks, which hold targets",
    ),
    "masks inside": ({f"{n.split('/')[0]}/Masks/0.png": other() for n in BASE}, "3 files in Masks"),
    "named masks": (
        {n.replace(".png", "_mask.PNG"): other() for n in BASE},
        "12 files such as 'ant/000_mask.PNG' beside their images",
    ),
    "masks with dots": ({n.replace(".png", ".seg.png"): other() for n in BASE}, "000.seg.png'"),
    "other kinds": ({"ant/a.txt": b"text", "b.json": b"{}"}, "1 .json, 1 .txt"),
    "arrays": ({"ant/000.npy": b"array"}, "1 .npy"),
}


def read(data: Path | str) -> Dataset:
    return open_dataset(data if isinstance(data, str) else str(data))


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """Return another empty folder."""
    (tmp_path / "beside").mkdir()
    return tmp_path / "beside"


@pytest.mark.parametrize(
    ("source", "extra"),
    [("folder", extra) for extra in EXTRA]
    + [(source, extra) for source in SOURCES for extra in ("thumbnails", "hidden", "named masks")],
)
def test_what_lies_beside_the_images_is_not_read(tmp_path: Path, source: str, extra: str) -> None:
    files, message = EXTRA[extra]
    dataset = read(SOURCES[source](BASE | files, tmp_path))
    assert (len(dataset), dataset.classes) == (12, {"class": CLASSES})
    assert (
        sum(
            (x == np.asarray(Image.open(io.BytesIO(content)))).all()
            for x in dataset.images
            for content in BASE.values()
        )
        == 12
    )
    told = [note for note in dataset.notes if note.startswith("not read")]
    assert len(told) == (message is not None)
    assert message is None or message in told[0]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("outer", ["data/", "home/me/data/"])
def test_a_folder_around_all_is_no_class(
    tmp_path: Path, source: str, outer: str, beside: Path
) -> None:
    files = {f"{outer}{name}": content for name, content in BASE.items()}
    files |= {f"{outer}masks/{i}.png": other() for i in range(2)}
    dataset = read(SOURCES[source](files, tmp_path))
    assert (len(dataset), dataset.classes) == (12, {"class": CLASSES})
    assert any(f"all files are in {outer}, which is no class" in note for note in dataset.notes)
    only = read(SOURCES[source]({f"{outer}0.png": other()}, beside))
    assert only.classes == {"class": ("data",)}  # the control: a class of its own


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("outer", ["", "data/"])
def test_splits_and_folds_are_no_classes(
    tmp_path: Path, source: str, outer: str, beside: Path
) -> None:
    splits = {f"{outer}{('train', 'test')[i % 2]}/{n}": x for i, (n, x) in enumerate(BASE.items())}
    data = SOURCES[source](splits, tmp_path)
    remedy = (
        "name one of them, such as" if source in ("folder", "url") else "unpack it and name one"
    )
    with pytest.raises(ValueError, match=f"test and train, which are splits.*{remedy}"):
        read(data)
    folds = {f"{outer}fold{i % 2}/{n}": x for i, (n, x) in enumerate(BASE.items())}
    dataset = read(SOURCES[source](folds, beside))
    assert (len(dataset), dataset.classes) == (12, {"class": CLASSES})


@pytest.mark.parametrize("source", SOURCES)
def test_examples_of_two_kinds_are_refused_everywhere(
    tmp_path: Path, source: str, beside: Path
) -> None:
    data = SOURCES[source](BASE | {"ant/a.wav": b"RIFF"}, tmp_path)
    with pytest.raises(ValueError, match="holds 12 images and 1 sounds; put them into folders"):
        read(data)
    if source != "folder":
        data = SOURCES[source]({"ant/a.wav": b"RIFF"}, beside)
        with pytest.raises(ValueError, match="holds sounds: unpack them into a folder"):
            read(data)


@pytest.mark.parametrize("source", SOURCES)
def test_files_of_arrays_alone_are_images(tmp_path: Path, source: str) -> None:
    rng, files = np.random.default_rng(0), {}
    for i in range(4):
        content = io.BytesIO()
        np.save(content, rng.integers(0, 4_000, (8, 8, 5)).astype(np.uint16))
        files[f"{'ab'[i % 2]}/{i}.npy"] = content.getvalue()
    dataset = read(SOURCES[source](files, tmp_path))
    assert dataset.images.shape == (4, 8, 8, 5)
    assert dataset.classes == {"class": ("a", "b")}


def test_links_in_archives_are_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind, target in (
            ("a/0.png", tarfile.REGTYPE, ""),
            ("b/1.png", tarfile.LNKTYPE, "a/0.png"),
            ("b/2.png", tarfile.SYMTYPE, "../a/0.png"),
            ("b/3.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("b/4.png", tarfile.FIFOTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = len(other()) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(other()))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/0.png", other())
        for name, target in (("b/2.png", "../a/0.png"), ("b/3.png", "damaged.png")):
            link = zipfile.ZipInfo(name)
            link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, target)
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(content.replace(b"damaged.png", b"damage.png\0"))
    for name, paths in (
        ("a.tar", ["a/0.png", "b/1.png", "b/2.png"]),
        ("a.zip", ["a/0.png", "b/2.png"]),
    ):
        dataset = open_dataset(tmp_path / name)
        assert dataset.paths == paths
        assert (dataset.images == dataset.images[0]).all()
        assert any("1 links to what is not in the archive" in note for note in dataset.notes)


def samples(path: Path, members: Callable[[int], dict[str, object]], count: int = 12) -> Dataset:
    """Write a shard of `members(i)`: content, or a number that is the gray value of an image."""
    with tarfile.open(path / "a.tar", "w") as archive:
        for i in range(count):
            for name, content in members(i).items():
                if isinstance(content, int):
                    content = saved(Image.new("RGB", (12, 12), (content,) * 3))
                assert isinstance(content, bytes)
                add(archive, name, content)
    return open_dataset(path / "a.tar")


LABEL = {".cls": lambda i: b"%d" % (i % 3), ".json": lambda i: b'{"class": %d}' % (i % 3)}
SHARDS: dict[str, tuple[Callable[[int], str], list[str], str | None]] = {
    # name of the sample, ends of its images with the one that is read first, and the note
    "plain": (lambda i: f"s{i:03d}", [".png"], None),
    "numbers with a dot": (lambda i: f"{20 + i // 4}.{5 * (i % 4):02d}", [".png"], None),
    "a name and a number": (lambda i: f"img.{i:04d}", [".png"], None),
    "folders with a dot": (lambda i: f"v1.{i % 2}/{i:03d}", [".png"], None),
    "dates": (lambda i: f"2024.05.{i + 1:02d}", [".png"], None),
    "a mask": (lambda i: f"{i:03d}", [".png", ".mask.png"], "which hold targets"),
    "a mask beside a dot": (lambda i: f"v1.{i:02d}", [".png", ".mask.png"], "which hold targets"),
    "depth": (lambda i: f"{i:03d}", [".image.png", ".depth.png"], "12 samples have several images"),
    "stereo": (
        lambda i: f"{i:03d}",
        [".left.png", ".right.png"],
        "'000.left.png' and not '000.right",
    ),
    "two formats": (lambda i: f"{i:03d}", [".jpg", ".png"], "12 samples have several images"),
}


@pytest.mark.parametrize("suffix", LABEL)
@pytest.mark.parametrize("kind", SHARDS)
def test_every_image_of_a_shard_keeps_its_label(tmp_path: Path, kind: str, suffix: str) -> None:
    key, ends, message = SHARDS[kind]

    def members(i: int) -> dict[str, object]:
        images: dict[str, object] = {
            f"{key(i)}{end}": 200 * k + 10 * i for k, end in enumerate(ends)
        }
        return images | {f"{key(i)}{suffix}": LABEL[suffix](i)}

    dataset = samples(tmp_path, members)
    read = dataset.images[:, 0, 0, 0] // 10
    assert sorted(read.tolist()) == list(range(12))
    assert (dataset.labels["class"] == read % 3).all()
    assert dataset.paths == sorted(map(key, range(12)))
    notes = [note for note in dataset.notes if "several images" in note or "targets" in note]
    assert len(notes) == (message is not None)
    assert message is None or message in notes[0]


def test_a_description_of_an_archive_is_no_label(tmp_path: Path) -> None:
    """One file of JSON beside the folders, as others write it, does not make it a shard."""
    for name in ("info.json", "annotations/instances.json"):
        path = made_sources.tar(BASE | {name: b'{"year": 2014}'}, tmp_path)
        dataset = open_dataset(path)
        assert dataset.classes == {"class": CLASSES}
        assert any("1 .json" in note for note in dataset.notes)


def test_entries_that_are_no_classes_are_told(tmp_path: Path) -> None:
    dataset = samples(
        tmp_path,
        lambda i: {
            f"{i:03d}.png": 10 * i,
            f"{i:03d}.json": b'{"class": %d, "score": 0.5, "boxes": [1, 2], "big": %d}'
            % (i % 2, 2**70),
        },
    )
    assert dataset.classes["class"] == ("0", "1")
    assert any("left out: score, boxes" in note for note in dataset.notes)
    labels = dict.fromkeys(range(2), b"{")
    broken = samples(
        tmp_path, lambda i: {f"{i:03d}.png": i, f"{i:03d}.json": labels.get(i, b'{"class": 1}')}, 60
    )
    assert len(broken) == 60
    assert any("labels that cannot be read" in note for note in broken.notes)


def test_keys_of_samples() -> None:
    def keys(images: list[str], sidecars: list[str]) -> tuple[list[str], list[str]] | None:
        found = sample_keys([(0, x) for x in images], [(0, x) for x in sidecars])
        return found and ([key for _, key in found[0]], [key for _, key in found[1]])

    assert keys(["v1", "v1.5"], ["v1", "v1.5"]) == (["v1", "v1.5"], ["v1", "v1.5"])
    assert keys(["a", "b"], ["a.meta", "b.meta"]) == (["a", "b"], ["a", "b"])
    assert keys(["a.left", "a.right"], ["a.meta"]) == (["a", "a"], ["a"])
    assert keys(["22.05", "22.10"], ["22.05"]) == (["22.05", "22.10"], ["22.05"])
    assert keys(["a", "b"], ["info"]) is None
    assert keys([os.path.join("v1.0", "a")], [os.path.join("v1.0", "a")]) == (
        ["v1.0/a"],
        ["v1.0/a"],
    )


@pytest.mark.parametrize("extra", ["nothing", "thumbnails", "macOS", "masks", "named masks"])
def test_an_image_folder_of_torchvision_is_read_by_the_same_rule(
    tmp_path: Path, extra: str
) -> None:
    from torchvision.datasets import ImageFolder

    files, message = EXTRA[extra]
    made_sources.folder(BASE | files, tmp_path / "data")
    dataset = open_dataset(ImageFolder(tmp_path / "data", allow_empty=True))
    assert (len(dataset), dataset.classes) == (12, {"class": CLASSES})
    told = [note for note in dataset.notes if note.startswith("not read")]
    assert len(told) == (message is not None)


@pytest.mark.parametrize("make", [made_sources.parquet, made_sources.tar])
def test_shards_of_two_splits_are_not_one_source(tmp_path: Path, make: Callable[..., Path]) -> None:
    for number, name in enumerate(("train-00000-of-00002", "train-00001-of-00002", "extra")):
        file = make(BASE, tmp_path)
        file.rename(tmp_path / f"{name}.{number}{file.suffix}")
    assert len(open_dataset(tmp_path)) == 36
    file = make(BASE, tmp_path)
    file.rename(tmp_path / f"validation-00000-of-00001{file.suffix}")
    with pytest.raises(ValueError, match="shards of train and validation, which are splits: put"):
        open_dataset(tmp_path)
