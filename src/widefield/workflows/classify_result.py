"""Results of a classification: predicted classes, numbers or labels of every example."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widefield.core.files import checked_output, write_atomically
from widefield.probes.outcome import Outcome
from widefield.probes.paired import PairedDifference
from widefield.report.tables import ResultTable, TabularResult, percents

PREDICTION_FORMATS = (".parquet", ".csv")
_BINS = 10
"""Bins of the expected calibration error, fewer than the 15 of Guo et al. for the few labels."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What cross-validated probabilities tell of classes."""

    confusion: NDArray[np.int64]
    """Labeled images of class i that are predicted as class j, [K, K]."""
    confidence: float
    """Mean probability of the predicted classes; equal to the accuracy if they are calibrated."""
    error: float
    """Expected calibration error with ten bins (Guo et al. 2017, equation 3)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Classification(TabularResult):
    """Predicted classes, numbers or labels of every image."""

    encoder: str
    paths: list[str]
    kind: Literal["classes", "number", "labels"]
    classes: tuple[str, ...]
    """Names of the classes, or of the labels of which an image may have several."""
    labels: Mapping[str, str | float]
    """Path -> class, number, or labels joined by |, of the labeled images."""
    values: NDArray[np.floating]
    """Calibrated probabilities of the classes or labels, [n, K], or numbers, [n, 1]."""
    cross_validation: Outcome | None
    """Outcome on labeled images that were not used to fit the probe; None if too few were given:
    if a class has only one label, or labels in one group alone."""
    floors: Mapping[str, PairedDifference]
    """Raw pixels, the untrained network, and the most frequent class or the mean, each compared
    with the features."""
    calibration: Calibration | None = None
    """Calibration of the cross-validated classes; None of other labels."""
    suggested: tuple[str, ...] = ()
    """Paths of the images to label next, the most useful first."""
    doubted: tuple[tuple[str, str, float], ...] = ()
    """Labels that cross-validation does not predict: path, predicted class and its probability,
    the most probable first."""
    notes: tuple[str, ...]

    @property
    def predicted(self) -> list[Any]:
        """The most probable class of each image, its number, or its labels joined by |."""
        if self.kind == "classes":
            return [self.classes[k] for k in self.values.argmax(1)]
        if self.kind == "number":
            return self.values[:, 0].tolist()
        return [join_labels(row, self.classes) for row in self.values]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield classify --json` prints them."""
        checked = self.cross_validation
        floors = {name: vars(floor) for name, floor in self.floors.items()}
        shared = {"encoder": self.encoder, "examples": len(self.paths)}
        if self.kind != "classes":
            return {
                **shared,
                "kind": self.kind,
                "given": len(self.labels),
                "labels": list(self.classes),
                "cross_validation": None if checked is None else checked.to_json(),
                "floors": floors,
                "notes": list(self.notes),
            }
        return {
            **shared,
            "labels": len(self.labels),
            "classes": list(self.classes),
            "predicted": dict(Counter(self.predicted)),
            "cross_validation": None if checked is None else self._checked_json(checked, floors),
            "suggested": list(self.suggested),
            "notes": list(self.notes),
        }

    def _checked_json(self, checked: Outcome, floors: dict[str, Any]) -> dict[str, Any]:
        assert self.calibration is not None
        low, high = checked.interval
        return {
            "accuracy": checked.value,
            "low": low,
            "high": high,
            "balanced_accuracy": checked.balanced,
            "recall": checked.to_json()["recall"],
            "confusion": self.calibration.confusion.tolist(),
            "confidence": self.calibration.confidence,
            "calibration_error": self.calibration.error,
            "floors": floors,
        }

    def save(self, path: str | Path) -> None:
        """Write a row for each image, over a file that is there: path, label and prediction.

        Of classes and labels it has the probabilities, and of classes the rank of suggestions.
        """
        labels = [self.labels.get(name) for name in self.paths]
        columns: dict[str, Any] = {
            "path": self.paths,
            "label": pa.array(labels, pa.float64() if self.kind == "number" else pa.string()),
            "predicted": self.predicted,
        }
        if self.kind == "classes":
            rank = {name: 1 + i for i, name in enumerate(self.suggested)}
            columns["probability"] = self.values.max(1)
            columns["suggested"] = pa.array([rank.get(name) for name in self.paths], pa.int64())
        columns |= {f"p {name}": self.values[:, k] for k, name in enumerate(self.classes)}
        path = checked_output(path, PREDICTION_FORMATS, overwrite=True)
        write = pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table
        write_atomically(path, lambda temp_path: write(pa.table(columns), temp_path))

    def tables(self) -> list[ResultTable]:
        """Return the cross-validated score of each class or label, and that of all."""
        title = f"{self.encoder}: {len(self.paths)} predictions from {len(self.labels)} labels"
        lines = [*self._lines(), *(f"label next: {path}" for path in self.suggested)]
        checked = self.cross_validation
        if checked is None or self.kind == "number":
            return [ResultTable(title=title, lines=lines)]
        if self.kind == "labels":
            columns = ["label", "share %", "average precision  [95 %]"]
            rows = [
                [name, *percents(part.chance), _span(part, ".3f", gap="  ")]
                for name, part in checked.parts.items()
            ]
        else:
            columns = ["class", "labels", "recall %", "most often confused with", "predicted"]
            rows = self._class_rows(checked)
        title = f"{title}, cross-validated"
        return [ResultTable(title=title, columns=columns, rows=rows, lines=lines)]

    def _class_rows(self, checked: Outcome) -> list[list[str]]:
        assert self.calibration is not None
        counts, predicted = Counter(self.labels.values()), Counter(self.predicted)
        return [
            [
                name,
                str(counts[name]),
                *percents(part.value if len(part) else None),
                _confused_with(self.classes, self.calibration.confusion[k], k),
                str(predicted[name]),
            ]
            for k, (name, part) in enumerate(checked.parts.items())
        ]

    def _lines(self) -> list[str]:
        checked = self.cross_validation
        if checked is None:
            few = "too few examples or groups"
            if self.kind == "classes":
                few = "fewer than two classes have two labels or groups"
            return [f"no cross-validation: {few}, give more"]
        if self.kind == "classes":
            value, low, high, balanced = percents(*checked.estimate(), checked.balanced)
            first = f"accuracy {value} % [{low}, {high}], balanced accuracy {balanced} %"
        else:
            scores: dict[str, Outcome] = {checked.measure: checked}
            scores |= checked.parts if self.kind == "number" else {}
            first = ", ".join(f"{name} {_span(x, '.4g')}" for name, x in scores.items())
        return [first, *self.floor_lines(), *self._calibration_line()]

    def floor_lines(self) -> list[str]:
        """Return how the score compares with the floors; with those of classes, highest first."""
        if self.kind != "classes":
            return [
                floor.compare_text(f"{name} ({floor.before:.3f})", f"{abs(floor.difference):.3f}")
                for name, floor in self.floors.items()
            ]
        return [
            floor.compare_text(
                f"{name} ({100 * floor.before:.1f} %)", f"{100 * abs(floor.difference):.1f} points"
            )
            for name, floor in sorted(self.floors.items(), key=lambda item: -item[1].before)
        ]

    def _calibration_line(self) -> list[str]:
        if self.calibration is None:
            return []
        confidence, error = percents(self.calibration.confidence, self.calibration.error)
        return [
            f"mean probability of the predicted classes {confidence} %, expected calibration error "
            f"{error} %"
        ]


