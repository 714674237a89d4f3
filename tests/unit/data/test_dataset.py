import hashlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planting import plant
from widefield.data import Dataset, open_dataset
from widefield.data.planted import Canvas, Digits, Shapes


def make(images):
    return Dataset(
        spec="memory",
        images=images,
        labels={},
        classes={},
        names=[f"row {i}" for i in range(len(images))],
    )


def test_digest_is_blake2b_of_shape_and_pixels():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    expected = [
        int.from_bytes(
            hashlib.blake2b(b"4,6,3" + image.tobytes(), digest_size=8).digest(), "little"
        )
        for image in images
    ]
    assert make(images).digests().tolist() == expected


def test_digest_sees_pixels_and_shape_but_not_memory_layout():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), dtype=np.uint8)
    strided = np.asfortranarray(images)
    assert (make(images).digests() == make(strided).digests()).all()
    assert not (make(images).digests() == make(images.reshape(3, 6, 4, 3)).digests()).any()
    changed = images.copy()
    changed[1, 2, 3, 1] ^= 1
    assert (make(images).digests() == make(changed).digests()).tolist() == [True, False, True]


@pytest.mark.parametrize("n", [1, 513, 2000])
def test_channel_mean_and_std_equal_numpy(n):
    images = np.random.default_rng(1).integers(0, 256, (n, 3, 5, 3), dtype=np.uint8)
    images[..., 2] //= 4
    mean, std = make(images).channel_mean_std()
    np.testing.assert_allclose(mean, images.mean((0, 1, 2)) / 255, rtol=1e-12)
    np.testing.assert_allclose(std, images.std((0, 1, 2)) / 255, rtol=1e-9)


def test_beyond_the_limit_evenly_spaced_examples_are_counted(monkeypatch):
    monkeypatch.setattr("widefield.data.dataset._STATISTICS_EXAMPLES", 1000)
    images = np.random.default_rng(1).integers(0, 256, (2500, 2, 2, 1), dtype=np.uint8)
    mean, std = make(images).channel_mean_std()
    np.testing.assert_allclose(mean, images[::3].mean((0, 1, 2)) / 255, rtol=1e-12)
    np.testing.assert_allclose(std, images[::3].std((0, 1, 2)) / 255, rtol=1e-9)


def test_a_constant_channel_can_be_divided_by():
    mean, std = make(np.full((4, 2, 2, 1), 51, dtype=np.uint8)).channel_mean_std()
    assert mean == pytest.approx((0.2,))
    assert std == pytest.approx((1 / 255,))


def test_a_slice_shares_the_pixels_and_positions_copy_them():
    dataset = open_dataset("photos", max_examples=16)
    first = dataset.subset(slice(5))
    assert np.shares_memory(first.images, dataset.images)
    assert (first.paths, first.skipped) == (dataset.paths[:5], ())
    chosen = dataset.subset(np.array([9, 2]))
    assert not np.shares_memory(chosen.images, dataset.images)
    assert chosen.paths == [dataset.paths[9], dataset.paths[2]]
    assert chosen.labels["class"].tolist() == dataset.labels["class"][[9, 2]].tolist()
    assert chosen.classes == dataset.classes


def test_an_overlay_is_drawn_over_a_copy_of_any_part():
    dataset = open_dataset("photos+digits", max_examples=32).subset(np.arange(31, 11, -1))
    before = dataset.images.copy()
    overlay = Shapes().draw(Canvas(shape=(32, 32, 3), seed=4, held_out=False))
    drawn = dataset.with_overlay(overlay)
    assert (dataset.images == before).all()
    expected = plant(before, Shapes(), seed=4)
    assert (drawn.images == expected.images).all()
    assert drawn.labels["shapes"].tolist() == expected.labels.tolist()
    assert drawn.spec.endswith("+digits+shapes")
    both = drawn.masks(np.arange(20))[..., 0]
    assert (both == (dataset.masks(np.arange(20))[..., 0] | expected.mask)).all()
    assert Digits.name in drawn.labels


@pytest.mark.parametrize("classes", [2, 5, 10])
@pytest.mark.parametrize("n", [1024, 2560, 4000])
def test_some_rows_hold_every_class_even_where_classes_take_turns(n, classes):
    rows = make(np.zeros((n, 2, 2, 1), np.uint8)).spread_rows(512)
    assert np.bincount(rows % classes, minlength=classes).min() >= 512 / classes / 2


@given(st.integers(0, 3000), st.integers(1, 4000))
@example(2999, 2998)  # parts hardly larger than a row: two rows could fall together
@example(3000, 1000)
@example(183, 21)  # a bound that rounding puts below a whole number
def test_some_rows_are_one_of_each_equal_part(n, most):
    rows = make(np.zeros((n, 1, 1, 1), np.uint8)).spread_rows(most)
    assert len(rows) == min(n, most)
    assert (np.diff(rows) > 0).all()
    if most >= n:
        assert rows.tolist() == list(range(n))
    else:
        offset = np.abs(rows - (np.arange(most) + 0.5) * n / most)
        assert (offset <= n / most / 2 + 1 + 1e-9).all()  # a sum of rounded numbers
        assert 0 <= rows[0] <= rows[-1] < n
