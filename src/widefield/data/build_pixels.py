"""Pixels of the selected examples, decoded or copied into one array, with planted features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.center_fit import cut_share
from widefield.core.pixels import white_of
from widefield.core.types import BlackWhite, Fit, ProgressCallback, Size
from widefield.data.cache import DecodingJournal, Record
from widefield.data.columns import take
from widefield.data.decode.images import check_inside, decode_all
from widefield.data.decode.resize import resize_array
from widefield.data.decode.values import decode_values, fitted, percentiles, sample_rows
from widefield.data.examples import Examples, SelectedFiles
from widefield.data.planted import BitPlanes, DigitChannel, Overlay
from widefield.data.select import balanced_subset, subset_without
from widefield.data.skipped import Skipped, check_skipped

Appended = DigitChannel | BitPlanes
"""Planted channels after those of the image."""

_CHUNK = 512


def decode_files(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[Any],
    journal: DecodingJournal | None,
    *,
    size: Size,
    fit: Fit,
    progress: ProgressCallback | None,
    black_white: BlackWhite | None,
) -> Record:
    """Decode the selected rows of encoded files into `out`, without gaps for unreadable ones."""
    assert examples.files is not None
    failed: dict[int, Skipped] = {}
    while True:
        selected = subset_without(failed, examples, rows, max_examples)
        files, names = SelectedFiles(examples.files, selected), take(examples.names, selected)
        target = out[: len(selected)]
        read: Any = decode_values if examples.as_values else decode_all
        result = read(files, names, target, progress, black_white, journal, size=size, fit=fit)
        failed |= {int(selected[i]): skipped for i, skipped in result.failed.items()}
        check_skipped([*examples.skipped, *failed.values()], len(rows) + len(examples.skipped))
        if journal is not None:
            journal.clear()  # pixels move now
            journal = None
        # With `max_examples`, others replace the unreadable ones.
        if not result.failed or max_examples is None:
            break
    kept = np.setdiff1d(np.arange(len(selected)), list(result.failed))
    for position, row in enumerate(kept):
        if position != row:
            out[position] = out[row]
    return {
        "failed": sorted(failed),
        "skipped": [(failed[row].path, failed[row].reason) for row in sorted(failed)],
        "choices": dict(result.choices),
        "cut": result.cut / max(result.choices["resized"], 1),
        "black_white": result.black_white,
        "sampled": result.sampled,
        "outside": sum(result.outside) / max(len(result.outside), 1),
    }


def copy_pixels(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[Any],
    progress: ProgressCallback | None,
    black_white: BlackWhite | None,
    fit: Fit,
) -> Record:
    """Copy the selected rows of decoded pixels into `out`, resized if necessary."""
    assert examples.pixels is not None
    selected = balanced_subset(examples.labels, rows, max_examples)
    if out.dtype != np.uint8:
        return _copy_values(examples.pixels, selected, out, black_white, fit)
    size = out.shape[1:3]
    resized = examples.pixels.shape[1:3] != size
    for first in range(0, len(selected), _CHUNK):
        pixels = examples.pixels[selected[first : first + _CHUNK]]
        out[first : first + _CHUNK] = resize_array(pixels, size, fit) if resized else pixels
        if progress is not None:
            progress(min(first + _CHUNK, len(selected)), len(selected))
    choices = {"resized": len(selected)} if resized else {}
    return {"choices": choices, "cut": cut_share(examples.pixels.shape[1:3], size, fit)}


def _copy_values(
    pixels: NDArray[Any],
    rows: NDArray[np.int64],
    out: NDArray[Any],
    black_white: BlackWhite | None,
    fit: Fit,
) -> Record:
    """Copy values of more than 8 bits into `out`, scaled by `black_white` or by percentiles."""
    sampled = sample_rows(len(rows))
    found = black_white or percentiles([pixels[row] for row in rows[sampled]])
    size, outside = (out.shape[1], out.shape[2]), []
    for i, row in enumerate(rows.tolist()):
        out[i], share = fitted(pixels[row], out.dtype, size, found, fit)
        outside.append(share or 0.0)
    if black_white is not None:
        check_inside(outside, black_white)
    resized = len(rows) if pixels.shape[1:3] != size else 0
    return {
        "choices": {"deep": len(rows), **({"resized": resized} if resized else {})},
        "cut": cut_share((pixels.shape[1], pixels.shape[2]), size, fit),
        "black_white": found,
        "sampled": 0 if black_white is not None else len(sampled),
        "outside": sum(outside) / len(outside),
    }


def plant(images: NDArray[Any], overlays: list[Overlay], channel: Appended | None) -> None:
    """Draw overlays on `images` [n, H, W, C] in place; appended channels are the last."""
    drawn_on = images.shape[-1] - (0 if channel is None else channel.count)
    for first in range(0, len(images), _CHUNK):
        index = np.arange(first, min(first + _CHUNK, len(images)))
        part = images[first : first + len(index)]
        below = part if channel is None else np.ascontiguousarray(part[..., :drawn_on])
        for overlay in overlays:
            overlay.apply(below, index)
        if channel is not None:
            part[..., :drawn_on] = below
            white = int(white_of(part.dtype)) // 255 or 1 / 255
            part[..., drawn_on:] = channel.draw(index) * white
