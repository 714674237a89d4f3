"""Texts of labels: which are missing, spellings of one class, numbers, or several labels a cell."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

import numpy as np

from widefield.core.names import printable
from widefield.data.table import TargetKind

_MISSING = frozenset(
    ("#N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "NAN", "None", "n/a", "nan", "null")
)
"""Texts of missing labels, most of them those of pandas."""
_MISSING_TYPES = ("NAType", "NaTType")
"""Types of missing values in pandas, which cannot be compared."""
SEPARATORS = ("|", ";")
"""Characters between the labels of one cell."""
LARGEST_EXACT = 2.0**53
"""Floats from here on leave out whole numbers, so that two ids may be one float."""
# Chosen by hand: a probe has an output for each class, so a wrong column would fill the memory.
MAX_CLASSES = 65_536
MOST_CLASSES = 20
"""Distinct numbers that can be classes, chosen by hand."""


def present_labels(
    counts: Counter[str], task: str, notes: list[str], named: Collection[str] = ()
) -> Counter[str]:
    """Return the labels that are not missing, and note those that are.

    Those of `named` are classes whatever their text.
    """
    missing = _missing(counts) - {*named}
    found = Counter({label: count for label, count in counts.items() if label in missing})
    if found:
        texts = ", ".join(map(repr, sorted(found)))
        notes.append(f"{found.total()} cells of {task!r} are {texts}: missing, not a class")
    return Counter({label: count for label, count in counts.items() if label not in missing})


def _missing(labels: Iterable[str]) -> set[str]:
    """Return the texts that stand for a missing label among these."""
    missing = set(_MISSING)
    # Many tables have -1 for a missing id, and some for one of two classes.
    others = {_key(label) for label in labels if label not in missing} - {"-1"}
    if len(others) > 1 and all(text.isdecimal() for text in others):
        missing |= {label for label in labels if _key(label) == "-1"}
    return missing


def _key(label: str) -> str:
    """Return a label in NFC, without the zeros of an integer's decimals."""
    whole, point, decimals = label.partition(".")
    is_integer = point and decimals and not decimals.strip("0") and whole.lstrip("-").isdecimal()
    return whole if is_integer else nfc(label)


def folded(label: str) -> str:
    """Return what spellings of a label have in common; a single letter keeps its case."""
    text = _key(label)
    return text if len(text) == 1 else text.lower()


def merged_spellings(labels: Counter[str], task: str, notes: list[str]) -> dict[str, str]:
    """Return label -> class, with one spelling for each class, and note the others."""
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    texts: dict[str, set[str]] = defaultdict(set)
    for label, count in labels.items():
        spellings[folded(label)][_key(label)] += count
        texts[folded(label)].add(label)
    name_of = {}
    for key, counts in spellings.items():
        name_of[key] = max(counts, key=lambda text: (counts[text], text))
        if len(texts[key]) == 1:
            name_of[key] = nfc(*texts[key])  # one spelling stays as it is
            continue
        others = sorted(texts[key] - {name_of[key]})
        named = ", ".join(map(repr if len(counts) > 1 else ascii, others))
        notes.append(f"{named} of {task!r} is the class {name_of[key]!r}")
    return {label: name_of[folded(label)] for label in labels}


def text_of(value: object) -> str | None:
    """Return a label as text, "" for a missing one, None for a value of another type."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        texts = [text_of(item) for item in value]
        if None in texts:
            return None
        mark = SEPARATORS[0]  # also at the end: one label, or none, is a set of labels too
        return mark.join(sorted(filter(None, texts))) + mark
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return ""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        # pandas converts integers to floats in a column with missing values.
        value = int(value) if value.is_integer() else value
    return printable(str(value).strip()) if isinstance(value, str | int | float) else None


def nfc(text: str) -> str:
    """Return a text with composed characters: paths and labels come in both forms."""
    return unicodedata.normalize("NFC", text)


def kind_of_cells(labels: Iterable[str]) -> TargetKind | None:
    """Return what the cells of a column are taken for; None for classes.

    A cell with a separator has several labels. More than 20 numbers are no classes, but for codes
    with zeros in front, such as 01234, and for whole numbers that begin at 0 or 1 and leave out at
    most half of the numbers up to the largest, as ids of classes do.
    """
    unique = set(labels)
    if separator_of(unique) is not None:
        return "labels"
    numbers = numbers_of(unique)
    if numbers is None or len(set(numbers.values())) <= MOST_CLASSES:
        return None
    if all(map(str.isdecimal, unique)) and any(x[0] == "0" != x for x in unique):
        return None
    values = sorted(set(numbers.values()))
    are_ids = all(map(float.is_integer, values)) and values[0] in (0, 1)
    return None if are_ids and 2 * len(values) > values[-1] else "number"


def are_names(labels: Counter[str]) -> bool:
    """Return whether labels are whole numbers beyond class ids that recur, as those of patients."""
    are_whole = all(text.isdecimal() for text in labels)
    return are_whole and max(map(int, labels)) >= MAX_CLASSES and 2 * len(labels) <= labels.total()


def separator_of(labels: Iterable[str]) -> str | None:
    unique = set(labels)
    return next((mark for mark in SEPARATORS if any(mark in text for text in unique)), None)


def numbers_of(labels: Iterable[str]) -> dict[str, float] | None:
    """Return text -> finite number; None if a text is none. The comma may be a decimal point."""
    try:
        # Of names such as 12_3, Python would take the underscore for a separator of digits.
        numbers = {x: float(x.replace(",", ".").replace("_", "x")) for x in labels}
    except ValueError:
        return None
    return numbers if np.isfinite(list(numbers.values())).all() else None
