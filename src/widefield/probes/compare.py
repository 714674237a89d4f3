"""Comparison of an encoder with a baseline; see `comparison.py`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.types import Inputs, Kind, ProgressCallback, kind_of
from widefield.data import Dataset
from widefield.data.planted import Canvas, Digits, ImageFeature, Shapes
from widefield.encoders import untrained_starts
from widefield.metrics.cka import linear_cka
from widefield.metrics.collapse import health
from widefield.probes.comparison import Baseline, Comparison
from widefield.probes.cross_fit import ClassIds, cross_fit
from widefield.probes.explained import Explained, explained
from widefield.probes.features import DictionaryFeatures, extract, pixels
from widefield.probes.floors import best
from widefield.probes.folds import GroupIds
from widefield.probes.label_free import (
    FeatureFunction,
    Images,
    Scores,
    augmented,
    neighbor_consistency,
    quadrant_retrieval,
    rotation_accuracy,
)
from widefield.probes.near_copies import (
    MAX_POOLED,
    MIN_COPY_SHARE,
    copy_groups,
    copy_text,
    count_shared,
)
from widefield.probes.outcome import Outcome
from widefield.probes.paired import PairedDifference, paired_difference, percent
from widefield.probes.untrained import untrained_floor
from widefield.probes.verdicts import (
    Judgement,
    judge_against_untrained,
    judge_with_labels,
    judge_without_labels,
    overruled_by_labels,
)
from widefield.probes.wide import wide_or_none

# Chosen by hand.
IMAGE_COUNTS: dict[Baseline, tuple[int, int]] = {
    "untrained": (100, 1000),
    "initial": (30, 2000),
    "other": (30, 2000),
}
"""Smallest and largest number of images."""
_PASSES: dict[Baseline, int] = {"untrained": 9, "initial": 2 + 2}
"""Times that each of the two encoders sees all images, rotations, quadrants and overlays included,
at most."""
_OVERLAYS: dict[str, ImageFeature] = {kind.name: kind.levels()[2] for kind in (Shapes, Digits)}
"""Planted features, at the middle of five grades from hard to easy."""
# As planted features need (data/planted/overlay.py).
MIN_SIDE = 16
"""Smallest side of images for planted features, pixels."""


def compare(
    a: FeatureFunction,
    b: FeatureFunction,
    images: Images,
    labels: Mapping[str, ClassIds] | None = None,
    *,
    others: tuple[Iterable[FeatureFunction], Iterable[FeatureFunction]] = ((), ()),
    groups: GroupIds | None = None,
    baseline: Baseline = "initial",
    plants: Sequence[str] = tuple(_OVERLAYS),
    seed: int = 0,
) -> Comparison:
    """Compare the features of encoder b with those of the baseline a on images [n, H, W, C].

    Encoders are functions of images that return h [n, D]. Tasks of `labels` without two classes of
    six examples are left out. `others` are further encoders and readouts in place of a and of b:
    against the untrained encoder the linear probe of the best counts, task by task; everything else
    is of a and b. Folds keep `groups` [n] whole, and intervals are clustered by them. Scores and
    rule depend on the baseline; `plants` are planted for the initial encoder.
    """
    pair, h, kind = (a, b), (a(images), b(images)), kind_of(images)
    label_free, of_pixels = _label_free(pair, h, images, baseline, groups, seed)
    planted, kept = {}, None
    if baseline == "initial":
        kept = explained(*h, groups=groups, seed=seed)
        scores = (_overlay_scores(features, images, plants, groups, seed) for features in pair)
        planted = _differences(*scores, seed=seed)
    score = partial(cross_fit, labels=labels or {}, groups=groups, seed=seed)
    (old, old_knn), (new, new_knn) = map(score, h)
    best_old, best_new, floors = old, new, dict[str, dict[str, Outcome]]()
    if baseline == "untrained" and new:
        best_old, best_new = (
            best([first, *(score(features(images))[0] for features in more)])
            for first, more in zip((old, new), others, strict=True)
        )
        dictionary = extract(DictionaryFeatures.of(images), images)
        floors = {"pixels": score(pixels(images))[0], "dictionary": score(dictionary)[0]}
    linear = _differences(best_old, best_new, seed=seed)
    knn = _differences(old_knn, new_knn, seed=seed)
    states = health(h[0]), health(h[1])
    rank = states[0].effective_rank, states[1].effective_rank
    collapsed = states[0].verdict == "healthy" != states[1].verdict
    without_labels, (verdict, reason) = _judge(
        kind, baseline, label_free, planted, linear, knn, rank=rank, collapsed=collapsed, kept=kept
    )
    return Comparison(
        baseline=baseline,
        verdict=verdict,
        reason=reason,
        without_labels=without_labels[0],
        examples=len(images),
        health=(states[0].verdict, states[1].verdict),
        effective_rank=rank,
        cka=cka_if_defined(*h),
        kept=kept,
        label_free=label_free,
        planted=planted,
        linear=linear,
        knn=knn,
        pooled={task: outcome.value for task, outcome in new.items()},
        pixels=_differences(floors.get("pixels", {}), best_new, seed=seed),
        dictionary=_differences(floors.get("dictionary", {}), best_new, seed=seed),
        pixels_consistency=of_pixels,
        linear_interval={task: outcome.interval for task, outcome in best_new.items()},
        groups=None if groups is None else len(np.unique(groups)),
        kind=kind,
        copies=_copy_text(h[1], images, labels, new, seed) if new and groups is None else None,
    )


def _judge(
    kind: Kind,
    baseline: Baseline,
    label_free: Mapping[str, PairedDifference],
    planted: Mapping[str, PairedDifference],
    linear: Mapping[str, PairedDifference],
    knn: Mapping[str, PairedDifference],
    *,
    rank: tuple[float, float],
    collapsed: bool,
    kept: Explained | None,
) -> tuple[Judgement, Judgement]:
    if kind != "images":  # the augmentation and the rotations of images do not apply
        unknown: Judgement = ("inconclusive", "sounds are compared by labels alone")
        if collapsed:
            return unknown, ("worse", "the features collapsed")
        return unknown, judge_with_labels(linear, {}) if linear else unknown
    if baseline == "untrained":
        without_labels = judge_against_untrained(label_free["mean"], collapsed=collapsed)
        return without_labels, overruled_by_labels(without_labels, linear)
    consistency = label_free["neighbor_consistency"]
    without_labels = judge_without_labels(
        consistency, planted, rank=rank, collapsed=collapsed, kept=kept
    )
    if linear and not collapsed:
        return without_labels, judge_with_labels(linear, knn)
    return without_labels, without_labels


def _copy_text(
    h: Tensor,
    images: Images,
    labels: Mapping[str, ClassIds] | None,
    scores: Mapping[str, Outcome],
    seed: int,
) -> str | None:
    """Return a sentence on near-copies in several folds, and the accuracies without them."""
    if len(images) > MAX_POOLED:
        return None
    groups = copy_groups(images)
    count = count_shared(groups)
    if count < MIN_COPY_SHARE * len(images):
        return None
    separate, _ = cross_fit(h, labels or {}, groups=groups, seed=seed)
    values = [
        f"{task} {percent(outcome.value)}, with the copies {percent(scores[task].value)}"
        for task, outcome in separate.items()
    ]
    return copy_text(f"{count} of {len(images)} images have near-copies", values)


@dataclass(kw_only=True)
class _Encoded:
    """Counts the images that encoders see, those in all at most."""

    total: int
    progress: ProgressCallback | None
    done: int = 0

    def features(self, network: nn.Module, device: torch.device) -> FeatureFunction:
        def encoded(images: Inputs) -> Tensor:
            h = extract(network.to(device), images, device=device)
            self.done += len(h)
            if self.progress is not None:
                self.progress(self.done, max(self.done, self.total))
            return h

        return encoded


def compare_with_baseline(
    encoder: nn.Module,
    dataset: Dataset,
    *,
    initial: nn.Module | None = None,
    seed: int,
    device: torch.device,
    use_labels: bool = True,
    progress: ProgressCallback | None = None,
) -> Comparison | None:
    """Compare an encoder with its initial weights, or else with itself untrained.

    The untrained encoders of the linear probe have each usual initialization, and the first one
    also the statistics of the images in its BatchNorm layers. The result is None for fewer images
    than in `IMAGE_COUNTS`, and for windows. Sounds are compared with the untrained encoder alone,
    and only by labels. Those count if the encoder was trained without them, `use_labels`.
    `progress` is called with the examples encoded and those in all, over all encoders.
    """
    baseline: Baseline = "untrained" if initial is None else "initial"
    min_count, max_count = IMAGE_COUNTS[baseline]
    by_labels = dataset.kind == "sounds" and initial is None and use_labels and dataset.labels
    if len(dataset) < min_count or not (dataset.kind == "images" or by_labels):
        return None
    data = dataset.subset(dataset.spread_rows(max_count)).first_read().decoded()
    labels = data.labels if use_labels else {}
    encoded = _Encoded(total=2 * _PASSES[baseline] * len(data), progress=progress)
    features = partial(encoded.features, device=device)
    others: tuple[Iterable[FeatureFunction], Iterable[FeatureFunction]] = ((), ())
    if initial is None:
        # The run's own seed: this is the network that it began with. Other commands do not know
        # that seed, and take others than its default.
        starts = untrained_starts(encoder, seed=seed)
        networks = untrained_floor(starts, data.images, device=device)
        encoded.total += 2 * len(networks) * len(data) if labels else 0
        models = (network for each in networks for network in each.models())
        initial = next(models)
        # Generators: a network is built and moved to the device only when its turn comes.
        wide = (wide_or_none(encoder, data.images, device=device) for _ in range(1))
        others = map(features, models), map(features, filter(None, wide))
    found = compare(
        features(initial),
        features(encoder),
        data.images,
        labels,
        others=others,
        baseline=baseline,
        groups=data.groups,
        plants=[name for name in _OVERLAYS if name not in data.labels],
        seed=seed,
    )
    return found if found.linear or data.kind == "images" else None


def _label_free(
    pair: tuple[FeatureFunction, FeatureFunction],
    h: tuple[Tensor, Tensor],
    images: Images,
    baseline: Baseline,
    groups: GroupIds | None,
    seed: int,
) -> tuple[dict[str, PairedDifference], float | None]:
    """Return the differences of the label-free scores, and the consistency of raw pixels.

    Features of the images are h, [n, D] each. Both are of images alone.
    """
    if kind_of(images) != "images":
        return {}, None
    views = augmented(images, seed)

    def scores(features: FeatureFunction, x: Tensor) -> dict[str, Scores]:
        if baseline != "untrained":
            return {"neighbor_consistency": neighbor_consistency(x, features(views), whiten=False)}
        found = {
            "neighbor_consistency": neighbor_consistency(x, features(views)),
            "rotation_accuracy": rotation_accuracy(x, features, images, groups=groups, seed=seed),
            "quadrant_retrieval": quadrant_retrieval(features, images),
        }
        return found | {"mean": np.mean(list(found.values()), axis=0)}

    before, after = map(scores, pair, h)
    differences = {
        name: paired_difference(old, after[name], groups=groups, seed=seed)
        for name, old in before.items()
    }
    if baseline != "untrained":
        return differences, None
    return differences, float(neighbor_consistency(pixels(images), pixels(views)).mean())


def _overlay_scores(
    features: FeatureFunction,
    images: Images,
    plants: Sequence[str],
    groups: GroupIds | None,
    seed: int,
) -> dict[str, Outcome]:
    _, height, width, channels = images.shape
    if channels not in (1, 3) or min(height, width) < MIN_SIDE:
        return {}
    results: dict[str, Outcome] = {}
    canvas = Canvas(shape=(height, width, channels), seed=seed, held_out=False)
    index = np.arange(len(images))
    for name in plants:
        overlay = _OVERLAYS[name].draw(canvas)
        planted = np.array(images, order="C")
        overlay.apply(planted, index)
        labels = {name: overlay.labels(index)}
        results |= cross_fit(features(planted), labels, groups=groups, seed=seed)[0]
    return results


def _differences(
    before: Mapping[str, Outcome], after: Mapping[str, Outcome], *, seed: int
) -> dict[str, PairedDifference]:
    return {task: after[task].minus(old, seed=seed) for task, old in before.items()}


def cka_if_defined(h: Tensor, other: Tensor) -> float | None:
    """Return the linear CKA of features [n, D] and [n, E]; None if one of them is constant."""
    try:
        return linear_cka(h, other)
    except ValueError:  # undefined for constant features
        return None
