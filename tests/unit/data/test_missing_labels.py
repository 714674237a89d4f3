"""Labels of every source: which are missing, and that the classes are told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from made_images import saved
from made_tables import Frame
from widefield import probe
from widefield.data import open_dataset
from widefield.data.labels import read_labels

N = 40
IDS = np.arange(N) % 2
X = np.random.default_rng(0).integers(0, 40, (N, 8, 8, 3)).astype(np.uint8)
X += (120 * IDS)[:, None, None, None].astype(np.uint8)
GAP = np.arange(N) % 5 == 4


def parquet(values: Any, path: Path) -> Path:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    columns = {"image": pa.array(map(saved, X), pa.binary()), "kind": column}
    pq.write_table(pa.table(columns), path / "a.parquet")
    return path / "a.parquet"


def npz(values: NDArray[Any], path: Path) -> Path:
    np.savez(path / "a.npz", x=X, kind=values)
    return path / "a.npz"


class Items(Dataset[Any]):
    """Items that are mappings, or pairs."""

    def __init__(self, labels: Any, keys: tuple[str, str] | None = None) -> None:
        self.labels, self.keys = labels, keys

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        image = Image.fromarray(X[i])
        return (
            {self.keys[0]: image, self.keys[1]: self.labels[i]}
            if self.keys
            else (image, self.labels[i])
        )


def torch_data(values: NDArray[Any], path: Path) -> Items:
    return Items(
        [
            torch.from_numpy(values)[row] if values.dtype.kind in "iu" else str(values[row])
            for row in range(N)
        ]
    )


SOURCES: dict[str, Callable[[Any, Path], Any]] = {
    "parquet": parquet,
    "table": lambda values, path: pq.read_table(parquet(values, path)),
    "npz": npz,
    "arrays": lambda values, path: {"x": X, "kind": values},
    "torch": torch_data,
}
MISSING = {
    "-1": np.where(GAP, -1, IDS),
    "-100": np.where(GAP, -100, IDS),
    "255": np.where(GAP, 255, IDS).astype(np.uint8),
    "65535": np.where(GAP, 65_535, IDS).astype(np.uint16),
    "empty": np.where(GAP, "", np.array(["ant", "bee"])[IDS]),
    "nan": np.where(GAP, "nan", np.array(["ant", "bee"])[IDS]),
}
WHOLE = {
    "uint8": IDS.astype(np.uint8),
    "uint64": IDS.astype(np.uint64),
    "bool": IDS.astype(bool),
    "0 and 255": np.where(IDS, 255, 0).astype(np.uint8),
    "strings": np.array(["ant", "bee"])[IDS],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels_are_no_class(tmp_path: Path, source: str, kind: str) -> None:
    data = SOURCES[source](MISSING[kind], tmp_path)
    dataset = open_dataset(data, unlabeled=True)
    (ids,) = dataset.labels.values()
    assert ids.tolist() == np.where(GAP, -1, IDS).tolist()
    (task,) = dataset.classes
    assert any(
        note.startswith(f"classes of {task!r}: ") and "8 examples without" in note
        for note in dataset.notes
    )
    assert any("is left out: 8 examples have no label" in note for note in open_dataset(data).notes)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", WHOLE)
def test_classes_of_every_type_are_told(tmp_path: Path, source: str, kind: str) -> None:
    dataset = open_dataset(SOURCES[source](WHOLE[kind], tmp_path))
    ((task, ids),) = dataset.labels.items()
    names = np.array(dataset.classes[task])[ids]
    assert len(set(names)) == 2
    assert (names == names[IDS]).all()
    assert any(note.startswith(f"classes of {task!r}: ") for note in dataset.notes)


@pytest.mark.parametrize("dtype", ["int8", "float64"])
@pytest.mark.parametrize("low", [-1, -2])
def test_negative_integers_of_a_table_are_classes(tmp_path: Path, dtype: str, low: int) -> None:
    values = np.where(IDS, 1, low).astype(dtype)
    dataset = open_dataset(parquet(values, tmp_path))
    assert dataset.classes == {"kind": (str(low), "1")}
    assert dataset.labels["kind"].tolist() == IDS.tolist()


LARGE = {
    "beyond classes": 1_355_868 + 7 * IDS,
    "2**31": 2**31 + IDS,
    "2**63": np.uint64(2**63 - 1) + IDS.astype(np.uint64),
    "2**64": np.uint64(2**64 - 2) + IDS.astype(np.uint64),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", LARGE)
def test_large_ids_are_names_of_classes(tmp_path: Path, source: str, kind: str) -> None:
    ids = LARGE[kind]
    dataset = open_dataset(SOURCES[source](ids, tmp_path))
    ((task, found),) = dataset.labels.items()
    assert [dataset.classes[task][k] for k in found] == list(map(str, ids.tolist()))
    assert any(note.startswith(f"classes of {task!r}: ") for note in dataset.notes)


def test_large_ids_that_were_rounded_are_not_classes(tmp_path: Path) -> None:
    rounded = np.where(GAP, np.nan, 2.0**60 + 256 * IDS)
    dataset = open_dataset(parquet(rounded, tmp_path))
    assert dataset.notes == ("columns without classes, left out: kind",)
    with pytest.raises(ValueError, match=r"labels row 0: .label. is 1\.15.*, a float"):
        read_labels({f"{row}.png": value for row, value in enumerate(rounded)})
    exact = open_dataset(
        Items([None if gap else 2**63 + int(k) for gap, k in zip(GAP, IDS, strict=True)])
    )
    assert "'class' is left out: 8 examples have no label" in exact.notes[-1]
    assert f"{2**63} 16, {2**63 + 1} 16" in exact.notes[0]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None if gap else int(k) for gap, k in zip(GAP, IDS, strict=True)], pa.uint16()),
        pa.array([None if gap else float(k) for gap, k in zip(GAP, IDS, strict=True)]),
        pa.array([float("nan") if gap else float(k) for gap, k in zip(GAP, IDS, strict=True)]),
        pa.array([None if gap else bool(k) for gap, k in zip(GAP, IDS, strict=True)]),
        pa.array(
            [None if gap else "ab"[k] for gap, k in zip(GAP, IDS, strict=True)]
        ).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_missing_cells_are_no_class(tmp_path: Path, values: pa.Array) -> None:
    path = parquet(values, tmp_path)
    assert (
        open_dataset(path, unlabeled=True).labels["kind"].tolist()
        == np.where(GAP, -1, IDS).tolist()
    )
    report = probe("pixels", f"{path}:test", train_data=f"{path}:train", floors=False, quiet=True)
    assert report.tasks["kind"].score.value > 0.9
    assert any("examples have no label of 'kind': left out" in note for note in report.notes)


def test_a_name_makes_an_id_a_class() -> None:
    ids = MISSING["255"]
    named = open_dataset(
        {"x": X, "kind": ids, "kind_classes": np.array([f"c{i}" for i in range(256)])}
    )
    assert named.labels["kind"].tolist() == ids.tolist()
    sparse = np.array([3, 17, 255, 255] * 10)  # some of the ids of another data set
    assert open_dataset({"x": X, "kind": sparse}).labels["kind"].tolist() == sparse.tolist()
    words = MISSING["nan"]
    named = open_dataset({"x": X, "kind": words, "kind_classes": np.array(["ant", "bee", "nan"])})
    assert named.classes["kind"] == ("ant", "bee", "nan")


LABELS = {
    "tensors": [torch.tensor(k) for k in IDS],
    "tensors of one": [torch.tensor([k]) for k in IDS],
    "arrays": [np.array(k) for k in IDS],
    "numbers": [np.int16(k) for k in IDS],
    "integers": IDS.tolist(),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("keys", [None, ("image", "label"), ("images", "labels"), ("img", "Label")])
def test_labels_of_python_data(kind: str, keys: tuple[str, str] | None) -> None:
    dataset = open_dataset(Items(LABELS[kind], keys))
    assert dataset.labels["class"].tolist() == IDS.tolist()
    assert (dataset.images == X).all()


def test_labels_that_are_not_read_are_told() -> None:
    for labels, name in (([{"a": 1}] * N, "dict"), ([1, "a"] * 20, "int and str")):
        (note,) = open_dataset(Items(labels)).notes
        assert f"labels of type {name} are not read" in note
    assert open_dataset(Items([None] * N)).notes == ()
    assert open_dataset(Items([float(k) + 0.5 for k in IDS])).targets["class"].kind == "number"
    gaps = Items([float("nan") if gap else k + 0.5 for gap, k in zip(GAP, IDS, strict=True)])
    (note,) = open_dataset(gaps).notes
    assert note.startswith("'class' is left out: 8 examples have no label; give those of the")
    hot = open_dataset(Items([torch.eye(2)[k] for k in IDS]))
    assert hot.targets["class"].kind == "labels"


PYTHON: dict[str, tuple[Callable[[], Any], str]] = {
    "loader": (lambda: DataLoader(Items(IDS)), "give its .dataset"),
    "pair": (lambda: (X, IDS), "{'x': x, 'class': y}"),
    "frame": (lambda: Frame(path=["a.png"], label=["a"]), "list(table['path'])"),
    "keys": (lambda: Items(IDS, ("photo", "label")), "name the image 'image'"),
}


@pytest.mark.parametrize("kind", PYTHON)
def test_python_data_that_are_not_read_have_a_remedy(kind: str) -> None:
    make, remedy = PYTHON[kind]
    with pytest.raises(ValueError, match=re.escape(remedy)) as found:
        open_dataset(make())
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("keys", [("image", "label"), ("images", "labels"), ("x", "class")])
def test_arrays_by_the_names_of_others(keys: tuple[str, str]) -> None:
    dataset = open_dataset({keys[0]: X, keys[1]: IDS})
    ((_, ids),) = dataset.labels.items()
    assert ids.tolist() == IDS.tolist()


def test_equal_images_are_told() -> None:
    (note,) = open_dataset(np.repeat(X[:1], N, 0)).notes
    assert note == "all 40 images are equal: nothing tells them apart, so give others"
    assert open_dataset(X).notes == ()


def test_an_image_on_another_scale_is_named(tmp_path: Path) -> None:
    for i in range(12):
        values = (np.arange(64).reshape(8, 8) * 900 + i).astype(np.uint16)
        Image.fromarray(values).save(tmp_path / f"{i:02d}.tif")
    Image.fromarray((np.arange(64).reshape(8, 8) / 64).astype(np.float32)).save(tmp_path / "07.tif")
    with pytest.raises(
        ValueError, match=r"07.tif is floats in \[0, 1\], and 00.tif integers: 1 of 12 "
    ):
        open_dataset(tmp_path)


def test_the_first_picture_of_an_mpo_file_is_read(tmp_path: Path) -> None:
    left, right = (Image.fromarray(np.repeat(np.repeat(x, 4, 0), 4, 1)) for x in X[:2])
    left.save(tmp_path / "a.mpo", save_all=True, append_images=[right])
    dataset = open_dataset(tmp_path)
    assert dataset.paths == ["a.mpo"]
    assert np.abs(dataset.images[0].astype(int) - np.asarray(left).astype(int)).mean() < 30
