"""Parametrize by several axes at a time, without their product."""

from collections.abc import Iterable
from typing import Any

import pytest


def each_value(
    *axes: tuple[str | tuple[str, ...], Iterable[Any]],
) -> pytest.MarkDecorator:
    """Use every value of every axis, in as many cases as the longest axis has values.

    An axis has the arguments of `pytest.mark.parametrize`. For axes that do not depend on each
    other, whose product would repeat each value for nothing.
    """
    names = [name for of, _ in axes for name in ((of,) if isinstance(of, str) else of)]
    columns = [[(v,) if isinstance(of, str) else tuple(v) for v in values] for of, values in axes]
    rows = [
        sum((column[i % len(column)] for column in columns), ())
        for i in range(max(map(len, columns)))
    ]
    return pytest.mark.parametrize(names, rows)
