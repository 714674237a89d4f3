"""Messages of Python calls and commands: errors as `ValueError`, names as the caller writes them.

Messages are written with options, such as --image-size 64, or with names, such as image_size. A
Python call says image_size=64 and image_size, and a command --image-size 64 and --image-size.
"""

import errno
import functools
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from widefield.core.lines import one_line

_options: ContextVar[frozenset[str] | None] = ContextVar("options", default=None)
"""Names of the options of the command that runs, with underscores; None for Python."""
_OPTION = re.compile(r"(widefield [a-z]+ .*)|(?<![\w-])--([a-z][a-z-]*)(?: (\d+\b|[A-Z]{2,}\b))?")
"""A command to the end of the message, or an option, perhaps with a value."""
_NAME = re.compile(r"(?<![\w'\"./=-])[a-z]+(?:_[a-z]+)+(?![\w'\"./=(])")
"""A name of several words, which is no part of a path or of code."""

P = ParamSpec("P")
R = TypeVar("R")


def input_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate `call` so that invalid inputs raise `ValueError` of one line.

    Its messages, and the notes that it sends and returns, have the names of `caller_names`. Python
    has several classes for them: a path that is too long, a folder without permission, a
    number that overflows. The original error is the cause of the one that is raised.

    Example:
        >>> input_errors(open)("/nowhere/at/all")
        Traceback (most recent call last):
        ValueError: /nowhere/at/all: No such file or directory
    """

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        on_note: Any = kwargs.get("on_note")
        if on_note is not None:
            kwargs["on_note"] = lambda note: on_note(caller_names(note))
        try:
            return _with_caller_names(call(*args, **kwargs))
        except ValueError as error:
            if len(error.args) == 1:
                error.args = (caller_names(str(error)),)
            raise
        except BrokenPipeError:  # the reader of the output is gone: not an error of an input
            raise
        except (OSError, OverflowError, RecursionError) as error:
            raise ValueError(one_line(describe_error(error))) from error

    return wrapper


def _with_caller_names(result: R) -> R:
    """Return a result whose `notes`, if it has some, have the names of `caller_names`."""
    notes = getattr(result, "notes", None)
    if not isinstance(notes, tuple):
        return result
    named = tuple(map(caller_names, notes))
    return result if named == notes else replace(result, notes=named)  # type: ignore[type-var]


@contextmanager
def option_names(names: Collection[str]) -> Iterator[None]:
    """Let messages name options of a command, which has these `names`, not arguments of Python."""
    token = _options.set(frozenset(names))
    try:
        yield
    finally:
        _options.reset(token)


def caller_names(text: str) -> str:
    """Return a message with options for a command, and with arguments for a call in Python.

    Example:
        >>> caller_names("lower lr or give more --warmup-epochs: --batch-size 32 has few steps")
        'lower lr or give more warmup_epochs: batch_size=32 has few steps'
        >>> caller_names("fetch them with widefield pretrain DATA --init NAME")
        'fetch them with widefield pretrain DATA --init NAME'
        >>> with option_names(["max_examples"]):
        ...     caller_names("choose a larger max_examples")
        'choose a larger --max-examples'
    """
    options = _options.get()
    if options is None:
        return _OPTION.sub(_argument, text)
    return _NAME.sub(
        lambda m: "--" + m[0].replace("_", "-") if m[0] in options else m[0],
        text,
    )


def _argument(found: re.Match[str]) -> str:
    """Return an option as an argument of Python, and a command as it is."""
    command, option, value = found.groups()
    if command:
        return str(command)
    name = option.removeprefix("no-").replace("-", "_")
    return name if value is None else f"{name}={value}"


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
