"""An audit as one page: the verdicts in words, what to try, then figures that explain them.

The page is a function of the `Audit` alone, so that it can be drawn again from the audit's JSON.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from widefield.audits.advice import advice
from widefield.audits.planting import GRAPH_NEIGHBORS
from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit
from widefield.core.files import checked_output
from widefield.evaluation.floors import FLOORS
from widefield.inference.pictures import sound_of
from widefield.metrics import DIAGNOSTICS
from widefield.report import (
    AudioRows,
    AuditReport,
    Bars,
    Figure,
    Gallery,
    Lines,
    Recording,
    ScatterPlot,
    TaskVerdict,
    write_page,
)

_LAYERS = 12
"""Most layers whose firing is shown."""
_EASE = {
    "images": "small, faint and colorful (1) to large, opaque, white and always at one place",
    "sounds": "far below the sound (1) to as loud as it",
}
"""What the ends of the grades of planted features are like."""
_CURVES = 4
"""Most curves that a reader can tell apart in one figure."""


def audit_page(audit: Audit) -> str:
    """Return the page of `audit` as HTML; the same audit gives the same text."""
    return AuditReport(
        title=f"widefield audit of {audit.encoder}",
        summary=summary(audit),
        notes=[f"Note: {note}." for note in audit.notes],
        verdicts=_verdicts(audit),
        next_steps=advice(audit),
        example=_one(audit),
        figures=[
            *_over_training(audit),
            *_plants(audit),
            *_trained(audit),
            _spectrum(audit),
            *_firing(audit),
            *_galleries(audit),
            *_map(audit),
        ],
        diagnostics=[
            (
                name.replace("_", " "),
                _number(value),
                DIAGNOSTICS[name].meaning.replace("image", _one(audit)),
            )
            for name, value in audit.features.items()
        ],
        metadata=_facts(audit),
    ).html()


def write_audit_page(audit: Audit, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the page of `audit` to the `.html` file `out`.

    Raises:
        ValueError: `out` cannot be written; the message says why.
    """
    path = checked_output(out, (".html",), overwrite=overwrite)
    return write_page(audit_page(audit), path, overwrite=overwrite)


def summary(audit: Audit) -> str:
    """Say which tasks are learned, weakened and suppressed, in one sentence an encoder."""
    if not audit.compared:
        verdicts = _grouped(audit.tasks)
        return f"{verdicts[:1].upper()}{verdicts[1:]}."
    rows = {audit.encoder: audit.tasks, **audit.compared}
    return " ".join(f"{name}, {_grouped(row)}." for name, row in rows.items())


def _grouped(tasks: Mapping[str, TaskAudit]) -> str:
    groups = {
        word: [name for name, task in tasks.items() if task.verdict == word]
        for word in ("learned", "weakened", "suppressed", "unclear", "not separable")
    }
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in groups.items() if names)


def _verdicts(audit: Audit) -> list[TaskVerdict]:
    encoders = {audit.encoder: audit.tasks, **audit.compared}
    return [
        TaskVerdict(
            task=name,
            encoder=encoder,
            word=tasks[name].words(),
            learned=_interval(tasks[name]),
            numbers=_numbers(tasks[name]),
        )
        for name in audit.tasks
        for encoder, tasks in encoders.items()
        if name in tasks
    ]


def _facts(audit: Audit) -> dict[str, str]:
    return {
        "fitted on": f"{audit.fitted_on}, {audit.examples[0]} {audit.kind}",
        "scored on": f"{audit.scored_on}, {audit.examples[1]} {audit.kind}",
        **{
            f"agrees with {name}": f"{100 * share:.0f} % by linear CKA of the features"
            for name, share in audit.similarity.items()
        },
        "seed": str(audit.seed),
        "widefield": audit.widefield,
        **audit.machine,
    }


def _over_training(audit: Audit) -> list[Figure]:
    epochs = list(audit.checkpoints)
    tasks = [
        task
        for task in (audit.checkpoints[epochs[0]] if epochs else ())
        if any(audit.checkpoints[epoch][task].learned is not None for epoch in epochs)
    ]
    if not tasks:
        return []
    return [
        Lines(
            title="When was it learned?",
            caption="Learned share of each task at every checkpoint. A curve that rises and falls "
            "again was suppressed by what came later.",
            series={
                task: (epochs, [_share(audit.checkpoints[epoch][task]) for epoch in epochs])
                for task in tasks[:_CURVES]
            },
            x_label="epoch",
            y_label="learned",
            y_range=(0, 1.03),
        )
    ]


