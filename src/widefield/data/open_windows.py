"""Windows and sounds as they are opened: examples of height 1 whose width is the time."""

from widefield.core.types import Size
from widefield.data.dataset import Dataset
from widefield.data.examples import Examples
from widefield.data.select import choose, split_rows
from widefield.data.spec import BUILT_IN, Spec


def open_windows(
    spec: Spec, examples: Examples, *, size: Size | None, max_examples: int | None
) -> Dataset:
    """Select windows; they are in memory already.

    Raises:
        ValueError: something is planted on them, or another length is asked for.
    """
    assert examples.pixels is not None
    if spec.plants:
        raise ValueError(
            f"'+{spec.plants[0].name}' is planted on images or sounds, and '{spec.base}' holds "
            "windows; leave it out"
        )
    steps = examples.pixels.shape[2]
    if size is not None and size != (1, steps):
        asked = f"{size[1]} steps" if size[0] == 1 else f"images of {size[0]}x{size[1]}"
        raise ValueError(
            f"'{spec.base}' holds windows of {steps} steps, and {asked} are asked for; cut the "
            "windows to that length, or leave image_size out"
        )
    rows = choose(examples, split_rows(examples.names, spec), max_examples)
    whole = len(rows) == len(examples.names)
    notes = list(examples.notes)
    if spec.split and spec.base not in BUILT_IN:
        notes.append(split_note(spec, len(rows)))
    return Dataset(
        spec=str(spec),
        images=examples.pixels if whole else examples.pixels[rows],
        labels={task: ids[rows] for task, ids in examples.labels.items()},
        classes=examples.classes,
        paths=[examples.names[row] for row in rows.tolist()],
        notes=tuple(notes),
        place=f"kept in memory: {len(rows) * examples.pixels[0].nbytes / 1e6:.1f} MB",
    )


def split_note(spec: Spec, n: int) -> str:
    """Say how a path was divided."""
    return f"{spec.split} split: {n} examples, 80 / 20 by a hash of each name"
