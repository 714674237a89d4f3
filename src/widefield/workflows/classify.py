"""Classification of every image from a few labels, and images to label next."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widefield.core.errors import input_errors
from widefield.core.files import checked_output
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, LabelTable, read_labels
from widefield.data.labels.read import read_excluded
from widefield.data.open_options import OpenOptions
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.frozen import opened
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.probes.features import pixels
from widefield.probes.floors import best
from widefield.probes.near_copies import (
    MAX_POOLED,
    MIN_COPY_SHARE,
    copy_groups,
    copy_text,
    count_shared,
)
from widefield.probes.outcome import Outcome, Predictions, score_text
from widefield.probes.paired import PairedDifference
from widefield.probes.suggest import suggest as suggest_rows
from widefield.report import write_page
from widefield.workflows.classify_labels import ClassTask, LabelTask, label_task_of
from widefield.workflows.classify_page import classify_page
from widefield.workflows.classify_result import PREDICTION_FORMATS, Classification, calibration
from widefield.workflows.probe_scores import dictionary_extractor, untrained_extractors
from widefield.workflows.segments import with_best_weights

_TASK = "label"
# Chosen by hand.
_MAX_LABELS = 300
"""Largest number of labels for which floors are measured: there are many raw pixels."""
_RAW = {"images": "raw pixels", "sounds": "the raw spectrogram", "windows": "raw values"}
"""What the floor without a network is: sounds have a spectrogram for pixels."""


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
) -> Classification:
    """Predict the class of every image from the labels of a few.

    Of a column label with numbers it predicts the number, and of cells such as a|b the probability
    of each label; the result has then no page and no suggestions.

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
            run; by default pooled or wide, also of the initial weights of a run, by
            cross-validation on the labels.
        suggest: number of images to suggest for labeling.
        out: a `.parquet` or `.csv` file: path, label, predicted class and probabilities. A page of
            the same name, with the suffix .html, shows the least certain ones of classes.
        seed: seed of the folds of cross-validation.

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
    table = read_labels(labels, only=_TASK, group=group, targets=True)
    _check_suggestions(suggest, table)
    options = OpenOptions(labels=table, unlabeled=True, exclude=read_excluded(exclude), group=group)
    extractor, dataset = opened(
        encoder, data, options, features=features, dim=dim, image_size=image_size, quiet=quiet
    )
    label_task = label_task_of(dataset, _TASK, seed)
    notes = (*extractor.notes, *dataset.notes, *label_task.notes)
    extractor = extractor.ready(dataset, notes=notes, on_note=on_note, quiet=quiet)
    labeled = dataset.subset(label_task.rows)
    (_, dataset), choice = with_best_weights(extractor, labeled, dataset, seed=seed)
    bias_note = (f"{note}; scores on these labels are too high by this choice" for note in choice)
    h = _readouts(extractor, dataset, quiet=quiet)
    found = label_task.fit(*h.values(), pooled=extractor.pooled)
    outcome = label_task.outcome(found)
    result = Classification(
        encoder=extractor.name,
        paths=list(dataset.paths),
        kind=label_task.kind,
        classes=label_task.names,
        labels=label_task.by_path(dataset),
        values=found.predicted,
        cross_validation=outcome,
        floors={} if outcome is None else _floors(extractor, dataset, label_task, found, outcome),
        notes=(*extractor.notes, *_choice(h, found), *bias_note, *label_task.notes, *dataset.notes),
    )
    if isinstance(label_task, ClassTask):
        readout = list(h.values())[found.readout]
        result = _with_suggestions(result, dataset, label_task, readout, found, suggest)
    if out is not None:
        result.save(out)
    if out is not None and label_task.kind == "classes":
        write_page(classify_page(result, dataset, seed=seed), page_of(out), overwrite=overwrite)
    return result


def _check_suggestions(count: int, labels: LabelTable) -> None:
    if count < 0:
        raise ValueError(f"suggest is {count}; expected a number of images, or 0 for none")
    if count and labels.targets:
        raise ValueError(
            "suggest is for classes, and the labels are numbers or several labels each: leave it "
            "out"
        )


def page_of(out: str | Path) -> Path:
    """Return the page beside a file of predictions."""
    return Path(out).with_suffix(".html")


