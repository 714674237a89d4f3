"""`widefield audit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from widefield.cli.output import percent, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from widefield.audits.result import Audit
    from widefield.audits.verdict import TaskAudit


def audit(
    encoder: str,
    data: str | None = None,
    /,
    *,
    train_data: str | None = None,
    labels: Path | None = None,
    features: Literal["pooled", "feature-map", "projected"] = "pooled",
    plant: str = "",
    compare: str | None = None,
    all_checkpoints: bool = False,
    pretrain_with: str | None = None,
    max_examples: int | None = None,
    cache: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Judge what an encoder learned and what it suppressed, between floor and ceiling.

    Parameters
    ----------
    encoder
        Audit a run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Audit on these data, with or without labels; by default on those the run was trained on.
    train_data
        Fit on these data, and score on all of the others; by default one part of them is fitted on
        and another scored on.
    labels
        Take labels from this .csv file in place of those that the data have: column path and one
        for each task; examples without one of them are left out.
    features
        Judge pooled features, the feature-map before pooling, or those projected by the head that
        the run was trained with.
    plant
        Plant features, with commas between: shapes,digits,letters into images, or
        tone,clicks,background into sounds. Data without labels get shapes,digits or tone,clicks.
    compare
        Put another encoder beside this one.
    all_checkpoints
        Judge every checkpoint of the run: when was a feature learned, when suppressed?
    pretrain_with
        Pretrain by this method too, without and with each plant, which takes minutes.
    max_examples
        Fit on a class-balanced first N, and score on a quarter as many.
    cache
        Keep floors and ceilings in this folder; default: ~/.cache/widefield/audits.
    out
        Write a report to this .html file.
    overwrite
        Replace the report if it is there.
    seed
        Seed plants, probes, ceilings and intervals.
    json
        Print one JSON object: everything that the report shows.
    """
    from widefield.audits.audit import audit as call

    result = call(
        encoder,
        data,
        train_data=train_data,
        labels=labels,
        features=features,
        plant=tuple(name for name in plant.split(",") if name),
        compare=compare,
        all_checkpoints=all_checkpoints,
        pretrain_with=pretrain_with,
        max_examples=max_examples,
        cache=cache,
        out=out,
        overwrite=overwrite,
        seed=seed,
    )
    if json:
        print_json(result.to_json())
    else:
        _tell(result, out)
    if out is not None and result.report is None:
        raise ValueError(f"{out} was not written: the notes say why; --json keeps an audit")


def _tell(audit: "Audit", out: Path | None) -> None:
    for name, tasks in {audit.encoder: audit.tasks, **audit.compared}.items():
        print_table(
            f"{name}, scored on {audit.scored_on}",
            ["task", "verdict", "learned %", "probe %", "kNN %", "floor %", "ceiling %"],
            [_row(task) for task in tasks.values()],
        )
    for task in audit.tasks.values():
        print_line(task.line())
    for epoch, tasks in audit.checkpoints.items():
        shares = ", ".join(f"{name} {_learned(task)}" for name, task in tasks.items())
        print_line(f"epoch {epoch}: {shares}")
    for name, share in audit.similarity.items():
        print_line(f"features agree with those of {name} to {percent(share)} % (linear CKA)")
    for name, tasks in audit.compared.items():
        print_line(_differences(audit.tasks, tasks, name))
    for plant in audit.plants.values():
        print_line(plant.line())
    for trained in audit.trained:
        print_line(trained.line())
    for note in audit.notes:
        print_line(f"note: {note}")
    if out is not None:
        print_line(f"look at {audit.report}")


def _differences(
    tasks: "Mapping[str, TaskAudit]", others: "Mapping[str, TaskAudit]", name: str
) -> str:
    """Return on which tasks the accuracy differs significantly from another encoder's."""
    words: dict[str, list[str]] = {"higher": [], "lower": []}
    for task in sorted(tasks.keys() & others.keys()):
        found = tasks[task].difference_from(others[task])
        if found.verdict in words:
            shares = f"{percent(found.before)} to {percent(found.after)} %"
            words[found.verdict].append(f"{task} ({shares})")
    parts = [f"{word}: {', '.join(found) or 'none'}" for word, found in words.items()]
    return f"significant differences from {name}: {'; '.join(parts)}"


def _row(task: "TaskAudit") -> list[str]:
    return [
        task.task,
        task.verdict,
        _learned(task),
        percent(task.accuracy),
        percent(task.knn),
        f"{percent(task.floor)} {task.floor_of}",
        percent(task.ceiling),
    ]


def _learned(task: "TaskAudit") -> str:
    if task.learned is None or task.learned_low is None or task.learned_high is None:
        return "not separable"
    low, high = 100 * task.learned_low, 100 * task.learned_high
    return f"{100 * task.learned:.0f} [{low:.0f}, {high:.0f}]"
