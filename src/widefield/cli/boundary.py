"""The one line of an error that the user reads."""

import errno
import os

from cyclopts import CycloptsError

from widefield.core.lines import one_line

_MEMORY = ("allocate memory", "out of memory", "not enough memory")
"""What torch says where an allocation failed."""


def line_of(error: BaseException) -> str | None:
    """Return the line for an error that input, files or the machine caused; None for a bug of ours.

    Example:
        >>> line_of(FileNotFoundError(2, "No such file or directory", "photos"))
        'photos: No such file or directory'
        >>> line_of(AssertionError()) is None
        True
    """
    text = _text_of(error)
    return None if text is None else one_line(text)


def _text_of(error: BaseException) -> str | None:
    match error:
        case ValueError() | CycloptsError():
            return str(error) or type(error).__name__
        case OSError():
            return _about_file(error)
        case MemoryError():
            return _about_memory(str(error))
        case OverflowError():
            return f"a number is too large ({error}): choose a smaller one"
        case RecursionError():
            return "the input is nested too deeply: give one that is flat"
        case RuntimeError() if not isinstance(error, NotImplementedError):
            words = str(error)
            if any(word in words for word in _MEMORY):
                return _about_memory(words)
            return f"{words}: --debug shows where this arose"  # torch refuses sizes in this way
    return None


def _about_file(error: OSError) -> str:
    """Return which file or folder it is about and what the system said."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        return f"{name}: {reason}"
    if error.errno == errno.ENOENT:  # the system names no file where it looks for its own place
        return f"the working folder is gone ({reason}): change to another one"
    return f"cannot read or write: {reason}"


def _about_memory(words: str) -> str:
    said = f" ({words})" if words else ""
    return f"not enough memory{said}: choose smaller sizes, such as batch_size, image_size or limit"
