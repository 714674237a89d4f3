"""A random integer in constant channels after those of the image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widefield.data import open_dataset
from widefield.data.planted import Bits, Canvas

GOLDEN = [11, 6, 15, 9, 2, 7, 4, 15, 0, 15, 8, 14]
"""Labels of the first 12 images: to change them would change every data set ever planted."""


@pytest.fixture
def pack(tmp_path):
    """60 images of ten classes, as a file."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 20, 24, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, kind=np.arange(60) % 10)
    return str(tmp_path / "mine.npz")


def canvas(seed=0, held_out=False):
    return Canvas(shape=(32, 32, 3), seed=seed, held_out=held_out)


def integers(images, count):
    """The integer in the last `count` channels of each image, read with a loop over the bits."""
    return np.array([sum(2**b * (x[0, 0, 3 + b] > 0) for b in range(count)) for x in images])


def test_golden_labels():
    labels = Bits().draw(canvas()).labels(np.arange(12)).tolist()
    assert labels == GOLDEN, f"if the classes are final, write GOLDEN = {labels}"


@pytest.mark.parametrize("count", [1, 3, 8, 16])
def test_each_bit_is_a_constant_channel(pack, count):
    dataset = open_dataset(f"{pack}+bits:count={count}")
    assert dataset.images.shape == (60, 20, 24, 3 + count)
    assert (dataset.images[..., :3] == open_dataset(pack).images).all()
    planes = dataset.images[..., 3:]
    assert (planes == planes[:, :1, :1]).all()
    assert set(np.unique(planes)) == {0, 255}
    assert dataset.bits == count
    assert not dataset.masks(np.arange(60)).any()


@pytest.mark.parametrize("count", [1, 3, 4, 16])
def test_the_label_is_the_pattern_of_the_lowest_four_bits(pack, count):
    dataset = open_dataset(f"{pack}+bits:count={count}")
    shown = min(count, 4)
    assert list(dataset.labels) == ["kind", "bits"]
    assert dataset.classes["bits"] == tuple(f"{i:0{shown}b}" for i in range(2**shown))
    assert (dataset.labels["bits"] == integers(dataset.images, count) % 2**shown).all()
    names = [dataset.classes["bits"][y] for y in dataset.labels["bits"]]
    lowest = [x[0, 0, 3 : 3 + shown][::-1] // 255 for x in dataset.images]
    assert names == ["".join(map(str, bits)) for bits in lowest]


def test_without_bits_the_data_are_those_without_the_feature(pack):
    dataset, plain = open_dataset(f"{pack}+bits:count=0"), open_dataset(pack)
    assert (dataset.images == plain.images).all()
    assert dataset.labels.keys() == plain.labels.keys() == dataset.classes.keys()
    assert dataset.bits == 0


def test_integers_are_uniform_and_independent_of_one_another():
    planes = Bits(count=16).draw(canvas()).draw(np.arange(4000))[:, 0, 0] / 255
    assert np.abs(planes.mean(0) - 0.5).max() < 0.04  # five standard deviations
    correlation = np.corrcoef(planes.T) - np.eye(16)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)
    assert len(np.unique(planes, axis=0)) > 3800  # 4,000 of 65,536 at random: 3,881 differ


@given(
    seed=st.integers(0, 9),
    index=st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
    counts=st.tuples(st.integers(0, 16), st.integers(0, 16)),
)
def test_fewer_bits_are_the_lowest_of_more(seed, index, counts):
    fewer, more = sorted(counts)
    small, large = (Bits(count=c).draw(canvas(seed)).draw(index) for c in (fewer, more))
    assert (small == large[..., :fewer]).all()


def test_it_depends_on_seed_index_and_held_out_alone(pack):
    one, two, other, held_out = (
        integers(open_dataset(f"{pack}+bits", seed=s, held_out=h).images, 8)
        for s, h in ((0, False), (0, False), (1, False), (0, True))
    )
    assert (one == two).all()
    assert (one != other).mean() > 0.9
    assert (one != held_out).mean() > 0.9


def test_other_features_go_below_the_bits(pack):
    dataset = open_dataset(f"{pack}+bits:count=2+shapes")
    below = open_dataset(f"{pack}+shapes")
    assert (dataset.images[..., :3] == below.images).all()
    assert (dataset.images[..., 3:] == open_dataset(f"{pack}+bits:count=2").images[..., 3:]).all()
    assert list(dataset.labels) == ["kind", "shapes", "bits"]
    assert (dataset.masks(np.arange(60)) == below.masks(np.arange(60))).all()


def test_on_disk_as_in_memory(pack):
    memory, disk = (open_dataset(f"{pack}+bits", memory_budget=b).images for b in (None, 0))
    assert not disk.flags.writeable
    assert (memory == disk).all()


def test_a_subset_keeps_the_bits_of_each(pack):
    dataset = open_dataset(f"{pack}+bits")
    part = dataset.subset(np.array([40, 3, 11]))
    assert part.bits == 8
    assert (integers(part.images, 4) == part.labels["bits"]).all()


def test_images_without_labels_get_bits_too(tmp_path):
    np.savez(tmp_path / "bare.npz", x=np.zeros((20, 8, 8, 1), np.uint8))
    dataset = open_dataset(f"{tmp_path}/bare.npz+bits:count=3")
    assert dataset.images.shape == (20, 8, 8, 4)
    assert list(dataset.labels) == ["bits"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("+bits:count=17", r"count of '\+bits' must be a whole number in \[0, 16\] bits, got 17"),
        ("+bits:count=-1", r"count of '\+bits' must be a whole number in \[0, 16\] bits, got -1"),
        ("+bits:count=two", r"count of '\+bits' must be a whole number"),
        ("+bits:alpha=0.5", r"'\+bits' has no option 'alpha'; known: count"),
        ("+bits+shapes:fresh", r"'\+bits' cannot be combined with ':fresh'"),
        ("+stacked-digits+bits", r"both append channels: plant one of them"),
        ("+bits+bits", r"'\+bits' is planted twice"),
    ],
)
def test_what_cannot_be_is_refused(pack, spec, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        open_dataset(f"{pack}{spec}")
    assert "\n" not in str(refused.value)


def test_sounds_have_no_bits():
    with pytest.raises(ValueError, match=r"'\+bits' is planted in images; these are sounds"):
        open_dataset("spoken:test+bits", max_examples=20)
