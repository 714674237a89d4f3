"""Preparation of a new run: its settings, its data and its initial weights.

A run is prepared in this order, because each step needs those before it.

1. The settings alone: a misspelled one costs neither weights nor data.
2. The initial weights: they decide the architecture, and maybe the image size.
3. The data, in that size.
4. The settings that were not given: they depend on the data and the machine.
5. The folder, once nothing is left that the user could have got wrong.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from torch import nn

from widefield.config.recipe import Recipe
from widefield.config.resolve import RunContext, check, resolve
from widefield.core.errors import option
from widefield.core.files import check_folder_name, make_folders, remove_empty
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.rng import seeded
from widefield.data import Dataset, open_dataset, plant_names
from widefield.data.readers import hub
from widefield.data.source import Data
from widefield.data.spec import parse
from widefield.encoders import Encoder, is_custom, register_network
from widefield.encoders.names import split_custom
from widefield.encoders.own import classifier_note, registered_network
from widefield.head import FolderLock
from widefield.inference.initial_weights import (
    InitialEncoder,
    check_published,
    init_name,
    open_init,
)
from widefield.methods.distill import DistillConfig
from widefield.train.build import check_compile
from widefield.train.checkpoint import disk_full_errors
from widefield.train.compute import check_threads, default_threads
from widefield.train.distributed import DistributedContext
from widefield.train.folder_checks import check_empty
from widefield.train.progress import images_bar
from widefield.train.run import Prepared
from widefield.train.run_dir import RunFolder


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of a call of `pretrain` beside its settings."""

    data: Data
    folder: RunFolder
    group: str | None
    excluded: tuple[str, ...]
    """Paths of the examples to leave out."""
    download: bool
    threads: int | None
    quiet: bool

    def __post_init__(self) -> None:
        check_folder_name(self.folder.path, allow_current=True)
        check_threads(self.threads)

    def console(self, ranks: DistributedContext) -> Console:
        """Return where progress is shown: by the first process alone."""
        return Console(stderr=True, quiet=self.quiet or not ranks.is_rank_zero)

    def open(self, recipe: Recipe, ranks: DistributedContext, **options: Any) -> Dataset:
        """Open the data as the recipe says, or with the `options` that a run has already."""
        console = self.console(ranks)
        with images_bar(console, "reading images") as progress, ranks.rank_failure_errors():
            return open_dataset(
                self.data,
                **{**recipe.data_options(), **options},
                group=self.group,
                exclude=tuple(set(self.excluded)),
                agree=ranks.broadcast,
                progress=progress,
            )


def start(
    request: Request, recipe: str | Recipe, settings: Mapping[str, Any], stack: ExitStack
) -> Prepared:
    """Prepare a new run; `stack` holds its folder."""
    checked = check_settings(request.data, recipe, settings, download=request.download)
    ranks, folder = join_ranks(checked.recipe), request.folder
    if ranks.is_rank_zero:
        check_empty(folder.path)
    # Before the folder is made: data that cannot be read leave nothing behind.
    dataset = request.open(checked.recipe, ranks)
    prepared = checked.prepared(dataset, ranks, threads=request.threads)
    stack.enter_context(lock_folder(folder, ranks))
    if ranks.is_rank_zero:
        check_empty(folder.path)  # again: another process may have written a run meanwhile
    # A process resolves by the memory of its own machine; all take what the first one did.
    return replace(prepared, recipe=ranks.broadcast(prepared.recipe), group=request.group)


@dataclass(frozen=True, kw_only=True)
class CheckedSettings:
    """Settings of a run that were checked, while its data are not open yet."""

    base: str | Recipe
    overrides: Mapping[str, Any]
    planted: frozenset[str]
    init: InitialEncoder | None
    """The initial encoder as it was saved; None for random weights."""
    recipe: Recipe
    """Settings as far as they are known, enough to open the data."""

    def prepared(
        self, dataset: Dataset, ranks: DistributedContext, *, threads: int | None
    ) -> Prepared:
        """Return the run on a data set: resolved settings, initial encoder, and notes on them."""
        init = None if self.init is None else self.init.adapted(dataset)
        context = RunContext.of(
            dataset,
            device=choose_device(self.recipe.device),
            planted=self.planted,
            init=None if self.init is None else self.init.encoder,
        )
        recipe, notes = resolve(self.base, self.overrides, context)
        init_notes = () if init is None else init.notes
        return Prepared(
            recipe=recipe,
            dataset=dataset,
            initial=None if init is None else init.encoder,
            ranks=ranks,
            threads=threads or default_threads(),
            notes=(
                *dataset.notes,
                dataset.storage,
                *init_notes,
                *gather_note(recipe, ranks),
                *_custom_note(recipe.encoder.name, dataset),
                *notes,
            ),
        )