def calibration(
    probabilities: NDArray[np.floating], y: NDArray[np.int64], classes: int
) -> Calibration:
    """Return the calibration of cross-validated probabilities [m, K] of examples of classes y [m].

    The expected calibration error is sum_b n_b / n |mean p - mean hits| over bins b.
    """
    guess, p = probabilities.argmax(1), probabilities.max(1)
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (y, guess), 1)
    bins = np.minimum((p * _BINS).astype(int), _BINS - 1)
    sums = np.bincount(bins, p - (guess == y), minlength=_BINS)
    error = float(np.abs(sums).sum() / len(p))
    return Calibration(confusion=confusion, confidence=float(p.mean()), error=error)


def join_labels(row: NDArray[np.floating], labels: Sequence[str]) -> str:
    """Return the labels whose value is above one half, as a cell of a table has them."""
    return "|".join(name for name, p in zip(labels, row, strict=True) if p > 0.5) or "|"


def _span(outcome: Outcome, digits: str, *, gap: str = " ") -> str:
    value, low, high = (f"{x:{digits}}" for x in outcome.estimate())
    return f"{value}{gap}[{low}, {high}]"


def _confused_with(classes: tuple[str, ...], row: NDArray[np.int64], label: int) -> str:
    others = {name: int(row[k]) for k, name in enumerate(classes) if k != label}
    worst = max(others, key=others.__getitem__)
    return f"{worst} ({others[worst]})" if others[worst] else ""
