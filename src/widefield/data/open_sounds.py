"""Opening of sounds: decoding to one sampling rate, cutting to one length, mixing."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.memory import check_memory
from widefield.core.types import ProgressCallback, Size
from widefield.data.cache import DecodingJournal, Record, cache_key, digest, load_or_build
from widefield.data.clips import Clips
from widefield.data.dataset import Dataset
from widefield.data.decode.levels import Choices
from widefield.data.decode.sounds import (
    UnreadableError,
    decode,
    header,
    in_parallel,
    leveled,
    require_audio,
    resampled_length,
)
from widefield.data.examples import Examples
from widefield.data.notes import sound_notes, split_note
from widefield.data.plant import draw
from widefield.data.planted import AudioFeature, Canvas, SoundOverlay
from widefield.data.readers.recordings import Recordings, from_int16
from widefield.data.select import balanced_subset, split_rows, subset_without
from widefield.data.skipped import Skipped, check_skipped, skipped_note
from widefield.data.spec import Spec

SECONDS = 1.0
"""Default duration of an example."""
HIGHEST_RATE = 16_000
"""Maximum of the default sampling rate, Hz."""
_SHORTEST = 256
"""Minimum samples of an example."""
_RATE_SAMPLE = 200


def open_sounds(
    spec: Spec,
    examples: Examples,
    *,
    size: Size | None,
    rate: int | None,
    seconds: float | None,
    max_examples: int | None,
    seed: int,
    held_out: bool,
    memory_budget: int | None,
    progress: ProgressCallback | None,
) -> Dataset:
    """Select, decode and cut sounds; mix in planted sounds.

    An example is a recording in the middle of silence. If a recording is longer, it is its loudest
    segment; `Dataset.clips` has all of it, and training samples a segment at each read.
    `size` is (1, samples) of an example, from an encoder, and takes precedence over `seconds`;
    `rate` is the sampling rate, Hz, by default the most common one of the recordings, at most
    16,000. The other arguments are those of `open_dataset`.

    Raises:
        ValueError: sounds that cannot be read, or arguments that do not fit them.
    """
    recordings = examples.recordings
    assert recordings is not None
    rows = split_rows(examples, spec)
    balanced_subset(
        examples.labels, rows, max_examples
    )  # raises before decoding if there are too few
    rate = rate or _default_rate(recordings)
    steps = _steps(size, seconds, rate)
    held_out = held_out or spec.split == "test"
    canvas = Canvas(shape=(1, steps, 1), seed=seed, held_out=held_out, rate=rate)
    overlays = _overlays(spec, examples, canvas)
    if recordings.files is None:
        clips, rows, skipped, choices = _from_memory(examples, rows, max_examples, rate)
        samples, lengths = _concatenate(clips, steps)
        storage = f"kept in memory: {samples.nbytes / 1e6:.1f} MB"
    else:
        samples, lengths, rows, skipped, choices, storage = _from_files(
            examples, recordings.files, rows, max_examples, rate, steps, memory_budget, progress
        )
    starts = np.cumsum(lengths) - lengths
    segments = Clips(samples=samples, starts=starts, lengths=lengths, steps=steps, seed=seed)
    notes = [
        *examples.notes,
        *split_note(spec, len(rows), grouped=examples.groups is not None),
        *sound_notes(segments, choices, rate),
    ]
    return _dataset(spec, examples, segments, rows, overlays, skipped, notes, storage, rate)


def _default_rate(recordings: Recordings) -> int:
    """Return the most common rate of the recordings, the highest if tied, at most 16 kHz."""
    if recordings.rate is not None:
        return min(recordings.rate, HIGHEST_RATE)
    assert recordings.files is not None
    require_audio()
    counts: Counter[int] = Counter()
    for row in np.unique(np.linspace(0, len(recordings) - 1, _RATE_SAMPLE).astype(int)):
        try:
            counts[header(recordings.files[row]).rate] += 1
        except UnreadableError:
            continue
    most_common = max(counts, key=lambda rate: (counts[rate], rate), default=HIGHEST_RATE)
    return min(most_common, HIGHEST_RATE)


def _steps(size: Size | None, seconds: float | None, rate: int) -> int:
    """Return T, the samples of an example."""
    if size is not None and size[0] != 1:
        raise ValueError(
            f"these are sounds, and images of {size[0]}x{size[1]} were requested: leave "
            f"{option('image_size')} out; seconds sets the length of an example"
        )
    steps = size[1] if size is not None else round((seconds or SECONDS) * rate)
    if steps < _SHORTEST:
        raise ValueError(
            f"examples of {steps} samples are too short at {rate} Hz; choose seconds of "
            f"{_SHORTEST / rate:.3g} or more"
        )
    check_memory(2 * steps, "one example")
    return steps


def _overlays(spec: Spec, examples: Examples, canvas: Canvas) -> list[SoundOverlay]:
    overlays = []
    for feature in spec.features(examples.labels):
        if not isinstance(feature, AudioFeature):
            raise ValueError(
                f"'+{feature.name}' is planted in images; these are sounds: choose tone, clicks or "
                "background"
            )
        overlays.append(draw(feature, canvas))
    return overlays


def _decode_readable(
    work: Callable[[int], Any],
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    failed: dict[int, Skipped],
) -> dict[int, Any]:
    """Return row -> `work(row)` for the selected `rows`; add those that fail to `failed`.

    With `max_examples`, others replace the failed ones.
    """
    done: dict[int, Any] = {}
    while True:
        selected = subset_without(failed, examples, rows, max_examples).tolist()
        new = [row for row in selected if row not in done]
        if not new:
            return {row: done[row] for row in selected}
        found, failures = in_parallel(work, examples.names, new)
        done |= found
        failed |= failures
        check_skipped(failed.values(), len(rows))


def _from_memory(
    examples: Examples, rows: NDArray[np.int64], max_examples: int | None, rate: int
) -> tuple[list[NDArray[np.int16]], NDArray[np.int64], list[Skipped], Counter[str]]:
    """Return clips in memory at `rate` without offset, rows, those skipped, counts of choices."""
    assert examples.recordings is not None
    clips, source_rate = examples.recordings.clips, examples.recordings.rate
    assert clips is not None
    assert source_rate is not None

    failed: dict[int, Skipped] = {}
    done = _decode_readable(
        lambda row: leveled(from_int16(clips[row]), source_rate, rate),
        examples,
        rows,
        max_examples,
        failed,
    )
    kept = np.array(list(done), dtype=np.int64)
    samples = [clip for clip, _ in done.values()]
    choices = Counter(name for _, names in done.values() for name in names)
    return samples, kept, [failed[row] for row in sorted(failed)], choices


def _concatenate(
    clips: list[NDArray[np.int16]], steps: int
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return concatenated clips, each padded with silence to `steps`, and their lengths."""
    lengths = np.array([max(len(clip), steps) for clip in clips], dtype=np.int64)
    samples = np.zeros(int(lengths.sum()), dtype=np.int16)
    for clip, slot in zip(clips, np.split(samples, np.cumsum(lengths)[:-1]), strict=True):
        _center(clip, slot)
    return samples, lengths


