"""`widefield audit`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("audit")
def audit(
    *, plant: str = "", out: Path | None = None, json: Json = False, **arguments: Any
) -> None:
    """Audit, and print a table of the tasks."""
    from widefield.audits.audit import audit as call

    plants = tuple(name for name in plant.split(",") if name)
    notes = Notes()
    result = call(**arguments, plant=plants, out=out, on_note=notes.on_note)
    print_result(result, notes, json=json)
    if out is not None and result.report is None:
        raise ValueError(f"{out} was not written: the notes say why; --json keeps an audit")
