"""`widefield recover` as a user types it: a run, a feature that pooling hides, a new folder."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import widefield
from commands import Command
from runs import small, uncompared
from widefield.probes.linear import fit_linear
from widefield.probes.outcome import Outcome
from widefield.workflows.pretrain import pretrain
from widefield.workflows.recover import Recovery, _check_hidden

COUNT = 400


def made() -> dict[str, np.ndarray]:
    """Return noise, red or blue, with a bright square in one of nine places."""
    rng = np.random.default_rng(0)
    color, place = rng.integers(2, size=COUNT), rng.integers(9, size=COUNT)
    x = rng.integers(0, 60, (COUNT, 16, 16, 3))
    x[np.arange(COUNT), :, :, 2 * color] += 30
    corners = 5 * np.stack(np.divmod(place, 3), 1) + rng.integers(0, 2, (COUNT, 2))
    for image, (row, column) in zip(x, corners, strict=True):
        image[row : row + 4, column : column + 4] += 120
    return {"x": x.astype(np.uint8), "color": color, "place": place}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recover")
    np.savez(folder / "made.npz", **made())
    settings = {**small("view-contrast"), "max_examples": None, "batch_size": 50, "epochs": 2}
    settings["views"] = "expert"  # whose crop hides the place
    with uncompared():
        pretrain(folder / "made.npz", out=folder / "run", **settings)
    return folder / "run"


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_hidden_feature_comes_back(run: Path, in_tmp: Path, command: Command) -> None:
    before = digests(run)
    words = ("recover", run, "--feature", "place", "--epochs", 12, "--out", "new")
    found = command.json(*words)
    assert digests(run) == before
    task = found["tasks"]["place"]
    assert task["change"]["before"] < 0.9
    assert task["change"]["after"] > task["change"]["before"] + 0.1
    assert found["missed"] == []
    assert found["feature"] == "place"
    assert sum(found["examples"]) == COUNT
    probed = command.json(
        *("probe", "new", run.parent / "made.npz", "--train-data", run.parent / "made.npz"),
        "--no-floors",
    )
    assert probed["tasks"]["place"]["accuracy"] > task["change"]["before"] + 0.1
    assert widefield.load("new", features="wide").readout.config.pooled == 128
    command.text("embed", "new", run.parent / "made.npz", "--out", "e.npz", "--features", "wide")


def test_all_directions_need_no_labels(run: Path, in_tmp: Path, command: Command) -> None:
    text = command.text("recover", run, "--epochs", 1, "--out", "new")
    assert "place: " in text
    assert "new: encoder and wide readout after 1 epoch on " in text
    found = command.json("recover", run, "--epochs", 10, "--out", "again")
    change = found["tasks"]["place"]["change"]
    assert found["feature"] is None
    assert change["after"] > change["before"] + 0.1


def test_the_control_without_request_gains_nothing(
    run: Path, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same steps with weight 0, and it is reported that the feature is not recovered."""
    monkeypatch.setattr("widefield.workflows.recover._FEATURE_WEIGHT", 0.0)
    done = widefield.recover(run, feature="place", out="new", epochs=10, quiet=True)
    found = done.to_json()
    change = found["tasks"]["place"]["change"]
    assert change["after"] < change["before"] + 0.03
    (missed,) = found["missed"]
    assert missed.startswith("place is not recovered: ")
    assert missed in str(done)


def test_labels_of_some_examples_are_enough(run: Path, in_tmp: Path, command: Command) -> None:
    rows = [f"row {i},{'abcdefghi'[y]}" for i, y in enumerate(made()["place"][:300])]
    Path("labels.csv").write_text("\n".join(["path,cell", *rows]) + "\n")
    found = command.json("recover", run, "--feature", "labels.csv", "--out", "new", "--epochs", 10)
    assert found["feature"] == "cell"
    change = found["tasks"]["cell"]["change"]
    assert change["after"] > change["before"] + 0.1
    assert found["tasks"].keys() == {"color", "place", "cell"}


