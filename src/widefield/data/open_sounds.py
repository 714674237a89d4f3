"""Opening of sounds: decoding to one sampling rate, cutting to one length, mixing."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.memory import check_memory
from widefield.core.types import ProgressCallback, Size
from widefield.data.cache import Record, cache_key, load_or_build
from widefield.data.clips import Clips
from widefield.data.dataset import Dataset
from widefield.data.decode.sounds import (
    UnreadableError,
    decode,
    header,
    in_parallel,
    require_audio,
    resample,
    resampled_length,
)
from widefield.data.examples import Examples
from widefield.data.notes import split_note
from widefield.data.planted import Canvas, SoundOverlay
from widefield.data.readers.recordings import Recordings, from_int16, most_common_rate, to_int16
from widefield.data.select import balanced_subset, split_rows
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

    An example is the center of its recording, padded with silence. If a recording is longer,
    `Dataset.clips` has all of it, and training samples a segment at each read.

    Args:
        spec: the data spec.
        examples: the result of the reader.
        size: (1, samples) of an example, from an encoder; takes precedence over `seconds`.
        rate: sampling rate, Hz; default: the most common of the recordings, at most 16,000.
        seconds: duration of an example; default: 1.
        max_examples: as for `open_dataset`, like the rest.
        seed: seed of segments and planted sounds.
        held_out: use held-out parts of the recordings of planted sounds.
        memory_budget: limit of samples in memory, bytes.
        progress: called with (done, total) recordings.

    Raises:
        ValueError: sounds that cannot be read, or arguments that do not fit them.
    """
    recordings = examples.recordings
    assert recordings is not None
    rows = split_rows(examples.names, spec)
    balanced_subset(examples, rows, max_examples)  # raises before decoding if there are too few
    rate = rate or _default_rate(recordings)
    steps = _steps(size, seconds, rate)
    overlays = _overlays(
        spec,
        examples,
        Canvas(
            shape=(1, steps, 1),
            seed=seed,
            held_out=held_out or spec.split == "test",
            rate=rate,
        ),
    )
    if recordings.files is None:
        clips, rows, skipped = _from_memory(examples, rows, max_examples, rate)
        samples, lengths = _concatenate(clips, steps)
        storage = f"kept in memory: {samples.nbytes / 1e6:.1f} MB"
    else:
        samples, lengths, rows, skipped, storage = _from_files(
            examples, rows, max_examples, rate, steps, memory_budget, progress
        )
    segments = Clips(
        samples=samples,
        starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
        lengths=lengths,
        steps=steps,
        seed=seed,
    )
    return _dataset(spec, examples, segments, rows, overlays, skipped, storage, rate)


def _default_rate(recordings: Recordings) -> int:
    """Return the most common rate of the recordings, at most 16 kHz.

    Raises:
        ValueError: files need the extra `[audio]`, which is not installed.
    """
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
    return min(most_common_rate(counts), HIGHEST_RATE) if counts else HIGHEST_RATE


def _steps(size: Size | None, seconds: float | None, rate: int) -> int:
    """Return T, the samples of an example.

    Raises:
        ValueError: `size` is that of images, or the duration is too short.
    """
    if size is not None and size[0] != 1:
        raise ValueError(
            f"these are sounds, and images of {size[0]}x{size[1]} were requested: leave image_size "
            "out; seconds sets the length of an example"
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
        overlay = feature.draw(canvas)
        if not isinstance(overlay, SoundOverlay):
            raise ValueError(f"'+{feature.name}' is planted on images; these are sounds")
        overlays.append(overlay)
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

    Raises:
        ValueError: more than 5 % of the rows failed.
    """
    done: dict[int, Any] = {}
    while True:
        left = np.setdiff1d(rows, list(failed))
        selected = balanced_subset(
            examples, left, None if max_examples is None else min(max_examples, len(left))
        ).tolist()
        new = [row for row in selected if row not in done]
        if not new:
            return {row: done[row] for row in selected}
        found, failures = in_parallel(work, examples.names, new)
        done |= found
        failed |= failures
        check_skipped(failed.values(), len(rows))


def _from_memory(
    examples: Examples, rows: NDArray[np.int64], max_examples: int | None, rate: int
) -> tuple[list[NDArray[np.int16]], NDArray[np.int64], list[Skipped]]:
    """Return clips in memory, resampled to `rate`, without silent ones."""
    assert examples.recordings is not None
    clips, source_rate = examples.recordings.clips, examples.recordings.rate
    assert clips is not None
    assert source_rate is not None

    def work(row: int) -> NDArray[np.int16]:
        clip = clips[row]
        if not clip.any():
            raise UnreadableError("is silent" if len(clip) else "has no samples")
        if source_rate == rate:
            return clip
        return to_int16(resample(from_int16(clip), source_rate, rate))

    failed: dict[int, Skipped] = {}
    done = _decode_readable(work, examples, rows, max_examples, failed)
    kept = np.array(list(done), dtype=np.int64)
    return list(done.values()), kept, [failed[row] for row in sorted(failed)]


def _concatenate(
    clips: list[NDArray[np.int16]], steps: int
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return concatenated clips, each padded with silence to `steps`, and their lengths."""
    lengths = np.array([max(len(clip), steps) for clip in clips], dtype=np.int64)
    samples = np.zeros(int(lengths.sum()), dtype=np.int16)
    start = 0
    for clip, length in zip(clips, lengths.tolist(), strict=True):
        position = start + (length - len(clip)) // 2
        samples[position : position + len(clip)] = clip
        start += length
    return samples, lengths


def _from_files(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    rate: int,
    steps: int,
    budget: int | None,
    progress: ProgressCallback | None,
) -> tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64], list[Skipped], str]:
    """Decode files; return samples, lengths, rows, skipped files, and the storage as text."""
    assert examples.recordings is not None
    files = examples.recordings.files
    assert files is not None
    failed: dict[int, Skipped] = {}
    while True:
        headers = _decode_readable(
            lambda row: header(files[row]), examples, rows, max_examples, failed
        )
        kept = np.array(list(headers), dtype=np.int64)
        frames = [resampled_length(h.frames, h.rate, rate) for h in headers.values()]
        lengths = np.maximum(frames, steps).astype(np.int64)
        samples, failures, storage = _decode_cached(
            examples, kept, lengths, rate, steps, budget, progress
        )
        failed |= failures
        check_skipped(failed.values(), len(rows))
        # With `max_examples`, others replace the unreadable ones.
        if not failures or max_examples is None:
            break
    if failures:  # rare, so a copy is acceptable
        ends = np.concatenate([[0], np.cumsum(lengths)])
        left = np.flatnonzero(~np.isin(kept, list(failures)))
        samples = np.concatenate([samples[ends[i] : ends[i + 1]] for i in left.tolist()])
        kept, lengths = kept[left], lengths[left]
    return samples, lengths, kept, [failed[row] for row in sorted(failed)], storage


