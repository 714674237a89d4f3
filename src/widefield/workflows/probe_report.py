"""Scores of frozen features on each task, beside their floors."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from widefield.core.types import Score
from widefield.inference.features import FeatureKind
from widefield.probes.target_scores import MEASURES, TargetScore
from widefield.report.notebook import notebook_html, percents

Protocol = Literal["linear", "feature-dropout"]
AnyScore = Score | TargetScore
"""Scores of classes, or of a number or several labels."""
TaskScores = dict[str, AnyScore]
"""Task -> score."""

_COLUMNS = ("task", "linear probe %", "low", "high", "kNN %")
"""Columns of the table in Jupyter, without floors."""


@dataclass(frozen=True, kw_only=True)
class TaskProbe:
    """Scores of the encoder and the floors on one task."""

    score: Score
    wide: Score | None
    """Score of wide features, beside that of pooled ones; None for other features, without floors
    and for encoders without stages."""
    classes: tuple[str, ...]
    floor: dict[str, Score]
    """Scores of the same probe on raw `pixels`, on a `random` encoder of the architecture, of the
    better of its usual initializations and the better of its pooled and wide features, and of
    the `majority` class."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        floor = {name: score.accuracy for name, score in self.floor.items()}
        recall = dict(zip(self.classes, self.score.recall, strict=True))
        wide = None if self.wide is None else self.wide.accuracy
        return {**asdict(self.score), "recall": recall, "wide": wide, "floor": floor}


@dataclass(frozen=True, kw_only=True)
class TargetProbe:
    """Scores of the encoder and the floors on a number, or several labels, of each example."""

    score: TargetScore
    wide: TargetScore | None
    """Score of wide features, as in `TaskProbe`."""
    floor: dict[str, TargetScore]
    """Scores of the same probe on raw `pixels` and on the best `random` encoder, and of predicting
    the `mean` of the training examples."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        floor = {name: score.to_json() for name, score in self.floor.items()}
        wide = None if self.wide is None else self.wide.accuracy
        return {**self.score.to_json(), "wide": wide, "floor": floor}


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Scores on every task, and what they were measured on."""

    encoder: str
    protocol: Protocol
    features: FeatureKind
    views: str | None
    """Policy that augmented the training images; None if they were plain."""
    fitted_on: str
    scored_on: str
    train_test_overlap: int
    """Number of test images that the encoder was trained on, without their labels."""
    notes: tuple[str, ...]
    """Overlap of training and test examples, which weights these are, and what was skipped in
    reading the images."""
    tasks: dict[str, TaskProbe]
    """Tasks of classes."""
    targets: dict[str, TargetProbe]
    """Tasks of a number, or of several labels, of each example."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        tasks = {task: probe.to_json() for task, probe in self.tasks.items()}
        targets = {task: probe.to_json() for task, probe in self.targets.items()}
        return {**vars(self), "notes": list(self.notes), "tasks": tasks, "targets": targets}

    def _repr_html_(self) -> str:
        """Return the scores as a table, for Jupyter."""
        rows = [
            [
                name,
                *percents(task.score.accuracy, task.score.low, task.score.high, task.score.knn),
                *percents(*(floor.accuracy for floor in task.floor.values())),
            ]
            for name, task in self.tasks.items()
        ] + [
            [
                f"{name} ({MEASURES[target.score.kind]})",
                *percents(*target.score.score),
                "",
                *percents(*(floor.accuracy for floor in target.floor.values())),
            ]
            for name, target in self.targets.items()
        ]
        last = " or ".join(["majority"] * bool(self.tasks) + ["mean"] * bool(self.targets))
        has_floors = bool(rows) and len(rows[0]) > len(_COLUMNS)
        floors = [f"{name} %" for name in ("pixels", "random", last)] * has_floors
        columns = [*_COLUMNS, *floors]
        title = f"{self.encoder}, {self.features} features, scored on {self.scored_on}"
        return notebook_html(title, columns, rows, self.notes)
