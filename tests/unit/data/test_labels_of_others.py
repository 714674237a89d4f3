"""Tables of labels as other programs write them: each is the plain table, or refused."""

import unicodedata
from pathlib import Path

import pytest

from widefield.data.labels import LabelTable, read_labels

NAMES = [f"{kind}/{i}.png" for i, kind in enumerate(("ant", "ant", "café", "café", "ant", "café"))]
LABELS = ["Ant", "Ant", "Bee", "Bee", "Ant", "Bee"]


def _read(labels: list[str]) -> LabelTable:
    return read_labels(dict(zip(NAMES, labels, strict=True)))


def _kept(table: LabelTable) -> list[str]:
    return [table.tasks["label"].get(name, "") for name in NAMES]


@pytest.mark.parametrize(
    "text", ["NA", "N/A", "nan", "NaN", "None", "null", "<NA>", "NULL", "#N/A"]
)
def test_missing_values_are_no_class(text: str) -> None:
    table = _read([*LABELS[:5], text])
    assert _kept(table) == [*LABELS[:5], ""]
    assert table.notes == (f"labels: 1 cells of 'label' are {text!r}: missing, not a class",)
    control = _read([*LABELS[:5], "Nat"])  # any other text is a class
    assert control.classes() == {"label": ("Ant", "Bee", "Nat")}
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
    assert len(read_labels({path: str(i) for i, path in enumerate(paths)}).classes()["label"]) == 30


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
                found = table.with_names(names, "data").tasks["label"]
                assert found == dict(zip(names, LABELS, strict=True))
    with pytest.raises(ValueError, match=r"'0.png' means 'a/0.png' or 'b/0.png'"):
        read_labels({"0.png": "x"}).with_names(["a/0.png", "b/0.png"], "data")


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
