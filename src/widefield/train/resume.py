"""Resuming a run: its examples in their order, then new ones, and its last checkpoint."""

from dataclasses import replace
from typing import Any

import torch

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.data import Dataset, steps_per_epoch
from widefield.data.table import EXCLUDED
from widefield.encoders import ENCODER_FILE
from widefield.encoders.own import known_digest
from widefield.methods.projector_file import PROJECTOR_FILE
from widefield.train.build import rank_seed, warmup_epochs, warmup_steps
from widefield.train.checkpoint import INVALID_CHECKPOINT, load, load_sharded
from widefield.train.distributed import DistributedContext
from widefield.train.manifest import Growth
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.train.state import device_of


def in_order(
    dataset: Dataset, folder: RunFolder, recipe: Recipe, ranks: DistributedContext
) -> tuple[Dataset, Growth | None]:
    """Return the examples in the order of the run to resume, and when some were added.

    New examples follow those of the run, and are added at its last checkpoint. The warm-up is that
    of the run so far: half of all epochs at most, of which there may be more from now on.
    """
    if not folder.has_checkpoint():
        if folder.manifest.file.exists():
            dataset = folder.in_order(dataset)
            folder.manifest.check_data(dataset, allow_new=True)
        return dataset, None
    ranks.on_rank_zero(lambda: _finish_growth(folder))
    dataset, growth = folder.in_order(dataset), folder.manifest.growth()
    known, epochs = len(folder.manifest.paths()), warmup_epochs(folder.recipe(), growth)
    if epochs > recipe.epochs / 2:  # fewer epochs: what is left of the warm-up is shortened too
        epochs = min(epochs, max(recipe.epochs / 2, _shared(folder)["epoch"]))
    growth = replace(growth, warmup_epochs=epochs)
    if len(dataset) > known:
        saved, warmup = _shared(folder), warmup_steps(recipe, known, growth)
        growth = replace(growth, epoch=saved["epoch"], step=saved["step"], warmup_steps=warmup)
    return dataset, growth


def _finish_growth(folder: RunFolder) -> None:
    """Rename the pending manifest of a run that was killed after its last checkpoint."""
    if folder.pending_manifest.file.exists():
        folder.rename_manifest(_shared(folder)["run"].get("manifest"))


def _shared(folder: RunFolder) -> dict[str, Any]:
    saved = load(folder.last_checkpoint, torch.device("cpu"), mapped=True)
    run, counts = saved.get("run"), (saved.get("epoch"), saved.get("step"))
    if not isinstance(run, dict) or not all(type(count) is int for count in counts):
        raise ValueError(INVALID_CHECKPOINT.format(folder.last_checkpoint))
    return saved


def restore(run: PretrainRun, source: str | None) -> None:
    """Restore the last checkpoint of a run, and add the examples that are new."""
    folder, ranks, recipe = run.folder, run.ranks, run.recipe
    saved = load_sharded(folder.last_checkpoint, ranks.shard)
    folder.check_unchanged(recipe, saved.get("run"))
    name = run.encoder.config.name
    if saved.get("network", known_digest(name)) != known_digest(name):
        run.print_line(f"{name} has changed since the checkpoint: its features may differ")
    new = folder.manifest.check_data(run.dataset, allow_new=True)
    growth = folder.manifest.growth()
    done = _epochs_started(run, saved, growth, new)
    if recipe.epochs < done:
        raise ValueError(
            f"{done} epochs of the run in {folder.path} have started: "
            f"give at least that many epochs, not {recipe.epochs}"
        )
    if new and saved["epoch"] == recipe.epochs:
        raise ValueError(
            f"{new} examples are new and all {saved['epoch']} epochs of the run in "
            f"{folder.path} are done: give more {option('epochs')}"
        )
    excluded = {one.path for one in run.dataset.skipped if one.reason == EXCLUDED}
    more_excluded = not excluded <= set(folder.manifest.excluded())
    _load_state(run, saved, new)
    ranks.on_rank_zero(lambda: _save_missing_encoder(run, growth))
    ranks.on_rank_zero(lambda: folder.update_settings(recipe, data=source, dataset=run.dataset))
    ranks.on_rank_zero(folder.remove_temp_files)
    run.print_line(f"resuming {folder.path} after epoch {done} of {recipe.epochs}")
    if new:
        _add_examples(run, new)
    elif more_excluded:  # else they would join at the next resume
        _save_manifest(run, growth)


