"""The views of a run, after and before training."""

from pathlib import Path

import torch

from widefield.inference.open_encoder import load
from widefield.train.checkpoint import load as load_checkpoint
from widefield.train.run_dir import RunFolder
from widefield.views import Augmentation


def run_views(run: str | Path, *, kept: int = 0) -> Augmentation:
    """Return the views of a run with their trained parameters, on the CPU."""
    views, folder = untrained_views(run, kept=kept), RunFolder(path=Path(run))
    state = load_checkpoint(folder.last_checkpoint, torch.device("cpu"))["views"]
    views.load_state_dict(state)
    return views


def untrained_views(run: str | Path, *, kept: int = 0) -> Augmentation:
    """Return the views of a run, untrained; as `run_views`."""
    recipe, config = RunFolder(path=Path(run)).recipe(), load(run).config
    return recipe.views.build(
        channels=config.channels,
        kept=kept,
        seed=recipe.seed,
        kind=config.kind,
        front_end=config.front_end,
    )
