"""What the step benchmark returns."""

from typing import Any

import pytest

from widefield.bench.step import bench
from widefield.methods import METHODS


def test_every_method_is_timed_beside_the_bare_encoder() -> None:
    found = bench(encoder="resnet-tiny", batch_size=8, image_size=16, rows=40, rounds=2)
    assert found["ratios"].keys() == {f"{name}/bare" for name in (*METHODS, "byol-both-directions")}
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert found["values"]["bare_seconds"] > 0
    assert found["values"]["rows"] == 40


def test_some_methods_alone_are_timed_under_views_that_learn() -> None:
    settings: dict[str, Any] = {"encoder": "resnet-tiny", "image_size": 16, "rows": 16}
    pair = ["simclr", "byol"]
    found = bench(**settings, batch_size=8, rounds=1, methods=pair, views="viewmaker")
    assert list(found["ratios"]) == ["simclr/bare", "byol/bare"]
    with pytest.raises(ValueError, match="takes one view of each"):
        bench(**settings, batch_size=8, methods=["s-diet"], views="random-mask")
