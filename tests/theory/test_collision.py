import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import collision as lab

BROKEN = [
    ("brightness_expected", lambda a: 1.5 * a, "N(N + 1)/2"),
    ("brightness_merged", lambda a: a * 0, "all images end as one"),
    ("masking_expected", lambda a: a**2, "share of equal pairs"),
    ("largest_class", lambda a: a + 0.2, "best accuracy"),
    ("contrast_log_shrinkage", lambda a: a + 3, "repeats times E log c"),
    ("contrast_log_factor", lambda a: a - 1, "factors' product"),
    ("contrast", lambda a: a + 300, "256 grays"),
]


@given(seed=st.integers(0, 1000), count=st.integers(2, 12), levels=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_count_merged_counts_what_a_dictionary_counts(seed, count, levels):
    g = torch.Generator().manual_seed(seed)
    images = torch.randint(levels, (3, count, 2), generator=g)
    labels = torch.arange(count) % 3 if count > 3 else torch.arange(count) % 2
    found = lab.count_merged(images, labels, g)
    for trial, row in zip(images.tolist(), found.tolist(), strict=True):
        keys = [tuple(image) for image in trial]
        pairs = [(i, j) for i in range(count) for j in range(count) if labels[i] != labels[j]]
        equal = sum(keys[i] == keys[j] for i, j in pairs)
        best = sum(
            max(Counter(int(c) for k, c in zip(keys, labels, strict=True) if k == key).values())
            for key in set(keys)
        )
        assert row == pytest.approx([len(set(keys)), equal / len(pairs), best / count])


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_mean_time_to_merge_is_n_n_plus_1_over_2(n):
    """Expected absorption time of the pair (black, max_value), from its transition matrix."""
    states = [(low, high) for low in range(n + 1) for high in range(low + 1, n + 1)]
    index = {state: i for i, state in enumerate(states)}
    matrix = np.eye(len(states))
    for (low, high), i in index.items():
        for move in (-1, 1):
            after = tuple(min(max(level + move, 0), n) for level in (low, high))
            if after[0] != after[1]:
                matrix[i, index[after]] -= 0.5
    times = np.linalg.solve(matrix, np.ones(len(states)))
    assert times[index[(0, n)]] == pytest.approx(n * (n + 1) / 2)


def test_brightness_maps_move_every_level_by_one_clipped_step():
    maps = lab.brightness_maps(4, 3, 20, torch.Generator().manual_seed(0))
    assert maps[0].tolist() == [list(range(17))] * 3
    for before, after in pairwise(maps):
        for levels, moved in zip(before, after, strict=True):
            assert any(torch.equal((levels + s).clamp(0, 16), moved) for s in (-4, 4))


@given(strength=st.floats(0.05, 0.95))
@settings(max_examples=20, deadline=None)
def test_log_factor_moments_against_quadrature(strength):
    c = 1 - strength + 2 * strength * (np.arange(200_000) + 0.5) / 200_000
    mean, deviation = lab.log_factor_moments(strength)
    assert mean == pytest.approx(np.log(c).mean(), abs=1e-6)
    assert deviation == pytest.approx(np.log(c).std(), abs=1e-5)
    assert mean < 0


def test_contrast_keeps_the_mean_until_it_clips():
    x = torch.tensor([[[0.2, 0.4, 0.6]]])
    torch.testing.assert_close(
        lab.change_contrast(x, torch.tensor([1.5])), torch.tensor([[[0.1, 0.4, 0.7]]])
    )
    assert lab.change_contrast(x, torch.tensor([9.0])).flatten().tolist() == pytest.approx(
        [0, 0.4, 1]
    )


def test_differing_pixels_are_of_pairs_of_unequal_class():
    images = torch.tensor([[0, 0], [0, 1], [5, 5]])
    labels = torch.tensor([0, 0, 1])
    rows = lab.differing_pixels(images, labels, 200, torch.Generator().manual_seed(0)).tolist()
    assert 0 < len(rows) < 200
    assert {tuple(row) for row in rows} == {(1.0, 1.0)}


def test_repeats_begin_at_none_and_one_and_end_at_the_last():
    repeats = lab.repeats_up_to(137.0)
    assert repeats[:2] == [0, 1]
    assert repeats[-1] == 137
    assert repeats == sorted(set(repeats))
    assert math.isclose(len(repeats), 22, abs_tol=4)
