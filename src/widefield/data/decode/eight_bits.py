"""Floats and 16 bits on the scale of 8 bits, by one rule that does not depend on other images.

    floats in [0, 1]:      round(255 v)
    floats from 0 to 255:  round(v)
    uint16:                v / 65535

An overshoot of up to 0.005 of the range, as resizing leaves it, is clipped. Data on another scale
are refused where an encoder was trained on 8 bits. Where no encoder sets the scale, they have black
and white of their own (`black_white.py`), and floats count as 0 to 255 if all are whole and the
largest is at least 128: smaller whole numbers, such as 0 to 16, are levels of another scale.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import BlackWhite, Range
from widefield.data.examples import Examples

UNIT, BYTES = (0.0, 1.0), (0.0, 255.0)
_WORDS: tuple[int, float] = 0, 65_535.0
# Chosen by hand, as the other three.
_OVERSHOOT = 5e-3
"""Largest overshoot of a resized image, as a share of the range."""
_MIN_MAXIMUM = 128
"""Smallest maximum of whole floats that are on the scale of bytes, if nothing sets the scale."""
_DARK = 2
"""Smallest maximum of floats on the scale of bytes: between 1 and it, both scales are possible."""
_USED = 1 / 8
"""Smallest share of the range of 16 bits in use."""
_MOST_CHANNELS = 4
_CHUNK = 1024
_HINT = "divide images by their white for [0, 1], or give uint8"


def in_8_bits(examples: Examples, black_white: BlackWhite | None, *, trained: bool) -> Examples:
    """Return examples with floats on the scale of 8 bits as uint8, and other floats as float32.

    `black_white` are recorded; `trained` is whether an encoder was trained on 8 bits.
    """
    x = examples.pixels
    if x is None or x.shape[1] == 1:
        return examples
    if x.dtype == np.uint8 and black_white is not None and _is_within_bytes(black_white):
        # The run was trained on floats of this scale: bytes of the same images are the same values.
        return replace(examples, pixels=x[...].astype(np.float32))
    if x.dtype.kind != "f":
        return examples
    scale = black_white
    if black_white is None and (trained or x.shape[-1] <= _MOST_CHANNELS):
        scale = scale_of(parts(x), trained=trained)
    if scale not in (UNIT, BYTES):
        return replace(examples, pixels=x.astype(np.float32, copy=False))
    if black_white is not None:
        _check_scale(parts(x), scale)
    name = "[0, 1]" if scale == UNIT else "0 to 255"
    examples = examples.with_notes(f"{x.dtype} in {name} stored as uint8")
    return replace(examples, pixels=to_8_bits(x, scale))


def _is_within_bytes(black_white: BlackWhite) -> bool:
    """Return whether recorded values are part of 0 to 255, but not all of it."""
    white = np.array(black_white).reshape(-1, 2)[:, 1]
    return bool((white > _DARK).all() and (white <= BYTES[1] * (1 + _OVERSHOOT)).all()) and (
        black_white != BYTES
    )


def to_8_bits(x: NDArray[Any], scale: Range) -> NDArray[np.uint8]:
    """Return floats [n, ...] on a scale as uint8."""
    pixels = np.empty(x.shape, dtype=np.uint8)
    # In parts, because a copy of all in float32 takes four times the memory of the result.
    for first in range(0, len(x), _CHUNK):
        part = x[first : first + _CHUNK].astype(np.float32) * (255 / scale[1])
        pixels[first : first + _CHUNK] = np.round(np.clip(part, 0, 255))
    return pixels


def scale_of(images: Iterator[NDArray[Any]], *, trained: bool) -> Range | None:
    """Return the values of floats that become 0 and 255; None for another scale.

    `images` come in parts [k, ...]; `trained` is whether an encoder was trained on 8 bits.
    """
    low, high, has_fraction = _ends(images)
    if _is_within(low, high, UNIT):
        return UNIT
    is_bytes = _is_within(low, high, BYTES) and high.max() >= _DARK
    if not trained:
        is_whole = is_bytes and low.min() >= 0 and high.max() <= BYTES[1] and not has_fraction.any()
        return BYTES if is_whole and high.max() >= _MIN_MAXIMUM else None
    if not is_bytes:
        raise ValueError(
            f"floats from {low.min():.7g} to {high.max():.7g}, and the encoder was trained on "
            f"8 bits: expected [0, 1] or 0 to 255; {_HINT}"
        )
    _check_one_scale(high, has_fraction)
    return BYTES


def fixed_black_white(samples: Sequence[NDArray[Any]]) -> Range:
    """Return black and white of images of 16 bits for an encoder that was trained on 8 bits."""
    low, high = min(x.min() for x in samples), max(x.max() for x in samples)
    if any(x.dtype.kind == "f" for x in samples):
        return scale_of((x.reshape(1, -1) for x in samples), trained=True) or UNIT
    if low < 0 or not _USED * _WORDS[1] <= high <= _WORDS[1]:
        raise ValueError(
            f"integers from {low} to {high} of more than 8 bits, and the encoder was trained on 8 "
            "bits: scale them to 8 bits by one black and white, or train on them"
        )
    return _WORDS


def _check_scale(images: Iterator[NDArray[Any]], scale: Range) -> None:
    """Check floats against the scale that an earlier call recorded."""
    low, high, has_fraction = _ends(images)
    if not _is_within(low, high, scale):
        raise ValueError(
            f"floats from {low.min():.7g} to {high.max():.7g}, and 0 to {scale[1]:g} are recorded: "
            "bring them to that scale"
        )
    if scale == BYTES:
        _check_one_scale(high, has_fraction)


def _check_one_scale(high: NDArray[Any], has_fraction: NDArray[np.bool_]) -> None:
    """Check that no image is on the scale [0, 1] among those from 0 to 255."""
    unit = np.flatnonzero(has_fraction & (high <= UNIT[1] + _OVERSHOOT))
    if len(unit):
        raise ValueError(
            f"image {unit[0]} has floats up to {high[unit[0]]:.7g}, and others are on a scale of 0 "
            "to 255: bring them to one scale"
        )


def _is_within(low: NDArray[Any], high: NDArray[Any], scale: Range) -> bool:
    tolerance = _OVERSHOOT * scale[1]
    return bool(low.min() >= -tolerance and high.max() <= scale[1] + tolerance)


def _ends(
    images: Iterator[NDArray[Any]],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return minimum, maximum, and whether there is a fraction, of each image [n]."""
    found = []
    for part in images:
        rows = part.reshape(len(part), -1)
        found.append((rows.min(1), rows.max(1), (np.rint(rows) != rows).any(1)))
    low, high, has_fraction = (np.concatenate(column) for column in zip(*found, strict=True))
    return low, high, has_fraction


def parts(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (x[first : first + _CHUNK] for first in range(0, len(x), _CHUNK))
