"""Feature Dropout's probe: softmax regression by SGD on augmented images, encoder frozen.

The encoder is in evaluation mode throughout. The authors' code leaves its batch normalization in
training mode, so that probing changes the encoder; that is not repeated here.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional

from widefield.core.modes import eval_mode
from widefield.core.types import Precision, Score
from widefield.probes.checks import check_probe
from widefield.probes.features import extract, features
from widefield.probes.guesses import score_predictions
from widefield.probes.knn import knn

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
    train_images: np.ndarray,
    train_labels: dict[str, Tensor],
    test_images: np.ndarray,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    draw: DrawBatch,
    device: torch.device,
    precision: Precision = "32-true",
    seed: int = 0,
) -> dict[str, Score]:
    """Train one probe for every task in `classes` (task -> K) on augmented images, and score it.

    Images are uint8 [n, H, W, C], labels int64 [n]. `draw` gives the training batches, on `device`:
    views of the examples and their labels, which may differ from epoch to epoch. SGD with momentum
    0.9 takes 100 epochs in batches of 128 on features as they are, from weights of zero. Test
    images are not augmented and decide nothing. The encoder is not changed. `Score.l2` is 0;
    `Score.knn` is the vote on features of plain images.

    Raises `ValueError` as `fit_linear` does.

    Source: Feature Dropout (Tamkin et al. 2022), section 3.2; momentum and the epochs of the drops
    from the authors' settings.
    """
    train_h = extract(encoder, train_images, device=device, precision=precision)
    test_h = extract(encoder, test_images, device=device, precision=precision)
    check_probe(train_h, train_labels, test_h, test_labels, classes)
    probes = {task: _Probe(test_h.shape[1], count, device) for task, count in classes.items()}
    drawing, order = Generator(device).manual_seed(seed), Generator().manual_seed(seed)
    with eval_mode(encoder):
        for epoch in range(EPOCHS):
            shuffled = torch.randperm(len(train_images), generator=order)
            for index in torch.split(shuffled, BATCH_SIZE):
                x, labels = draw(index.numpy(), epoch, drawing)
                # A copy: autograd refuses tensors of inference mode.
                h = features(encoder, x, precision).clone()
                for task, probe in probes.items():
                    probe.step(h, labels[task], learning_rate(epoch))
    votes = knn(train_h, train_labels, test_h, test_labels, classes=classes)
    return {
        task: score_predictions(
            task,
            probe.logits(test_h).argmax(1),
            test_labels[task],
            classes=classes[task],
            knn=votes[task],
            l2=0.0,
            train_examples=len(train_h),
        )
        for task, probe in probes.items()
    }


class _Probe:
    """A softmax regression in training."""

    def __init__(self, dim: int, classes: int, device: torch.device) -> None:
        self.weight = torch.zeros(classes, dim, device=device, requires_grad=True)
        self.bias = torch.zeros(classes, device=device, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.weight, self.bias], lr=0.0, momentum=_MOMENTUM)

    def logits(self, h: Tensor) -> Tensor:
        """Return the logits [b, K] of features [b, D]."""
        return functional.linear(h, self.weight, self.bias)

    def step(self, h: Tensor, labels: Tensor, lr: float) -> None:
        """Take one step on features h [b, D] with their class ids, int64 [b]."""
        loss = functional.cross_entropy(self.logits(h), labels)
        self.weight.grad, self.bias.grad = torch.autograd.grad(loss, (self.weight, self.bias))
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
