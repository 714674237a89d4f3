"""`widefield demo`."""

from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.signature import Json, like


@like("demo")
def demo(*, json: Json = False, **arguments: Any) -> None:
    """Run the demo, and print its table."""
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    notes = Notes()
    print_result(call(**arguments, on_note=notes.on_note), notes, json=json)
