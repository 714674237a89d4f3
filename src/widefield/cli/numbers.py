"""Conversion of command-line arguments to whole numbers without rounding."""

from collections.abc import Sequence
from typing import Any, get_args

import cyclopts
from cyclopts import Parameter, Token


def _convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """Return the value of `tokens`; a fraction for a whole number is an error."""
    if int in (kind, *get_args(kind)) and float not in get_args(kind):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f"{token.value!r} is not a whole number")
    return cyclopts.convert(kind, tokens)


STRICT_INT = Parameter(converter=_convert)
"""Converter of all options."""
