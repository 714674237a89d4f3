"""Columns of numbers, and of several labels a cell, are recognized and never taken for classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import widefield
from widefield.data.labels import LabelTable, read_labels
from widefield.data.labels.text import kind_of_cells

PATHS = [f"{i:02d}.png" for i in range(30)]
AGES = [f"{20 + 0.37 * i:.2f}" for i in range(30)]
FINDINGS = ["Edema|Effusion", "Effusion", "|", "edema", "Mass", " Mass | Edema "] * 5


def _table(tmp_path: Path, header: str, *columns: list[str], targets: bool = True) -> LabelTable:
    rows = [",".join(row) for row in zip(PATHS, *columns, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join([f"path,{header}", *rows]) + "\n")
    return read_labels(tmp_path / "labels.csv", targets=targets)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (AGES, "number"),
        ([str(18 + 2 * i) for i in range(30)], "number"),  # ages begin at no 0 or 1
        ([str(i * i) for i in range(30)], "number"),  # counts leave most numbers out
        ([str(i) for i in range(30)], None),  # ids of classes
        ([str(1 + i) for i in range(30)], None),
        (["0.5", "1.0", "1.5"] * 10, None),  # few doses are classes
        (["-1,5", "2,5", *AGES], "number"),
        ([*AGES, "old"], None),
        ([*AGES, "inf"], None),
        (FINDINGS, "labels"),
        (["a;b", "a"], "labels"),
        (["a, b", "a"], None),
        ([f"{10 + i}_{i % 3}" for i in range(30)], None),
        ([f"{997 * i:05d}" for i in range(8, 38)], None),  # codes
        ([f"{997 * i}" for i in range(8, 38)], "number"),
        ([f"{0.5 + i:04.1f}" for i in range(8, 38)], "number"),  # 08.5
    ],
)
def test_what_a_column_is_taken_for(cells: list[str], kind: str | None) -> None:
    assert kind_of_cells(cells) == kind


def test_numbers_and_labels_are_read_as_such(tmp_path: Path) -> None:
    kinds = ["cat", "dog"] * 15
    table = _table(tmp_path, "age,findings,kind", [*AGES[:29], "NA"], FINDINGS, kinds)
    assert list(table.labels) == ["kind"]
    values = table.of_examples(PATHS, ".").targets
    assert values["age"].kind == "number"
    assert np.allclose(values["age"].values[:29, 0], [float(x) for x in AGES[:29]])
    assert values["age"].known.tolist() == [True] * 29 + [False]
    assert values["findings"].labels == ("Edema", "Effusion", "Mass")
    assert values["findings"].values[:6].tolist() == [
        [1, 1, 0],
        [0, 1, 0],
        [0, 0, 0],  # a separator alone is none of the labels, and not missing
        [1, 0, 0],  # in another spelling
        [0, 0, 1],
        [1, 0, 1],
    ]
    assert values["age"].note("age", in_table=True) == (
        "'age' is a number of each example, from 20 to 30.36, median 25.18; for classes, name the "
        "column 'age:class'; 1 examples without one"
    )
    assert values["findings"].note("findings", in_table=True) == (
        "'findings' has several labels an example: Edema 15, Effusion 10, Mass 10; for classes, "
        "name the column 'findings:class'"
    )


def test_numbers_with_an_infinite_one_are_said_to_be_classes(tmp_path: Path) -> None:
    table = _table(tmp_path, "age", [*AGES[:29], "-inf"])
    assert any("for numbers, name the column 'age:number'" in note for note in table.notes)
    with pytest.raises(ValueError, match="'-inf' is not a finite number: correct it"):
        _table(tmp_path, "age:number", [*AGES[:29], "-inf"])


def test_a_comma_that_may_separate_thousands_is_refused(tmp_path: Path) -> None:
    def weights(last: str, header: str = "weight") -> LabelTable:
        cells = [*(str(900 + 7 * i) for i in range(28)), "2,101", last]
        rows = [f'{path},"{cell}"' for path, cell in zip(PATHS, cells, strict=True)]
        (tmp_path / "labels.csv").write_text("\n".join([f"path,{header}", *rows]) + "\n")
        return read_labels(tmp_path / "labels.csv", targets=True)

    for header in ("weight", "weight:number"):
        with pytest.raises(ValueError, match=r"the comma of '2,101' may be .* or no comma"):
            weights("-12,000", header)
    for decimal in ("2,5", "0,125", "1800,250"):  # the control
        assert weights(decimal).of_examples(PATHS, ".").targets["weight"].values[28] == 2.101


def test_the_end_of_a_columns_name_says_what_it_is(tmp_path: Path) -> None:
    grades = [str(i % 3) for i in range(30)]
    given = _table(tmp_path, "age:class,findings:class,grade:number", AGES, FINDINGS, grades)
    assert len(given.classes["age"]) == 30
    assert "Edema|Effusion" in given.classes["findings"]
    assert given.of_examples(PATHS, ".").targets["grade"].values[:3].tolist() == [[0], [1], [2]]
    one = _table(tmp_path, "grade:labels", grades)
    assert one.of_examples(PATHS, ".").targets["grade"].labels == ("0", "1", "2")
    plain = _table(tmp_path, "grade", grades)  # the control
    assert plain.classes == {"grade": ("0", "1", "2")}
    dose = _table(tmp_path, "dose", ["0.5", "1.5", "2"] * 10)
    assert dose.notes == (
        f"{dose.source}: 'dose' is taken for classes; for numbers, name the column 'dose:number'",
    )
    with pytest.raises(ValueError, match="two columns 'age': leave one"):
        _table(tmp_path, "age,age:class", AGES, AGES)
    with pytest.raises(ValueError, match="'age:number': 'old' is not a finite number: correct"):
        _table(tmp_path, "age:number", [*AGES[:29], "old"])
    with pytest.raises(ValueError, match="column 'age:number' has no number: write some"):
        _table(tmp_path, "age:number,grade", [""] * 30, grades)
    with pytest.raises(ValueError, match="'findings' has no label but separators"):
        _table(tmp_path, "findings", ["|"] * 30)


def test_other_commands_leave_them_out_or_refuse_them(tmp_path: Path) -> None:
    kinds = ["cat", "dog"] * 15
    table = _table(tmp_path, "age,findings,kind", AGES, FINDINGS, kinds, targets=False)
    assert list(table.labels) == ["kind"]
    assert not table.targets
    only = "which only probe, audit and classify take: left out"
    assert table.notes == (
        f"{table.source}: 'age' holds numbers, not classes, {only}",
        f"{table.source}: 'findings' holds several labels a cell, {only}",
    )
    for name, cells in (("age", AGES), ("findings", FINDINGS)):
        with pytest.raises(ValueError, match=f"'{name}' holds .* classify take: write classes"):
            _table(tmp_path, name, cells, targets=False)
    with pytest.raises(ValueError, match="no column holds classes: write some"):
        _table(tmp_path, "age,findings", AGES, FINDINGS, targets=False)


def test_embed_writes_numbers_several_labels_and_missing_ones(tmp_path: Path) -> None:
    age = np.array([0.5, 1.25, 1.5, 2, 2.5, 3])
    tags = np.tile([[0, 1, 1], [1, 0, 1]], (3, 1))
    names = np.array(["cat", "dog", "", "cat", "dog", "dog"])
    x = np.zeros((6, 8, 8, 3), dtype=np.uint8)
    found = widefield.embed("pixels", {"x": x, "age": age, "tags": tags, "kind": names}, quiet=True)
    assert found.to_json()["tasks"] == ["kind", "age", "tags"]
    rows = {row[0]: row[1] for row in found.tables()[0].rows}
    assert rows == {"kind": "2", "age": "a number", "tags": "3 labels"}
    missing = replace(found.targets["age"], values=np.where(age == 1.5, np.nan, age)[:, None])
    found = replace(found, targets=found.targets | {"age": missing})
    found.save(tmp_path / "e.parquet")
    found.save(tmp_path / "e.npz")
    table = pq.read_table(tmp_path / "e.parquet").to_pydict()
    assert table["label_kind"] == ["cat", "dog", None, "cat", "dog", "dog"]
    assert table["number_age"] == [0.5, 1.25, None, 2, 2.5, 3]
    labels = found.targets["tags"].labels
    assert table["labels_tags"] == 3 * [list(labels[1:]), [labels[0], labels[2]]]
    with np.load(tmp_path / "e.npz") as arrays:
        assert arrays["label_kind"].tolist() == [0, 1, -1, 0, 1, 1]
        np.testing.assert_array_equal(arrays["number_age"], missing.values[:, 0])
        np.testing.assert_array_equal(arrays["labels_tags"], tags)
        assert arrays["classes_tags"].tolist() == list(labels)
