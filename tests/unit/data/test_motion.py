"""Built-in motion: the same on every machine, and what its tasks say."""

import numpy as np

from widefield.data import open_dataset
from widefield.data.builtin.motion import (
    ACTIVITIES,
    GRAVITY,
    PLACES,
    RATE,
    WINDOW_STEPS,
    read_motion,
)


def test_splits_are_other_draws_and_balanced() -> None:
    train, test = open_dataset("motion"), open_dataset("motion:test")
    assert (train.kind, train.images.shape) == ("windows", (2400, 1, WINDOW_STEPS, 3))
    assert test.images.shape == (600, 1, WINDOW_STEPS, 3)
    assert train.classes == {"class": tuple(ACTIVITIES), "place": tuple(PLACES)}
    assert set(np.bincount(train.labels["class"])) == {400}
    assert np.ptp(np.bincount(train.labels["place"])) <= len(ACTIVITIES)  # 2,400 / 18 is no integer
    assert not {x.tobytes() for x in train.images} & {x.tobytes() for x in test.images}
    np.testing.assert_array_equal(open_dataset("motion:test").images, test.images)


def test_gravity_pulls_along_any_axis() -> None:
    means = open_dataset("motion").images[:, 0].mean(1)
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), GRAVITY, atol=0.7)
    for axis in range(3):  # a direction drawn evenly has each coordinate uniform in [-1, 1]
        shares = np.histogram(means[:, axis] / GRAVITY, 4, (-1.06, 1.06))[0] / len(means)
        np.testing.assert_allclose(shares, 0.25, atol=0.05)


def upward(split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the acceleration along gravity, which is where the bursts are."""
    examples = read_motion(split)
    assert examples.pixels is not None
    x = examples.pixels[:, 0].astype(np.float64)
    down = x.mean(1, keepdims=True)
    down /= np.linalg.norm(down, axis=2, keepdims=True)
    along = (x * down).sum(2)
    return along - along.mean(1, keepdims=True), examples.labels


def test_an_activity_is_its_cadence_and_how_sudden_its_bursts_are() -> None:
    along, labels = upward("train")
    power = np.abs(np.fft.rfft(along, n=1024)) ** 2
    hertz = np.fft.rfftfreq(1024, 1 / RATE)
    # At the hip of those who run: the strongest period is the cadence.
    hip = labels["place"] == list(PLACES).index("hip")
    running = hip & (labels["class"] == list(ACTIVITIES).index("running"))
    found = np.median(hertz[power[running].argmax(1)])
    assert abs(found / ACTIVITIES["running"].cadence - 1) < 0.15
    # Bursts that are more sudden have a larger fourth moment.
    peaks = (along**4).mean(1) / (along**2).mean(1) ** 2
    skipping, cycling = (
        peaks[hip & (labels["class"] == list(ACTIVITIES).index(name))].mean()
        for name in ("skipping", "cycling")
    )
    assert skipping > 1.5 * cycling


def test_neither_strength_nor_raw_samples_give_the_activity_away() -> None:
    along, labels = upward("train")
    strength = along.std(1)
    for one, other in (("walking", "stairs"), ("running", "skipping")):
        a, b = (strength[labels["class"] == list(ACTIVITIES).index(k)] for k in (one, other))
        assert np.quantile(a, 0.25) < np.quantile(b, 0.75)
        assert np.quantile(b, 0.25) < np.quantile(a, 0.75)
    x = open_dataset("motion").images.reshape(2400, -1)
    centers = np.stack([x[labels["class"] == k].mean(0) for k in range(len(ACTIVITIES))])
    test = open_dataset("motion:test")
    near = ((test.images.reshape(600, 1, -1) - centers) ** 2).sum(2).argmin(1)
    assert (near == test.labels["class"]).mean() < 0.3
