"""Tables of labels: what is read as one, whose path means which example, and what is refused.

Tables as other programs write them are the plain table, or refused.
"""

import datetime
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import widefield
from made_tables import Frame, Series, by_path
from widefield.data import open_dataset
from widefield.data.labels import LabelTable, read_labels

IMAGES = np.arange(40, dtype=np.uint8).reshape(40, 1, 1, 1) * np.full((1, 8, 8, 3), 6, np.uint8)


NAType = type("NAType", (), {"__ne__": lambda self, other: self})


def test_file_frame_series_and_mapping_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(",path,label\n0,a.png,cat\n1,b.png, dog\n2,c.png,\n")
    frame = Frame(path=["a.png", Path("b.png"), "c.png"], label=["cat", "dog", float("nan")])
    series = Series({"a.png": "cat", "b.png": "dog", "c.png": None})
    for given in (file, str(file), frame, series, {"a.png": "cat", "b.png": "dog", "c.png": ""}):
        assert by_path(read_labels(given)) == {"label": {"a.png": "cat", "b.png": "dog"}}, given


def test_columns_are_found_by_the_name_that_they_have(tmp_path: Path) -> None:
    """With spaces around it, as a number, or in a table of pyarrow."""
    file = tmp_path / "labels.csv"
    file.write_text("path, label\na.png,cat\n")
    expected = {"label": {"a.png": "cat"}}
    assert by_path(read_labels(file)) == expected
    assert by_path(read_labels(pa.table({"path": ["a.png"], "label": ["cat"]}))) == expected
    numbered = Frame()
    numbered._columns = {"path": ["a.png"], 0: ["cat"]}  # type: ignore[dict-item]
    assert by_path(read_labels(numbered)) == {"0": {"a.png": "cat"}}


def test_columns_are_tasks_and_numbers_labels() -> None:
    frame = Frame(
        path=["a", "b", "c"],
        grade=[1.0, float("nan"), 2.0],  # whole numbers, as pandas has them beside a gap
        kind=np.array([3, 4, 5]),
        seen=[True, False, NAType()],
    )
    assert by_path(read_labels(frame)) == {
        "grade": {"a": "1", "c": "2"},
        "kind": {"a": "3", "b": "4", "c": "5"},
        "seen": {"a": "True", "b": "False"},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "cannot read labels from NoneType: give a .csv file, a table"),
        ([("a.png", "cat")], "cannot read labels from list: give"),
        (np.zeros(3), "cannot read labels from ndarray"),
        ({"path": ["a.png"], "label": ["cat"]}, "labels are columns by their names"),
        ({3: "cat"}, "labels row 0: 3 is not a path"),
        (Frame(photo=["a.png"], label=["cat"]), "no column 'path'"),
        (Frame(path=["a.png"]), "no column 'label'"),
        (Frame(path=["a.png", "a.png"], label=["cat", "dog"]), "row 1: 'a.png' is listed twice"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        widefield.classify("pixels", IMAGES, labels=given, quiet=True)
    assert str(refused.value).isprintable()


def test_a_comma_that_is_not_quoted_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\na.png,cat\nb.png,cat, striped\n", "utf-8")
    with pytest.raises(
        ValueError, match=r"labels\.csv line 3 has more cells .* in double quotes"
    ) as e:
        read_labels(file)
    assert str(e.value).isprintable()
    file.write_text('path,label\na.png,cat,\nb.png,"cat, striped", \n', "utf-8")
    assert by_path(read_labels(file)) == {"label": {"a.png": "cat", "b.png": "cat, striped"}}


def test_classify_takes_a_frame() -> None:
    names = [f"row {i}" for i in (0, 1, 2, 37, 38, 39)]
    labels = ["dark"] * 3 + ["light"] * 3
    found = [
        widefield.classify("pixels", IMAGES, labels=given, quiet=True).values
        for given in (dict(zip(names, labels, strict=True)), Frame(path=names, label=labels))
    ]
    assert np.array_equal(*found)


def test_a_path_leads_to_its_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "linked").symlink_to("photos")
    names = ["cat/0.png", "cat/1.png"]
    for path, base in (
        ("cat/0.png", "photos"),
        ("./cat/0.png", "photos"),
        ("photos/cat/0.png", "photos"),
        ("./photos/cat/0.png", "./photos/"),
        (str(tmp_path / "photos/cat/0.png"), "photos"),
        (str(tmp_path / "photos/cat/0.png"), "linked"),
    ):
        found = read_labels({path: "cat"}).of_examples(names, base)
        assert by_path(found) == {"label": {"cat/0.png": "cat"}}, (path, base)


def test_a_name_with_another_space_leads_to_its_file(tmp_path: Path) -> None:
    name = "Screenshot 9.41\u202fAM.png"  # as macOS writes it
    Image.fromarray(IMAGES[0]).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text(f"path,label\n{name},cat\n", "utf-8")
    dataset = open_dataset(tmp_path, labels=read_labels(tmp_path / "labels.csv"))
    assert [(tmp_path / path).exists() for path in dataset.paths] == [True]
    assert dataset.classes == {"label": ("cat",)}


