"""`widefield plan`: its options are those of pretrain."""

from typing import Any

from widefield.cli.config import Config, settings_of
from widefield.cli.output import print_json, print_line, print_table
from widefield.cli.recipe_options import with_options
from widefield.cli.signature import Json, like


@with_options
@like("widefield.workflows.plan")
def plan(
    data: str,
    *,
    recipe: str = "default",
    config: Config = None,
    json: Json = False,
    **arguments: Any,
) -> None:
    """Plan a run, and print what it will take."""
    from widefield.data.spec import parse

    parse(data)  # before anything heavy is imported: a typing error is answered at once

    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.plan import plan as call

    keep_freed_memory()
    ahead = call(data, recipe=settings_of(recipe, config), **arguments)
    if json:
        print_json(ahead.to_json())
        return
    rows = [[name, f"{part.bytes / 1e6:,.1f}", part.place] for name, part in ahead.parts.items()]
    print_table(f"{ahead.examples:,} examples", ["", "MB", "where"], rows)
    print_line(
        f"peak: {ahead.host_bytes / 1e9:.2f} GB of host memory, "
        f"{ahead.device_bytes / 1e9:.2f} GB {ahead.device_words}"
    )
    print_line(
        f"{ahead.epoch_seconds:,.1f} s an epoch of {ahead.steps_per_epoch} steps, "
        f"{_for_people(ahead.recipe.epochs * ahead.epoch_seconds)} in all"
    )
    for note in ahead.notes:
        print_line(note)


def _for_people(seconds: float) -> str:
    """Return a time in the unit in which it is a number of one to three digits.

    Example:
        >>> [_for_people(seconds) for seconds in (12.3, 600.0, 5_400.0, 1_234_567.0)]
        ['12 s', '10 min', '1.5 h', '342.9 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:,.1f} h"
