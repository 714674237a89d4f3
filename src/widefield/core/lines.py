"""Text for a terminal: one line that says it all and that the terminal obeys in nothing."""

from widefield.core.names import printable

LONGEST = 400
"""Characters of a line at most; what is longer loses its middle, so that the remedy stays."""


def one_line(text: str) -> str:
    r"""Return `text` in one line of at most `LONGEST` characters, each of which can be seen.

    Spaces, tabs and line ends become single spaces; control characters, those that turn the
    direction of writing, and bytes that are no text become escapes.

    Example:
        >>> one_line("no image\n in \x1b[2Jphotos")
        'no image in \\x1b[2Jphotos'
    """
    line = printable(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - len(_CUT)) // 2
    return f"{line[:half]}{_CUT}{line[-half:]}"


_CUT = " ... "
