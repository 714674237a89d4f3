"""Every lab at tiny scale: it holds, it repeats, and each of its claims can be broken."""

import inspect
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from annotated_types import Interval

import widefield_labs as labs
from widefield.core.validation import allowed, check, kinds, limits
from widefield_labs import LABS, MODULES, claims
from widefield_labs.result import Result


@pytest.mark.parametrize("seed", [0, 1, 2])
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


# What to do to one array of a lab so that one of its claims is broken.
BROKEN = {
    "winner-takes-all": [
        ("linear_cosine", lambda a: a * 0.999, "top eigenvector"),
        ("reached", lambda a: a[::-1], "linear rows from random starts"),
        ("reached", lambda a: a[::-1], "ReLU rows from random starts"),
        ("threshold", lambda a: a * 1.3, "stable against (*)"),
        ("collected", lambda a: a + 1, "independent rows collect"),
        ("distinct", lambda a: a[::-1], "start close together"),
        ("equal_scale_movement", lambda a: a + 0.1, "equally strong"),
    ],
    "local-optima": [
        ("closed_form_score", lambda a: a + 10, "closed form, both"),
        ("gap", lambda a: a + 0.1, "sampled eigengap"),
        ("escape", lambda a: a + 0.1, "stop returning"),
        ("escape_closed", lambda a: 1.01 * a, "minus its closed form"),
        ("mixed_is_lme", lambda a: ~a, "unequal rates"),
        ("categorical_share", lambda a: a * np.eye(len(a))[0], "random rows end"),
        ("categorical_share", lambda a: a * 0.9, "never fire"),
        ("summation_share", lambda a: a[:, :-1], "all-off"),
        ("summation_share", lambda a: 0.9 * a, "anywhere else"),
        ("summation_share", lambda a: a[::-1], "q > 0.4"),
        ("monomial_rho", lambda a: 1.01 * a, "t^2, t^3: eigengap"),
        ("monomial_growth", lambda a: a + 0.01, "t^2, t^3: growth of a nudge"),
        ("monomial_gap", lambda a: a + 0.1, "ceases to be"),
        ("monomial_growth", lambda a: a + 0.1, "off u_m stop returning"),
        ("monomial_growth", lambda a: a + 0.1, "Theorem 1, t^2"),
        ("monomial_growth", lambda a: -abs(a), "boundary: rates at which"),
    ],
    "power-iteration": [
        ("gamma", lambda a: a * np.inf, "Theorem 3 applies"),
        ("gamma", lambda a: a / 2, "bound gamma^t"),
        ("gamma", lambda a: a / 2, "over gamma (1 - c_t)"),
        ("miss", lambda a: a / 100, "eq. 127"),
        ("miss", lambda a: a / 100, "radius of B_gamma"),
        ("ratio", lambda a: a * 0.9, "lambda_2/lambda_1"),
        ("nearest", lambda a: a[..., ::-1], "another feature"),
    ],
    "roughness": [
        ("roughness_law", lambda a: 1.01 * a, "minus (a), over lambda_1, mixtures"),
        ("stable", lambda a: ~a, "in which a nudge grows"),
        ("relative_roughness", lambda a: 0 * a, "lambda_max(A - H M)"),
        ("gap", lambda a: abs(a), "no LME at all"),
        ("tau_roughness_law", lambda a: 1.1 * a, "densities on a disc"),
        ("tau_pull", lambda a: -a, "pull on a nudge"),
        ("radius_r", lambda a: a / 10, "Theorem 2 with C0^2"),
        ("radius_r", lambda a: 10 * a, "as printed"),
        ("tau_z0", lambda a: a**2, "Corollary 2"),
        ("tau_z0", lambda a: a / 2, "rho_g - z_0 rho_u"),
    ],
    "contrastive-covariance": [
        ("gradient_error", lambda a: a + 1e-6, "eps = 0"),
        ("gradient_error", lambda a: a + 1e-6, "eps > 0"),
        ("alpha_cl_error", lambda a: a + 1e-6, "alpha-CL's loss"),
        ("gradient_ratio", lambda a: a / 32, "factor between"),
        ("mean_score", lambda a: a + 10, "sum of variances"),
        ("square_law", lambda a: 2 * a, "over its predicted value"),
        ("square_law", lambda a: a**2, "exponent of N"),
        ("negative_share", lambda a: a[::-1], "negative eigenvalue"),
        ("triplet_error", lambda a: a + 1e-6, "triplet loss: |grad L"),
        ("soft_triplet_error", lambda a: a + 1e-6, "soft triplet loss: the same"),
        ("views_score", lambda a: 0 * a, "boundary"),
    ],
    "noise-helps": [
        ("gradient_gap", lambda a: a + 1e-6, "Lemma E.2"),
        ("weak_alignment", lambda a: a[..., ::-1], "in no trial"),
        ("weak_alignment", lambda a: a[..., :1].repeat(2, -1), "final alignment (mean"),
        ("dominant_alignment", lambda a: a * np.array([1, 0.9]), "costs"),
        ("correct", lambda a: a[..., :1].repeat(2, -1), "P(correct)"),
        ("weak_alignment", lambda a: a[..., ::-1], "gains little"),
        ("norm_mean", lambda a: -a, "upper end"),
        ("norm_predicted", lambda a: 2 * a, "small-norm slope"),
        ("step_mean", lambda a: -a, "boundary"),
    ],
    "downstream-angle": [
        ("error", lambda a: a + 0.05, "gaussian law"),
        ("predicted", lambda a: a[::-1], "laplace law"),
        ("error", lambda a: a + 0.05, "sphere law"),
        ("error", lambda a: a - 0.05, "student law"),
        ("error", lambda a: a + 0.05, "stretched law"),
        ("fitted", lambda a: a - 0.02, "by less than"),
        ("fitted", lambda a: a + 0.05, "nor by more"),
    ],
    "collision": [
        ("brightness_expected", lambda a: 1.5 * a, "N(N + 1)/2"),
        ("brightness_merged", lambda a: a * 0, "all images end as one"),
        ("masking_expected", lambda a: a**2, "share of equal pairs"),
        ("largest_class", lambda a: a + 0.2, "best accuracy"),
        ("contrast_log_shrinkage", lambda a: a + 3, "repeats times E log c"),
        ("contrast_log_factor", lambda a: a - 1, "factors' product"),
        ("contrast", lambda a: a + 300, "256 grays"),
    ],
    "sparse-coding": [
        ("covered", lambda a: 0.5 * a, "with RandomMask: share of atoms"),
        ("covered", lambda a: a[::-1], "without: share of atoms"),
        ("per_atom", lambda a: 3 * a, "mean over atoms, over m/d"),
        ("per_atom", lambda a: a + 9 * (a == a.max()), "most, over m/d"),
        ("best", lambda a: a[::-1], "with: largest |<w, M_j>|/|w|"),
        ("best", lambda a: a[::-1], "without: largest"),
        ("dense", lambda a: 2 * a, "dense part over the largest"),
        ("cos_signal", lambda a: a[::-1], "closer to f(Mz)"),
        ("cos_noise", lambda a: a[::-1], "closer to f(xi)"),
        ("r2", lambda a: a[::-1], "with: R^2"),
        ("r2", lambda a: a[::-1], "without: R^2"),
        ("sign", lambda a: a[::-1], "with: accuracy"),
        ("sign", lambda a: a[::-1], "without: accuracy"),
        ("loss_share", lambda a: 0 * a, "with: fall of the loss"),
        ("loss_share", lambda a: a[::-1], "without: fall of the loss"),
        ("loss_share", lambda a: 0.5 * a, "minus the optimal learner's"),
        ("optimal_share", lambda a: a[::-1], "Lemma E.11"),
        ("stage_one_growth", lambda a: a[:, ::-1], "stage I, with: log growth"),
        ("stage_one_growth", lambda a: a[:, ::-1], "stage I, without: log growth"),
        ("best_curve", lambda a: a * 0 + 0.7, "stage II, with: it then rises"),
        ("best_curve", lambda a: a * 0 + 0.7, "no singletons yet"),
        ("best_curve", lambda a: np.linspace(0, 1, len(a))[:, None] * [1, 1], "III"),
        ("trained_bias", lambda a: a[:, ::-1], "footnote 4, with"),
        ("trained_bias", lambda a: a[:, ::-1], "footnote 4, without"),
    ],
    "diet-is-spectral": [
        ("diet", lambda a: a + 0.01, "DIET's minimizer"),
        ("spectral", lambda a: a + 0.01, "spectral loss's minimizer"),
        ("diet_value", lambda a: 1.01 * a, "DIET's least value is"),
        ("spectral_value", lambda a: 1.01 * a, "the spectral loss's is"),
        ("tie_diet", lambda a: a * 0, "one of many"),
        ("singular_diet", lambda a: a * 0, "M is singular"),
        ("borrowed_value", lambda a: 1.01 * a, "suitable isometry"),
        ("absorbed", lambda a: a + 0.01, "Lemma 4.2"),
        ("free", lambda a: a * 0, "free head itself"),
    ],
    "diet-toy": [
        ("toy_predicted", lambda a: 2 * a, "Figure 1a"),
        ("toy_alignment", lambda a: a * np.array([[1.0], [1.1]]), "Figure 1b, trainable head"),
        ("toy_alignment", lambda a: a * np.array([[1.0], [1.2]]), "furthest"),
        ("plain", lambda a: 1.01 * a, "DIET trained with isometric heads"),
        ("bounds", lambda a: a + 0.5, "within Lemma B.8's bounds"),
        ("stationary", lambda a: 1.01 * a, "stationary b/a"),
        ("printed", lambda a: a + np.array([-9.0, 9.0]), "erratum"),
        ("overlap_bounds", lambda a: a * np.array([0, 9]), "boundary"),
    ],
    "multistep": [
        ("closed", lambda a: 1.001 * a, "k steps one by one"),
        ("torch", lambda a: 1.001 * a, "torch.optim.AdamW"),
        ("sgd_closed", lambda a: 1.001 * a, "SGD with momentum"),
        ("printed", lambda a: 0.999 * a, "erratum"),
        ("eps_gap", lambda a: a + 1, "eps > 0"),
        ("head_error", lambda a: a + 1e-6, "row optimizer"),
        ("replayed", lambda a: a + 0.01, "replaying true gaps"),
        ("deviation", lambda a: 1.1 * a, "library's epochs"),
        ("estimated", lambda a: a * 0, "boundary"),
        ("estimated", lambda a: a + 0.01, "exact if gaps are constant"),
    ],
}


@pytest.mark.parametrize("name", LABS)
def test_a_broken_prediction_fails(name, tiny):
    arrays, check = tiny(name, 0).arrays, LABS[name].check
    broken = set()
    for array, spoil, claim in BROKEN[name]:
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
