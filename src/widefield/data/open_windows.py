"""Opening of windows: examples of height 1, whose width is time."""

from widefield.core.errors import option
from widefield.data.dataset import Dataset
from widefield.data.examples import Examples
from widefield.data.open_options import OpenOptions
from widefield.data.select import balanced_subset, split_rows
from widefield.data.spec import Spec


def open_windows(spec: Spec, examples: Examples, options: OpenOptions) -> Dataset:
    """Select windows; their pixels are in memory.

    Raises:
        ValueError: the spec plants features, or the size is another length.
    """
    assert examples.pixels is not None
    if spec.plants:
        raise ValueError(
            f"'+{spec.plants[0].name}' is planted on images or sounds, and '{spec.base}' holds "
            "windows; leave it out"
        )
    steps, size = examples.pixels.shape[2], options.size
    if size is not None and size != (1, steps):
        expected = f"{size[1]} steps" if size[0] == 1 else f"images of {size[0]}x{size[1]}"
        raise ValueError(
            f"'{spec.base}' holds windows of {steps} steps, and {expected} were requested; cut the "
            f"windows to that length, or leave {option('image_size')} out"
        )
    rows = balanced_subset(examples.labels, split_rows(examples, spec), options.max_examples)
    whole = len(rows) == len(examples.names)
    return Dataset.of(
        spec,
        examples,
        rows,
        examples.pixels if whole else examples.pixels[rows],
        storage=f"kept in memory: {len(rows) * examples.pixels[0].nbytes / 1e6:.1f} MB",
    )
