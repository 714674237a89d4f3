"""Opening of sounds: decoding to one sampling rate, cutting to one length, mixing."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.hardware import check_memory
from widefield.core.types import ProgressCallback
from widefield.data.cache import DecodingJournal, Record, cache_key, digest, load_or_build
from widefield.data.clips import Clips
from widefield.data.dataset import Dataset
from widefield.data.decode import sounds
from widefield.data.decode.decoding import Result, decode_all, failure_record, in_parallel
from widefield.data.examples import Examples
from widefield.data.notes import sound_notes
from widefield.data.open_options import OpenOptions
from widefield.data.plant import draw
from widefield.data.planted import AudioFeature, Canvas, SoundOverlay
from widefield.data.readers.recordings import Recordings, from_int16
from widefield.data.select import balanced_subset, split_rows, subset_without
from widefield.data.spec import Spec
from widefield.data.table import Skipped, check_skipped

# Chosen by hand.
SECONDS = 1.0
"""Default duration of an example."""
# Speech is mostly below 8 kHz, and higher rates take memory in proportion.
HIGHEST_RATE = 16_000
"""Maximum of the default sampling rate, Hz."""
# A Hann window of the spectrogram; see core/logmel.py.
_SHORTEST = 256
"""Minimum samples of an example."""
# Chosen by hand: the header of each file is read.
_RATE_FILES = 200
"""Files from which the most common rate is found."""


def open_sounds(spec: Spec, examples: Examples, options: OpenOptions) -> Dataset:
    """Select, decode and cut sounds; mix in planted sounds.

    An example is a recording in the middle of silence. If a recording is longer, it is its loudest
    segment; `Dataset.clips` has all of it, and training samples a segment at each read. The size
    (1, samples) of an example, from an encoder, takes precedence over `seconds`. The sampling rate
    is by default the most common one of the recordings, at most 16,000.
    """
    recordings = examples.recordings
    assert recordings is not None
    rows = split_rows(examples, spec)
    # Raises before decoding if there are too few.
    balanced_subset(examples.labels, rows, options.max_examples)
    if not recordings.rate:
        sounds.require_audio()
    rate = options.sample_rate or _default_rate(recordings)
    if recordings.rate not in (0, rate):
        sounds.require_audio()  # to resample
    steps = _steps(options, rate)
    held_out = options.held_out or spec.split == "test"
    canvas = Canvas(shape=(1, steps, 1), seed=options.seed, held_out=held_out, rate=rate)
    overlays = _overlays(spec, examples, canvas)
    segments, rows, record, storage = _decode(examples, rows, rate, steps, options)
    plain = segments.loudest()
    images = plain.copy() if overlays else plain
    for overlay in overlays:
        overlay.apply(images, np.arange(len(rows)))
    dataset = Dataset.of(
        spec,
        examples,
        rows,
        images,
        storage=storage,
        failed=[Skipped(path, reason) for path, reason in record["skipped"]],
        notes=sound_notes(segments, record["choices"], rate),
    )
    has_long = len(segments.longer) > 0
    resampled = any(overlay.fresh for overlay in overlays) and not has_long
    return replace(
        dataset.with_tasks(*overlays),
        planted=overlays,
        plain=plain if resampled else None,
        rate=rate,
        clips=segments if has_long else None,
    )


def _default_rate(recordings: Recordings) -> int:
    """Return the most common rate of the recordings, the highest if tied, at most 16 kHz."""
    if recordings.rate:
        return min(recordings.rate, HIGHEST_RATE)
    counts: Counter[int] = Counter()
    for row in np.unique(np.linspace(0, len(recordings) - 1, _RATE_FILES).astype(int)):
        try:
            counts[_header(recordings, int(row)).rate] += 1
        except sounds.UnreadableError:
            continue
    most_common = max(counts, key=lambda rate: (counts[rate], rate), default=HIGHEST_RATE)
    return min(most_common, HIGHEST_RATE)


def _header(recordings: Recordings, row: int) -> sounds.Header:
    sound = recordings.sounds[row]
    if isinstance(sound, Path):
        return sounds.header(sound)
    return sounds.Header(len(sound), recordings.rate)


def _steps(options: OpenOptions, rate: int) -> int:
    """Return T, the samples of an example."""
    size = options.size
    if size is not None and size[0] != 1:
        raise ValueError(
            f"these are sounds, and images of {size[0]}x{size[1]} were requested: leave "
            f"{option('image_size')} out; seconds sets the length of an example"
        )
    steps = size[1] if size is not None else round((options.seconds or SECONDS) * rate)
    if steps < _SHORTEST:
        raise ValueError(
            f"examples of {steps} samples are too short at {rate} Hz; choose seconds of "
            f"{_SHORTEST / rate:.3g} or more"
        )
    check_memory(2 * steps, "one example")
    return steps


def _overlays(spec: Spec, examples: Examples, canvas: Canvas) -> tuple[SoundOverlay, ...]:
    overlays = []
    for feature in spec.features(examples.labels):
        if not isinstance(feature, AudioFeature):
            raise ValueError(
                f"'+{feature.name}' is planted in images; these are sounds: choose tone, clicks or "
                "background"
            )
        overlays.append(draw(feature, canvas))
    return tuple(overlays)


def _decode(
    examples: Examples, rows: NDArray[np.int64], rate: int, steps: int, options: OpenOptions
) -> tuple[Clips, NDArray[np.int64], Record, str]:
    """Return the decoded sounds, their rows, the record, and where they are stored, as text."""
    most = options.max_examples
    failed: dict[int, Skipped] = {}
    while True:
        selected = subset_without(failed, examples.labels, rows, most, examples.groups)
        # Before the samples, which may not fit into memory: the place of each sound goes by them.
        lengths = _lengths(examples, selected, rate, failed)
        check_skipped(failed.values(), len(rows))
        if most is not None and len(lengths) < len(selected):
            continue  # with `max_examples`, others replace the unreadable ones
        kept = np.array(list(lengths), dtype=np.int64)
        sizes = np.maximum(np.array(list(lengths.values()), dtype=np.int64), steps)
        samples, record, storage = load_or_build(
            (int(sizes.sum()),),
            partial(_fill, examples, kept, sizes, rate, options.progress),
            key=examples.origin and partial(_key, examples, kept, rate, steps),
            files=len(kept),
            budget=options.memory_budget,
            dtype=np.int16,
        )
        new = dict(zip(record["failed"], record["skipped"], strict=True))
        failed |= {row: Skipped(path, reason) for row, (path, reason) in new.items()}
        check_skipped(failed.values(), len(rows))
        if not new or most is None:
            break
    left = ~np.isin(kept, list(new))
    sizes = sizes[left]
    clips = Clips(
        samples=samples[: int(sizes.sum())],
        starts=np.cumsum(sizes) - sizes,
        lengths=sizes,
        steps=steps,
        seed=options.seed,
    )
    return clips, kept[left], record | failure_record(failed), storage


def _lengths(
    examples: Examples, rows: NDArray[np.int64], rate: int, failed: dict[int, Skipped]
) -> dict[int, int]:
    """Return row -> samples at `rate`, from the headers; add files without one to `failed`."""
    recordings = examples.recordings
    assert recordings is not None

    def length(row: int) -> int:
        found = _header(recordings, row)
        return sounds.resampled_length(found.frames, found.rate, rate)

    lengths: dict[int, int] = {}
    for row, result in in_parallel(length, rows.tolist()):
        if isinstance(result, str):
            failed[row] = Skipped(examples.names[row], result)
        else:
            lengths[row] = result
    return lengths


def _fill(
    examples: Examples,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rate: int,
    progress: ProgressCallback | None,
    out: NDArray[np.int16],
    journal: DecodingJournal | None,
) -> Record:
    """Decode each sound into the middle of `sizes` samples; no gaps for those that fail."""
    recordings, starts = examples.recordings, np.cumsum(sizes) - sizes
    assert recordings is not None

    def decode_row(row: int) -> Result:
        sound = recordings.sounds[row]
        if isinstance(sound, Path):
            samples, choices = sounds.decode(sound, rate)
        else:
            samples, choices = sounds.leveled(from_int16(sound), recordings.rate, rate)
        k = int(np.searchsorted(rows, row))
        slot = out[starts[k] : starts[k] + sizes[k]]
        samples = samples[: len(slot)]
        first = (len(slot) - len(samples)) // 2
        slot[:] = 0
        slot[first : first + len(samples)] = samples
        return choices, None, 0.0

    # One at a time for each thread, because a recording may be an hour long.
    report = decode_all(
        decode_row, examples.names, rows.tolist(), chunk=1, journal=journal, progress=progress
    )
    if journal is not None:
        journal.clear()  # samples move now
    position = 0
    for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if row not in report.failed:
            if position != start:
                out[position : position + size] = out[start : start + size]
            position += size
    return report.record()


def _key(examples: Examples, rows: NDArray[np.int64], rate: int, steps: int) -> str:
    assert examples.origin is not None
    return cache_key(("leveled", rate, steps), examples.origin(), digest(rows))
