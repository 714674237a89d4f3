"""Verdicts on the tasks of some data, by the floors and ceilings of the encoder's architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from widefield.audits.bounds import AuditOptions, Bounds, graded_bounds, probe_tasks
from widefield.audits.stage_map import StageOutcomes, stage_outcomes
from widefield.audits.verdict import TaskAudit, audit_task
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.probes.outcome import Outcome

# Chosen by hand.
NUM_SEEDS = 3
"""Untrained encoders of each initialization where a verdict is unclear."""
_FINAL = ("learned", "hidden", "easy")
"""Verdicts that the wide readout cannot change."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Data, and what all encoders of one architecture are measured against on it."""

    data: TrainTest
    bounds: Mapping[str, Bounds]
    stages: StageOutcomes
    """Outcomes of the stages of the untrained network; empty if they were not measured."""


def audit_grades(
    extractor: FeatureExtractor,
    grades: Sequence[TrainTest],
    options: AuditOptions,
    *,
    middle: int = 0,
) -> list[tuple[Reference, dict[str, TaskAudit]]]:
    """Audit the tasks of some data, or one task at several grades.

    Where a verdict is unclear, all are audited again with more seeds of the untrained floor. Stages
    are measured on the grade `middle` alone.
    """
    stages = _untrained_stages(extractor, grades[middle], seed=options.seed)
    scores = [_EncoderScores(extractor, grade, options.seed) for grade in grades]
    found: list[tuple[Reference, dict[str, TaskAudit]]] = []
    for num_seeds in (1, NUM_SEEDS):
        bounds = graded_bounds(extractor, grades, options, num_seeds=num_seeds)
        references = [
            Reference(data=grade, bounds=bounds[i], stages=stages if i == middle else {})
            for i, grade in enumerate(grades)
        ]
        found = [(x, _audit_against(of, x)) for of, x in zip(scores, references, strict=True)]
        if all(task.verdict != "unclear" for _, tasks in found for task in tasks.values()):
            break
    return found


@dataclass(frozen=True)
class _EncoderScores:
    """What an encoder has on some data, measured once for all floors that it is compared with."""

    extractor: FeatureExtractor
    data: TrainTest
    seed: int
    _wide: dict[str, Outcome] = field(default_factory=dict)

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        return probe_tasks(self.extractor.features, self.data, seed=self.seed)

    @cached_property
    def stages(self) -> StageOutcomes:
        encoder = replace(self.extractor, kind="pooled").build(self.data.train.images)
        return stage_outcomes(encoder, self.data, seed=self.seed)

    def wide(self, tasks: Sequence[str]) -> dict[str, Outcome]:
        """Return the outcomes of a wide readout that is fitted on the data, as floors' are.

        It is empty where the features audited are wide.
        """
        if self.extractor.kind == "wide":
            return {}
        new = [task for task in tasks if task not in self._wide]
        if new:
            wide = replace(self.extractor, kind="wide", readout=None).with_readout(self.data.train)
            found = probe_tasks(wide.features, self.data.only(*new), seed=self.seed)
            self._wide.update(found)
        return {task: self._wide[task] for task in tasks}


def audit_tasks(
    extractor: FeatureExtractor, reference: Reference, *, seed: int
) -> dict[str, TaskAudit]:
    """Return the verdict on every task of the data.

    Stages of the encoder are measured if those of the untrained network were, and its wide readout
    too where they do not decide.
    """
    return _audit_against(_EncoderScores(extractor, reference.data, seed), reference)


def _audit_against(scores: _EncoderScores, reference: Reference) -> dict[str, TaskAudit]:
    data = reference.data
    if not data.tasks:
        return {}
    stages = scores.stages if reference.stages else {}

    def result_of(task: str, wide: Outcome | None = None) -> TaskAudit:
        return audit_task(
            task,
            scores.outcomes[task],
            reference.bounds[task].floors,
            reference.bounds[task].ceiling,
            classes=data.class_counts.get(task, 0),
            stages={
                cell: (found[task], reference.stages[cell][task])
                for cell, found in stages.items()
                if cell in reference.stages
            },
            wide=wide,
            seed=scores.seed,
        )

    found = {task: result_of(task) for task in scores.outcomes}
    # Fitting the readout takes long, and where stages decide it changes nothing.
    open_tasks = [t for t, f in found.items() if f.stages and f.verdict not in _FINAL]
    return found | {task: result_of(task, wide) for task, wide in scores.wide(open_tasks).items()}


def _untrained_stages(extractor: FeatureExtractor, data: TrainTest, *, seed: int) -> StageOutcomes:
    if extractor.name == "pixels" or not data.tasks:
        return {}
    encoder = replace(extractor, kind="pooled").untrained_encoders(data.train.images)[0]
    return stage_outcomes(encoder, data, seed=seed)
