"""Each check of an effect fails when the lab's arms change places, one check at a time."""

import numpy as np
import pytest

from widefield_labs import LABS


def reversed_along(axis):
    def swap(array):
        return np.flip(array, axis)

    return swap


def first_two(axis):
    """Swap the first two entries along an axis: the arm of interest and its control."""

    def swap(array):
        moved = np.moveaxis(array.copy(), axis, 0)
        moved[[0, 1]] = moved[[1, 0]]
        return np.moveaxis(moved, 0, axis)

    return swap


def roll_laws(array):
    """Give spherical laws (0 to 2) the errors of others (3, 4) and others those of the first."""
    return array[[3, 4, 3, 0, 0]]


MASK_FIRST = (
    *("best_of", "best", "covered", "per_atom", "dense", "cos_noise", "cos_signal"),
    *("r2", "linear_r2", "sign", "linear_sign", "loss", "loss_share", "optimal_share"),
    "stage_two",
)
MASK_LAST = ("inside", "outside", "best_curve", "bias_curve", "stage_one_growth", "trained_bias")

# For each lab that compares arms: how its arrays change places, within an array or with another,
# and the checks that hold in either arm, because they bound both or compare neither.
SWAPS = {
    "sparse-coding": (
        {name: first_two(0) for name in MASK_FIRST} | {name: first_two(-1) for name in MASK_LAST},
        (
            "most, over m/d",
            "with: fall of the loss",
            "the trained net's fall minus",
            "no singletons yet",
            "it has converged",
        ),
    ),
    "noise-helps": (
        {
            "weak_alignment": reversed_along(-1),
            "dominant_alignment": reversed_along(-1),
            "correct": reversed_along(-1),
            "norm_mean": np.negative,
            "step_mean": np.negative,
        },
        ("Lemma E.2", "costs the dominant features little"),
    ),
    "downstream-angle": ({"error": roll_laws}, ("no fitted classifier", "nor by more")),
    "winner-takes-all": (
        {
            "reached": reversed_along(0),
            "stays": reversed_along(0),
            "distinct": reversed_along(0),
            "collected": reversed_along(0),
        },
        ("|cos| of a linear row", "independent rows collect", "equally strong"),
    ),
    "local-optima": (
        {
            "gap": reversed_along(0),
            "escape": reversed_along(0),
            "mixed_is_lme": reversed_along(0),
            "summation_share": reversed_along(0),
            "monomial_gap": reversed_along(0),
            "monomial_growth": reversed_along(0),
        },
        ("sampled minus closed form", "categorical model", "boundary: rates at which"),
    ),
    "contrastive-covariance": (
        {"negative_share": reversed_along(0), "mean_score": "views_score"},
        ("grad", "the same", "factor between", "over its predicted", "exponent"),
    ),
    "roughness": (
        {"tau_roughness": reversed_along(0), "tau_r": reversed_along(0), "stable": np.logical_not},
        ("minus (a)", "pull on a nudge", "Theorem 2", "boundary"),
    ),
    "diet-is-spectral": (
        {"diet": "tie_diet", "spectral": "singular_diet", "absorbed": "free"},
        ("least value", "the spectral loss's is"),
    ),
    "diet-toy": (
        {"toy_alignment": reversed_along(2)},
        ("Theorem 5.1", "stationary b/a", "erratum", "boundary"),
    ),
    "multistep": (
        {"estimated": first_two(0), "deviation": first_two(0)},
        ("closed form", "printed plus", "eps > 0", "replaying true gaps", "row optimizer"),
    ),
}


NO_ARMS = {"collision", "power-iteration"}
"""Labs whose checks compare measurements with closed forms and bounds alone."""


def swapped(arrays, swaps):
    changed = dict(arrays)
    for key, swap in swaps.items():
        if isinstance(swap, str):
            changed[key], changed[swap] = arrays[swap], arrays[key]
        else:
            changed[key] = swap(arrays[key])
    return changed


def test_every_lab_with_arms_is_here():
    assert set(SWAPS) | NO_ARMS == set(LABS)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SWAPS)
def test_every_check_of_an_effect_fails_on_its_control_arm(name, seed, tiny):
    swaps, either = SWAPS[name]
    arrays, check_all = tiny(name, seed).arrays, LABS[name].check
    assert all(check.holds for check in check_all(arrays))
    for check in check_all(swapped(arrays, swaps)):
        if not any(part in check.claim for part in either):
            assert not check.holds, f"the control arm passes: {check.claim}"


@pytest.mark.parametrize("name", SWAPS)
def test_the_list_of_checks_that_hold_in_either_arm_names_checks(name, tiny):
    claims = [check.claim for check in tiny(name, 0).checks]
    for part in SWAPS[name][1]:
        assert any(part in claim for claim in claims), part
    assert not all(any(part in claim for part in SWAPS[name][1]) for claim in claims)


def test_swapping_back_holds_again(tiny):
    arrays, swaps = tiny("sparse-coding", 0).arrays, SWAPS["sparse-coding"][0]
    twice = swapped(swapped(arrays, swaps), swaps)
    assert all(check.holds for check in LABS["sparse-coding"].check(twice))


def test_the_trend_over_sizes_fails_with_its_arms_swapped(tiny):
    arrays, check = tiny("sparse-coding", 0).arrays, LABS["sparse-coding"].check
    closer = np.array([[0.45, 0.63], [0.50, 0.62], [0.53, 0.61]])
    sweep = {"sweep": np.array("size"), "swept": np.array([64, 48, 32])}
    for cosines, holds in ((closer, True), (closer[:, ::-1], False)):
        *_, trend = check({**arrays, **sweep, "sweep_cos_noise": cosines})
        assert trend.claim.startswith("trend")
        assert trend.holds is holds
