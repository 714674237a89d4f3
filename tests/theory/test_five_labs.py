"""The labs of Tian (2022), at tiny scale."""

import importlib
import json
from functools import cache

import numpy as np
import pytest

from widefield.labs import LABS, Result, run_lab

FIVE = (
    "winner-takes-all",
    "local-optima",
    "power-iteration",
    "roughness",
    "contrastive-covariance",
)

tiny = cache(lambda name, seed: run_lab(name, scale="tiny", seed=seed))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", FIVE)
def test_the_verdict_holds(name, seed):
    result: Result = tiny(name, seed)
    assert [check for check in result.checks if not check.holds] == []
    assert result.name == name
    assert result.parameters["seed"] == seed


@pytest.mark.parametrize("name", FIVE)
def test_the_result_can_be_printed_and_drawn(name, tmp_path):
    result = tiny(name, 0)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size < 150_000


def test_a_lab_repeats_itself():
    again = run_lab("contrastive-covariance", scale="tiny", seed=1)
    for name, array in tiny("contrastive-covariance", 1).arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])


# What to do to one array of a lab so that one of its claims is broken.
BROKEN = [
    ("winner-takes-all", "linear_cosine", lambda a: a * 0.999, "top eigenvector"),
    ("winner-takes-all", "found", lambda a: a[::-1], "linear rows from random starts"),
    ("winner-takes-all", "found", lambda a: a[::-1], "ReLU rows from random starts"),
    ("winner-takes-all", "threshold", lambda a: a * 1.3, "stable against (*)"),
    ("winner-takes-all", "collected", lambda a: a + 1, "independent rows collect"),
    ("winner-takes-all", "distinct", lambda a: a[::-1], "start close together"),
    ("winner-takes-all", "equal_scale_movement", lambda a: a + 0.1, "equally strong"),
    ("local-optima", "closed_form_score", lambda a: a + 10, "closed form, both"),
    ("local-optima", "gap", lambda a: a + 0.1, "sampled eigengap"),
    ("local-optima", "escape", lambda a: a + 0.1, "stop returning"),
    ("local-optima", "escape_closed", lambda a: 1.01 * a, "minus its closed form"),
    ("local-optima", "mixed_is_lme", lambda a: ~a, "unequal rates"),
    ("local-optima", "categorical_share", lambda a: a * np.eye(len(a))[0], "random rows end"),
    ("local-optima", "categorical_share", lambda a: a * 0.9, "never fire"),
    ("local-optima", "summation_share", lambda a: a[:, :-1], "all-off"),
    ("local-optima", "summation_share", lambda a: 0.9 * a, "anywhere else"),
    ("local-optima", "summation_share", lambda a: a[::-1], "q > 0.4"),
    ("power-iteration", "gamma", lambda a: a * np.inf, "Theorem 3 applies"),
    ("power-iteration", "gamma", lambda a: a / 2, "bound gamma^t"),
    ("power-iteration", "gamma", lambda a: a / 2, "over gamma (1 - c_t)"),
    ("power-iteration", "miss", lambda a: a / 100, "eq. 127"),
    ("power-iteration", "miss", lambda a: a / 100, "radius of B_gamma"),
    ("power-iteration", "ratio", lambda a: a * 0.9, "lambda_2/lambda_1"),
    ("power-iteration", "nearest", lambda a: a[..., ::-1], "another feature"),
    ("roughness", "roughness_law", lambda a: 1.01 * a, "minus (a), over lambda_1, mixtures"),
    ("roughness", "stable", lambda a: ~a, "in which a nudge grows"),
    ("roughness", "relative_roughness", lambda a: 0 * a, "lambda_max(A - H M)"),
    ("roughness", "gap", lambda a: abs(a), "no LME at all"),
    ("roughness", "tau_roughness_law", lambda a: 1.1 * a, "densities on a disc"),
    ("roughness", "tau_pull", lambda a: -a, "pull on a nudge"),
    ("roughness", "radius_r", lambda a: a / 10, "Theorem 2 with C0^2"),
    ("roughness", "radius_r", lambda a: 10 * a, "as printed"),
    ("roughness", "tau_z0", lambda a: a**2, "Corollary 2"),
    ("roughness", "tau_z0", lambda a: a / 2, "rho_g - z_0 rho_u"),
    ("contrastive-covariance", "gradient_error", lambda a: a + 1e-6, "eps = 0"),
    ("contrastive-covariance", "gradient_error", lambda a: a + 1e-6, "eps > 0"),
    ("contrastive-covariance", "gradient_ratio", lambda a: a / 32, "factor between"),
    ("contrastive-covariance", "mean_score", lambda a: a + 10, "sum of variances"),
    ("contrastive-covariance", "square_law", lambda a: 2 * a, "over its predicted value"),
    ("contrastive-covariance", "square_law", lambda a: a**2, "exponent of N"),
    ("contrastive-covariance", "limit", lambda a: -a, "smallest eigenvalue"),
    ("contrastive-covariance", "views_score", lambda a: 0 * a, "boundary"),
]


@pytest.mark.parametrize(("name", "array", "spoil", "claim"), BROKEN)
def test_a_broken_prediction_fails(name, array, spoil, claim):
    arrays = tiny(name, 0).arrays
    check = importlib.import_module(LABS[name]).check
    checks = check({**arrays, array: spoil(arrays[array])})
    assert any(claim in one.claim and not one.holds for one in checks)


REFUSED = [
    ("winner-takes-all", {"rate": 1.5}, "rate=1.5 .* probability"),
    ("winner-takes-all", {"dimension": 5}, "dimension=5 .* at least features=6"),
    ("winner-takes-all", {"weakest": 1.0}, "weakest=1.0 .* in"),
    ("winner-takes-all", {"temperature": 0.0}, "temperature=0.0 .* positive"),
    ("winner-takes-all", {"features": 20}, r"features=20 .* in 2\.\.8"),
    ("local-optima", {"ratio": 0.0}, "ratio=0.0 .* in"),
    ("local-optima", {"features": 1}, r"features=1 .* in 2\.\.7"),
    ("local-optima", {"lowest_rate": -0.1}, "lowest_rate=-0.1 .* probability"),
    ("local-optima", {"highest_rate": 1.2}, "highest_rate=1.2 .* probability"),
    ("power-iteration", {"dimension": 4}, "dimension=4 .* at least features=5"),
    ("power-iteration", {"rate": 0.5}, "rate=0.5 .* probability"),
    ("power-iteration", {"noise": 0.0}, "noise=0.0 .* positive"),
    ("power-iteration", {"tilt": 1.0}, "tilt=1.0 .* in"),
    ("roughness", {"positive": 1.1}, "positive=1.1 .* probability"),
    ("roughness", {"temperature": -1.0}, "temperature=-1.0 .* positive"),
    ("roughness", {"dimension": 1}, r"dimension=1 .* in 2\.\.16"),
    ("contrastive-covariance", {"temperature": 0.0}, "temperature=0.0 .* positive"),
    ("contrastive-covariance", {"noise": 0.0}, "noise=0.0 .* in"),
    ("contrastive-covariance", {"pairs": 2}, "pairs=2 .* at least 3"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), REFUSED)
def test_bad_arguments_are_refused_in_one_line(name, arguments, said):
    with pytest.raises(ValueError, match=said) as refusal:
        run_lab(name, scale="tiny", **arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", FIVE)
def test_an_unknown_scale_is_refused(name):
    with pytest.raises(ValueError, match="scale='huge' is out of range"):
        run_lab(name, scale="huge")
