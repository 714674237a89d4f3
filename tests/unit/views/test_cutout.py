"""Cutout beside a drawing of the square pixel by pixel."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from widefield.views import Cutout, build_views


def drawn(i: int, j: int, side: int, height: int, width: int) -> np.ndarray:
    """Draw the square about the center (i, j): a loop over all pixels, as the paper words it."""
    covered = np.zeros((height, width), dtype=bool)
    for row, column in itertools.product(range(height), range(width)):
        above, left = i - side // 2, j - side // 2
        covered[row, column] = above <= row < above + side and left <= column < left + side
    return covered


@pytest.mark.parametrize(("height", "width", "size"), [(7, 9, 0.5), (6, 5, 1.0), (8, 8, 0.25)])
def test_squares_are_those_of_every_center_equally_often(
    height: int, width: int, size: float
) -> None:
    side = round(size * min(height, width))
    squares = Counter(
        drawn(i, j, side, height, width).tobytes() for i in range(height) for j in range(width)
    )
    count = 400 * height * width
    x = torch.zeros(count, 3, height, width)
    (view,) = build_views("cutout", cutout_size=size)(x, 1, torch.Generator().manual_seed(0))
    covered = (view == 0.5).numpy()
    assert (covered == covered[:, :1]).all(), "all channels lose the same pixels"
    seen = Counter(mask.tobytes() for mask in covered[:, 0])
    assert seen.keys() == squares.keys()
    for square, centers in squares.items():
        assert abs(seen[square] - 400 * centers) < 5 * (400 * centers) ** 0.5


def test_the_rest_of_the_image_is_untouched() -> None:
    x = torch.rand(16, 3, 12, 12) / 4
    first, second = Cutout(size=0.5)(x, 2, torch.Generator().manual_seed(0))
    for view in (first, second):
        assert torch.equal(view[view != 0.5], x[view != 0.5])
    assert bool(((first == 0.5) != (second == 0.5)).any()), "each view has its own square"


def test_a_size_outside_its_range_is_refused() -> None:
    for size in (0.0, 1.5):
        with pytest.raises(ValueError, match="cutout_size must be"):
            build_views("cutout", cutout_size=size)
