"""Sounds as they are opened: decoded in parallel to one rate, cut to one length, mixed."""

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
    Unreadable,
    decode,
    header,
    in_parallel,
    need_audio,
    resample,
    resampled_length,
)
from widefield.data.examples import Examples
from widefield.data.open_windows import split_note
from widefield.data.planted import Canvas, SoundOverlay
from widefield.data.readers.recordings import Recordings, commonest, from_int16, to_int16
from widefield.data.select import choose, split_rows
from widefield.data.skipped import Skipped, refuse_many, skipped_note
from widefield.data.spec import BUILT_IN, Spec

SECONDS = 1.0
"""Length of an example where nobody says another."""
HIGHEST_RATE = 16_000
"""Sounds of a higher rate are brought to this one where nobody says another."""
_SHORTEST = 256
"""Samples of an example at least."""
_RATES_SEEN = 200


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
    """Select, decode and cut sounds; mix in what is planted.

    An example is the middle of its recording, silence around what is shorter; a longer one keeps
    all of itself in `Dataset.clips`, of which training draws a segment at each read.

    Args:
        spec: what was asked for.
        examples: what the reader knows.
        size: (1, samples) of an example, as an encoder asks; goes before `seconds`.
        rate: samples a second, Hz; default: the commonest of the recordings, at most 16,000.
        seconds: length of an example; default: 1.
        max_examples: as of `open_dataset`, like the rest.
        seed: the seed of segments and planted sounds.
        held_out: draw planted sounds from held-out parts of their recordings.
        memory_budget: bytes that may be kept in memory.
        progress: called with (done, total) recordings.

    Raises:
        ValueError: sounds that cannot be read, or arguments that do not fit them.
    """
    recordings = examples.recordings
    assert recordings is not None
    rows = split_rows(examples.names, spec)
    choose(examples, rows, max_examples)  # refuses more than there are, before anything is decoded
    rate = rate or _own_rate(recordings)
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
        clips, rows, skipped = _of_clips(examples, rows, max_examples, rate)
        samples, lengths = _joined(clips, steps)
        place = f"kept in memory: {samples.nbytes / 1e6:.1f} MB"
    else:
        samples, lengths, rows, skipped, place = _of_files(
            examples, rows, max_examples, rate, steps, memory_budget, progress
        )
    held = Clips(
        samples=samples,
        starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
        lengths=lengths,
        steps=steps,
        seed=seed,
    )
    return _dataset(spec, examples, held, rows, overlays, skipped, place, rate)


def _own_rate(recordings: Recordings) -> int:
    """Return the commonest rate of the recordings, at most 16 kHz.

    Raises:
        ValueError: the extra `[audio]` is missing for files.
    """
    if recordings.rate is not None:
        return min(recordings.rate, HIGHEST_RATE)
    assert recordings.files is not None
    need_audio()
    seen: Counter[int] = Counter()
    for row in np.unique(np.linspace(0, len(recordings) - 1, _RATES_SEEN).astype(int)):
        try:
            seen[header(recordings.files[row]).rate] += 1
        except Unreadable:
            continue
    return min(commonest(seen), HIGHEST_RATE) if seen else HIGHEST_RATE


