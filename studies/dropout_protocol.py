"""Feature Dropout's linear evaluation: softmax regression by SGD on augmented images.

The encoder is frozen, in evaluation mode. The authors' code keeps batch normalization in training
mode, so that probing changes the encoder; this is not reproduced here.

Source: Feature Dropout (Tamkin et al. 2022), section 3.2; momentum and the epochs of the drops from
the authors' settings.
"""

from collections.abc import Callable, Mapping

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
    seed: int = 0,
) -> dict[str, Outcome]:
    """Train one probe for every task in `classes` (task -> K) on augmented images, and score it.

    Images are uint8 [n, H, W, C], labels int64 [n]; `draw` gives the training batches. The probes
    start at zero, on features that are not standardized. Test images are not augmented.
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
    with eval_mode(encoder):
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = learning_rate(epoch)
            for index in torch.split(torch.randperm(len(train_h), generator=order), BATCH_SIZE):
                x, labels = draw(index.numpy(), epoch, generator)
                h = features(encoder, x, "32-true").clone()  # autograd takes no inference tensors
                losses = [functional.cross_entropy(p(h), labels[t]) for t, p in probes.items()]
                optimizer.zero_grad()
                torch.autograd.backward(torch.stack(losses).sum())
                optimizer.step()
    return {
        task: Outcome(values=(probe(test_h).argmax(1).cpu() == test[1][task].cpu()).numpy())
        for task, probe in probes.items()
    }
