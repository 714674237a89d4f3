"""`widefield explore` as a user types it: a folder of pictures, a page, tables."""

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import widefield
from commands import Command
from widefield.workflows.explore_page import _labels, explore_page

COLORS = {"red": (200, 60, 60), "green": (60, 200, 60), "blue": (60, 60, 200)}


@pytest.fixture
def pictures(in_tmp: Path) -> Path:
    """Ninety pictures in three classes; one is there twice, and one is in the wrong folder."""
    rng = np.random.default_rng(0)
    for i in range(90):
        name = list(COLORS)[i % 3]
        pixels = np.array(COLORS[name]) + rng.integers(-50, 50, (16, 16, 3))
        folder = in_tmp / "pictures" / ("blue" if i == 30 else name)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i:02}.png")
    shutil.copy(in_tmp / "pictures/red/03.png", in_tmp / "pictures/red/copy of 03.png")
    return in_tmp


def explore(*more: str) -> list[str]:
    return ["explore", "pixels", "pictures", "--out", "page.html", *more]


@pytest.mark.usefixtures("pictures")
def test_page_and_tables_have_what_is_there(command: Command) -> None:
    said = command.text(*explore("--tables", "found"))
    assert re.search(r"groups of near-duplicates +1\b", said)
    assert re.search(r"kNN accuracy of class \S+ % on all images, 34\.1 % of the commonest", said)
    assert re.search(r"labels of class to check +1\b", said)
    tables = {
        path.stem: pq.read_table(path).to_pylist() for path in Path("found").glob("*.parquet")
    }
    assert tables.keys() == {
        *("neighbors", "duplicates", "outliers", "clusters", "quality", "suspects")
    }
    assert [row["path"] for row in tables["duplicates"]] == ["red/03.png", "red/copy of 03.png"]
    (suspect,) = tables["suspects"]
    assert (suspect["path"], suspect["label"]) == ("blue/30.png", "blue")
    assert suspect["neighbors_say"] == "red"
    near = [row for row in tables["neighbors"] if row["path"] == "red/03.png"]
    assert [row["rank"] for row in near] == list(range(1, 11))
    assert near[0]["neighbor"] == "red/copy of 03.png"
    assert near[0]["cosine"] == pytest.approx(1)
    assert len(tables["clusters"]) == 91
    for name, rows in tables.items():
        with open(f"found/{name}.csv", newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows)
    assert "91 images" in Path("page.html").read_text()


@pytest.mark.usefixtures("pictures")
def test_clusters_are_the_colors(command: Command) -> None:
    told = command.json(*explore("--tables", "found"))
    assert told["clusters"] == 3
    rows = pq.read_table("found/clusters.parquet").to_pylist()
    color = [list(COLORS)[int(Path(row["path"]).stem[-2:]) % 3] for row in rows]
    pairs = {(row["cluster"], c) for row, c in zip(rows, color, strict=True) if row["cluster"]}
    assert len(pairs) == 3
    assert sum(row["typical"] is not None for row in rows) >= 36


def test_the_call_is_the_command_and_repeats_itself(pictures: Path, command: Command) -> None:
    command.text(*explore())
    found = widefield.explore("pixels", "pictures", quiet=True)
    (group,) = _labels(found).groups
    assert "34% that of the commonest class" in str(group.title)
    assert explore_page(found, seed=0) == Path("page.html").read_text()
    assert pictures.exists()


def test_images_without_labels_have_none_to_check(command: Command, pictures: Path) -> None:
    """The control of the label that is to be checked: the same pictures in one folder."""
    (pictures / "flat").mkdir()
    for path in (pictures / "pictures").rglob("*.png"):
        shutil.copy(path, pictures / "flat")
    told = command.json("explore", "pixels", "flat", "--out", "a.html", "--tables", "t")
    assert told["suspected_labels"] == {}
    assert told["duplicate_groups"] == 1
    assert not Path("t/suspects.csv").exists()
    command.text("explore", "pixels", "pictures", "--out", "b.html", "--tables", "both")
    assert Path("both/suspects.csv").exists()
    again = ("--out", "b.html", "--tables", "both", "--overwrite")
    command.text("explore", "pixels", "flat", *again)
    assert not Path("both/suspects.csv").exists()
    assert not Path("both/suspects.parquet").exists()


@pytest.mark.usefixtures("pictures")
def test_bad_places_are_refused(command: Command) -> None:
    Path("there.html").write_text("mine")
    Path("found").mkdir()
    Path("found/outliers.csv").write_text("mine")
    for more, message in (
        (["--out", "page.txt"], "its suffix must be .html"),
        (["--out", "there.html"], "--overwrite"),
        (["--out", "a.html", "--tables", "found"], "found/outliers.csv is already there"),
        (["--out", "a.html", "--tables", "there.html"], "cannot write in there.html"),
    ):
        assert message in command.refused("explore", "pixels", "pictures", *more)
    assert Path("there.html").read_text() == Path("found/outliers.csv").read_text() == "mine"
    again = ["--out", "there.html", "--tables", "found", "--overwrite"]
    command.text("explore", "pixels", "pictures", *again)
    assert Path("found/outliers.csv").read_text() != "mine"


def test_too_few_images_and_features_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="has 3 images: explore needs at least 4"):
        widefield.explore("pixels", np.zeros((3, 8, 8, 3), np.uint8))
    import torch

    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) * float("nan")

    with pytest.raises(ValueError, match="features of Broken are NaN or infinite"):
        widefield.explore(Broken(), np.zeros((9, 8, 8, 3), np.uint8))


@pytest.mark.parametrize("n", [4, 5, 12])
def test_few_images_or_equal_ones_can_be_explored(n: int, in_tmp: Path) -> None:
    for images in (
        np.zeros((n, 8, 8, 3), np.uint8),
        np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8),
    ):
        found = widefield.explore("pixels", images, out="a.html", tables="t", overwrite=True)
        assert np.isfinite(found.places).all()
    assert found.duplicates == []
    assert (in_tmp / "t" / "neighbors.csv").exists()


def test_a_missing_folder_is_made_for_the_page(in_tmp: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    widefield.explore("pixels", images, out=in_tmp / "new" / "e.html", tables="t", quiet=True)
    assert (in_tmp / "new" / "e.html").is_file()
    assert (in_tmp / "t" / "outliers.csv").is_file()
