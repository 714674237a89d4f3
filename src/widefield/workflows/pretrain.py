"""Pretrain an encoder on unlabeled data, in a folder that can be resumed."""

import datetime
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch
from rich.console import Console

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, make_recipe
from widefield.config.recipes.default import method_for
from widefield.config.remarks import batch_of, remarks, unset
from widefield.core.hardware import choose_device, choose_precision, machine
from widefield.core.input_errors import input_errors
from widefield.core.names import printable
from widefield.core.types import InputSpec
from widefield.data import Dataset, absolute, open_dataset, steps_per_epoch
from widefield.data.open import Data
from widefield.encoders import EncoderSettings, rate_of
from widefield.head import FolderLock
from widefield.inference.initial_weights import InitialEncoder, init_name, kept_init, open_init
from widefield.methods import HeadMethodConfig, MethodConfig
from widefield.train.checkpoint import full_disk_as_one_line
from widefield.train.distributed import DistributedContext
from widefield.train.loggers import LoggerName, check_logger
from widefield.train.loop import OnStep
from widefield.train.progress import images_bar
from widefield.train.resume import in_order
from widefield.train.run import Pretrained, PretrainRun
from widefield.train.run_dir import FORMAT, MAY_CHANGE, RunFolder
from widefield.version import __version__
from widefield.views import ViewSettings
from widefield.workflows.run_page import write_run_page


