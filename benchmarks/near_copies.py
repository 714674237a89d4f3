"""Which copies of examples are found across a split: the rate for each change, with made data.

    python benchmarks/near_copies.py --json benchmarks/results/near_copies.json

Of `found` examples each gets one changed copy, which is searched for among all. The control are as
many examples that nobody changed. Pictures have the spectrum of photographs, amplitudes in inverse
proportion to frequency; sounds are tones that come and go, windows sums of waves with noise. A
search among many examples is timed on noise.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ratios.command import Result, command
from widefield.probes.near_copies import Sketches, checked_count, has_near_copy

Array = NDArray[np.generic]
Change = Callable[[Array, np.random.Generator], Array]
_SIDE = 48


def pictures(n: int, seed: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """Return pictures of colors that belong together, uint8 [n, side, side, 3]."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    frequency[0, 0] = 1
    waves = np.fft.fft2(rng.normal(size=(n, 3, side, side))) / frequency
    x = np.fft.ifft2(waves).real.transpose(0, 2, 3, 1) @ (np.full((3, 3), 0.3) + 0.6 * np.eye(3))
    x /= x.std(axis=(1, 2, 3), keepdims=True)
    contrast, level = rng.uniform(25, 55, (n, 1, 1, 1)), rng.uniform(-30, 30, (n, 1, 1, 1))
    return _bytes(128 + level + contrast * x)


