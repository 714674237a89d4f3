"""Verdicts on the tasks of some data, by the floors and ceilings of the encoder's architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from widefield.audits.bounds import AuditOptions, Bounds, graded_bounds, probe_tasks
from widefield.audits.stage_map import StageOutcomes, stage_outcomes
from widefield.audits.verdict import TaskAudit, audit_task
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.probes.outcome import Outcome

# Chosen by hand.
NUM_SEEDS = 3
"""Untrained encoders of each initialization where a verdict is unclear."""
_DECIDED = ("learned", "hidden", "easy")
"""Verdicts that the wide readout cannot change."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Data, and what all encoders of one architecture are measured against on it."""

    data: TrainTest
    bounds: Mapping[str, Bounds]
    """Task -> floors and ceiling."""
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
    found: list[tuple[Reference, dict[str, TaskAudit]]] = []
    for num_seeds in (1, NUM_SEEDS):
        by_task = {
            task: graded_bounds(
                extractor, [grade.only(task) for grade in grades], options, num_seeds=num_seeds
            )
            for task in grades[0].tasks
        }
        references = [
            Reference(
                data=grade,
                bounds={task: bounds[i] for task, bounds in by_task.items()},
                stages=stages if i == middle else {},
            )
            for i, grade in enumerate(grades)
        ]
        found = [(x, audit_tasks(extractor, x, seed=options.seed)) for x in references]
        if all(task.verdict != "unclear" for _, tasks in found for task in tasks.values()):
            break
    return found


def audit_tasks(
    extractor: FeatureExtractor, reference: Reference, *, seed: int
) -> dict[str, TaskAudit]:
    """Return the verdict on every task of the data.

    Stages of the encoder are measured if those of the untrained network were, and its wide readout
    too where they do not decide.
    """
    data = reference.data
    if not data.tasks:
        return {}
    stages: StageOutcomes = {}
    if reference.stages:
        encoder = replace(extractor, kind="pooled").build(data.train.images)
        stages = stage_outcomes(encoder, data, seed=seed)
    outcomes = probe_tasks(extractor.features, data, seed=seed)

    def judged(task: str, wide: Outcome | None = None) -> TaskAudit:
        return audit_task(
            task,
            outcomes[task],
            reference.bounds[task].floors,
            reference.bounds[task].ceiling,
            classes=data.class_counts.get(task, 0),
            stages={
                cell: (found[task], reference.stages[cell][task])
                for cell, found in stages.items()
                if cell in reference.stages
            },
            wide=wide,
            seed=seed,
        )

    found = {task: judged(task) for task in outcomes}
    # Fitting the readout takes long, and where stages decide it changes nothing.
    open_tasks = [t for t, f in found.items() if f.stages and f.verdict not in _DECIDED]
    wide = _wide_outcomes(extractor, data, open_tasks, seed=seed)
    return found | {task: judged(task, outcome) for task, outcome in wide.items()}


def _wide_outcomes(
    extractor: FeatureExtractor, data: TrainTest, tasks: Sequence[str], *, seed: int
) -> dict[str, Outcome]:
    """Return the outcomes of a wide readout that is fitted on `data`, as those of the floors are.

    It is empty where the features audited are wide.
    """
    if not tasks or extractor.kind == "wide":
        return {}
    wide = replace(extractor, kind="wide", readout=None).with_readout(data.train)
    return probe_tasks(wide.features, data.only(*tasks), seed=seed)


def _untrained_stages(extractor: FeatureExtractor, data: TrainTest, *, seed: int) -> StageOutcomes:
    if extractor.name == "pixels" or not data.tasks:
        return {}
    encoder = replace(extractor, kind="pooled").untrained_encoders(data.train.images)[0]
    return stage_outcomes(encoder, data, seed=seed)
