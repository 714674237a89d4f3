"""`widefield recover`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("recover")
def recover(*, feature: str | None = None, out: Path, json: Json = False, **arguments: Any) -> None:
    """Train an encoder further, and print the accuracies before and after."""
    from widefield.workflows.recover import recover as call

    notes = Notes()
    result = call(**arguments, feature=feature, out=out, on_note=notes.on_note)
    trained_on, scored_on = result.examples
    line = (
        f"{out}: encoder and wide readout after {result.epochs} epochs on {trained_on} examples, "
        f"{result.seconds:.0f} s; scored on {scored_on} others"
    )
    print_result(result, notes, line, json=json, out=out)
