"""`widefield classify`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_result
from widefield.cli.signature import Json, like


@like("classify")
def classify(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Predict classes, and print their cross-validated accuracy."""
    from widefield.workflows.classify import classify as call
    from widefield.workflows.classify import page_of

    notes = Notes()
    result = call(**arguments, out=out, on_note=notes.on_note)
    page = page_of(out) if result.kind == "classes" else None
    if json:
        files = {"out": str(out)} if page is None else {"out": str(out), "page": str(page)}
        print_json({**result.to_json(), **files})
        return
    print_result(result, notes)
    if page is not None:
        print_line(f"{page}: the least certain predictions, to be corrected")
    print_line(f"{out}: the prediction of each example")