def _center(clip: NDArray[np.int16], slot: NDArray[np.int16]) -> None:
    first = (len(slot) - len(clip)) // 2
    slot[first : first + len(clip)] = clip


def _from_files(
    examples: Examples,
    files: list[Path],
    rows: NDArray[np.int64],
    max_examples: int | None,
    rate: int,
    steps: int,
    budget: int | None,
    progress: ProgressCallback | None,
) -> tuple[
    NDArray[np.int16], NDArray[np.int64], NDArray[np.int64], list[Skipped], Counter[str], str
]:
    """Decode files; return samples, lengths, rows, those skipped, choices, the storage as text."""
    names, origin = examples.names, examples.origin
    assert origin is not None, "files have one"
    failed: dict[int, Skipped] = {}
    while True:
        headers = _decode_readable(
            lambda row: header(files[row]), examples, rows, max_examples, failed
        )
        kept = np.array(list(headers), dtype=np.int64)
        frames = [resampled_length(h.frames, h.rate, rate) for h in headers.values()]
        lengths = np.maximum(frames, steps).astype(np.int64)
        pixels, record, storage = load_or_build(
            (2 * int(lengths.sum()),),
            partial(_decode_into, files, names, kept.tolist(), lengths, rate, progress),
            key=lambda: cache_key(("leveled", rate, steps), origin(), digest(kept)),
            budget=budget,
        )
        samples: NDArray[np.int16] = pixels.view(np.int16)
        failures = {row: Skipped(path, reason) for row, path, reason in record["bad"]}
        failed |= failures
        check_skipped(failed.values(), len(rows))
        # With `max_examples`, others replace the unreadable ones.
        if not failures or max_examples is None:
            break
    if failures:  # rare, so a copy is acceptable
        left = np.flatnonzero(~np.isin(kept, list(failures)))
        parts = np.split(samples, np.cumsum(lengths)[:-1])
        samples = np.concatenate([parts[i] for i in left.tolist()])
        kept, lengths = kept[left], lengths[left]
    choices = Counter(name for names in record["choices"] for name in names)
    return samples, lengths, kept, [failed[row] for row in sorted(failed)], choices, storage


def _decode_into(
    files: list[Path],
    names: Sequence[str],
    rows: list[int],
    lengths: NDArray[np.int64],
    rate: int,
    progress: ProgressCallback | None,
    out: NDArray[np.uint8],
    journal: DecodingJournal | None,
) -> Record:
    """Decode each file into the center of its slot of `out`; record failures and choices."""
    samples = out.view(np.int16)
    samples[:] = 0
    slots = dict(zip(rows, np.split(samples, np.cumsum(lengths)[:-1]), strict=True))

    def work(row: int) -> Choices:
        decoded, choices = decode(files[row], rate)
        _center(decoded[: len(slots[row])], slots[row])
        return choices

    done, failed = in_parallel(work, names, rows, progress)
    bad = [[row, skipped.path, skipped.reason] for row, skipped in failed.items()]
    return {"bad": bad, "choices": [choices for choices in done.values() if choices]}


def _dataset(
    spec: Spec,
    examples: Examples,
    segments: Clips,
    rows: NDArray[np.int64],
    overlays: list[SoundOverlay],
    skipped: list[Skipped],
    notes: list[str],
    storage: str,
    rate: int,
) -> Dataset:
    index = np.arange(len(rows))
    plain = segments.loudest()
    images = plain.copy() if overlays else plain
    for overlay in overlays:
        overlay.apply(images, index)
    fresh = any(overlay.fresh for overlay in overlays) and not len(segments.longer)
    table = examples.table.take(rows)
    return Dataset(
        spec=str(spec),
        images=images,
        labels={**table.labels, **{overlay.name: overlay.labels(index) for overlay in overlays}},
        classes={**table.classes, **{overlay.name: overlay.classes for overlay in overlays}},
        paths=table.names,
        targets=table.targets,
        groups=table.groups,
        skipped=(*skipped, *examples.excluded),
        notes=(*notes, *skipped_note(tuple(skipped))),
        storage=storage,
        planted=tuple(overlays),
        plain=plain if fresh else None,
        rate=rate,
        clips=segments if len(segments.longer) else None,
    )
