"""Outcomes of probes on each task, beside their floors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from widefield.inference.features import FeatureKind
from widefield.probes.outcome import Outcome
from widefield.report.tables import ResultTable, TabularResult, percents


@dataclass(frozen=True, kw_only=True)
class ProbedTask:
    """Outcomes of the encoder and of the floors on one task."""

    score: Outcome
    wide: Outcome | None = None
    """Outcome of wide features, beside that of pooled ones; None for other features, without floors
    and for encoders without stages."""
    floor: dict[str, Outcome] = field(default_factory=dict)
    """Outcomes of the same probe on raw `pixels` and on a `random` encoder of the architecture, of
    the better of its usual initializations and the better of its pooled and wide features; and of
    predicting the `majority` class, or the `mean` of the training examples."""

    def to_json(self, task: str) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        found, wide = self.score.to_json(), None if self.wide is None else self.wide.value
        if self.score.measure != "accuracy":
            floors = {name: floor.to_json() for name, floor in self.floor.items()}
            return {**found, "wide": wide, "floor": floors}
        values = {name: floor.value for name, floor in self.floor.items()}
        return {"task": task, **found, "wide": wide, "floor": values}

    def rows(self, task: str) -> list[list[str]]:
        """Return the rows of the table of `ProbeReport.tables`."""
        if self.score.measure == "accuracy":
            value, low, high, knn = percents(*self.score.estimate(), self.score.knn)
            others = [*([] if self.wide is None else [self.wide]), *self.floor.values()]
            return [[task, f"{value}  [{low}, {high}]", knn, *percents(*(x.value for x in others))]]
        has_parts = self.score.measure != "R2"
        rows = [self._row(f"{task}: {self.score.measure}", self.score, self.wide, self.floor)]
        for name, part in self.score.parts.items():
            floors = {f: x.parts[name] for f, x in self.floor.items()}
            title = f"  {name}" if has_parts else f"{task}: {name}"
            rows.append(self._row(title, part, None, floors))
        return rows

    def _row(
        self, title: str, score: Outcome, wide: Outcome | None, floors: dict[str, Outcome]
    ) -> list[str]:
        value, low, high = (f"{x:.4g}" for x in score.estimate())
        digits = ".4g" if score.measure == "mean absolute error" else ".3f"
        cells = [] if self.wide is None else ["" if wide is None else f"{wide.value:.3f}"]
        others = [f"{floor.value:{digits}}" for floor in floors.values()]
        return [title, f"{value}  [{low}, {high}]", *cells, *others]

    def line(self, task: str) -> str:
        """Return the balanced accuracy of a task of classes, and its lowest recall."""
        recall = {name: part.value for name, part in self.score.parts.items() if len(part)}
        worst = min(recall, key=recall.__getitem__)
        balanced, lowest = percents(self.score.balanced, recall[worst])
        return f"{task}: balanced accuracy {balanced} %, lowest recall {lowest} % ({worst})"


@dataclass(frozen=True, kw_only=True, repr=False)
class ProbeReport(TabularResult):
    """Outcomes on every task, and what they were measured on."""

    encoder: str
    features: FeatureKind
    fitted_on: str
    scored_on: str
    train_test_overlap: int
    """Number of test images that the encoder was trained on, without their labels."""
    notes: tuple[str, ...]
    """Overlap of training and test examples, which weights these are, and what was skipped in
    reading the images."""
    tasks: dict[str, ProbedTask]
    """Tasks of classes, then those of a number, or of several labels, of each example."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        classes, targets = (
            {name: task.to_json(name) for name, task in part.items()} for part in self._by_measure()
        )
        return {
            "encoder": self.encoder,
            "protocol": "linear",
            "features": self.features,
            "views": None,
            "fitted_on": self.fitted_on,
            "scored_on": self.scored_on,
            "train_test_overlap": self.train_test_overlap,
            "notes": list(self.notes),
            "tasks": classes,
            "targets": targets,
        }

    def _by_measure(self) -> tuple[dict[str, ProbedTask], dict[str, ProbedTask]]:
        """Return the tasks of classes, and the others."""
        classes = {n: t for n, t in self.tasks.items() if t.score.measure == "accuracy"}
        return classes, {n: t for n, t in self.tasks.items() if n not in classes}

    def tables(self) -> list[ResultTable]:
        """Return the outcomes of classes, and of numbers and labels, and how they were measured."""
        title = f"{self.encoder}, scored on {self.scored_on}"
        heads = (
            (["task", "linear-probe accuracy %  [95 %]", "kNN accuracy %"], " %"),
            (["target", "ridge probe  [95 %]"], ""),
        )
        tables = [
            ResultTable(
                title=title,
                columns=_columns(tasks, *head),
                rows=[row for name, task in tasks.items() for row in task.rows(name)],
            )
            for tasks, head in zip(self._by_measure(), heads, strict=True)
            if tasks
        ]
        return [*tables, ResultTable(lines=self._lines())]

    def _lines(self) -> list[str]:
        selection = "L2 strength chosen on a fifth of these"
        count = self.train_test_overlap
        return [
            *(task.line(name) for name, task in self._by_measure()[0].items()),
            f"{self.features} features, fitted on {self.fitted_on}; {selection}",
            *(
                [f"{count} of the scored images were in the encoder's training data"]
                if count
                else ()
            ),
        ]


def _columns(tasks: dict[str, ProbedTask], first: Sequence[str], unit: str) -> list[str]:
    task = next(iter(tasks.values()))
    wide = [] if task.wide is None else [f"wide features{unit}"]
    return [*first, *wide, *(f"floor: {name}{unit}" for name in task.floor)]
