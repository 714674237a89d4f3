"""Numbers and several labels a picture, as a user types it: probe, classify and audit."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import widefield
from commands import Command
from widefield.audits.result import read_findings

N = 120


@pytest.fixture
def pictures(in_tmp: Path) -> Path:
    """Disks of a measured brightness, with a red spot, a green bar, both or neither."""
    rng = np.random.default_rng(0)
    Path("pictures").mkdir()
    rows = []
    for i in range(N):
        level, spot, bar = rng.uniform(60, 160), rng.random() < 0.4, rng.random() < 0.3
        pixels = rng.integers(0, 40, (16, 16, 3)).astype(float)
        pixels[4:12, 4:12] = level
        pixels[:3, :3, 0] += 200 * spot
        pixels[14:, :, 1] += 200 * bar
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"pictures/{i:03}.png")
        findings = "|".join(["spot"] * spot + ["bar"] * bar) or "|"
        rows.append(
            {"path": f"{i:03}.png", "level": f"{level:.2f}", "findings": findings,
             "luck": f"{rng.normal():.3f}", "kind": ["dim", "bright"][level > 110]}
        )  # fmt: skip
    write("labels.csv", rows)
    return in_tmp


def write(path: str, rows: list[dict[str, str]]) -> None:
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def column(name: str, count: int) -> None:
    """Write few.csv, with the first labels of a column."""
    write("few.csv", [{"path": r["path"], "label": r[name]} for r in read("labels.csv")[:count]])


def in_memory() -> dict[str, np.ndarray]:
    """Return the pictures with their numbers and labels as arrays."""
    rows, names = read("labels.csv"), np.array(["bar", "spot"])
    return {
        "x": np.stack([np.asarray(Image.open(Path("pictures", r["path"]))) for r in rows]),
        "level": np.array([float(r["level"]) for r in rows]),
        "has": np.array([[name in r["findings"] for name in names] for r in rows]),
        "has_classes": names,
    }


@pytest.mark.usefixtures("pictures")
def test_probe_beside_classes(command: Command) -> None:
    words = ["probe", "random", "pictures", "--labels", "labels.csv"]
    found = json.loads(command.text(*words, "--json"))
    assert list(found["tasks"]) == ["kind"]
    level, findings, luck = (found["targets"][t] for t in ("level", "findings", "luck"))
    assert level["measure"] == "R2"
    value, low, high = level["score"]
    assert 0.5 < low <= value <= high <= 1
    error = level["mean_absolute_error"]
    mean = level["floor"]["mean"]["mean_absolute_error"]
    assert error[2] < mean[1]
    assert set(level["floor"]) == {"pixels", "random", "dictionary", "mean"}
    assert level["floor"]["mean"]["score"][0] <= 0
    assert luck["score"][0] < 0.2  # the control: nothing in the picture tells it
    assert set(findings["average_precision"]) == {"bar", "spot"}
    for label, (precision, *_) in findings["floor"]["pixels"]["average_precision"].items():
        assert precision > 0.9 > 0.6 > findings["share"][label]
    said = command.text(*words)
    assert "level: R2" in said
    assert "level: mean absolute error" in said
    assert "findings: mean average precision" in said
    assert "floor: mean" in said
    one = json.loads(command.text(*words, "--task", "level", "--json"))
    assert (list(one["tasks"]), list(one["targets"])) == ([], ["level"])


@pytest.mark.usefixtures("pictures")
def test_classify_predicts_numbers(command: Command) -> None:
    column("level", 60)
    said = command.text("classify", "random", "pictures", "--labels", "few.csv", "--out", "p.csv")
    assert "R2 0.9" in said
    assert "above the mean (0.000)" in said
    truth = np.array([float(row["level"]) for row in read("labels.csv")])
    rows = read("p.csv")
    assert [row["label"] != "" for row in rows] == [True] * 60 + [False] * 60
    p = np.array([float(row["predicted"]) for row in rows])
    assert np.corrcoef(p[60:], truth[60:])[0, 1] > 0.95  # of pictures without a number
    assert not Path("p.html").exists()
    column("luck", 60)
    control = command.text(
        *["classify", "random", "pictures", "--labels", "few.csv", "--out", "luck.csv", "--json"]
    )
    assert json.loads(control)["cross_validation"]["score"][0] < 0.2


@pytest.mark.usefixtures("pictures")
def test_classify_predicts_each_label(command: Command) -> None:
    column("findings", 60)
    words = ["classify", "pixels", "pictures", "--labels", "few.csv"]
    said = command.text(*words, "--out", "p.csv")
    assert "mean average precision 0.99" in said
    truth = [row["findings"] for row in read("labels.csv")]
    rows = read("p.csv")
    right = [
        set(row["predicted"].split("|")) == set(t.split("|"))
        for row, t in zip(rows, truth, strict=True)
    ]
    assert np.mean(right[60:]) > 0.9
    assert all(0 < float(row["p spot"]) < 1 for row in rows)
    refused = command.refused(*words, "--out", "q.csv", "--suggest", "5")
    assert "suggest is for classes" in refused
    write("few.csv", [{"path": r["path"], "label": "spot|bar"} for r in read("labels.csv")[:9]])
    assert "too few or all the same: give 3 or more" in command.refused(*words, "--out", "q.csv")


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("source", ["arrays", "table"])
def test_audit_judges_numbers_and_labels(source: str, command: Command) -> None:
    if source == "arrays":
        np.savez("mine.npz", **in_memory(), luck=np.random.default_rng(0).normal(size=N))
        data, several = ["mine.npz"], "has"
    else:
        data, several = ["pictures", "--labels", "labels.csv"], "findings"
    words = ["audit", "random", *data, "--cache", "cache", "--out", "audit.html"]
    result, page = command.json(*words), Path("audit.html").read_text()
    found = {name: task for name, task in result["tasks"].items() if name != "kind"}
    measures = {"level": "R2", several: "mean average precision", "luck": "R2"}
    assert {name: task["measure"] for name, task in found.items()} == measures
    for name in ("level", several):
        assert found[name]["low"] <= found[name]["accuracy"] <= found[name]["high"]
        assert found[name]["accuracy"] > 0.7
        assert found[name]["knn"] is None
        assert found[name]["floor_of"] in ("pixels", "random", "dictionary")
        assert f"{name} ({measures[name]})" in page
    assert found["level"]["floor"] > 0.8
    assert found["level"]["stages"]
    assert found["luck"]["accuracy"] < 0.2  # the control
    assert found["luck"]["verdict"] in ("not separable", "not learned", "unclear")
    assert any(Path("cache").iterdir())
    assert command.json(*words, "--overwrite")["tasks"] == result["tasks"]
    Path("audit.json").write_text(json.dumps(result))
    assert any(line.startswith("level (R2): ") for line in read_findings(Path("audit.json")))
    assert "Linear-probe R2 from the map" in page
    level = found["level"]
    value, low, high = (f"{level[name]:.3f}" for name in ("accuracy", "low", "high"))
    assert f"linear probe {value} [{low}, {high}]" in page
    said = command.text(*words, "--overwrite")
    assert re.search(r"task +verdict +learned % +ridge probe +floor +ceiling *\n", said)
    assert re.search(rf"\n +level \(R2\) +\w.* {value} +\d", said)


@pytest.mark.usefixtures("pictures")
def test_explore_leaves_them_out(command: Command) -> None:
    words = ["explore", "pixels", "pictures", "--labels"]
    found = command.text(*words, "labels.csv", "--out", "map.html", "--json")
    notes = json.loads(found)["notes"]
    assert sum("only probe, audit and classify take: left out" in note for note in notes) == 3
    column("findings", 60)
    refused = command.refused(*words, "few.csv", "--out", "other.html")
    assert "'label' holds several labels a cell" in refused


@pytest.mark.usefixtures("pictures")
def test_python_takes_arrays_and_lists_of_labels() -> None:
    """Numbers and several labels beside the images in memory, and by path for classify."""
    arrays, names = in_memory(), ("bar", "spot")
    has = arrays["has"]
    train, test = (
        {k: v if k == "has_classes" else v[i::2] for k, v in arrays.items()} for i in (0, 1)
    )
    found = widefield.probe("pixels", test, train_data=train, floors=False, quiet=True).tasks
    assert found["level"].score.value > 0.5
    assert found["has"].score.value > 0.9
    sets = {
        f"row {i}": [name for name, given in zip(names, row, strict=True) if given]
        for i, row in enumerate(has[:60])
    }
    by_path = widefield.classify("pixels", arrays["x"], labels=sets, quiet=True)
    assert by_path.classes == names
    given = [by_path.labels[f"row {i}"] for i in range(60)]
    assert given == ["|".join(sets[f"row {i}"]) or "|" for i in range(60)]
    with pytest.raises(ValueError, match=r"give a \.csv file"):
        widefield.classify("pixels", arrays["x"], labels={"row 0": [None]} | {"row 1": [{}]})
