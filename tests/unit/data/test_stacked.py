"""A digit of the example's own class in a fourth channel."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from widefield.data import Loader, open_dataset

SPEC = "stacked-digits"


@pytest.fixture
def pack(tmp_path):
    """60 images of ten classes, as a file."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 20, 24, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, kind=np.arange(60) % 10)
    return str(tmp_path / "mine.npz")


def digit_files(size):
    """The digits that ship with scikit-learn at `size` (H, W), by class."""
    data = load_digits()
    gray = np.round(data.images * (255 / 16)).astype(np.uint8)
    resized = [
        np.asarray(Image.fromarray(g).resize(size[::-1], Image.Resampling.BICUBIC)) for g in gray
    ]
    return {k: {resized[i].tobytes() for i in np.flatnonzero(data.target == k)} for k in range(10)}


def test_each_image_gets_a_digit_of_its_own_class(pack):
    dataset, plain = open_dataset(f"{pack}+{SPEC}"), open_dataset(pack)
    assert dataset.images.shape == (60, 20, 24, 4)
    assert (dataset.images[..., :3] == plain.images).all()
    assert list(dataset.labels) == ["kind"]
    digits = digit_files((20, 24))
    drawn = [dataset.images[i, ..., 3].tobytes() for i in range(60)]
    assert all(digit in digits[i % 10] for i, digit in enumerate(drawn))
    assert len(set(drawn)) > 50


def test_held_out_digits_are_other_digits(pack):
    ours, theirs = (
        {image[..., 3].tobytes() for image in open_dataset(f"{pack}+{SPEC}", held_out=h).images}
        for h in (False, True)
    )
    assert not ours & theirs


def test_it_depends_on_seed_and_index_alone(pack):
    one, two, other = (open_dataset(f"{pack}+{SPEC}", seed=s).images for s in (0, 0, 1))
    assert (one == two).all()
    assert (one != other).any()
    index = np.array([7, 3])
    dataset = open_dataset(f"{pack}+{SPEC}")
    assert dataset.stacked is not None
    assert (dataset.stacked.draw(index) == dataset.images[index, ..., 3:]).all()


def test_masked_leaves_the_channel_empty(pack):
    dataset = open_dataset(f"{pack}+{SPEC}:masked")
    assert dataset.spec.endswith(f"+{SPEC}:masked")
    assert (dataset.images[..., :3] == open_dataset(pack).images).all()
    assert not dataset.images[..., 3].any()
    assert not dataset.masks(np.arange(60)).any()


def test_the_mask_is_the_digit_in_its_channel(pack):
    dataset = open_dataset(f"{pack}+{SPEC}")
    mask = dataset.masks(np.arange(60))
    assert mask.shape == dataset.images.shape
    assert not mask[..., :3].any()
    assert (mask[..., 3] == (dataset.images[..., 3] > 0)).all()
    (batch,) = Loader(dataset, batch_size=60, device=torch.device("cpu"), masks=True).epoch(0)
    assert batch.mask is not None
    assert batch.mask.shape == batch.x.shape
    assert torch.equal(batch.mask[:, 3], batch.x[:, 3] > 0)


def test_other_features_go_below_it(pack):
    dataset = open_dataset(f"{pack}+{SPEC}+shapes")
    assert (dataset.images[..., :3] == open_dataset(f"{pack}+shapes").images).all()
    mask = dataset.masks(np.arange(60))
    assert (mask[..., 0] == mask[..., 2]).all()
    assert mask[..., 0].any(axis=(1, 2)).all()
    assert list(dataset.labels) == ["kind", "shapes"]


def test_on_disk_as_in_memory(pack):
    memory, disk = (open_dataset(f"{pack}+{SPEC}", memory_budget=b).images for b in (None, 0))
    assert not disk.flags.writeable
    assert (memory == disk).all()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (f"photos+{SPEC}", "the images have 16 classes, expected 1 to 10"),
        (f"PACK+shapes:fresh+{SPEC}", "cannot be combined with ':fresh'"),
        (f"PACK+{SPEC}:alpha=0.5", "has no option 'alpha'; known: masked, source"),
        (f"PACK+{SPEC}:masked=1", "takes no value"),
    ],
)
def test_what_cannot_be_is_refused(pack, spec, reason):
    with pytest.raises(ValueError, match=reason):
        open_dataset(spec.replace("PACK", pack))


def test_data_without_classes_are_refused(tmp_path):
    np.savez(tmp_path / "bare.npz", x=np.zeros((4, 20, 20, 3), np.uint8))
    with pytest.raises(ValueError, match="have no classes"):
        open_dataset(f"{tmp_path}/bare.npz+{SPEC}")
    with pytest.raises(ValueError, match="have no classes"):
        open_dataset(f"{tmp_path}/bare.npz+{SPEC}+shapes")


def test_a_subset_keeps_the_digit_of_each(pack):
    dataset = open_dataset(f"{pack}+{SPEC}")
    part = dataset.subset(np.array([40, 3, 11])).subset(slice(1, 3))
    assert part.stacked is not None
    assert (part.stacked.draw(np.arange(2)) == dataset.images[[3, 11], ..., 3:]).all()
    assert (part.masks(np.arange(2)) == dataset.masks(np.array([3, 11]))).all()
