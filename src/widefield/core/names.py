"""Words: checks of names that users type, printable text, lines of a terminal, counts."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


def check_name(what: str, name: str, known: Iterable[str], *, list_command: str = "") -> None:
    """Check that `name` is one of `known`.

    Raises:
        ValueError: it is not; the message has the closest known name, or else all of them, or
            `list_command`, which lists them.

    Example:
        >>> check_name("method", "simcrl", ("simclr", "byol"))
        Traceback (most recent call last):
        ValueError: unknown method 'simcrl': did you mean 'simclr'?
    """
    names = tuple(known)
    if name in names:
        return
    matches = get_close_matches(str(name), names, n=1)
    every = f"{list_command} lists them" if list_command else f"known: {', '.join(names)}"
    hint = f"did you mean {matches[0]!r}?" if matches else every
    raise ValueError(f"unknown {what} {name!r}: {hint}")


def printable(text: str) -> str:
    r"""Return `text` with unprintable characters escaped.

    Control characters would move the cursor or change the title of a terminal, and invalid bytes
    cannot be written to most files. Spaces of any width stay: names of files have them, as of
    screenshots of macOS.

    Example:
        >>> printable("cats\x1b[2J")
        'cats\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def reason_of(error: Exception, *, most: int = 120) -> str:
    """Return what an error says in one printable line of up to `most` characters."""
    return printable(" ".join(str(error).split()))[:most] or type(error).__name__


def is_seen(character: str) -> bool:
    r"""Return whether a character is printable or a space.

    Example:
        >>> is_seen("\N{NO-BREAK SPACE}"), is_seen("\x1b")
        (True, False)
    """
    return character.isprintable() or unicodedata.category(character) == "Zs"


def plain_attributes(x: object) -> str:
    """Return the public attributes of `x` that are numbers, words or tuples, for a repr."""
    return ", ".join(
        f"{name}={value!r}"
        for name, value in vars(x).items()
        if not name.startswith("_") and name != "training" and isinstance(value, _PLAIN)
    )


_PLAIN = (bool, int, float, str, tuple)


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    Example:
        >>> counted(1, "label"), counted(2000, "group")
        ('1 label', '2,000 groups')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# Chosen by hand: five lines of a terminal of 80 columns.
LONGEST = 400
"""Maximum characters of a line; a longer one loses its middle, so that the remedy stays."""


def one_line(text: str) -> str:
    r"""Return `text` as one line of at most `LONGEST` printable characters.

    Whitespace becomes single spaces; control characters and invalid bytes become escapes.

    Example:
        >>> one_line("no image\n in \x1b[2Jphotos")
        'no image in \\x1b[2Jphotos'
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
