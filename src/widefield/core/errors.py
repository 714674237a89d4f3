"""Errors of public calls as `ValueError` of one line, and settings as the caller writes them."""

import errno
import functools
import os
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from widefield.core.names import one_line

P = ParamSpec("P")
R = TypeVar("R")

# Not a ContextVar, because threads that read data and rows have messages too.
_python_only: frozenset[str] | None = None
"""None in Python; in a command the settings that are no options of the command line."""


def input_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate `call` so that invalid inputs raise `ValueError` of one line.

    Python has several classes for them: a path that is too long, a folder without permission, a
    number that overflows. The original error is the cause of the one that is raised.
    """

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except BrokenPipeError:  # the reader of the output is gone: not an error of an input
            raise
        except (OSError, OverflowError, RecursionError) as error:
            raise ValueError(one_line(describe_error(error))) from error

    return wrapper


def describe_error(error: OSError | OverflowError | RecursionError) -> str:
    """Return one line with the file or number concerned and the reason of the system."""
    if isinstance(error, OverflowError):
        return f"a number is too large ({error}): choose a smaller one"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply: give one that is flat"
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        return f"{name}: {reason}"
    if error.errno == errno.ENOENT:  # without a file name, it is the working folder
        return f"the working folder is gone ({reason}): change to another one"
    return f"cannot read or write: {reason}"


@contextmanager
def command_line(python_only: Collection[str] = ()) -> Iterator[None]:
    """Let `option` write options of the command line, but for settings that are none."""
    global _python_only
    before, _python_only = _python_only, frozenset(python_only)
    try:
        yield
    finally:
        _python_only = before


def option(name: str, value: float | str | Path | None = None) -> str:
    """Return a setting as the caller writes it, for a message: an argument or an option.

    A value of True stands for a flag, one in capitals such as DATA for what the caller chooses.
    """
    if _python_only is not None and name not in _python_only:
        words = "--" + name.replace("_", "-")
        return words if value is None or value is True else f"{words} {shlex.quote(str(value))}"
    if isinstance(value, str | Path) and not str(value).isupper():
        value = repr(str(value))
    return name if value is None else f"{name}={value}"
