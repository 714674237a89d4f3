"""Pretrain an encoder on unlabeled data, in a folder that can be resumed."""

import datetime
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from rich.console import Console

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.config.resolve import without_auto
from widefield.core.cpus import usable_cpus
from widefield.core.errors import input_errors, option
from widefield.core.files import check_folder_name
from widefield.core.hardware import choose_device, choose_precision, machine
from widefield.core.names import printable
from widefield.core.types import OnNote
from widefield.data import Dataset, absolute, open_dataset
from widefield.data.decisions import read_excluded
from widefield.data.labels import Labels
from widefield.data.source import Data
from widefield.encoders import Encoder, is_own
from widefield.head import FolderLock
from widefield.inference.features import send_notes
from widefield.inference.initial_weights import saved_init
from widefield.train.checkpoint import disk_full_errors
from widefield.train.compiled import check_compile
from widefield.train.distributed import DistributedContext
from widefield.train.folder_checks import check_empty
from widefield.train.loggers import LoggerName, check_logger
from widefield.train.loop import OnStep
from widefield.train.progress import images_bar
from widefield.train.resume import in_order
from widefield.train.run import Pretrained, PretrainRun
from widefield.train.run_dir import FORMAT, RESUME_SETTINGS, RunFolder
from widefield.train.threads import check_threads, choose_threads, limited_threads
from widefield.version import __version__
from widefield.workflows.run_page import write_run_page
from widefield.workflows.setup import Setup, with_names
from widefield.workflows.teachers import check_teachers, write_targets


@input_errors
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
        quiet: show no progress.
        logger: log to wandb or mlflow too, if installed; metrics.csv and files for TensorBoard
            are always written.
        threads: CPU threads; by default as many as are fastest in a short trial, and when a run is
            resumed those that it had, because their number can change the last bits of weights.
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
    check_folder_name(out, here=True)
    check_threads(threads)
    excluded = read_excluded(exclude)
    folder = RunFolder(path=Path(out))
    setup = None
    if resume:
        if recipe != "default":
            raise ValueError("a resumed run has its own settings: leave out recipe or resume")
        resolved = _recipe_to_resume(folder, settings)
    else:
        setup = Setup(data, recipe, settings, download=download)
        resolved = setup.recipe
    check_teachers(resolved)
    device = choose_device(resolved.device)
    check_compile(resolved, device)
    ranks = DistributedContext(device, choose_precision(resolved.precision, device))
    console = Console(stderr=True, quiet=quiet or not ranks.is_rank_zero)
    if ranks.is_rank_zero and not resume:
        check_empty(folder.path)
    with images_bar(console, "reading images") as progress, ranks.rank_failure_errors():
        if resume:
            group = _group_to_resume(folder, group)
            excluded = (*folder.manifest.excluded(), *excluded)
        options = resolved.data_options() | (folder.form().options() if resume else {})
        dataset = open_dataset(
            data,
            **options,
            group=group,
            exclude=tuple(set(excluded)),
            agree=ranks.broadcast,
            progress=progress,
        )
    resolved, notes, init = (resolved, (), None) if setup is None else setup.finish(dataset)
    init_notes = () if init is None else init.notes
    gather_note = _gather_note(resolved, ranks)
    notes = (*dataset.notes, dataset.storage, *init_notes, *gather_note, *notes)
    initial = saved_init(folder, resolved) if init is None else init.encoder
    with (
        disk_full_errors(folder.path, last=folder.last_checkpoint),
        ranks.rank_failure_errors(),
        _lock(folder, ranks),
        torch.random.fork_rng(enabled=True),
        ExitStack() as stack,
    ):
        growth = None
        if not resume and ranks.is_rank_zero:
            check_empty(folder.path)  # again: another process may have written a run meanwhile
        if resume:
            dataset, growth = in_order(dataset, folder, resolved, ranks)
        resolved = ranks.broadcast(resolved)
        threads, thread_note = _threads(threads, resume, folder, resolved, dataset, initial, ranks)
        stack.enter_context(limited_threads(threads))
        ranks.on_rank_zero(
            lambda: write_targets(
                folder,
                resolved,
                data,
                dataset,
                console,
                form={"group": group},
                consent=not resume or "teacher" in settings,
                download=download,
            )
        )
        torch.manual_seed(resolved.seed)
        run = None
        try:
            run = PretrainRun(resolved, dataset, folder, console, ranks, initial, logger, growth)
            with closing(run):
                if not (resume and run.resume(_source(data, dataset))):
                    metadata, began = _metadata(resolved, data, dataset, group), run.growth
                    metadata["threads"] = threads
                    ranks.on_rank_zero(lambda: folder.begin(metadata, dataset, began, initial))
                if ranks.is_rank_zero:
                    send_notes((*notes, *thread_note), on_note or partial(_show, console))
                done = run.train(on_step=on_step, on_epoch=on_epoch)
                if done.finished and ranks.is_rank_zero:
                    write_run_page(run)
        except BaseException:
            if ranks.is_rank_zero and not resume and not (run and run.state.step):
                folder.remove_incomplete()  # ended before its first step: `out` can be reused
            raise
    run.request.send_signal(run.stopped_by or run.request.signal)
    return done


