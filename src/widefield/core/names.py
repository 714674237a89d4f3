"""Names that a user types."""

from collections.abc import Iterable
from difflib import get_close_matches


def check_name(what: str, given: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among the `known` ones.

    Raises:
        ValueError: it is unknown; the message names the nearest known one, or all.

    Example:
        >>> check_name("method", "simcrl", ("simclr", "byol"))
        Traceback (most recent call last):
        ValueError: unknown method 'simcrl': did you mean 'simclr'?
    """
    names = tuple(known)
    if given in names:
        return
    matches = get_close_matches(str(given), names, n=1, cutoff=0.4)
    hint = f"did you mean {matches[0]!r}?" if matches else f"known: {', '.join(names)}"
    raise ValueError(f"unknown {what} {given!r}: {hint}")