@input_errors
def pretrain(
    data: Data,
    *,
    out: str | Path,
    recipe: str | Recipe = "default",
    resume: bool = False,
    download: bool = False,
    quiet: bool = False,
    logger: LoggerName | None = None,
    on_step: OnStep | None = None,
    on_epoch: OnStep | None = None,
    **settings: Unpack[RecipeArguments],
) -> Pretrained:
    """Train an encoder without labels and leave it in the folder `out`.

    Ctrl-C and SIGTERM are held back until the step under way is done and the run is saved. Then
    they do what they would have done: Ctrl-C raises KeyboardInterrupt.

    Args:
        data: a data spec such as "photos+digits" or "./my-images", or images as an array
            [n, H, W, C], uint8 or floats in [0, 1].
        out: folder of the run; must not hold another one.
        recipe: name of a recipe, or a whole one.
        resume: go on with the run in `out`, with its own settings; any number of processes may.
            Another number of `epochs` or another `device` may be given. New examples of the data
            join the run: they get rows of their own, and the others keep theirs.
        download: fetch the published weights of a `start` that this machine lacks.
        quiet: show no progress.
        logger: log to wandb or mlflow too; their package is to be installed.
        on_step: called after every step; what it raises ends the run, without a checkpoint.
        on_epoch: called after every epoch, once its checkpoint is saved.
        **settings: settings of the run, its method and its views to change.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
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
    folder = RunFolder(path=Path(out))
    if resume:
        if recipe != "default":
            raise ValueError("a resumed run has its own settings: leave out recipe or resume")
        chosen, start = _recipe_to_resume(folder, settings), None
    else:
        chosen, start = resolve_with_start(recipe, settings, data, download=download)
    device = choose_device(chosen.device)
    ranks = DistributedContext(device, choose_precision(chosen.precision, device))
    console = Console(stderr=True, quiet=quiet or not ranks.is_rank_zero)
    if ranks.is_rank_zero and not resume:
        folder.refuse_if_taken()
    with images_bar(console, "reading images") as progress:
        kept = folder.form() if resume else {}
        dataset = open_dataset(data, **(chosen.opening() | kept), progress=progress)
    if start is not None:
        start = start.fitted(dataset)
    told = () if start is None else start.notes
    said: tuple[str, ...] = ()
    if not resume:
        free = unset(recipe, settings)
        chosen = resolve_parts(chosen, dataset, unset=free, given=settings)
        said = remarks(chosen, len(dataset), unset=free, given=settings)
    for note in (*dataset.notes, dataset.storage, *told, *_apart(chosen, ranks), *said):
        console.print(printable(note), highlight=False, markup=False, soft_wrap=True)
    begun = kept_init(folder, chosen) if start is None else start.encoder
    with (
        full_disk_as_one_line(folder.path, last=folder.last_checkpoint),
        ranks.lost_as_one_line(),
        _claimed(folder, ranks),
        torch.random.fork_rng(enabled=True),
    ):
        growth = None
        if not resume and ranks.is_rank_zero:
            folder.refuse_if_taken()  # again: another run may have ended here meanwhile
        if resume:
            dataset, growth = in_order(dataset, folder, chosen, ranks)
        torch.manual_seed(chosen.seed)
        chosen = ranks.broadcast(chosen)
        with (
            _withdrawn_if_untrained(folder, ranks, resume) as runs,
            closing(
                PretrainRun(chosen, dataset, folder, console, ranks, begun, logger, growth)
            ) as run,
        ):
            runs.append(run)
            if not (resume and run.resume(_place(data, dataset))):
                described = _describe(chosen, data, dataset)
                ranks.on_rank_zero(lambda: folder.begin(described, dataset, begun))
            done = run.train(on_step=on_step, on_epoch=on_epoch)
            if done.finished and ranks.is_rank_zero:
                write_run_page(run)
    run.request.deliver(run.stopped_by or run.request.signal)
    return done


@contextmanager
def _withdrawn_if_untrained(
    folder: RunFolder, ranks: DistributedContext, resume: bool
) -> Iterator[list["PretrainRun"]]:
    """Leave nothing of a new run that ends before its first step, so that `out` can be used again.

    The caller appends the run to the list that it gets, once there is one.
    """
    runs: list[PretrainRun] = []
    try:
        yield runs
    except BaseException:
        if ranks.is_rank_zero and not resume and not any(run.state.step for run in runs):
            folder.withdraw()
        raise


def _apart(recipe: Recipe, ranks: DistributedContext) -> tuple[str, ...]:
    """Return what to say where each process compares the examples of its own part alone."""
    world, settings = ranks.shard.world, recipe.method.flat()
    if world == 1 or settings.get("gather_distributed", True):
        return ()
    return (
        f"{world} processes: each tells the {recipe.batch_size // world} examples of its own part "
        f"of a batch apart, not all {recipe.batch_size}: --gather-distributed compares those of "
        "all",
    )


@contextmanager
def _claimed(folder: RunFolder, ranks: DistributedContext) -> Iterator[None]:
    """Let the first rank make and lock the folder; the others wait for that."""
    with ExitStack() as stack:
        if ranks.is_rank_zero:
            stack.enter_context(folder.claimed())
            stack.enter_context(FolderLock(folder.path))
        ranks.barrier()
        yield


def resolve(recipe: str | Recipe, settings: Mapping[str, Any], data: Data) -> Recipe:
    """Return the recipe for `data` with `settings`, `auto` replaced by what this machine gets.

    So a resume on the same machine agrees with the run.

    Raises:
        ValueError: the settings do not fit the recipe, or a warm-up was given that does not end.
    """
    if isinstance(recipe, Recipe):
        recipe = recipe.changed(settings)
    else:
        spec = str(data) if isinstance(data, str | Path) else ""
        recipe = make_recipe(recipe, data=spec, **settings)
    if "warmup_epochs" in settings and recipe.warmup_epochs >= recipe.epochs:
        raise ValueError(
            f"warmup_epochs is {recipe.warmup_epochs:g} and the run has {recipe.epochs} epochs: "
            "give more epochs or a shorter warm-up"
        )
    if settings.keys() >= {"warmup_epochs", "warmup_steps"}:
        raise ValueError("warmup_epochs and warmup_steps set the same warm-up: give one of them")
    if recipe.optimizer == "lars" and recipe.decay_bias_and_norm:
        raise ValueError(
            "lars never decays biases and the gains of norms: give decay_bias_and_norm=False "
            "(--no-decay-bias-and-norm), or choose another optimizer"
        )
    bf16 = choose_precision(recipe.precision, choose_device(recipe.device)) == "bf16-mixed"
    return replace(recipe, precision="bf16" if bf16 else "32")


def resolve_with_start(
    recipe: str | Recipe, settings: Mapping[str, Any], data: Data, *, download: bool = False
) -> tuple[Recipe, InitialEncoder | None]:
    """Return the recipe as `resolve` does, and the encoder that it starts from, if any.

    Raises:
        ValueError: as `resolve`, there is no such start, or a setting contradicts it.
    """
    spec = settings.get("init")
    chosen, start = resolve(recipe, _named(settings), data), None
    if chosen.init is not None:
        start = open_init(chosen.init if spec is None else spec, download=download)
        given = set(settings)
        if isinstance(recipe, Recipe):  # whose zero_init_last, of fresh weights, cannot be left out
            given |= recipe.encoder.flat().keys() - {"zero_init_last"}
        chosen = start.recipe(chosen, given)
    return chosen, start


def _named(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings as `run.yaml` has them: of a start, its name; the method `auto` is none."""
    named = {name: value for name, value in settings.items() if (name, value) != ("method", AUTO)}
    spec = named.get("init")
    return named if spec is None else {**named, "init": init_name(spec)}


