"""Words: checks of names that users type, printable text, lines of a terminal, counts."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


def check_name(what: str, name: str, known: Iterable[str], *, list_command: str = "") -> None:
    names = tuple(known)
    if name in names:
        return
    written = str(name)  # papers write SimCLR
    matches = get_close_matches(written, names, 1) or get_close_matches(written.lower(), names, 1)
    every = f"{list_command} lists them" if list_command else f"known: {', '.join(names)}"
    hint = f"did you mean {matches[0]!r}?" if matches else every
    raise ValueError(f"unknown {what} {name!r}: {hint}")


def printable(text: str) -> str:
    """Return `text` with unprintable characters escaped.

    Control characters would move the cursor or change the title of a terminal, and invalid bytes
    cannot be written to most files. Spaces of any width stay: names of files have them, as of
    screenshots of macOS.
    """
    if text.isprintable():
        return text
    return "".join(c if is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def reason_of(error: Exception, *, most: int = 120) -> str:
    """Return what an error says in one printable line of up to `most` characters."""
    return printable(" ".join(str(error).split()))[:most] or type(error).__name__


def is_seen(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def plain_attributes(x: object) -> str:
    """Return the public attributes of `x` that are numbers, words or tuples, for a repr."""
    return ", ".join(
        f"{name}={value!r}"
        for name, value in vars(x).items()
        if not name.startswith("_") and name != "training" and isinstance(value, _PLAIN)
    )


_PLAIN = (bool, int, float, str, tuple)


def count_text(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# Chosen by hand: five lines of a terminal of 80 columns.
LONGEST = 400
"""Maximum characters of a line; a longer one loses its middle, so that the remedy stays."""


def one_line(text: str) -> str:
    """Return `text` as one line of at most `LONGEST` printable characters.

    Whitespace becomes single spaces; control characters and invalid bytes become escapes.
    """
    line = printable(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - len(" ... ")) // 2
    return f"{line[:half]} ... {line[-half:]}"


def format_duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours.

    Example:
        >>> [format_duration(seconds) for seconds in (12.3, 600.0, 5_400.0, 1_234_567.0)]
        ['12 s', '10 min', '1.5 h', '342.9 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:,.1f} h"
