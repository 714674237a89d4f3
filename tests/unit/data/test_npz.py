"""Members of `.npz` files that are no plain arrays, and arrays that could be misread."""

import io
import os
import zipfile

import numpy as np
import pytest

from widefield.data import open_dataset
from widefield.data.readers.npz import read_arrays

X = np.random.default_rng(0).integers(0, 256, (12, 6, 8, 3), dtype=np.uint8)


def npy(array, *, shape=None):
    """Return the bytes of a `.npy` file, with another shape in its header if one is given."""
    buffer = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(buffer, header | {"shape": shape or array.shape})
    return buffer.getvalue() + array.tobytes()


def archive(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def with_flag(path, flag):
    """Set a flag of the only member, where the file begins and in the directory at its end."""
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[6] |= flag
    content[directory + 8] |= flag
    path.write_bytes(content)
    return path


def saved(path, content):
    """Return a file whose only array has this content."""
    if path.suffix == ".npz":
        return archive(path, [("x.npy", content)])
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an array|is not a readable .npy file"),
        (b"no array", "is not an array|is not a readable .npy file"),
        (npy(X)[:300], r"claims the shape \[12, 6, 8, 3\]"),
        (npy(X) + b"more", "claims the shape"),
        (npy(X, shape=(10**9, 10**9, 3)), r"claims the shape \[1000000000,"),
        (npy(X, shape=(-1, 6, 8, 3)), "holds uint8"),
        (b"\x93NUMPY\x01\x00\xff\x00" + b"(" * 255, "is damaged"),
        (b"\x93NUMPY\x09\x09rest", "of a type other than plain values"),
        (npy(np.zeros(3, "i4,f4")), "holds"),
        (npy(np.zeros(3, "M8[s]")), "holds datetime64"),
        (npy(np.zeros((0, 8, 8, 3), np.uint8)), "expected"),
        (npy(X.astype(np.int64)), "expected uint8"),
    ],
)
def test_what_is_no_plain_array(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as info:
        open_dataset(saved(tmp_path / name, content))
    assert str(info.value).isprintable()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (("read me.txt", b"hello"), "'read me.txt' .* is not an array"),
        (("\x1b[2J.npy", npy(X)), r"key '\\x1b\[2J' .* not plain text"),
    ],
)
def test_members_that_are_no_arrays(tmp_path, member, message):
    with pytest.raises(ValueError, match=message) as info:
        open_dataset(archive(tmp_path / "a.npz", [("x.npy", npy(X)), member]))
    assert str(info.value).isprintable()


@pytest.mark.parametrize("content", [b"plain text", b"", b"PK\x03\x04 and then nothing", npy(X)])
def test_files_that_are_not_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"not a readable \.npz file"):
        open_dataset(tmp_path / "a.npz")


def test_a_damaged_member_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, t=np.arange(12))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[400] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"key 'x' of .* is damaged"):
        open_dataset(tmp_path / "a.npz")


def test_a_member_that_is_there_twice(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path / "a.npz", [("x.npy", npy(X)), ("x.npy", npy(X[::-1]))])
    with pytest.raises(ValueError, match=r"key 'x' .* is duplicated"):
        open_dataset(path)


def test_encrypted_and_strangely_packed_members(tmp_path):
    path = with_flag(archive(tmp_path / "a.npz", [("x.npy", npy(X))]), 1)
    with pytest.raises(ValueError, match=r"key 'x' .* is encrypted"):
        open_dataset(path)
    path = archive(tmp_path / "b.npz", [("x.npy", npy(X))])
    content = bytearray(path.read_bytes())
    content[8] = content[content.rindex(b"PK\x01\x02") + 10] = 97  # a compression nobody has
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"key 'x' .* is damaged"):
        open_dataset(path)


def test_arrays_larger_than_the_memory(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((100, 64, 64, 3), np.uint8))
    monkeypatch.setattr("widefield.data.readers.npz.free_host_memory", lambda: 10**6)
    with pytest.raises(ValueError, match=r"holds 0\.0 GB of arrays and 0\.0 GB of memory are free"):
        open_dataset(tmp_path / "a.npz")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"not a readable .npz file"):
        open_dataset(tmp_path / "a.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_kind_of_array_is_read_as_numpy_reads_it(tmp_path, save):
    arrays = {
        "a": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "b": np.array(["ä", "b"]),
        "c": np.array([b"x", b"yy"]),
        "d": np.arange(5, dtype=">i4"),
        "e": np.array(True),
        "f": np.zeros((0, 3)),
    }
    save(tmp_path / "a.npz", **arrays)
    read = read_arrays(tmp_path / "a.npz")
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[key], value) for key, value in arrays.items())
    assert all(read[key].dtype == value.dtype for key, value in arrays.items())


