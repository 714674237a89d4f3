"""`open_dataset`: read a source, and open its images, sounds or windows."""

from dataclasses import replace
from typing import get_args

import numpy as np

from widefield.core.errors import option
from widefield.core.names import check_name
from widefield.core.types import (
    BlackWhite,
    Fit,
    PixelStorage,
    ProgressCallback,
    Size,
    as_size,
    is_black_white,
    kind_of,
)
from widefield.data.dataset import Dataset
from widefield.data.decisions import excluded_names, without
from widefield.data.examples import Examples
from widefield.data.groups import grouped
from widefield.data.labels import LabelTable, labeled
from widefield.data.open_images import Agree, ImageOptions, open_images, reason_to_decode
from widefield.data.open_sounds import open_sounds
from widefield.data.open_windows import open_windows
from widefield.data.source import Data, read_source


def open_dataset(
    data: Data,
    *,
    max_examples: int | None = None,
    image_size: int | Size | None = None,
    black_white: BlackWhite | None = None,
    seed: int = 0,
    held_out: bool = False,
    labels: LabelTable | None = None,
    unlabeled: bool = False,
    exclude: tuple[str, ...] = (),
    group: str | None = None,
    seconds: float | None = None,
    sample_rate: int | None = None,
    fit: Fit = "crop",
    pixels: PixelStorage = "auto",
    memory_budget: int | None = None,
    agree: Agree = lambda lacking: lacking,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Open images, windows or sounds: a data spec, a path, or arrays in memory.

    Args:
        data: a spec as in `widefield.data.spec`; arrays as in `widefield.data.readers.arrays`; a
            list of paths or PIL images.
        max_examples: number of examples, balanced over the classes of the first task.
        image_size: side of square images, or height and width; default: see `common_size` in
            `data.readers.images`.
        black_white: values that become 0 and 255 in images of more than 8 bits; default: from the
            data, see `data.decode.high_bit_depth`.
        seed: seed of the planted features.
        held_out: use held-out sources of planted features, as `:test` always does.
        labels: labels that replace those of the data; see `data.labels`.
        unlabeled: keep examples without a label, as class -1, instead of dropping them.
        exclude: paths of examples to leave out; see `data.decisions`.
        group: which examples belong together; see `data.groups`. A task of this name is no task.
        seconds: duration of an example of sounds; default: 1.
        sample_rate: sampling rate of sounds, Hz; default: that of the files, at most 16,000.
        fit: how images of another shape are brought to the size: cut around the center, padded
            with black, or squashed.
        pixels: decoded keeps decoded images in memory or in the cache, encoded decodes files at
            each read; auto is encoded where neither memory nor disk holds the decoded images.
        memory_budget: limit of pixels in memory, bytes; default: half of the free memory.
        agree: called with what `auto` found in this process, and returns what all processes of a
            run go by.
        progress: called with (done, total) images while files are decoded.

    Raises:
        ValueError: the data cannot be read, or an argument does not fit them.

    Example:
        >>> dataset = open_dataset("photos:test+digits", max_examples=100)
        >>> len(dataset), list(dataset.labels)
        (100, ['class', 'digits'])
    """
    size = None if image_size is None else as_size(image_size)
    for name, value in (
        ("max_examples", max_examples),
        ("image_size", None if size is None else min(size)),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{option(name)} is {value}; expected at least 1")
    if black_white is not None and not is_black_white(black_white):
        raise ValueError(f"black_white is {black_white!r}; expected two numbers, black < white")
    check_name("fit", fit, get_args(Fit))
    check_name("pixels", pixels, get_args(PixelStorage))
    spec, examples = read_source(data, size, labels=labels is not None)
    excluded = excluded_names(exclude, examples.names, spec.base)
    if labels is not None:
        examples = labeled(examples, labels, spec.base, unlabeled=unlabeled)
    elif not unlabeled:
        examples = _without_gaps(examples)
    examples = without(examples, excluded, len(exclude))
    if group is not None:
        examples = grouped(examples, group)
    if examples.files is not None and black_white is not None and len(np.shape(black_white)) == 2:
        examples = replace(examples, as_values=True)  # as in the data of the run
    if pixels == "encoded" and (reason := reason_to_decode(spec, examples)):
        raise ValueError(
            f"pixels is 'encoded', and the data '{spec}' {reason}: set it to auto or decoded"
        )
    if examples.pixels is not None and kind_of(examples.pixels) == "windows":
        return open_windows(spec, examples, size=size, max_examples=max_examples)
    if examples.recordings is not None:
        return open_sounds(
            spec,
            examples,
            size=size,
            rate=sample_rate,
            seconds=seconds,
            max_examples=max_examples,
            seed=seed,
            held_out=held_out,
            memory_budget=memory_budget,
            progress=progress,
        )
    options = ImageOptions(
        max_examples=max_examples,
        black_white=black_white,
        fit=fit,
        pixels=pixels,
        memory_budget=memory_budget,
        agree=agree,
        progress=progress,
    )
    return open_images(spec, examples, size=size, seed=seed, held_out=held_out, options=options)


def _without_gaps(examples: Examples) -> Examples:
    """Return the examples without the tasks that some of them have no label of."""
    gaps = {task: int((y < 0).sum()) for task, y in examples.labels.items() if (y < 0).any()}
    notes = tuple(
        f"{task!r} is left out: {count} examples have no label; {option('labels')} leaves these "
        "out instead"
        for task, count in gaps.items()
    )
    return replace(
        examples,
        labels={task: y for task, y in examples.labels.items() if task not in gaps},
        classes={task: names for task, names in examples.classes.items() if task not in gaps},
        notes=(*examples.notes, *notes),
    )
