import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from made_images import png16
from widefield.data import cache as cache_module
from widefield.data import open_dataset
from widefield.data import open_images as images_module
from widefield.data.labels import read_labels


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "widefield"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for i in range(40):
        pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:02d}.png")
    return tmp_path / "images"


def decoded_files(folder, **options):
    calls = []
    dataset = open_dataset(folder, progress=lambda *done: calls.append(done), **options)
    return dataset, bool(calls)


def test_small_data_stay_in_memory(folder, cache):
    dataset = open_dataset(folder)
    assert not isinstance(dataset.images, np.memmap)
    assert dataset.images.flags.writeable
    assert "kept in memory: 0.0 MB" in dataset.storage
    assert not cache.exists()


def test_large_data_are_a_read_only_map_equal_to_memory(folder, cache):
    size = 40 * 20 * 20 * 3
    assert not isinstance(open_dataset(folder, memory_budget=size).images, np.memmap)
    dataset = open_dataset(folder, memory_budget=size - 1)
    assert isinstance(dataset.images, np.memmap)
    assert not dataset.images.flags.writeable
    assert (dataset.images == open_dataset(folder).images).all()
    assert (dataset.digests() == open_dataset(folder).digests()).all()
    (entry,) = cache.iterdir()
    assert str(entry) in dataset.storage


def test_the_next_run_decodes_nothing(folder, cache):
    first, decoded = decoded_files(folder, memory_budget=0)
    assert decoded
    second, decoded = decoded_files(folder, memory_budget=0)
    assert not decoded
    assert (first.images == second.images).all()
    assert first.paths == second.paths
    assert len(list(cache.iterdir())) == 1


