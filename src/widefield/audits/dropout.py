"""Feature-dropout histogram: does a view policy hide a feature in some of its views?

Tamkin et al. (2022), "Feature Dropout", Figure 3: many views of planted images are drawn under
one policy, and the linear classifier of an encoder that was trained under another one gives its
probability of the planted class. A policy that drops the feature has two heaps, one that leaves
it alone has one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from widefield.audits.read import Pair
from widefield.data import Dataset
from widefield.diagnose import Bimodality, bimodality
from widefield.probes import fit_linear
from widefield.views import Views, build_views
from widefield.workflows.frozen import EncoderSpec, Frozen, encode, open_frozen

DRAWS = 1200
BINS = 24


@dataclass(frozen=True, kw_only=True)
class DropoutHistogram:
    """P(correct class) over views of one policy."""

    policy: str
    task: str
    judge: str
    """The encoder whose classifier judges."""
    probabilities: Tensor
    """Float64 [draws], in [0, 1]."""
    bimodality: Bimodality

    def counts(self) -> list[int]:
        """How many probabilities fall in each of 24 bins from 0 to 1."""
        counts, _ = np.histogram(self.probabilities.numpy(), bins=BINS, range=(0, 1))
        return [int(count) for count in counts]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = self.bimodality
        return {
            "policy": self.policy,
            "task": self.task,
            "judge": self.judge,
            "draws": len(self.probabilities),
            "mean": float(self.probabilities.mean()),
            "bimodality": found.coefficient,
            "bimodality_low": found.low,
            "bimodality_high": found.high,
            "counts": self.counts(),
        }


def feature_dropout(
    encoder: EncoderSpec | Frozen,
    pair: Pair,
    policy: str | Views,
    task: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> DropoutHistogram:
    """P(correct class of `task`) over `draws` views under `policy`, judged by `encoder`'s probe.

    The linear probe is fitted on features of the plain training images; the views are of the test
    images, as many of each as it takes.

    Args:
        encoder: whose classifier judges: trained under another policy, to see what this one hides.
        pair: data with the task; `open_pair` reads it.
        policy: a name of `VIEWS`, or a view policy such as a trained viewmaker.
        task: of `pair`.
        draws: views in all.
        seed: of the views and the bootstrap.

    Raises:
        ValueError: no such task or policy.
    """
    frozen = encoder if isinstance(encoder, Frozen) else open_frozen(encoder)
    if task not in pair.train.labels:
        raise ValueError(
            f"no task {task!r}: the data have {', '.join(pair.train.labels) or 'none'}"
        )
    views = build_views(policy) if isinstance(policy, str) else policy
    classify = _classifier(frozen, pair.only(task), task, seed)
    rows = np.arange(draws) % len(pair.test)
    images = _drawn(views, pair.test, rows, seed)
    truth = torch.from_numpy(pair.test.labels[task][rows])
    probability = classify(images).softmax(1)[torch.arange(draws), truth].double()
    return DropoutHistogram(
        policy=policy if isinstance(policy, str) else type(policy).__name__,
        task=task,
        judge=frozen.name,
        probabilities=probability,
        bimodality=bimodality(probability, seed=seed),
    )


def _classifier(frozen: Frozen, pair: Pair, task: str, seed: int) -> Any:
    """Images uint8 [n, H, W, C] -> logits [n, K] on the CPU, by the probe on plain images."""
    encoder = frozen.built_for(pair.train.images[:1])

    def features(images: np.ndarray) -> Tensor:
        return frozen.features(images) if encoder is None else encode(encoder, images)

    h = features(pair.train.images)
    y = {task: torch.from_numpy(pair.train.labels[task]).to(h.device)}
    classes = {task: len(pair.train.classes[task])}
    probe = fit_linear(h, y, h, y, classes=classes, seed=seed)[task]
    return lambda images: (features(images) @ probe.weight.T + probe.bias).cpu()


def _drawn(views: nn.Module, dataset: Dataset, rows: np.ndarray, seed: int) -> np.ndarray:
    """One view of each of `rows`, uint8 [n, H, W, C]."""
    generator = Generator().manual_seed(seed)
    found = []
    for start in range(0, len(rows), 256):
        pixels = torch.from_numpy(dataset.images[rows[start : start + 256]])
        x = pixels.permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            (view,) = views(x, 1, generator)
        found.append((255 * view.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1))
    return torch.cat(found).numpy()
