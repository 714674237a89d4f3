"""Which examples belong together: three spellings, their splits, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from made_images import saved
from made_tables import Frame
from widefield.data import Dataset, open_dataset
from widefield.data.examples import Examples
from widefield.data.groups import grouped, held_out_groups
from widefield.data.labels import read_labels

NAMES = [f"{side}/p{patient}/{i}.png" for side in "ab" for patient in range(5) for i in range(3)]
TABLE = {"path": NAMES, "label": ["x", "y"] * 15, "lot": [f"{i // 5}" for i in range(30)]}


def keys(group: str, examples: Examples | None = None) -> list[list[int]]:
    """Return the groups as lists of rows."""
    found = grouped(examples or Examples(names=NAMES), group).groups
    assert found is not None
    return sorted(np.flatnonzero(found == value).tolist() for value in np.unique(found))


def test_each_spelling_names_its_groups() -> None:
    halves = [list(range(15)), list(range(15, 30))]
    patients = [[*range(3 * p, 3 * p + 3), *range(15 + 3 * p, 18 + 3 * p)] for p in range(5)]
    assert keys("folder:1") == keys("folder:-2") == keys("regex:^([ab])/") == halves
    assert keys("folder:2") == keys("folder:-1") == keys(r"regex:(p\d)") == patients
    assert keys(r"regex:/(\d)\.png") == [list(range(i, 30, 3)) for i in range(3)]


def examples_of_table(missing: int | None = None) -> Examples:
    lot = [value if i != missing else "" for i, value in enumerate(TABLE["lot"])]
    found = read_labels(Frame(**{**TABLE, "lot": lot})).of_examples(NAMES, ".")
    return Examples(names=NAMES, labels=found.labels, classes=found.classes)


def test_a_column_is_no_task() -> None:
    found = grouped(examples_of_table(), "lot")
    assert list(found.labels) == list(found.classes) == ["label"]
    assert found.notes == ("group lot: 6 groups of 30 examples, at most 5 in one",)
    assert keys("lot", examples_of_table()) == [list(range(5 * i, 5 * i + 5)) for i in range(6)]
    for group, tasks in (("lot", {"label", "lot"}), ("folder:1", {"label"})):
        assert set(read_labels(Frame(**TABLE), only="label", group=group).labels) == tasks


def test_unlabeled_examples_are_groups_of_their_own() -> None:
    ids = np.array([0, 0, 1, -1, -1])
    examples = Examples(
        names=list("abcde"),
        labels={"label": np.array([0, 1, 0, -1, -1]), "lot": ids},
        classes={"label": ("x", "y"), "lot": ("c", "d")},
    )
    assert keys("lot", examples) == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("scene", "no column 'scene' to group by, the data have label, lot; name a column or"),
        ("regex:(s.)", r"'regex:\(s.\)' matches 0 of 30 names, and not 'a/p0/0.png'"),
        ("regex:(p[0-3])", "matches 24 of 30 names, and not 'a/p4/0.png': give a pattern that"),
        ("regex:p.", "has no parenthesized group"),
        ("regex:(", "is no regular expression"),
        ("folder:3", "folder:3: 'a/p0/0.png' has 2 folders in its name: choose a level"),
        ("folder:-3", "has 2 folders in its name"),
        (
            "folder:0",
            "'folder:0' is no folder level: folder:1 is the first one, folder:-1 the last",
        ),
        ("folder:x", "is no folder level"),
        ("folder:", "is no folder level"),
        ("regex:(p)", "gives one group, 'p', of all 30 examples"),
    ],
)
def test_what_names_nothing_is_refused(group: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        grouped(examples_of_table(), group)
    assert "\n" not in str(error.value)


def test_a_labeled_example_without_a_group_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"1 labeled examples have no 'lot', such as 'a/p1/1\.png'"
    ):
        grouped(examples_of_table(missing=4), "lot")


def test_a_fifth_of_the_groups_is_held_out() -> None:
    groups = np.random.default_rng(0).integers(-(2**62), 2**62, 30)[np.arange(240) // 8]
    chosen = held_out_groups(groups)
    assert chosen.sum() == 6 * 8
    assert not np.isin(groups[~chosen], groups[chosen]).any()
    assert len(np.unique(groups[:40][held_out_groups(groups[:40])])) == 2
    with pytest.raises(ValueError, match="3 groups are too few to split: give four or more"):
        held_out_groups(groups[:24])


def test_both_splits_of_a_path_agree(tmp_path: Path) -> None:
    images, scene = np.zeros((90, 4, 4, 3), np.uint8), np.arange(90) // 9
    np.savez(tmp_path / "mine.npz", x=images, scene=scene, kind=np.arange(90) % 2)
    halves = [
        open_dataset(f"{tmp_path}/mine.npz:{split}", group="scene") for split in ("train", "test")
    ]
    names = [set(half.paths) for half in halves]
    assert len(names[0] | names[1]) == 90
    assert [len(half) for half in halves] == [72, 18]
    for half in halves:
        assert half.groups is not None
        assert list(half.labels) == ["kind"]
        assert any("by a hash of each group" in note for note in half.notes)
        part = half.subset(np.arange(3, 9))
        assert part.groups is not None
        assert part.groups.tolist() == half.groups[3:9].tolist()
    assert not np.isin(halves[0].groups, halves[1].groups).any()
    plain = [open_dataset(f"{tmp_path}/mine.npz:{split}") for split in ("train", "test")]
    shared = np.isin(plain[0].labels["scene"], plain[1].labels["scene"])
    assert shared.any()  # the control


IMAGES = np.random.default_rng(0).integers(0, 256, (60, 4, 4, 3), dtype=np.uint8)
KINDS = np.array(["ant", "bee"])[np.arange(60) % 2]


def as_arrays(ids: NDArray[Any], folder: Path) -> Dataset:
    return open_dataset({"x": IMAGES, "kind": KINDS, "patient": ids}, group="patient")


def as_npz(ids: NDArray[Any], folder: Path) -> Dataset:
    np.savez(folder / "a.npz", x=IMAGES, kind=KINDS, patient=ids)
    return open_dataset(folder / "a.npz", group="patient")


def as_parquet(ids: NDArray[Any], folder: Path) -> Dataset:
    columns = {"image": pa.array(map(saved, IMAGES), pa.binary()), "kind": KINDS, "patient": ids}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return open_dataset(folder / "a.parquet", group="patient")


def in_files(ids: NDArray[Any], folder: Path) -> Path:
    for row, pixels in enumerate(IMAGES):
        Image.fromarray(pixels).save(folder / f"{row:02}.png")
    lines = [
        f"{row:02}.png,{kind},{patient}"
        for row, (kind, patient) in enumerate(zip(KINDS, ids.tolist(), strict=True))
    ]
    (folder / "a.csv").write_text("\n".join(["path,kind,patient", *lines]))
    return folder / "a.csv"


def as_manifest(ids: NDArray[Any], folder: Path) -> Dataset:
    return open_dataset(in_files(ids, folder), group="patient")


def as_labels(ids: NDArray[Any], folder: Path) -> Dataset:
    table = read_labels(in_files(ids, folder), group="patient")
    return open_dataset(folder, labels=table, group="patient")


SOURCES: dict[str, Callable[[NDArray[Any], Path], Dataset]] = {
    "arrays": as_arrays,
    "npz": as_npz,
    "parquet": as_parquet,
    "manifest": as_manifest,
    "labels": as_labels,
}
PATIENTS = np.arange(60) // 2  # thirty, more than numbers that are classes
IDS = {
    "from 0": PATIENTS,
    "numbers": 1_355_868 + 7 * PATIENTS,
    "2**63": 2**63 - 40 + PATIENTS.astype(np.uint64),
    "text": np.array([f"p{k}" for k in PATIENTS]),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", IDS)
def test_a_column_of_groups_is_told_as_groups_alone(tmp_path: Path, source: str, kind: str) -> None:
    dataset = SOURCES[source](IDS[kind], tmp_path)
    assert dataset.groups is not None
    assert np.unique(dataset.groups, return_inverse=True)[1].max() == 29
    assert (dataset.groups[::2] == dataset.groups[1::2]).all()
    assert list(dataset.labels) == ["kind"]
    assert "group patient: 30 groups of 60 examples, at most 2 in one" in dataset.notes
    assert any("classes of 'kind': ant 30, bee 30" in note for note in dataset.notes)
    assert not any("classes of 'patient'" in note for note in dataset.notes)


def test_a_folder_is_told_as_a_group_alone(tmp_path: Path) -> None:
    for row, pixels in enumerate(IMAGES):
        (tmp_path / f"s{row % 6}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / f"s{row % 6}" / f"{row:02}.png")
    dataset = open_dataset(tmp_path, group="class")
    assert dataset.notes == ("group class: 6 groups of 60 examples, at most 10 in one",)


def test_a_column_of_numbers_to_group_by_has_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'patient' to group by holds numbers and no names: write"):
        as_manifest(PATIENTS / 3, tmp_path)
