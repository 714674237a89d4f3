"""`widefield pretrain`: its options are the settings of the run, its method and its views."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

from widefield.cli.output import print_json, print_line
from widefield.core.names import printable


def pretrain(
    data: str,
    /,
    *,
    out: Path,
    recipe: str = "default",
    config: Path | None = None,
    resume: bool = False,
    download: bool = False,
    logger: Literal["wandb", "mlflow"] | None = None,
    json: bool = False,
    **settings: Any,
) -> None:
    """Train an encoder on unlabeled data, in a folder that can be resumed.

    Help shows the options of the chosen method and views: add --method simclr --help.

    Parameters
    ----------
    data
        photos, cifar10, a folder of images, a .npz or .npy file; +digits, +shapes, +letters plant
        one.
    out
        Write the run into this folder; it must not hold another one.
    recipe
        Start from these settings: default, s-diet-paper, feature-dropout or solo-learn.
    config
        Start from the settings in this file: the run.yaml of another run, or an edited copy. Other
        options win.
    resume
        Go on with the run in --out, with its own settings, or more --epochs. New examples of DATA
        join it.
    download
        Fetch the published weights of --init timm:NAME or torchvision:NAME.
    logger
        Log to Weights & Biases or MLflow too, if installed; metrics.csv and TensorBoard's files
        are written anyway.
    json
        Print one JSON object.
    """
    from widefield.data.spec import parse

    parse(data)  # before anything heavy is imported: a typing error is answered at once

    from widefield.cli.config import settings_of
    from widefield.core.gather import rank_and_world
    from widefield.core.hardware import keep_freed_memory
    from widefield.train.run_dir import RunFolder
    from widefield.workflows.pretrain import pretrain as call

    if resume and config is not None:
        raise ValueError("a resumed run has its own settings: leave out --config or --resume")
    start = settings_of(recipe, config)
    given = {name: value for name, value in settings.items() if value is not None}
    keep_freed_memory()
    try:
        done = call(
            data,
            out=out,
            recipe=start,
            resume=resume,
            download=download,
            logger=logger,
            **given,
        )
    except (KeyboardInterrupt, SystemExit):
        rank, _ = rank_and_world()
        if rank == 0 and RunFolder(path=out).last_checkpoint.exists():
            again = shlex.join(["widefield", "pretrain", data, "--out", str(out), "--resume"])
            print(f"stopped; go on with: {printable(again)}", file=sys.stderr)
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
                "comparison": None if done.comparison is None else done.comparison.to_json(),
            }
        )
        return
    print_line(f"{done.run}: {done.steps} steps, {done.images_per_second:,.0f} examples/s")
    print_line(done.health.line())
    for line in () if done.comparison is None else done.comparison.lines():
        print_line(line)
    print_line(f"next: {done.next_command}")
