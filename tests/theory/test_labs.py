"""Every lab at tiny scale: it holds, it repeats, and each of its claims can be broken."""

import importlib
import json
from functools import cache

import numpy as np
import pytest

from widefield.labs import LABS, Result, run_lab

tiny = cache(lambda name, seed: run_lab(name, scale="tiny", seed=seed))


def module(name):
    return importlib.import_module(LABS[name])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", LABS)
def test_the_verdict_holds(name, seed):
    result: Result = tiny(name, seed)
    assert [check for check in result.checks if not check.holds] == []
    assert result.name == name
    assert result.parameters["seed"] == seed


@pytest.mark.parametrize("name", LABS)
def test_the_result_can_be_printed_and_drawn(name, tmp_path):
    result = tiny(name, 0)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size < 150_000


@pytest.mark.parametrize("name", ["contrastive-covariance", "downstream-angle"])
def test_a_lab_repeats_itself(name):
    again = run_lab(name, scale="tiny", seed=1)
    for key, array in tiny(name, 1).arrays.items():
        np.testing.assert_array_equal(array, again.arrays[key])


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
    ("noise-helps", "weak_alignment", lambda a: a[..., ::-1], "final alignment"),
    ("noise-helps", "dominant_alignment", lambda a: a * np.array([1, 0.9]), "costs"),
    ("noise-helps", "correct", lambda a: a[..., :1].repeat(2, -1), "P(correct)"),
    ("noise-helps", "norm_mean", lambda a: -a, "upper end"),
    ("noise-helps", "norm_predicted", lambda a: 2 * a, "small-norm slope"),
    ("noise-helps", "step_mean", lambda a: -a, "boundary"),
    ("downstream-angle", "error", lambda a: a + 0.05, "gaussian law"),
    ("downstream-angle", "predicted", lambda a: a[::-1], "laplace law"),
    ("downstream-angle", "fitted", lambda a: a + 0.1, "fitted classifier"),
    ("collision", "brightness_expected", lambda a: 1.5 * a, "N(N + 1)/2"),
    ("collision", "brightness_merged", lambda a: a * 0, "all images end as one"),
    ("collision", "masking_expected", lambda a: a**2, "share of equal pairs"),
    ("collision", "largest_class", lambda a: a + 0.2, "best accuracy"),
    ("collision", "contrast_log_shrinkage", lambda a: a + 3, "repeats times E log c"),
    ("collision", "contrast_log_factor", lambda a: a - 1, "factors' product"),
    ("collision", "contrast", lambda a: a + 300, "256 greys"),
    ("sparse-coding", "covered", lambda a: 0.5 * a, "with RandomMask: share of atoms"),
    ("sparse-coding", "covered", lambda a: a[::-1], "without: share of atoms"),
    ("sparse-coding", "best", lambda a: a[::-1], "mean largest"),
    ("sparse-coding", "cos_noise", lambda a: a[::-1], "lowers cos(f(x), f(xi))"),
    ("sparse-coding", "cos_signal", lambda a: a[::-1], "raises cos(f(x), f(Mz))"),
    ("sparse-coding", "r2", lambda a: a[::-1], "raises R^2"),
    ("sparse-coding", "sign", lambda a: a[::-1], "accuracy of sign"),
    ("sparse-coding", "inside", lambda a: a + 1, "stage I: |M M^T w| grows"),
    ("sparse-coding", "best_curve", lambda a: a * 0 + 0.7, "stage II: it then rises"),
    ("sparse-coding", "best_curve", lambda a: a * 0 + 0.7, "no singletons yet"),
    ("sparse-coding", "best_curve", lambda a: np.linspace(0, 1, len(a))[:, None] * [1, 1], "III"),
    ("diet-is-spectral", "diet", lambda a: a + 0.01, "DIET's minimiser"),
    ("diet-is-spectral", "spectral", lambda a: a + 0.01, "spectral loss's minimiser"),
    ("diet-is-spectral", "diet_value", lambda a: 1.01 * a, "DIET's least value is"),
    ("diet-is-spectral", "borrowed_value", lambda a: 1.01 * a, "suitable isometry"),
    ("diet-is-spectral", "absorbed", lambda a: a + 0.01, "Lemma 4.2"),
    ("diet-is-spectral", "free", lambda a: a * 0, "free head itself"),
    ("diet-toy", "toy_predicted", lambda a: 2 * a, "Figure 1a"),
    ("diet-toy", "toy_alignment", lambda a: a * np.array([[1.0], [3.0]]), "Figure 1b"),
    ("diet-toy", "plain", lambda a: 1.01 * a, "DIET, isometric heads"),
    ("diet-toy", "bounds", lambda a: a + 0.5, "within Lemma B.8's bounds"),
    ("diet-toy", "stationary", lambda a: 1.01 * a, "stationary b/a"),
    ("diet-toy", "printed", lambda a: a + np.array([-9.0, 9.0]), "erratum"),
    ("diet-toy", "overlap_bounds", lambda a: a * np.array([0, 9]), "boundary"),
    ("multistep", "closed", lambda a: 1.001 * a, "k steps one by one"),
    ("multistep", "torch", lambda a: 1.001 * a, "torch.optim.AdamW"),
    ("multistep", "sgd_closed", lambda a: 1.001 * a, "SGD with momentum"),
    ("multistep", "printed", lambda a: 0.999 * a, "erratum"),
    ("multistep", "eps_gap", lambda a: a + 1, "eps > 0"),
    ("multistep", "replayed", lambda a: a + 0.01, "replaying true gaps"),
    ("multistep", "deviation", lambda a: 1.1 * a, "shuffled epochs"),
    ("multistep", "estimated", lambda a: a * 0, "boundary"),
]


