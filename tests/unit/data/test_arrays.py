import numpy as np
import pytest
import torch

from made_images import saved
from widefield.data import open_dataset
from widefield.data.readers.recordings import as_samples

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 6, 8, 3), dtype=np.uint8)


def save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (X, X),
        (X[..., 0], X[..., :1]),
        (X.transpose(0, 3, 1, 2), X),
        (X[..., :1].transpose(0, 3, 1, 2), X[..., :1]),
        (np.concatenate([X, X[..., :1]], axis=-1), np.concatenate([X, X[..., :1]], axis=-1)),
        (X[::-1], X[::-1]),
    ],
)
def test_layouts(tmp_path, x, expected):
    for data in (save(tmp_path / "a.npz", x=x), x, {"x": x}, torch.from_numpy(x.copy())):
        dataset = open_dataset(data)
        assert dataset.images.dtype == np.uint8
        assert (dataset.images == expected).all()
        assert dataset.labels == {}
        assert dataset.paths[3] == "row 3"


def test_channels_are_last_where_both_readings_are_possible():
    x = RNG.integers(0, 256, (2, 3, 5, 3), dtype=np.uint8)
    assert (open_dataset(x).images == x).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_images_are_scaled_and_it_is_said(dtype):
    x = np.array([0.0, 0.2, 0.5, 1.0], dtype=dtype).reshape(1, 2, 2)
    dataset = open_dataset(x)
    assert dataset.images.ravel().tolist() == [0, 51, 128, 255]
    assert any("stored as uint8" in note for note in dataset.notes)


def test_float_tensor_with_gradient():
    x = torch.linspace(0, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5).requires_grad_()
    for tensor in (x, x.to(torch.bfloat16)):
        dataset = open_dataset(tensor)
        expected = np.round(tensor.detach().float().numpy() * 255).transpose(0, 2, 3, 1)
        assert (dataset.images == expected).all()


def test_labels_of_every_kind(tmp_path):
    path = save(
        tmp_path / "a.npz",
        x=X,
        animal=np.array(["dog", "ant", "cat"] * 4),
        digit=np.arange(12, dtype=np.int32) % 5,
        size=np.array([1, 0] * 6, dtype=np.uint8),
        size_classes=np.array(["small", "large", "unseen"]),
        color=np.array(["red", "blue"] * 6),
        color_classes=np.array(["red", "green", "blue"]),
    )
    dataset = open_dataset(path)
    assert list(dataset.labels) == ["animal", "digit", "size", "color"]
    assert dataset.classes["animal"] == ("ant", "cat", "dog")
    assert dataset.labels["animal"].tolist() == [2, 0, 1] * 4
    assert dataset.classes["digit"] == ("0", "1", "2", "3", "4")
    assert dataset.labels["digit"].tolist() == [i % 5 for i in range(12)]
    assert dataset.classes["size"] == ("small", "large", "unseen")
    assert dataset.labels["size"].tolist() == [1, 0] * 6
    assert dataset.classes["color"] == ("red", "green", "blue")
    assert dataset.labels["color"].tolist() == [0, 2] * 6
    assert all(ids.dtype == np.int64 for ids in dataset.labels.values())


