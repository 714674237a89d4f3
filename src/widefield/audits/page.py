"""The HTML page of an audit: verdicts, advice, and figures that explain them.

The page is a function of the `Audit` alone.
"""

from collections.abc import Mapping

import numpy as np

from widefield.audits.planting import GRAPH_NEIGHBORS
from widefield.audits.result import Audit, advice
from widefield.audits.stage_map import SIDES
from widefield.audits.verdict import TaskAudit
from widefield.inference.pictures import sound_of
from widefield.metrics import DIAGNOSTICS
from widefield.probes.floors import FLOORS
from widefield.probes.outcome import score_text
from widefield.probes.paired import percent
from widefield.probes.verdicts import SHARE_VERDICTS, ShareVerdict
from widefield.report import (
    AudioRows,
    AuditReport,
    Bars,
    Figure,
    Gallery,
    HeatMap,
    Lines,
    ScatterPlot,
    TaskVerdict,
)

# Chosen by hand, as `_MAX_LINES`: what is legible without zooming.
_LAYERS = 12
"""Largest number of layers in the figure of activations."""
_GRADE_RANGE = {
    "images": "small, faint and colorful (1) to large, opaque, white and always at one position",
    "sounds": "far below the sound (1) to as loud as it",
}
"""The first and last grade of planted features."""
_GRIDS = {str(side): f"{side} x {side}" for side in SIDES}
_MAX_LINES = 4
"""Largest number of curves that are legible in one figure."""
_Y_RANGE = (0, 1.03)
"""Limits of an axis of shares; a curve at 1 stays visible."""


def audit_page(result: Audit) -> str:
    """Return the page of `result` as HTML; the same audit gives the same text."""
    return AuditReport(
        title=_title(result),
        summary=summary(result),
        notes=[f"Note: {note}." for note in result.notes],
        verdicts=_rows(result),
        next_steps=advice(result),
        example=_one(result),
        figures=[
            *_by_stage(result),
            *(effects.figure() for effects in result.explanations.values()),
            *_over_training(result),
            *_by_grade(result),
            _spectrum(result),
            *_activations(result),
            _neighbors(result),
            *_map(result),
        ],
        diagnostics=[
            (
                name.replace("_", " "),
                "not defined" if value is None else f"{value:.3g}",
                DIAGNOSTICS[name].meaning.replace("image", _one(result)),
            )
            for name, value in result.features.items()
        ],
        metadata={
            "fitted on": f"{result.fitted_on}, {result.examples[0]} {result.kind}",
            "scored on": f"{result.scored_on}, {result.examples[1]} {result.kind}",
            **{
                f"linear CKA with {name}": percent(share)
                for name, share in result.similarity.items()
            },
            **{
                f"without labels, against {name}": found.lines()[0]
                for name, found in result.comparisons.items()
            },
            "seed": str(result.seed),
            "widefield": result.widefield,
            **result.machine,
        },
    ).html()


_TEMPLATES: Mapping[ShareVerdict, str] = {
    "learned": "learned {}",
    "hidden": "hides {} from a linear probe",
    "weakened": "weakened {}",
    "lost": "lost {}",
    "not learned": "did not learn {}",
    "unclear": "leaves {} unclear",
    "easy": "has {}, which raw features have too",
    "not separable": "cannot be judged on {}",
}
"""What an encoder did with the tasks of a verdict."""


def _title(result: Audit) -> str:
    groups = _by_verdict(result.tasks)
    parts = [_TEMPLATES[word].format(" and ".join(names)) for word, names in groups.items()]
    return f"{result.encoder} {', '.join(parts)}"


def summary(result: Audit) -> str:
    """Return which tasks are learned, hidden, weakened and lost, one sentence for each encoder."""
    if not result.compared:
        text = _grouped(result.tasks)
        return f"{text[:1].upper()}{text[1:]}."
    rows = {result.encoder: result.tasks, **result.compared}
    return " ".join(f"{name}, {_grouped(row)}." for name, row in rows.items())


def _by_verdict(tasks: Mapping[str, TaskAudit]) -> dict[ShareVerdict, list[str]]:
    groups = {
        word: [name for name, task in tasks.items() if task.verdict == word]
        for word in SHARE_VERDICTS
    }
    return {word: names for word, names in groups.items() if names}


def _grouped(tasks: Mapping[str, TaskAudit]) -> str:
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in _by_verdict(tasks).items())


def _rows(result: Audit) -> list[TaskVerdict]:
    rows = {result.encoder: result.tasks, **result.compared}
    return [
        TaskVerdict(
            task=tasks[name].title,
            encoder=encoder,
            word=tasks[name].describe(),
            learned=tasks[name].learned_interval,
            no_bar=_no_bar(tasks[name]),
            numbers=_numbers(tasks[name]),
        )
        for name in result.tasks
        for encoder, tasks in rows.items()
        if name in tasks
    ]


def _by_stage(result: Audit) -> list[HeatMap]:
    return [
        HeatMap(
            title=f"Where is {name}?",
            caption=f"Linear-probe {task.measure}{' in %' if task.measure == 'accuracy' else ''} "
            "from the map of each stage, first to last, averaged over a grid; the small number is "
            "that of the untrained network.",
            rows=list(dict.fromkeys(cell.partition("@")[0] for cell in task.stages)),
            columns=list(_GRIDS.values()),
            cells={_stage_and_grid(cell): _clipped(values) for cell, values in task.stages.items()},
            reference="untrained",
            in_percent=task.measure == "accuracy",
        )
        for name, task in result.tasks.items()
        if task.stages
    ]


def _stage_and_grid(cell: str) -> tuple[str, str]:
    """Return row and column of a stage and grid, such as `s3@4`; without a grid it is 1 x 1."""
    stage, _, side = cell.partition("@")
    return stage, _GRIDS[side or "1"]