@pytest.mark.parametrize("shape", [(32, 32, 3), (32, 32, 1), (32, 30, 4), (3, 32, 32)])
def test_one_color_image_is_not_many_gray_ones(shape):
    x = np.zeros(shape, np.uint8)
    with pytest.raises(ValueError, match=r"may be one color image or \d+ gray ones: give x\[None"):
        open_dataset(x)
    assert open_dataset(x[..., None]).images.shape == (*shape, 1)
    assert len(open_dataset(x[None])) == 1


def test_bool_is_black_and_white():
    x = np.eye(8, dtype=bool)[None].repeat(2, axis=0)
    dataset = open_dataset(x)
    assert (dataset.images[..., 0] == np.eye(8) * 255).all()
    assert any("bool stored as 0 and 255" in note for note in dataset.notes)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"t": np.array([0, 65_535] * 6)}, "uses 2 of 65536 classes; number those that occur"),
        (
            {"t": np.array([0, 1] * 6), "t_classes": np.arange(5_000)},
            "uses 2 of 5000 classes; number those that occur",
        ),
        (
            {"t": np.array([0, 1] * 6), "t_classes": np.array(["cat", "cat"])},
            "'t_classes' has two classes named 'cat'; rename",
        ),
        (
            {"t": np.array([0, 1] * 6), "t_classes": np.array([b"caf\xe9", b"tea"])},
            "'t_classes' holds bytes that are not UTF-8",
        ),
        ({"t": np.array([b"caf\xe9", b"tea"] * 6)}, "'t' holds bytes that are not UTF-8"),
    ],
)
def test_labels_that_would_be_misread(tmp_path, labels, message):
    np.savez(tmp_path / "a.npz", x=X, **labels)
    with pytest.raises(ValueError, match=message):
        open_dataset(tmp_path / "a.npz")


def test_labels_in_bytes_and_with_control_characters():
    names = np.array(["caf\u00e9".encode(), b"tea"])
    assert open_dataset({"x": X, "t": names[[0, 1] * 6]}).classes["t"] == ("café", "tea")
    shown = open_dataset({"x": X, "t": np.array(["a\x1b[2J", "b"] * 6)}).classes["t"]
    assert shown == ("a\\x1b[2J", "b")
    ids = np.arange(12) * 50  # gaps are fine where they are no burden
    assert len(open_dataset({"x": X, "t": ids}).classes["t"]) == 551


@pytest.mark.parametrize("array", [X, X.astype(np.float32) / 255, X[..., 0], np.asfortranarray(X)])
def test_a_npy_file_is_read_as_its_array_in_memory(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    from_file, from_memory = open_dataset(str(tmp_path / "x.npy")), open_dataset(array)
    assert (from_file.images == from_memory.images).all()
    assert (from_file.paths, from_file.labels) == (from_memory.paths, {})
    halves = [open_dataset(f"{tmp_path / 'x.npy'}:{split}") for split in ("train", "test")]
    assert sorted(halves[0].paths + halves[1].paths) == sorted(from_file.paths)


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_nothing_is_unpickled(tmp_path, name):
    held = np.array([Mine()] * 3, dtype=object)
    if name == "x.npy":
        np.save(tmp_path / name, held, allow_pickle=True)
    else:
        np.savez(tmp_path / name, x=held)
    with pytest.raises(ValueError, match="holds Python objects, which are never unpickled"):
        open_dataset(tmp_path / name)


class Mine:
    """What says that it was unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


def test_a_npy_file_that_fills_the_memory_is_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X > 9)
    assert len(open_dataset(tmp_path / "x.npy")) == len(X)
    monkeypatch.setattr("widefield.core.hardware.host_memory", lambda: X.size - 1)
    with pytest.raises(ValueError, match=r"the pixels of '.*x\.npy' needs .* of memory"):
        open_dataset(tmp_path / "x.npy")
