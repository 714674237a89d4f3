from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from axes import each_value
from widefield.probes import few_labels
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.folds import class_splits
from widefield.probes.linear import L2_GRID

RNG = np.random.default_rng


def clouds(n: int, distance: float, seed: int = 0, dim: int = 6):
    """Two Gaussians whose means lie `distance` apart, and which is which."""
    rng = RNG(seed)
    y = np.arange(n) % 2
    h = rng.normal(size=(n, dim))
    h[:, 0] += distance * y
    return h, y


def test_what_is_held_out_was_not_seen() -> None:
    """Random labels are memorized, and yet held-out ones are predicted no better than by chance."""
    h, y = RNG(0).normal(size=(200, 150)), RNG(1).integers(2, size=200)
    found = fit_few_labels(h, np.arange(200), y, classes=2)
    assert 0.35 < (found.held_out.argmax(1) == y).mean() < 0.65
    real = h + 3 * y[:, None]
    assert (
        fit_few_labels(real, np.arange(200), y, classes=2).held_out.argmax(1) == y
    ).mean() > 0.95


def test_probabilities_are_those_of_the_world() -> None:
    """p(y = 1 | x) of two Gaussians is a logistic function of x; random labels do not fit it."""
    h, y = clouds(1000, 1.5)
    truth = 1 / (1 + np.exp(-(1.5 * h[:, 0] - 1.5**2 / 2)))
    labeled = np.arange(200)
    gaps = []
    for seed in range(3):
        found = fit_few_labels(h, labeled + 200 * seed, y[labeled + 200 * seed], classes=2)
        gaps.append(np.abs(found.predicted[:, 1] - truth).mean())
    assert np.mean(gaps) < 0.08
    by_lot = fit_few_labels(h, labeled, RNG(0).permutation(y[labeled]), classes=2)
    assert np.abs(by_lot.predicted[:, 1] - truth).mean() > 0.2


def test_a_probe_that_learns_nothing_is_not_sure() -> None:
    h, y = RNG(0).normal(size=(300, 40)), RNG(1).integers(3, size=300)
    y[:3] = np.arange(3)
    found = fit_few_labels(h, np.arange(60), y[:60], classes=3)
    assert found.predicted.max(1).mean() < 0.5
    assert np.allclose(found.predicted.sum(1), 1)


def test_the_only_label_of_a_class_is_not_held_out_and_the_others_are() -> None:
    y = np.array([0] * 6 + [1] * 6 + [2])
    h = np.concatenate([np.eye(3)[y] * 4, RNG(0).normal(size=(20, 3))])
    h[:13] += 0.1 * RNG(1).normal(size=(13, 3))
    found = fit_few_labels(h, np.arange(13), y, classes=3)
    assert found.tested.tolist() == [True] * 12 + [False]
    assert found.held_out[:12].argmax(1).tolist() == y[:12].tolist()
    assert found.predicted[:13].argmax(1).tolist() == y.tolist()


