"""Sources of other tools: tables, tar and zip files, manifests, URLs, data sets in Python."""

import io
import json
import os
import shutil
import signal
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import made_sources
from forked import CONTEXT
from made_sources import CLASSES, FORMS, add, encoded
from runs import SMALL, noted, train_and_die
from widefield import pretrain
from widefield.data import cache, open_dataset
from widefield.data.labels import read_labels
from widefield.data.readers import hdf5

FILES = encoded(30, side=16)


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    path = tmp_path_factory.mktemp("forms")
    made = {}
    for name, make in FORMS.items():
        (path / name).mkdir()
        made[name] = make(FILES, path / name)
    return made


@pytest.fixture(scope="module")
def reference(forms):
    return open_dataset(forms["folder"])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_examples(forms, reference, form):
    dataset = open_dataset(str(forms[form]))
    assert (dataset.digests() == reference.digests()).all()
    assert dataset.classes == {"class": CLASSES}
    assert (dataset.labels["class"] == reference.labels["class"]).all()
    assert len(set(dataset.paths)) == 30


SHORT = {**SMALL, "max_examples": None, "batch_size": 10, "epochs": 2, "image_size": None}
SHORT |= {"method": "simclr"}


def losses(data, out, **settings):
    """Return step -> loss of the epoch so far."""
    taken = {}
    pretrain(str(data), out=out, on_step=noted(taken.__setitem__), **settings)
    return taken


def losses_until_killed(data, out, stop, **settings):
    """Return the losses of a process that SIGKILL ends after step `stop`."""
    file = out.with_suffix(".losses")
    process = CONTEXT.Process(
        target=train_and_die, args=(str(data), out, file, stop), kwargs=settings
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    steps = map(json.loads, file.read_text().splitlines())
    return dict(steps)


@pytest.fixture(scope="module")
def expected(forms, tmp_path_factory):
    """Return how pixels are kept -> losses of the folder."""
    return {
        pixels: losses(
            forms["folder"], tmp_path_factory.mktemp("run") / "run", pixels=pixels, **SHORT
        )
        for pixels in ("decoded", "encoded")
    }


@pytest.mark.parametrize(
    ("form", "pixels"),
    [
        ("folder", "decoded"),
        ("folder", "encoded"),
        ("parquet", "encoded"),
        ("hugging face", "decoded"),
        ("tar", "encoded"),
        ("npz", "decoded"),
    ],
)
def test_the_same_training_from_every_form(forms, tmp_path, expected, form, pixels):
    """Losses are equal bit for bit, in a run that is killed in its second epoch and resumed."""
    first = losses_until_killed(forms[form], tmp_path / "run", 4, pixels=pixels, **SHORT)
    rest = losses(forms[form], tmp_path / "run", resume=True, quiet=True)
    assert first.keys() | rest.keys() == expected[pixels].keys() == set(range(1, 7))
    assert first | rest == expected[pixels]
    assert all(rest[step] == first[step] for step in first.keys() & rest.keys())


def test_another_order_is_another_training(tmp_path, expected):
    """The control of the test above; crops at full resolution are other crops."""
    assert expected["decoded"] != expected["encoded"]
    path = made_sources.npz(dict(reversed(FILES.items())), tmp_path)
    assert losses(path, tmp_path / "run", **{**SHORT, "epochs": 1}) != expected["decoded"]


def test_classes_of_several_plain_tar_files_are_their_folders(tmp_path):
    files = encoded(12)
    for part in range(2):
        with tarfile.open(tmp_path / f"{part}.tar", "w") as archive:
            for name in list(files)[part::2]:
                add(archive, name, files[name])
    dataset = open_dataset(tmp_path)
    assert dataset.classes == {"class": CLASSES}
    assert dataset.paths[:2] == ["0/ant/000.png", "0/ant/002.png"]


def written(path, arrays):
    if path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[key] = array
    else:
        import zarr

        group = zarr.open_group(path, mode="w")
        for key, array in arrays.items():
            group[key] = array
    return path


def test_arrays_of_other_libraries(tmp_path):
    x = np.random.default_rng(0).integers(0, 65_536, (6, 12, 12, 5)).astype(np.uint16)
    arrays = {"x": x, "class": np.arange(6) % 2}
    np.savez(tmp_path / "a.npz", **arrays)
    expected = open_dataset(tmp_path / "a.npz")
    for name in ("a.h5", "a.zarr"):
        dataset = open_dataset(written(tmp_path / name, arrays))
        assert (dataset.images == expected.images).all()
        assert dataset.labels["class"].tolist() == expected.labels["class"].tolist()
        assert dataset.black_white == expected.black_white


@pytest.mark.parametrize(("name", "dtype"), [("a.h5", np.uint8), ("a.zarr", np.uint16)])
def test_images_larger_than_memory_are_read_in_parts(tmp_path, monkeypatch, name, dtype):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (600, 4, 4, 3)).astype(dtype)
    file = written(tmp_path / name, {"x": x, "class": np.arange(600) % 2})
    labels = {f"row {row}": "ab"[row % 2] for row in range(0, 600, 2)}
    labels["row 1"] = "b"
    kinds = ({}, {"max_examples": 400}, {"labels": read_labels(labels)})
    expected = [open_dataset(file, **options, memory_budget=0) for options in kinds]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(hdf5, "free_host_memory", lambda: 20_000)
    counts, read = [], hdf5.ImagesInFile.__getitem__

    def counted(self, index):
        found = read(self, index)
        counts.append(len(found) if found.ndim == 4 else 1)
        return found

    monkeypatch.setattr(hdf5.ImagesInFile, "__getitem__", counted)
    for options, same in zip(kinds, expected, strict=True):
        dataset = open_dataset(file, **options, memory_budget=0)
        assert (dataset.images == same.images).all()
        assert dataset.labels["class" if "class" in dataset.labels else "label"].tolist()
        assert {t: y.tolist() for t, y in dataset.labels.items()} == {
            t: y.tolist() for t, y in same.labels.items()
        }
    assert 0 < max(counts) <= 512 < sum(counts)


