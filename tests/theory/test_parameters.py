from typing import Annotated, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Interval, Le, Lt

from widefield.core.validation import allowed, check, parse, require
from widefield_labs import LABS
from widefield_labs.lab import check_parameter


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[int, Interval(ge=2, le=8)], "a whole number in [2, 8]"),
        (Annotated[float, Gt(0), Lt(1)], "a finite number in (0, 1)"),
        (Annotated[float, Gt(0)], "a finite number above 0"),
        (Annotated[int, Ge(3)], "a whole number of at least 3"),
        (Annotated[float, Le(2)], "a finite number of at most 2"),
        (Annotated[float, Lt(2)], "a finite number below 2"),
        (float, "a finite number"),
        (Literal[1, 2, 4], "1, 2 or 4"),
        (Annotated[int | None, Ge(4)], "a whole number of at least 4 or None"),
        (Literal["tau", "size"] | None, "tau, size or None"),
    ],
)
def test_the_range_in_words(hint, words):
    assert allowed(hint) == words


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Annotated[float, Interval(ge=0, le=1)], 0.0),
        (Annotated[float, Interval(ge=0, le=1)], 1),
        (Annotated[float, Interval(gt=0, lt=1)], np.float32(0.5)),
        (Annotated[int, Ge(2)], np.int64(2)),
        (Annotated[int | None, Ge(4)], None),
        (Literal[1, 2, 4], 4),
    ],
)
def test_values_in_the_range_pass_as_python_numbers(hint, value):
    checked = check("x", hint, value)
    assert checked == value
    assert type(checked) in (int, float, type(None))


@pytest.mark.parametrize(
    ("hint", "word", "value"),
    [
        (Annotated[float, Gt(0)], "1e-3", 1e-3),
        (Annotated[int, Ge(2)], "3", 3),
        (Annotated[int, Ge(2)], "3.5", "3.5"),
        (Annotated[int | None, Ge(4)], "None", None),
        (Literal[1, 2, 4], "4", 4),
        (Literal["tau", "size"] | None, "size", "size"),
    ],
)
def test_words_of_the_command_line(hint, word, value):
    assert parse(hint, word) == value


def test_the_command_line_may_write_hyphens():
    words = {"learning-rate": "1e-4", "beta1": "0.5", "betta": "7"}
    parsed = LABS["multistep"].parse(words)
    assert parsed == {"learning_rate": 1e-4, "beta1": 0.5, "betta": "7"}


def test_a_refusal_names_value_and_range():
    require(True, "x", 1, "positive")
    with pytest.raises(ValueError, match=r"^x must be positive, got -1$"):
        require(False, "x", -1, "positive")


@pytest.mark.parametrize(
    "value", [10**23, 10**400, 1e13, float("inf"), float("-inf"), float("nan")]
)
@pytest.mark.parametrize(
    "hint", [int, float, Annotated[float, Gt(0)], Annotated[int | None, Ge(1)]]
)
def test_numbers_that_nothing_computes_with(hint, value):
    with pytest.raises(ValueError, match=r"x must be a finite number in \[-1e\+12, 1e\+12\]"):
        check_parameter("x", hint, value)
