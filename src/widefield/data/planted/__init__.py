"""Planted features: an overlay on each image or sound, with its own label.

They show whether an encoder learns only the easier of two features. Positions are given for 32
pixels and scale with the image; the file of each feature says which are published. Options set how
easy a feature is to see (ours): `size` scales it, `color` is white (`fixed`) or `random`,
`place=fixed` uses the same position in each image (`jitter=0` for digits).

Held-out features have the same classes but other sources: other images of digits, another typeface
of letters, and another random stream of colors and positions.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from widefield.core.validation import check, hints_of, parse
from widefield.data.planted.bits import BitPlanes as BitPlanes
from widefield.data.planted.bits import Bits as Bits
from widefield.data.planted.digits import DigitChannel as DigitChannel
from widefield.data.planted.digits import DigitPack as DigitPack
from widefield.data.planted.digits import Digits as Digits
from widefield.data.planted.digits import StackedDigits as StackedDigits
from widefield.data.planted.letters import Letters as Letters
from widefield.data.planted.overlay import Canvas as Canvas
from widefield.data.planted.overlay import ImageFeature as ImageFeature
from widefield.data.planted.overlay import Overlay as Overlay
from widefield.data.planted.shapes import Shapes as Shapes
from widefield.data.planted.sounds import AudioFeature as AudioFeature
from widefield.data.planted.sounds import Background as Background
from widefield.data.planted.sounds import Clicks as Clicks
from widefield.data.planted.sounds import SoundOverlay as SoundOverlay
from widefield.data.planted.sounds import Tone as Tone

Appended = StackedDigits | Bits
"""Features of channels that are appended."""
AppendedChannels = DigitChannel | BitPlanes
Feature = ImageFeature | Appended | AudioFeature

_CLASSES: tuple[type[Feature], ...] = (
    Digits,
    Shapes,
    Letters,
    StackedDigits,
    Bits,
    Background,
    Tone,
    Clicks,
)

PLANTS = {kind.name: kind for kind in _CLASSES}
"""Every feature of images and sounds by name; its fields are the options that it takes."""


def read_plant(name: str, texts: Mapping[str, str]) -> Feature:
    """Return the feature `name` with options `texts`, option -> value as text.

    An option is typed with "-" where its field has "_". A field's type says what is allowed: `bool`
    is a switch without a value, others are checked as `core/validation.py` says.
    """
    if name not in PLANTS:
        matches = get_close_matches(name, PLANTS, n=1)
        hint = f"did you mean '{matches[0]}'? Known" if matches else "known"
        raise ValueError(f"no planted feature named '{name}'; {hint}: {', '.join(PLANTS)}")
    hints = hints_of(PLANTS[name])
    known = {field.replace("_", "-"): field for field in hints}
    values: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in known:
            raise ValueError(f"'+{name}' has no option '{key}'; known: {', '.join(sorted(known))}")
        hint = hints[known[key]]
        if hint is bool and text:
            raise ValueError(f"'+{name}:{key}' takes no value, got '{text}'")
        value = True if hint is bool else check(f"{key} of '+{name}'", hint, parse(hint, text))
        values[known[key]] = value
    return PLANTS[name](**values)