def _threads(
    threads: int | None,
    resume: bool,
    folder: RunFolder,
    recipe: Recipe,
    dataset: Dataset,
    initial: Encoder | None,
    ranks: DistributedContext,
) -> tuple[int, tuple[str, ...]]:
    """Return the number of threads of a run, and a note if it is resumed with another one."""
    before = folder.settings().get("threads") if resume else None
    if before is None:
        return threads or choose_threads(recipe, dataset, initial, ranks), ()
    now = threads or min(before, usable_cpus())
    if now == before:
        return now, ()
    note = f"{now} threads, and {before} so far: the last bits of the weights can differ"
    return now, (note,)


def _show(console: Console, note: str) -> None:
    console.print(printable(note), highlight=False, markup=False, soft_wrap=True)


def _gather_note(recipe: Recipe, ranks: DistributedContext) -> tuple[str, ...]:
    """Return a note if each process contrasts the examples of its own part of a batch alone."""
    world, settings = ranks.shard.world, recipe.method.flat()
    if world == 1 or settings.get("gather_distributed", True):
        return ()
    return (
        f"{world} processes: each contrasts the {recipe.batch_size // world} examples of its own "
        f"part of a batch, not all {recipe.batch_size}: {option('gather_distributed', True)} "
        "contrasts all",
    )


@contextmanager
def _lock(folder: RunFolder, ranks: DistributedContext) -> Iterator[None]:
    """Create and lock the folder on rank 0, while the other ranks wait."""
    with ExitStack() as stack:
        if ranks.is_rank_zero:
            stack.enter_context(folder.created())
            stack.enter_context(FolderLock(folder.path))
        ranks.barrier()
        yield


def _recipe_to_resume(folder: RunFolder, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the run, with the settings in `settings` that a resume may change."""
    recipe = folder.recipe()
    own = recipe.encoder.name if is_own(recipe.encoder.name) else None
    overrides = without_auto(with_names(settings, recorded=_recorded(own, settings)))
    before, after = recipe.flat(), recipe.changed(overrides).flat()
    for name, value in after.items():
        # A default of the run's own method may have been resolved to another value.
        unset = value in (None, "auto") and (name not in overrides or overrides[name] != value)
        if name not in RESUME_SETTINGS and value != before.get(name) and not unset:
            raise ValueError(
                f"the run in {folder.path} has {name} {before.get(name)!r}, not {value!r}: "
                f"resume without {option(name)}, or start a new run with another {option('out')}"
            )
    return recipe.changed({name: after[name] for name in RESUME_SETTINGS})


def _recorded(own: str | None, settings: Mapping[str, Any]) -> str | None:
    """Return the name under which a file that may have moved is in the run."""
    is_file = own is not None and is_own(str(settings.get("encoder")))
    return own if is_file and Path(str(own)).name == Path(settings["encoder"]).name else None


def _group_to_resume(folder: RunFolder, group: str | None) -> str | None:
    """Return the group of the run; check that no other one is given."""
    before = folder.group()
    if group not in (None, before):
        raise ValueError(
            f"the run in {folder.path} has group {before!r}, not {group!r}: resume without "
            f"{option('group')}, or start a new run with another {option('out')}"
        )
    return before


def _source(data: Data, dataset: Dataset) -> str | None:
    """Return the source with absolute paths; None for arrays."""
    return absolute(dataset.spec) if isinstance(data, str | Path) else None


def _metadata(recipe: Recipe, data: Data, dataset: Dataset, group: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "widefield": __version__,
        "data": _source(data, dataset) or dataset.spec,
        "examples": len(dataset),
        **({} if group is None else {"group": group}),
        "form": dataset.form.options(),
        "tasks": {task: list(names) for task, names in dataset.classes.items()},
        "recipe": recipe.to_dict(),
        "machine": machine(choose_device(recipe.device)),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
