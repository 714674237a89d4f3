"""`widefield classify` as a user types it: folder, labels.csv, predictions."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import Command

COLORS = {"red": (200, 60, 60), "green": (60, 200, 60), "blue": (60, 60, 200)}


@pytest.fixture
def pictures(in_tmp: Path) -> Path:
    """Sixty pictures in one folder without classes; their names do not give their color away."""
    rng = np.random.default_rng(0)
    folder = in_tmp / "pictures"
    folder.mkdir()
    for i in range(60):
        pixels = np.array(list(COLORS.values())[i % 3]) + rng.integers(-50, 50, (16, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i:02}.png")
    return in_tmp


def color(path: str) -> str:
    return list(COLORS)[int(Path(path).stem) % 3]


def write_labels(rows: list[tuple[str, str]], head: str = "path,label") -> None:
    lines = [head, *(f"{path},{label}" for path, label in rows)]
    Path("labels.csv").write_text("\n".join(lines) + "\n")


def five_each() -> list[tuple[str, str]]:
    return [(f"{i:02}.png", color(f"{i:02}.png")) for i in range(15)]


def classify(*more: str) -> list[str]:
    return ["classify", "pixels", "pictures", "--labels", "labels.csv", *more]


@pytest.mark.usefixtures("pictures")
def test_every_picture_gets_its_class(command: Command) -> None:
    write_labels(five_each())
    said = command.text(*classify("--out", "found.parquet", "--suggest", "4"))
    assert "accuracy 100.0 %" in said
    assert said.count("label next: ") == 4
    rows = pq.read_table("found.parquet").to_pylist()
    assert [row["predicted"] for row in rows] == [color(row["path"]) for row in rows]
    assert [row["label"] for row in rows] == [dict(five_each()).get(row["path"]) for row in rows]
    assert all(abs(row["p red"] + row["p green"] + row["p blue"] - 1) < 1e-6 for row in rows)
    ranks = [row["suggested"] for row in rows if row["suggested"]]
    assert sorted(ranks) == [1, 2, 3, 4]
    assert not {row["path"] for row in rows if row["suggested"]} & dict(five_each()).keys()


@pytest.mark.usefixtures("pictures")
def test_wrong_labels_are_seen_in_cross_validation(command: Command) -> None:
    """The control of the test above: random labels are not predicted."""
    rng = np.random.default_rng(0)
    lot = rng.permutation([label for _, label in five_each()])
    write_labels([(path, label) for (path, _), label in zip(five_each(), lot, strict=True)])
    found = command.json(*classify("--out", "found.csv"))
    assert found["cross_validation"]["accuracy"] < 0.8
    assert found["cross_validation"]["low"] < 0.5
    assert np.sum(found["cross_validation"]["confusion"]) == found["labels"] == 15
    with open("found.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == found["examples"] == 60


@pytest.mark.usefixtures("pictures")
def test_recall_and_balanced_accuracy_are_those_of_the_confusion(command: Command) -> None:
    labels = five_each()
    labels[0] = (labels[0][0], "blue")
    write_labels([*labels, ("15.png", "red")])
    found = command.json(*classify("--out", "a.csv"))["cross_validation"]
    confusion = np.array(found["confusion"])
    recall = confusion.diagonal() / confusion.sum(1)
    assert list(found["recall"].values()) == pytest.approx(recall)
    assert found["balanced_accuracy"] == pytest.approx(recall.mean())
    assert found["accuracy"] == pytest.approx(confusion.trace() / 16)
    write_labels([*labels, ("15.png", "gray")])  # one label, which cannot be held out
    assert command.json(*classify("--out", "b.csv"))["cross_validation"]["recall"]["gray"] is None


@pytest.mark.usefixtures("pictures")
def test_floors_and_calibration_stand_beside_the_accuracy(command: Command) -> None:
    """The colors are in the pixels: random features are no better, and text and page say so."""
    write_labels(five_each())
    words = ["classify", "random", "pictures", "--labels", "labels.csv", "--out"]
    said = command.text(*words, "a.csv", "--suggest", "3")
    assert "raw pixels (100.0 %)" in said
    assert "which is within chance" in said
    assert "points above the most frequent class (33.3 %)" in said
    checked = command.json(*words, "b.csv")["cross_validation"]
    assert checked["floors"].keys() == {
        "raw pixels",
        "a dictionary of patches",
        "the most frequent class",
    }
    assert 0 < checked["calibration_error"] < 0.5
    assert 0.5 < checked["confidence"] <= 1
    page = Path("a.html").read_text()
    for text in ("raw pixels", "To label next", "Predictions by class", "calibration error"):
        assert text in page
    assert "a.html" in said
    assert "a.html is already there" in command.refused(*words, "a.parquet")


@pytest.mark.usefixtures("pictures")
def test_a_wrong_label_is_on_the_page_to_be_checked(command: Command) -> None:
    labels = five_each()
    command.text(*_written(labels, "right.csv"))
    assert "Labels to check" not in Path("right.html").read_text()
    labels[0] = (labels[0][0], "blue")
    command.text(*_written(labels, "wrong.csv"))
    assert "Labels to check" in Path("wrong.html").read_text()


def _written(labels: list[tuple[str, str]], out: str) -> list[str]:
    write_labels(labels)
    return classify("--out", out)


@pytest.mark.usefixtures("pictures")
def test_one_label_of_a_class_is_enough_to_predict(command: Command) -> None:
    write_labels(five_each()[:3])
    assert "fewer than two classes have two labels" in command.text(
        *classify("--out", "found.parquet")
    )


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        ([("00.png", "red"), ("99.png", "green")], "path,label", "1 labeled files are not in"),
        ([("00.png", "red"), ("01.png", "red")], "path,label", "at least two classes"),
        ([("00.png", "red"), ("01.png", " ")], "path,label", "at least two classes"),
        ([("00.png", "red")], "path,path", "two columns 'path'"),
        ([("00.png", "red")], "path,color", "no column 'label'"),
        ([("00.png", "red"), ("00.png", "red")], "path,label", "line 3: '00.png' is listed twice"),
        ([("00.png", "red")], "key,label", "no column 'path'"),
        ([], "path,label", "at least two classes"),
    ],
)
@pytest.mark.usefixtures("pictures")
def test_labels_that_cannot_be_used_are_refused(
    rows: list[tuple[str, str]], head: str, message: str, command: Command
) -> None:
    write_labels(rows, head)
    assert message in command.refused(*classify("--out", "found.parquet"))
    assert not Path("found.parquet").exists()


def test_empty_labels_are_none_and_paths_may_lead_to_the_file(
    pictures: Path, command: Command
) -> None:
    write_labels(five_each())
    plain = command.json(*classify("--out", "plain.csv"))
    led = [(str(pictures / "pictures" / path), label) for path, label in five_each()[:7]]
    led += [(f"pictures/{path}", label) for path, label in five_each()[7:]]
    write_labels([*led, ("15.png", ""), ("nowhere.png", "")])
    out = {"out": "led.csv", "page": "led.html"}
    assert command.json(*classify("--out", "led.csv")) == {**plain, **out}
    assert Path("plain.csv").read_text() == Path("led.csv").read_text()


@pytest.mark.usefixtures("pictures")
def test_a_class_of_unreadable_files_alone_is_none(command: Command) -> None:
    Path("pictures/broken.png").write_text("no image")
    write_labels([*five_each(), ("broken.png", "violet")])
    found = command.json(*classify("--out", "found.csv"))
    assert sorted(found["classes"]) == sorted(COLORS)
    assert found["labels"] == 15


@pytest.mark.usefixtures("pictures")
def test_bad_places_are_refused(command: Command) -> None:
    write_labels(five_each())
    Path("there.csv").write_text("mine")
    for more, message in (
        (["--out", "found.txt"], ".parquet or .csv"),
        (["--out", "there.csv"], "--overwrite"),
        (["--out", "a.csv", "--suggest", "-1"], "suggest is -1"),
    ):
        assert message in command.refused(*classify(*more))
    assert Path("there.csv").read_text() == "mine"
    command.text(*classify("--out", "there.csv", "--overwrite"))
