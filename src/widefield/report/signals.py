"""Windows and spectrograms as images, sounds as WAV files."""

import base64
import io
import wave

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

# Chosen by hand.
_WIDTH, _HEIGHT = 128, 64
_COLORS = ((31, 98, 168), (204, 93, 20), (43, 138, 62), (146, 60, 163), (120, 120, 120))
"""Colors of the channels, repeated."""
_SCALE = 2


def window_image(window: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return a plot of a window [T, C] over time, each channel scaled to its own range.

    Example:
        >>> window_image(np.random.default_rng(0).normal(size=(50, 3))).shape
        (64, 128, 3)
    """
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    low, high = window.min(0), window.max(0)
    height = (window - low) / np.where(high > low, high - low, 1)
    x = np.linspace(1, _WIDTH - 2, len(window))
    for channel in range(window.shape[1]):
        y = _HEIGHT - 2 - height[:, channel] * (_HEIGHT - 4)
        points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        draw.line(points, fill=_COLORS[channel % len(_COLORS)])
    return np.asarray(image)


def encode_wav(samples: NDArray[np.int16], rate: int) -> str:
    """Return mono samples as a WAV file in base64.

    Example:
        >>> encode_wav(np.zeros(4, np.int16), 8000)[:8]
        'UklGRiwA'
    """
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def decode_wav(wav: str) -> tuple[NDArray[np.int16], int]:
    """Return samples and rate of a WAV file in base64, the inverse of `encode_wav`.

    Example:
        >>> decode_wav(encode_wav(np.arange(3, dtype=np.int16), 8000))
        (array([0, 1, 2], dtype=int16), 8000)
    """
    with wave.open(io.BytesIO(base64.b64decode(wav)), "rb") as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2), "encode_wav wrote it"
        content = file.readframes(file.getnframes())
        return np.frombuffer(content, "<i2").astype(np.int16), file.getframerate()


def spectrogram_image(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return a spectrogram [bands, frames] in [0, 1] as an image, low bands at the bottom.

    Example:
        >>> spectrogram_image(np.zeros((64, 64))).shape
        (128, 128, 3)
    """
    from matplotlib import colormaps

    colored = colormaps["magma"](np.clip(image[::-1], 0, 1))[..., :3]
    pixels = (255 * colored).round().astype(np.uint8)
    return pixels.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
