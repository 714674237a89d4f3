"""Which folders are classes, and which are splits, folds, targets or those of other programs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from widefield.core.files import check_folder_name
from widefield.data import Dataset, open_dataset
from widefield.data.labels import read_labels
from widefield.data.spec import parse

CLASSES = {"ant": 3, "bee": 2}


def folder(root: Path, counts: Mapping[str, int]) -> str:
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{name.replace('/', '-')}{i}.png")
    return str(root)


def classes(dataset: Dataset) -> tuple[str, ...]:
    return dataset.classes.get("class", ())


def test_classes_and_their_numbers_of_files_are_noted(tmp_path: Path) -> None:
    dataset = open_dataset(folder(tmp_path, CLASSES))
    assert "classes, by folder: ant 3, bee 2" in dataset.notes
    many = open_dataset(folder(tmp_path / "many", {f"c{i:02d}": 1 for i in range(12)}))
    assert any(note.endswith("c06 1, c07 1 and 4 more") for note in many.notes)


def test_classes_are_the_same_in_either_unicode_form(tmp_path: Path) -> None:
    composed, split = "caf\u00e9", "cafe\u0301"
    for name in (composed, split):
        dataset = open_dataset(folder(tmp_path / name, {name: 3, "ant": 2}))
        assert set(classes(dataset)) == {"ant", composed}
        table = read_labels({path: path.split("/")[0] for path in dataset.paths})
        assert set(table.classes["label"]) == {"ant", composed}
    with pytest.raises(ValueError, match="two folders are shown as"):
        open_dataset(folder(tmp_path / "both", {composed: 3, split: 2}))


@pytest.mark.parametrize(
    "junk",
    ["@eaDir/ant0.png", "$RECYCLE.BIN", "__MACOSX", "#recycle", "System Volume Information"],
)
@pytest.mark.parametrize("inside", ["", "ant/"])
def test_folders_of_other_programs_are_not_read(tmp_path: Path, inside: str, junk: str) -> None:
    dataset = open_dataset(folder(tmp_path, {**CLASSES, inside + junk: 4}))
    assert (len(dataset), classes(dataset)) == (5, ("ant", "bee"))
    assert any("4 files in" in note and "other programs" in note for note in dataset.notes)
    control = open_dataset(folder(tmp_path / "control", {**CLASSES, inside + "cat": 4}))
    assert len(control) == 9


@pytest.mark.parametrize("name", ["masks", "annotations", "ground_truth"])
def test_targets_beside_classes_are_not_examples(tmp_path: Path, name: str) -> None:
    dataset = open_dataset(folder(tmp_path, {**CLASSES, name: 4}))
    assert (len(dataset), classes(dataset)) == (5, ("ant", "bee"))
    assert any(f"4 files in {name}" in note for note in dataset.notes)
    alone = open_dataset(folder(tmp_path / "alone", {name: 4}))
    assert len(alone) == 4


@pytest.mark.parametrize(
    "names",
    [
        ("train2017", "val2017", "test2017"),
        ("train_images", "test_images"),
        ("seg_train", "seg_test", "seg_pred"),
        ("train", "unlabeled"),
        ("imgs-train", "imgs-valid"),
        ("Training Set", "Test Set"),
        ("Train", "VAL"),
        ("training", "validation", "test"),
        ("train",),
        ("test",),
    ],
)
def test_splits_are_refused_and_one_is_named(tmp_path: Path, names: tuple[str, ...]) -> None:
    data = folder(tmp_path, {f"{name}/{c}": 1 for name in names for c in ("ant", "bee")})
    named = next((name for name in names if "train" in name.lower()), names[0])
    with pytest.raises(ValueError, match="splits, not classes; name one of them") as found:
        open_dataset(data)
    assert f"{tmp_path}/{named}'" in str(found.value)
    assert "\n" not in str(found.value)
    assert classes(open_dataset(f"{tmp_path}/{named}")) == ("ant", "bee")


@pytest.mark.parametrize(
    "names", [("trained", "wild"), ("valley", "coast"), ("bus", "train", "tram")]
)
def test_names_that_contain_a_split_are_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert classes(open_dataset(folder(tmp_path, dict.fromkeys(names, 2)))) == tuple(sorted(names))


@pytest.mark.parametrize(
    "names", [("fold1", "fold2"), ("Fold_01", "Fold_02"), ("split-1", "split-2")]
)
def test_folds_are_no_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    flat = open_dataset(folder(tmp_path / "flat", dict.fromkeys(names, 2)))
    assert (len(flat), flat.labels) == (4, {})
    assert any(f"{names[0]} to {names[1]} are folds" in note for note in flat.notes)
    nested = folder(tmp_path / "nested", {f"{n}/{c}": 1 for n in names for c in ("ant", "bee")})
    assert open_dataset(nested).labels["class"].tolist() == [0, 1, 0, 1]
    control = open_dataset(folder(tmp_path / "control", {names[0]: 1, "other": 1}))
    assert len(classes(control)) == 2


def test_with_a_table_of_labels_folders_have_no_meaning(tmp_path: Path) -> None:
    data = folder(tmp_path, {"train": 2, "test": 2})
    table = read_labels({f"{n}/{n}{i}.png": n for n in ("train", "test") for i in range(2)})
    assert open_dataset(data, labels=table).classes == {"label": ("test", "train")}


@pytest.mark.parametrize("name", ["photos", "spoken", "cifar10"])
def test_a_folder_named_as_built_in_data_is_not_read_instead(in_tmp: Path, name: str) -> None:
    assert parse(name).split == "train"
    (in_tmp / name).mkdir()
    with pytest.raises(ValueError, match=f"write './{name}' for the folder, or '{name}:train'"):
        parse(name)
    assert parse(f"./{name}").split is None
    assert parse(f"{name}:train").base == name


@pytest.mark.parametrize("path", ["", ".", "/", "..", "random", "pixels"])
def test_a_folder_of_results_has_a_name_of_its_own(in_tmp: Path, path: str) -> None:
    with pytest.raises(ValueError, match=r"choose a(nother)? name"):
        check_folder_name(Path(path))
    check_folder_name(in_tmp / "results")