def _steps(size: Size | None, seconds: float | None, rate: int) -> int:
    """Return T, the samples of an example.

    Raises:
        ValueError: a size of images, or too short a time.
    """
    if size is not None and size[0] != 1:
        raise ValueError(
            f"these are sounds, and images of {size[0]}x{size[1]} are asked for: leave image_size "
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
    for plant in spec.plants:
        if plant.name in examples.labels:
            raise ValueError(
                f"the data has a task '{plant.name}' already; '+{plant.name}' cannot be added"
            )
        drawn = plant.feature().draw(canvas)
        if not isinstance(drawn, SoundOverlay):
            raise ValueError(f"'+{plant.name}' is planted on images; these are sounds")
        overlays.append(drawn)
    return overlays


def _readable(
    work: Callable[[int], Any],
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    failed: dict[int, Skipped],
) -> dict[int, Any]:
    """Return what `work` makes of the chosen `rows`, by row; what it cannot read joins `failed`.

    With a maximum, others take the place of those.

    Raises:
        ValueError: more than 1 in 20 of the rows have failed.
    """
    done: dict[int, Any] = {}
    while True:
        left = np.setdiff1d(rows, list(failed))
        chosen = choose(
            examples, left, None if max_examples is None else min(max_examples, len(left))
        ).tolist()
        new = [row for row in chosen if row not in done]
        if not new:
            return {row: done[row] for row in chosen}
        found, bad = in_parallel(work, examples.names, new)
        done |= found
        failed |= bad
        refuse_many(failed.values(), len(rows))


def _of_clips(
    examples: Examples, rows: NDArray[np.int64], max_examples: int | None, rate: int
) -> tuple[list[NDArray[np.int16]], NDArray[np.int64], list[Skipped]]:
    """Return clips in memory at `rate`, without silent ones."""
    assert examples.recordings is not None
    clips, own = examples.recordings.clips, examples.recordings.rate
    assert clips is not None
    assert own is not None

    def work(row: int) -> NDArray[np.int16]:
        clip = clips[row]
        if not clip.any():
            raise Unreadable("is silent" if len(clip) else "holds no samples")
        if own == rate:
            return clip
        return to_int16(resample(from_int16(clip), own, rate))

    failed: dict[int, Skipped] = {}
    done = _readable(work, examples, rows, max_examples, failed)
    kept = np.array(list(done), dtype=np.int64)
    return list(done.values()), kept, [failed[row] for row in sorted(failed)]


def _joined(
    clips: list[NDArray[np.int16]], steps: int
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return clips end to end, each with silence around it up to `steps`, and their lengths."""
    lengths = np.array([max(len(clip), steps) for clip in clips], dtype=np.int64)
    samples = np.zeros(int(lengths.sum()), dtype=np.int16)
    start = 0
    for clip, length in zip(clips, lengths.tolist(), strict=True):
        place = start + (length - len(clip)) // 2
        samples[place : place + len(clip)] = clip
        start += length
    return samples, lengths


def _of_files(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    rate: int,
    steps: int,
    budget: int | None,
    progress: ProgressCallback | None,
) -> tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64], list[Skipped], str]:
    """Decode files into the cache; return samples, lengths, rows, what was skipped, and where."""
    assert examples.recordings is not None
    files = examples.recordings.files
    assert files is not None
    failed: dict[int, Skipped] = {}
    while True:
        headers = _readable(lambda row: header(files[row]), examples, rows, max_examples, failed)
        kept = np.array(list(headers), dtype=np.int64)
        planned = [resampled_length(h.frames, h.rate, rate) for h in headers.values()]
        lengths = np.maximum(planned, steps).astype(np.int64)
        samples, bad, place = _decoded(examples, kept, lengths, rate, steps, budget, progress)
        failed |= bad
        refuse_many(failed.values(), len(rows))
        # With a maximum, others take the place of the unreadable ones.
        if not bad or max_examples is None:
            break
    if bad:  # rare: what is left is joined anew
        ends = np.concatenate([[0], np.cumsum(lengths)])
        left = np.flatnonzero(~np.isin(kept, list(bad)))
        samples = np.concatenate([samples[ends[i] : ends[i + 1]] for i in left.tolist()])
        kept, lengths = kept[left], lengths[left]
    return samples, lengths, kept, [failed[row] for row in sorted(failed)], place


def _decoded(
    examples: Examples,
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rate: int,
    steps: int,
    budget: int | None,
    progress: ProgressCallback | None,
) -> tuple[NDArray[np.int16], dict[int, Skipped], str]:
    """Return the samples of all `rows`, from the cache if it has them, which failed, and where."""
    assert examples.recordings is not None
    files = examples.recordings.files
    assert files is not None

    def build(out: NDArray[np.uint8]) -> Record:
        chosen = rows.tolist()
        slots, bad = _decode_into(out, files, examples.names, chosen, lengths, rate, progress)
        return {"bad": [[row, bad[row].path, bad[row].reason] for row in bad], "slots": slots}

    settings = ("sounds", rate, steps, rows.tobytes())
    key = partial(cache_key, settings, examples.names, examples.origin)
    whole = (2 * int(lengths.sum()),)
    pixels, record, place = load_or_build(whole, build, key=key, budget=budget)
    bad = {row: Skipped(path, reason) for row, path, reason in record["bad"]}
    samples: NDArray[np.int16] = pixels.view(np.int16)
    return samples, bad, place


def _decode_into(
    out: NDArray[np.uint8],
    files: list[Any],
    names: list[str],
    rows: list[int],
    lengths: NDArray[np.int64],
    rate: int,
    progress: ProgressCallback | None,
) -> tuple[int, dict[int, Skipped]]:
    """Decode each file into its slot of `out`, in the middle of it."""
    samples = out.view(np.int16)
    samples[:] = 0
    starts = dict(zip(rows, (np.cumsum(lengths) - lengths).tolist(), strict=True))
    slot = dict(zip(rows, lengths.tolist(), strict=True))

    def work(row: int) -> None:
        x = decode(files[row], rate)[: slot[row]]
        place = starts[row] + (slot[row] - len(x)) // 2
        samples[place : place + len(x)] = x

    _, failed = in_parallel(work, names, rows, progress)
    return len(rows), failed


def _dataset(
    spec: Spec,
    examples: Examples,
    held: Clips,
    rows: NDArray[np.int64],
    overlays: list[SoundOverlay],
    skipped: list[Skipped],
    place: str,
    rate: int,
) -> Dataset:
    n, index = len(rows), np.arange(len(rows))
    notes = [*examples.notes]
    if spec.split and spec.base not in BUILT_IN:
        notes.append(split_note(spec, n))
    longer = int((held.lengths > held.steps).sum())
    notes.append(
        f"{n} sounds at {rate:,} Hz, examples of {held.steps / rate:g} s"
        + (f": {longer} are longer and are cut" if longer else "")
    )
    notes += skipped_note(tuple(skipped))
    plain = held.centered()
    images = plain.copy() if overlays else plain
    for overlay in overlays:
        overlay.paint(images, index)
    fresh = any(overlay.fresh for overlay in overlays) and not held.longer
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
        place=place,
        planted=tuple(overlays),
        plain=plain if fresh else None,
        rate=rate,
    )
    return replace(dataset, clips=held) if held.longer else dataset
