"""The views of a run, as training left them."""

from pathlib import Path

import torch

from widefield.train.checkpoint import load as load_checkpoint
from widefield.train.folder import RunFolder
from widefield.views import Augmentation
from widefield.workflows.extractor import load


def run_views(run: str | Path) -> Augmentation:
    """Return the views of a run with what they learned, on the CPU.

    Raises:
        ValueError: `run` is not a run, or its checkpoint cannot be read.
    """
    folder = RunFolder(path=Path(run))
    recipe = folder.recipe()
    views = recipe.views.build(channels=load(run).config.channels, seed=recipe.seed)
    state = load_checkpoint(folder.last_checkpoint, torch.device("cpu"))["views"]
    views.load_state_dict(state)
    return views
