"""The result of an audit, and its JSON."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from widefield.audits.pictures import Pictures
from widefield.audits.planting import PlantAudit
from widefield.audits.verdict import TaskAudit
from widefield.audits.view_effects import ViewEffects
from widefield.core.files import check_plain_file
from widefield.core.types import Kind
from widefield.core.validation import check
from widefield.probes.comparison import Comparison
from widefield.report.tables import notebook_html, percents

LARGEST = 2**28
"""Largest size of an audit's file, bytes."""
_FORMAT = 4
"""Version of the JSON."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Results of an audit, and what its figures are drawn from.

    `audit_page(audit)` depends on nothing else.

    Example (of minutes, in docs/tutorials/audit.ipynb)::

        found = widefield.audit("weights.safetensors", "photos", out="audit.html")
        print(found.tasks["class"].line(), found.plants["digits"].line())
    """

    encoder: str
    settings: Mapping[str, Any]
    """Name -> value of the recipe of the run that trained the encoder; empty if it is no run."""
    fitted_on: str
    scored_on: str
    examples: tuple[int, int]
    """Numbers of examples that probes were fitted on, and scored on."""
    tasks: Mapping[str, TaskAudit]
    """The data's own tasks, then the planted ones at their middle grade."""
    plants: Mapping[str, PlantAudit]
    explanations: Mapping[str, ViewEffects]
    """Task that is not learned -> which component of the views removes its feature."""
    wide_probe: str | None
    """Command that probes the wide readout; None for what only Python can name."""
    compared: Mapping[str, Mapping[str, TaskAudit]]
    """Other encoder -> its verdicts on the same data."""
    similarity: Mapping[str, float]
    """Other encoder -> linear CKA of its features with this encoder's, on the images scored."""
    comparisons: Mapping[str, Comparison]
    """Other encoder -> the comparison with it without labels, on images scored."""
    checkpoints: Mapping[int, Mapping[str, TaskAudit]]
    """Epoch -> verdicts of the encoder after it."""
    features: Mapping[str, float | None]
    """Diagnostics of the features of the images scored; None where one is not defined."""
    notes: tuple[str, ...]
    """What may limit the verdicts."""
    seed: int
    widefield: str
    """Version of widefield."""
    machine: Mapping[str, str]
    pictures: Pictures = field(repr=False)
    report: Path | None
    """The page that was written."""
    kind: Kind = "images"
    """Kind of the data."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield audit --json` prints them."""
        values = asdict(self)
        values |= values.pop("pictures")
        return json.loads(json.dumps({"format": _FORMAT, **values}, default=os.fspath))

    def _repr_html_(self) -> str:
        """Return the verdicts as a table, for Jupyter."""
        rows = [
            [task.title, task.verdict, *percents(task.accuracy, task.knn, task.floor, task.ceiling)]
            for task in self.tasks.values()
        ]
        columns = ["task", "verdict", "linear probe %", "kNN %", "floor %", "ceiling %"]
        title = f"{self.encoder}, scored on {self.scored_on}"
        lines = [plant.line() for plant in self.plants.values()]
        return notebook_html(title, columns, rows, (*lines, *self.notes))


def read_findings(path: str | Path) -> list[str]:
    """Return the verdict on each task as a sentence, from the JSON of `widefield audit --json`.

    Raises:
        ValueError: there is no such file, or it holds no audit.
    """
    check_plain_file(Path(path), largest=LARGEST)
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {error}") from error
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise ValueError(f"{path} holds no audit: write one with widefield audit ENCODER --json")
    try:
        tasks = {name: TaskAudit(**task) for name, task in values["tasks"].items()}
        check("tasks", Mapping[str, TaskAudit], tasks)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the audit is damaged: {error}") from error
    return [task.line() for task in tasks.values()]