@pytest.mark.parametrize(("name", "array", "spoil", "claim"), BROKEN)
def test_a_broken_prediction_fails(name, array, spoil, claim):
    arrays = tiny(name, 0).arrays
    checks = module(name).check({**arrays, array: spoil(arrays[array])})
    assert any(claim in check.claim and not check.holds for check in checks)


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
    ("noise-helps", {"weak": 1.5}, "weak=1.5 .* correlation in"),
    ("noise-helps", {"noisy": -0.1}, "noisy=-0.1 .* correlation in"),
    ("noise-helps", {"dimension": 1}, "dimension=1 .* at least 2"),
    ("noise-helps", {"step_size": 0.0}, "step_size=0.0 .* positive"),
    ("noise-helps", {"noise_from": 150}, r"noise_from=150 .* 1\.\.149"),
    ("downstream-angle", {"stretch": 0.0}, "stretch=0.0 .* positive"),
    ("downstream-angle", {"angles": 1}, "angles=1 .* at least 2"),
    ("collision", {"mask_rate": 1.2}, "mask_rate=1.2 .* probability"),
    ("collision", {"brightness_step": 3}, "brightness_step=3 .* divisor of 16"),
    ("collision", {"contrast_strength": 1.0}, "contrast_strength=1.0 .* in"),
    ("sparse-coding", {"mask_rate": 1.0}, "mask_rate=1.0 .* probability"),
    ("sparse-coding", {"tau": 0.0}, "tau=0.0 .* positive"),
    ("sparse-coding", {"lam": -1e-3}, "lam=-0.001 .* non-negative"),
    ("sparse-coding", {"atoms": 64, "ambient": 32}, "ambient=32 .* at least 64"),
    ("sparse-coding", {"sparsity": 50.0}, "sparsity=50.0 .* at most"),
    ("sparse-coding", {"sweep": "phase"}, "sweep='phase' .* size"),
    ("diet-is-spectral", {"embedding": 12}, "embedding=12 .* embedding <= examples"),
    ("diet-is-spectral", {"noise": 0.0}, "noise=0.0 .* positive"),
    ("diet-is-spectral", {"views": 0}, "views=0 .* at least 1"),
    ("diet-toy", {"embedding": 33}, "embedding=33 .*m <= n"),
    ("diet-toy", {"dimension": 7}, "dimension=7 .* at least 8"),
    ("diet-toy", {"noisy_noise": 0.005}, "noisy_noise=0.005 .* in"),
    ("multistep", {"beta2": 1.5}, "beta2=1.5 .* in"),
    ("multistep", {"beta1": 0.9995}, "beta1=0.9995 .*sqrt"),
    ("multistep", {"learning_rate": -1.0}, "learning_rate=-1.0 .* positive"),
    ("multistep", {"weight_decay": -1.0}, "weight_decay=-1.0 .* in"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), REFUSED)
def test_bad_arguments_are_refused_in_one_line(name, arguments, said):
    with pytest.raises(ValueError, match=said) as refusal:
        run_lab(name, scale="tiny", **arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", LABS)
def test_an_unknown_scale_is_refused(name):
    with pytest.raises(ValueError, match="scale='huge' is out of range"):
        run_lab(name, scale="huge")
