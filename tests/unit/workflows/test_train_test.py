"""The two halves that an audit fits on and scores on: their classes and their sizes."""

from typing import Any

import numpy as np
import pytest

from widefield.workflows.extractor import open_encoder
from widefield.workflows.train_test import TrainTest, open_train_test

RNG = np.random.default_rng(0)


def arrays(labels: Any, **others: Any) -> dict[str, Any]:
    x = RNG.integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8)
    return {"x": x, "kind": np.asarray(labels), **others}


def opened(data: Any, **options: Any) -> TrainTest:
    return open_train_test(
        open_encoder("pixels"), data, **({"limit": None, "seed": 0, "quiet": True} | options)
    )


def test_classes_of_two_sources_are_matched_by_name() -> None:
    fitted = arrays(["blue", "green", "red"] * 10)
    split = opened(arrays(["red", "green"] * 5), fit_on=fitted)
    assert split.test.classes == split.train.classes == {"kind": ("blue", "green", "red")}
    assert split.test.labels["kind"].tolist() == [2, 1] * 5
    with pytest.raises(ValueError, match="class 'white' of memory is not in memory: score on"):
        opened(arrays(["red", "white"] * 5), fit_on=fitted)
    with pytest.raises(ValueError, match="memory has no labels of task 'kind', which memory has"):
        opened({"x": fitted["x"], "size": np.arange(30) % 2}, fit_on=fitted)
