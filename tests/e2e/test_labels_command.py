"""A flat folder with a table of labels: probed, audited and explored without a class folder."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import widefield
from commands import Command
from runs import SMALL

COLORS = {"red": (200, 60, 60), "green": (60, 200, 60), "blue": (60, 60, 200)}
COUNT = 90


@pytest.fixture
def table(in_tmp: Path) -> list[dict[str, str]]:
    """Pictures in one folder; two in three have a label in labels.csv."""
    rng = np.random.default_rng(0)
    Path("pictures").mkdir()
    rows = []
    for i in range(COUNT):
        color, dim = list(COLORS)[i % 3], rng.integers(2)
        pixels = np.array(COLORS[color]) // (1 + dim) + rng.integers(-30, 30, (16, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"pictures/{i:02}.png")
        label = color if i < 60 else ""
        rows.append({"path": f"{i:02}.png", "label": label, "light": ["on", "off"][dim]})
    lines = ["path,label,light", *(",".join(row.values()) for row in rows)]
    Path("labels.csv").write_text("\n".join(lines) + "\n")
    return rows


PROBE = ("probe", "pixels", "pictures", "--labels", "labels.csv", "--no-floors")


@pytest.mark.usefixtures("table")
def test_a_flat_folder_is_probed_by_its_table(command: Command) -> None:
    found = command.json(*PROBE)
    assert found["tasks"].keys() == {"label", "light"}
    assert found["tasks"]["label"]["accuracy"] == found["tasks"]["light"]["accuracy"] == 1.0
    assert found["fitted_on"] == "pictures:train"
    assert found["scored_on"] == "pictures:test"
    assert found["notes"][:4] == [
        "the data are split 80 / 20: fitted on one part, scored on the other",
        "classes of 'label': blue 20, green 20, red 20; 30 examples without a label",
        "classes of 'light': off 48, on 42",
        "30 of 90 examples have no 'label' and 'light' in labels.csv: left out",
    ]
    scored = [int(note.split()[4]) for note in found["notes"] if "test split: " in note]
    alone = command.json(*PROBE, "--task", "light")
    assert alone["tasks"].keys() == {"light"}
    assert not [note for note in alone["notes"] if "left out" in note]
    limited = command.json(*PROBE, "--max-examples", "6")["tasks"]["label"]
    assert limited["test_examples"] == 6 < scored[0] < 30
    for split in (":train", ":test"):
        assert command.json(*PROBE[:2], f"pictures{split}", *PROBE[3:]) == found


@pytest.mark.usefixtures("table")
def test_labels_by_lot_are_not_read(command: Command) -> None:
    """The control: the same pictures with labels that they do not show."""
    lot = np.random.default_rng(1).permutation(["red", "green", "blue"] * 30)
    rows = "".join(f"{i:02}.png,{label}\n" for i, label in enumerate(lot))
    Path("labels.csv").write_text(f"path,label\n{rows}")
    assert command.json(*PROBE)["tasks"]["label"]["accuracy"] < 0.8


def test_a_table_says_what_folders_of_classes_say(
    table: list[dict[str, str]], command: Command
) -> None:
    for row in table[:60]:
        Path("sorted", row["label"]).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("pictures", row["path"]), Path("sorted", row["label"], row["path"]))
    rows = "".join(f"{row['label']}/{row['path']},{row['label']}\n" for row in table[:60])
    Path("labels.csv").write_text(f"path,class\n{rows}")
    by_table = widefield.probe("pixels", "sorted", labels="labels.csv", quiet=True)
    by_folder = widefield.probe("pixels", "sorted:test", train_data="sorted:train", quiet=True)
    assert by_table.to_json()["tasks"] == by_folder.to_json()["tasks"]


@pytest.mark.usefixtures("table")
def test_an_audit_goes_by_the_table(command: Command, in_tmp: Path) -> None:
    words = ("audit", "random", "pictures", "--cache", in_tmp / "cache")
    found = command.json(*words, "--labels", "labels.csv")
    assert found["tasks"].keys() == {"label", "light"}
    assert sum(found["examples"]) == 60
    assert "30 of 90 examples have no 'label' and 'light' in labels.csv: left out" in found["notes"]


def test_all_pictures_are_explored_and_those_with_a_label_checked(
    table: list[dict[str, str]], command: Command
) -> None:
    rows = [("green" if i == 0 else row["label"]) for i, row in enumerate(table)]
    lines = [f"{row['path']},{label}" for row, label in zip(table, rows, strict=True)]
    Path("labels.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    words = ("explore", "pixels", "pictures", "--labels", "labels.csv", "--tables", "found")
    said = command.text(*words, "--out", "page.html")
    assert "kNN accuracy of label 98.3 % on the 60 labeled images" in said
    assert pq.read_table("found/suspects.parquet")["path"].to_pylist() == ["00.png"]
    assert pq.read_table("found/suspects.parquet")["neighbors_say"].to_pylist() == ["red"]
    assert len(pq.read_table("found/clusters.parquet")) == COUNT


def test_few_labels_color_the_map_alone(table: list[dict[str, str]]) -> None:
    labels = {row["path"]: row["label"] for row in table[:3]}
    found = widefield.explore("pixels", "pictures", labels=labels, quiet=True)
    assert found.dataset.labels["label"].max() == 2
    assert (found.dataset.labels["label"] >= 0).sum() == 3
    assert found.suspects == {}
    assert any("'label' has 3 labels, which are not checked" in note for note in found.notes)


BAD = {
    "probe pixels pictures --train-data pictures": "leave --train-data out",
    "audit pixels photos": "photos has labels of its own",
    "probe pixels": "pixels is not a widefield run: give the data",
    "probe pixels pictures --task shape": "no column 'shape'",
}


@pytest.mark.parametrize("words", BAD)
@pytest.mark.usefixtures("table")
def test_labels_of_what_cannot_be_divided_are_refused(words: str, command: Command) -> None:
    assert BAD[words] in command.refused(*words.split(), "--labels", "labels.csv")


@pytest.mark.usefixtures("table")
def test_a_run_without_labels_is_probed_on_data_with_them(command: Command) -> None:
    widefield.pretrain("pictures", out="run", **SMALL)
    for i in range(30):
        color = list(COLORS)[i % 3]
        Path("labeled", color).mkdir(parents=True, exist_ok=True)
        shutil.copy(f"pictures/{i:02}.png", f"labeled/{color}")
    found = command.json("probe", "run", "labeled", "--no-floors")
    assert found["scored_on"] == "labeled:test"
    assert found["notes"][0].startswith("the data are split 80 / 20")
    assert any(note.startswith("fitted on: train split: ") for note in found["notes"])
    built_in = command.json("probe", "run", "photos:test", "--max-examples", "32", "--no-floors")
    assert built_in["notes"][0] == "fitted on the train split of the data, scored on the test split"
    widefield.pretrain("pictures+shapes", out="planted", **SMALL)
    found = command.json("probe", "planted", "labeled", "--no-floors")
    assert found["tasks"].keys() == {"class"}
    Path("pictures").rename("moved")
    assert command.json("probe", "run", "labeled", "--no-floors")["tasks"].keys() == {"class"}
    Path("moved").rename("pictures")
    again = command.json("probe", "run", "--labels", "labels.csv", "--no-floors")
    assert again["scored_on"].endswith("pictures:test")
    assert "--labels" in command.refused("probe", "run", "pictures")


@pytest.mark.usefixtures("in_tmp")
def test_what_a_run_on_arrays_needs_is_said(command: Command) -> None:
    images = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)
    data = {"x": images, "kind": np.arange(64) % 2}
    widefield.pretrain(data, out="run", **SMALL)
    gone = "run was trained on arrays in memory, which were not saved: "
    for call, remedy in (
        (
            lambda: widefield.probe("run", data, quiet=True),
            r"give data to fit on, train_data=DATA",
        ),
        (lambda: widefield.probe("run", train_data=data, quiet=True), "give data to score on"),
        (lambda: widefield.audit("run", quiet=True), "give the data"),
    ):
        with pytest.raises(ValueError, match=gone + remedy):
            call()
    assert gone in command.refused("probe", "run")
    np.savez("same.npz", **data)
    found = command.json("probe", "run", "same.npz", "--train-data", "same.npz", "--no-floors")
    assert found["tasks"].keys() == {"kind"}
