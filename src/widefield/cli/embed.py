"""`widefield embed`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import print_json, print_line
from widefield.cli.signature import Json, like


@like("widefield.workflows.embed")
def embed(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write features, and print how many."""
    from widefield.workflows.embed import embed as call

    embedding = call(**arguments, out=out)
    n, dim = embedding.features.shape
    if json:
        tasks = list(embedding.labels)
        notes = list(embedding.notes)
        print_json({"out": str(out), "examples": n, "dim": dim, "tasks": tasks, "notes": notes})
    else:
        for note in embedding.notes:
            print_line(f"note: {note}")
        print_line(f"{out}: {n} x {dim} features")
