"""Classification of every image from a few labels, and images to label next."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widefield.core.files import checked_output, write_atomically
from widefield.core.input_errors import input_errors
from widefield.core.types import OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.open import Data
from widefield.evaluation.near_copies import (
    COPIES_SHARE,
    MAX_POOLED,
    copies_text,
    copy_groups,
    thumbnails,
)
from widefield.inference.features import FeatureKind, send_notes
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import own_group
from widefield.probes.few_labels import FewLabels, fit_few_labels
from widefield.probes.grouped import GroupIds, share_interval
from widefield.probes.suggest import suggest as suggest_rows

_FORMATS = (".parquet", ".csv")
_TASK = "label"


_MAX_NAMES = 8
"""Classes named in a note."""


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """Scores of labeled images that were not used to fit the probe."""

    accuracy: float
    low: float
    high: float
    """The ends of the 95 % interval of `accuracy`."""
    balanced_accuracy: float
    """Mean recall of the classes."""
    recall: Mapping[str, float]
    """Class -> share of its labeled images that are predicted correctly."""
    confusion: NDArray[np.int64]
    """Labeled images of class i that are predicted as class j, [K, K]."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "confusion": self.confusion.tolist()}


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Predicted classes of every image."""

    encoder: str
    paths: list[str]
    classes: tuple[str, ...]
    labels: Mapping[str, str]
    """Path -> label of the labeled images."""
    probabilities: NDArray[np.floating]
    """[n, K], calibrated."""
    cross_validation: CrossValidation | None
    """None if a class has only one label, or labels in one group alone."""
    suggested: tuple[str, ...]
    """Paths of the images to label next, the most useful first."""
    notes: tuple[str, ...]

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each image."""
        return [self.classes[k] for k in self.probabilities.argmax(1)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield classify --json` prints them."""
        return {
            "encoder": self.encoder,
            "examples": len(self.paths),
            "labels": len(self.labels),
            "classes": list(self.classes),
            "predicted": dict(Counter(self.predicted)),
            "cross_validation": self.cross_validation and self.cross_validation.to_json(),
            "suggested": list(self.suggested),
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Write a row for each image: path, label, predicted class, probabilities, rank."""
        rank = {name: 1 + i for i, name in enumerate(self.suggested)}
        table = pa.table(
            {
                "path": self.paths,
                "label": pa.array([self.labels.get(name) for name in self.paths], pa.string()),
                "predicted": self.predicted,
                "probability": self.probabilities.max(1),
                "suggested": pa.array([rank.get(name) for name in self.paths], pa.int64()),
                **{f"p {name}": self.probabilities[:, k] for k, name in enumerate(self.classes)},
            }
        )
        path = checked_output(path, _FORMATS, overwrite=True)
        write = pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table
        write_atomically(path, lambda temp_path: write(table, temp_path))


@input_errors
def classify(
    encoder: EncoderSpec,
    data: Data,
    *,
    labels: Labels,
    group: str | None = None,
    features: FeatureKind | None = None,
    dim: int | None = None,
    suggest: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Classification:
    """Predict the class of every image from the labels of a few.

    Args:
        encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
            `pixels`. In Python also a module; it is never changed.
        data: images or sounds, as for `pretrain`; their own labels are not used.
        labels: a `.csv` file with the columns path and label; paths are those that `embed` writes,
            or lead to the file, and an empty label is none. In Python also a table such as a
            DataFrame, a Series indexed by path, or path -> label.
        group: examples that belong together, such as frames of a video: a column of the labels, a
            label array, folder:1 for the first folder of a path, or regex:PATTERN for what its
            first ( ) matches. No fold divides a group, intervals count groups, and suggestions
            are of different ones; by default as in the run, for its data.
        features: pooled, wide for these and directions of earlier stages that pooling hides,
            feature-map for those before pooling, or projected for those after the projector of the
            run; by default pooled or wide, by cross-validation on the labels.
        dim: width of wide features; by default 384 more than the pooled ones.
        suggest: number of images to suggest for labeling.
        out: a `.parquet` or `.csv` file: path, label, predicted class and probabilities.
        overwrite: replace the file if it is there.
        seed: seed of the folds of cross-validation.
        quiet: show no progress.
        on_note: called before the work with each note on the data and the encoder, such as `print`.

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
        checked_output(out, _FORMATS, overwrite=overwrite)
    if suggest < 0:
        raise ValueError(f"suggest is {suggest}; expected a number of images, or 0 for none")
    table = read_labels(labels, only=_TASK, group=group)
    extractor = open_encoder(encoder, features or "wide", dim=dim)
    group = own_group(extractor, data, group, labels=table)
    dataset = extractor.open(data, labels=table, unlabeled=True, group=group, quiet=quiet)
    rows, y, classes = _matched(dataset)
    groups = None if dataset.groups is None else dataset.groups[rows]
    fit = partial(fit_few_labels, labeled=rows, y=y, classes=len(classes), seed=seed)
    extractor.check(dataset, or_pooled=features is None)
    send_notes((*extractor.notes, *dataset.notes, *_single_note(y, classes)), on_note)
    extractor = extractor.with_readout(dataset, or_pooled=features is None, quiet=quiet)
    candidates = [extractor]
    if features is None and extractor.kind == "wide":
        candidates.insert(0, replace(extractor, kind="pooled", dim=None))
    fits = []
    for candidate in candidates:
        h = candidate.features(dataset.inputs, quiet=quiet).cpu().numpy()
        fits.append((h, fit(h, groups=groups)))
    scores = [_held_out_accuracy(fit, y) for _, fit in fits]
    h, prediction = fits[int(np.argmax(scores))]  # the pooled ones if both are equal
    selected = suggest_rows(
        h, rows, prediction.probabilities, suggest, groups=dataset.groups, seed=seed
    )
    result = Classification(
        encoder=extractor.name,
        paths=list(dataset.paths),
        classes=classes,
        labels={dataset.paths[row]: classes[k] for row, k in zip(rows, y, strict=True)},
        probabilities=prediction.probabilities,
        cross_validation=_cross_validation(y, prediction.held_out, classes, groups),
        suggested=tuple(dataset.paths[row] for row in selected),
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
    return result


def _held_out_accuracy(fit: FewLabels, y: NDArray[np.int64]) -> float:
    """Return the cross-validated accuracy; 0 if there is none."""
    if fit.held_out is None:
        return 0.0
    tested = fit.held_out >= 0
    return float((fit.held_out == y)[tested].mean())


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
    guess: NDArray[np.int64] | None,
    classes: tuple[str, ...],
    groups: GroupIds | None,
) -> CrossValidation | None:
    if guess is None:
        return None
    tested = guess >= 0
    y, guess, groups = y[tested], guess[tested], None if groups is None else groups[tested]
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(counts, (y, guess), 1)
    recall = counts.diagonal() / np.maximum(counts.sum(1), 1)
    low, high = share_interval(guess == y, groups)
    return CrossValidation(
        accuracy=float((guess == y).mean()),
        low=low,
        high=high,
        balanced_accuracy=float(recall[np.unique(y)].mean()),
        recall=dict(zip(classes, recall.tolist(), strict=True)),
        confusion=counts,
    )