def test_paths_that_lead_nowhere_or_to_two_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    within = ["a.png", "photos/a.png"]
    own = read_labels({"photos/a.png": "cat"})
    assert by_path(own.of_examples(within, "photos")) == by_path(own)  # a name is what it is
    for given, message in (
        ({"photos/a.png": "cat", "b.png": "dog"}, "means 'a.png' or 'photos/a.png'"),
        ({"photos/../../a.png": "cat"}, "1 labeled files are not in the data"),
        ({"/elsewhere/a.png": "cat"}, "such as '/elsewhere/a.png'"),
        ({"a.png": "cat", str(tmp_path / "photos/a.png"): "cat"}, "one example by two paths"),
    ):
        with pytest.raises(ValueError, match=message):
            read_labels(given).of_examples(within, "photos")


def test_examples_without_a_label_are_left_out_or_kept_as_none() -> None:
    table = read_labels(
        Frame(path=["row 3", "row 5", "row 8"], a=["x", "y", "x"], b=["p", "", "q"])
    )
    few = open_dataset({"x": IMAGES, "own": np.arange(40)}, labels=table)
    assert few.paths == ["row 3", "row 8"]
    assert (few.images == IMAGES[[3, 8]]).all()
    assert {task: y.tolist() for task, y in few.labels.items()} == {"a": [0, 0], "b": [0, 1]}
    assert few.notes[:2] == (
        "classes of 'a': x 2, y 1; 37 examples without a label",
        "classes of 'b': p 1, q 1; 38 examples without a label",
    )
    assert few.notes[2:] == ("38 of 40 examples have no 'a' and 'b' in labels: left out",)
    both = open_dataset({"x": IMAGES}, labels=table, unlabeled=True)
    assert len(both) == 40
    assert both.labels["b"][[3, 5, 8]].tolist() == [0, -1, 1]
    balanced = open_dataset({"x": IMAGES}, labels=table, unlabeled=True, max_examples=3)
    assert sorted(balanced.labels["a"].tolist()) == [-1, 0, 1]


@pytest.mark.parametrize(("key", "shape"), [("windows", (9, 2, 32)), ("sounds", (9, 4000))])
def test_windows_and_sounds_get_labels_too(key: str, shape: tuple[int, ...]) -> None:
    signals = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    data = {key: signals} | ({"sample_rate": np.array(4000)} if key == "sounds" else {})
    few = open_dataset(data, labels=read_labels({"row 2": "x", "row 7": "y"}))
    assert few.paths == ["row 2", "row 7"]
    whole = open_dataset(data)
    assert (few.images == whole.images[[2, 7]]).all()


@pytest.mark.parametrize(
    "data",
    [
        {"x": IMAGES[:10]},
        {"windows": np.random.default_rng(0).normal(size=(10, 2, 32))},
        {
            "sounds": np.random.default_rng(0).integers(1, 9, (10, 1000)).astype(np.int16),
            "sample_rate": np.array(1000),
        },
    ],
)
def test_arrays_leave_out_a_task_that_some_examples_lack(data: dict[str, Any]) -> None:
    paths = [f"row {i}" for i in range(10)]
    table = read_labels(Frame(path=paths, some=["a"] * 9 + [""], all=["a", "b"] * 5))
    dataset = open_dataset(data, labels=table, unlabeled=True)
    assert dataset.labels["some"][-1] == -1
    again = open_dataset(dataset.arrays())
    assert list(again.labels) == ["all"]
    np.testing.assert_array_equal(again.labels["all"], dataset.labels["all"])
    np.testing.assert_array_equal(again.images, dataset.images)


def test_no_example_with_every_label_is_refused() -> None:
    table = read_labels(Frame(path=["row 3", "row 5"], a=["x", ""], b=["", "q"]))
    with pytest.raises(ValueError, match="labels has no example with 'a' and 'b': fill"):
        open_dataset({"x": IMAGES}, labels=table)


TAKEN = Frame(
    path=["row 0", "row 1", "row 38", "row 39"],
    label=["a", "a", "b", "b"],
    taken=[datetime.date(2024, 1, 1)] * 4,
    x=[0.5] * 4,
)


def test_columns_that_nobody_asked_for_are_not_read() -> None:
    alone = by_path(read_labels(TAKEN, only="label"))
    assert alone == {"label": {"row 0": "a", "row 1": "a", "row 38": "b", "row 39": "b"}}
    assert widefield.classify("pixels", IMAGES, labels=TAKEN, quiet=True).classes == ("a", "b")
    with pytest.raises(
        ValueError, match=r"labels has no column 'kind': beside path it has label, taken, x$"
    ):
        read_labels(TAKEN, only="kind")
    with pytest.raises(ValueError, match="beside path it has kind; rename one to 'label'"):
        read_labels(Frame(path=["a.png"], kind=["a"]), only="label")
    with pytest.raises(ValueError, match="no column 'label': it needs path, and label or another"):
        read_labels(Frame(path=["a.png"]), only="kind")


