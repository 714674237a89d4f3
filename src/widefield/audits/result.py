"""Everything that an audit found, as its callers, its page, its command and its file have it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widefield.audits.pictures import ImageMap, PictureRow, SoundRow
from widefield.audits.planting import PlantAudit, TrainAudit
from widefield.audits.verdict import TaskAudit
from widefield.core.files import check_plain_file
from widefield.core.types import Kind
from widefield.core.validation import check

LARGEST = 2**28
"""Bytes of an audit's file at most."""
_FORMAT = 3
"""Number of the layout of the JSON."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found: numbers first, then what pictures are drawn from.

    `audit_page(audit)` draws the page from nothing else.
    """

    encoder: str
    settings: Mapping[str, Any]
    """Name -> value of the recipe of the run that trained the encoder; empty if it is no run."""
    fitted_on: str
    scored_on: str
    examples: tuple[int, int]
    """How many images probes were fitted on, and scored on."""
    tasks: Mapping[str, TaskAudit]
    """The data's own tasks, then the planted ones at their middle grade."""
    plants: Mapping[str, PlantAudit]
    trained: tuple[TrainAudit, ...]
    """Short pretrainings with and without each plant."""
    compared: Mapping[str, Mapping[str, TaskAudit]]
    """Other encoder -> its verdicts on the same data."""
    similarity: Mapping[str, float]
    """Other encoder -> linear CKA of its features with this encoder's, on the images scored."""
    checkpoints: Mapping[int, Mapping[str, TaskAudit]]
    """Epoch -> verdicts of the encoder after it."""
    features: Mapping[str, float | None]
    """Diagnostics of the features of the images scored; None where one is not defined."""
    notes: tuple[str, ...]
    """What the reader of the verdicts should know."""
    seed: int
    widefield: str
    """Version that made the audit."""
    machine: Mapping[str, str]
    firing: Mapping[str, float]
    """Layer -> share of images on which a neuron is active, mean over its neurons."""
    spectrum: tuple[float, ...]
    """Singular values of the centered features, as shares of the largest."""
    neighbors: tuple[PictureRow, ...]
    """An image, then the images nearest to it."""
    preferred: tuple[PictureRow, ...]
    """A picture made to excite a feature, then the images that excite it most."""
    map: ImageMap | None
    """A t-SNE map of the images; None for fewer than four images."""
    report: Path | None
    """The page that was written."""
    kind: Kind = "images"
    """What was scored."""
    sounds: tuple[SoundRow, ...] = ()
    """A sound, then the sounds nearest to it; none of images and windows."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield audit --json` prints them."""
        return {
            "format": _FORMAT,
            "encoder": self.encoder,
            "settings": dict(self.settings),
            "fitted_on": self.fitted_on,
            "scored_on": self.scored_on,
            "examples": list(self.examples),
            "tasks": _tasks_to_json(self.tasks),
            "plants": {name: plant.to_json() for name, plant in self.plants.items()},
            "trained": [trained.to_json() for trained in self.trained],
            "compared": {name: _tasks_to_json(row) for name, row in self.compared.items()},
            "similarity": dict(self.similarity),
            "checkpoints": {
                str(epoch): _tasks_to_json(row) for epoch, row in self.checkpoints.items()
            },
            "features": dict(self.features),
            "notes": list(self.notes),
            "seed": self.seed,
            "widefield": self.widefield,
            "machine": dict(self.machine),
            "report": None if self.report is None else str(self.report),
            "firing": dict(self.firing),
            "spectrum": list(self.spectrum),
            "neighbors": [row.to_json() for row in self.neighbors],
            "preferred": [row.to_json() for row in self.preferred],
            "map": None if self.map is None else self.map.to_json(),
            "kind": self.kind,
            "sounds": [row.to_json() for row in self.sounds],
        }


def read_findings(path: str | Path) -> list[str]:
    """Return the verdict of each task as a sentence, from what `widefield audit --json` printed.

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


def _tasks_to_json(tasks: Mapping[str, TaskAudit]) -> dict[str, Any]:
    return {task: audit.to_json() for task, audit in tasks.items()}
