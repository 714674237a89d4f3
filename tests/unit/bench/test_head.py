"""What `bench head` says, at a size of a few seconds."""

from widefield.bench.head import bench


def test_device_memory_does_not_grow_with_the_examples_and_the_dense_head_does() -> None:
    said = bench(
        encoder="resnet-tiny", batch_size=8, image_size=16, dim=4, rounds=2, sizes=(100, 10_000)
    )
    ratios = ("step@1e4/step@1e2", "disk/host", "bytes@1e4/bytes@1e2", "store/memmap")
    assert tuple(said["ratios"]) == ratios
    assert said["ratios"]["bytes@1e4/bytes@1e2"] == 1
    assert all(ratio > 0 for ratio in said["ratios"].values())
    small, large = said["table"]
    assert large["disk_bytes"] == small["disk_bytes"]
    assert large["diet_bytes"] > 2 * small["diet_bytes"]
    assert said["values"]["host_bytes"] == small["disk_bytes"] + 3 * 4 * 4 * 100