def test_columns_that_are_all_tasks_have_to_be_labels() -> None:
    for columns, message in (
        (("path", "label", "taken"), "'row 0' has a date as its taken: give"),
        (("path", "label", "x"), "has a column 'x', which is reserved for arrays .*: rename it"),
    ):
        given = Frame(**{name: TAKEN[name] for name in columns})
        with pytest.raises(ValueError, match=message):
            widefield.probe("pixels", IMAGES, labels=given, quiet=True)


NAMES = [f"{kind}/{i}.png" for i, kind in enumerate(("ant", "ant", "café", "café", "ant", "café"))]
LABELS = ["Ant", "Ant", "Bee", "Bee", "Ant", "Bee"]


def _read(labels: list[str]) -> LabelTable:
    return read_labels(dict(zip(NAMES, labels, strict=True)))


def _kept(table: LabelTable) -> list[str]:
    return [by_path(table)["label"].get(name, "") for name in NAMES]


@pytest.mark.parametrize(
    "text", ["NA", "N/A", "nan", "NaN", "None", "null", "<NA>", "NULL", "#N/A"]
)
def test_missing_values_are_no_class(text: str) -> None:
    table = _read([*LABELS[:5], text])
    assert _kept(table) == [*LABELS[:5], ""]
    assert table.notes == (f"labels: 1 cells of 'label' are {text!r}: missing, not a class",)
    control = _read([*LABELS[:5], "Nat"])  # any other text is a class
    assert control.classes == {"label": ("Ant", "Bee", "Nat")}
    assert control.notes == ()


def test_minus_one_is_missing_among_integers_from_zero_only() -> None:
    assert _kept(_read(["0", "1", "-1", "0", "1", "-1.0"])) == ["0", "1", "", "0", "1", ""]
    for labels in (["-1", "1"] * 3, ["-1", "-2", "0"] * 2, ["-1", "a", "b"] * 2):
        assert _kept(_read(labels)) == labels


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["ant", "Ant", "Ant", "b", "b", "b"], ["Ant"] * 3 + ["b"] * 3),
        (["0", "0.0", "0.00", "1", "1", "1.0"], ["0"] * 3 + ["1"] * 3),
        (["caf\u00e9", "cafe\u0301", "caf\u00e9", "b", "b", "b"], ["caf\u00e9"] * 3 + ["b"] * 3),
        ([" a", "a ", "a", "b", "b\u00a0", "b"], ["a"] * 3 + ["b"] * 3),
    ],
)
def test_spellings_of_one_label_are_one_class(labels: list[str], expected: list[str]) -> None:
    assert _kept(_read(labels)) == expected
    assert _kept(_read(["1.0", "1.5"] * 3)) == ["1.0", "1.5"] * 3  # one spelling stays


def test_many_numbers_are_no_classes() -> None:
    paths = [f"{i}.png" for i in range(30)]
    ages = {path: f"{20 + 0.37 * i:.2f}" for i, path in enumerate(paths)}
    with pytest.raises(ValueError, match="'label' holds numbers, not classes"):
        read_labels(ages)
    assert len(read_labels({path: str(i) for i, path in enumerate(paths)}).classes["label"]) == 30


def test_unicode_forms_slashes_and_last_parts_lead_to_the_file() -> None:
    for form in ("NFC", "NFD"):
        names = [unicodedata.normalize(form, name) for name in NAMES]
        for other in ("NFC", "NFD"):
            given = [unicodedata.normalize(other, name) for name in NAMES]
            for paths in (
                given,
                [path.replace("/", "\\") for path in given],
                [path.split("/")[1] for path in given],
            ):
                table = read_labels(dict(zip(paths, LABELS, strict=True)))
                found = by_path(table.of_examples(names, "data"))["label"]
                assert found == dict(zip(names, LABELS, strict=True))
    with pytest.raises(ValueError, match=r"'0.png' means 'a/0.png' or 'b/0.png'"):
        read_labels({"0.png": "x"}).of_examples(["a/0.png", "b/0.png"], "data")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("column", ["path", "Path", "filename", "file", "IMAGE", "file_name"])
def test_files_of_other_programs(
    tmp_path: Path, column: str, delimiter: str, encoding: str
) -> None:
    rows = [(column, "Label"), *zip(NAMES, LABELS, strict=True)]
    text = "".join(f'"{a}"{delimiter}{b}\r\n' for a, b in rows)
    (tmp_path / "l.csv").write_bytes(text.encode(encoding))
    table = read_labels(tmp_path / "l.csv", only="label")
    assert _kept(table) == LABELS
    two = f"file{delimiter}image{delimiter}label\na{delimiter}b{delimiter}c\n"
    (tmp_path / "l.csv").write_text(two, "utf-8")
    with pytest.raises(ValueError, match="has no column 'path'"):
        read_labels(tmp_path / "l.csv")