def _with_suggestions(
    result: Classification,
    dataset: Dataset,
    label_task: ClassTask,
    h: Tensor,
    found: Predictions,
    count: int,
) -> Classification:
    """Return the result with what only classes have: suggestions, doubts and calibration."""
    rows = suggest_rows(
        h.numpy(),
        label_task.rows,
        found.predicted,
        count,
        groups=dataset.groups,
        seed=label_task.seed,
    )
    result = replace(result, suggested=tuple(dataset.paths[row] for row in rows))
    tested = np.flatnonzero(found.tested)
    if not len(tested):
        return result
    p, y = found.held_out[tested], label_task.y[tested]
    wrong = np.flatnonzero(p.argmax(1) != y)
    order = wrong[np.argsort(-p[wrong].max(1), kind="stable")]
    doubted = tuple(
        (
            dataset.paths[label_task.rows[tested[i]]],
            label_task.names[p[i].argmax()],
            float(p[i].max()),
        )
        for i in order
    )
    copy_notes = _copy_note(dataset.subset(label_task.rows), label_task, h)
    # Notes on the data are last, as in the other calls.
    first = len(result.notes) - len(dataset.notes)
    return replace(
        result,
        doubted=doubted,
        calibration=calibration(p, y, len(label_task.names)),
        notes=(*result.notes[:first], *copy_notes, *result.notes[first:]),
    )


def _readouts(extractor: FeatureExtractor, dataset: Dataset, *, quiet: bool) -> dict[str, Tensor]:
    """Return the features to choose from, by name: the first of equals counts.

    Those of the initial weights of a run are taken beside its own, and alone, unless the run handed
    these weights over.
    """
    kinds = {str(extractor.kind): extractor}
    if extractor.or_pooled:
        kinds["pooled"] = replace(extractor, kind="pooled", dim=None)
    h = {name: kind.features(dataset.inputs, quiet=quiet).cpu() for name, kind in kinds.items()}
    run = extractor.run
    if not extractor.or_pooled or run is None or not run.init_folder.exists():
        return h
    initial = open_encoder(run.init_folder, None, dim=extractor.dim)
    assert extractor.encoder is not None
    assert initial.encoder is not None
    weights, others = extractor.encoder.state_dict(), initial.encoder.state_dict()
    if all(torch.equal(weights[name], others[name]) for name in weights):
        return h
    h0 = initial.with_readout(dataset, quiet=quiet).features(dataset.inputs, quiet=quiet).cpu()
    first = next(iter(h))
    # Adaptation can lose what few labels need: both are seldom worse than either alone.
    both = torch.cat([h.pop(first), h0], dim=1)
    return {f"{first} and initial": both, **h, "initial": h0}


def _choice(h: Mapping[str, Tensor], found: Predictions) -> tuple[str, ...]:
    if len(found.errors) < 2:
        return ()
    errors = zip(found.errors, h, strict=True)
    text = ", ".join(f"{error:.3g} by {name}" for error, name in errors)
    return (f"features by cross-entropy on held-out labels: {text} ones",)


def _floors(
    extractor: FeatureExtractor,
    dataset: Dataset,
    label_task: LabelTask,
    found: Predictions,
    outcome: Outcome,
) -> dict[str, PairedDifference]:
    """Return floor -> difference of the features from it, by the best features of each floor.

    An encoder is not compared with itself: pixels have no such floor, and `random` has only raw
    pixels.
    """
    labeled, count = dataset.subset(label_task.rows), len(label_task.rows)
    task = replace(label_task, rows=np.arange(count))

    def outcome_of(h: Tensor, pooled: int | None = None) -> dict[str, Outcome]:
        score = task.outcome(task.fit(h, pooled=pooled))
        assert score is not None, "whether folds are possible depends on the labels alone"
        return {_TASK: score}

    floors: dict[str, Outcome] = {}
    is_pixels = extractor.encoder is None and extractor.architecture is None
    if not is_pixels and count <= _MAX_LABELS:
        floors[_RAW[labeled.kind]] = outcome_of(pixels(labeled.inputs))[_TASK]
        dictionary = dictionary_extractor(labeled).features(labeled.inputs)
        floors["a dictionary of patches"] = outcome_of(dictionary.cpu())[_TASK]
        if extractor.architecture is None:
            floors["the untrained network"] = best(
                outcome_of(readout.features(labeled.inputs).cpu(), readout.pooled)
                for pair in untrained_extractors(extractor, labeled)
                for readout in filter(None, pair)
            )[_TASK]
    floors[label_task.constant_name] = label_task.constant(found)
    return {name: outcome.minus(floor) for name, floor in floors.items()}


def _copy_note(labeled: Dataset, label_task: ClassTask, h: Tensor) -> tuple[str, ...]:
    count = len(labeled)
    if labeled.groups is not None or count > MAX_POOLED:
        return ()
    groups = copy_groups(labeled.images)
    copied, exact = (count_shared(ids) for ids in (groups, labeled.digests()))
    if not exact and copied < max(2, MIN_COPY_SHARE * count):
        return ()
    grouped = replace(label_task, groups=groups)
    separate = grouped.outcome(grouped.fit(h))
    scores = []
    if separate is not None:
        scores = [score_text(separate.value, separate.measure, *separate.interval)]
    found = f"{copied} of {count} labeled {labeled.kind} have near-copies"
    found += f" ({exact} exact ones)" if exact else ""
    return (copy_text(found, scores),)
