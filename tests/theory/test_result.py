import json
import math

import numpy as np
import pytest

from widefield_labs.lab import Result, at_least, at_most, between, close


def result(*checks):
    def draw(arrays, figure):
        figure.subplots().plot(arrays["y"])

    arrays = {"y": np.arange(3.0)}
    return Result(name="example", parameters={"seed": 0}, checks=checks, arrays=arrays, draw=draw)


def test_a_check_holds_up_to_its_tolerance_and_no_further():
    assert close("c", 1.5, 1.0, tolerance=0.5).holds
    assert not close("c", 1.51, 1.0, tolerance=0.5).holds
    assert at_least("c", 2, 2).holds
    assert not at_least("c", 1.9, 2).holds
    assert at_most("c", 2.1, 2, tolerance=0.2).holds
    assert not at_most("c", 2.3, 2, tolerance=0.2).holds
    assert between("c", 1, 0, 1).holds
    assert not between("c", -0.1, 0, 1).holds


@pytest.mark.parametrize("check", [at_least("c", math.nan, 0), close("c", math.nan, 0, 1.0)])
def test_a_measurement_that_is_no_number_fails(check):
    assert not check.holds
    assert result(check).verdict == "fails"


def test_one_check_that_fails_fails_the_lab():
    right, wrong = at_least("right", 1, 0), at_least("wrong", -1, 0)
    assert result(right).verdict == "holds"
    assert result(right, wrong).verdict == "fails"


def test_json_is_strict_and_complete():
    printed = result(at_least("half open", 1, 0), close("a value", 2, 2, 0.1)).to_json()
    assert json.loads(json.dumps(printed, allow_nan=False)) == printed
    assert printed["measured"] == {"half open": 1.0, "a value": 2.0}
    assert printed["predicted"] == {"half open": [0.0, None], "a value": 2.0}
    assert printed["verdict"] == "holds"


def test_the_same_arrays_give_the_same_picture(tmp_path):
    outcome = result(at_least("c", 1, 0))
    for name in ("one.svg", "two.svg"):
        outcome.save(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    outcome.save(tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"name a \.svg or a \.png"):
        outcome.save(tmp_path / "one.txt")
