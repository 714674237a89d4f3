"""Names that a user types, and names that a terminal shows."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


def check_name(what: str, given: str, known: Iterable[str], *, listed_by: str = "") -> None:
    """Refuse a name that is not among the `known` ones.

    Raises:
        ValueError: it is unknown; the message names the nearest known one. Where none is near, it
            names all, or `listed_by`, what lists them if they are many.

    Example:
        >>> check_name("method", "simcrl", ("simclr", "byol"))
        Traceback (most recent call last):
        ValueError: unknown method 'simcrl': did you mean 'simclr'?
    """
    names = tuple(known)
    if given in names:
        return
    matches = get_close_matches(str(given), names, n=1)
    every = f"{listed_by} lists them" if listed_by else f"known: {', '.join(names)}"
    hint = f"did you mean {matches[0]!r}?" if matches else every
    raise ValueError(f"unknown {what} {given!r}: {hint}")


def printable(text: str) -> str:
    r"""Return `text` with an escape for each character that cannot be seen.

    Control characters would move the cursor or change the title of a terminal, and bytes that are
    no text cannot be written to most files. Spaces of any width stay: they are in names of files,
    such as macOS gives to screenshots, and a name has to lead to its file.

    Example:
        >>> printable("cats\x1b[2J")
        'cats\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def is_seen(character: str) -> bool:
    r"""Return whether a character leaves a mark or a space.

    Example:
        >>> is_seen("\N{NO-BREAK SPACE}"), is_seen("\x1b")
        (True, False)
    """
    return character.isprintable() or unicodedata.category(character) == "Zs"
