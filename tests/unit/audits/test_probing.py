"""What probes find does not depend on which tasks are probed together."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.audits.bounds import probe_tasks
from widefield.data import Dataset
from widefield.inference.splits import TrainTest

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
        classes={"left": ("dark", "light"), "right": ("dark", "gray", "light")},
        names=[f"row {i}" for i in range(n)],
    )


def test_a_task_is_probed_alike_alone_and_beside_another() -> None:
    for seed in range(8):
        data = TrainTest(train=dataset(90, seed), test=dataset(60, 100 + seed))
        together = probe_tasks(noisy_features, data)
        for task, result in together.items():
            alone = probe_tasks(noisy_features, data.only(task))
            np.testing.assert_array_equal(alone[task].values, result.values)
            assert alone[task].knn == result.knn
