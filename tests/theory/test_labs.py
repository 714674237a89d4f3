"""Every lab at tiny scale: it holds, it repeats, and each of its claims can be broken."""

import inspect
import json
import math
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from annotated_types import Interval

import widefield_labs as labs
from widefield.core.validation import allowed, check, kinds, limits
from widefield_labs import LABS, MODULES, claims
from widefield_labs.lab import Result


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", LABS)
def test_the_verdict_holds(name, seed, tiny):
    result: Result = tiny(name, seed)
    assert [check for check in result.checks if not check.holds] == []
    assert result.name == name
    assert result.parameters["seed"] == seed


@pytest.mark.parametrize("name", LABS)
def test_the_result_can_be_printed_and_drawn(name, tmp_path, tiny):
    result = tiny(name, 0)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size < 150_000


@pytest.mark.parametrize("name", ["contrastive-covariance", "downstream-angle"])
def test_a_lab_repeats_itself(name, tiny):
    again = LABS[name].run(scale="tiny", seed=1)
    for key, array in tiny(name, 1).arrays.items():
        np.testing.assert_array_equal(array, again.arrays[key])


def test_a_lab_has_the_name_of_its_file_and_the_claim_that_the_list_shows():
    assert list(LABS) == [module.replace("_", "-") for module in MODULES]
    assert claims() == {name: lab.claim for name, lab in LABS.items()}


@pytest.mark.parametrize("module", MODULES)
def test_a_lab_imports_no_other_lab(module):
    source = Path(labs.__file__).with_name(f"{module}.py").read_text()
    imported = set(re.findall(r"^from widefield_labs\.(\w+) import", source, re.MULTILINE))
    assert imported
    assert not imported & set(MODULES)


@pytest.mark.parametrize("name", LABS)
def test_a_broken_prediction_fails(name, tiny):
    """Each lab's tests say, in `BROKEN`, what to do to one array to break one claim."""
    arrays, check = tiny(name, 0).arrays, LABS[name].check
    broken = set()
    for array, spoil, claim in import_module(f"test_{name.replace('-', '_')}").BROKEN:
        checks = check({**arrays, array: spoil(arrays[array])})
        failed = {c.claim for c in checks if not c.holds}
        assert any(claim in c for c in failed), f"{array} spoilt leaves {claim!r} standing"
        broken |= failed
    assert broken == {c.claim for c in check(arrays)}, "a check that no case breaks"


def outside(parameter: inspect.Parameter) -> list[object]:
    """Values that the annotation of `parameter` forbids, next to those that it allows."""
    b: Interval = limits(parameter.annotation)
    step = 1 if int in kinds(parameter.annotation) else 1e-6
    beyond = [
        *([b.ge - step] if b.ge is not None else []),
        *([b.gt] if b.gt is not None else []),
        *([b.le + step] if b.le is not None else []),
        *([b.lt] if b.lt is not None else []),
    ]
    numeric = [math.nan] if float in kinds(parameter.annotation) else [1.5]
    return [*beyond, *numeric, "many", True, [1]]


@pytest.mark.parametrize("name", LABS)
def test_values_outside_the_annotated_range_are_refused_in_one_line(name):
    lab = LABS[name]
    assert lab.parameters, "a lab without parameters"
    for key, parameter in lab.parameters.items():
        assert check(key, parameter.annotation, parameter.default) == parameter.default
        for value in outside(parameter):
            with pytest.raises(ValueError, match=f"^{key} must be ") as refusal:
                lab.run(scale="tiny", **{key: value})
            assert str(refusal.value).endswith(f", got {value!r}")
            if value == value:  # numbers that nothing computes with have a range of their own
                assert f" must be {allowed(parameter.annotation)}, got" in str(refusal.value)
            assert "\n" not in str(refusal.value)


def ends(parameter: inspect.Parameter) -> list[float]:
    """Values at the ends of the range of `parameter`, or next to an end that is left out."""
    b: Interval = limits(parameter.annotation)
    low = b.ge if b.ge is not None else b.gt + 1e-6
    return [low, b.le if b.le is not None else b.lt - 1e-6]


# Parameters whose range ends where the measurement can tell no more.
JUDGED = [
    ("winner-takes-all", ("features", "rate", "weakest")),
    ("local-optima", ("features", "ratio", "lowest_rate", "highest_rate")),
    ("roughness", ("dimension", "positive", "spread", "temperature")),
    ("collision", ("mask_rate", "contrast_strength")),
]


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, keys in JUDGED for key in keys], ids=str
)
def test_the_verdict_holds_at_both_ends_of_a_range(name, key):
    lab = LABS[name]
    for value in ends(lab.parameters[key]):
        result = lab.run(scale="tiny", **{key: value})
        assert [check for check in result.checks if not check.holds] == [], value


# Values that are refused because of another parameter's.
RELATED = [
    ("winner-takes-all", {"dimension": 5}, "dimension must be .*at least features=6.*, got 5$"),
    ("power-iteration", {"dimension": 4}, "dimension must be .*at least features=5.*, got 4$"),
    ("noise-helps", {"noisy": 0.95}, "noisy must be .*below dominant=0.95.*, got 0.95$"),
    ("noise-helps", {"noise_from": 150}, "noise_from must be .*below iterations=150.*, got 150$"),
    (
        "sparse-coding",
        {"atoms": 64, "ambient": 32},
        "ambient must be .*at least atoms=64.*, got 32$",
    ),
    (
        "sparse-coding",
        {"sparsity": 50.0},
        r"sparsity must be .*at most 28\.2\d* for atoms=36.*, got 50.0$",
    ),
    ("diet-is-spectral", {"embedding": 12}, "embedding must be .*embedding <= examples.*, got 12$"),
    ("diet-is-spectral", {"dimension": 30, "views": 2}, "views must be .*at least 3.*, got 2$"),
    ("diet-toy", {"embedding": 33}, "embedding must be .*at most examples=32.*, got 33$"),
    ("diet-toy", {"dimension": 7}, r"dimension must be .*at least 2 \* classes=8.*, got 7$"),
    (
        "diet-toy",
        {"examples": 3, "embedding": 3},
        "examples must be .*at least classes=4.*, got 3$",
    ),
    (
        "diet-toy",
        {"noisy_noise": 0.005},
        "noisy_noise must be .*above clean_noise=0.01.*, got 0.005$",
    ),
    ("multistep", {"beta1": 0.9995}, r"beta1 must be .*below sqrt\(beta2\).*, got 0.9995$"),
    (
        "multistep",
        {"weight_decay": 1000.0},
        "weight_decay must be .*below 1 / learning_rate=1000.*, got 1000.0$",
    ),
]


@pytest.mark.parametrize(("name", "arguments", "message"), RELATED)
def test_values_that_contradict_each_other_are_refused_in_one_line(name, arguments, message):
    with pytest.raises(ValueError, match=message) as refusal:
        LABS[name].run(scale="tiny", **arguments)
    assert "\n" not in str(refusal.value)


def test_scale_seed_and_names_are_checked():
    lab = LABS["multistep"]
    with pytest.raises(ValueError, match="scale must be tiny or default, got 'huge'"):
        lab.run(scale="huge")
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got -1"):
        lab.run(seed=-1)
    with pytest.raises(ValueError, match="unknown parameter of multistep 'beta3': did you mean"):
        lab.run(beta3=0.5)