def encoded_pack(path, images, kind="PNG", **changes):
    files = [saved(image, kind) for image in images]
    arrays = {
        "bytes": np.frombuffer(b"".join(files), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "labels": np.arange(len(images)) % 2,
        "classes": np.array(["even", "odd"]),
    }
    return save(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def test_pack_of_encoded_files(tmp_path):
    dataset = open_dataset(encoded_pack(tmp_path / "p.npz", X))
    assert (dataset.images == X).all()
    assert dataset.labels["class"].tolist() == [0, 1] * 6
    assert dataset.classes == {"class": ("even", "odd")}
    assert open_dataset(encoded_pack(tmp_path / "j.npz", X, "JPEG")).images.shape == X.shape


def test_pack_of_gray_images(tmp_path):
    arrays = {"labels": np.arange(12) % 3, "classes": np.array(list("abc"))}
    dataset = open_dataset(save(tmp_path / "p.npz", images=X[..., 0], **arrays))
    assert (dataset.images == X[..., :1]).all()
    assert dataset.classes == {"class": ("a", "b", "c")}


def test_pack_with_a_broken_file(tmp_path):
    images = RNG.integers(0, 256, (40, 5, 5, 3), dtype=np.uint8)
    path = encoded_pack(tmp_path / "p.npz", images)
    arrays = dict(np.load(path))
    arrays["bytes"] = arrays["bytes"].copy()
    arrays["bytes"][arrays["offsets"][7] : arrays["offsets"][8]] = 0
    dataset = open_dataset(save(path, **arrays))
    assert len(dataset) == 39
    assert dataset.skipped[0].path == "row 7"
    assert dataset.labels["class"][7] == 0  # row 8


def test_array_in_memory_is_not_copied():
    assert np.shares_memory(open_dataset(X).images, X)


def test_image_size_resizes_arrays():
    dataset = open_dataset(np.full((3, 20, 30, 1), 77, dtype=np.uint8), image_size=10)
    assert dataset.images.shape == (3, 10, 10, 1)
    assert (dataset.images == 77).all()


@pytest.mark.parametrize("kind", ["u2", "i2", "f4"])
def test_bytes_of_either_order_are_the_same_values(kind):
    x = np.random.default_rng(0).integers(0, 30_000, (20, 8, 8))
    big, little = (open_dataset(x.astype(order + kind)) for order in "><")
    assert (big.images == little.images).all()
    assert big.black_white == little.black_white
    sounds = np.random.default_rng(0).integers(-9000, 9000, (4, 8000))
    for order in "><":
        samples = as_samples(sounds.astype(f"{order}i2"), "sounds")
        assert (samples == sounds).all()


def test_strings_in_memory_may_be_python_objects():
    words = ["cat", "a dog"] * 6
    plain, held = (np.array(words, dtype=dtype) for dtype in (str, object))
    expected = open_dataset({"x": X, "kind": plain})
    given = open_dataset({"x": X, "kind": held})
    assert given.classes == expected.classes == {"kind": ("a dog", "cat")}
    assert given.labels["kind"].tolist() == expected.labels["kind"].tolist()
    names = np.array(["cat", "a dog"], dtype=object)
    named = open_dataset({"x": X, "kind": np.arange(12) % 2, "kind_classes": names})
    assert named.classes == {"kind": ("cat", "a dog")}
    with pytest.raises(ValueError, match=r"key 'kind' is object .*expected integers or strings"):
        open_dataset({"x": X, "kind": np.array([*words[1:], b"cat"], dtype=object)})
    missing = open_dataset({"x": X, "kind": np.array([*words[1:], None], dtype=object)})
    assert any("'kind' is left out: 1 examples have no label" in note for note in missing.notes)


def test_floats_are_numbers_and_two_dimensions_several_labels(tmp_path):
    level, has = RNG.normal(size=12), np.arange(24).reshape(12, 2) % 3 == 0
    arrays = {"x": X, "level": level, "has": has, "has_classes": np.array(["bar", "spot"])}
    for data in (save(tmp_path / "a.npz", **arrays), arrays, arrays | {"has": has.astype(float)}):
        dataset = open_dataset(data)
        assert (dataset.labels, [*dataset.targets]) == ({}, ["level", "has"])
        assert (dataset.targets["level"].values[:, 0] == level).all()
        assert (dataset.targets["has"].values == has).all()
        assert dataset.targets["has"].labels == ("bar", "spot")
        assert any("'level' is a number of each example" in note for note in dataset.notes)
        assert any("for classes, give integers" in note for note in dataset.notes)
    assert open_dataset({"x": X, "has": has}).targets["has"].labels == ("0", "1")
    assert open_dataset({"x": X, "kind": level > 0}).classes["kind"] == ("0", "1")  # the control


BAD = {
    "object labels": ({"x": X, "t": np.array([None] * 12)}, "key 't' .* Python objects"),
    "numbers with NaN": ({"x": X, "t": np.full(12, np.nan)}, "key 't' holds NaN or infinity"),
    "2-d numbers": ({"x": X, "t": np.full((12, 2), 0.5)}, r"key 't' is float64 \[12, 2\].*0 and 1"),
    "names of labels": (
        {"x": X, "t": np.zeros((12, 2), bool), "t_classes": np.array(["a"])},
        "key 't_classes' lists 1 labels for 2 columns",
    ),
    "short labels": ({"x": X, "t": np.zeros(11, int)}, r"key 't' is int64 \[11\].*12 examples"),
    "2-d labels": ({"x": X, "t": np.full((12, 2), 7)}, r"key 't' is int64 \[12, 2\]"),
    "negative": ({"x": X, "t": np.full(12, -1)}, "key 't' holds class ids from -1 to -1"),
    "huge id": ({"x": X, "t": np.full(12, 10**6)}, "expected 0 to 65535, strings, or floats"),
    "id without name": (
        {"x": X, "t": np.arange(12), "t_classes": np.array(["a", "b"])},
        "from 0 to 11; expected 0 to 1",
    ),
    "unknown name": (
        {"x": X, "t": np.array(["a"] * 12), "t_classes": np.array(["b"])},
        "'t' holds 'a', which 't_classes' does not list",
    ),
    "bad names": (
        {"x": X, "t": np.arange(12), "t_classes": np.zeros((2, 2))},
        r"key 't_classes' is float64 \[2, 2\]",
    ),
    "names without a task": ({"x": X, "t_classes": np.array(["b"])}, "key 't_classes'"),
    "rank": ({"x": X[0, 0]}, r"key 'x' is uint8 \[8, 3\]; expected \[n, H, W\]"),
    "channels": ({"x": np.zeros((2, 70, 80, 90), np.uint8)}, "1 to 64 channels, last or second"),
    "no images": ({"x": X[:0]}, r"key 'x' is uint8 \[0, 6, 8, 3\]"),
    "integers": ({"x": X.astype(int)}, "expected uint8, uint16, int16 or floats"),
    "flat": ({"x": np.full((4, 1, 16, 3), 7.0)}, r"images of height 1 .*go under key 'windows'"),
    "nan": ({"x": np.full((2, 4, 4), np.nan)}, "key 'x' holds values that are not finite"),
    "nan of five channels": ({"x": np.full((4, 8, 8, 5), np.nan)}, "values that are not finite"),
    "nan after 1,024 images": (
        {"x": np.where(np.arange(1500)[:, None, None] == 1200, np.nan, np.full((1500, 4, 4), 0.5))},
        "key 'x' holds values that are not finite",
    ),
    "inf": ({"x": np.full((2, 4, 4), np.inf, np.float32)}, "not finite"),
    "no x": ({"y": np.arange(3)}, r"no examples: expected key 'x'.*found 'y'"),
    "pack without labels": ({"images": X}, "pack without key 'labels'"),
    "audio": (
        {"audio": np.zeros(9, np.int16), "labels": np.zeros(1, int)},
        "holds audio without key 'offsets', 'sample_rate'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    arrays, message = BAD[case]
    with pytest.raises(ValueError, match=message) as info:
        open_dataset(save(tmp_path / "bad.npz", **arrays))
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": None}, "pack without key 'offsets'"),
        ({"offsets": np.array([0, 10, 5])}, "'offsets' must rise"),
        ({"offsets": np.array([0, 10**9])}, "'offsets' must rise"),
        ({"offsets": np.array([0.0, 1.0])}, "'offsets' is float64"),
        ({"bytes": np.zeros(4, np.int16)}, "'bytes' is int16"),
        ({"labels": np.zeros(3, int)}, "key 'labels' .* 12 examples"),
    ],
)
def test_bad_packs(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        open_dataset(encoded_pack(tmp_path / "p.npz", X, **changes))
