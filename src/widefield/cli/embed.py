"""`widefield embed`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("embed")
def embed(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write features, and print how many."""
    from widefield.workflows.embed import embed as call

    notes = Notes()
    embedding = call(**arguments, out=out, on_note=notes.on_note)
    n, dim = embedding.features.shape
    print_result(embedding, notes, f"{out}: {n} x {dim} features", json=json, out=out)
