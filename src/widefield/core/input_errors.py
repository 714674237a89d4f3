"""Errors of the operating system as `ValueError`, for Python calls and commands."""

import errno
import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from widefield.core.lines import one_line

P = ParamSpec("P")
R = TypeVar("R")


def input_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate `call` so that invalid inputs raise `ValueError` of one line.

    Python has several classes for them: a path that is too long, a folder without permission, a
    number that overflows. The original error is the cause of the one that is raised.

    Example:
        >>> input_errors(open)("/nowhere/at/all")
        Traceback (most recent call last):
        ValueError: /nowhere/at/all: No such file or directory
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
