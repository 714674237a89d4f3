"""One-line messages of errors."""

from cyclopts import CycloptsError

from widefield.core.errors import describe_error, option
from widefield.core.names import one_line

_MEMORY = ("allocate memory", "out of memory", "not enough memory")
"""Parts of torch's messages on failed allocations."""


def line_of(error: BaseException) -> str | None:
    """Return the message of an error caused by input, files or the machine; None for a bug."""
    text = _text_of(error)
    return None if text is None else one_line(text)


def _text_of(error: BaseException) -> str | None:
    match error:
        case ValueError() | CycloptsError():
            return str(error) or type(error).__name__
        case OSError() | OverflowError() | RecursionError():
            return describe_error(error)
        case ImportError() if error.name == "widefield":  # Python or torch is too old
            return str(error)
        case MemoryError():
            return _about_memory(str(error))
        case RuntimeError() if not isinstance(error, NotImplementedError):
            words = str(error)
            if any(word in words for word in _MEMORY):
                return _about_memory(words)
            return f"{words}: --debug shows the traceback"  # such as torch's errors about sizes
    return None


def _about_memory(words: str) -> str:
    reason = f" ({words})" if words else ""
    *sizes, last = map(option, ("batch_size", "image_size", "max_examples"))
    return f"not enough memory{reason}: choose a smaller {', '.join(sizes)} or {last}"
