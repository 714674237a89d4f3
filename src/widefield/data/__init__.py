"""Source to batches: what the examples are, where they are kept, how they reach the device."""

from widefield.data.dataset import Dataset as Dataset
from widefield.data.dataset import Skipped as Skipped
from widefield.data.loader import Loader as Loader
from widefield.data.loader import ordered as ordered
from widefield.data.sources import open_dataset as open_dataset
from widefield.data.spec import absolute as absolute
from widefield.data.spec import held_out_split as held_out_split
from widefield.data.spec import same_images as same_images
