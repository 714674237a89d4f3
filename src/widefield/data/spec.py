"""The way a user names a data set: `BASE[:train|:test][+PLANT[:OPTION[=VALUE]]...]...`.

BASE is `photos`, `spoken` or `motion` (built in), `cifar10` or `cifar100` (torchvision's, never
downloaded), a folder, or a `.npz`, `.npy` or `.parquet` file. The built-in ones without a split
mean `train`; a path without one means all of it; `PATH:train`, `PATH:test` divide it 80 / 20 by a
hash of the relative path. A path may contain ":" and "+": what exists as a path is taken as one. A
folder that is named like a built-in source is written `./photos`.
"""

import os
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Literal

from widefield.data.planted import Feature, read_plant

BUILT_IN = ("photos", "spoken", "motion", "cifar10", "cifar100")
MEMORY = "memory"
"""What arrays in memory are called; a file of that name is kept by its absolute path."""
_NEIGHBORS = 1_000

Split = Literal["train", "test"]
"""Which part of a source."""


@dataclass(frozen=True, slots=True)
class Plant:
    """One `+NAME:OPTION=VALUE` of a data spec; a switch has no value."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        options = [f":{key}={value}" if value else f":{key}" for key, value in self.options]
        return "".join([f"+{self.name}", *options])

    def feature(self) -> Feature:
        """Return the plant with these options."""
        return read_plant(self.name, dict(self.options))


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed data spec; `str` gives its canonical form."""

    base: str
    split: Split | None = None
    plants: tuple[Plant, ...] = ()

    def __str__(self) -> str:
        split = f":{self.split}" if self.split else ""
        return f"{self.base}{split}{''.join(map(str, self.plants))}"


def parse(text: str) -> Spec:
    """Parse a data spec; the longest part of it that is a source is its base.

    Example:
        >>> str(parse("photos+digits:alpha=0.5"))
        'photos:train+digits:alpha=0.5'
    """
    cuts = [len(text), *(i for i in range(len(text) - 1, 0, -1) if text[i] == "+")]
    for cut in cuts:
        base_and_split = _parse_base(text[:cut])
        if base_and_split is not None:
            return Spec(*base_and_split, _parse_plants(text[cut:]))
    base = text.split("+")[0]
    raise ValueError(f"no data set or path named '{base}'{did_you_mean(base)}")


def spec_text(data: str | Path) -> str:
    """Return a spec as it is; a `Path` is that of a file or folder, whatever its name.

    Example:
        >>> spec_text("photos"), spec_text(Path("./photos"))
        ('photos', './photos')
    """
    named_alike = isinstance(data, Path) and str(data) in BUILT_IN
    return os.path.join(".", data) if named_alike else str(data)


def plant_names(text: str) -> frozenset[str]:
    """Return the names of what a data spec plants.

    Example:
        >>> sorted(plant_names("photos+digits:alpha=0.5+letters"))
        ['digits', 'letters']
    """
    return frozenset(plant.name for plant in parse(text).plants)


def _parse_base(text: str) -> tuple[str, Split | None] | None:
    if text in BUILT_IN:
        return text, "train"
    if _is_path(text):
        return text, None
    front, _, split = text.rpartition(":")
    if "+" in split or not (front in BUILT_IN or _is_path(front)):
        return None
    if split == "train":
        return front, "train"
    if split == "test":
        return front, "test"
    inside = os.path.join(front, split)
    hint = f"; did you mean the folder '{inside}'?" if _is_path(inside) else ""
    raise ValueError(f"'{front}' has no split '{split}'; known: train, test{hint}")


def _is_path(text: str) -> bool:
    return text != "" and os.path.exists(os.path.expanduser(text))


def _parse_plants(text: str) -> tuple[Plant, ...]:
    # A "+" or ":" inside an option's value is not followed by a name and its end.
    first, *rest = re.split(r"\+(?=[\w-]*(?:[:+]|$))", text)
    if first:
        raise ValueError(
            f"cannot read '{first}'; a planted feature is written '+NAME:OPTION=VALUE'"
        )
    plants = []
    for part in rest:
        name, *settings = re.split(r":(?=[\w-]+(?:[=:]|$))", part)
        name, _, source = name.partition(":")  # as in +background:./recordings
        options = {"source": source} if source else {}
        for setting in settings:
            key, _, value = setting.partition("=")
            options[key] = value
        read_plant(name, options)  # refuses what cannot be, before anything is opened
        plants.append(Plant(name, tuple(sorted(options.items()))))
    names = [plant.name for plant in plants]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"'+{name}' is planted twice; a feature can be planted once")
    return tuple(plants)


def absolute(text: str) -> str:
    """Return the same spec with an absolute path, so that it means the same in any folder.

    Example:
        >>> absolute("photos+digits")
        'photos:train+digits'
    """
    spec = parse(text)
    spec = replace(spec, plants=tuple(map(_absolute_source, spec.plants)))
    if spec.base in BUILT_IN:
        return str(spec)
    return str(replace(spec, base=os.path.abspath(os.path.expanduser(spec.base))))


def _absolute_source(plant: Plant) -> Plant:
    return replace(
        plant,
        options=tuple(
            (key, os.path.abspath(os.path.expanduser(value)) if key == "source" else value)
            for key, value in plant.options
        ),
    )


def held_out_split(text: str) -> str:
    """Return the spec of the test split that belongs to the training split `text`.

    Raises `ValueError` where there is none: all of a path, or a test split.

    Example:
        >>> held_out_split("photos+digits")
        'photos:test+digits'
    """
    spec = parse(text)
    if spec.split != "train":
        raise ValueError(
            f"'{spec}' leaves nothing to score on: name other data, or train on "
            f"'{spec.base}:train' and score on its test split"
        )
    return str(replace(spec, split="test"))


def same_images(one: str, two: str) -> bool:
    """Return whether an example of the same name in both is the same image, whatever is planted.

    Built-in splits number their examples anew; the splits of a path share its file names.

    Example:
        >>> same_images("photos+digits", "photos"), same_images("photos:train", "photos:test")
        (True, False)
    """
    if MEMORY in (one.split("+")[0], two.split("+")[0]):  # arrays have no name to compare
        return False
    try:
        first, second = parse(absolute(one)), parse(absolute(two))
    except ValueError:  # what was there when it was opened may be gone
        return False
    return first.base == second.base and (first.base not in BUILT_IN or first.split == second.split)


def did_you_mean(base: str) -> str:
    """Return the end of an error message: the name or path nearest to `base`."""
    parent = Path(os.path.expanduser(base)).parent
    try:
        with os.scandir(parent) as entries:
            siblings = [entry.name for entry in islice(entries, _NEIGHBORS)]
    except (OSError, ValueError):
        siblings = []
    known = [*BUILT_IN, *(str(parent / name) for name in siblings)]
    nearest = get_close_matches(base, known, n=1)
    return f"; did you mean '{nearest[0]}'?" if nearest else f"; built in: {', '.join(BUILT_IN)}"
