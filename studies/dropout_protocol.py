"""Feature Dropout's linear evaluation: softmax regression by SGD on augmented images.

The encoder is frozen, in evaluation mode. The authors' code keeps batch normalization in training
mode, so that probing changes the encoder; this is not reproduced here.

The paper augments every image anew in each of the 100 epochs, which on a CPU takes longer than the
training of the encoder. With fewer drawings, epoch e trains on drawing e mod `drawings` again.

Source: Feature Dropout (Tamkin et al. 2022), section 3.2; momentum and the epochs of the drops from
the authors' settings.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional

from widefield.core.devices import eval_mode
from widefield.probes.checks import check_classes, check_rows
from widefield.probes.features import extract, features
from widefield.probes.outcome import Outcome

DrawBatch = Callable[[NDArray[np.int64], int, Generator], tuple[Tensor, Mapping[str, Tensor]]]
"""Function from example indices, the epoch and a generator to views [b, C, H, W] and labels [b],
which may differ between epochs: features that are planted anew have other classes in each."""

EPOCHS, BATCH_SIZE, _MOMENTUM, DROPS = 100, 128, 0.9, (60, 80)


def learning_rate(epoch: int) -> float:
    """Return the learning rate of epoch 0, 1, ...: 0.01, a tenth from epoch 60 and again from 80.

    Example:
        >>> [learning_rate(epoch) for epoch in (59, 60, 80)]
        [0.01, 0.001, 0.0001]
    """
    return round(0.01 * 0.1 ** sum(epoch >= drop for drop in DROPS), 9)


def score_sgd(
    encoder: nn.Module,
    train: tuple[NDArray[np.uint8], dict[str, Tensor]],
    test: tuple[NDArray[np.uint8], dict[str, Tensor]],
    *,
    classes: dict[str, int],
    draw: DrawBatch,
    device: torch.device,
    epochs: int = EPOCHS,
    drawings: int = EPOCHS,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Train one probe for every task in `classes` (task -> K) on augmented images, and score it.

    Images are uint8 [n, H, W, C], labels int64 [n]; `draw` gives the training batches, `drawings`
    of each image. The probes start at zero, on features that are not standardized. Test images are
    not augmented.
    """
    train_h, test_h = (extract(encoder, images, device=device) for images, _ in (train, test))
    check_rows(train_h, train[1], test_h, test[1], classes)
    check_classes(train[1], classes)
    probes = nn.ModuleDict(
        {
            task: nn.utils.skip_init(nn.Linear, test_h.shape[1], count, device=device)
            for task, count in classes.items()
        }
    )
    for weight in probes.parameters():
        nn.init.zeros_(weight)
    optimizer = torch.optim.SGD(probes.parameters(), lr=0.0, momentum=_MOMENTUM)
    generator, order = Generator(device).manual_seed(seed), Generator().manual_seed(seed)
    rows = torch.arange(len(train_h))

    # Drawings that are used once are not kept: those of all epochs would not fit into memory.
    @lru_cache(maxsize=drawings if drawings < epochs else 1)
    def drawn(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        batches = [draw(index.numpy(), number, generator) for index in rows.split(BATCH_SIZE)]
        h = torch.cat([features(encoder, x, "32-true") for x, _ in batches])
        labels = {task: torch.cat([y[task] for _, y in batches]) for task in classes}
        return h.clone(), labels  # autograd takes no inference tensors

    with eval_mode(encoder):
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = learning_rate(epoch)
            h, labels = drawn(epoch % drawings)
            for index in rows[torch.randperm(len(rows), generator=order)].split(BATCH_SIZE):
                index = index.to(device)
                losses = [
                    functional.cross_entropy(probe(h[index]), labels[task][index])
                    for task, probe in probes.items()
                ]
                optimizer.zero_grad()
                torch.autograd.backward(torch.stack(losses).sum())
                optimizer.step()
    return {
        task: Outcome(values=(probe(test_h).argmax(1).cpu() == test[1][task].cpu()).numpy())
        for task, probe in probes.items()
    }