def _epochs_started(run: PretrainRun, saved: dict[str, Any], growth: Growth, new: int) -> int:
    """Return how many epochs the saved run has started; it had all examples but `new`."""
    epoch, epoch_step, step = (saved.get(name) for name in ("epoch", "epoch_step", "step"))
    size, drop = run.recipe.batch_size, run.recipe.drop_last
    steps = steps_per_epoch(len(run.dataset) - new, size, drop_last=drop)
    if not (type(epoch) is type(epoch_step) is type(step) is int) or (
        epoch < growth.epoch
        or not 0 <= epoch_step < steps
        or step != growth.step + (epoch - growth.epoch) * steps + epoch_step
    ):
        raise ValueError(INVALID_CHECKPOINT.format(run.folder.last_checkpoint))
    return epoch + 1 if epoch_step else epoch


def _load_state(run: PretrainRun, saved: dict[str, Any], new: int) -> None:
    """Load a saved state, which had all examples but `new`."""
    ranks, state, recipe = run.ranks, run.state, run.recipe
    try:
        state.load_state_dict(saved)
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        if new:
            raise ValueError(
                f"{recipe.method.name} has weights for each example or class: none can be "
                f"added: start another run, with {option('init', run.folder.path)}"
            ) from error
        raise ValueError(INVALID_CHECKPOINT.format(run.folder.last_checkpoint)) from error
    before, now = device_of(saved), state.generator.device.type
    has_new_ranks = saved["world"] != ranks.shard.world
    if before != now:
        run.print_line(f"trained on {before} so far, now on {now}: random numbers start anew")
    if before != now or has_new_ranks:  # new ranks have no saved random state
        seed = rank_seed(recipe, ranks.shard, state.step)
        torch.manual_seed(seed)
        state.generator.manual_seed(seed)
    if has_new_ranks:
        for note in contrast_notes(recipe, saved["world"], ranks.shard.world):
            run.print_line(note)
        if not new:  # else `_add_examples` saves it
            run.save_checkpoint()


def contrast_notes(recipe: Recipe, before: int, now: int) -> tuple[str, ...]:
    """Return a note if `now` processes contrast other groups of examples than `before` did."""
    if recipe.method.flat().get("gather_distributed", True):
        return ()
    was, each = recipe.batch_size // before, recipe.batch_size // now
    return (
        f"{before} {'process' if before == 1 else 'processes'} so far, now {now}: the loss "
        f"contrasts {each} examples at a time and contrasted {was}; resume with {before} for the "
        "same loss",
    )


def _save_missing_encoder(run: PretrainRun, growth: Growth) -> None:
    """Save the encoder of the last epoch, if the run was killed between checkpoint and encoder.

    At the step at which examples were added no epoch has ended.
    """
    state, folder = run.state, run.folder
    if state.epoch_step or state.step == growth.step:
        return
    is_due = run.is_save_epoch(state.epoch) or state.epoch == folder.recipe().epochs
    target = folder.encoder_at(state.epoch)
    last = ENCODER_FILE if run.projector is None else PROJECTOR_FILE  # of those that are written
    if is_due and not (target / last).exists():
        run.save_encoder(target)


def _add_examples(run: PretrainRun, new: int) -> None:
    """Add new examples to the run and save a checkpoint with them."""
    state = run.state
    suffix = ", which starts again" if state.epoch_step else ""
    state.epoch_step, state.sums = 0, {}
    run.print_line(
        f"{new} examples are new, {len(run.dataset)} in all: added from epoch "
        f"{state.epoch + 1}{suffix}"
    )
    _save_manifest(run, run.growth)


def _save_manifest(run: PretrainRun, growth: Growth) -> None:
    """Save the manifest of all examples, and a checkpoint that names it.

    The manifest goes into place after the checkpoint that has its rows: a kill between the two is
    mended by `_finish_growth`, and one before leaves the run as it was.
    """
    folder, pending = run.folder, run.folder.pending_manifest
    run.ranks.on_rank_zero(lambda: pending.write(run.dataset, growth))
    run.save_checkpoint(pending)
    run.ranks.on_rank_zero(lambda: folder.rename_manifest(pending.checksum()))