def _clipped(values: Mapping[str, float]) -> tuple[float, float, float, float]:
    # R^2 may be negative, which is drawn as 0.
    accuracy, low, high, untrained = (
        max(0, values[name]) for name in ("accuracy", "low", "high", "untrained")
    )
    return accuracy, low, high, untrained


def _over_training(result: Audit) -> list[Figure]:
    rows = result.checkpoints
    tasks = [
        task
        for task in next(iter(rows.values()), ())
        if any(row[task].learned is not None for row in rows.values())
    ]
    if not tasks:
        return []
    return [
        Lines(
            title="When was it learned?",
            caption="Learned share of each task at every checkpoint. A feature whose curve rises "
            "and falls again was lost later in training.",
            series={
                task: (list(rows), [row[task].share for row in rows.values()])
                for task in tasks[:_MAX_LINES]
            },
            x_label="epoch",
            y_label="learned",
            y_range=_Y_RANGE,
        )
    ]


def _by_grade(result: Audit) -> list[Figure]:
    figures: list[Figure] = []
    learned = {
        name: (range(1, len(plant.grades) + 1), [grade.share for grade in plant.grades])
        for name, plant in result.plants.items()
        if any(grade.learned is not None for grade in plant.grades)
    }
    if learned:
        figures.append(
            Lines(
                title="How easy must a planted feature be?",
                caption=f"Learned share of each plant, from {_GRADE_RANGE[result.kind]} (5). The "
                "earlier a curve rises, the more sensitive the encoder is. Grades without a value "
                "are not separable: too faint for the ceiling, or predictable from raw pixels.",
                series=learned,
                x_label="ease",
                y_label="learned",
                y_range=_Y_RANGE,
            )
        )
    if result.plants:
        figures.append(
            Lines(
                title=f"Do plants hide the {result.kind}?",
                caption=f"Share of the {GRAPH_NEIGHBORS} nearest neighbors of each {_one(result)} "
                f"that stay the same when all {result.kind} get a plant. It is low where features "
                "depend on the plant alone.",
                series={
                    name: (range(1, len(plant.grades) + 1), plant.neighbors_kept)
                    for name, plant in result.plants.items()
                },
                x_label="ease",
                y_label="neighbors kept",
                y_range=_Y_RANGE,
            )
        )
    return figures


def _spectrum(result: Audit) -> Figure:
    return Lines(
        title="How many directions do the features use?",
        caption="Singular values of the centered features, over the largest one. If they decrease "
        "early, the features vary in few directions; if the curve is flat, in many.",
        series={
            "singular values": (
                range(1, len(result.pictures.spectrum) + 1),
                result.pictures.spectrum,
            )
        },
        x_label="direction",
        y_label="relative to the largest",
        log_scale=True,
    )


def _activations(result: Audit) -> list[Figure]:
    if not result.pictures.firing:
        return []
    layers = list(result.pictures.firing)
    indices = np.unique(np.linspace(0, len(layers) - 1, _LAYERS).round().astype(int))
    return [
        Bars(
            title="How often are neurons active?",
            caption=f"Share of {result.kind} on which a neuron is active, mean over each layer, "
            f"first to last. The features of sparse layers occur in few {result.kind}.",
            shares={layers[i]: result.pictures.firing[layers[i]] for i in indices},
        )
    ]


def _neighbors(result: Audit) -> Figure:
    if result.pictures.sounds:
        return AudioRows(
            title="Which sounds have similar features?",
            caption="The first sound of each row and its nearest neighbors by the features, with "
            "log-mel spectrograms. What they share is what the encoder represents.",
            rows=[list(map(sound_of, row.names, row.wavs)) for row in result.pictures.sounds],
        )
    return Gallery(
        title=f"Which {result.kind} have similar features?",
        caption=f"The {_one(result)} on the left, framed, and its nearest neighbors by the "
        "features. What they share is what the encoder represents.",
        rows=[(row.name, row.pictures) for row in result.pictures.neighbors],
        separate_first=True,
    )


def _map(result: Audit) -> list[Figure]:
    if result.pictures.map is None:
        return []
    caption = (
        f"t-SNE of the features: {result.kind} with similar features are near each other, and "
        f"distances between far groups mean nothing. Point at a dot to see its {_one(result)}"
    )
    if result.pictures.map.task is not None:
        caption += (
            f"; colors are the classes of `{result.pictures.map.task}`, and repeat after four"
        )
    return [
        ScatterPlot(
            title=f"A map of the {result.kind}",
            caption=f"{caption}.",
            points=result.pictures.map.places,
            images=result.pictures.map.pictures,
            names=result.pictures.map.names,
            groups=result.pictures.map.groups,
        )
    ]


def _one(result: Audit) -> str:
    return result.kind.removesuffix("s")


def _no_bar(task: TaskAudit) -> str:
    """Return why a task has no learned share, or where its feature is."""
    if task.verdict in ("hidden", "lost"):
        return task.stage_text()
    return "the ceiling is not significantly above the floor"


def _numbers(task: TaskAudit) -> str:
    probe = score_text(task.accuracy, task.measure, task.low, task.high)
    floor, ceiling = (score_text(x, task.measure) for x in (task.floor, task.ceiling))
    knn = "" if task.knn is None else f", kNN {100 * task.knn:.1f} %"
    classes = f"; {task.classes} classes" if task.classes else f"; {task.measure}"
    return (
        f"linear probe {probe}{knn}; floor {floor} ({FLOORS[task.floor_of]}), ceiling {ceiling}"
        f"{classes}" + ("" if task.best_stage is None else f"; {task.stage_text()}")
    )
