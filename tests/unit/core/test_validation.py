"""Values and the annotations that they have to fit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import made_audit
from widefield.audits.result import Audit
from widefield.core.validation import check, is_valid


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
    assert check("it", hint, value) == value
    assert is_valid(hint, value)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "it must be a whole number, got True"),
        (True, float, "it must be a finite number, got True"),
        ("1", float, "it must be a finite number, got '1'"),
        (1.0, int, "it must be a whole number, got 1.0"),
        (None, str, "it must be a string, got None"),
        (["a"], Literal["a", "b"], "it must be a or b, got ['a']"),
        ((1, 2, 3), tuple[int, int], "it must be 2 values, got (1, 2, 3)"),
        ([1], tuple[int, ...], "it must be tuple, got [1]"),
        ({"a": {"b": 1}}, Mapping[str, Mapping[str, str]], "it.a.b must be a string, got 1"),
        ({1: 1}, Mapping[str, int], "a name in it must be a string, got 1"),
        (Point("x", ()), Point, "it.x must be a finite number, got 'x'"),  # type: ignore[arg-type]
        (Point(1, ("a", 2)), Point, "it.names.1 must be a string, got 2"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_named(value: Any, hint: Any, words: str) -> None:
    assert not is_valid(hint, value)
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        check("it", hint, value)


def test_a_whole_audit_fits() -> None:
    assert is_valid(Audit, made_audit.whole())
