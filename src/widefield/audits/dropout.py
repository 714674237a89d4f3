"""Feature-dropout histogram: does a view policy hide a feature in some of its views?

Tamkin et al. (2022), "Feature Dropout", Figure 3: many views of planted images are drawn under
one policy, and the linear classifier of an encoder that was trained under another one gives its
probability of the planted class. A policy that drops the feature has two heaps, one that leaves
it alone has one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from widefield.audits.read import Pair
from widefield.core.modes import evaluating
from widefield.data import Dataset
from widefield.diagnose import Bimodality, bimodality
from widefield.probes import Pixels, extract, fit_linear
from widefield.probes.features import image_batch
from widefield.train.checkpoint import load_together
from widefield.train.folder import RunFolder
from widefield.types import WHOLE
from widefield.views import Scene, Views, build_views
from widefield.workflows.frozen import EncoderSpec, Frozen, load, open_frozen

DRAWS = 1200
BINS = 24
_BATCH = 200


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
    encoder: EncoderSpec,
    pair: Pair,
    policy: str | Views,
    task: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> DropoutHistogram:
    """P(correct class of `task`) over `draws` views under `policy`, judged by `encoder`'s probe.

    The linear probe is fitted on features of the plain training images; the views are of the test
    images, as many of each as it takes. A policy that attacks, attacks the judge.

    Args:
        encoder: whose classifier judges: trained under another policy, to see what this one hides.
        pair: data with the task; `open_pair` reads it.
        policy: a name of `VIEWS`, or views that were trained, as `run_views` gives them.
        task: of `pair`.
        draws: views in all.
        seed: of the views and the bootstrap.

    Raises:
        ValueError: no such task or policy, or a policy that goes by where an object is planted
            and data without one.
    """
    frozen = open_frozen(encoder)
    if task not in pair.train.labels:
        raise ValueError(
            f"no task {task!r}: the data have {', '.join(pair.train.labels) or 'none'}"
        )
    name = policy if isinstance(policy, str) else type(policy).__name__
    channels = pair.test.images.shape[3]
    views = build_views(policy, channels=channels) if isinstance(policy, str) else policy
    if views.needs_mask and not pair.test.planted and pair.test.stacked is None:
        raise ValueError(f"views {name!r} need a planted object: plant one, as in 'photos+digits'")
    judge = _judge(frozen, pair.only(task), task, seed)
    with evaluating(judge):
        probability = _probabilities(views, judge, pair.test, task, draws, seed)
    return DropoutHistogram(
        policy=name,
        task=task,
        judge=frozen.name,
        probabilities=probability,
        bimodality=bimodality(probability, seed=seed),
    )


def run_views(run: str | Path) -> Views:
    """The view policy of a run as training left it, on the CPU.

    Raises:
        ValueError: `run` is not a run, or its checkpoint cannot be read.
    """
    folder = RunFolder(path=Path(run))
    recipe = folder.recipe()
    state = load_together(folder.last_checkpoint, WHOLE)["views"]
    views = build_views(recipe.views, recipe=recipe, channels=load(run).config.channels)
    views.load_state_dict(state)
    return views


def _judge(frozen: Frozen, pair: Pair, task: str, seed: int) -> nn.Module:
    """Images [B, C, H, W] in [0, 1] -> logits [B, K], by the probe on plain images."""
    encoder = frozen.built_for(pair.train.images[:1]) or Pixels()
    encoder = encoder.cpu()
    h = extract(encoder, pair.train.images)
    y = {task: torch.from_numpy(pair.train.labels[task])}
    count = len(pair.train.classes[task])
    probe = fit_linear(h, y, h, y, classes={task: count}, seed=seed)[task]
    layer = nn.Linear(h.shape[1], count)
    layer.weight.data, layer.bias.data = probe.weight, probe.bias
    return nn.Sequential(encoder, layer)


def _probabilities(
    views: Views, judge: nn.Module, dataset: Dataset, task: str, draws: int, seed: int
) -> Tensor:
    """P(correct class) of one view of each of `draws` rows, float64 [draws]."""
    generator = Generator().manual_seed(seed)
    rows = np.arange(draws) % len(dataset)
    found = []
    for start in range(0, draws, _BATCH):
        chosen = rows[start : start + _BATCH]
        x = image_batch(dataset.images[chosen], torch.device("cpu"))
        truth = torch.from_numpy(dataset.labels[task][chosen])
        mask = None
        if views.needs_mask:
            mask = torch.from_numpy(dataset.masks(chosen)).permute(0, 3, 1, 2)
        scene = Scene(mask=mask, gradients=_slope(judge, truth))
        with torch.no_grad():
            view = views(x, 2 if views.come_in_pairs else 1, generator, scene)[0]
            found.append(judge(view).double().softmax(1)[torch.arange(len(x)), truth])
    return torch.cat(found)


def _slope(judge: nn.Module, truth: Tensor) -> Any:
    """Gradients of the judge's cross-entropy with respect to each view."""

    def gradients(views: list[Tensor]) -> list[Tensor]:
        with torch.enable_grad():
            leaves = [view.detach().requires_grad_() for view in views]
            loss = sum(functional.cross_entropy(judge(leaf), truth) for leaf in leaves)
            return list(torch.autograd.grad(loss, leaves))  # type: ignore[arg-type]

    return gradients
