"""`widefield explore`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line
from widefield.cli.signature import Json, like
from widefield.core.names import counted
from widefield.report.tables import percent


@like("explore")
def explore(*, out: Path, tables: Path | None = None, json: Json = False, **arguments: Any) -> None:
    """Write the page, and print what was found."""
    from widefield.workflows.explore import explore as call

    notes = Notes()
    found = call(**arguments, out=out, tables=tables, on_note=notes.on_note)
    values = found.to_json()
    if json:
        folder = None if tables is None else str(tables)
        print_json({**values, "out": str(out), "tables": folder})
        return
    notes.print_others(found.notes)
    print_line(
        f"{counted(values['clusters'], 'cluster')}, "
        f"{counted(values['duplicate_groups'], 'group')} of near-duplicates, "
        f"{counted(values['outliers'], 'outlier')}"
    )
    poor = [f"{count} {name}" for name, count in values["quality"].items() if count]
    if poor:
        print_line(f"image quality: {', '.join(poor)}")
    for task, info in values["suspected_labels"].items():
        print_line(
            f"{task}: {counted(info['count'], 'label')} to check; kNN accuracy "
            f"{percent(info['neighbors_agree'])} % on {found.checked(task)}"
        )
    if tables is not None:
        print_line(f"{tables}: {', '.join(found.tables())}")
    print_line(f"{out}: {values['examples']} {found.dataset.kind}")
