"""Built-in motion data: simulated windows of an accelerometer, without download.

Six activities, with the sensor at one of three places on the body. A motion repeats at its cadence,
vertically as bursts, forward and sideways as a swing of half the rate. The activity determines
cadence, strength and sharpness of the bursts; the place determines the gains of burst and swing.
Cadence and strength vary so much that activities overlap in each of them. Phases are random, and so
is the orientation of the sensor, so that gravity may act along any axis. Everything is a function
of the split and the index of the window.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.data.builtin import shuffled_rows
from widefield.data.examples import Examples
from widefield.data.spec import Split

WINDOW_COUNTS = {"train": 2400, "test": 600}
# As in the data set of human activities by smartphones (Anguita et al. 2013).
RATE, WINDOW_STEPS = 50, 128
"""Sampling rate, Hz, and samples of a window."""
GRAVITY = 9.81


class _Activity(NamedTuple):
    """Parameters of a periodic motion."""

    cadence: float
    """Bursts per second."""
    strength: float
    """Standard deviation of the bursts, m/s^2."""
    sharpness: float
    """Concentration of a burst within its period; 0 is a sine."""
    swing: float
    """Standard deviation of the swing, as a share of `strength`."""


# Chosen by hand, so that activities overlap in each parameter.
ACTIVITIES = {
    "cycling": _Activity(1.5, 1.6, 0.0, 1.2),
    "rowing": _Activity(0.8, 2.4, 1.0, 1.6),
    "running": _Activity(2.6, 5.0, 4.0, 0.5),
    "skipping": _Activity(2.2, 4.5, 9.0, 0.15),
    "stairs": _Activity(1.6, 2.4, 5.0, 0.4),
    "walking": _Activity(1.9, 2.4, 2.0, 0.7),
}
PLACES = {"ankle": (1.3, 0.7), "hip": (1.0, 0.3), "wrist": (0.5, 1.4)}
"""Gains of bursts and swing at each place."""
# Chosen by hand, m/s^2.
_NOISE = 0.5  # m/s^2, chosen by hand


def read_motion(split: Split) -> Examples:
    """Return the windows of a split, with tasks `class` (the activity) and `place`."""
    number = np.arange(WINDOW_COUNTS[split])
    tasks = {"class": tuple(ACTIVITIES), "place": tuple(PLACES)}
    table = shuffled_rows(f"motion/{split}", len(number), tasks)
    body = _motion(split, number, table.labels["class"], table.labels["place"])
    pixels = _measure(split, number, body)[:, None].astype(np.float32)
    return Examples(**vars(table), pixels=pixels)


def _motion(
    split: Split, number: NDArray[np.int64], activity: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return accelerations of the body, forward, lateral and vertical, [n, T, 3] m/s^2."""

    def uniform(stream: str) -> NDArray[np.float64]:
        return _uniform(split, stream, number)[:, None]

    cadence, strength, sharpness, swing = np.array(list(ACTIVITIES.values()))[activity].T[..., None]
    burst_gains, swing_gains = np.array(list(PLACES.values()))[place].T[..., None]
    time = np.arange(WINDOW_STEPS)[None] / RATE
    cycles = cadence * (0.8 + 0.4 * uniform("cadence")) * time + 2 * uniform("phase")
    level = strength * np.exp(uniform("strength") - 0.5)
    burst = np.exp(sharpness * (np.cos(2 * np.pi * cycles) - 1)) + 0.02 * np.cos(2 * np.pi * cycles)
    burst = burst - burst.mean(1, keepdims=True)
    burst = burst / burst.std(1, keepdims=True)
    # At half the cadence: a leg or an arm swings once in two steps.
    forward = np.sqrt(2) * np.sin(np.pi * cycles)
    lateral = np.sqrt(2) * np.sin(np.pi * cycles + np.pi * (0.2 + 0.6 * uniform("lag")))
    body = np.stack(
        [swing * swing_gains * forward, 0.5 * swing * swing_gains * lateral, burst_gains * burst], 2
    )
    return body * level[..., None]


def _measure(
    split: Split, number: NDArray[np.int64], body: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the measurements of `body` by a randomly rotated sensor, with gravity and noise."""
    body = body + np.array([0.0, 0.0, GRAVITY])
    # A quaternion of four normal numbers is a uniformly random rotation.
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
    index = 3 * WINDOW_STEPS * number[:, None] + np.arange(3 * WINDOW_STEPS)
    noise = _normal(split, "noise", index).reshape(len(number), WINDOW_STEPS, 3)
    return np.einsum("ijn,ntj->nti", rotation, body) + _NOISE * noise


def _uniform(split: Split, stream: str, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a uniform number in (0, 1) for each index."""
    return (rng.integers(0, f"motion/{split}/{stream}", index, 2**31) + 0.5) / 2**31


def _normal(split: Split, stream: str, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a standard normal number for each index, by the Box-Muller transform."""
    radius = np.sqrt(-2 * np.log(_uniform(split, f"{stream} radius", index)))
    return radius * np.cos(2 * np.pi * _uniform(split, f"{stream} angle", index))
