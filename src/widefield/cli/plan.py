"""`widefield plan`, with the options of pretrain."""

from typing import Any

from widefield.cli.output import Notes, print_result
from widefield.cli.recipe_options import Config, check_settings, settings_of, with_options
from widefield.cli.signature import Json, like
from widefield.core.published import PUBLISHED_DEVICES


@with_options
@like("plan")
def plan(
    data: str | None = None,
    *,
    examples: float | None = None,
    minutes: float | None = None,
    recipe: str = "default",
    config: Config = None,
    json: Json = False,
    **arguments: Any,
) -> None:
    """Plan a run, and print its memory and time."""
    check_settings(arguments, devices=() if examples is None else PUBLISHED_DEVICES)
    settings = settings_of(recipe, config)

    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.plan import plan as call

    keep_freed_memory()
    notes = Notes()
    run_plan = call(
        data,
        examples=examples,
        minutes=minutes,
        recipe=settings,
        on_note=notes.on_note,
        **arguments,
    )
    print_result(run_plan, notes, json=json)
