"""Channels after those of an image: bits of a random integer, or a digit of its class."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from widefield.data import Loader, open_dataset
from widefield.data.planted import Bits, Canvas

GOLDEN = [11, 6, 15, 9, 2, 7, 4, 15, 0, 15, 8, 14]
"""Labels of the first 12 images: to change them would change every data set ever planted."""
BOTH = pytest.mark.parametrize("name", ["bits", "stacked-digits"])


@pytest.fixture
def pack(tmp_path):
    """60 images of ten classes, as a file."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 20, 24, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, kind=np.arange(60) % 10)
    return str(tmp_path / "mine.npz")


def canvas(seed=0):
    return Canvas(shape=(32, 32, 3), seed=seed, held_out=False)


def integers(images, count):
    """The integer in the last `count` channels of each image, read with a loop over the bits."""
    return np.array([sum(2**b * (x[0, 0, 3 + b] > 0) for b in range(count)) for x in images])


def digit_files(size):
    """The digits that ship with scikit-learn at `size` (H, W), by class."""
    data = load_digits()
    gray = np.round(data.images * (255 / 16)).astype(np.uint8)
    resized = [
        np.asarray(Image.fromarray(g).resize(size[::-1], Image.Resampling.BICUBIC)) for g in gray
    ]
    return {k: {resized[i].tobytes() for i in np.flatnonzero(data.target == k)} for k in range(10)}


@BOTH
def test_it_depends_on_seed_index_and_held_out_alone(pack, name):
    one, two, other, held_out = (
        open_dataset(f"{pack}+{name}", seed=s, held_out=h).images[..., 3:].reshape(60, -1)
        for s, h in ((0, False), (0, False), (1, False), (0, True))
    )
    assert (one == two).all()
    assert (one != other).any(1).mean() > 0.9
    assert (one != held_out).any(1).mean() > 0.9
    if name == "stacked-digits":  # those held out are other digits
        assert not {x.tobytes() for x in one} & {x.tobytes() for x in held_out}


@BOTH
def test_other_features_go_below(pack, name):
    dataset, below = open_dataset(f"{pack}+{name}+shapes"), open_dataset(f"{pack}+shapes")
    assert (dataset.images[..., :3] == below.images).all()
    assert (dataset.images[..., 3:] == open_dataset(f"{pack}+{name}").images[..., 3:]).all()
    assert list(dataset.labels)[:2] == ["kind", "shapes"]
    masks, expected = dataset.masks(np.arange(60)), below.masks(np.arange(60))
    assert (masks[..., :3] == expected).all()
    assert expected.any(axis=(1, 2)).all()


@BOTH
def test_on_disk_as_in_memory(pack, name):
    memory, disk = (open_dataset(f"{pack}+{name}", memory_budget=b).images for b in (None, 0))
    assert not disk.flags.writeable
    assert (memory == disk).all()


@BOTH
def test_a_subset_keeps_the_channels_of_each(pack, name):
    dataset = open_dataset(f"{pack}+{name}")
    part = dataset.subset(np.array([40, 3, 11])).subset(slice(1, 3))
    assert (part.images == dataset.images[[3, 11]]).all()
    assert (part.masks(np.arange(2)) == dataset.masks(np.array([3, 11]))).all()
    if part.stacked is None:
        assert part.bits == 8
        assert (integers(part.images, 4) == part.labels["bits"]).all()
    else:
        assert (part.stacked.draw(np.arange(2)) == dataset.images[[3, 11], ..., 3:]).all()


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
        ("+shapes:fresh+stacked-digits", "cannot be combined with ':fresh'"),
        ("+stacked-digits:alpha=0.5", "has no option 'alpha'; known: masked, source"),
        ("+stacked-digits:masked=1", "takes no value"),
    ],
)
def test_what_cannot_be_is_refused(pack, spec, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        open_dataset(f"{pack}{spec}")
    assert "\n" not in str(refused.value)


def test_data_that_do_not_suit_are_refused(tmp_path):
    np.savez(tmp_path / "bare.npz", x=np.zeros((20, 20, 20, 1), np.uint8))
    bare = f"{tmp_path}/bare.npz"
    for spec, reason in (
        ("spoken:test+bits", r"'\+bits' is planted in images; these are sounds"),
        ("photos+stacked-digits", "the images have 16 classes, expected 1 to 10"),
        (f"{bare}+stacked-digits", "have no classes"),
        (f"{bare}+stacked-digits+shapes", "have no classes"),
    ):
        with pytest.raises(ValueError, match=reason):
            open_dataset(spec, max_examples=20)
    dataset = open_dataset(f"{bare}+bits:count=3")  # bits need no labels
    assert dataset.images.shape == (20, 20, 20, 4)
    assert list(dataset.labels) == ["bits"]


def test_golden_labels():
    assert Bits().draw(canvas()).labels(np.arange(12)).tolist() == GOLDEN


@pytest.mark.parametrize("count", [1, 3, 4, 16])
def test_each_bit_is_a_constant_channel_and_the_label_the_lowest_four(pack, count):
    dataset, shown = open_dataset(f"{pack}+bits:count={count}"), min(count, 4)
    assert dataset.images.shape == (60, 20, 24, 3 + count)
    assert (dataset.images[..., :3] == open_dataset(pack).images).all()
    planes = dataset.images[..., 3:]
    assert (planes == planes[:, :1, :1]).all()
    assert set(np.unique(planes)) == {0, 255}
    assert dataset.bits == count
    assert not dataset.masks(np.arange(60)).any()
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


def test_each_image_gets_a_digit_of_its_own_class(pack):
    dataset = open_dataset(f"{pack}+stacked-digits")
    assert (dataset.images[..., :3] == open_dataset(pack).images).all()
    assert list(dataset.labels) == ["kind"]
    digits = digit_files((20, 24))
    drawn = [image[..., 3].tobytes() for image in dataset.images]
    assert all(digit in digits[i % 10] for i, digit in enumerate(drawn))
    assert len(set(drawn)) > 50


def test_masked_leaves_the_channel_empty(pack):
    dataset = open_dataset(f"{pack}+stacked-digits:masked")
    assert dataset.spec.endswith("+stacked-digits:masked")
    assert (dataset.images[..., :3] == open_dataset(pack).images).all()
    assert not dataset.images[..., 3].any()
    assert not dataset.masks(np.arange(60)).any()


def test_the_mask_is_the_digit_in_its_channel(pack):
    dataset = open_dataset(f"{pack}+stacked-digits")
    mask = dataset.masks(np.arange(60))
    assert mask.shape == dataset.images.shape
    assert not mask[..., :3].any()
    assert (mask[..., 3] == (dataset.images[..., 3] > 0)).all()
    (batch,) = Loader(dataset, batch_size=60, device=torch.device("cpu"), masks=True).epoch(0)
    assert batch.mask is not None
    assert batch.mask.shape == batch.x.shape
    assert torch.equal(batch.mask[:, 3], batch.x[:, 3] > 0)
