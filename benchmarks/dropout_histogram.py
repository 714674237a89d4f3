"""Feature-dropout histogram: do views hide a feature in some of their images?

Tamkin et al. (2022), "Feature Dropout", Figure 3: many views of planted images are drawn under
one policy, and the linear classifier of an encoder that was trained under another policy gives its
probability of the planted class. The histogram of a policy that drops the feature has two heaps;
that of a policy that leaves it alone has one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn import functional

from widefield.core.modes import eval_mode, on_device
from widefield.data import Dataset
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import TrainTest
from widefield.metrics import Bimodality, bimodality
from widefield.probes import extract, fit_linear
from widefield.probes.features import image_batch
from widefield.views import Augmentation, AugmentContext, ViewSettings

DRAWS = 1200
BINS = 24
_BATCH = 200


@dataclass(frozen=True, kw_only=True)
class DropoutHistogram:
    """Probabilities of the correct class over views of one policy."""

    policy: str
    task: str
    judge: str
    """The encoder whose classifier judges."""
    probabilities: Tensor
    """Float64 [draws], in [0, 1]."""
    bimodality: Bimodality

    def counts(self) -> list[int]:
        """Count the probabilities in each of 24 bins from 0 to 1."""
        counts, _ = np.histogram(self.probabilities.numpy(), bins=BINS, range=(0, 1))
        return [int(count) for count in counts]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "policy": self.policy,
            "task": self.task,
            "judge": self.judge,
            "draws": len(self.probabilities),
            "mean": float(self.probabilities.mean()),
            "bimodality": self.bimodality.coefficient,
            "bimodality_low": self.bimodality.low,
            "bimodality_high": self.bimodality.high,
            "counts": self.counts(),
        }


def feature_dropout(
    encoder: EncoderSpec,
    data: TrainTest,
    policy: str | Augmentation,
    task: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> DropoutHistogram:
    """Return how probable `encoder`'s probe finds the correct class over views under `policy`.

    The linear probe is fitted on features of the plain training images; the views are drawn of the
    test images, of each again until there are `draws`. A policy that attacks, attacks this judge.

    Args:
        encoder: its classifier judges; train it under another policy, to see what this one hides.
        data: data with the task, as `open_train_test` opens them.
        policy: a name of `VIEWS`, or views that were trained, as `run_views` gives them.
        task: a task of `data`.
        draws: number of views in all.
        seed: seeds the views and the bootstrap, which is over images.

    Raises:
        ValueError: no such task or policy, or a policy that needs to know where an object is
            planted, and data without one.
    """
    extractor = open_encoder(encoder)
    if task not in data.train.labels:
        raise ValueError(
            f"no task {task!r}: the data have {', '.join(data.train.labels) or 'none'}"
        )
    name = policy if isinstance(policy, str) else type(policy).__name__
    views = policy
    if isinstance(views, str):
        views = ViewSettings.named(views).build(
            channels=data.test.images.shape[3], kind=data.test.kind, front_end=extractor.front_end
        )
    if views.needs_mask and not data.test.planted and data.test.stacked is None:
        raise ValueError(f"views {name!r} need a planted object: plant one, as in 'photos+digits'")
    rows = np.arange(draws) % len(data.test)
    module = extractor.build(data.train.images[:1])
    with on_device(module, torch.device("cpu")):
        judge = _judge(module, data.only(task), task, seed)
        with eval_mode(judge):
            probability = _probabilities(views, judge, data.test, task, rows, seed)
    return DropoutHistogram(
        policy=name,
        task=task,
        judge=extractor.name,
        probabilities=probability,
        # Views of one image are alike.
        bimodality=bimodality(probability, groups=torch.from_numpy(rows), seed=seed),
    )


def _judge(encoder: nn.Module, data: TrainTest, task: str, seed: int) -> nn.Module:
    """Return images [B, C, H, W] in [0, 1] -> logits [B, K], by the probe on plain images."""
    h = extract(encoder, data.train.images)
    y = {task: torch.from_numpy(data.train.labels[task])}
    count = len(data.train.classes[task])
    probe = fit_linear(h, y, h, y, classes={task: count}, seed=seed)[task]
    layer = nn.Linear(h.shape[1], count)
    layer.weight.data, layer.bias.data = probe.weight, probe.bias
    return nn.Sequential(encoder, layer)


def _probabilities(
    views: Augmentation,
    judge: nn.Module,
    dataset: Dataset,
    task: str,
    rows: NDArray[np.int64],
    seed: int,
) -> Tensor:
    """Return P(correct class) of one view of each of `rows`, float64 [draws]."""
    generator = Generator().manual_seed(seed)
    probabilities = []
    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        x = image_batch(dataset.images[chosen], torch.device("cpu"))
        truth = torch.from_numpy(dataset.labels[task][chosen])
        mask = None
        if views.needs_mask:
            mask = torch.from_numpy(dataset.masks(chosen)).permute(0, 3, 1, 2)
        context = AugmentContext(mask=mask, gradients=_gradients(judge, truth))
        with torch.no_grad():
            view = views(x, 2 if views.complementary_pairs else 1, generator, context)[0]
            share = judge(view).double().softmax(1)
            probabilities.append(share[torch.arange(len(x)), truth])
    return torch.cat(probabilities)


def _gradients(judge: nn.Module, truth: Tensor) -> Any:
    """Return a function of views: gradients of the judge's cross-entropy to each of them."""

    def gradients(views: list[Tensor]) -> list[Tensor]:
        with torch.enable_grad():
            leaves = [view.detach().requires_grad_() for view in views]
            loss = sum(functional.cross_entropy(judge(leaf), truth) for leaf in leaves)
            return list(torch.autograd.grad(loss, leaves))  # type: ignore[arg-type]

    return gradients
