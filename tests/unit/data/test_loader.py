import threading
import time

import numpy as np
import pytest
import torch

from widefield.data import Dataset, Loader, loader, open_dataset

CPU = torch.device("cpu")


def make(n=50, images=None):
    if images is None:
        images = np.random.default_rng(0).integers(0, 256, (n, 6, 8, 3), dtype=np.uint8)
    return Dataset(
        spec="memory",
        images=images,
        labels={"a": np.arange(n) % 3, "b": np.arange(n)[::-1].copy()},
        classes={"a": ("x", "y", "z"), "b": tuple(map(str, range(n)))},
        names=[f"row {i}" for i in range(n)],
    )


@pytest.fixture(params=["memory", "map"])
def dataset(request, tmp_path):
    """The same examples in memory and as a read-only memory map."""
    memory = make()
    if request.param == "memory":
        return memory
    np.save(tmp_path / "pixels.npy", memory.images)
    return make(images=np.load(tmp_path / "pixels.npy", mmap_mode="r"))


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("widefield-read-ahead")]


@pytest.mark.parametrize("axis", [0, 3])
def test_a_memory_map_that_is_reversed_is_read(tmp_path, axis):
    np.save(tmp_path / "pixels.npy", make().images)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r+")
    test_batch_is_the_examples_of_its_index(make(images=np.flip(mapped, axis)))


def test_batch_is_the_examples_of_its_index(dataset):
    for batch in Loader(dataset, batch_size=16, device=CPU).epoch(0):
        assert batch.x.shape == (16, 3, 6, 8)
        assert batch.x.dtype == torch.float32
        assert batch.index.dtype == torch.int64
        assert batch.x.is_contiguous(memory_format=torch.channels_last)
        index = batch.index.numpy()
        expected = dataset.images[index].transpose(0, 3, 1, 2).astype(np.float32) / 255
        assert (batch.x.numpy() == expected).all()
        assert {task: ids.tolist() for task, ids in batch.labels.items()} == {
            task: ids[index].tolist() for task, ids in dataset.labels.items()
        }


@pytest.mark.parametrize("batch_size", [1, 7, 25, 50])
def test_an_epoch_visits_each_example_at_most_once(dataset, batch_size):
    batches = Loader(dataset, batch_size=batch_size, device=CPU)
    assert batches.steps_per_epoch == 50 // batch_size
    seen = torch.cat([batch.index for batch in batches.epoch(3)])
    assert len(seen) == batches.steps_per_epoch * batch_size
    assert len(seen.unique()) == len(seen)
    assert seen.min() >= 0
    assert seen.max() < 50


def test_what_is_left_out_differs_from_epoch_to_epoch():
    batches = Loader(make(), batch_size=16, device=CPU)
    left_out = []
    for epoch in range(300):
        seen = torch.cat([batch.index for batch in batches.epoch(epoch)])
        left_out.append(frozenset(range(50)) - frozenset(seen.tolist()))
    assert len(set(left_out)) > 200
    assert frozenset.union(*left_out) == frozenset(range(50))


def test_order_depends_on_seed_and_epoch_only(dataset):
    def order(seed, epoch, start=0, **options):
        batches = Loader(dataset, batch_size=10, device=CPU, seed=seed, **options)
        return [batch.index.tolist() for batch in batches.epoch(epoch, start)]

    torch.manual_seed(0)
    first = order(0, 4)
    torch.manual_seed(1)
    assert order(0, 4) == first
    assert order(0, 5) != first
    assert order(1, 4) != first
    for start in range(6):
        assert order(0, 4, start) == first[start:]


def test_resumed_batches_are_bit_identical(dataset):
    whole = list(Loader(dataset, batch_size=12, device=CPU, seed=7).epoch(2))
    resumed = list(Loader(dataset, batch_size=12, device=CPU, seed=7).epoch(2, start=2))
    assert len(resumed) == 2
    for ours, theirs in zip(resumed, whole[2:], strict=True):
        assert torch.equal(ours.x, theirs.x)
        assert torch.equal(ours.index, theirs.index)
        assert all(torch.equal(ours.labels[t], theirs.labels[t]) for t in ours.labels)


def test_order_announces_the_batches_of_an_epoch(dataset):
    loader = Loader(dataset, batch_size=7, device=torch.device("cpu"), seed=3)
    batches = [batch.index.tolist() for batch in loader.epoch(2, start=1)]
    assert [index.tolist() for index in loader.order(2, start=1)] == batches


def test_writing_into_a_batch_does_not_reach_the_data(dataset):
    before = np.array(dataset.images)
    for batch in Loader(dataset, batch_size=10, device=CPU).epoch(0):
        batch.x.zero_()
        batch.index.zero_()
    assert (dataset.images == before).all()
    assert next(Loader(dataset, batch_size=10, device=CPU).epoch(0)).x.any()


def test_gray_images():
    images = np.random.default_rng(0).integers(0, 256, (9, 5, 5, 1), dtype=np.uint8)
    (batch,) = Loader(open_dataset(images), batch_size=9, device=CPU).epoch(0)
    assert batch.x.shape == (9, 1, 5, 5)
    assert batch.x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("batch_size", [0, 51])
def test_batch_size_out_of_range(batch_size):
    with pytest.raises(
        ValueError, match=f"batch_size is {batch_size} .* 50 examples; choose 1 to 50"
    ):
        Loader(make(), batch_size=batch_size, device=CPU)


def test_the_thread_ends_with_the_epoch_and_when_the_consumer_stops(tmp_path):
    np.save(tmp_path / "pixels.npy", make().images)
    mapped = make(images=np.load(tmp_path / "pixels.npy", mmap_mode="r"))
    batches = Loader(mapped, batch_size=2, device=CPU)
    assert threads() == []
    list(batches.epoch(0))
    assert threads() == []
    for step, _ in enumerate(batches.epoch(1)):
        assert len(threads()) == 1
        if step == 3:
            break
    assert threads() == []
    started = batches.epoch(2)
    next(started)
    assert len(threads()) == 1
    started.close()
    assert threads() == []

    def consume():
        for _ in batches.epoch(3):
            raise RuntimeError("the consumer failed")

    with pytest.raises(RuntimeError, match="the consumer failed"):
        consume()
    assert threads() == []


def test_an_error_while_reading_ahead_reaches_the_consumer():
    def items():
        yield 1
        raise OSError("disk gone")

    ahead = loader._prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk gone"):
        next(ahead)
    assert threads() == []


def test_at_most_two_batches_are_read_ahead():
    made = []

    def items():
        for i in range(20):
            made.append(i)
            yield i

    ahead = loader._prefetch(items())
    next(ahead)
    time.sleep(0.05)
    assert len(made) == 3  # one is handed out, two wait
    assert list(ahead) == list(range(1, 20))


def test_wait_seconds_count_the_time_inside_the_loader_only(monkeypatch):
    batches = Loader(make(), batch_size=10, device=CPU)
    fetch = batches._source._fetch

    def slow(*where):
        time.sleep(0.01)
        return fetch(*where)

    monkeypatch.setattr(batches._source, "_fetch", slow)
    for _ in batches.epoch(0):
        time.sleep(0.02)
    assert 0.05 <= batches.wait_seconds < 0.1
    batches.wait_seconds = 0.0
    list(batches.epoch(1))
    assert batches.wait_seconds >= 0.05


def test_pixels_go_to_the_device_when_they_take_a_third_of_what_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 10**9))
    cuda = torch.device("cuda")
    assert loader._fits_device(300, cuda)
    assert not loader._fits_device(301, cuda)
    assert not loader._fits_device(1, CPU)