REFUSED = {
    "nowhere --feature place": "no encoder 'nowhere'",
    "random --feature place": "random is not a widefield run: give the folder of a run",
    "{run} --feature size": "no task 'size' in {data}: give 'color' or 'place', or a .csv file",
    "{run} --feature color": "color is not hidden: linear-probe accuracy is 100 % from the pooled",
    "{run} --feature chance.csv": "coin is not in the wide features: linear-probe accuracy is ",
    "{run} --feature other.csv": "1 labeled files are not in the data, such as 'row 999'",
    "{run} --feature two.csv": "two.csv has 'a' or 'b': keep one beside path",
    "{run} --feature few.csv": "few has too few labels",
    "{run} --feature gone.csv": "gone.csv",
    "{run} --feature place --epochs 0": "epochs is 0; expected at least 1",
    "memory --feature place": "memory was trained on arrays in memory",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tables of labels, and a run on arrays in memory."""
    folder = tmp_path_factory.mktemp("refused")
    coins = np.random.default_rng(1).integers(2, size=COUNT)
    tables = {
        "chance": ["path,coin", *(f"row {i},{coin}" for i, coin in enumerate(coins))],
        "other": ["path,label", "row 0,a", "row 999,b"],
        "two": ["path,a,b", "row 0,a,b"],
        "few": ["path,few", "row 0,a", "row 1,b"],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    settings = {**small("view-contrast"), "max_examples": None, "epochs": 1}
    with uncompared():
        pretrain(made(), out=folder / "memory", **settings)
    return folder


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: str, run: Path, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = {"run": run, "data": run.parent / "made.npz"}
    said = command.refused("recover", *words.format(**names).split(), "--out", "new")
    assert REFUSED[words].format(**names) in said
    assert not Path("new").exists()


def test_files_that_are_there_are_kept(run: Path, in_tmp: Path, command: Command) -> None:
    Path("new").mkdir()
    Path("new/mine.txt").write_text("mine")
    words = ("recover", run, "--feature", "place", "--out")
    for out in ("new", "new/mine.txt", run):
        assert "is not an empty folder: choose another --out" in command.refused(*words, out)
    assert Path("new/mine.txt").read_text() == "mine"


def test_the_python_call_returns_the_encoder(run: Path, in_tmp: Path) -> None:
    done = widefield.recover(run, feature="place", out="new", epochs=2, quiet=True)
    kept = widefield.load("new").state_dict()
    assert all(bool((kept[key] == value).all()) for key, value in done.encoder.state_dict().items())
    assert json.loads(json.dumps(done.to_json()))["epochs"] == 2


@pytest.mark.parametrize(
    ("hits", "end"), [(48, ", which is within chance"), (20, "its former accuracy")]
)
def test_a_decrease_is_reported_with_what_its_interval_says(hits: int, end: str) -> None:
    draw = np.random.default_rng(0).permutation
    before, after = (Outcome(values=draw(np.arange(100) < count)) for count in (50, hits))
    found = Recovery(
        encoder=SimpleNamespace(),
        run="run",
        feature=None,
        epochs=1,
        examples=(400, 100),
        seconds=1.0,
        before={"color": before},
        after={"color": after},
        wide={"color": before},
        notes=[],
    )
    (line,) = found.missed
    assert line.startswith(f"color is {50 - hits}.0 points below its former accuracy")
    assert line.endswith(end)


def test_a_gap_within_chance_is_not_called_none() -> None:
    """Of few labels the wide features predict more, and that may be chance."""
    h, y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    probe = fit_linear(h, {"t": y}, h, {"t": y}, classes={"t": 2})["t"]
    data = SimpleNamespace(
        train=SimpleNamespace(labels={"t": y.numpy()}),
        test=SimpleNamespace(labels={"t": y.numpy()}),
    )
    pooled, wide, equal = (
        replace(probe, outcome=Outcome(values=np.arange(40) < hits)) for hits in (32, 35, 32)
    )
    with pytest.raises(ValueError, match=r"t is not hidden: .* within chance, give more labels"):
        _check_hidden("t", pooled, wide, data)
    with pytest.raises(ValueError, match=r"t is not hidden: .* nothing to recover"):
        _check_hidden("t", pooled, equal, data)
