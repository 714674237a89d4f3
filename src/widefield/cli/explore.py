"""`widefield explore`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("explore")
def explore(*, out: Path, tables: Path | None = None, json: Json = False, **arguments: Any) -> None:
    """Write the page, and print what was found."""
    from widefield.workflows.explore import explore as call

    notes = Notes()
    found = call(**arguments, out=out, tables=tables, on_note=notes.on_note)
    lines = [f"{out}: {len(found.dataset)} {found.dataset.kind}"]
    if tables is not None:
        lines.insert(0, f"{tables}: {', '.join(found.data_tables())}")
    print_result(found, notes, *lines, json=json, out=out, tables=tables)
