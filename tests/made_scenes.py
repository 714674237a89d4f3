"""Examples in groups whose label is drawn at random for each group: the true accuracy is 50 %."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("frames", "slices", "takes")


def scenes(kind: str, *, groups: int = 30, each: int = 8, seed: int = 1) -> dict[str, Any]:
    """Return arrays `x`, `label` and `scene`.

    The images of a group are shifted cuts of one picture (frames), mixtures of two pictures
    (slices), or one picture with another brightness and noise (takes).
    """
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(groups) % 2)
    images = [one for _ in range(groups) for one in _group(kind, each, rng)]
    x = np.clip(np.stack(images) + rng.normal(0, 4, (groups * each, 16, 16, 3)), 0, 255)
    return {
        "x": x.astype(np.uint8),
        "label": np.repeat(label, each),
        "scene": np.repeat(np.arange(groups), each),
    }


def _picture(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return smooth colors, [20, 20, 3]."""
    coarse = rng.normal(128, 45, (6, 6, 3))
    along = np.linspace(0, 4.99, 20)
    low, share = along.astype(int), along % 1
    rows = coarse[low] * (1 - share)[:, None, None] + coarse[low + 1] * share[:, None, None]
    columns = rows[:, low] * (1 - share)[:, None] + rows[:, low + 1] * share[:, None]
    result: NDArray[np.float64] = columns
    return result


def _group(kind: str, each: int, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    first, last = _picture(rng), _picture(rng)
    if kind == "frames":
        cuts = rng.integers(0, 3, (each, 2)).tolist()
        return [first[top : top + 16, left : left + 16] for top, left in cuts]
    if kind == "slices":
        shares = np.linspace(0, 0.5, each)
        return [((1 - share) * first + share * last)[:16, :16] for share in shares]
    return [first[:16, :16] * rng.uniform(0.9, 1.1) for _ in range(each)]
