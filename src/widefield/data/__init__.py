"""Source to batches: what the examples are, where their pixels lie, how they reach the device."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widefield.data.dataset import Dataset as Dataset
    from widefield.data.loader import Loader as Loader
    from widefield.data.loader import steps_per_epoch as steps_per_epoch
    from widefield.data.open import count_of_source as count_of_source
    from widefield.data.open import kind_of_source as kind_of_source
    from widefield.data.open import open_dataset as open_dataset
    from widefield.data.skipped import Skipped as Skipped
    from widefield.data.spec import absolute as absolute
    from widefield.data.spec import held_out_split as held_out_split
    from widefield.data.spec import plant_names as plant_names
    from widefield.data.spec import same_images as same_images
    from widefield.data.spectrograms import spectrogram_mean_std as spectrogram_mean_std

# Loaded when first asked for: a data spec is checked without waiting for torch.
_HOMES = {
    "Dataset": "widefield.data.dataset",
    "Skipped": "widefield.data.skipped",
    "Loader": "widefield.data.loader",
    "count_of_source": "widefield.data.open",
    "kind_of_source": "widefield.data.open",
    "open_dataset": "widefield.data.open",
    "absolute": "widefield.data.spec",
    "held_out_split": "widefield.data.spec",
    "plant_names": "widefield.data.spec",
    "same_images": "widefield.data.spec",
    "spectrogram_mean_std": "widefield.data.spectrograms",
    "steps_per_epoch": "widefield.data.loader",
}

__all__ = [
    "Dataset",
    "Loader",
    "Skipped",
    "absolute",
    "count_of_source",
    "held_out_split",
    "kind_of_source",
    "open_dataset",
    "plant_names",
    "same_images",
    "spectrogram_mean_std",
    "steps_per_epoch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'widefield.data' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
