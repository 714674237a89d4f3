"""`widefield audit`."""

from pathlib import Path
from typing import TYPE_CHECKING

from widefield.cli.output import percent, print_json, print_line, print_table

if TYPE_CHECKING:
    from widefield.audits.found import Audit
    from widefield.audits.verdict import TaskAudit


def audit(
    encoder: str,
    data: str | None = None,
    /,
    *,
    plant: str = "",
    compare: str | None = None,
    all_checkpoints: bool = False,
    train: str | None = None,
    limit: int | None = None,
    cache: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Say what an encoder learned and what it suppressed, between floor and ceiling.

    Parameters
    ----------
    encoder
        A run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Data to audit on, with or without labels; by default what the run was trained on.
    plant
        Features to plant into the images, with commas between: shapes,digits,letters. Without
        labels, shapes and digits are.
    compare
        Another encoder to put beside this one.
    all_checkpoints
        Judge every checkpoint of the run: when was a feature learned, when suppressed?
    train
        Also pretrain by this method, without and with each plant, which takes minutes.
    limit
        Fit on a class-balanced first N, and score on a quarter of that.
    cache
        Folder that keeps floors and ceilings; default: ~/.cache/widefield/audits.
    out
        Write a report to this .html file.
    overwrite
        Replace the report if it is there.
    seed
        Of plants, probes, ceilings and intervals.
    json
        Print one JSON object.
    """
    from widefield.audits.audit import audit as call

    found = call(
        encoder,
        data,
        plant=tuple(name for name in plant.split(",") if name),
        compare=compare,
        all_checkpoints=all_checkpoints,
        train=train,
        limit=limit,
        cache=cache,
        out=out,
        overwrite=overwrite,
        seed=seed,
    )
    if json:
        print_json(found.to_json())
    else:
        _tell(found)


def _tell(found: "Audit") -> None:
    for name, tasks in {found.encoder: found.tasks, **found.compared}.items():
        print_table(
            f"{name}, scored on {found.scored_on}",
            ["task", "verdict", "learned %", "probe %", "kNN %", "floor %", "ceiling %"],
            [_row(task) for task in tasks.values()],
        )
    for line in (one.line() for one in found.tasks.values()):
        print_line(line)
    for epoch, row in found.checkpoints.items():
        said = ", ".join(f"{task} {_learned(one)}" for task, one in row.items())
        print_line(f"epoch {epoch}: {said}")
    for name, share in found.similarity.items():
        print_line(f"features agree with those of {name} to {percent(share)} % (linear CKA)")
    for plant in found.plants.values():
        print_line(plant.line())
    for trained in found.trained:
        print_line(trained.line())
    for note in found.notes:
        print_line(f"note: {note}")
    if found.report is not None:
        print_line(f"look at {found.report}")


def _row(one: "TaskAudit") -> list[str]:
    return [
        one.task,
        one.verdict,
        _learned(one),
        percent(one.accuracy),
        percent(one.knn),
        f"{percent(one.floor)} {one.floor_of}",
        percent(one.ceiling),
    ]


def _learned(one: "TaskAudit") -> str:
    if one.learned is None or one.learned_low is None or one.learned_high is None:
        return "cannot be told"
    low, high = 100 * one.learned_low, 100 * one.learned_high
    return f"{100 * one.learned:.0f} [{low:.0f}, {high:.0f}]"
