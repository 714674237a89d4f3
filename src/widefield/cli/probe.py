"""`widefield probe`."""

from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("probe")
def probe(*, json: Json = False, **arguments: Any) -> None:
    """Probe, and print a table of the tasks."""
    from widefield.workflows.probe import probe as call

    notes = Notes()
    print_result(call(**arguments, on_note=notes.on_note), notes, json=json)
