"""`widefield pretrain`, with options for the settings of the run, its method and views."""

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_result
from widefield.cli.recipe_options import Config, check_settings, settings_of, with_options
from widefield.cli.signature import Json, like
from widefield.core.names import printable


@with_options
@like("pretrain")
def pretrain(
    data: str,
    *,
    out: Path,
    recipe: str = "default",
    config: Config = None,
    resume: bool = False,
    json: Json = False,
    **arguments: Any,
) -> None:
    """Train, and print the result."""
    from widefield.train.folder_checks import check_empty, check_is_run

    check_settings(arguments)
    if resume and config is not None:
        raise ValueError("a resumed run has its own settings: leave out --config or --resume")
    if os.environ.get("RANK", "0") == "0":  # set by torchrun, whose first process makes the folder
        (check_is_run if resume else check_empty)(out)
    settings = settings_of(recipe, config)

    from widefield.core.gather import rank_and_world
    from widefield.core.hardware import keep_freed_memory
    from widefield.train.run_dir import RunFolder
    from widefield.workflows.pretrain import pretrain as call

    keep_freed_memory()
    notes = Notes()
    try:
        done = call(
            data, out=out, recipe=settings, resume=resume, on_note=notes.on_note, **arguments
        )
    except (KeyboardInterrupt, SystemExit):
        rank, _ = rank_and_world()
        if rank == 0 and RunFolder(path=out).last_checkpoint.exists():
            words = ["widefield", "pretrain", data, "--out", str(out), "--resume"]
            print(f"stopped; resume with: {printable(shlex.join(words))}", file=sys.stderr)
        raise
    rank, _ = rank_and_world()
    if rank > 0:
        return
    if json:
        print_json(
            {
                "run": str(done.run),
                "steps": done.steps,
                "images_per_second": round(done.images_per_second, 1),
                "data_wait": round(done.data_wait, 4),
                "health": dataclasses.asdict(done.health),
                "finished": done.finished,
                "adapted": None if done.adapted is None else str(done.adapted),
                "comparison": None if done.comparison is None else done.comparison.to_json(),
            }
        )
        return
    print_result(done, notes, json=False)