def _plants(audit: Audit) -> list[Figure]:
    learned = {
        name: (range(1, len(plant.grades) + 1), [_share(grade) for grade in plant.grades])
        for name, plant in audit.plants.items()
        if any(grade.learned is not None for grade in plant.grades)
    }
    neighbors = {
        name: (range(1, len(plant.grades) + 1), plant.neighbors_kept)
        for name, plant in audit.plants.items()
    }
    figures: list[Figure] = []
    if learned:
        figures.append(
            Lines(
                title="How easy must a planted feature be?",
                caption=f"Learned share of each plant, from {_EASE[audit.kind]} (5). The sooner a "
                "curve rises, the better the encoder sees. Gaps are not separable: too faint even "
                "for the ceiling, or plain to raw pixels.",
                series=learned,
                x_label="ease",
                y_label="learned",
                y_range=(0, 1.03),
            )
        )
    if neighbors:
        figures.append(
            Lines(
                title=f"Do plants hide the {audit.kind}?",
                caption=f"Share of the {GRAPH_NEIGHBORS} nearest neighbors of each {_one(audit)} "
                f"that stay the same when all {audit.kind} get a plant. Low where the encoder looks "
                "at plants alone.",
                series=neighbors,
                x_label="ease",
                y_label="neighbors kept",
                y_range=(0, 1.03),
            )
        )
    return figures


def _trained(audit: Audit) -> list[Figure]:
    return [
        Bars(
            title=f"What does {trained.plant} do to training?",
            caption=f"Learned share after {trained.epochs} epochs of {trained.method}, on the "
            f"{audit.kind} as they are and with the plant in each. A task that loses by the plant "
            "is suppressed by it.",
            shares={
                f"{task}, {shown}": tasks[task].learned or 0.0
                for task in trained.planted
                for shown, tasks in (
                    ("as they are", trained.without),
                    ("planted", trained.planted),
                )
                if tasks[task].learned is not None
            },
        )
        for trained in audit.trained
    ]


def _spectrum(audit: Audit) -> Figure:
    return Lines(
        title="How many directions do the features use?",
        caption="Singular values of the centered features, as shares of the largest. A line that "
        "falls off early says that a few directions carry everything; a flat one, that many do.",
        series={"singular values": (range(1, len(audit.spectrum) + 1), audit.spectrum)},
        x_label="direction",
        y_label="share of the largest",
        log_scale=True,
    )


def _firing(audit: Audit) -> list[Figure]:
    if not audit.firing:
        return []
    layers = list(audit.firing)
    shown = np.unique(np.linspace(0, len(layers) - 1, _LAYERS).round().astype(int))
    return [
        Bars(
            title="How often do neurons fire?",
            caption=f"Share of {audit.kind} on which a neuron is active, mean over each layer, "
            f"first to last. Sparse layers hold features that few {audit.kind} have.",
            shares={layers[i]: audit.firing[layers[i]] for i in shown},
        )
    ]


def _alike(audit: Audit) -> Figure:
    if audit.sounds:
        return AudioRows(
            title="Which sounds are alike to it?",
            caption="The first of each row is a sound, the others are those nearest to it in the "
            "encoder's ears, by their log-mel spectrograms. What they share is what it hears.",
            rows=[
                [
                    sound_of(Recording(name=name, wav=wav))
                    for name, wav in zip(row.names, row.wavs, strict=True)
                ]
                for row in audit.sounds
            ],
        )
    article = "an" if audit.kind == "images" else "a"
    return Gallery(
        title=f"Which {audit.kind} look alike to it?",
        caption=f"On the left {article} {_one(audit)}, framed; beside it the {audit.kind} nearest "
        "to it in the encoder's eyes. What they share is what it sees.",
        rows=[(row.name, row.pictures) for row in audit.neighbors],
        separate_first=True,
    )


def _galleries(audit: Audit) -> list[Figure]:
    if not audit.preferred:
        return [_alike(audit)]
    return [
        _alike(audit),
        Gallery(
            title="What do its features want to see?",
            caption="Framed, an image made to excite one of the features that vary most; beside it "
            "the real images that excite that feature most.",
            rows=[(row.name, row.pictures) for row in audit.preferred],
            separate_first=True,
        ),
    ]


def _map(audit: Audit) -> list[Figure]:
    if audit.map is None:
        return []
    how = (
        f"{audit.kind.capitalize()} near each other are alike to the encoder (t-SNE); point at a "
        f"dot to see its {_one(audit)}. Distances between far groups mean nothing"
    )
    if audit.map.task is not None:
        how += f"; colors stand for the classes of `{audit.map.task}`, and repeat after four"
    return [
        ScatterPlot(
            title=f"A map of the {audit.kind}",
            caption=f"{how}.",
            points=audit.map.places,
            images=audit.map.pictures,
            names=audit.map.names,
            groups=audit.map.groups,
        )
    ]


def _one(audit: Audit) -> str:
    """Return what one of the examples is called."""
    return audit.kind.removesuffix("s")


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3g}"


def _share(task: TaskAudit) -> float:
    return float("nan") if task.learned is None else task.learned


def _interval(task: TaskAudit) -> tuple[float, float, float] | None:
    if task.learned is None or task.learned_low is None or task.learned_high is None:
        return None
    return task.learned, task.learned_low, task.learned_high


def _numbers(task: TaskAudit) -> str:
    floor = f"{100 * task.floor:.1f} % ({FLOORS[task.floor_of]})"
    return (
        f"probe {100 * task.accuracy:.1f} % [{100 * task.low:.1f}, {100 * task.high:.1f}], nearest "
        f"neighbors {100 * task.knn:.1f} %; floor {floor}, ceiling {100 * task.ceiling:.1f} %; "
        f"{task.classes} classes"
    )