def _decode_cached(
    examples: Examples,
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rate: int,
    steps: int,
    budget: int | None,
    progress: ProgressCallback | None,
) -> tuple[NDArray[np.int16], dict[int, Skipped], str]:
    """Return the samples of `rows`, cached if possible, the failures, and the storage as text."""
    assert examples.recordings is not None
    files = examples.recordings.files
    assert files is not None

    def build(out: NDArray[np.uint8]) -> Record:
        selected = rows.tolist()
        count, failures = _decode_into(
            out, files, examples.names, selected, lengths, rate, progress
        )
        return {
            "bad": [[row, failures[row].path, failures[row].reason] for row in failures],
            "slots": count,
        }

    settings = ("sounds", rate, steps, rows.tobytes())
    key = partial(cache_key, settings, examples.names, examples.origin)
    whole = (2 * int(lengths.sum()),)
    pixels, record, storage = load_or_build(whole, build, key=key, budget=budget)
    failures = {row: Skipped(path, reason) for row, path, reason in record["bad"]}
    samples: NDArray[np.int16] = pixels.view(np.int16)
    return samples, failures, storage


def _decode_into(
    out: NDArray[np.uint8],
    files: list[Any],
    names: list[str],
    rows: list[int],
    lengths: NDArray[np.int64],
    rate: int,
    progress: ProgressCallback | None,
) -> tuple[int, dict[int, Skipped]]:
    """Decode each file into the center of its slot of `out`."""
    samples = out.view(np.int16)
    samples[:] = 0
    starts = dict(zip(rows, (np.cumsum(lengths) - lengths).tolist(), strict=True))
    slot_length = dict(zip(rows, lengths.tolist(), strict=True))

    def work(row: int) -> None:
        x = decode(files[row], rate)[: slot_length[row]]
        position = starts[row] + (slot_length[row] - len(x)) // 2
        samples[position : position + len(x)] = x

    _, failed = in_parallel(work, names, rows, progress)
    return len(rows), failed


def _dataset(
    spec: Spec,
    examples: Examples,
    segments: Clips,
    rows: NDArray[np.int64],
    overlays: list[SoundOverlay],
    skipped: list[Skipped],
    storage: str,
    rate: int,
) -> Dataset:
    n, index = len(rows), np.arange(len(rows))
    notes = [*examples.notes, *split_note(spec, n)]
    longer = int((segments.lengths > segments.steps).sum())
    notes.append(
        f"{n} sounds at {rate:,} Hz, examples of {segments.steps / rate:g} s"
        + (f": {longer} are longer and are cut" if longer else "")
    )
    notes += skipped_note(tuple(skipped))
    plain = segments.centered()
    images = plain.copy() if overlays else plain
    for overlay in overlays:
        overlay.apply(images, index)
    fresh = any(overlay.fresh for overlay in overlays) and not segments.longer
    dataset = Dataset(
        spec=str(spec),
        images=images,
        labels={
            **{task: ids[rows] for task, ids in examples.labels.items()},
            **{overlay.name: overlay.labels(index) for overlay in overlays},
        },
        classes={**examples.classes, **{overlay.name: overlay.classes for overlay in overlays}},
        paths=[examples.names[row] for row in rows.tolist()],
        skipped=tuple(skipped),
        notes=tuple(notes),
        storage=storage,
        planted=tuple(overlays),
        plain=plain if fresh else None,
        rate=rate,
    )
    return replace(dataset, clips=segments) if segments.longer else dataset
