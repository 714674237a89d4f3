"""`widefield search`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_table
from widefield.cli.signature import Json, like


@like("search")
def search(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write the page and the table, and print the nearest examples."""
    from widefield.workflows.search import search as call
    from widefield.workflows.search import table_of

    notes = Notes()
    found = call(**arguments, out=out, on_note=notes.on_note)
    if json:
        print_json({**found.to_json(), "out": str(out), "table": str(table_of(out))})
        return
    notes.print_others(found.notes)
    print_table(
        f"nearest to {found.query} by {found.encoder}",
        ["rank", "path", "cosine"],
        [
            [str(rank), path, f"{cosine:.3f}"]
            for rank, (path, cosine) in enumerate(zip(found.paths, found.cosine, strict=True), 1)
        ],
    )
    print_line(f"{out}, {table_of(out)}: {len(found.paths)} examples")
