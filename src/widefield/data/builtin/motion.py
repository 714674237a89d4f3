"""Built-in motion: windows of an accelerometer that are made, so that they need no download.

Six activities, with the sensor at one of three places of the body. A movement repeats at its
cadence: upwards as bursts, forwards and sideways as a swing at half the rate. The activity decides
cadence, strength and how sudden the bursts are; the place decides how much of burst and swing
reaches the sensor. Cadence and strength vary so far that activities overlap in each alone, phases
are random, and the sensor hangs any way round, so that gravity may pull along any of its axes.
Everything is a pure function of the split and the window's number.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.data.examples import Examples
from widefield.data.spec import Split

WINDOW_COUNTS = {"train": 2400, "test": 600}
RATE, WINDOW_STEPS = 50, 128
"""Samples a second, and samples of a window."""
GRAVITY = 9.81


class _Activity(NamedTuple):
    """How a movement repeats."""

    cadence: float
    """Bursts a second."""
    strength: float
    """Deviation of the bursts, m/s^2."""
    suddenness: float
    """Concentration of a burst in its period; 0 is a sine."""
    swing: float
    """Deviation of forward and sideward swing, as a share of `strength`."""


ACTIVITIES = {
    "cycling": _Activity(1.5, 1.6, 0.0, 1.2),
    "rowing": _Activity(0.8, 2.4, 1.0, 1.6),
    "running": _Activity(2.6, 5.0, 4.0, 0.5),
    "skipping": _Activity(2.2, 4.5, 9.0, 0.15),
    "stairs": _Activity(1.6, 2.4, 5.0, 0.4),
    "walking": _Activity(1.9, 2.4, 2.0, 0.7),
}
PLACES = {"ankle": (1.3, 0.7), "hip": (1.0, 0.3), "wrist": (0.5, 1.4)}
"""How much of bursts and of swing each place gets."""
_NOISE = 0.5


def read_motion(split: Split) -> Examples:
    """Return the windows of a split, with tasks `class` (the activity) and `place`.

    Example:
        >>> motion = read_motion("test")
        >>> motion.pixels.shape, motion.classes["place"]
        ((600, 1, 128, 3), ('ankle', 'hip', 'wrist'))
    """
    number = np.arange(WINDOW_COUNTS[split])
    turn = rng.shuffled(0, f"motion/{split}", number)  # so that any part of them is a mixture
    labels = {"class": turn % len(ACTIVITIES), "place": turn // len(ACTIVITIES) % len(PLACES)}
    names, places = tuple(ACTIVITIES), tuple(PLACES)
    body = _movement(split, number, labels["class"], labels["place"])
    return Examples(
        names=[f"{names[k]}/{i:04d}" for i, k in enumerate(labels["class"].tolist())],
        labels={task: ids.astype(np.int64) for task, ids in labels.items()},
        classes={"class": names, "place": places},
        pixels=_hung(split, number, body)[:, None].astype(np.float32),
    )


def _movement(
    split: Split, number: NDArray[np.int64], activity: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return accelerations of the body, forwards, sideways and upwards, [n, T, 3] m/s^2."""

    def share(what: str) -> NDArray[np.float64]:
        return _shares(split, what, number)[:, None]

    cadence, strength, suddenness, swing = np.array(list(ACTIVITIES.values()))[activity].T[
        ..., None
    ]
    bursts, swings = np.array(list(PLACES.values()))[place].T[..., None]
    time = np.arange(WINDOW_STEPS)[None] / RATE
    turns = cadence * (0.8 + 0.4 * share("cadence")) * time + 2 * share("phase")
    level = strength * np.exp(share("strength") - 0.5)
    burst = _unit(
        np.exp(suddenness * (np.cos(2 * np.pi * turns) - 1)) + 0.02 * np.cos(2 * np.pi * turns)
    )
    forward = np.sqrt(2) * np.sin(np.pi * turns)
    sideways = np.sqrt(2) * np.sin(np.pi * turns + np.pi * (0.2 + 0.6 * share("lag")))
    body = np.stack([swing * swings * forward, 0.5 * swing * swings * sideways, bursts * burst], 2)
    return body * level[..., None]


def _hung(
    split: Split, number: NDArray[np.int64], body: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what a sensor that hangs any way round measures of `body`, with gravity and noise."""
    body = body + np.array([0.0, 0.0, GRAVITY])
    # A quaternion of four normal numbers is a rotation drawn evenly from all of them.
    w, x, y, z = (_normal(split, f"hung {i}", number) for i in range(4))
    size = np.sqrt(w**2 + x**2 + y**2 + z**2)
    w, x, y, z = w / size, x / size, y / size, z / size
    rotation = np.array(
        [
            [1 - 2 * (y**2 + z**2), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x**2 + z**2), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x**2 + y**2)],
        ]
    )
    each = 3 * WINDOW_STEPS * number[:, None] + np.arange(3 * WINDOW_STEPS)
    noise = _normal(split, "noise", each).reshape(len(number), WINDOW_STEPS, 3)
    return np.einsum("ijn,ntj->nti", rotation, body) + _NOISE * noise


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row of x [n, T] with mean 0 and deviation 1."""
    centered = x - x.mean(1, keepdims=True)
    return centered / centered.std(1, keepdims=True)


def _shares(split: Split, what: str, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in (0, 1) for each of `index`."""
    return (rng.integers(0, f"motion/{split}/{what}", index, 2**31) + 0.5) / 2**31


def _normal(split: Split, what: str, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return an N(0, 1) number for each of `index`, by Box and Muller."""
    radius = np.sqrt(-2 * np.log(_shares(split, f"{what} radius", index)))
    return radius * np.cos(2 * np.pi * _shares(split, f"{what} angle", index))