def test_anything_that_changes_the_pixels_makes_another_entry(folder, cache):
    runs = [
        lambda: open_dataset(folder, memory_budget=0),
        lambda: open_dataset(folder, memory_budget=0, image_size=16),
        lambda: open_dataset(folder, memory_budget=0, max_examples=8),
        lambda: open_dataset(f"{folder}:train", memory_budget=0),
        lambda: open_dataset(f"{folder}+digits", memory_budget=0),
        lambda: open_dataset(f"{folder}+digits", memory_budget=0, seed=1),
        lambda: open_dataset(f"{folder}+digits", memory_budget=0, held_out=True),
        lambda: open_dataset(f"{folder}+digits:alpha=0.5", memory_budget=0),
    ]
    for count, run in enumerate(runs, start=1):
        run()
        assert len(list(cache.iterdir())) == count
    status = (folder / "05.png").stat()
    os.utime(folder / "05.png", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    runs[0]()
    assert len(list(cache.iterdir())) == len(runs) + 1


@pytest.mark.parametrize(("plant", "max_examples"), [("", 8), ("+stacked-digits", None)])
def test_other_labels_make_another_entry_where_the_pixels_go_by_them(
    folder, cache, plant, max_examples
):
    first, second = (
        read_labels({f"{i:02d}.png": "cat" if i < cats else "dog" for i in range(40)})
        for cats in (4, 20)
    )
    for labels in (first, second):
        memory, disk = (
            open_dataset(
                f"{folder}{plant}", max_examples=max_examples, labels=labels, memory_budget=budget
            )
            for budget in (None, 0)
        )
        assert disk.paths == memory.paths
        assert (disk.images == memory.images).all()
    assert len(list(cache.iterdir())) == 2


def test_other_labels_change_no_entry_where_the_pixels_do_not_go_by_them(folder, cache):
    for label in ("cat", "dog"):
        labels = read_labels({"00.png": "ant"} | {f"{i:02d}.png": label for i in range(1, 40)})
        open_dataset(folder, labels=labels, memory_budget=0)
    assert len(list(cache.iterdir())) == 1


def test_as_many_other_examples_make_another_entry(folder, cache):
    whole = open_dataset(folder)
    for row in (3, 8):
        left_out = whole.paths[row]
        labels = read_labels({path: "a" for path in whole.paths if path != left_out})
        for options in ({"exclude": (left_out,)}, {"labels": labels}):
            dataset = open_dataset(folder, memory_budget=0, **options)
            assert left_out not in list(dataset.paths)
            assert (dataset.images == np.delete(whole.images, row, axis=0)).all()


def test_tables_in_memory_have_no_entry(folder, cache):
    tables = [
        pa.table({"image": [(folder / f"{i:02d}.png").read_bytes() for i in rows]})
        for rows in (range(10), range(10, 20))
    ]
    first, second = (open_dataset(table, memory_budget=0) for table in tables)
    assert (first.images != second.images).any()
    assert not cache.exists()


def test_what_many_files_hold_is_cached_for_every_command(folder, cache, monkeypatch):
    assert decoded_files(folder)[1]
    assert not cache.exists()  # decoding it again costs less than the disk
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    first, decoded = decoded_files(folder)
    assert decoded
    assert "for later commands" in first.storage
    monkeypatch.chdir(folder.parent)
    for name, options in (
        ("images", {}),
        (f"{folder}/", {"seed": 5}),
        (folder, {"black_white": (0, 255)}),
    ):
        again, decoded = decoded_files(name, **options)
        assert not decoded
        assert again.images.flags.writeable
        assert (again.images == first.images).all()
        assert again.paths == first.paths
    assert not decoded_files(folder, memory_budget=0)[1]
    assert decoded_files(f"{folder}:train")[1]
    assert decoded_files(f"{folder}+digits")[1]


def test_values_of_many_bits_are_cached_with_black_and_white(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png16(np.full((8, 8), 1002 * i // 2)))
    assert decoded_files(tmp_path)[0].black_white == (0, 1002)
    same, decoded = decoded_files(tmp_path, black_white=(0, 1002))
    assert not decoded
    assert same.black_white == (0, 1002)
    other, decoded = decoded_files(tmp_path, black_white=(0.0, 4095.0))
    assert decoded
    assert other.images.max() == round(1002 / 4095 * 255)


def test_arrays_that_have_no_name_are_never_cached(cache, monkeypatch):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    for value in (3, 200):
        dataset = open_dataset(np.full((4, 8, 8, 3), value, np.uint8), image_size=16)
        assert (dataset.images == value).all()
    assert not cache.exists()


def test_many_files_need_no_cache(folder, cache, monkeypatch):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    size = 40 * 20 * 20 * 3
    usage = SimpleNamespace(free=10 * size - 1)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: usage)
    assert len(open_dataset(folder)) == 40
    assert list(cache.iterdir()) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "00.png"))
    assert len(open_dataset(folder)) == 40


@pytest.mark.parametrize("file", ["record.json", "pixels.npy"])
@pytest.mark.parametrize("budget", [0, None])
def test_a_damaged_entry_is_made_anew(folder, cache, monkeypatch, file, budget):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    whole = open_dataset(folder, memory_budget=budget).images.copy()
    (entry,) = cache.iterdir()
    content = (entry / file).read_bytes()
    (entry / file).write_bytes(content[: len(content) // 2])
    again, decoded = decoded_files(folder, memory_budget=budget)
    assert decoded
    assert (again.images == whole).all()


def rewritten(entry, change):
    """Change the record of an entry, which keeps its digest."""
    file = entry / "record.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


DAMAGE = {
    "empty record": lambda entry: (entry / "record.json").write_text("{}"),
    "other rows": lambda entry: rewritten(entry, lambda record: record.update(rows=[3, 10**6])),
    "rows left out": lambda entry: rewritten(entry, lambda record: record.pop("failed")),
    "a list": lambda entry: (entry / "record.json").write_text("[1, 2]"),
    "deep": lambda entry: (entry / "record.json").write_text("[" * 100_000),
    "no text": lambda entry: (entry / "record.json").write_bytes(b"\xff\xfe\x80"),
    "no array": lambda entry: (
        np.savez(entry / "pixels", x=np.zeros(3))
        or (entry / "pixels.npz").replace(entry / "pixels.npy")
    ),
    "other shape": lambda entry: np.save(entry / "pixels.npy", np.zeros((40, 9, 9, 3), np.uint8)),
    "vast shape": lambda entry: (entry / "pixels.npy").write_bytes(
        (entry / "pixels.npy").read_bytes().replace(b"(40, 20, 20, 3)", b"(9999999999999)")
    ),
    "a folder": lambda entry: (entry / "record.json").unlink() or (entry / "record.json").mkdir(),
    "a file": lambda entry: shutil.rmtree(entry) or entry.write_text("in the way"),
    "a broken link": lambda entry: shutil.rmtree(entry) or entry.symlink_to("nowhere"),
    "unreadable": lambda entry: entry.chmod(0),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("budget", [0, None])
def test_no_damage_of_an_entry_is_an_error(folder, cache, monkeypatch, name, budget):
    monkeypatch.setattr(cache_module, "KEPT_FROM", 1)
    whole = open_dataset(folder, memory_budget=budget).images.copy()
    (entry,) = cache.iterdir()
    DAMAGE[name](entry)
    again, decoded = decoded_files(folder, memory_budget=budget)
    assert decoded or (name == "unreadable" and os.geteuid() == 0)  # root can read it
    assert (again.images == whole).all()
    assert len(again.paths) == 40
    assert not decoded_files(folder, memory_budget=budget)[1]
    assert [path.name for path in cache.iterdir()] == [entry.name]


@pytest.mark.parametrize("denied", ["listing", "pixels"])
def test_an_entry_that_cannot_be_read_is_made_anew(folder, cache, monkeypatch, denied):
    """As for another user, whom no test can be when it runs as root."""
    whole = open_dataset(folder, memory_budget=0).images.copy()
    open_memmap, read_text, allowed = np.lib.format.open_memmap, Path.read_text, []

    def deny(function, name):
        def call(path, *args, **options):
            if options.get("mode") == "w+":
                allowed.append(True)
            if not allowed and Path(path).name == name:
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *args, **options)

        return call

    monkeypatch.setattr(np.lib.format, "open_memmap", deny(open_memmap, "pixels.npy"))
    if denied == "listing":
        monkeypatch.setattr(Path, "read_text", deny(read_text, "record.json"))
    again, decoded = decoded_files(folder, memory_budget=0)
    assert decoded
    assert (again.images == whole).all()


@pytest.mark.parametrize("checked", [True, False])
def test_an_entry_of_other_images_is_made_anew(folder, cache, monkeypatch, checked):
    """The control: without the digest, other pixels are returned."""
    if not checked:
        monkeypatch.setattr(cache_module, "_digest", lambda entry, record: None)
    own = open_dataset(folder, memory_budget=0).images.copy()
    (entry,) = cache.iterdir()
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    for i, file in enumerate(other.iterdir()):
        Image.new("RGB", (20, 20), (i, 0, 0)).save(file)
    open_dataset(other, memory_budget=0)
    (foreign,) = set(cache.iterdir()) - {entry}
    shutil.rmtree(entry)
    shutil.copytree(foreign, entry)
    found = open_dataset(folder, memory_budget=0)
    assert (found.images == own).all() == checked
    (entry / "record.json").write_text("{}")
    assert (open_dataset(folder, memory_budget=0).images == own).all() == checked


def test_planted_and_skipped_are_the_same_on_disk_as_in_memory(folder, cache):
    (folder / "11.png").write_text("broken")
    memory = open_dataset(f"{folder}+shapes+digits", seed=3)
    for _ in range(2):  # made, then found
        disk = open_dataset(f"{folder}+shapes+digits", seed=3, memory_budget=0)
        assert isinstance(disk.images, np.memmap)
        assert (disk.images == memory.images).all()
        assert disk.skipped == memory.skipped
        assert disk.paths == memory.paths
        assert disk.labels.keys() == memory.labels.keys()
        assert all((disk.labels[task] == memory.labels[task]).all() for task in disk.labels)


def test_a_run_that_dies_leaves_nothing_behind(folder, cache):
    def die(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_dataset(folder, memory_budget=0, progress=die)
    assert list(cache.iterdir()) == []
    assert len(open_dataset(folder, memory_budget=0)) == 40


@pytest.mark.parametrize("deep", [False, True])
def test_a_killed_run_goes_on_where_it_stopped(folder, cache, monkeypatch, deep):
    """The control: without a journal every image is decoded again."""
    monkeypatch.setattr(cache_module, "JOURNAL_SECONDS", 0.0)
    if deep:
        for i, file in enumerate(sorted(folder.iterdir())):
            values = np.random.default_rng(i).integers(0, 4096, (20, 20)).astype(np.uint16)
            file.write_bytes(png16(values))
    (folder / "00.png").write_bytes(b"damaged")
    whole = open_dataset(folder)
    calls = []

    def die(done, total):
        calls.append(done)
        if len(calls) == (3 if deep else 1):  # in the first of two tasks of the last pass
            raise KeyboardInterrupt  # as SIGKILL, it leaves what is on disk

    with pytest.raises(KeyboardInterrupt):
        open_dataset(folder, memory_budget=0, progress=die)
    (part,) = cache.iterdir()
    monkeypatch.setattr(images_module, "decode", counted := Counted(images_module.decode))
    again = open_dataset(folder, memory_budget=0)
    assert counted.calls < 40
    assert (again.images == whole.images).all()
    assert (again.paths, again.skipped, again.notes) == (whole.paths, whole.skipped, whole.notes)
    assert not part.exists()
    shutil.rmtree(cache)
    assert open_dataset(folder, memory_budget=0).paths == whole.paths
    assert counted.calls >= 40


class Counted:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **options):
        self.calls += 1
        return self.function(*args, **options)


def test_an_entry_appears_only_when_it_is_whole(cache):
    def fill(out, journal):
        assert not (cache / "entry").exists()
        (unfinished,) = cache.iterdir()
        assert unfinished.name.startswith("entry.")
        out[:] = 7
        return {"fact": 1}

    pixels, record, _ = cache_module.load_or_build((3, 2), fill, key=lambda: "entry", budget=0)
    assert (np.asarray(pixels) == 7).all()
    assert record == {"fact": 1}
    assert [path.name for path in cache.iterdir()] == ["entry"]


def test_two_runs_at_once_end_with_one_entry(cache):
    def slow(out, journal):
        # Another process makes the same entry while this one is still filling.
        cache_module.load_or_build((3, 2), quick, key=lambda: "entry", budget=0)
        out[:] = 7
        return {}

    def quick(out, journal):
        out[:] = 7
        return {}

    pixels, _, _ = cache_module.load_or_build((3, 2), slow, key=lambda: "entry", budget=0)
    assert (np.asarray(pixels) == 7).all()
    assert [path.name for path in cache.iterdir()] == ["entry"]
    assert json.loads((cache / "entry" / "record.json").read_text()).keys() == {"digest"}


def test_a_full_disk_is_said_before_decoding(folder, cache, monkeypatch):
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(ValueError, match=r"decoded images need 0\.0 MB .* set pixels to encoded"):
        open_dataset(folder, memory_budget=0, pixels="decoded")
    for data, reason in (("+digits", "have planted features"), (":channels", "keep depth")):
        with pytest.raises(ValueError, match=f"max_examples; they cannot stay .* data {reason}"):
            open_dataset(f"{folder}{data}", image_size=32, memory_budget=0)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="cannot write to the cache"):
        open_dataset(folder, memory_budget=0)


def test_npz_and_packs_can_be_kept_on_disk_too(tmp_path, cache):
    x = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, t=np.arange(30) % 3)
    dataset = open_dataset(tmp_path / "a.npz", memory_budget=0, max_examples=6)
    assert isinstance(dataset.images, np.memmap)
    assert (dataset.images == x[:6]).all()
    assert dataset.labels["t"].tolist() == [0, 1, 2, 0, 1, 2]


def test_the_cache_is_bounded_and_what_is_longest_unused_goes_first(folder, cache, monkeypatch):
    monkeypatch.setattr(cache_module, "MAX_CACHE_BYTES", 2 * 40 * 20 * 20 * 3 + 10_000)
    (cache / "audits").mkdir(parents=True)
    (cache / "audits" / "mine.npz").write_bytes(bytes(10**6))
    entries = []
    for limit in (40, 39):
        open_dataset(folder, memory_budget=0, max_examples=limit)
        (new,) = {path for path in cache.iterdir() if path.name != "audits"} - set(entries)
        os.utime(new, (0, len(entries)))
        entries.append(new)
    open_dataset(folder, memory_budget=0, max_examples=40)  # used again
    open_dataset(folder, memory_budget=0, max_examples=38)
    assert len(list(cache.iterdir())) == 3
    assert [path.exists() for path in entries] == [True, False]
    assert (cache / "audits" / "mine.npz").exists()


def test_an_entry_that_is_removed_stays_whole_for_whoever_reads_it(folder, cache, monkeypatch):
    before = open_dataset(folder, memory_budget=0)
    expected = open_dataset(folder).images
    monkeypatch.setattr(cache_module, "MAX_CACHE_BYTES", 0)
    open_dataset(folder, memory_budget=0, max_examples=20)
    assert len(list(cache.iterdir())) == 1  # an entry larger than the bound stays alone
    assert (before.images == expected).all()


def test_what_a_killed_process_left_goes_after_a_week(folder, cache):
    cache.mkdir(parents=True)
    old, new, other = (cache / name for name in ("a" * 32 + ".x1", "b" * 32 + ".x2", "mine.old"))
    for path in (old, new, other):
        path.mkdir()
    for path in (old, other):
        os.utime(path, (0, 0))
    open_dataset(folder, memory_budget=0)
    assert [path.exists() for path in (old, new, other)] == [False, True, True]
