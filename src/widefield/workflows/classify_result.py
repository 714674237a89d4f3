"""Results of a classification."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widefield.probes.paired import PairedDifference
from widefield.report.notebook import notebook_html, percents
from widefield.workflows.predictions_file import write_predictions


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
    confidence: float
    """Mean probability of the predicted classes; equal to `accuracy` if they are calibrated."""
    calibration_error: float
    """Expected calibration error with ten bins (Guo et al. 2017, equation 3)."""
    floors: Mapping[str, PairedDifference]
    """Raw pixels, the untrained network and the most frequent class, each compared with the
    features."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "confusion": self.confusion.tolist()}

    def lines(self) -> list[str]:
        """Return how the accuracy compares with the floors, the highest first; and calibration."""
        highest_first = sorted(self.floors.items(), key=lambda item: -item[1].before)
        return [
            *(_comparison(name, floor) for name, floor in highest_first),
            f"mean probability of the predicted classes {100 * self.confidence:.1f} %, expected "
            f"calibration error {100 * self.calibration_error:.1f} %",
        ]


def _comparison(name: str, floor: PairedDifference) -> str:
    points = f"{100 * abs(floor.difference):.1f} points"
    return floor.beside(f"{name} ({100 * floor.before:.1f} %)", points)


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
    doubted: tuple[tuple[str, str, float], ...]
    """Labels that cross-validation does not predict: path, predicted class and its probability,
    the most probable first."""
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
        write_predictions(table, path)

    def _repr_html_(self) -> str:
        """Return labels, recall and predictions of each class as a table, for Jupyter."""
        given, predicted = Counter(self.labels.values()), Counter(self.predicted)
        checked = self.cross_validation
        rows = [
            [name, str(given[name]), *([] if checked is None else percents(checked.recall[name])),
             str(predicted[name])]
            for name in self.classes
        ]  # fmt: skip
        columns = ["class", "labels", *([] if checked is None else ["recall %"]), "predicted"]
        lines = () if checked is None else (f"accuracy {percents(checked.accuracy)[0]} %",)
        title = f"{self.encoder}: {len(self.paths)} predictions from {len(self.labels)} labels"
        return notebook_html(title, columns, rows, (*lines, *self.notes))
