"""Data: a source -> decoded examples in a stable order -> batches on the device."""

from typing import TYPE_CHECKING

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield.data.dataset import Dataset as Dataset
    from widefield.data.loader import Loader as Loader
    from widefield.data.loader import steps_per_epoch as steps_per_epoch
    from widefield.data.open import count_of_source as count_of_source
    from widefield.data.open import open_dataset as open_dataset
    from widefield.data.skipped import Skipped as Skipped
    from widefield.data.source import kind_of_source as kind_of_source
    from widefield.data.spec import absolute as absolute
    from widefield.data.spec import plant_names as plant_names
    from widefield.data.spec import same_images as same_images
    from widefield.data.spec import to_test_split as to_test_split
    from widefield.data.spectrograms import spectrogram_mean_std as spectrogram_mean_std

# A data spec is checked without importing torch.
__getattr__, __dir__ = lazy_exports(__name__)
