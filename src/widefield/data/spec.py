"""Data specs: `BASE[:channels|:pages][:train|:test][+PLANT[:OPTION[=VALUE]]...]...`.

BASE is `photos`, `spoken` or `motion` (built in), `cifar10` or `cifar100` (torchvision's, never
downloaded), a folder, a file of `data.readers.paths`, a URL without "+", or a data set of the
Hugging Face Hub, `hf:OWNER/NAME[/SPLIT]`, of which `hf:OWNER/NAME/SPLIT[:N]` is the first N
examples. The default split of built-in data is `train`, and all of a path. `PATH:train` and
`PATH:test` divide a path 80 / 20 by a hash of the relative path, or by the column `split` of a
table. A path may contain ":" and "+" if it exists. Write `./photos` for a folder with the name of a
built-in source.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Literal, cast, get_args

from widefield.data.planted import Feature, read_plant

BUILTIN = ("photos", "spoken", "motion", "cifar10", "cifar100")
MEMORY = "memory"
"""Name of arrays in memory; a file of that name is stored with its absolute path."""
_NEIGHBORS = 1_000  # names in a folder that are compared with a wrong one, chosen by hand
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9.-]*://[^+\s]+|hf:\w[\w.-]*(?:/\w[\w.-]*){1,2}(?:\[:\d+\])?")

Split = Literal["train", "test"]
"""Split of a source."""
Values = Literal["channels", "pages"]
"""How files keep their depth and channels: pages of a TIFF are channels, or examples."""


@dataclass(frozen=True, slots=True)
class Plant:
    """One `+NAME:OPTION=VALUE` of a data spec; a switch has an empty value."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        options = [f":{key}={value}" if value else f":{key}" for key, value in self.options]
        return "".join([f"+{self.name}", *options])


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed data spec; `str` returns its canonical form."""

    base: str
    split: Split | None = None
    plants: tuple[Plant, ...] = ()
    values: Values | None = None

    def __str__(self) -> str:
        parts = "".join(f":{part}" for part in (self.values, self.split) if part)
        return f"{self.base}{parts}{''.join(map(str, self.plants))}"

    def features(self, tasks: Collection[str]) -> list[Feature]:
        for plant in self.plants:
            if plant.name in tasks:
                raise ValueError(
                    f"the data has a task '{plant.name}' already; '+{plant.name}' cannot be added"
                )
        return [read_plant(plant.name, dict(plant.options)) for plant in self.plants]


def parse(text: str) -> Spec:
    """Parse a data spec; its base is the longest prefix that is a source."""
    # Longest first: an existing path may contain "+".
    ends = [len(text), *(i for i in range(len(text) - 1, 0, -1) if text[i] == "+")]
    for end in ends:
        base_and_split = _parse_base(text[:end])
        if base_and_split is not None:
            base, split, values = base_and_split
            return Spec(base, split, _parse_plants(text[end:]), values)
    base = text.split("+")[0]
    raise ValueError(f"no data set or path named '{base}'{similar_name_hint(base)}")


def spec_text(data: str | Path) -> str:
    """Return a spec as text; a `Path` always means a file or folder."""
    named_like_builtin = isinstance(data, Path) and str(data) in BUILTIN
    return os.path.join(".", data) if named_like_builtin else str(data)


def plant_names(text: str) -> frozenset[str]:
    return frozenset(plant.name for plant in parse(text).plants)


def _parse_base(text: str) -> tuple[str, Split | None, Values | None] | None:
    if text in BUILTIN:
        if os.path.isdir(text):
            raise ValueError(
                f"'{text}' is the name of built-in data and of a folder here: write "
                f"'{os.path.join('.', text)}' for the folder, or '{text}:train' for the former"
            )
        return text, "train", None
    if _is_path(text):
        return text, None, None
    base, _, split = text.rpartition(":")
    path, _, last = base.rpartition(":")
    values: Values | None = None
    if split in get_args(Values):
        values, split = cast(Values, split), ""
    elif last in get_args(Values) and _is_path(path) and not _is_path(base):
        base, values = path, cast(Values, last)
    if "+" in split or not (base in BUILTIN or _is_path(base)):
        return None
    if split in get_args(Split):
        return base, cast(Split, split), values
    if values is not None and not split and base not in BUILTIN:
        return base, None, values
    split = split or values or ""
    subfolder = os.path.join(base, split)
    hint = f"; did you mean the folder '{subfolder}'?" if _is_path(subfolder) else ""
    raise ValueError(f"'{base}' has no split '{split}'; known: train, test{hint}")


def _is_path(text: str) -> bool:
    if is_url(text):
        return text.rpartition(":")[2] not in (*get_args(Split), *get_args(Values))
    return text != "" and os.path.exists(os.path.expanduser(text))


def is_url(text: str) -> bool:
    """Return whether a base is a URL, such as s3://bucket/shards, or a name of the Hub."""
    return _URL.fullmatch(text) is not None


