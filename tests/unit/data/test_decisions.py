"""Tables of decisions, as the pages save them."""

from pathlib import Path

import numpy as np
import pytest

from made_tables import Frame, by_path
from widefield.data import open_dataset
from widefield.data.labels import read_labels
from widefield.data.labels.read import read_excluded

SAVED = '"path","decision","class"\r\n"a, ""b"".png","keep","cat"\r\n"c.png","exclude","dog"\r\n'
SAVED += '"d.png","","dog"\r\n"e.png","exclude",""\r\n'


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.csv"
    path.write_bytes(SAVED.encode())
    return path


def data(n: int = 6) -> dict[str, np.ndarray]:
    return {"x": np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((8, 8, 3), np.uint8)}


def test_labels_and_exclusions_are_read_from_one_file(saved: Path) -> None:
    assert read_excluded(saved) == ("c.png", "e.png")
    assert by_path(read_labels(saved)) == {"class": {'a, "b".png': "cat", "d.png": "dog"}}
    assert by_path(read_labels(saved, only="label")) == {
        "label": {'a, "b".png': "cat", "d.png": "dog"}
    }


def test_decisions_of_another_kind_are_a_task() -> None:
    loans = {"path": ["a", "b"], "decision": ["approve", "deny"]}
    assert by_path(read_labels(Frame(**loans))) == {"decision": {"a": "approve", "b": "deny"}}
    with pytest.raises(ValueError, match="'approve' is no decision: write keep or exclude"):
        read_excluded(Frame(**loans))


def test_a_file_without_decisions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("path,label\na,cat\n")
    with pytest.raises(ValueError, match="has no column 'decision'"):
        read_excluded(path)
    assert read_excluded(None) == ()


def test_excluded_examples_are_left_out_and_recorded() -> None:
    dataset = open_dataset(data(), exclude=("row 1", "row 4", "gone.png"))
    assert dataset.paths == ["row 0", "row 2", "row 3", "row 5"]
    assert dataset.images[:, 0, 0, 0].tolist() == [0, 2, 3, 5]
    assert [(s.path, s.reason) for s in dataset.skipped] == [
        ("gone.png", "excluded"),
        ("row 1", "excluded"),
        ("row 4", "excluded"),
    ]
    assert "2 examples are excluded; 1 others are not in the data" in dataset.notes
    assert len(open_dataset(data(), exclude=("gone.png",))) == 6


def test_labels_of_excluded_examples_may_be_there() -> None:
    labels = read_labels({"row 1": "cat", "row 2": "dog"})
    dataset = open_dataset(data(), labels=labels, unlabeled=True, exclude=("row 1",))
    assert dataset.labels["label"].tolist() == [-1, 1, -1, -1, -1]


def test_all_excluded_is_refused() -> None:
    with pytest.raises(ValueError, match="all 2 examples are excluded: keep some"):
        open_dataset(data(2), exclude=("row 0", "row 1"))


@pytest.mark.parametrize("key", ["windows", "sounds"])
def test_windows_and_sounds_can_be_excluded(key: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 400)) if key == "sounds" else rng.normal(size=(4, 2, 32))
    arrays = {key: np.float32(x) / 10}
    arrays |= {"sample_rate": np.array(1000)} if key == "sounds" else {}
    dataset = open_dataset(arrays, exclude=("row 2",))
    assert dataset.paths == ["row 0", "row 1", "row 3"]
    assert [s.path for s in dataset.skipped] == ["row 2"]
