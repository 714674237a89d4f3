"""`widefield demo`."""

from typing import Any

from widefield.cli.output import Notes, print_json, print_result
from widefield.cli.signature import Json, like


@like("demo", without=("windows",))
def demo(*, json: Json = False, **arguments: Any) -> None:
    """Run the demo, and print its table."""
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    notes = Notes()
    done = call(**arguments, on_note=notes.on_note)
    if json:
        print_json(done.to_json())
    else:
        print_result(done, notes)
