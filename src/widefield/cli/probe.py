"""`widefield probe`."""

from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_table
from widefield.cli.signature import Json, like


@like("probe")
def probe(*, json: Json = False, **arguments: Any) -> None:
    """Probe, and print a table of the tasks."""
    from widefield.workflows.probe import probe as call

    notes = Notes()
    report = call(**arguments, on_note=notes.on_note)
    if json:
        print_json(report.to_json())
        return
    for table in report.tables():
        print_table(*table)
    for line in report.lines():
        print_line(line)
    chosen = "L2 strength chosen on a fifth of these"
    print_line(f"{report.features} features, fitted on {report.fitted_on}; {chosen}")
    notes.print_others(report.notes)
    if report.train_test_overlap:
        count = report.train_test_overlap
        print_line(f"note: {count} of the scored images were in the encoder's training data")
