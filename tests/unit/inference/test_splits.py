"""The two halves that an audit fits on and scores on: their classes and their sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from widefield.data.labels import read_labels
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import TrainTest, open_train_test

RNG = np.random.default_rng(0)


def arrays(labels: Any, **others: Any) -> dict[str, Any]:
    x = RNG.integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8)
    return {"x": x, "kind": np.asarray(labels), **others}


def opened(data: Any, **options: Any) -> TrainTest:
    return open_train_test(
        open_encoder("pixels"), data, **({"max_examples": None, "seed": 0, "quiet": True} | options)
    )


def test_classes_of_two_sources_are_matched_by_name() -> None:
    fitted = arrays(["blue", "green", "red"] * 10)
    split = opened(arrays(["red", "green"] * 5), train_data=fitted)
    assert split.test.classes == split.train.classes == {"kind": ("blue", "green", "red")}
    assert split.test.labels["kind"].tolist() == [2, 1] * 5
    part = opened(arrays(["red", "white"] * 5), train_data=fitted)
    assert part.test.labels["kind"].tolist() == [2] * 5
    assert any(
        "5 examples to score are left out, of classes without one to fit on: 'white'" in note
        for note in part.test.notes
    )
    with pytest.raises(ValueError, match="class 'black' of memory is not in memory: score on"):
        opened(arrays(["black", "white"] * 5), train_data=fitted)
    with pytest.raises(ValueError, match="memory has no labels of task 'kind', which memory has"):
        opened({"x": fitted["x"], "size": np.arange(30) % 2}, train_data=fitted)


def test_classes_of_two_sources_may_differ_in_spelling() -> None:
    """Of two data sets as in one table; those that one of them tells apart stay apart."""
    fitted = arrays(["Blue", "green", "1"] * 10)
    split = opened(arrays(["blue", "green", "1.0"] * 5), train_data=fitted)
    assert split.test.labels["kind"].tolist() == [1, 2, 0] * 5
    assert "'blue' of 'kind' is the class 'Blue' that probes are fitted to" in split.test.notes
    handwriting = arrays(["a", "A", "ab", "AB"] * 10)
    same = opened(arrays(["AB", "A"] * 5), train_data=handwriting)
    assert [same.test.classes["kind"][k] for k in same.test.labels["kind"]] == ["AB", "A"] * 5
    part = opened(arrays(["Ab", "A"] * 5), train_data=handwriting)
    assert len(part.test) == 5
    both = opened(arrays(["Green", "GREEN", "Blue"] * 5), train_data=fitted)
    assert both.test.labels["kind"].tolist() == [1] * 5


def test_a_limit_counts_the_examples_to_fit_on(tmp_path: Path) -> None:
    data = arrays(np.arange(200) % 4)
    np.savez(tmp_path / "mine.npz", **data)
    for source in (data, tmp_path / "mine.npz"):
        split = opened(source, max_examples=80)
        assert (len(split.train), len(split.test)) == (80, 20)
        assert np.bincount(split.train.labels["kind"]).tolist() == [20] * 4
    with pytest.raises(ValueError, match=r"max_examples is 200 and there are 1.. examples"):
        opened(data, max_examples=200)
    with pytest.raises(ValueError, match="max_examples is 0; expected at least 1"):
        opened(data, max_examples=0)


def test_all_are_scored_where_there_are_fewer_than_a_quarter(tmp_path: Path) -> None:
    data, few = arrays(np.arange(120) % 2), arrays(np.arange(10) % 2)
    assert len(opened(few, train_data=data, max_examples=80).test) == 10
    np.savez(tmp_path / "few.npz", **few)
    assert len(opened(tmp_path / "few.npz", train_data=data, max_examples=80).test) == 10
    np.savez(tmp_path / "bare.npz", x=data["x"])
    labels = read_labels({f"row {row}": "ab"[row % 2] for row in range(95)})
    for source, given in ((data, None), (tmp_path / "bare.npz", labels)):
        whole = opened(source, labels=given)
        assert len(whole.test) < len(whole.train) // 4
        split = opened(source, labels=given, max_examples=len(whole.train))
        assert (len(split.train), len(split.test)) == (len(whole.train), len(whole.test))


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (np.arange(60) // 2, "task 'other': "),
        (np.zeros(60, int), "task 'other': labels hold one class"),
        (np.r_[np.zeros(59, int), 1], "task 'other': labels hold "),
        (np.ones(60), "task 'other': the number is the same for all"),
        (np.eye(60), "task 'other': no label has two examples"),
    ],
    ids=["patients of two", "one class", "one example", "one number", "several labels"],
)
def test_a_task_that_cannot_be_scored_leaves_the_others(other: Any, problem: str) -> None:
    data = arrays(np.arange(60) % 2)
    split = opened(data | {"other": other})
    assert split.tasks == ("kind",)
    assert any(note.startswith(f"left out: {problem}") for note in split.train.notes)
    alone = opened(data)
    assert len(split.train) == len(alone.train)
    assert split.test.labels["kind"].tolist() == alone.test.labels["kind"].tolist()
    with pytest.raises(ValueError, match=problem):
        opened({"x": data["x"], "other": other})


def test_a_number_of_one_value_beside_scored_classes_is_left_out() -> None:
    """The one example of another number is of a class that cannot be scored."""
    fitted = arrays(["a", "b"] * 20, age=np.arange(40) / 7)
    scored = arrays(["a", "b"] * 5 + ["new"], age=np.r_[np.full(10, 1.5), 2.5])
    split = opened(scored, train_data=fitted)
    assert (split.tasks, len(split.test)) == (("kind",), 10)
    notes = [*split.train.notes, *split.test.notes]
    assert sum("task 'age': the number is the same for all" in note for note in notes) == 1
    assert sum("1 examples to score are left out" in note for note in notes) == 1


def test_a_task_of_the_training_data_alone_leaves_the_others() -> None:
    fitted = arrays(np.arange(40) % 2, age=np.arange(40) / 7, side=np.arange(40) % 2)
    split = opened(arrays(np.arange(20) % 2), train_data=fitted)
    assert split.tasks == ("kind",)
    for name in ("age", "side"):
        assert any(f"{name!r}, which memory has" in note for note in split.train.notes)
