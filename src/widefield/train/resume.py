"""Examples of a resumed run: those of the run in their order, then new ones."""

from dataclasses import replace
from typing import Any

import torch

from widefield.config.recipe import Recipe
from widefield.data import Dataset
from widefield.train.build import warmup_epochs, warmup_steps
from widefield.train.checkpoint import INVALID_CHECKPOINT, load
from widefield.train.distributed import DistributedContext
from widefield.train.manifest import Growth
from widefield.train.run_dir import RunFolder


def in_order(
    dataset: Dataset, folder: RunFolder, recipe: Recipe, ranks: DistributedContext
) -> tuple[Dataset, Growth | None]:
    """Return the examples in the order of the run to resume, and when some were added.

    New examples follow those of the run, and are added at its last checkpoint. The warm-up is that
    of the run so far: half of all epochs at most, of which there may be more from now on.

    Raises:
        ValueError: a file of the run is missing or damaged.
    """
    if not folder.has_checkpoint():
        has_manifest = folder.manifest.file.exists()
        return folder.in_order(dataset) if has_manifest else dataset, None
    ranks.on_rank_zero(lambda: _finish_growth(folder))
    dataset, growth = folder.in_order(dataset), folder.manifest.growth()
    known, began = len(folder.manifest.paths()), warmup_epochs(folder.recipe(), growth)
    if began > recipe.epochs / 2:  # fewer epochs: what is left of the warm-up is shortened too
        began = min(began, max(recipe.epochs / 2, _shared(folder)["epoch"]))
    growth = replace(growth, warmup_epochs=began)
    if len(dataset) > known:
        saved, warmup = _shared(folder), warmup_steps(recipe, known, growth)
        growth = replace(growth, epoch=saved["epoch"], step=saved["step"], warmup_steps=warmup)
    return dataset, growth


def _finish_growth(folder: RunFolder) -> None:
    """Rename the pending manifest of a run that was killed after its last checkpoint."""
    if folder.pending_manifest.file.exists():
        folder.rename_manifest(_shared(folder)["run"].get("manifest"))


def _shared(folder: RunFolder) -> dict[str, Any]:
    """Return the shared part of the last checkpoint."""
    saved = load(folder.last_checkpoint, torch.device("cpu"), mapped=True)
    run, counts = saved.get("run"), (saved.get("epoch"), saved.get("step"))
    if not isinstance(run, dict) or not all(type(count) is int for count in counts):
        raise ValueError(INVALID_CHECKPOINT.format(folder.last_checkpoint))
    return saved
