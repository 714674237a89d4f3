"""Classification of every image from a few labels, and images to label next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import input_errors
from widefield.core.files import checked_output
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.frozen import opened
from widefield.inference.open_encoder import EncoderSpec
from widefield.probes.few_labels import FewLabels, fit_few_labels
from widefield.probes.folds import GroupIds
from widefield.probes.near_copies import (
    COPIES_SHARE,
    MAX_POOLED,
    copies_text,
    copy_groups,
    thumbnails,
)
from widefield.probes.paired import paired_difference, share_interval
from widefield.probes.suggest import suggest as suggest_rows
from widefield.report import write_page
from widefield.workflows.classify_floors import floor_features
from widefield.workflows.classify_page import classify_page
from widefield.workflows.classify_result import Classification, CrossValidation
from widefield.workflows.classify_targets import (
    TargetPrediction,
    predict_target,
    varying,
)
from widefield.workflows.predictions_file import PREDICTION_FORMATS

_TASK = "label"
_BINS = 10
"""Bins of the expected calibration error."""
_MAX_NAMES = 8
"""Classes named in a note."""


@input_errors
@describe_arguments
def classify(
    encoder: EncoderSpec,
    data: Data,
    *,
    labels: Labels,
    exclude: Labels | None = None,
    group: str | None = None,
    features: FeatureKind | None = None,
    dim: int | None = None,
    image_size: ImageSize | None = None,
    suggest: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Classification | TargetPrediction:
    """Predict the class of every image from the labels of a few.

    Of a column label with numbers it predicts the number, and of cells such as a|b the probability
    of each label; the result is then a `TargetPrediction`, without a page and suggestions.

    Args:
        data: images or sounds, as for `pretrain`; their own labels are not used.
        labels: a `.csv` file with the columns path and label; paths are those that `embed` writes,
            or lead to the file, and an empty label is none. In Python also a table such as a
            DataFrame, a Series indexed by path, or path -> label.
        group: examples that belong together, such as frames of a video: a column of the labels, a
            label array, folder:1 for the first folder of a path, or regex:PATTERN for what its
            first ( ) matches. No fold divides a group, intervals count groups, and suggestions
            are of different ones; by default as in the run, for its data.
        features: pooled, wide for these and directions of earlier stages and of the input,
            feature-map for those before pooling, or projected for those after the projector of the
            run; by default pooled or wide, by cross-validation on the labels.
        suggest: number of images to suggest for labeling.
        out: a `.parquet` or `.csv` file: path, label, predicted class and probabilities. A page of
            the same name, with the suffix .html, shows the least certain ones of classes.
        seed: seed of the folds of cross-validation.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
        >>> import torch
        >>> images = torch.arange(8).reshape(8, 1, 1, 1) * torch.ones(1, 8, 8, 3) / 8
        >>> known = {"row 0": "dark", "row 1": "dark", "row 6": "light", "row 7": "light"}
        >>> classify(torch.nn.Flatten(), {"x": images}, labels=known).predicted[2]
        'dark'
    """
    if out is not None:
        checked_output(out, PREDICTION_FORMATS, overwrite=overwrite)
        checked_output(page_of(out), (".html",), overwrite=overwrite)
    if suggest < 0:
        raise ValueError(f"suggest is {suggest}; expected a number of images, or 0 for none")
    table = read_labels(labels, only=_TASK, group=group, targets=True)
    if suggest and table.targets:
        raise ValueError(
            "suggest is for classes, and the labels are numbers or several labels each: leave it "
            "out"
        )
    extractor, dataset = opened(
        encoder,
        data,
        features=features,
        dim=dim,
        image_size=image_size,
        labels=table,
        unlabeled=True,
        exclude=exclude,
        group=group,
        quiet=quiet,
    )
    if dataset.targets:
        return _predict_target(extractor, dataset, out, seed=seed, quiet=quiet, on_note=on_note)
    rows, y, classes = _matched(dataset)
    groups = None if dataset.groups is None else dataset.groups[rows]
    fit = partial(fit_few_labels, labeled=rows, y=y, classes=len(classes), seed=seed)
    notes = (*extractor.notes, *dataset.notes, *_single_note(y, classes))
    extractor = extractor.ready(dataset, notes=notes, on_note=on_note, quiet=quiet)
    fits = []
    for candidate in _candidates(extractor):
        h = candidate.features(dataset.inputs, quiet=quiet).cpu().numpy()
        fits.append((h, fit(h, groups=groups)))
    scores = [_held_out_accuracy(fit, y) for _, fit in fits]
    h, prediction = fits[int(np.argmax(scores))]  # the pooled ones if both are equal
    selected = suggest_rows(
        h, rows, prediction.probabilities, suggest, groups=dataset.groups, seed=seed
    )
    floors = {}
    if prediction.held_out is not None:
        fit_floor = partial(fit, groups=groups, labeled=np.arange(len(y)))
        floors = {
            name: _best_guess([fit_floor(h.numpy()) for h, _ in candidates], y)
            for name, candidates in floor_features(extractor, dataset.subset(rows)).items()
        }
    result = Classification(
        encoder=extractor.name,
        paths=list(dataset.paths),
        classes=classes,
        labels={dataset.paths[row]: classes[k] for row, k in zip(rows, y, strict=True)},
        probabilities=prediction.probabilities,
        cross_validation=_cross_validation(y, prediction, classes, groups, floors),
        suggested=tuple(dataset.paths[row] for row in selected),
        doubted=_doubted(prediction, y, classes, [dataset.paths[row] for row in rows]),
        notes=(
            *extractor.notes,
            *_choice(scores),
            *_single_note(y, classes),
            *_copies_note(dataset.subset(rows), prediction, y, partial(fit, h)),
            *dataset.notes,
        ),
    )
    if out is not None:
        result.save(out)
        write_page(classify_page(result, dataset, seed=seed), page_of(out), overwrite=overwrite)
    return result


def _candidates(extractor: FeatureExtractor) -> list[FeatureExtractor]:
    """Return the encoder with each kind of features to choose from."""
    if extractor.or_pooled and extractor.kind == "wide":
        return [replace(extractor, kind="pooled", dim=None), extractor]
    return [extractor]


def _predict_target(
    extractor: FeatureExtractor,
    dataset: Dataset,
    out: str | Path | None,
    *,
    seed: int,
    quiet: bool,
    on_note: OnNote | None,
) -> TargetPrediction:
    """Predict the number or the labels of every image, and write them."""
    target, notes = varying(dataset.targets[_TASK])
    notes = (*extractor.notes, *dataset.notes, *notes)
    extractor = extractor.ready(dataset, notes=notes, on_note=on_note, quiet=quiet)
    found = predict_target(_candidates(extractor), dataset, target, seed=seed, quiet=quiet)
    found = replace(found, notes=tuple(dict.fromkeys((*extractor.notes, *found.notes, *notes))))
    if out is not None:
        found.save(out)
    return found


def page_of(out: str | Path) -> Path:
    """Return the page beside a file of predictions."""
    return Path(out).with_suffix(".html")


def _doubted(
    fit: FewLabels, y: NDArray[np.int64], classes: Sequence[str], paths: Sequence[str]
) -> tuple[tuple[str, str, float], ...]:
    """Return labels that cross-validation does not predict, as `Classification.doubted`."""
    if fit.held_out is None or fit.held_out_probabilities is None:
        return ()
    wrong = np.flatnonzero((fit.held_out >= 0) & (fit.held_out != y))
    p = fit.held_out_probabilities[wrong].max(1)
    order = np.argsort(-p, kind="stable")
    return tuple(
        (paths[row], classes[fit.held_out[row]], float(p[i]))
        for i, row in zip(order, wrong[order], strict=True)
    )


def _held_out_accuracy(fit: FewLabels, y: NDArray[np.int64]) -> float:
    """Return the cross-validated accuracy; 0 if there is none."""
    if fit.held_out is None:
        return 0.0
    tested = fit.held_out >= 0
    return float((fit.held_out == y)[tested].mean())


def _best_guess(fits: Sequence[FewLabels], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cross-validated classes of the most accurate of these fits."""
    guess = max(fits, key=partial(_held_out_accuracy, y=y)).held_out
    assert guess is not None, "whether folds are possible depends on the labels alone"
    return guess