def test_what_is_not_read_in_parts_has_to_fit(tmp_path, monkeypatch):
    floats = np.random.default_rng(0).random((100, 4, 4, 3))
    file = written(tmp_path / "a.h5", {"x": floats})
    monkeypatch.setattr(hdf5, "free_host_memory", lambda: 20_000)
    with pytest.raises(ValueError, match=r"save images as uint8 or uint16 \[n, H, W, C\]"):
        open_dataset(file)


def test_a_part_that_is_damaged_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "free_host_memory", lambda: 100)
    path, message = damaged_zarr(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_dataset(path)


def test_chunks_of_zarr_are_part_of_its_identity(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    array = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array["x"] = np.zeros((4, 8, 8, 3), np.uint8)
    assert not open_dataset(tmp_path / "a.zarr", memory_budget=0).images.any()
    array["x"][:] = 7
    assert (open_dataset(tmp_path / "a.zarr", memory_budget=0).images == 7).all()


def test_files_without_permission_are_one_line(forms, tmp_path, monkeypatch):
    def denied(self, *args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    for form in ("parquet", "arrow", "tar", "zip", "csv", "npz"):
        with pytest.raises(ValueError, match=f"{forms[form].name}' cannot be read: Permission"):
            open_dataset(forms[form])


def test_a_url_needs_a_cache(forms, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match=r"cannot write to the cache .*; set XDG_CACHE_HOME"):
        open_dataset(f"file://{forms['tar']}")


def test_python_data_sets(forms, reference):
    from torchvision.datasets import ImageFolder

    images = [Image.open(io.BytesIO(content)) for content in FILES.values()]
    names = np.array([name.split("/")[0] for name in FILES])
    ids = reference.labels["class"]

    class Pairs(TorchDataset):
        classes = CLASSES

        def __len__(self):
            return 30

        def __getitem__(self, i):
            return images[i].copy(), int(ids[i])

    class HuggingFace:  # what is read of a `datasets.Dataset`
        __module__ = "datasets.arrow_dataset"
        _indices = None
        data = type("Table", (), {"table": made_sources.table(FILES)})
        features = type("Features", (), {"arrow_schema": pa.schema([])})

        def flatten_indices(self):
            return self

    tensors = torch.from_numpy(reference.images.copy()).permute(0, 3, 1, 2)
    sources = [images, Pairs(), TensorDataset(tensors, torch.from_numpy(ids)), HuggingFace()]
    sources += [ImageFolder(forms["folder"]), made_sources.table(FILES)]
    sources += [{"x": images, "class": names}]
    for source in sources:
        dataset = open_dataset(source)
        assert (dataset.digests() == reference.digests()).all()
        if source is not images and not isinstance(source, TensorDataset):
            assert (dataset.labels["class"] == ids).all()
    with pytest.raises(ValueError, match="no stable order"):
        open_dataset(type("Stream", (IterableDataset,), {"__iter__": lambda self: iter(())})())
    with pytest.raises(ValueError, match="item 0 is str; expected a PIL image"):
        open_dataset(type("Text", (Pairs,), {"__getitem__": lambda self, i: "text"})())


def test_items_of_bfloat16(reference):
    tensors = torch.from_numpy(reference.images.copy()).permute(0, 3, 1, 2) / 255
    half = tensors.bfloat16()
    found = open_dataset(TensorDataset(half))
    assert (found.images == open_dataset(TensorDataset(half.float())).images).all()


def test_masked_arrays_are_refused(reference):
    masked = np.ma.masked_less(reference.images, 9)
    ids = np.ma.masked_less(np.arange(30), 2)
    for data, name in ((masked, "x"), ({"x": reference.images, "class": ids}, "class")):
        with pytest.raises(ValueError, match=f"'{name}' is a masked array: leave out or fill"):
            open_dataset(data)
    whole = np.ma.masked_array(reference.images)
    assert (open_dataset(whole).digests() == open_dataset(reference.images).digests()).all()


def test_lists_of_files_and_images(forms, reference):
    paths = [forms["folder"] / path for path in reference.paths]
    mixed = [Image.open(path) if i % 2 else str(path) for i, path in enumerate(paths)]
    entries = {
        entry.path: entry for name in CLASSES for entry in os.scandir(forms["folder"] / name)
    }
    for data in (paths, [entries[str(path)] for path in paths], mixed):
        dataset = open_dataset(data)
        assert (dataset.digests() == reference.digests()).all()
        assert dataset.paths[0] == str(paths[0])
    assert dataset.paths[1] == "image 1"


def test_urls(forms, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    for name, content in FILES.items():
        memory.pipe(f"/w44/images/{name}", content)
    memory.put(str(forms["tar"]), "/w44/images.tar")
    memory.put(str(forms["zip"]), "/w44/images.zip?download=1")
    memory.pipe(
        "/w44/list.csv",
        b"path\n" + b"".join(b"memory://w44/images/%s\n" % n.encode() for n in FILES),
    )
    for name in ("images", "images.tar", "list.csv", "images.zip?download=1"):
        url = f"memory://w44/{name}"
        dataset = open_dataset(url)
        assert (dataset.digests() == reference.digests()).all()
        assert dataset.spec == url
    train, test = (open_dataset(f"memory://w44/images:{split}") for split in ("train", "test"))
    assert len(train) + len(test) == 30
    assert open_dataset("memory://w44/images+digits").labels.keys() == {"class", "digits"}
    with pytest.raises(ValueError, match=r"cannot read 'memory://w44/no.tar': no such file"):
        open_dataset("memory://w44/no.tar")
    with pytest.raises(ValueError, match=r"install what it needs, pip install 'widefield\[urls\]'"):
        open_dataset("nosuch://bucket/a.tar")


@pytest.mark.parametrize("key", ["mtime", "ETag", "etag", "Last-Modified", "LastModified"])
def test_a_file_of_a_url_that_changed_is_copied_again(tmp_path, monkeypatch, key):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    info = type(memory).info
    for value in (10, 20):  # of one size
        content = io.BytesIO()
        np.save(content, np.full((4, 8, 8, 3), value, np.uint8))
        memory.pipe("/changed/x.npy", content.getvalue())
        known = {key: value}
        monkeypatch.setattr(type(memory), "info", lambda *at, k=known, **_: {**info(*at), **k})
        for _ in range(2):
            assert (open_dataset("memory://changed/x.npy").images == value).all()
    assert len([*(tmp_path / "widefield" / "urls").iterdir()]) == 2


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in for the package `datasets`, and the names that it was asked for."""
    asked = []

    class Splits:
        def save_to_disk(self, path):
            for split in ("train", "validation"):
                (Path(path) / split).mkdir(parents=True)
                saved = made_sources.hugging_face(FILES, Path(path) / split)
                for file in saved.iterdir():
                    file.rename(Path(path) / split / file.name)
                saved.rmdir()
            text = json.dumps({"splits": ["train", "validation"]})
            (Path(path) / "dataset_dict.json").write_text(text)

    class Stream:
        def __init__(self, count):
            self.count = count

        def take(self, count):
            return Stream(count)

        def to_parquet(self, path):
            pq.write_table(made_sources.table(FILES).slice(0, self.count), path)

    def load_dataset(name, split=None, streaming=False):
        asked.append(name if split is None else f"{name}/{split}")
        if name == "owner/none":
            raise RuntimeError("no such\ndata set")
        return Stream(len(FILES)) if streaming else Splits()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_a_data_set_of_the_hub_is_fetched_on_request_alone(hub, reference, tmp_path):
    with pytest.raises(
        ValueError, match="'hf:owner/name/train' is not on this machine: add download"
    ):
        open_dataset("hf:owner/name/train")
    assert hub == []
    settings = {**SHORT, "epochs": 1, "quiet": True}
    run = tmp_path / "run"
    pretrain("hf:owner/name/train", out=run, download=True, **settings)
    assert hub == ["owner/name"]
    dataset = open_dataset("hf:owner/name/validation")
    assert (dataset.digests() == reference.digests()).all()
    assert dataset.classes == {"class": CLASSES}
    assert dataset.spec == "hf:owner/name/validation"
    assert len(open_dataset("hf:owner/name/train:test")) < 30
    for name in ("hf:owner/name", "hf:owner/name/test"):
        with pytest.raises(ValueError, match="has the splits train, validation: name one of them"):
            open_dataset(name)
    pretrain("hf:owner/name/train", out=run, resume=True, download=True, epochs=2, quiet=True)
    assert hub == ["owner/name"]  # once


def test_the_first_examples_of_a_split_are_streamed(hub, reference, tmp_path):
    name = "hf:owner/name/train[:20]"
    with pytest.raises(ValueError, match=r"'hf:owner/name/train\[:20\]' is not on this machine"):
        open_dataset(name)
    settings = {**SHORT, "epochs": 1, "quiet": True}
    pretrain(name, out=tmp_path / "run", download=True, **settings)
    dataset = open_dataset(name)
    assert (dataset.digests() == reference.digests()[:20]).all()
    assert dataset.spec == name
    assert 0 < len(open_dataset(f"{name}:test")) < 20
    assert hub == ["owner/name/train"]  # once, and no other split
    with pytest.raises(ValueError, match="'hf:owner/name/train' is not on this machine"):
        open_dataset("hf:owner/name/train")  # the control: the rest was not fetched


@pytest.mark.parametrize("name", ["hf:owner/name[:20]", "hf:owner/name/train[:0]"])
def test_examples_without_a_split_or_a_number_are_refused(hub, name, tmp_path):
    with pytest.raises(ValueError, match=r"name a split and how many, such as 'hf:owner/name/trai"):
        pretrain(name, out=tmp_path / "run", download=True)
    assert hub == []


def test_what_cannot_be_fetched_is_one_line(hub, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"cannot fetch 'hf:owner/none': no such data set$"):
        pretrain("hf:owner/none", out=tmp_path / "run", download=True)
    with pytest.raises(ValueError, match=r"cannot fetch 'hf:owner/none/train\[:9\]': no such data"):
        pretrain("hf:owner/none/train[:9]", out=tmp_path / "run", download=True)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="needs the package datasets: pip install datasets"):
        pretrain("hf:owner/name", out=tmp_path / "run", download=True)
    assert not (tmp_path / "run").exists()
    assert not list((tmp_path / "cache").rglob("*.draft"))


def test_copies_of_urls_are_limited(forms, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    size = forms["tar"].stat().st_size
    for i in range(3):
        memory.put(str(forms["tar"]), f"/limited/{i}.tar")

    def kept():
        return sorted(file.name for file in (tmp_path / "widefield" / "urls").rglob("*.tar"))

    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 2.5 * size)
    for i in (0, 1, 0, 2):  # the first is used again
        open_dataset(f"memory://limited/{i}.tar")
    assert kept() == ["0.tar", "2.tar"]
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 0)
    open_dataset("memory://limited/1.tar")
    assert kept() == ["1.tar"]  # the one in use stays


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"])
def test_compressed_tar_files_name_the_remedy(tmp_path, suffix):
    path = tmp_path / f"images{suffix}"
    with tarfile.open(path, f"w:{'gz' if 'g' in suffix else suffix.split('.')[-1]}") as archive:
        add(archive, "a/0.png", FILES["ant/000.png"])
    for data in (path, tmp_path):
        with pytest.raises(ValueError, match=r"is a compressed tar file, .*: unpack each once"):
            open_dataset(data)


@pytest.mark.parametrize("kind", ["string", "category"])
def test_a_column_split(tmp_path, kind):
    words = pa.array(["train", "Test", "train"] * 10)
    words = words.dictionary_encode() if kind == "category" else words
    rows = made_sources.table(FILES).append_column("split", words)
    pq.write_table(rows, tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert len(open_dataset(path)) == 30
    assert open_dataset(f"{path}:test").paths == list(FILES)[1::3]
    assert len(open_dataset(f"{path}:train")) == 20
    bad = rows.set_column(rows.num_columns - 1, "split", pa.array(["train", "val", "test"] * 10))
    pq.write_table(bad, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="the column 'split' holds 'val': expected train and test"):
        open_dataset(path)


def test_columns_that_are_no_tasks(tmp_path):
    rows = made_sources.table(encoded(30))
    extra = {
        "caption": [f"text {i}" for i in range(30)],
        "score": np.linspace(0, 1, 30),
        "kind": [" Big", "big", "NA"] * 10,
        "part": [0, None, 2] * 10,
    }
    for name, values in extra.items():
        rows = rows.append_column(name, pa.array(values))
    dataset = open_dataset(rows)
    assert dataset.classes == {"class": CLASSES}
    assert "columns without classes, left out: caption, score" in dataset.notes
    assert any(
        note.startswith("'kind' is left out: 10 examples have no label") for note in dataset.notes
    )
    kept = open_dataset(rows, unlabeled=True)
    assert kept.classes["kind"] == ("big",)
    assert kept.labels["kind"].tolist() == [0, 0, -1] * 10
    assert kept.labels["part"].tolist() == [0, -1, 2] * 10


def one_file(rows, path):
    pq.write_table(rows, path / "a.parquet", row_group_size=7)
    return path / "a.parquet"


def sharded(rows, path):
    for part, first in enumerate((0, 7, 7)):  # one of them is empty
        count = (7, 0, len(rows))[part]
        pq.write_table(rows.slice(first, count), path / f"{part}.parquet")
    return path


def arrow_file(rows, path):
    with pa.ipc.new_file(path / "a.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)
    return path / "a.arrow"


def saved(rows, path):
    with pa.ipc.new_stream(str(path / "data-0.arrow"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-0.arrow"}]}))
    return path


TABLES = {"file": one_file, "shards": sharded, "arrow": arrow_file, "saved": saved}
TABLES["in memory"] = lambda rows, path: rows
RECORD = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), RECORD], ids=str)
def test_a_table_may_hold_images_alone(reference, tmp_path, form, kind):
    images = [{"bytes": x, "path": None} if kind == RECORD else x for x in FILES.values()]
    dataset = open_dataset(TABLES[form](pa.table({"image": pa.array(images, kind)}), tmp_path))
    assert (dataset.digests() == reference.digests()).all()
    assert (dataset.paths[29], dataset.labels) == ("row 29", {})


def cut_off(forms, path):
    whole = forms["tar"].read_bytes()
    files = encoded(60)
    made_sources.tar(files, path)
    whole = (path / "images.tar").read_bytes()
    last = next(iter(files))
    (path / "images.tar").write_bytes(whole[: whole.rindex(files[last][-40:])])
    return (
        path / "images.tar",
        "2 unreadable files skipped, the first 'images.tar': the shard ends early",
    )


def damaged_header(forms, path):
    made_sources.tar(encoded(60), path)
    content = bytearray((path / "images.tar").read_bytes())
    last = content.rindex(b"ustar") // 512 * 512
    content[last : last + 512] = b"\xff" * 512
    (path / "images.tar").write_bytes(content)
    message = f"the first 'images.tar': the shard is damaged from byte {last} on"
    return path / "images.tar", f"1 unreadable file skipped, {message}"


def without_image(forms, path):
    rows = made_sources.table(encoded(60)).to_pylist()
    rows[7]["image"] = None
    pq.write_table(pa.Table.from_pylist(rows), path / "a.parquet")
    name = rows[7]["path"]
    return (
        path / "a.parquet",
        f"1 unreadable file skipped, the first '{name}': a row without an image",
    )


def label_without_image(forms, path):
    made_sources.shards(encoded(60), path)
    with tarfile.open(path / "shards" / "0001.tar", "a") as archive:
        add(archive, "lost.json", b"{}")
    return (
        path / "shards",
        "1 unreadable file skipped, the first 'lost.json': a row without an image",
    )


def missing_file(forms, path):
    made_sources.manifest(encoded(60), path)
    (path / "listed/ant/003.png").unlink()
    return path / "list.csv", "'listed/ant/003.png': No such file or directory"


def repeated_file(forms, path):
    made_sources.manifest(encoded(60), path)
    with (path / "list.csv").open("a") as file:
        file.write("listed/ant/003.png,ant\n,ant\n")
    return (
        path / "list.csv",
        "2 unreadable files skipped, the first 'listed/ant/003.png': listed twice",
    )


def damaged_member(forms, path):
    made_sources.zipped(encoded(60), path)
    content = bytearray((path / "images.zip").read_bytes())
    content[300] ^= 255
    (path / "images.zip").write_bytes(content)
    return path / "images.zip", "1 unreadable file skipped, the first 'ant/000.png': "


BAD_EXAMPLES = (
    cut_off,
    damaged_header,
    without_image,
    label_without_image,
    missing_file,
    repeated_file,
    damaged_member,
)


@pytest.mark.parametrize("damage", BAD_EXAMPLES)
def test_bad_examples_are_skipped_and_counted(forms, tmp_path, damage):
    path, message = damage(forms, tmp_path)
    dataset = open_dataset(path)
    assert any(message in note for note in dataset.notes), dataset.notes
    assert 58 <= len(dataset) <= 60
    assert len(dataset.skipped) in (1, 2)
    assert len(dataset.paths) == len(dataset.images)
    files = encoded(60)  # names and pixels stay together
    for name, image in zip(dataset.paths, dataset.images, strict=True):
        original = name.removeprefix("listed/").split("/", 1)[-1].replace("_", "/", 1)
        original = original if original in files else f"{original.removesuffix('.png')}.png"
        original = next(n for n in files if n.endswith(original.rsplit("/", 1)[-1]))
        assert (np.asarray(Image.open(io.BytesIO(files[original]))) == image).all()


def test_too_many_bad_examples_are_refused(tmp_path):
    made_sources.manifest(encoded(30), tmp_path)
    shutil.rmtree(tmp_path / "listed" / "ant")
    with pytest.raises(ValueError, match="10 of 30 files cannot be read, more than 5%"):
        open_dataset(tmp_path / "list.csv")


CONTENTS = {
    "a.zip": (b"PK no zip file", "cannot be read: not a zip file, or cut off"),
    "a.arrow": (b"ARROW1 and no more", "is not a readable Arrow file"),
    "a.csv": (b"name,class\na.png,1\n", "a.csv has no column 'path': a table lists images or"),
    "values.csv": (b"0.1,0.1,9.8\n0.2,0.1,9.7\n", "give values of sensors as windows \\[n, chan"),
    "two.csv": (b"path,kind,kind\na.png,1,2\n", "two.csv has two columns 'kind': leave one"),
    "again.csv": (
        b"path,kind,size\na.png,ant,1\nb.png,bee,2\na.png,ant,3\n",
        "again.csv' lists 'a.png' twice, with size '1' and '3': keep one row of each path",
    ),
    "a.h5": (b"no HDF5", "is not a readable HDF5 file|HDF5 files need an extra: pip install"),
    "urls.csv": (b"path\nfile:///data/0.wav\n", "urls.csv' lists URLs of sounds: download these"),
    "state.json": (b"[", "state.json' cannot be read: save the data set again"),
    "dataset_dict.json": (
        b'{"splits": ["train", "test"]}',
        "holds the splits train and test: name one of them, such as ",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_files_that_are_no_source_are_one_line(tmp_path, name):
    content, message = CONTENTS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as info:
        open_dataset(tmp_path if name.endswith(".json") else tmp_path / name)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("w", "holds no images: expected members such as .jpg"),
        ("w:gz", "is not a plain tar file: unpack a compressed one first"),
    ],
)
def test_tar_files_without_plain_images(tmp_path, mode, message):
    tarfile.open(tmp_path / "a.tar", mode).close()
    with pytest.raises(ValueError, match=message):
        open_dataset(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            [pa.table({"left": [b"a"], "right": [b"b"]})],
            "several columns of bytes, left and right: name the one",
        ),
        ([made_sources.table(FILES).slice(0, 0)], "has no rows: give at least one image"),
        (
            [made_sources.table(FILES), made_sources.table(FILES).drop_columns(["class"])],
            "1.parquet' has other columns than ",
        ),
    ],
)
def test_tables_without_one_column_of_images(tmp_path, tables, message):
    for i, rows in enumerate(tables):
        pq.write_table(rows, tmp_path / f"{i}.parquet")
    with pytest.raises(ValueError, match=message):
        open_dataset(tmp_path)


def test_shards_name_their_classes_alike(tmp_path):
    def shard(name, *classes):
        features = {"label": {"_type": "ClassLabel", "names": classes}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        images = [content for _, content in zip(range(4), FILES.values(), strict=False)]
        rows = pa.table({"image": images, "label": [0, 1, 0, 1]})
        pq.write_table(rows.replace_schema_metadata(metadata), tmp_path / name)

    shard("0.parquet", "cat", "dog")
    shard("1.parquet", "cat", "dog")
    assert open_dataset(tmp_path).classes == {"label": ("cat", "dog")}
    shard("1.parquet", "dog", "cat")
    with pytest.raises(ValueError, match=r"1.parquet' names the classes of 'label' otherwise"):
        open_dataset(tmp_path)


def damaged_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "a.h5", "w") as file:
        file["x"] = np.zeros((4, 8, 8, 3), np.uint8)
    content = bytearray((path / "a.h5").read_bytes())
    content[600:2200] = b"\xff" * 1600
    (path / "a.h5").write_bytes(content)
    return path / "a.h5", "a.h5' is not a readable HDF5 file: "


def damaged_zarr(path):
    zarr = pytest.importorskip("zarr")
    zarr.open_group(path / "a.zarr", mode="w")["x"] = np.ones((4, 8, 8, 3), np.uint8)
    chunk = next(file for file in (path / "a.zarr" / "x" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(bytes(50))
    return path / "a.zarr", "a.zarr' is not a readable Zarr file: "


def no_zarr(path):
    (path / "a.zarr").mkdir()
    return path / "a.zarr", r"is not a readable Zarr file|Zarr files need an extra: pip install"


def damaged_parquet(path, columns):
    pq.write_table(pa.table({"label": [f"label {i}" for i in range(500)], **columns}), path / "a")
    content = (path / "a").read_bytes()
    (path / "a.parquet").write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    return path / "a.parquet", "a.parquet' is not a readable Parquet file: "


def damaged_table(path):
    return damaged_parquet(path, {"image": [b"an image"] * 500})


def damaged_manifest(path):
    return damaged_parquet(path, {"path": [f"{i}.png" for i in range(500)]})


DAMAGES = [damaged_hdf5, damaged_zarr, no_zarr, damaged_table, damaged_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_arrays_are_one_line(tmp_path, damage):
    path, message = damage(tmp_path)
    with pytest.raises(ValueError, match=message) as info:
        open_dataset(path)
    assert "\n" not in str(info.value)