def _custom_note(name: str, dataset: Dataset) -> tuple[str, ...]:
    if not is_custom(name):
        return ()
    with seeded(0):  # it draws its weights
        return classifier_note(name, registered_network(name).build(), dataset.images.shape[3])


def check_settings(
    data: Data, recipe: str | Recipe, settings: Mapping[str, Any], *, download: bool
) -> CheckedSettings:
    """Check the settings of a run and open its initial weights, without opening the data.

    `download` fetches published weights, and data of the Hub, that are missing.
    """
    if download and isinstance(data, str) and parse(data).base.startswith(hub.PREFIX):
        hub.fetch(parse(data).base)
    overrides = with_names(settings)
    checked = check(recipe, overrides)  # before weights are loaded
    if isinstance(checked.method, DistillConfig):
        for teacher in checked.method.teacher or ():
            check_published(teacher, download=download)
    choose_device(checked.device)
    # Recipes may depend on the planted features, which the name of the data has before it is open.
    planted = plant_names(str(data)) if isinstance(data, str | os.PathLike) else frozenset()
    init = None
    if checked.init is not None:
        spec = settings.get("init")
        init = open_init(checked.init if spec is None else spec, download=download)
    return CheckedSettings(
        base=recipe,
        overrides=overrides,
        planted=planted,
        init=init,
        recipe=check(
            recipe, overrides, planted=planted, init=None if init is None else init.encoder
        ),
    )


def with_names(settings: Mapping[str, Any], *, recorded: str | None = None) -> dict[str, Any]:
    """Return settings as `run.yaml` stores them, with names of initial weights and network.

    A network of one's own is given here, under the name `recorded` in its run too.
    """
    named, init, encoder = dict(settings), settings.get("init"), settings.get("encoder")
    if init is not None:
        named["init"] = init_name(init)
        is_file = is_custom(str(init)) and split_custom(str(init))[1] is None
        if not isinstance(init, Encoder) and (isinstance(init, nn.Module) or is_file):
            register_network(init)
    if isinstance(encoder, nn.Module) or (isinstance(encoder, str) and is_custom(encoder)):
        network = register_network(encoder, recorded=recorded)
        named["encoder"] = recorded or network.name
    teachers = named.pop("teacher", None)
    if teachers is not None:
        specs = [teachers] if isinstance(teachers, str | os.PathLike) else teachers
        named["teacher"] = tuple(init_name(teacher) for teacher in specs)
    return named


def join_ranks(recipe: Recipe) -> DistributedContext:
    """Join the processes of a run; check that its method and its device can be used."""
    if isinstance(recipe.method, DistillConfig) and not recipe.method.teacher:
        raise ValueError(
            f"distill predicts the features of a teacher: give {option('teacher', 'ENCODER')}"
        )
    device = choose_device(recipe.device)
    check_compile(recipe, device)
    return DistributedContext(device, choose_precision(recipe.precision, device))


@contextmanager
def lock_folder(folder: RunFolder, ranks: DistributedContext) -> Iterator[None]:
    """Create and lock the folder of a run on rank 0, while the other ranks wait."""
    with (
        disk_full_errors(folder.path, last=folder.last_checkpoint),
        ranks.rank_failure_errors(),
        ExitStack() as stack,
    ):
        if ranks.is_rank_zero:
            new_folders = make_folders(folder.path)
            stack.callback(remove_empty, new_folders)  # those of a run that left no files
            stack.enter_context(FolderLock(folder.path))
        ranks.barrier()
        yield


def gather_note(recipe: Recipe, ranks: DistributedContext) -> tuple[str, ...]:
    """Return a note if each process contrasts the examples of its own part of a batch alone."""
    world, settings = ranks.shard.world, recipe.method.flat()
    if world == 1 or settings.get("gather_distributed", True):
        return ()
    return (
        f"{world} processes: each contrasts the {recipe.batch_size // world} examples of its own "
        f"part of a batch, not all {recipe.batch_size}: {option('gather_distributed', True)} "
        "contrasts all",
    )
