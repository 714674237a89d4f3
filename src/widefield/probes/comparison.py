"""Comparison of two encoders by paired differences of their scores on the same images.

The baseline is the untrained encoder, or the one that training was initialized from. The scores and
the rule of the verdict depend on it; see `verdicts.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.files import write_atomically
from widefield.core.names import counted
from widefield.core.types import Kind, kind_of
from widefield.data import Dataset
from widefield.data.plant import plant
from widefield.data.planted import Digits, ImageFeature, Shapes
from widefield.encoders import untrained_starts
from widefield.metrics import FeatureState, health, linear_cka
from widefield.probes.cross_fit import ClassIds, CrossFit, cross_fit
from widefield.probes.data_statistics import also_with_data_statistics
from widefield.probes.features import extract, pixels
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
    COPIES_SHARE,
    MAX_POOLED,
    copies_text,
    copy_groups,
    thumbnails,
)
from widefield.probes.paired import PairedDifference, paired_difference, percent, share_interval
from widefield.probes.verdicts import (
    ComparisonVerdict,
    Judgement,
    judge_against_untrained,
    judge_with_labels,
    judge_without_labels,
    overruled_by_labels,
)
from widefield.probes.wide import wide_or_none

_FORMAT = 3
Baseline = Literal["untrained", "initial", "other"]
IMAGE_COUNTS: dict[Baseline, tuple[int, int]] = {
    "untrained": (100, 1000),
    "initial": (30, 2000),
    "other": (30, 2000),
}
"""Smallest and largest number of images."""
_OVERLAYS: dict[str, ImageFeature] = {kind.name: kind.levels()[2] for kind in (Shapes, Digits)}
"""Planted features, at the middle of five grades from hard to easy."""
MIN_SIDE = 16
"""Smallest side of images for planted features, pixels."""
NAMES = {
    "neighbor_consistency": "neighbor consistency under augmentation",
    "rotation_accuracy": "rotation prediction",
    "quadrant_retrieval": "opposite-quadrant retrieval",
}
TEMPLATES: dict[ComparisonVerdict, str] = {
    "better": "better than {}",
    "worse": "worse than {}",
    "no significant difference": "no significant difference from {}",
    "inconclusive": "inconclusive against {}",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of an encoder with a baseline; pairs are (baseline, encoder)."""

    baseline: Baseline
    verdict: ComparisonVerdict
    reason: str
    without_labels: ComparisonVerdict
    """The verdict without labels."""
    examples: int
    health: tuple[FeatureState, FeatureState]
    effective_rank: tuple[float, float]
    cka: float | None
    """Linear CKA of the two encoders' features; None if one is constant."""
    label_free: Mapping[str, PairedDifference]
    """`neighbor_consistency`; against the untrained encoder also `rotation_accuracy`,
    `quadrant_retrieval` and the `mean` of the three."""
    planted: Mapping[str, PairedDifference]
    """Planted feature -> linear-probe accuracy; empty against the untrained encoder."""
    linear: Mapping[str, PairedDifference]
    """Task -> linear-probe accuracy; empty without labels. Against the untrained encoder, both
    sides have the better of their pooled and wide features."""
    knn: Mapping[str, PairedDifference]
    """Task -> kNN accuracy."""
    pooled: Mapping[str, float]
    """Task -> linear-probe accuracy of the encoder's pooled features; `linear` has those of its
    best readout against the untrained encoder."""
    pixels: Mapping[str, PairedDifference]
    """Task -> linear-probe accuracy from raw pixels to the encoder; empty against the initial
    encoder."""
    pixels_consistency: float | None
    """Neighbor consistency of raw pixels; None against the initial encoder."""
    linear_interval: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Task -> 95 % interval of the encoder's accuracy in `linear`."""
    groups: int | None = None
    """Number of groups that folds and intervals keep whole; None if examples are not grouped."""
    copies: str | None = None
    """A sentence on near-copies across the folds; None without."""
    kind: Kind = "images"
    """Kind of the examples; sounds are compared by their labels alone."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": _FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(path, lambda temp_path: temp_path.write_text(text, "utf-8"))

    @property
    def text(self) -> str:
        """The verdict and the baseline."""
        name = self.baseline if self.baseline == "untrained" else f"the {self.baseline} encoder"
        return TEMPLATES[self.verdict].format(name)

    def answer(self) -> str:
        """Return in one sentence what was gained: by the linear probe, or by the verdict."""
        if not self.linear:
            return f"{self.text}: {self.reason}"
        return "; ".join(map(self._answer_on, self.linear))

    def _answer_on(self, task: str) -> str:
        untrained = self.baseline == "untrained"
        name = "the untrained network" if untrained else f"the {self.baseline} encoder"
        score = self.linear[task]
        parts = [_points(score, name)]
        if task in self.pixels:
            parts.append(_points(self.pixels[task], "raw pixels"))
        return f"linear probe on {task} {percent(score.after)}: {', '.join(parts)}"

    def lines(self) -> list[str]:
        """Return the verdict and the scores, one line each."""
        untrained = self.baseline == "untrained"
        scores = self._untrained_lines() if untrained else self._initial_lines()
        grouped = f"; {self.groups} groups, each scored as a whole" if self.groups else ""
        copies = [] if self.copies is None else [self.copies]
        return [f"{self.text}: {self.reason}{grouped}", *scores, *copies]

    def _untrained_lines(self) -> list[str]:
        raw = {"neighbor_consistency": self.pixels_consistency}
        parts = [
            f"{NAMES[name]} {percent(score.after)} (untrained {percent(score.before)}"
            + (f", raw pixels {percent(share)})" if (share := raw.get(name)) is not None else ")")
            for name, score in self.label_free.items()
            if name in NAMES
        ]
        hint = self.linear or self.verdict == "better"
        lines = ["; ".join(parts) + ("" if hint else "; a few labels would show more")]
        return lines * bool(parts) + [self._linear_line(task) for task in self.linear]

    def _linear_line(self, task: str) -> str:
        raw = "raw pixels" if self.kind == "images" else "raw spectrogram"
        floors = {"untrained": self.linear[task], raw: self.pixels[task]}
        values = ", ".join(f"{name} {percent(score.before)}" for name, score in floors.items())
        best, pooled = percent(self.linear[task].after), percent(self.pooled[task])
        ours = best if best == pooled else f"{best} (pooled {pooled})"
        ours += self._interval(task, self.linear)
        line = f"linear-probe accuracy ({task}): {ours}, {values}"
        lower = [name for name, score in floors.items() if score.verdict == "lower"]
        equal = [name for name, s in floors.items() if s.verdict == "no significant difference"]
        groups = (("significantly below", lower), ("not significantly above", equal))
        below = ", ".join(f"{words} {' and '.join(names)}" for words, names in groups if names)
        return f"{line}: {below}" if below else line

    def _interval(self, task: str, scores: Mapping[str, PairedDifference]) -> str:
        """Return the interval of the linear-probe accuracy of grouped examples."""
        if not self.groups or scores is not self.linear:
            return ""
        low, high = (100 * end for end in self.linear_interval[task])
        return f" [{low:.0f}, {high:.0f}]"

    def _initial_lines(self) -> list[str]:
        rank = self.effective_rank
        kinds = (("linear-probe accuracy", self.linear), ("kNN accuracy", self.knn))
        return [
            *(f"{NAMES[name]}: {score.line()}" for name, score in self.label_free.items()),
            f"effective rank: {rank[0]:.0f} to {rank[1]:.0f}; features {self.health[1]}"
            + ("" if self.cka is None else f"; linear CKA {self.cka:.2f}"),
            *(
                f"linear-probe accuracy (planted {task}): {score.line()}"
                for task, score in self.planted.items()
            ),
            *(
                f"{kind} ({task}): {scores[task].line()}" + self._interval(task, scores)
                for task in self.linear
                for kind, scores in kinds
            ),
        ]


def compare(
    a: FeatureFunction | Iterable[FeatureFunction],
    b: FeatureFunction | Iterable[FeatureFunction],
    images: Images,
    labels: Mapping[str, ClassIds] | None = None,
    *,
    groups: GroupIds | None = None,
    baseline: Baseline = "initial",
    plants: Sequence[str] = tuple(_OVERLAYS),
    seed: int = 0,
) -> Comparison:
    """Compare the features of encoder b with those of the baseline a on the same images.

    Args:
        a: images [n, H, W, C] -> h [n, D], or several encoders, such as the untrained one with each
            usual initialization and readout. Against the untrained encoder the linear probe of the
            best counts, task by task; everything else is of the first.
        b: the other encoder, or several readouts of it, likewise.
        images: uint8 [n, H, W, C].
        labels: task -> class ids [n]; tasks without two classes of six examples are left out.
        groups: group of each image [n]; folds keep them whole, and intervals are clustered.
        baseline: what `a` is; scores and rule depend on it.
        plants: names of planted features, for the comparison with the initial encoder.
        seed: seeds augmentation, plants, folds and intervals.

    Example:
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        >>> flat = lambda x: torch.from_numpy(x.reshape(len(x), -1) / 255).float()
        >>> compare(flat, flat, images).verdict
        'no significant difference'
    """
    others, readouts = (iter([x] if callable(x) else x) for x in (a, b))
    first, b = next(others), next(readouts)
    h = first(images), b(images)
    label_free: dict[str, PairedDifference] = {}
    pixels_consistency, kind = None, kind_of(images)
    if kind == "images":
        views = augmented(images, seed)
        scores = [
            _label_free(f, x, images, views, baseline, groups, seed)
            for f, x in ((first, h[0]), (b, h[1]))
        ]
        label_free = {
            name: paired_difference(old, scores[1][name], groups=groups, seed=seed)
            for name, old in scores[0].items()
        }
        if baseline == "untrained":
            of_pixels = neighbor_consistency(pixels(images), pixels(views))
            pixels_consistency = float(of_pixels.mean())
    planted, pixel_scores = {}, {}
    if baseline == "initial":
        before, after = (_overlay_fits(f, images, plants, groups, seed) for f in (first, b))
        planted = _compare_fits(before, after, "linear", seed=seed)
    score = partial(cross_fit, labels=labels or {}, groups=groups, seed=seed)
    old, new = score(h[0]), score(h[1])
    best_old, best_new = old, new
    if baseline == "untrained" and new:
        best_old = _best_linear(old, (score(f(images)) for f in others))
        best_new = _best_linear(new, (score(f(images)) for f in readouts))
        pixel_scores = score(pixels(images))
    linear, knn, over_pixels = (
        _compare_fits(before, after, kind, seed=seed)
        for kind, before, after in (
            ("linear", best_old, best_new),
            ("knn", old, new),
            ("linear", pixel_scores, best_new),
        )
    )
    states = health(h[0]), health(h[1])
    rank = states[0].effective_rank, states[1].effective_rank
    collapsed = states[0].verdict == "healthy" != states[1].verdict
    if kind != "images":  # the augmentation and the rotations of images do not apply
        without_labels: Judgement = ("inconclusive", "sounds are compared by labels alone")
        verdict, reason = without_labels
        if collapsed:
            verdict, reason = "worse", "the features collapsed"
        elif linear:
            verdict, reason = judge_with_labels([*linear.values()])
    elif baseline == "untrained":
        without_labels = judge_against_untrained(label_free["mean"], collapsed=collapsed)
        verdict, reason = overruled_by_labels(without_labels, linear)
    else:
        consistency = label_free["neighbor_consistency"]
        without_labels = judge_without_labels(consistency, planted, rank=rank, collapsed=collapsed)
        verdict, reason = without_labels
        if linear and not collapsed:
            verdict, reason = judge_with_labels([*linear.values(), *knn.values()])
    return Comparison(
        baseline=baseline,
        verdict=verdict,
        reason=reason,
        without_labels=without_labels[0],
        examples=len(images),
        health=(states[0].verdict, states[1].verdict),
        effective_rank=rank,
        cka=cka_if_defined(*h),
        label_free=label_free,
        planted=planted,
        linear=linear,
        knn=knn,
        pooled={task: fit.accuracy for task, fit in new.items()},
        pixels=over_pixels,
        pixels_consistency=pixels_consistency,
        linear_interval={t: share_interval(x.linear, x.groups) for t, x in best_new.items()},
        groups=None if groups is None else len(np.unique(groups)),
        kind=kind,
        copies=_copies(h[1], images, labels, new, seed) if new and groups is None else None,
    )


def _copies(
    h: Tensor,
    images: Images,
    labels: Mapping[str, ClassIds] | None,
    scores: Mapping[str, CrossFit],
    seed: int,
) -> str | None:
    """Return a sentence on near-copies in several folds, and the accuracies without them."""
    if len(images) > MAX_POOLED:
        return None
    groups = copy_groups(thumbnails(images))
    sizes = np.unique(groups, return_inverse=True, return_counts=True)
    count = int((sizes[2][sizes[1]] > 1).sum())
    if count < COPIES_SHARE * len(images):
        return None
    apart = cross_fit(h, labels or {}, groups=groups, seed=seed)
    values = [
        f"{task} {percent(fit.accuracy)}, with the copies {percent(scores[task].accuracy)}"
        for task, fit in apart.items()
    ]
    return copies_text(f"{count} of {len(images)} images have near-copies", values)


def compare_with_baseline(
    encoder: nn.Module,
    dataset: Dataset,
    *,
    initial: nn.Module | None = None,
    seed: int,
    device: torch.device,
    use_labels: bool = True,
) -> Comparison | None:
    """Compare an encoder with its initial weights, or else with itself untrained.

    The untrained encoders of the linear probe have each usual initialization, and the first one
    also the statistics of the images in its BatchNorm layers.

    Args:
        encoder: x[B, C, H, W] in [0, 1] -> h[B, D].
        dataset: images, such as the training data, as many as in `IMAGE_COUNTS`. The result is None
            for fewer, and for windows. Sounds are compared with the untrained encoder alone, and
            only by labels; the result is None without these.
        initial: encoder with the initial weights.
        seed: seeds untrained weights, augmentation, plants, folds and intervals.
        device: where the encoders run.
        use_labels: whether to use labels, if the encoder was trained without them.
    """
    baseline: Baseline = "untrained" if initial is None else "initial"
    min_count, max_count = IMAGE_COUNTS[baseline]
    by_labels = dataset.kind == "sounds" and initial is None and use_labels and dataset.labels
    if len(dataset) < min_count or not (dataset.kind == "images" or by_labels):
        return None
    data = dataset.subset(dataset.spread_rows(max_count)).first_read().decoded()

    def features(network: nn.Module) -> FeatureFunction:
        return partial(extract, network.to(device), device=device)

    def readouts(network: nn.Module) -> Iterator[FeatureFunction]:
        yield features(network)
        wide = wide_or_none(network, data.images, device=device) if initial is None else None
        if wide is not None:
            yield features(wide)

    if initial is None:
        untrained = untrained_starts(encoder, seed=seed)
        before = also_with_data_statistics(untrained, data.images, device=device)
    else:
        before = [initial]
    found = compare(
        chain.from_iterable(map(readouts, before)),
        readouts(encoder),
        data.images,
        data.labels if use_labels else None,
        baseline=baseline,
        groups=data.groups,
        plants=[name for name in _OVERLAYS if name not in data.labels],
        seed=seed,
    )
    return found if found.linear or data.kind == "images" else None


def _label_free(
    features: FeatureFunction,
    h: Tensor,
    images: Images,
    views: Images,
    baseline: Baseline,
    groups: GroupIds | None,
    seed: int,
) -> dict[str, Scores]:
    """Return the label-free scores of one encoder, whose features of the images are h [n, D]."""
    if baseline != "untrained":
        return {"neighbor_consistency": neighbor_consistency(h, features(views), whiten=False)}
    scores = {
        "neighbor_consistency": neighbor_consistency(h, features(views)),
        "rotation_accuracy": rotation_accuracy(h, features, images, groups=groups, seed=seed),
        "quadrant_retrieval": quadrant_retrieval(features, images),
    }
    return scores | {"mean": np.mean(list(scores.values()), axis=0)}


def _best_linear(
    first: Mapping[str, CrossFit], others: Iterable[Mapping[str, CrossFit]]
) -> dict[str, CrossFit]:
    """Return the fit with the highest linear-probe accuracy of each task."""
    fits = [first, *others]
    return {task: max((fit[task] for fit in fits), key=lambda fit: fit.accuracy) for task in first}


def _overlay_fits(
    features: FeatureFunction,
    images: Images,
    plants: Sequence[str],
    groups: GroupIds | None,
    seed: int,
) -> dict[str, CrossFit]:
    """Return planted feature -> which images the probes predict correctly."""
    _, height, width, channels = images.shape
    if channels not in (1, 3) or min(height, width) < MIN_SIDE:
        return {}
    results: dict[str, CrossFit] = {}
    for name in plants:
        sample = plant(images, _OVERLAYS[name], seed=seed)
        results |= cross_fit(
            features(sample.images), {name: sample.labels}, groups=groups, seed=seed
        )
    return results


def _compare_fits(
    before: Mapping[str, CrossFit], after: Mapping[str, CrossFit], kind: str, *, seed: int
) -> dict[str, PairedDifference]:
    """Return task -> difference of the hits of a `kind` of probe, linear or knn."""
    return {
        task: paired_difference(
            getattr(old, kind), getattr(after[task], kind), groups=old.groups, seed=seed
        )
        for task, old in before.items()
    }


def _points(score: PairedDifference, name: str) -> str:
    """Return the difference from the baseline `name` in words."""
    points = round(100 * abs(score.difference))
    return score.beside(name, counted(points, "point"))


def cka_if_defined(h: Tensor, other: Tensor) -> float | None:
    """Return the linear CKA of features [n, D] and [n, E]; None if one of them is constant."""
    try:
        return linear_cka(h, other)
    except ValueError:  # undefined for constant features
        return None
