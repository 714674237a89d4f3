"""Does view-contrast learn more where a batch is compared with earlier batches too?

    python benchmarks/beyond_the_batch.py cifar10_train.npz \
        --json benchmarks/results/beyond_the_batch.json

Two ways are tried beside the default, each with what the last 16 batches left:

- queue: their second views are further negatives of the contrast, as in MoCo (He et al. 2020);
- nearest row: of their examples' rows, the one nearest to the second view is a second positive,
  which counts as much as the view, as in NNCLR (Dwibedi et al. 2021), where it is the only one.

CIFAR-10 images with a planted digit, resnet-tiny, few images for 18 epochs and many for 2; class
and digit, read by a linear probe that is fitted on 5,000 of the images and scored on 3,000 further
ones of the training file. All else stays at its default. The file is rewritten after every run,
and runs that it already holds are not repeated.
"""

import argparse
import itertools
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from study import Results, Run, accuracies, train, validation_sets
from widefield.core.precision import full_precision
from widefield.head import PerExampleHead, batch_cross_entropy
from widefield.methods import ViewContrastConfig
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethod
from widefield.probes import extract

PLANT = "+digits"
EPOCHS = {5000: 18, 45_000: 2}
"""Images -> epochs of a run."""
BATCHES = 16  # 4,096 examples
FIT = 5000  # images for the probe
SEEDS = (0, 1, 2)

Earlier = Literal["queue", "nearest row"]
"""What earlier batches are taken for."""


@dataclass(frozen=True, kw_only=True)
class WithQueue(ViewContrastConfig):
    """View-contrast whose negatives are second views of earlier batches too."""

    def build(self, context: BuildContext) -> Method:
        """Build view-contrast, and put its contrast beside earlier batches."""
        return _with_earlier(super().build(context), self, "queue")


@dataclass(frozen=True, kw_only=True)
class WithNearestRow(ViewContrastConfig):
    """View-contrast with the nearest row of earlier batches as a second positive."""

    def build(self, context: BuildContext) -> Method:
        """Build view-contrast, and put its contrast beside earlier batches."""
        return _with_earlier(super().build(context), self, "nearest row")


def _with_earlier(method: Method, settings: ViewContrastConfig, earlier: Earlier) -> Method:
    """Replace the loss of the head by one that looks at earlier batches."""
    assert isinstance(method, HeadMethod)
    head, forward = method.head, method.head.forward
    scale, cross_entropy_weight = settings.logit_scale, settings.cross_entropy_weight
    assert scale is not None
    assert cross_entropy_weight is not None
    views: deque[Tensor] = deque(maxlen=BATCHES)
    visited: deque[Tensor] = deque(maxlen=BATCHES)

    def compare(z: Tensor, rows: Tensor, second: Tensor) -> Tensor:
        positive, more = second, second[:0]
        if earlier == "queue":
            more = torch.cat([*views, more])
        elif visited:
            old = F.normalize(_rows(head, torch.cat(list(visited))).to(second), dim=1)
            positive = (second + old[(second @ old.T).argmax(1)]) / 2
        views.append(second)
        told_apart = batch_cross_entropy(z, rows, scale=1.0, smoothing=settings.label_smoothing)
        return contrast(z, second, positive, more, scale=scale) + cross_entropy_weight * told_apart

    def remember(z: Tensor, index: Tensor, second: Tensor | None = None) -> Tensor:
        value = forward(z, index, second)
        visited.append(index.cpu())
        return value

    head.compare, head.forward = compare, remember  # type: ignore[method-assign]
    return method


def _rows(head: PerExampleHead, index: Tensor) -> Tensor:
    """Return the rows of these examples as they are kept."""
    return head.storage.read(index).row


@full_precision
def contrast(z: Tensor, second: Tensor, positive: Tensor, more: Tensor, *, scale: float) -> Tensor:
    """Return `decoupled_contrast` of z [b, m] and second [b, m], with other positives [b, m].

    Features `more` [k, m] are further negatives. Without any, and with `second` as positive, it is
    `decoupled_contrast` of the two.
    """
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    batch = (scale * z @ other.T for other in (second, z))
    others = [near.masked_fill(itself, float("-inf")) for near in batch]
    others.append(scale * z @ more.T)
    return (torch.cat(others, dim=1).logsumexp(1) - scale * (z * positive).sum(1)).mean()


TRIED: dict[str, ViewContrastConfig] = {
    "default": ViewContrastConfig(),
    "queue": WithQueue(),
    "nearest row": WithNearestRow(),
}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--images", type=int, action="append", choices=EPOCHS)
    parser.add_argument("--name", choices=TRIED, action="append")
    parser.add_argument("--seed", type=int, action="append", choices=SEEDS)
    args = parser.parse_args()
    results = Results(args.json, _summary)
    cases = itertools.product(args.seed or SEEDS, args.images or EPOCHS, args.name or TRIED)
    for seed, images, name in cases:
        key = f"{images} | {name} | seed {seed}"
        if key not in results:
            results.add(key, _run(args.train, images, name, seed))


def _run(file: Path, images: int, name: str, seed: int) -> Run:
    """Train once and score once."""
    trained_on, others = validation_sets(file, PLANT, images, seed)
    trained = train(
        f"{file}{PLANT}", method=TRIED[name], max_examples=images, epochs=EPOCHS[images], seed=seed
    )
    sets = trained_on.subset(np.arange(FIT)), others
    return {
        "images": images,
        "epochs": EPOCHS[images],
        "name": name,
        "seed": seed,
        "accuracy": accuracies(partial(extract, trained.encoder), *sets),
        "processor_seconds": trained.processor_seconds,
        "effective_rank": trained.effective_rank,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/beyond_the_batch.py cifar10_train.npz"}


if __name__ == "__main__":
    main()
