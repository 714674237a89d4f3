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


def format_duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours.

    Example:
        >>> [format_duration(seconds) for seconds in (12.3, 600.0, 5_400.0, 1_234_567.0)]
        ['12 s', '10 min', '1.5 h', '342.9 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:,.1f} h"