def resolve_parts(
    recipe: Recipe,
    dataset: Dataset,
    *,
    unset: Collection[str],
    given: Mapping[str, Any],
) -> Recipe:
    """Return a resolved recipe with what encoder and method leave to data and machine.

    `unset` names what goes by the encoder's family (`lr` and `head_lr_scale`) and by the number
    of examples (`batch_size` and `method`). Another method keeps the settings that were `given`.

    Raises:
        ValueError: a warm-up was given in steps that does not end.
    """
    _, height, width, channels = dataset.images.shape
    device = choose_device(recipe.device)
    encoder = recipe.encoder.resolved(device, dataset.kind)
    feature_dim = encoder.width(
        InputSpec(channels=channels, image_size=(height, width), rate=dataset.rate)
    )
    if "batch_size" in unset:
        recipe = replace(recipe, batch_size=batch_of(recipe.batch_size, len(dataset)))
    per_epoch = steps_per_epoch(len(dataset), recipe.batch_size, drop_last=recipe.drop_last)
    steps = recipe.epochs * per_epoch
    if "method" in unset:
        recipe = _with_method_for(recipe, per_epoch, given)
    method = recipe.method.resolved(len(dataset), feature_dim, device, steps=steps)
    multiple, _ = rate_of(encoder)
    own = {"lr": multiple * method.lr}
    if isinstance(method, HeadMethodConfig):
        own["head_lr_scale"] = 1 / multiple  # rows keep the method's own rate
    chosen = replace(recipe, encoder=encoder, method=method)
    chosen = chosen.changed({name: own[name] for name in own if name in unset})
    if chosen.warmup_steps is not None and chosen.warmup_steps >= steps > 0:
        raise ValueError(
            f"warmup_steps is {chosen.warmup_steps} and the run has {steps} steps: give more "
            "epochs or a shorter warm-up"
        )
    return chosen


def _with_method_for(recipe: Recipe, steps_an_epoch: int, given: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the method that goes with so many steps, and the settings given."""
    method = method_for(
        epochs=recipe.epochs, init=recipe.init, given=given, steps_an_epoch=steps_an_epoch
    )
    own = {name: value for name, value in given.items() if name in recipe.method.flat()}
    return recipe.changed({**own, "method": method})


def _recipe_to_resume(folder: RunFolder, settings: Mapping[str, Any]) -> Recipe:
    """Return the run's own recipe, with other epochs or another device where these were given.

    Raises:
        ValueError: another setting was given and disagrees.
    """
    recipe, settings = folder.recipe(), _spread(_named(settings))
    changed = recipe.changed(settings)
    before, after = recipe.flat(), changed.flat()
    for name in settings:
        if name not in MAY_CHANGE and before.get(name) != after[name]:
            raise ValueError(
                f"the run in {folder.path} has {name} {before.get(name)!r}, not {after[name]!r}: "
                f"resume without {name}, or start a new run with another --out"
            )
    return changed


def _spread(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings with those of whole parts by name; what a part leaves to the run is none."""
    spread = dict(settings)
    for part in ("method", "views", "encoder"):
        value = settings.get(part)
        if isinstance(value, MethodConfig):
            spread |= {"method": value.name, **_set(value.flat())}
        elif isinstance(value, ViewSettings):
            spread |= {"views": value.names, **_set(value.flat())}
        elif isinstance(value, EncoderSettings):
            del spread["encoder"]
            spread |= _set(value.flat())
    return spread


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "auto")}


def _place(data: Data, dataset: Dataset) -> str | None:
    """Return where the examples were read, as a spec for any folder; None of arrays."""
    return absolute(dataset.spec) if isinstance(data, str | Path) else None


def _describe(recipe: Recipe, data: Data, dataset: Dataset) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "widefield": __version__,
        "data": _place(data, dataset) or dataset.spec,
        "examples": len(dataset),
        "form": dataset.form(),
        "tasks": {task: list(names) for task, names in dataset.classes.items()},
        "recipe": recipe.to_dict(),
        "machine": machine(choose_device(recipe.device)),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
