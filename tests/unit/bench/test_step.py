"""What the step benchmark returns."""

from widefield.bench.step import bench
from widefield.methods import METHODS


def test_every_method_is_timed_beside_the_bare_encoder() -> None:
    found = bench(encoder="resnet-tiny", batch_size=8, image_size=16, rows=40, rounds=2)
    assert found["ratios"].keys() == {f"{name}/bare" for name in METHODS}
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert found["values"]["bare_seconds"] > 0
    assert found["values"]["rows"] == 40
