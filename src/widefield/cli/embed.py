"""`widefield embed`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_result
from widefield.cli.signature import Json, like


@like("embed")
def embed(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write features, and print how many."""
    from widefield.workflows.embed import embed as call

    notes = Notes()
    embedding = call(**arguments, out=out, on_note=notes.on_note)
    n, dim = embedding.features.shape
    if json:
        tasks = list(embedding.labels)
        values = {"out": str(out), "examples": n, "dim": dim, "tasks": tasks}
        print_json({**values, "notes": list(embedding.notes)})
    else:
        print_result(embedding, notes)
        print_line(f"{out}: {n} x {dim} features")
