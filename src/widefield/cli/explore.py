"""`widefield explore`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_result
from widefield.cli.signature import Json, like


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
    print_result(found, notes)
    if tables is not None:
        print_line(f"{tables}: {', '.join(found.data_tables())}")
    print_line(f"{out}: {values['examples']} {found.dataset.kind}")