@pytest.mark.parametrize(("counts", "held"), [((3, 2), True), ((5, 1), False)])
def test_one_label_of_a_class_cannot_be_held_out(counts: tuple[int, int], held: bool) -> None:
    y = np.repeat([0, 1], counts)
    h = RNG(0).normal(size=(20, 4))
    found = fit_few_labels(h, np.arange(len(y)), y, classes=2)
    assert found.tested.any() == held
    assert found.predicted.shape == (20, 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_more_features_than_labels_are_fitted_as_all_of_them(classes: int) -> None:
    """One label a class, so that nothing is chosen: the optimum of a fit on every feature."""
    h, labeled = RNG(0).normal(2.0, 3.0, size=(60, 40)), np.arange(classes)
    z = (h - h.mean(0)) / h.std(0)
    model = LogisticRegression(C=1 / (few_labels._DEFAULT_L2 * classes), max_iter=5000, tol=1e-10)
    expected = model.fit(z[labeled], labeled).predict_proba(z)
    found = fit_few_labels(h, labeled, labeled, classes=classes)
    assert np.allclose(found.predicted, expected, atol=1e-3)


def test_a_constant_feature_is_harmless_and_the_seed_decides() -> None:
    h, y = clouds(50, 2.0)
    with_constant = np.concatenate([h, np.full((50, 1), 7.3)], axis=1)
    first, second, again = (
        fit_few_labels(x, np.arange(30), y[:30], classes=2, seed=0) for x in (h, with_constant, h)
    )
    np.testing.assert_allclose(first.predicted, second.predicted, atol=1e-6)
    np.testing.assert_array_equal(first.predicted, again.predicted)


def test_each_fold_is_predicted_by_what_is_best_for_the_others() -> None:
    """By loops over folds; chosen by all labels, as what is predicted for others is, it differs."""
    (h, y), noise = clouds(14, 1.0, seed=3, dim=20), RNG(4).normal(size=(14, 5))
    found = fit_few_labels(h, np.arange(14), y, noise, classes=2)
    splits = class_splits(y, seed=0)
    target = few_labels._target(y, 2)
    held_out: dict[tuple[int, float], np.ndarray] = {}
    for k, x in enumerate((h, noise)):
        z = few_labels._standardized(x, np.arange(14))
        for l2 in L2_GRID:
            logits = held_out[k, l2] = np.empty((14, 2))
            for train, rows in splits:
                difference = few_labels._fit(z[train], y[train], l2).decision_function(z[rows])
                logits[rows] = np.stack([-difference / 2, difference / 2], axis=1)

    def best(rows: np.ndarray) -> tuple[tuple[int, float], float]:
        at = {name: few_labels._temperature(x[rows], target[rows]) for name, x in held_out.items()}
        name = min(
            held_out,
            key=lambda name: few_labels._cross_entropy(
                held_out[name][rows], target[rows], at[name]
            ),
        )
        return name, at[name]

    chosen = [best(np.setdiff1d(np.arange(14), rows)) for _, rows in splits]
    for (_, rows), (name, temperature) in zip(splits, chosen, strict=True):
        p = softmax(held_out[name][rows] / temperature, axis=1)
        np.testing.assert_allclose(found.held_out[rows], p)
    of_all, temperature = best(np.arange(14))
    assert (found.readout, found.l2[0], found.temperature) == (*of_all, temperature)
    assert len({name for name, _ in chosen} | {of_all}) > 1
    assert not np.allclose(found.held_out, softmax(held_out[of_all] / temperature, axis=1))


def test_features_that_say_more_are_taken() -> None:
    (h, y), noise = clouds(40, 3.0), RNG(0).normal(size=(40, 6))
    labeled = np.arange(20)
    for first, second, readout in ((h, noise, 0), (noise, h, 1), (h, h, 0)):
        found = fit_few_labels(first, labeled, y[:20], second, classes=2)
        assert found.readout == readout
        assert found.errors[readout] == min(found.errors)
        alone = fit_few_labels((first, second)[readout], labeled, y[:20], classes=2)
        np.testing.assert_array_equal(found.predicted, alone.predicted)


@pytest.mark.parametrize(("labels", "surest"), [(20, 0.96), (400, 0.999)])
def test_labels_that_are_all_read_well_make_as_sure_as_they_are_many(
    labels: int, surest: float
) -> None:
    h, y = clouds(600, 12.0)
    h[-1] = h[y == 0].mean(0) / 2 + h[y == 1].mean(0) / 2
    found = fit_few_labels(h, np.arange(labels), y[:labels], classes=2)
    sure = found.predicted.max(1)
    assert (found.held_out.argmax(1) == y[:labels]).all()
    assert 0.85 < sure.mean() < surest
    assert sure[-1] < sure[:-1].min(), "the one half-way is the one in doubt"


def test_the_small_fits_start_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries have two threads each before and after, as they had in each fit at first."""
    threads: list[int] = []

    def fit(*args: Any) -> Any:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return original(*args)

    original = few_labels._fit
    monkeypatch.setattr(few_labels, "_fit", fit)
    h, y = clouds(40, 3.0)
    with threadpool_limits(2):
        fit(h, y, 1e-2)
        assert 2 in threads
        threads.clear()
        fit_few_labels(h, np.arange(40), y, classes=2)
        assert set(threads) == {1}
        assert 2 in {pool["num_threads"] for pool in threadpool_info()}


@each_value(("value", [np.nan, np.inf, -np.inf]), ("row", [0, 39]))
def test_features_that_are_no_numbers_are_refused(value: float, row: int) -> None:
    """With a label or without one."""
    h, y = clouds(40, 3.0)
    h[row, 2] = value
    with pytest.raises(ValueError, match="the features contain NaN or infinity: look"):
        fit_few_labels(h, np.arange(20), y[:20], classes=2)
