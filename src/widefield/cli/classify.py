"""`widefield classify`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("classify")
def classify(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Predict classes, and print their cross-validated accuracy."""
    from widefield.workflows.classify import classify as call
    from widefield.workflows.classify import page_of

    notes = Notes()
    result = call(**arguments, out=out, on_note=notes.on_note)
    files, lines = {"out": out}, [f"{out}: the prediction of each example"]
    if result.kind == "classes":
        files["page"] = page_of(out)
        lines.insert(0, f"{page_of(out)}: the least certain predictions, to be corrected")
    print_result(result, notes, *lines, json=json, **files)
