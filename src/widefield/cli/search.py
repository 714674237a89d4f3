"""`widefield search`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("search")
def search(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write the page and the table, and print the nearest examples."""
    from widefield.workflows.search import search as call
    from widefield.workflows.search import table_of

    notes = Notes()
    found = call(**arguments, out=out, on_note=notes.on_note)
    line = f"{out}, {table_of(out)}: {len(found.paths)} examples"
    print_result(found, notes, line, json=json, out=out, table=table_of(out))
