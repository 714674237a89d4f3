"""`widefield views`."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line
from widefield.cli.signature import Json, like


@like("views")
def views(*, views: str = "", out: Path, json: Json = False, **arguments: Any) -> None:
    """Draw views, and print what each policy does."""
    from widefield.workflows.draw_views import draw_views

    notes = Notes()
    policies: dict[str, Any] = {"views": tuple(views.split(","))} if views else {}
    found = draw_views(**arguments, **policies, out=out, on_note=notes.on_note)
    if json:
        print_json({**found.to_json(), "out": str(out)})
        return
    for policy in found.policies:
        print_line(policy.line())
    notes.print_others(found.notes)
    print_line(f"{out}: {len(found.policies)} policies on {len(found.paths)} examples")