def _parse_plants(text: str) -> tuple[Plant, ...]:
    # A "+" or ":" inside the value of an option is not followed by a complete name.
    first, *rest = re.split(r"\+(?=[\w-]*(?:[:+]|$))", text)
    if first:
        raise ValueError(
            f"cannot read '{first}'; a planted feature is written '+NAME:OPTION=VALUE'"
        )
    plants: dict[str, Plant] = {}
    for part in rest:
        name, *parts = re.split(r":(?=[\w-]+(?:[=:]|$))", part)
        name, _, source = name.partition(":")  # as in +background:./recordings
        options = {"source": source} if source else {}
        for setting in parts:
            key, _, value = setting.partition("=")
            options[key] = value
        read_plant(name, options)  # raises before anything is opened
        if name in plants:
            raise ValueError(f"'+{name}' is planted twice; a feature can be planted once")
        plants[name] = Plant(name, tuple(sorted(options.items())))
    return tuple(plants.values())


def absolute(text: str) -> str:
    """Return the same spec with absolute paths, independent of the working folder."""

    def absolute_path(path: str) -> str:
        return path if is_url(path) else os.path.abspath(os.path.expanduser(path))

    def absolute_source(plant: Plant) -> Plant:
        options = dict(plant.options)
        if "source" in options:
            options["source"] = absolute_path(options["source"])
        return replace(plant, options=tuple(options.items()))

    spec = parse(text)
    base = spec.base if spec.base in BUILTIN else absolute_path(spec.base)
    return str(replace(spec, base=base, plants=tuple(map(absolute_source, spec.plants))))


def to_test_split(text: str) -> str:
    """Return the spec of the test split of the training split `text`."""
    spec = parse(text)
    if spec.split != "train":
        raise ValueError(
            f"'{spec}' has no test split, so there is nothing to score on: name other data, or "
            f"train on '{spec.base}:train' and score on its test split"
        )
    return str(replace(spec, split="test"))


def same_images(one: str, two: str) -> bool:
    """Return whether equal names in both specs mean the same image, planted features aside.

    Splits of a path share its file names; built-in splits number their examples independently.
    """
    if MEMORY in (one.split("+")[0], two.split("+")[0]):  # arrays have no name to compare
        return False
    try:
        first, second = parse(absolute(one)), parse(absolute(two))
    except ValueError:  # a path may have been deleted since it was opened
        return False
    return first.base == second.base and (first.base not in BUILTIN or first.split == second.split)


def similar_name_hint(base: str) -> str:
    """Return the end of an error message with the name or path most similar to `base`."""
    parent = Path(os.path.expanduser(base)).parent
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in islice(entries, _NEIGHBORS)]
    except (OSError, ValueError):
        names = []
    known = [*BUILTIN, *(str(parent / name) for name in names)]
    nearest = get_close_matches(base, known, n=1)
    return f"; did you mean '{nearest[0]}'?" if nearest else f"; built in: {', '.join(BUILTIN)}"
