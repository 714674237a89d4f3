"""Log-mel spectrograms on the device: waveform [B, 1, 1, T] -> image [B, 1, bands, frames]."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

# A sine of one step of 16 bits, 90 dB below full scale, is near -60.
LOWEST, HIGHEST = -80.0, 40.0
"""Decibels that are 0 and 1 in a spectrogram; a full-scale sine is near 30."""
# Chosen by hand: several periods of a low voice, and shorter than a syllable.
_WINDOW_SECONDS = 0.04


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """Settings of the spectrogram of sounds of one length and rate."""

    rate: int
    """Samples a second, Hz."""
    samples: int
    """Length of a sound, T."""
    bands: int = 64
    """Mel bands: the height of the spectrogram, the lowest first."""
    frames: int = 64
    """Times: the width of the spectrogram."""

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return max(1, self.samples // (self.frames - 1))

    @property
    def fft(self) -> int:
        """Samples under a frame's window: a power of 2 of 40 ms, and of two hops, at least."""
        return 1 << math.ceil(math.log2(max(_WINDOW_SECONDS * self.rate, 2 * self.hop)))


def mel_filters(*, rate: int, fft: int, bands: int) -> NDArray[np.float64]:
    """Return the mel filterbank, [bands, fft / 2 + 1]: triangles of equal area.

    Slaney's mel scale is linear below 1 kHz, 3 mel for 200 Hz, and logarithmic above, 27 mel for a
    factor 6.4. Neighboring triangles meet at their centers; each is scaled by 2 / its width in Hz.

    Source: Slaney, Auditory Toolbox (1998); librosa's default.
    """
    frequencies = _mel_to_freq(np.linspace(0.0, _freq_to_mel(rate / 2), bands + 2))
    bins = np.linspace(0.0, rate / 2, fft // 2 + 1)
    low, center, high = (frequencies[i : i + bands, None] for i in range(3))
    left, right = (bins - low) / (center - low), (high - bins) / (high - center)
    filters: NDArray[np.float64] = np.maximum(0.0, np.minimum(left, right))
    return filters * (2.0 / (high - low))


def mel_frequencies(*, rate: int, bands: int) -> NDArray[np.float64]:
    """Return the center of each mel band in Hz, [bands]."""
    return _mel_to_freq(np.linspace(0.0, _freq_to_mel(rate / 2), bands + 2))[1:-1]


_LINEAR, _START = 3.0 / 200.0, 1000.0  # mel a Hz below 1 kHz
_STEP = math.log(6.4) / 27.0  # natural logarithm of Hz a mel above it


def _freq_to_mel(frequency: float) -> float:
    if frequency < _START:
        return frequency * _LINEAR
    return _START * _LINEAR + math.log(frequency / _START) / _STEP


def _mel_to_freq(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    first = _START * _LINEAR
    return np.where(mel < first, mel / _LINEAR, _START * np.exp(_STEP * (mel - first)))


class LogMel(nn.Module):
    """Log-mel spectrograms as images in [0, 1]: x[B, 1, 1, T] -> [B, 1, bands, frames].

    power   = |STFT(x)|^2, a periodic Hann window, zeros beyond both ends
    db      = 10 log10(filters power), not below -80 dB
    image   = (db + 80) / 120, in [0, 1]
    """

    window: Tensor
    filters: Tensor

    def __init__(self, front_end: FrontEnd) -> None:
        super().__init__()
        self.front_end = front_end
        filters = mel_filters(rate=front_end.rate, fft=front_end.fft, bands=front_end.bands)
        self.register_buffer("window", torch.hann_window(front_end.fft), persistent=False)
        self.register_buffer(
            "filters", torch.from_numpy(filters).to(torch.float32), persistent=False
        )

    def power(self, x: Tensor) -> Tensor:
        """Return the mel power of x[B, 1, 1, T], [B, bands, frames]."""
        front_end = self.front_end
        with torch.autocast(x.device.type, enabled=False):
            samples = x.flatten(1).to(self.window.dtype)  # not len(x), which exporting would fix
            if torch.compiler.is_exporting():
                return self.filters @ self._power_by_convolution(samples)
            windowed = torch.stft(
                samples,
                front_end.fft,
                front_end.hop,
                window=self.window,
                center=True,
                pad_mode="constant",
                return_complex=True,
            )
            frames = windowed[..., : front_end.frames]
            return self.filters @ (frames.real.square() + frames.imag.square())

    def _power_by_convolution(self, samples: Tensor) -> Tensor:
        """Return the power spectrum of samples [B, T], [B, fft / 2 + 1, frames].

        It is `torch.stft` in real arithmetic, because ONNX has no complex numbers.
        """
        fft, hop = self.front_end.fft, self.front_end.hop
        time, bins = torch.arange(fft), torch.arange(fft // 2 + 1)
        # Modulo the period first: the cosine of a large angle would lose digits.
        turns = (bins[:, None] * time % fft).to(torch.float64) * (2 * math.pi / fft)
        windowed = torch.stack([turns.cos(), turns.sin()]) * self.window.double().cpu()
        padded = functional.pad(samples[:, None], (fft // 2, fft // 2))
        real, imaginary = (
            functional.conv1d(padded, kernel[:, None].to(samples), stride=hop)
            for kernel in windowed
        )
        return (real.square() + imaginary.square())[..., : self.front_end.frames]

    def forward(self, x: Tensor) -> Tensor:
        """Return the spectrograms of x[B, 1, 1, T] as images [B, 1, bands, frames] in [0, 1]."""
        db = 10 * self.power(x).clamp_min(10 ** (LOWEST / 10)).log10()
        return ((db - LOWEST) / (HIGHEST - LOWEST)).clamp(0, 1)[:, None].to(x.dtype)
