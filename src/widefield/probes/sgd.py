"""Feature Dropout's probe: softmax regression by SGD on augmented images, encoder frozen.

The encoder is in evaluation mode. The authors' code keeps batch normalization in training mode, so
that probing changes the encoder; this is not reproduced here.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional

from widefield.core.modes import eval_mode
from widefield.core.types import Inputs, Precision, Score
from widefield.probes.checks import check_classes, check_rows
from widefield.probes.features import extract, features
from widefield.probes.folds import SplitGroups
from widefield.probes.knn import knn
from widefield.probes.scores import score_predictions

DrawBatch = Callable[[NDArray[np.int64], int, Generator], tuple[Tensor, dict[str, Tensor]]]
"""Function from example indices, the epoch and a generator to views [b, C, H, W] and labels [b]."""

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
    train_images: Inputs,
    train_labels: dict[str, Tensor],
    test_images: Inputs,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    groups: SplitGroups | None = None,
    draw: DrawBatch,
    device: torch.device,
    precision: Precision = "32-true",
    seed: int = 0,
) -> dict[str, Score]:
    """Train one probe for every task in `classes` (task -> K) on augmented images, and score it.

    Images are uint8 [n, H, W, C], labels int64 [n]. `draw` gives the training batches, on `device`:
    views of the examples and their labels, which may differ between epochs. SGD with momentum 0.9
    runs for 100 epochs in batches of 128 on features without standardization, from zero weights.
    Test images are not augmented. The encoder is not changed. `Score.l2` is 0; `Score.knn` is the
    kNN accuracy on images without augmentation. Intervals are clustered by `groups`.

    Raises `ValueError` as `fit_linear` does.

    Source: Feature Dropout (Tamkin et al. 2022), section 3.2; momentum and the epochs of the drops
    from the authors' settings.
    """
    train_h = extract(encoder, train_images, device=device, precision=precision)
    test_h = extract(encoder, test_images, device=device, precision=precision)
    check_rows(train_h, train_labels, test_h, test_labels, classes)
    check_classes(train_labels, classes)
    probes: dict[str, nn.Module] = {}
    for task, count in classes.items():
        # Built on meta, because initialization there takes no random numbers.
        probes[task] = nn.Linear(test_h.shape[1], count, device="meta").to_empty(device=device)
    weights = [p for probe in probes.values() for p in probe.parameters()]
    for p in weights:
        nn.init.zeros_(p)
    optimizer = torch.optim.SGD(weights, lr=0.0, momentum=_MOMENTUM)
    generator, order = Generator(device).manual_seed(seed), Generator().manual_seed(seed)
    with eval_mode(encoder):
        for epoch in range(EPOCHS):
            optimizer.param_groups[0]["lr"] = learning_rate(epoch)
            shuffled = torch.randperm(len(train_h), generator=order)
            for index in torch.split(shuffled, BATCH_SIZE):
                x, labels = draw(index.numpy(), epoch, generator)
                # A clone: autograd does not accept tensors of inference mode.
                h = features(encoder, x, precision).clone()
                losses = [functional.cross_entropy(probes[t](h), labels[t]) for t in probes]
                gradients = torch.autograd.grad(torch.stack(losses).sum(), weights)
                for p, gradient in zip(weights, gradients, strict=True):
                    p.grad = gradient
                optimizer.step()
    votes = knn(train_h, train_labels, test_h, test_labels, classes=classes)
    return {
        task: score_predictions(
            task,
            probe(test_h).argmax(1),
            test_labels[task],
            classes=classes[task],
            knn=votes[task],
            l2=0.0,
            train_examples=len(train_h),
            groups=None if groups is None else groups[1],
        )
        for task, probe in probes.items()
    }
