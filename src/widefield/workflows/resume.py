"""Preparation of a run that is resumed: settings, data and initial weights are those it had."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from widefield.config.recipe import Recipe
from widefield.config.resolve import without_auto
from widefield.core.cpus import available_cpus
from widefield.core.errors import option
from widefield.encoders import is_custom, load_encoder
from widefield.train.compute import default_threads
from widefield.train.progress import print_line
from widefield.train.resume import in_order
from widefield.train.run import Prepared
from widefield.train.run_dir import RESUME_SETTINGS, RunFolder
from widefield.workflows.start import Request, gather_note, join_ranks, lock_folder, with_names


def resume(request: Request, settings: Mapping[str, Any], stack: ExitStack) -> Prepared:
    """Prepare the rest of a run; `stack` holds its folder."""
    folder = request.folder
    recipe = _recipe(folder, settings)
    ranks = join_ranks(recipe)
    request = replace(
        request,
        group=_group(folder, request.group),
        excluded=(*folder.manifest.excluded(), *request.excluded),
    )
    # In the form of the run, which new files must not change.
    dataset = request.open(recipe, ranks, **folder.form().options())
    stack.enter_context(lock_folder(folder, ranks))
    ranks.on_rank_zero(folder.finish_start)
    initial = None if recipe.init is None else load_encoder(folder.init_folder)
    dataset, growth = in_order(dataset, folder, recipe, ranks)
    threads, thread_note = _threads(folder, request.threads)
    has_checkpoint = folder.has_checkpoint()
    if not has_checkpoint:
        line = f"{folder.path} has no checkpoint yet: the run starts again"
        print_line(request.console(ranks), line)
    return Prepared(
        recipe=recipe,
        dataset=dataset,
        initial=initial,
        growth=growth,
        ranks=ranks,
        group=request.group,
        threads=threads,
        has_checkpoint=has_checkpoint,
        notes=(*dataset.notes, dataset.storage, *gather_note(recipe, ranks), *thread_note),
    )


def _recipe(folder: RunFolder, settings: Mapping[str, Any]) -> Recipe:
    recipe = folder.recipe()
    custom = recipe.encoder.name if is_custom(recipe.encoder.name) else None
    overrides = without_auto(with_names(settings, recorded=_recorded(custom, settings)))
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


def _recorded(custom: str | None, settings: Mapping[str, Any]) -> str | None:
    """Return the name under which a file that may have moved is in the run."""
    is_file = custom is not None and is_custom(str(settings.get("encoder")))
    return custom if is_file and Path(str(custom)).name == Path(settings["encoder"]).name else None


def _group(folder: RunFolder, group: str | None) -> str | None:
    """Return the group of the run; check that no other one is given."""
    before = folder.group()
    if group not in (None, before):
        raise ValueError(
            f"the run in {folder.path} has group {before!r}, not {group!r}: resume without "
            f"{option('group')}, or start a new run with another {option('out')}"
        )
    return before


def _threads(folder: RunFolder, threads: int | None) -> tuple[int, tuple[str, ...]]:
    """Return the number of threads, by default that of the run, and a note on another one."""
    before = folder.settings().get("threads")
    if before is None:
        return threads or default_threads(), ()
    now = threads or min(before, available_cpus())
    if now == before:
        return now, ()
    return now, (f"{now} threads, and {before} so far: the last bits of the weights can differ",)