def _single_note(y: NDArray[np.int64], classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note on classes with one label, which no fold can hold out."""
    names = [repr(classes[k]) for k in np.flatnonzero(np.bincount(y) == 1)]
    if not names:
        return ()
    listed = ", ".join(names[:_MAX_NAMES]) + " and others" * (len(names) > _MAX_NAMES)
    return (f"one label each, and no part in the cross-validation: {listed}",)


def _choice(scores: Sequence[float]) -> tuple[str, ...]:
    """Return a note if there was a choice between pooled and wide features."""
    if len(scores) == 1:
        return ()
    pooled, wide = (f"{100 * score:.1f} %" for score in scores)
    return (f"features by cross-validation on the labels: {pooled} by pooled, {wide} by wide ones",)


def _copies_note(
    labeled: Dataset, prediction: FewLabels, y: NDArray[np.int64], fit: Callable[..., FewLabels]
) -> tuple[str, ...]:
    """Return a note on copies among the labeled examples, with the accuracy without them."""
    if labeled.groups is not None or prediction.held_out is None or len(y) > MAX_POOLED:
        return ()
    groups = copy_groups(thumbnails(labeled.images))
    copied, exact = (_in_groups(ids) for ids in (groups, labeled.digests()))
    if not exact and copied < max(2, COPIES_SHARE * len(y)):
        return ()
    apart = fit(groups=groups).held_out
    scores = []
    if apart is not None:
        low, high = share_interval(apart == y, groups)
        scores = [f"{100 * (apart == y).mean():.1f} % [{100 * low:.1f}, {100 * high:.1f}]"]
    found = f"{copied} of {len(y)} labeled {labeled.kind} have near-copies"
    found += f" ({exact} exact ones)" if exact else ""
    return (copies_text(found, scores),)


def _in_groups(ids: NDArray[Any]) -> int:
    """Return how many examples share their id with another one."""
    _, index, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    return int((sizes[index] > 1).sum())


def _matched(
    dataset: Dataset,
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return rows that have a label, their class ids, and the names of these classes."""
    ids = dataset.labels[_TASK]
    rows = np.flatnonzero(ids >= 0)
    present, y = np.unique(ids[rows], return_inverse=True)  # some labeled files may be unreadable
    classes = tuple(dataset.classes[_TASK][k] for k in present)
    if len(classes) < 2:
        raise ValueError(
            f"the labels name {len(classes)} class: give labels of at least two classes"
        )
    return rows, y.astype(np.int64), classes


def _cross_validation(
    y: NDArray[np.int64],
    fit: FewLabels,
    classes: tuple[str, ...],
    groups: GroupIds | None,
    floors: Mapping[str, NDArray[np.int64]],
) -> CrossValidation | None:
    guess = fit.held_out
    if guess is None or fit.held_out_probabilities is None:
        return None
    tested = guess >= 0
    p = fit.held_out_probabilities[tested].max(1)
    floors = {name: floor[tested] for name, floor in floors.items()}
    y, guess, groups = y[tested], guess[tested], None if groups is None else groups[tested]
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(counts, (y, guess), 1)
    recall = counts.diagonal() / np.maximum(counts.sum(1), 1)
    low, high = share_interval(guess == y, groups)
    floors["the most frequent class"] = np.full(len(y), np.bincount(y).argmax())
    return CrossValidation(
        accuracy=float((guess == y).mean()),
        low=low,
        high=high,
        balanced_accuracy=float(recall[np.unique(y)].mean()),
        recall=dict(zip(classes, recall.tolist(), strict=True)),
        confusion=counts,
        confidence=float(p.mean()),
        calibration_error=_calibration_error(p, guess == y),
        floors={
            name: paired_difference(floor == y, guess == y, groups=groups)
            for name, floor in floors.items()
        },
    )


def _calibration_error(p: NDArray[np.floating], hits: NDArray[np.bool_]) -> float:
    """Return sum_b n_b / n |mean p - mean hits| over the bins b of probabilities p [n]."""
    bins = np.minimum((p * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, p - hits, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(p))
