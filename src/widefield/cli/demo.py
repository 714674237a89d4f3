"""`widefield demo`."""

from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_table
from widefield.cli.signature import Json, like
from widefield.report.tables import percent


@like("demo", without=("windows",))
def demo(*, json: Json = False, **arguments: Any) -> None:
    """Run the demo, and print its table."""
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.demo import COLUMNS
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    done = call(**arguments, on_note=Notes().on_note)
    if json:
        print_json(done.to_json())
        return
    rows = [
        [task, *(percent(row[column].value) for column in COLUMNS)]
        for task, row in done.table.items()
    ]
    print_table("linear-probe accuracy on held-out examples, %", ["task", *COLUMNS], rows)
    print_line(done.pretrained.health.line())
    print_line(f"report: {done.report}  ({done.seconds:.0f} s)")
