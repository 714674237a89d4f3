"""Text for a terminal: one line without control characters."""

from widefield.core.names import printable

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
