"""Bring a feature that pooling hides back into the pooled features of a run, in the weights."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.errors import input_errors, option
from widefield.core.files import check_folder_name, check_writable
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.spec import parse
from widefield.encoders import ENCODER_FILE, Encoder, save_encoder_file, save_readout
from widefield.inference.features import FeatureExtractor, images_progress, send_notes
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import (
    TrainTest,
    data_notes,
    run_source,
    split_by_hash,
    training_data,
)
from widefield.probes.checks import has_two_of_each
from widefield.probes.linear import LinearProbe, fit_linear
from widefield.probes.outcome import Outcome
from widefield.probes.paired import PairedDifference, percent
from widefield.probes.standardize import Standardization
from widefield.probes.verdicts import MAX_DECREASE, MIN_GAP
from widefield.probes.wide import fit_on_dataset
from widefield.report.tables import ResultTable, TabularResult, percents
from widefield.train.recover import train_to_predict

# Goal, share of the epochs and weights were chosen by hand; the study recover (docs/studies.md)
# measures what they recover.
_GOAL = 2 / 3
"""Share of the gap between pooled and wide features that a recovered feature closes."""
_EPOCHS_SHARE = 0.4
"""Epochs by default, relative to those of the run."""
_FEATURE_WEIGHT, _ALL_WEIGHT = 1.0, 3.0
"""Weight of the loss of a single feature, and of all directions."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Recovery(TabularResult):
    """A run's encoder, trained further, and what its pooled features hold now."""

    encoder: Encoder
    run: str
    feature: str | None
    """Task of the feature; None for all directions of the wide readout."""
    epochs: int
    examples: tuple[int, int]
    """Numbers of examples that it was trained on, and that were left out to be scored."""
    seconds: float
    """Time of training."""
    before: Mapping[str, Outcome]
    """Task -> outcome of the pooled features of the run, on the examples that were left out."""
    after: Mapping[str, Outcome]
    """Task -> outcome of the pooled features now."""
    wide: Mapping[str, Outcome]
    """Task -> outcome of the wide features of the run."""
    notes: list[str]

    @cached_property
    def changes(self) -> dict[str, PairedDifference]:
        """Task -> accuracy of the pooled features before and after, paired by example."""
        return {task: self.after[task].minus(before) for task, before in self.before.items()}

    def share(self, task: str) -> float:
        """Return the share of the gap between pooled and wide features that was closed."""
        change = self.changes[task]
        return change.difference / (self.wide[task].value - change.before)

    @property
    def missed(self) -> tuple[str, ...]:
        """Return what was not reached, one sentence each; empty if the feature was recovered."""
        lines = []
        for task, change in self.changes.items():
            if task == self.feature and self.share(task) < _GOAL:
                lines.append(
                    f"{task} is not recovered: {100 * self.share(task):.0f} % of the gap between "
                    f"pooled and wide features is closed, and at least {100 * _GOAL:.0f} % are "
                    f"expected; give more {option('epochs')}, or take features wide"
                )
            elif task != self.feature and change.difference < -MAX_DECREASE:
                points = f"{-100 * change.difference:.1f} points"
                lines.append(f"{task} is {change.compare_text('its former accuracy', points)}")
        return tuple(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield recover --json` prints them."""
        names = ("run", "feature", "epochs", "examples", "seconds", "notes")
        tasks = {
            task: {"change": vars(change), "wide": self.wide[task].value}
            for task, change in self.changes.items()
        }
        values = {name: getattr(self, name) for name in names}
        return {**values, "tasks": tasks, "missed": list(self.missed)}

    def tables(self) -> list[ResultTable]:
        """Return the accuracies before and after."""
        rows = [
            [task, *percents(change.before, change.after, self.wide[task].value)]
            for task, change in self.changes.items()
        ]
        return [
            ResultTable(
                title=f"linear-probe accuracy of {self.run}, %",
                columns=["task", "pooled, before", "pooled, after", "wide, before"],
                rows=rows,
                lines=[f"{name}: {found.line()}" for name, found in self.changes.items()]
                + [*self.missed],
            )
        ]


@input_errors
@describe_arguments
def recover(
    run: str | Path,
    *,
    feature: str | Labels | None = None,
    out: str | Path,
    epochs: int | None = None,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Recovery:
    """Train the encoder of a run further, so that its pooled features have a hidden feature too.

    They keep their width. A linear map of them predicts the former ones, and what the wide readout
    has of the feature. A fifth of the examples is left out to be scored.

    Args:
        run: folder of a run that was trained on files or built-in data; it is not changed.
        feature: a task of the run's data, such as planted digits, or a `.csv` file with the
            column path and one of labels, of some of the examples; by default all directions of
            the wide readout, without labels. In Python also a table, as `classify` takes it.
        out: a new folder for the encoder and its wide readout.
        epochs: passes over the images; by default two fifths of the epochs of the run.
        seed: seed of the order of the images.

    Raises:
        ValueError: invalid input, or a feature that is not hidden; the message names the remedy.

    Example:
        >>> import tempfile
        >>> from widefield.workflows.pretrain import pretrain
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = pretrain("photos", out=f"{folder}/run", epochs=1, max_examples=64, quiet=True)
        ...     found = recover(run.run, out=f"{folder}/new", epochs=1, quiet=True)
        >>> found.epochs, sum(found.examples)
        (1, 64)
    """
    out = _new_folder(out)
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs is {epochs}; expected at least 1")
    extractor = open_encoder(run, "wide")
    folder = extractor.require_run("give the folder of a run, which names its training data")
    run_source(folder, "train a run on a file of them, as numpy.savez writes it")
    dataset, task = _with_feature(training_data(folder, quiet=quiet), feature)
    data = split_by_hash(dataset)
    extractor = extractor.with_readout(data.train, quiet=quiet)
    dim = _pooled(extractor).dim
    wide = _features(extractor, data, quiet=quiet)
    best = _probes(wide, data)
    before = _probes([x[:, :dim] for x in wide], data)
    if task is not None:
        if task not in best:
            raise ValueError(f"{task} has too few labels: give two or more of each class, and more")
        _check_hidden(task, before[task], best[task], data)
    notes = data_notes(data.train, data.test)
    send_notes(notes, on_note)
    epochs = epochs or max(1, round(_EPOCHS_SHARE * folder.recipe().epochs))
    start = time.monotonic()
    device = choose_device("auto")
    with images_progress(quiet, "training") as progress:
        encoder = train_to_predict(
            _pooled(extractor),
            data.train.images,
            wide[0][:, dim:] if task is None else _standardized_logits(wide[0], best[task]),
            weight=_ALL_WEIGHT if task is None else _FEATURE_WEIGHT,
            epochs=epochs,
            seed=seed,
            device=device,
            precision=choose_precision("auto", device),
            progress=progress,
        )
    seconds = time.monotonic() - start
    after = _probes(_features(open_encoder(encoder), data), data)
    save_readout(fit_on_dataset(encoder, data.train, device=device), out)
    save_encoder_file(encoder, out / ENCODER_FILE)  # last: a folder with one is complete
    return Recovery(
        encoder=encoder,
        run=str(run),
        feature=task,
        epochs=epochs,
        examples=(len(data.train), len(data.test)),
        seconds=round(seconds, 1),
        before={name: before[name].outcome for name in best},
        after={name: after[name].outcome for name in best},
        wide={name: probe.outcome for name, probe in best.items()},
        notes=notes,
    )


def _new_folder(out: str | Path) -> Path:
    check_folder_name(out, allow_current=True)
    folder = Path(out)
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{out} is not an empty folder: choose another {option('out')}")
    check_writable(folder)
    return folder


def _with_feature(dataset: Dataset, feature: str | Labels | None) -> tuple[Dataset, str | None]:
    if feature is None:
        return dataset, None
    if isinstance(feature, str) and not feature.endswith(".csv"):
        if feature not in dataset.labels:
            raise ValueError(
                f"no task {feature!r} in {dataset.spec}: give {_join_names(dataset.labels)}, or a "
                ".csv file of labels"
            )
        return dataset, feature
    table = read_labels(feature)
    if len(table.labels) > 1:
        raise ValueError(f"{table.source} has {_join_names(table.labels)}: keep one beside path")
    (task,) = table.labels
    found = table.of_examples(dataset.paths, parse(dataset.spec).base)
    labeled = replace(
        dataset,
        labels={**dataset.labels, **found.labels},
        classes={**dataset.classes, **found.classes},
        notes=(*dataset.notes, *found.notes),
    )
    return labeled, task


def _join_names(names: Iterable[str]) -> str:
    return " or ".join(map(repr, names)) or "labels"


def _pooled(extractor: FeatureExtractor) -> Encoder:
    assert isinstance(extractor.encoder, Encoder)
    return extractor.encoder


def _features(extractor: FeatureExtractor, data: TrainTest, *, quiet: bool = True) -> list[Tensor]:
    return [extractor.features(half.images, quiet=quiet) for half in (data.train, data.test)]


def _probes(features: Sequence[Tensor], data: TrainTest) -> dict[str, LinearProbe]:
    """Return task -> linear probe, for tasks with two labeled examples of each class and a test."""
    results: dict[str, LinearProbe] = {}
    for task, count in data.class_counts.items():
        rows = [_labeled(half, task) for half in (data.train, data.test)]
        x, test_x = (h[members] for h, members in zip(features, rows, strict=True))
        y, test_y = (
            torch.from_numpy(half.labels[task][members]).to(x.device)
            for half, members in zip((data.train, data.test), rows, strict=True)
        )
        groups = data.groups
        if groups is not None:
            groups = groups[0][rows[0]], groups[1][rows[1]]
        if has_two_of_each(data.train.labels[task][rows[0]]) and len(test_y):
            results |= fit_linear(
                x, {task: y}, test_x, {task: test_y}, classes={task: count}, groups=groups
            )
    return results


def _labeled(dataset: Dataset, task: str) -> NDArray[np.int64]:
    return np.flatnonzero(dataset.labels[task] >= 0)


def _check_hidden(task: str, pooled: LinearProbe, wide: LinearProbe, data: TrainTest) -> None:
    """Check that wide features predict a task, and that pooled ones predict it less well."""
    labels = data.train.labels[task][_labeled(data.train, task)]
    majority = np.bincount(labels).argmax()
    floor = float((data.test.labels[task][_labeled(data.test, task)] == majority).mean())
    if wide.outcome.interval[0] <= floor:
        raise ValueError(
            f"{task} is not in the wide features: linear-probe accuracy is "
            f"{percent(wide.outcome.value)} from them, not significantly above {percent(floor)} of "
            "the commonest class: train another run, with views that keep it, or give more labels"
        )
    change = wide.outcome.minus(pooled.outcome)
    if change.verdict != "higher" or change.difference < MIN_GAP:
        is_large = change.difference >= MIN_GAP
        end = "within chance, give more labels" if is_large else "nothing to recover"
        raise ValueError(
            f"{task} is not hidden: linear-probe accuracy is {percent(change.before)} from the "
            f"pooled features and {percent(change.after)} from the wide ones: {end}"
        )


def _standardized_logits(wide: Tensor, probe: LinearProbe) -> Tensor:
    """Return the standardized logits [n, K] of a probe on wide features [n, D]."""
    logits = wide @ probe.weight.T
    return Standardization.of(logits)(logits)
