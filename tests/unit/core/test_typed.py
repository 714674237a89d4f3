"""Values and the annotations that they have to fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import made_audit
from widefield.audits.result import Audit
from widefield.core.typed import misfit


@dataclass(frozen=True)
class Point:
    x: float
    names: tuple[str, ...]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, float),
        (1.5, float),
        (True, bool),
        (None, float | None),
        ("a", Literal["a", "b"]),
        ((1, "x"), tuple[int, str]),
        ((), tuple[int, ...]),
        ({"a": None}, Mapping[str, Any]),
        (Path("x"), Path | None),
        (Point(1, ("a",)), Point),
    ],
)
def test_what_fits(value: Any, hint: Any) -> None:
    assert misfit(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, " is True"),
        (True, float, " is True"),
        ("1", float, " is '1'"),
        (1.0, int, " is 1.0"),
        (None, str, " is None"),
        (["a"], Literal["a", "b"], " is ['a']"),
        ((1, 2, 3), tuple[int, int], " is (1, 2, 3)"),
        ([1], tuple[int, ...], " is [1]"),
        ({"a": {"b": 1}}, Mapping[str, Mapping[str, str]], "a.b is 1"),
        ({1: 1}, Mapping[str, int], "name 1 is 1"),
        (Point("x", ()), Point, "x is 'x'"),  # type: ignore[arg-type]
        (Point(1, ("a", 2)), Point, "names.1 is 2"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_named(value: Any, hint: Any, words: str) -> None:
    assert misfit(value, hint) == words


def test_a_whole_audit_fits() -> None:
    assert misfit(made_audit.whole(), Audit) is None
