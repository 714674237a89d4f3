"""Errors of the operating system as `ValueError`, for Python calls and commands."""

import errno
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from widefield.core.lines import one_line

_for_command = ContextVar("for_command", default=False)
"""Whether messages are those of a command."""
_OPTION = re.compile(r"(widefield [a-z]+ .*)|(?<![\w-])--([a-z][a-z-]*)")
"""A command to the end of the message, or an option."""

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
        except ValueError as error:
            if not _for_command.get() and len(error.args) == 1:
                error.args = (python_names(str(error)),)
            raise
        except BrokenPipeError:  # the reader of the output is gone: not an error of an input
            raise
        except (OSError, OverflowError, RecursionError) as error:
            raise ValueError(one_line(describe_error(error))) from error

    return wrapper


@contextmanager
def option_names() -> Iterator[None]:
    """Let messages name options of the command line, not arguments of Python."""
    token = _for_command.set(True)
    try:
        yield
    finally:
        _for_command.reset(token)


def python_names(text: str) -> str:
    """Return a message with the names of arguments in place of options; commands stay.

    Example:
        >>> python_names("lower lr or give more --warmup-epochs")
        'lower lr or give more warmup_epochs'
        >>> python_names("fetch them with widefield pretrain DATA --init NAME")
        'fetch them with widefield pretrain DATA --init NAME'
    """
    return _OPTION.sub(lambda m: m[1] or m[2].removeprefix("no-").replace("-", "_"), text)


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
