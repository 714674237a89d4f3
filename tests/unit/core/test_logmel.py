"""Log-mel spectrograms against formulas written out one number at a time."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.core.logmel import HIGHEST, LOWEST, FrontEnd, LogMel, mel_filters, mel_frequencies


def mel(hertz: float) -> float:
    """Slaney's scale, from its definition: 15 mel at 1 kHz, then 27 mel for a factor 6.4."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def hertz(at: float) -> float:
    """The inverse of `mel`, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mel(middle) < at else (low, middle)
    return low


def slow_filters(rate: int, fft: int, bands: int) -> np.ndarray:
    edges = [hertz(mel(rate / 2) * i / (bands + 1)) for i in range(bands + 2)]
    out = np.zeros((bands, fft // 2 + 1))
    for band in range(bands):
        low, center, high = edges[band : band + 3]
        for bin in range(fft // 2 + 1):
            f = bin * rate / fft
            up, down = (f - low) / (center - low), (high - f) / (high - center)
            out[band, bin] = max(0, min(up, down)) * 2 / (high - low)
    return out


def slow_power(x: np.ndarray, front_end: FrontEnd) -> np.ndarray:
    """|DFT|^2 of each frame, by the definition of the transform."""
    fft, hop = front_end.fft, front_end.hop
    padded = np.pad(x, fft // 2)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(fft) / fft)
    kernel = np.exp(-2j * np.pi * np.outer(np.arange(fft // 2 + 1), np.arange(fft)) / fft)
    frames = [padded[i * hop : i * hop + fft] * window for i in range(front_end.frames)]
    power = np.abs(kernel @ np.stack(frames, axis=1)) ** 2
    return slow_filters(front_end.rate, fft, front_end.bands) @ power


@pytest.mark.parametrize(("rate", "samples"), [(8000, 8000), (16_000, 8_000), (4000, 2000)])
def test_equals_the_definition(rate: int, samples: int) -> None:
    front_end = FrontEnd(rate=rate, samples=samples)
    x = np.random.default_rng(0).normal(0, 0.1, samples) + 0.3 * np.sin(np.arange(samples) / 3)
    expected = slow_power(x, front_end)
    power = LogMel(front_end).double()
    power.window = torch.hann_window(front_end.fft, dtype=torch.float64)
    filters = mel_filters(rate=rate, fft=front_end.fft, bands=64)
    power.filters = torch.from_numpy(filters)
    found = power.power(torch.from_numpy(x).view(1, 1, 1, -1))[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    image = LogMel(front_end)(torch.from_numpy(x).float().view(1, 1, 1, -1))[0, 0].numpy()
    db = 10 * np.log10(np.maximum(expected, 10 ** (LOWEST / 10)))
    np.testing.assert_allclose(image, (db - LOWEST) / (HIGHEST - LOWEST), atol=1e-5)


@given(st.sampled_from([4000, 8000, 16_000, 44_100]), st.integers(8, 100))
@settings(max_examples=20, deadline=None)
def test_filters_equal_the_definition(rate: int, bands: int) -> None:
    found = mel_filters(rate=rate, fft=256, bands=bands)
    np.testing.assert_allclose(found, slow_filters(rate, 256, bands), atol=1e-9 * found.max())


def test_a_tone_is_highest_in_its_band() -> None:
    front_end = FrontEnd(rate=8000, samples=8000)
    centers = mel_frequencies(rate=8000, bands=64)
    for band in (10, 30, 55):
        x = torch.sin(2 * math.pi * centers[band] * torch.arange(8000, dtype=torch.float64) / 8000)
        image = LogMel(front_end)(x.float().view(1, 1, 1, -1))[0, 0]
        assert image[:, 32].argmax() == band


@given(st.integers(1000, 48_000), st.floats(0.1, 30))
@settings(max_examples=30, deadline=None)
def test_any_length_gives_an_image_of_64_by_64(rate: int, seconds: float) -> None:
    samples = min(round(rate * seconds), 200_000)
    front_end = FrontEnd(rate=rate, samples=max(samples, 256))
    assert front_end.hop * 63 <= front_end.samples
    assert front_end.fft >= 2 * front_end.hop
    image = LogMel(front_end)(torch.zeros(1, 1, 1, front_end.samples))
    assert image.shape == (1, 1, 64, 64)
    assert image.max() == 0


def test_autocast_does_not_coarsen_it() -> None:
    front_end = FrontEnd(rate=8000, samples=4000)
    x = torch.randn(2, 1, 1, 4000, generator=torch.Generator().manual_seed(0)) * 0.1
    plain = LogMel(front_end)(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(LogMel(front_end)(x), plain)


def test_equals_librosa() -> None:
    """Against numbers that scripts/librosa_reference.py took from librosa, on a made signal."""
    reference = json.loads((Path(__file__).parent / "librosa_mel.json").read_text())
    rate, samples = reference["rate"], reference["samples"]
    time = np.arange(samples) / rate
    rising = np.sin(2 * np.pi * (200 * time + 1500 * time**2))
    falling = np.sin(2 * np.pi * (3500 * time - 1000 * time**2))
    x = torch.from_numpy(0.4 * rising + 0.1 * falling).float().view(1, 1, 1, -1)
    found = LogMel(FrontEnd(rate=rate, samples=samples)).power(x)[0].numpy()
    expected = np.array(reference["power"])
    heard = expected > 1e-6 * expected.max()  # below that both are rounding of 32 bits
    difference = np.abs(found[:, reference["frames"]] - expected) / expected
    assert heard.mean() > 0.5
    assert difference[heard].max() < 1e-4


@settings(max_examples=20, deadline=None)
@given(rate=st.sampled_from([4000, 8000, 16_000]), samples=st.integers(300, 9000))
def test_what_is_exported_is_the_same_spectrum(rate: int, samples: int) -> None:
    log_mel = LogMel(FrontEnd(rate=rate, samples=samples))
    x = 0.1 * torch.randn(2, samples, generator=torch.Generator().manual_seed(samples))
    expected = log_mel.power(x[:, None, None])
    found = log_mel.filters @ log_mel._power_by_convolution(x)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5 * float(expected.max()))
