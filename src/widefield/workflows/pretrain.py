"""Pretrain an encoder on unlabeled data, in a folder that can be resumed."""

import datetime
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.core.errors import input_errors
from widefield.core.hardware import choose_device, limited_threads, machine
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import OnNote
from widefield.data import absolute
from widefield.data.labels import Labels
from widefield.data.labels.read import read_excluded
from widefield.data.source import Data
from widefield.inference.features import send_notes
from widefield.train.build import rank_seed
from widefield.train.loop import OnStep
from widefield.train.progress import LoggerName, check_logger, print_line
from widefield.train.resume import restore
from widefield.train.run import Prepared, Pretrained, PretrainRun
from widefield.train.run_dir import FORMAT, RunFolder
from widefield.version import __version__
from widefield.workflows.resume import resume as resume_run
from widefield.workflows.run_page import write_run_page
from widefield.workflows.start import Request
from widefield.workflows.start import start as start_run
from widefield.workflows.teachers import write_targets


@input_errors
@describe_arguments
def pretrain(
    data: Data,
    *,
    out: str | Path,
    recipe: str | Recipe = "default",
    group: str | None = None,
    exclude: Labels | None = None,
    resume: bool = False,
    download: bool = False,
    quiet: bool = False,
    logger: LoggerName | None = None,
    threads: int | None = None,
    on_note: OnNote | None = None,
    on_step: OnStep | None = None,
    on_epoch: OnStep | None = None,
    **settings: Unpack[RecipeArguments],
) -> Pretrained:
    """Train an encoder on unlabeled data, in a folder from which it can be resumed.

    Ctrl-C and SIGTERM take effect after the current step, once the run is saved. Ctrl-C raises
    KeyboardInterrupt.

    Args:
        data: a folder, a `.npz` or `.npy` file, or built-in photos, spoken, motion or cifar10;
            `+digits`, `+shapes` or `+letters` plants a feature. In Python also images as an array
            [n, H, W, C], uint8 or floats in [0, 1].
        out: folder of the run; must not hold another one.
        recipe: name of a recipe: default, s-diet-paper, feature-dropout or solo-learn. In Python
            also a whole one.
        group: examples that belong together, such as frames of a video: a label array, folder:1
            for the first folder of a path, or regex:PATTERN for what its first ( ) matches. Splits
            and the probes of the run divide none, and intervals count groups.
        exclude: a `.csv` file with the columns path and decision, as the page of `explore` saves
            it; examples with the decision exclude are left out, also when the run is resumed. In
            Python also a table or path -> decision.
        resume: resume the run in `out` with its own settings, or with more epochs, another device
            or another `compile`. New examples of the data are added, with new rows of a
            per-example head.
        download: fetch the published weights of `init` and of teachers, and `hf:` data, if they are
            missing.
        logger: log to wandb or mlflow too, if installed; metrics.csv and files for TensorBoard
            are always written.
        threads: CPU threads; by default all cores or OMP_NUM_THREADS, and when a run is resumed
            those that it had, because their number can change the last bits of weights.
        on_note: called before the work with each note on the data, the settings and the initial
            encoder; by default they are shown with the progress.
        on_step: called after every step; an exception ends the run, without a checkpoint.
        on_epoch: called after every epoch, once its checkpoint is saved.
        **settings: settings of the run, its method and its views to change.

    Raises:
        ValueError: invalid input; the message names the remedy.
        KeyboardInterrupt: Ctrl-C, after the run was saved.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = pretrain("photos", out=folder, epochs=1, max_examples=64, quiet=True)
        >>> done.steps
        1
    """
    if logger is not None:
        check_logger(logger)
    if resume and recipe != "default":
        raise ValueError("a resumed run has its own settings: leave out recipe or resume")
    folder = RunFolder(path=Path(out))
    request = Request(
        data=data,
        folder=folder,
        group=group,
        excluded=read_excluded(exclude),
        download=download,
        threads=threads,
        quiet=quiet,
    )
    with ExitStack() as stack:
        if resume:
            prepared = resume_run(request, settings, stack)
        else:
            prepared = start_run(request, recipe, settings, stack)
        ranks, console = prepared.ranks, request.console(prepared.ranks)
        stack.enter_context(_threads_and_random_state(prepared.threads))
        run = None
        try:
            named_now = not resume or "teacher" in settings
            ranks.on_rank_zero(lambda: write_targets(request, prepared, consent=named_now))
            torch.manual_seed(rank_seed(prepared.recipe, ranks.shard))
            run = PretrainRun(prepared, folder, console, logger)
            with closing(run):
                if prepared.has_checkpoint:
                    restore(run, _source(prepared, data))
                else:
                    _begin(run, prepared, data)
                if ranks.is_rank_zero:
                    send_notes(prepared.notes, on_note or partial(print_line, console))
                done = run.train(on_step=on_step, on_epoch=on_epoch)
                if done.finished and ranks.is_rank_zero:
                    write_run_page(run)
        except BaseException:
            if ranks.is_rank_zero and not resume and not (run and run.state.step):
                folder.remove_incomplete()  # ended before its first step: `out` can be reused
            raise
    run.request.send_signal(run.stopped_by or run.request.signal)  # which is for the caller too
    return done


@contextmanager
def _threads_and_random_state(threads: int) -> Iterator[None]:
    # Layers such as dropout draw from torch's global generator. A run seeds it, and the caller
    # gets back its own, and its own number of threads.
    with torch.random.fork_rng(enabled=True), limited_threads(threads):
        yield


def _begin(run: PretrainRun, prepared: Prepared, data: Data) -> None:
    settings, growth = _settings(prepared, data), run.growth
    run.ranks.on_rank_zero(
        lambda: run.folder.begin(settings, prepared.dataset, growth, prepared.initial)
    )


def _source(prepared: Prepared, data: Data) -> str | None:
    """Return the source with absolute paths; None for arrays."""
    return absolute(prepared.dataset.spec) if isinstance(data, str | Path) else None


def _settings(prepared: Prepared, data: Data) -> dict[str, Any]:
    """Return what `run.yaml` records."""
    recipe, dataset = prepared.recipe, prepared.dataset
    return {
        "format": FORMAT,
        "widefield": __version__,
        "data": _source(prepared, data) or dataset.spec,
        "examples": len(dataset),
        **({} if prepared.group is None else {"group": prepared.group}),
        "form": dataset.form.options(),
        "tasks": {task: list(names) for task, names in dataset.classes.items()},
        "recipe": recipe.to_dict(),
        "machine": machine(choose_device(recipe.device)),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "threads": prepared.threads,
    }
