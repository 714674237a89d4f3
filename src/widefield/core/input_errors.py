"""The boundary that Python calls and commands share: what an input's error is to its user."""

import errno
import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from widefield.core.lines import one_line

P = ParamSpec("P")
R = TypeVar("R")


def input_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Let `call` raise `ValueError`, of one line, where the system refuses what it was given.

    Python's own classes for this differ with the system and with what was tried first: a path that
    is too long, a folder without rights, a number that no processor holds. The error as it arose is
    the cause of the one that is raised.

    Example:
        >>> input_errors(open)("/nowhere/at/all")
        Traceback (most recent call last):
        ValueError: /nowhere/at/all: No such file or directory
    """

    @functools.wraps(call)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except BrokenPipeError:  # whoever read our output went away: no input's fault
            raise
        except (OSError, OverflowError, RecursionError) as error:
            raise ValueError(one_line(cause_of(error))) from error

    return refusing


def cause_of(error: OSError | OverflowError | RecursionError) -> str:
    """Return which file, number or nest it is about, and what the system said."""
    if isinstance(error, OverflowError):
        return f"a number is too large ({error}): choose a smaller one"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply: give one that is flat"
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        return f"{name}: {reason}"
    if error.errno == errno.ENOENT:  # the system names no file where it looks for its own place
        return f"the working folder is gone ({reason}): change to another one"
    return f"cannot read or write: {reason}"
