"""What an audit found, as its callers, its page and its command read it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widefield.audits.planting import PlantAudit, TrainAudit
from widefield.audits.verdict import TaskAudit
from widefield.train.hardware import choose_device, machine


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found, in the order in which it is told."""

    encoder: str
    fitted_on: str
    scored_on: str
    examples: tuple[int, int]
    """Images that probes were fitted on, and scored on."""
    tasks: dict[str, TaskAudit]
    """The data's own tasks, then the planted ones at their middle grade."""
    plants: dict[str, PlantAudit]
    trained: tuple[TrainAudit, ...]
    """Short pretrainings with and without each plant."""
    compared: dict[str, dict[str, TaskAudit]]
    """Other encoder -> its verdicts on the same data."""
    similarity: dict[str, float]
    """Other encoder -> linear CKA of its features with ours, on the images scored."""
    checkpoints: dict[int, dict[str, TaskAudit]]
    """Epoch -> verdicts of the encoder as of then."""
    features: dict[str, float | None]
    """Diagnostics of the features of the images scored; None where one is not defined."""
    notes: tuple[str, ...]
    seed: int
    report: Path | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `widefield audit --json` prints them."""
        return {
            "encoder": self.encoder,
            "fitted_on": self.fitted_on,
            "scored_on": self.scored_on,
            "tasks": _plain(self.tasks),
            "plants": {name: found.to_json() for name, found in self.plants.items()},
            "trained": [found.to_json() for found in self.trained],
            "compared": {name: _plain(row) for name, row in self.compared.items()},
            "similarity": self.similarity,
            "checkpoints": {str(epoch): _plain(row) for epoch, row in self.checkpoints.items()},
            "features": self.features,
            "notes": list(self.notes),
            "seed": self.seed,
            "machine": machine(choose_device("auto")),
            "report": None if self.report is None else str(self.report),
        }


def _plain(tasks: dict[str, TaskAudit]) -> dict[str, Any]:
    return {task: found.to_json() for task, found in tasks.items()}
