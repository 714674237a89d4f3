"""`widefield plan`: its options are those of pretrain."""

from pathlib import Path
from typing import Any

from widefield.cli.output import print_json, print_line, print_table


def plan(
    data: str,
    /,
    *,
    recipe: str = "default",
    config: Path | None = None,
    download: bool = False,
    json: bool = False,
    **settings: Any,
) -> None:
    """Say what pretrain with the same options will take: memory, where, and seconds.

    Help shows the options of the chosen method and views: add --method simclr --help.

    Parameters
    ----------
    data
        Name the data as for pretrain.
    recipe
        Start from these settings: default, s-diet-paper, feature-dropout or solo-learn.
    config
        Start from the settings in this file: the run.yaml of a run, or an edited copy. Other
        options win.
    download
        Fetch the weights of a published --init that this machine lacks.
    json
        Print one JSON object.
    """
    from widefield.data.spec import parse

    parse(data)  # before anything heavy is imported: a typing error is answered at once

    from widefield.cli.config import settings_of
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.plan import plan as call

    keep_freed_memory()
    given = {name: value for name, value in settings.items() if value is not None}
    ahead = call(data, recipe=settings_of(recipe, config), download=download, **given)
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
