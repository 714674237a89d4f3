"""The labs of Feature Dropout, Wen & Li and S-DIET, at tiny scale."""

import importlib
import json
from functools import cache

import numpy as np
import pytest

from widefield.labs import LABS, Result, run_lab

SEVEN = (
    "noise-helps",
    "downstream-angle",
    "collision",
    "sparse-coding",
    "diet-is-spectral",
    "diet-toy",
    "multistep",
)

tiny = cache(lambda name, seed: run_lab(name, scale="tiny", seed=seed))


def module(name):
    return importlib.import_module(LABS[name])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", SEVEN)
def test_the_verdict_holds(name, seed):
    result: Result = tiny(name, seed)
    assert [check for check in result.checks if not check.holds] == []
    assert result.name == name
    assert result.parameters["seed"] == seed


@pytest.mark.parametrize("name", SEVEN)
def test_the_result_can_be_printed_and_drawn(name, tmp_path):
    result = tiny(name, 0)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size < 150_000


def test_a_lab_repeats_itself():
    again = run_lab("downstream-angle", scale="tiny", seed=1)
    for name, array in tiny("downstream-angle", 1).arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])


# What to do to one array of a lab so that one of its claims, and no other, is broken.
BROKEN = [
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


@pytest.mark.parametrize("name", SEVEN)
def test_an_unknown_scale_is_refused(name):
    with pytest.raises(ValueError, match="scale='huge' is out of range"):
        run_lab(name, scale="huge")
