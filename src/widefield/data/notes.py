"""Notes to the user on how images were decoded, one line each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.form import FIT_TEXTS
from widefield.core.types import Fit, Size
from widefield.data.cache import Record
from widefield.data.clips import Clips
from widefield.data.spec import BUILTIN, Spec

_CHOICES = {
    "first": "show the first of several pages or frames",
    "alpha": "are shown on white where they are transparent",
    "turned": "are turned as their EXIF orientation says",
    "profile": "are converted from their color profile to sRGB",
    "no_profile": "have a color profile that is damaged or for other colors, and is ignored",
    "cmyk": "come from CMYK, without a color profile",
}
"""Text of each choice in decoding, except size and bit depth."""

_SOUND_CHOICES = {
    "canceled": "have channels that cancel when averaged, and the loudest one is taken",
    "silent_channel": "have channels without sound, which are left out",
    "offset": "have a constant offset, which is removed",
    "quiet": "are below -66 dB, and are raised by 48 dB to keep their levels in 16 bits",
    "loud": "exceed full scale, and are scaled down to it",
}
"""Text of each choice of `data.decode.sounds`."""

# Chosen by hand: the percentiles of 0.1 and 99.9 leave 0.2 % outside by themselves.
_MIN_OUTSIDE = 5e-3
"""Share of values outside black and white from which it is in a note."""
# Less is printed as 0 %.
_MIN_CUT = 5e-3
"""Share of the area that is cut off from which it is in a note."""
# Chosen by hand: but for masks the first images decide, so that few are read.
_CHUNK = 64


BY_COLUMN = "by the column split"
"""End of the note on a split that the data have."""


def split_note(spec: Spec, n: int, *, grouped: bool, by_column: bool) -> list[str]:
    if spec.split is None or spec.base in BUILTIN:
        return []
    by_hash = f"80 / 20 by a hash of each {'group' if grouped else 'name'}"
    return [f"{spec.split} split: {n} examples, {BY_COLUMN if by_column else by_hash}"]


def decoding_notes(record: Record, n: int, size: Size, fit: Fit) -> list[str]:
    """Return notes on resized images, images of more than 8 bits, and other choices."""
    choices, notes = record.get("choices", {}), []
    if choices.get("resized"):
        note = f"{choices['resized']} of {n} images brought to {size[0]}x{size[1]}: "
        note += f"resized {FIT_TEXTS[fit]}"
        if (cut := record["cut"]) >= _MIN_CUT:
            note += f", which loses {cut:.0%} of their area: "
            note += f"pretrain {option('fit', 'pad')} or squash keeps it"
        notes.append(note)
    if choices.get("deep"):
        notes.append(f"{choices['deep']} of {n} images have more than 8 bits{_deep(record)}")
    return notes + _join_choices(choices, _CHOICES, f"of {n} images")


def _deep(record: Record) -> str:
    """Return what became of values of more than 8 bits, in words."""
    black_white, sampled = record["black_white"], record["sampled"]
    if black_white is None:
        return " and were brought to 8"
    if isinstance(black_white[0], float | int):
        black, white = black_white
        text = f": values from {black:.7g} to {white:.7g} became 0 to 255"
        if sampled:
            text += f", from {sampled} files"
        if record["outside"] >= _MIN_OUTSIDE:
            text += f"; {record['outside']:.1%} of them are outside"
        return f"{text}: pretrain PATH:channels keeps all values"
    channels = "the channel" if len(black_white) == 1 else f"each of {len(black_white)} channels"
    source = f"from {sampled} images" if sampled else "as recorded"
    return (
        f" and keep them: the 0.1 and 99.9 percentiles of {channels} became black and white, "
        f"{source}"
    )


def sound_notes(segments: Clips, choices: Mapping[str, int], rate: int) -> list[str]:
    """Return notes on the form of sounds, on silence in long ones, and on choices in decoding."""
    n, longer = len(segments.lengths), len(segments.longer)
    text = f"{n} sounds at {rate:,} Hz, examples of {segments.steps / rate:g} s"
    if longer:
        text += f": {longer} are longer, and their features are averaged over all of their segments"
        if skipped := segments.skipped():
            text += f" up to {segments.max_segments}: {skipped:.0%} of their time is not read"
        silence = segments.silence()
        nonzero = silence[silence > 0]
        if len(nonzero):
            share = f"{nonzero.mean():.0%} of their time"
            text += f"; {len(nonzero)} are silent for {share}, which is left out"
    return [text, *_join_choices(choices, _SOUND_CHOICES, f"of {n} sounds")]


def _join_choices(counts: Mapping[str, int], texts: Mapping[str, str], start: str) -> list[str]:
    parts = [f"{counts[name]} {text}" for name, text in texts.items() if counts.get(name)]
    return [f"{start}, {'; '.join(parts)}"] if parts else []


def plain_notes(images: NDArray[Any]) -> list[str]:
    """Return notes if images [n, H, W, C] are all equal, or have only 0 and 1, as masks: black."""
    if len(images) > 1 and (images[1] == (first_image := images[0])).all():
        parts = (images[first : first + _CHUNK] for first in range(0, len(images), _CHUNK))
        if all((part == first_image).all() for part in parts):
            return [f"all {len(images)} images are equal: nothing tells them apart, so give others"]
    if images.dtype != np.uint8:
        return []
    highest = 0
    for first in range(0, len(images), _CHUNK):
        highest = max(highest, int(images[first : first + _CHUNK].max()))
        if highest > 1:
            return []
    dark = "no pixel is above 1 of 255: masks of 0 and 1 are black unless multiplied by 255"
    return [dark] if highest else []