def sounds(n: int, seed: int, length: int = 8000) -> NDArray[np.int16]:
    """Return tones whose pitch and level change, int16 [n, 1, length, 1] at 8 kHz."""
    rng, count = np.random.default_rng(seed), -(-length // 2000)
    pitch = np.repeat(rng.uniform(150, 3500, (n, count)), 2000, axis=1)[:, :length]
    level = np.repeat(rng.uniform(0.02, 0.3, (n, count)), 2000, axis=1)[:, :length]
    wave = level * np.sin(2 * np.pi * np.cumsum(pitch, axis=1) / 8000)
    wave += 0.003 * rng.normal(size=wave.shape)
    return np.round(32_767 * wave).astype(np.int16)[:, None, :, None]


def windows(n: int, seed: int, length: int = 64) -> NDArray[np.float32]:
    """Return sums of waves with noise, float32 [n, 1, length, 3]."""
    rng, step = np.random.default_rng(seed), np.arange(length)[:, None]
    rate, phase = rng.uniform(0.1, 1, (n, 1, 3, 3)), rng.uniform(0, 6.3, (n, 1, 3, 3))
    waves = np.sin(rate * step[:, :, None] + phase).sum(3)
    return (waves + 0.3 * rng.normal(size=waves.shape)).astype(np.float32)[:, None]


def _bytes(x: NDArray[np.floating]) -> NDArray[np.uint8]:
    return np.clip(x, 0, 255).astype(np.uint8)


def _crop(share: float, *, center: bool) -> Change:
    def crop(x: Array, rng: np.random.Generator) -> Array:
        size = round(share * len(x))
        top, left = [(len(x) - size) // 2] * 2 if center else rng.integers(0, len(x) - size + 1, 2)
        cut = Image.fromarray(np.ascontiguousarray(x[top : top + size, left : left + size]))
        return np.asarray(cut.resize((len(x), len(x)), Image.Resampling.BICUBIC))

    return crop


PICTURES: dict[str, Change] = {
    "brightness x 0.5": lambda x, _: _bytes(0.5 * x),
    "brightness x 0.8": lambda x, _: _bytes(0.8 * x),
    "brightness x 1.4": lambda x, _: _bytes(1.4 * x),
    "30 levels more": lambda x, _: _bytes(x + 30.0),
    "30 levels less": lambda x, _: _bytes(x - 30.0),
    "contrast x 0.6": lambda x, _: _bytes(128 + 0.6 * (x - 128.0)),
    "gray": lambda x, _: np.repeat(_bytes(x.mean(2, keepdims=True)), 3, 2),
    "quarter turn": lambda x, _: np.rot90(x),
    "half turn": lambda x, _: np.rot90(x, 2),
    "mirrored": lambda x, _: x[:, ::-1],
    "turned, channels in reverse": lambda x, _: np.rot90(x)[..., ::-1],
    "noise of 8 levels": lambda x, rng: _bytes(x + rng.normal(0, 8, x.shape)),
    "center crop, 85 % of a side": _crop(0.85, center=True),
    "center crop, 70 % of a side": _crop(0.7, center=True),
    "crop anywhere, 90 % of a side": _crop(0.9, center=False),
    "crop anywhere, 80 % of a side": _crop(0.8, center=False),
    "crop anywhere, 60 % of a side": _crop(0.6, center=False),
    "mirrored, then center crop": lambda x, rng: _crop(0.85, center=True)(x[:, ::-1], rng),
}
"""Changes of pictures."""
OVERLAPS = {
    "tiles, half of a side shared": (0.5, 0),
    "tiles, a quarter of a side shared": (0, 0.75),
    "tiles, half of both sides shared": (0.5, 0.5),
    "tiles, 60 and 90 % of the sides shared": (0.4, 0.1),
}
"""Shifts of tiles, as shares of their sides."""
SHIFTS = {"three quarters": 0.25, "half": 0.5, "40 %": 0.6, "a quarter": 0.75}
"""What windows and sounds share, and their shift."""


def cases(n: int, found: int, seed: int) -> Iterator[tuple[Array, dict[str, Array]]]:
    """Yield examples, and the changed copies by name that are searched for among them."""
    x, rng = pictures(n, seed), np.random.default_rng(seed)
    changed = {
        name: np.stack([change(one, rng) for one in x[:found]]) for name, change in PICTURES.items()
    }
    yield x, {"pictures, none: the control": pictures(n, seed + 1), **changed}
    large, tiles = pictures(n, seed, 2 * _SIDE), {}
    for name, shift in OVERLAPS.items():
        top, left = (round(side * _SIDE) for side in shift)
        tiles[name] = large[:found, top : top + _SIDE, left : left + _SIDE]
    yield large[:, :_SIDE, :_SIDE], tiles
    made: tuple[tuple[str, Callable[[int, int, int], Array], int], ...]
    made = (("sounds", sounds, 8000), ("windows", windows, 64))
    for kind, make, length in made:
        whole = make(n, seed, 2 * length)
        copies = {f"{kind}, none: the control": make(n, seed + 1, length)}
        for name, share in SHIFTS.items():
            start = round(share * length)
            copies[f"{kind}, {name} shared"] = whole[:found, :, start : start + length]
        for level in (0.5, 1.5):
            copies[f"{kind}, level x {level}"] = (level * whole[:found, :, :length]).astype(
                whole.dtype
            )
        yield whole[:, :, :length], copies


def rates(n: int, found: int, seed: int) -> dict[str, float]:
    """Return the share of changed copies that are found, by the name of the change."""
    result = {}
    for fitted, copies in cases(n, found, seed):
        is_copy = has_near_copy(
            Sketches.of(np.concatenate([*copies.values()])), Sketches.of(fitted)
        )
        ends = np.cumsum([len(each) for each in copies.values()])[:-1]
        for name, part in zip(copies, np.split(is_copy, ends), strict=True):
            result[name] = float(part.mean())
    return result


def bench(examples: int = 400, found: int = 100, large: int = 50_000, seed: int = 0) -> Result:
    """Measure the share of changed copies that are found, and the time among many examples."""
    measured = rates(examples, found, seed)
    many = np.random.default_rng(seed).integers(0, 256, (large, 32, 32, 3), dtype=np.uint8)
    start = time.process_time()
    fitted = Sketches.of(many)
    count = checked_count(large // 5, fitted)
    has_near_copy(Sketches.of(many[:count]), fitted)
    seconds = time.process_time() - start
    values = {"examples": examples, "copies": found, "fitted": large, "scored": count}
    return {"values": values | {"seconds": seconds}, "seed": seed, "rates": measured}


def main() -> None:
    """Measure as the options say."""
    command(bench)


if __name__ == "__main__":
    main()
