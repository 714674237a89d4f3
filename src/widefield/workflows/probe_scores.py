"""Probes of the pooled and wide features of an encoder and of its untrained floors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.core.errors import option
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.modes import on_device
from widefield.data import Dataset
from widefield.encoders import Wide
from widefield.inference.features import FeatureExtractor
from widefield.inference.run_views import run_views, untrained_views
from widefield.inference.splits import TrainTest
from widefield.probes import score, score_sgd
from widefield.probes.data_statistics import also_with_data_statistics
from widefield.probes.features import image_batch
from widefield.probes.target_scores import probe_targets
from widefield.probes.wide import wide_or_none
from widefield.views import Augmentation, AugmentContext, ViewSettings, trained_parameters
from widefield.workflows.probe_report import TaskScores

Readouts = tuple[FeatureExtractor, FeatureExtractor | None]
"""An encoder, and the same with its wide readout if it has one."""
ScoreReadouts = Callable[..., tuple[TaskScores, TaskScores]]
"""Scores the pooled features of an encoder and, if they are given too, its wide ones."""

EXPERT_VIEWS = "expert:feature-dropout"
"""Training views of the protocol feature-dropout, unless the run has trainable views."""


def wide_of(extractor: FeatureExtractor, train: Dataset) -> FeatureExtractor | None:
    """Return the extractor of wide features beside one of pooled ones; None without stages."""
    if extractor.kind != "pooled":
        return None
    wide = replace(extractor, kind="wide", or_pooled=True).with_readout(train)
    return wide if wide.kind == "wide" else None


def untrained_readouts(extractor: FeatureExtractor, train: Dataset) -> Iterator[Readouts]:
    """Yield the untrained encoders, with their wide readouts: the floor is the best of them.

    They have each usual initialization, and the first one also the statistics of the data in its
    BatchNorm layers.
    """
    device = choose_device("auto")
    untrained = extractor.untrained_encoders(train.images)
    for encoder in also_with_data_statistics(untrained, train.images, device=device):
        wide = wide_or_none(encoder, train.images, device=device)
        yield (
            FeatureExtractor(name="random", encoder=encoder),
            None if wide is None else FeatureExtractor(name="random", encoder=wide),
        )


def best_readout(
    readouts: Readouts, *, score_readouts: ScoreReadouts, data: TrainTest, seed: int
) -> TaskScores:
    """Score the better of pooled and wide features, task by task, for a floor."""
    pooled, others = score_readouts(*readouts, data, seed, with_knn=False)
    return {
        task: max((score, others.get(task, score)), key=lambda score: score.accuracy)
        for task, score in pooled.items()
    }


def score_readouts(
    encoder: FeatureExtractor,
    wide: FeatureExtractor | None,
    data: TrainTest,
    seed: int,
    *,
    with_knn: bool = True,
) -> tuple[TaskScores, TaskScores]:
    """Score the best linear probe on features of plain images, and on wide ones if there are any.

    The encoder passes once over the images for both. Of wide features kNN is left out.
    """
    if wide is None:
        train_h, test_h = (encoder.probe_features(half.inputs) for half in (data.train, data.test))
        return _score(train_h, test_h, encoder.pooled, data, seed, with_knn=with_knn), {}
    module = wide.build(data.train.images)
    assert isinstance(module, Wide)
    dim = module.readout.config.pooled
    both = FeatureExtractor(name=encoder.name, encoder=_PooledAndWide(module))
    train_h, test_h = (both.features(half.inputs) for half in (data.train, data.test))
    pooled, others = (
        _score(train_h[:, part], test_h[:, part], count, data, seed, with_knn=knn)
        for part, count, knn in (
            (slice(None, dim), None, with_knn),
            (slice(dim, None), dim, False),
        )
    )
    return pooled, others


def _score(
    train_h: Tensor,
    test_h: Tensor,
    pooled: int | None,
    data: TrainTest,
    seed: int,
    *,
    with_knn: bool,
) -> TaskScores:
    """Score the best linear probe on features, of which the first `pooled` may be pooled ones."""
    train_y, test_y = data.class_ids(train_h.device)
    given: dict[str, Any] = {"pooled": pooled, "groups": data.groups, "seed": seed}
    targets = probe_targets(train_h, data.train.targets, test_h, data.test.targets, **given)
    if not train_y:
        return dict(targets)
    classes = score(
        train_h, train_y, test_h, test_y, classes=data.class_counts, with_knn=with_knn, **given
    )
    return classes | targets


class _PooledAndWide(nn.Module):
    """An encoder with a wide readout: x[B, C, H, W] -> its pooled features, then the wide ones."""

    def __init__(self, wide: Wide) -> None:
        super().__init__()
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.wide.with_pooled(x), dim=1)


def score_readouts_by_sgd(
    encoder: FeatureExtractor,
    wide: FeatureExtractor | None,
    data: TrainTest,
    seed: int,
    *,
    views: Augmentation,
    with_knn: bool = True,
) -> tuple[TaskScores, TaskScores]:
    """Score by Feature Dropout's protocol each of the readouts that there are."""
    pooled = _score_by_sgd(encoder, data, seed, views=views)
    return pooled, {} if wide is None else _score_by_sgd(wide, data, seed, views=views)


def _score_by_sgd(
    encoder: FeatureExtractor, data: TrainTest, seed: int, *, views: Augmentation
) -> TaskScores:
    """Score by Feature Dropout's protocol, with training images augmented by `views`."""
    device, train = choose_device("auto"), data.train
    views = views.to(device)

    def draw(
        index: NDArray[np.int64], epoch: int, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        read = epoch + 1  # read 0 is for plain features and figures
        images, labels = train.read(index, read)
        mask = None
        if views.needs_mask:
            mask = torch.from_numpy(train.masks(index, read)).permute(0, 3, 1, 2).to(device)
        with torch.no_grad():
            (x,) = views(image_batch(images, device), 1, generator, AugmentContext(mask=mask))
        return x, {task: torch.from_numpy(labels[task]).to(device) for task in train.labels}

    module, (train_y, test_y) = encoder.build(train.images), data.class_ids()
    with on_device(module, device):
        scores = score_sgd(
            module,
            train.inputs,
            train_y,
            data.test.inputs,
            test_y,
            classes=data.class_counts,
            groups=data.groups,
            draw=draw,
            device=device,
            precision=choose_precision("auto", device),
            seed=seed,
        )
    return dict(scores)


def training_views(extractor: FeatureExtractor, train: Dataset) -> tuple[str, Augmentation]:
    """Return name and augmentation of the views of the run if they are trainable, else expert."""
    if extractor.run is not None:
        recipe = extractor.run.recipe()
        views = untrained_views(extractor.run.path, kept=train.bits)
        if trained_parameters(views):
            _check_views(views, recipe.views.names, train)
            return recipe.views.names, run_views(extractor.run.path, kept=train.bits)
    name = EXPERT_VIEWS if train.kind == "images" else "expert"
    views = ViewSettings.named(name).build(
        channels=train.images.shape[3],
        kept=train.bits,
        kind=train.kind,
        front_end=extractor.front_end,
    )
    return name, views


def _check_views(views: Augmentation, names: str, train: Dataset) -> None:
    if views.gradient_calls:
        raise ValueError(
            f"views {names!r} need the gradient of the loss of the run, which a probe lacks: "
            f"choose {option('protocol', 'linear')}"
        )
    if views.needs_mask and not train.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {names!r} need the mask of a planted object, and there is none in "
            f"{train.spec!r}: fit on data with one, or choose {option('protocol', 'linear')}"
        )
