"""From the page of `explore` to the next command: `decisions.csv` as a user saves it."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

import widefield
from commands import Command
from runs import small
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import open_train_test, training_data
from widefield.train.run_dir import RunFolder
from widefield.workflows.pretrain import pretrain

COLORS = {"green": (60, 200, 60), "red": (200, 60, 60)}
SAVED = """"path","decision","class"
"green/00.png","exclude","green"
"red/01.png","keep","red"
"green/02.png","","green"
"red/03.png","","green"
"""


def write_pictures(folder: Path, name: str, rows: range) -> None:
    rng = np.random.default_rng(rows.start)
    (folder / name).mkdir(parents=True, exist_ok=True)
    for i in rows:
        pixels = np.array(COLORS.get(name, (60, 60, 200))) + rng.integers(-50, 50, (16, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{i:02}.png")


@pytest.fixture
def pictures(in_tmp: Path) -> Path:
    folder = in_tmp / "pictures"
    write_pictures(folder, "green", range(0, 40, 2))
    write_pictures(folder, "red", range(1, 41, 2))
    (in_tmp / "decisions.csv").write_text(SAVED)
    return folder


def head_of(page: Path) -> dict[str, Any]:
    """Return the names and groups that a page holds."""
    (text,) = re.findall(r'id="data">([^<]*)</script>', page.read_text())
    whole = gzip.decompress(base64.b64decode(text))
    head: dict[str, Any] = json.loads(whole[4 : 4 + int.from_bytes(whole[:4], "little")])
    return head


@pytest.mark.usefixtures("pictures")
def test_explore_leaves_out_what_was_excluded_and_takes_the_labels(command: Command) -> None:
    words = ["explore", "pixels", "pictures", "--out", "e.html"]
    found = command.json(*words, "--exclude", "decisions.csv", "--labels", "decisions.csv")
    assert found["examples"] == 39
    head = head_of(Path("e.html"))
    assert "green/00.png" not in head["paths"]
    assert head["colorings"][head["tasks"][0]] == {"name": "class", "values": ["green", "red"]}


@pytest.mark.usefixtures("pictures")
def test_classify_takes_the_labels_of_a_saved_file(command: Command) -> None:
    found = command.json(
        *("classify", "pixels", "pictures", "--out", "p.csv"),
        *("--labels", "decisions.csv", "--exclude", "decisions.csv"),
    )
    assert (found["examples"], found["labels"], found["classes"]) == (39, 3, ["green", "red"])


def test_labels_of_files_that_are_gone_are_refused_in_one_line(
    pictures: Path, command: Command
) -> None:
    (pictures / "red" / "01.png").unlink()
    words = ["explore", "pixels", "pictures", "--out", "e.html", "--labels", "decisions.csv"]
    line = command.refused(*words)
    assert "1 labeled files are not in the data, such as 'red/01.png'" in line
    assert "delete the rows of files that are gone" in line
    Path("bad.csv").write_text("path,decision\na.png,perhaps\n")
    line = command.refused("explore", "pixels", "pictures", "--out", "e.html", "--exclude=bad.csv")
    assert "'perhaps' is no decision: write keep or exclude" in line


def test_a_run_remembers_what_was_excluded(pictures: Path, command: Command) -> None:
    settings = {**small("view-contrast"), "max_examples": None, "epochs": 1}
    pretrain(pictures, out="run", exclude="decisions.csv", **settings)
    run = RunFolder(path=Path("run"))
    assert run.manifest.excluded() == ("green/00.png",)
    assert len(training_data(run, quiet=True)) == 39
    halves = open_train_test(open_encoder("run"), None, max_examples=24, seed=0, quiet=True)
    assert "green/00.png" not in halves.train.paths + halves.test.paths
    (pictures / "green" / "00.png").unlink()
    assert pretrain(pictures, out="run", resume=True, epochs=2, quiet=True).finished
    assert run.manifest.excluded() == ("green/00.png",)
    words = ["pretrain", "pictures", "--out", "run", "--resume", "--epochs", "3"]
    Path("more.csv").write_text("path,decision\nred/01.png,exclude\n")
    line = command.refused(*words, "--exclude", "more.csv")
    assert "red/01.png is gone (39 examples then, 38 now)" in line
    assert "--init run with another --out" in line
    init = {name: settings[name] for name in ("epochs", "batch_size", "quiet")}
    done = pretrain(pictures, out="next", init="run", exclude="more.csv", **init)
    assert done.finished


def test_a_resume_remembers_new_files_that_it_excludes(pictures: Path) -> None:
    """All new files are left out, so that nothing else about the run changes."""
    settings = {**small("view-contrast"), "max_examples": None, "epochs": 1}
    pretrain(pictures, out="run", **settings)
    run = RunFolder(path=Path("run"))
    before = run.manifest.paths()
    write_pictures(pictures, "green", range(100, 102))
    out = {"green/100.png": "exclude", "green/101.png": "exclude"}
    pretrain(pictures, out="run", resume=True, exclude=out, quiet=True)
    assert run.manifest.excluded() == tuple(out)
    done = pretrain(pictures, out="run", resume=True, epochs=2, quiet=True)
    assert done.finished
    assert (run.manifest.paths(), run.manifest.excluded()) == (before, tuple(out))


def test_what_is_excluded_stays_out_when_it_comes_back(pictures: Path) -> None:
    """Also where others joined while it was gone, or it was not there from the start."""
    settings = {**small("view-contrast"), "max_examples": None, "epochs": 1}
    out = {"green/00.png": "exclude", "green/200.png": "exclude"}
    (pictures / "green" / "00.png").unlink()
    pretrain(pictures, out="run", exclude=out, **settings)
    run = RunFolder(path=Path("run"))
    write_pictures(pictures, "green", range(100, 102))
    pretrain(pictures, out="run", resume=True, epochs=2, quiet=True)
    joined = run.manifest.paths()
    assert len(joined) == 41
    for row in (0, 200, 300):
        write_pictures(pictures, "green", range(row, row + 1))
    pretrain(pictures, out="run", resume=True, epochs=3, quiet=True)
    assert run.manifest.paths() == [*joined, "green/300.png"]
    assert run.manifest.excluded() == tuple(out)


def test_a_new_class_that_sorts_before_another_joins_a_run(pictures: Path) -> None:
    settings = {**small("view-contrast"), "max_examples": None, "epochs": 1}
    pretrain(pictures, out="run", **settings)
    write_pictures(pictures, "blue", range(100, 108))
    assert pretrain(pictures, out="run", resume=True, epochs=2, quiet=True).finished
    run = RunFolder(path=Path("run"))
    assert yaml.safe_load((run.path / "run.yaml").read_text())["tasks"] == {
        "class": ["green", "red", "blue"]
    }
    data = training_data(run, quiet=True)
    assert data.labels["class"].tolist() == 20 * [0] + 20 * [1] + 8 * [2]
    table = pq.read_table(run.manifest.file).to_pylist()
    names = {row["path"].split("/")[0]: row["class"] for row in table}
    assert names == {"green": 0, "red": 1, "blue": 2}
    shutil.move(pictures / "red" / "01.png", pictures / "blue" / "01.png")
    with pytest.raises(ValueError, match=r"red/01.png is gone, blue/01.png is new"):
        training_data(run, quiet=True)


@pytest.mark.usefixtures("pictures")
def test_search_finds_the_file_itself_first(command: Command) -> None:
    words = ["search", "pixels", "pictures", "--image", "pictures/red/07.png", "--count", "5"]
    assert "red/07.png" in command.text(*words, "--out", "near.html")
    found = command.json(*words, "--out", "near.html", "--overwrite")
    paths = [row["path"] for row in found["nearest"]]
    assert paths[0] == "red/07.png"
    assert all(path.startswith("red/") for path in paths)
    cosines = [row["cosine"] for row in found["nearest"]]
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert cosines == sorted(cosines, reverse=True)
    assert Path("near.csv").read_text().splitlines()[1].startswith('1,"red/07.png",')
    head = head_of(Path("near.html"))
    assert head["paths"] == ["pictures/red/07.png", *paths]
    call = widefield.search("pixels", "pictures", image="pictures/red/07.png", count=5, quiet=True)
    assert call.paths == paths


@pytest.mark.usefixtures("pictures")
def test_queries_that_cannot_be_read_are_refused_in_one_line(command: Command) -> None:
    Path("broken.png").write_text("no image")
    Path("notes.txt").write_text("no image")
    Path("near.csv").write_text("mine")
    Image.new("RGB", (16, 16)).save("black.png")
    for image, message in (
        ("black.png", "the features of the query 'black.png' are all 0, as those of a black"),
        ("broken.png", "the query 'broken.png' cannot be read: give image data, as in pictures"),
        ("notes.txt", "the query 'notes.txt' cannot be read"),
        ("nowhere.png", "the query 'nowhere.png' is no file"),
    ):
        words = ["search", "pixels", "pictures", "--image", image, "--out", "n.html"]
        assert message in command.refused(*words)
    words = ["search", "pixels", "pictures", "--image", "pictures/red/01.png", "--out"]
    assert "near.csv is already there" in command.refused(*words, "near.html")
    assert "count is 0" in command.refused(*words, "n.html", "--count", "0")
    assert not Path("n.html").exists()


def test_sounds_are_searched_too(in_tmp: Path) -> None:
    import wave

    for i, pitch in enumerate((220, 233, 880, 900)):
        signal = 0.3 * np.sin(2 * np.pi * pitch * np.arange(4000) / 4000)
        folder = in_tmp / "sounds"
        folder.mkdir(exist_ok=True)
        with wave.open(str(folder / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 4000, 0, "NONE", ""))
            file.writeframes((32767 * signal).astype("<i2").tobytes())
    found = widefield.search("pixels", "sounds", image="sounds/2.wav", count=2, out="n.html")
    assert found.paths == ["2.wav", "3.wav"]
    assert "2.wav" in Path("n.html").read_text()
