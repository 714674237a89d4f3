"""Encoders whose sight is known by construction must each be told what they see, on every task.

An image has a tinted background, a colored shape somewhere on its left half and a planted digit
somewhere on its right half. Each is drawn as often in its negative, so that every class has the
same mean image and nothing can be read off the pixels linearly.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.audits.bounds import probe_tasks
from widefield.audits.verdict import TaskAudit, audit_task
from widefield.data import Dataset
from widefield.encoders import build_encoder
from widefield.inference.splits import TrainTest
from widefield.probes import extract, pixels

COLORS = np.array([[70, 0, -70], [-70, 70, 0], [0, -70, 70]])
SHAPES = np.array(
    [
        [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]],
        [[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]],
        [[0, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0], [0, 1, 1, 0]],
    ]
)
DIGITS = np.array(
    [
        [[int(c) for c in row] for row in glyph.split()]
        for glyph in (
            "111 101 101 101 111",
            "010 110 010 010 111",
            "110 001 010 100 111",
            "101 101 111 001 001",
        )
    ]
)
Shapes = NDArray[np.uint8]


def world(n: int, seed: int) -> Dataset:
    """Images uint8 [n, 12, 24, 3] with labels of color, shape and digit."""
    rng = np.random.default_rng(seed)
    color, shape = rng.integers(3, size=(2, n))
    digit = rng.integers(len(DIGITS), size=n)
    sign = rng.choice([-1, 1], size=(n, 2))
    images = np.tile(rng.integers(80, 176, size=(n, 1, 1, 3)), (1, 12, 24, 1)).astype(float)
    for i in range(n):
        y, x = rng.integers(8, size=2)
        images[i, y : y + 4, x : x + 4] += (
            sign[i, 0] * SHAPES[shape[i]][..., None] * COLORS[color[i]]
        )
        y, x = rng.integers(7), 12 + rng.integers(9)
        gray = images[i, y : y + 5, x : x + 3]
        gray += sign[i, 1] * DIGITS[digit[i]][..., None] * 75
    images += rng.normal(0, 2, size=images.shape)
    labels = {"color": color, "shape": shape, "digit": digit}
    return Dataset(
        spec="world",
        images=np.clip(images, 0, 255).astype(np.uint8),
        labels={task: y.astype(np.int64) for task, y in labels.items()},
        classes={task: tuple(map(str, range(y.max() + 1))) for task, y in labels.items()},
        names=[f"row {i}" for i in range(n)],
    )


def scene(images: Shapes) -> Tensor:
    """What stands out from the background, [n, 3, H, W] in [-1, 1]."""
    x = torch.from_numpy(images).float().permute(0, 3, 1, 2) / 75
    return x - x.flatten(2).median(2).values[..., None, None]


def templates(drawing: Tensor, glyphs: NDArray[np.int64]) -> Tensor:
    """How well each glyph fits at its best place, sharpened, [n, glyphs]."""
    kernels = torch.from_numpy(2.0 * glyphs - 1).float()[:, None]
    return (functional.conv2d(drawing, kernels).flatten(2).amax(2)).square()


def see_color(images: Shapes) -> Tensor:
    left = scene(images)[..., :12]
    amount = left.abs().flatten(2).sum(2)
    return amount / amount.sum(1, keepdim=True)  # the sum would tell how large the shape is


def see_shape(images: Shapes) -> Tensor:
    left = scene(images)[..., :12].abs().amax(1, keepdim=True)
    return templates((left > 0.4).float(), SHAPES)


def see_digit(images: Shapes) -> Tensor:
    right = scene(images)[..., 12:].abs().amin(1, keepdim=True)
    return templates((right > 0.5).float(), DIGITS)


def together(*senses: Callable[[Shapes], Tensor]) -> Callable[[Shapes], Tensor]:
    return lambda images: torch.cat([sense(images) for sense in senses], dim=1)


def untrained(seed: int) -> Callable[[Shapes], Tensor]:
    encoder = build_encoder("resnet-tiny", image_size=12, seed=seed)
    return lambda images: extract(encoder, images)


SEES = {
    "ignores color": {"shape", "digit"},
    "ignores shape": {"color", "digit"},
    "only the digit": {"digit"},
    "random": set(),
}
SENSES = {"color": see_color, "shape": see_shape, "digit": see_digit}


def audited(seed: int) -> dict[str, dict[str, TaskAudit]]:
    data = TrainTest(train=world(360, 2 * seed), test=world(240, 2 * seed + 1))
    floors = {
        "pixels": probe_tasks(pixels, data),
        "random": probe_tasks(untrained(seed=1000 + seed), data),
    }
    ceiling = probe_tasks(together(*SENSES.values()), data)
    found = {}
    for name, seen in SEES.items():
        senses = [SENSES[task] for task in SENSES if task in seen]
        ours = probe_tasks(together(*senses) if senses else untrained(seed), data)
        found[name] = {
            task: audit_task(
                task,
                ours[task],
                {floor: row[task] for floor, row in floors.items()},
                ceiling[task],
                classes=len(data.train.classes[task]),
            )
            for task in SENSES
        }
    return found


@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=["0-9", "10-19"])
def test_every_encoder_gets_the_right_verdict_on_every_task(seeds: range) -> None:
    wrong = [
        (seed, name, found.line())
        for seed in seeds
        for name, row in audited(seed).items()
        for task, found in row.items()
        if found.verdict != ("learned" if task in SEES[name] else "not learned")
    ]
    assert wrong == []
