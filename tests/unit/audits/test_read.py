"""What is read off features does not depend on which tasks are read together."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.audits.read import Pair, read
from widefield.data import Dataset

SIDE, DIM = 4, 24


def noisy_features(images: NDArray[np.uint8]) -> Tensor:
    """Pixels under much noise, the same at every call: the L2 strength matters."""
    x = torch.from_numpy(images).flatten(1).float() / 255
    return torch.cat([x, torch.randn(len(x), DIM, generator=torch.Generator().manual_seed(9))], 1)


def dataset(n: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)
    labels = {
        "left": (images[:, :, 0].mean((1, 2)) > 127).astype(np.int64),
        "right": np.digitize(images[:, :, -1].mean((1, 2)), (110, 145)),
    }
    return Dataset(
        spec="made",
        images=images,
        labels=labels,
        classes={"left": ("dark", "light"), "right": ("dark", "grey", "light")},
        paths=[f"row {i}" for i in range(n)],
    )


def only(data: Dataset, task: str) -> Dataset:
    return replace(data, labels={task: data.labels[task]}, classes={task: data.classes[task]})


def test_a_task_is_read_alike_alone_and_beside_another() -> None:
    for seed in range(8):
        train, test = dataset(90, seed), dataset(60, 100 + seed)
        together = read(noisy_features, Pair(train=train, test=test))
        for task, reading in together.items():
            alone = read(noisy_features, Pair(train=only(train, task), test=only(test, task)))
            np.testing.assert_array_equal(alone[task].hits, reading.hits)
            assert alone[task].knn == reading.knn
