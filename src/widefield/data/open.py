"""`open_dataset`: read a source, and open its images, sounds or windows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from widefield.core.errors import option
from widefield.core.types import BlackWhite, Fit, PixelStorage, ProgressCallback, Size, kind_of
from widefield.data.dataset import Dataset
from widefield.data.examples import Examples
from widefield.data.groups import grouped
from widefield.data.labels import LabelTable, labeled
from widefield.data.labels.files import match_paths
from widefield.data.open_images import open_images, reason_to_decode
from widefield.data.open_options import DEFAULT_OPTIONS, Agree, OpenOptions
from widefield.data.open_sounds import open_sounds
from widefield.data.select import balanced_subset, split_rows
from widefield.data.source import Data, read_source
from widefield.data.spec import Spec
from widefield.data.table import EXCLUDED, Skipped


def open_dataset(
    data: Data,
    *,
    max_examples: int | None = None,
    image_size: int | Size | None = None,
    black_white: BlackWhite | None = None,
    eight_bits: bool = False,
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
    agree: Agree = lambda reason: reason,
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
            data, see `data.decode.black_white`.
        eight_bits: whether images are for an encoder that was trained on 8 bits, so that floats and
            16 bits are read by the fixed rule of `data.decode.eight_bits`.
        seed: seed of the planted features.
        held_out: use held-out sources of planted features, as `:test` always does.
        labels: labels that replace those of the data; see `data.labels`.
        unlabeled: keep examples without a label, as class -1, instead of dropping them.
        exclude: paths of examples to leave out; see `data.labels.read`.
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
    return open_with(
        data,
        OpenOptions(
            max_examples=max_examples,
            image_size=image_size,
            black_white=black_white,
            eight_bits=eight_bits,
            seed=seed,
            held_out=held_out,
            labels=labels,
            unlabeled=unlabeled,
            exclude=exclude,
            group=group,
            seconds=seconds,
            sample_rate=sample_rate,
            fit=fit,
            pixels=pixels,
            memory_budget=memory_budget,
            agree=agree,
            progress=progress,
        ),
    )


def open_with(data: Data, options: OpenOptions) -> Dataset:
    """Open data as `open_dataset` does, with its options as one value."""
    spec, examples = read_examples(data, options)
    if options.pixels == "encoded" and (reason := reason_to_decode(spec, examples)):
        raise ValueError(
            f"pixels is 'encoded', and the data '{spec}' {reason}: set it to auto or decoded"
        )
    if examples.recordings is not None:
        return open_sounds(spec, examples, options)
    if examples.pixels is not None and kind_of(examples.pixels) == "windows":
        return _open_windows(spec, examples, options)
    return open_images(spec, examples, options)


def read_examples(data: Data, options: OpenOptions) -> tuple[Spec, Examples]:
    """Return the spec and the examples of a source, labeled and grouped; nothing is decoded."""
    spec, examples = read_source(data, options.size, labels=options.labels is not None)
    # Names are compared before labels drop some of them, and dropped after: a table of labels may
    # name excluded files, which may be gone.
    found = match_paths(options.exclude, examples.names, spec.base, "the excluded files")
    if options.labels is not None:
        examples = labeled(examples, options.labels, spec.base, unlabeled=options.unlabeled)
    elif not options.unlabeled:
        examples = _without_partial_tasks(examples, for_probe=options.for_probe)
    if options.exclude:
        unknown = [path for path in options.exclude if path not in found]
        examples = _without(examples, frozenset(found.values()), unknown)
    if options.group is not None:
        examples = grouped(examples, options.group)
    return spec, examples


def count_of_source(data: Data, options: OpenOptions = DEFAULT_OPTIONS) -> int:
    """Return the number of examples of a source without decoding it."""
    spec, examples = read_examples(data, options)
    return len(split_rows(examples, spec))


def _without(examples: Examples, names: frozenset[str], unknown: Sequence[str]) -> Examples:
    """Return the examples without those of these names, noted; the paths `unknown` match none."""
    rows = np.flatnonzero([name not in names for name in examples.names])
    if not len(rows):
        raise ValueError(f"all {len(names)} examples are excluded: keep some")
    others = f"; {len(unknown)} others are not in the data" if unknown else ""
    # With those that are gone: a run that they come back to must not take them.
    excluded = tuple(Skipped(path, EXCLUDED) for path in sorted({*names, *unknown}))
    kept = replace(examples.take(rows), excluded=excluded)
    return kept.with_notes(f"{len(names)} examples are excluded{others}")


def _without_partial_tasks(examples: Examples, *, for_probe: bool) -> Examples:
    """Return the examples without the tasks that some of them have no label of.

    If they are `for_probe` and no task would be left, the examples without a label are left out.
    """
    missing = {task: int((y < 0).sum()) for task, y in examples.labels.items() if (y < 0).any()}
    rows = np.flatnonzero(examples.known().all(0))
    if for_probe and len(rows) and 0 < len(missing) == len(examples.labels) + len(examples.targets):
        n, tasks = len(examples.names) - len(rows), " and ".join(map(repr, missing))
        return examples.take(rows).with_notes(f"{n} examples have no label of {tasks}: left out")
    left = replace(
        examples,
        labels={task: y for task, y in examples.labels.items() if task not in missing},
        classes={task: names for task, names in examples.classes.items() if task not in missing},
    )
    return left.with_notes(
        *(
            f"{task!r} is left out: {count} examples have no label; {option('labels')} leaves "
            "these out instead"
            for task, count in missing.items()
        )
    )


def _open_windows(spec: Spec, examples: Examples, options: OpenOptions) -> Dataset:
    """Select windows, examples of height 1 whose width is time; their pixels are in memory."""
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
    rows = split_rows(examples, spec)
    rows = balanced_subset(examples.labels, rows, options.max_examples, examples.groups)
    whole = len(rows) == len(examples.names)
    return Dataset.of(
        spec,
        examples,
        rows,
        examples.pixels if whole else examples.pixels[rows],
        storage=f"kept in memory: {len(rows) * examples.pixels[0].nbytes / 1e6:.1f} MB",
    )
