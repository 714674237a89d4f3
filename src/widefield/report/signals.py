"""Windows and spectrograms as small pictures, sounds as files to be played."""

import base64
import io
import wave

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_WIDE, _HIGH = 128, 64
_COLORS = ((31, 98, 168), (204, 93, 20), (43, 138, 62), (146, 60, 163), (120, 120, 120))
"""Colors of the channels, in turn."""
_ENLARGED = 2


def window_picture(window: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return curves over time of a window [T, C], each from its least to its greatest value.

    Example:
        >>> window_picture(np.random.default_rng(0).normal(size=(50, 3))).shape
        (64, 128, 3)
    """
    image = Image.new("RGB", (_WIDE, _HIGH), "white")
    draw = ImageDraw.Draw(image)
    low, high = window.min(0), window.max(0)
    height = (window - low) / np.where(high > low, high - low, 1)
    x = np.linspace(1, _WIDE - 2, len(window))
    for channel in range(window.shape[1]):
        y = _HIGH - 2 - height[:, channel] * (_HIGH - 4)
        points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        draw.line(points, fill=_COLORS[channel % len(_COLORS)])
    return np.asarray(image)


def wav_file(samples: NDArray[np.int16], rate: int) -> str:
    """Return mono samples as a WAV file in base64.

    Example:
        >>> wav_file(np.zeros(4, np.int16), 8000)[:8]
        'UklGRiwA'
    """
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as opened:
        opened.setnchannels(1)
        opened.setsampwidth(2)
        opened.setframerate(rate)
        opened.writeframes(samples.astype("<i2").tobytes())
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def wav_samples(wav: str) -> tuple[NDArray[np.int16], int]:
    """Return samples and rate of what `wav_file` wrote.

    Raises:
        ValueError: it is no WAV file of 16 bits and one channel in base64.

    Example:
        >>> wav_samples(wav_file(np.arange(3, dtype=np.int16), 8000))
        (array([0, 1, 2], dtype=int16), 8000)
    """
    try:
        with wave.open(io.BytesIO(base64.b64decode(wav, validate=True)), "rb") as opened:
            shape = opened.getnchannels(), opened.getsampwidth()
            rate, content = opened.getframerate(), opened.readframes(opened.getnframes())
    except (ValueError, EOFError, wave.Error):
        shape, rate, content = (0, 0), 0, b""
    if shape != (1, 2) or not content:
        raise ValueError("a sound of the page is no WAV file of 16 bits and one channel")
    return np.frombuffer(content, "<i2").astype(np.int16), rate


def spectrogram_picture(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return a spectrogram [bands, frames] in [0, 1] in colors, low bands below.

    Example:
        >>> spectrogram_picture(np.zeros((64, 64))).shape
        (128, 128, 3)
    """
    from matplotlib import colormaps

    colored = colormaps["magma"](np.clip(image[::-1], 0, 1))[..., :3]
    pixels = (255 * colored).round().astype(np.uint8)
    return pixels.repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1)
