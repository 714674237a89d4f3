"""`widefield audit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from widefield.cli.output import Notes, print_json, print_line, print_table
from widefield.cli.signature import Json, like
from widefield.report.tables import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from widefield.audits.result import Audit
    from widefield.audits.verdict import TaskAudit


@like("audit")
def audit(
    *, plant: str = "", out: Path | None = None, json: Json = False, **arguments: Any
) -> None:
    """Audit, and print a table of the tasks."""
    from widefield.audits.audit import audit as call

    plants = tuple(name for name in plant.split(",") if name)
    notes = Notes()
    result = call(**arguments, plant=plants, out=out, on_note=notes.on_note)
    if json:
        print_json(result.to_json())
    else:
        _print(result, out, notes)
    if out is not None and result.report is None:
        raise ValueError(f"{out} was not written: the notes say why; --json keeps an audit")


def _print(audit: "Audit", out: Path | None, notes: Notes) -> None:
    from widefield.audits.advice import advice

    for name, tasks in {audit.encoder: audit.tasks, **audit.compared}.items():
        print_table(
            f"{name}, scored on {audit.scored_on}",
            ["task", "verdict", "learned %", "linear probe %", "kNN %", "floor %", "ceiling %"],
            [_row(task) for task in tasks.values()],
        )
    for task in audit.tasks.values():
        print_line(task.line())
    for effects in audit.explanations.values():
        print_line(f"why: {effects.line()}")
    for step in advice(audit):
        print_line(f"next: {step}")
    for epoch, tasks in audit.checkpoints.items():
        values = ", ".join(f"{name} {_learned(task)}" for name, task in tasks.items())
        print_line(f"epoch {epoch}: {values}")
    for name, share in audit.similarity.items():
        print_line(f"linear CKA with {name}: {percent(share)} %")
    for name, found in audit.comparisons.items():
        print_line(f"without labels, compared with {name}: {'; '.join(found.lines())}")
    for name, tasks in audit.compared.items():
        print_line(_differences(audit.tasks, tasks, name))
    for plant in audit.plants.values():
        print_line(plant.line())
    notes.print_others(audit.notes)
    if out is not None:
        print_line(f"report: {audit.report}")


def _differences(
    tasks: "Mapping[str, TaskAudit]", others: "Mapping[str, TaskAudit]", name: str
) -> str:
    """Return on which tasks the accuracy differs significantly from another encoder's."""
    words: dict[str, list[str]] = {"higher": [], "lower": []}
    for task in sorted(tasks.keys() & others.keys()):
        found = tasks[task].difference_from(others[task])
        if found.verdict in words:
            values = f"{percent(found.before)} to {percent(found.after)} %"
            words[found.verdict].append(f"{task} ({values})")
    parts = [f"{word}: {', '.join(found) or 'none'}" for word, found in words.items()]
    return f"significant differences from {name}: {'; '.join(parts)}"


def _row(task: "TaskAudit") -> list[str]:
    return [
        task.title,
        task.verdict,
        _learned(task),
        percent(task.accuracy),
        "" if task.knn is None else percent(task.knn),
        f"{percent(task.floor)} {task.floor_of}",
        percent(task.ceiling),
    ]


def _learned(task: "TaskAudit") -> str:
    if task.learned is None or task.learned_low is None or task.learned_high is None:
        return "none"
    low, high = 100 * task.learned_low, 100 * task.learned_high
    return f"{100 * task.learned:.0f} [{low:.0f}, {high:.0f}]"
