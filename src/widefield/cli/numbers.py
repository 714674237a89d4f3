"""Words of the command line as whole numbers, none of them rounded."""

from collections.abc import Sequence
from typing import Any, get_args

import cyclopts
from cyclopts import Parameter, Token


def _convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """Return what `tokens` say, and refuse a fraction where a whole number is wanted.

    Raises:
        ValueError: a fraction.
    """
    if int in (kind, *get_args(kind)) and float not in get_args(kind):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f"{token.value!r} is not a whole number")
    return cyclopts.convert(kind, tokens)


UNROUNDED = Parameter(converter=_convert)
"""The way in which every option reads its word."""
