"""Write librosa's mel power of a made signal: tests/unit/core/librosa_mel.json.

    pip install librosa && python scripts/librosa_reference.py

librosa is no dependency: the test compares with the numbers of the file.
"""

import json
from pathlib import Path

import librosa
import numpy as np

FILE = Path(__file__).parents[1] / "tests" / "unit" / "core" / "librosa_mel.json"
RATE, SAMPLES, FFT, HOP, BANDS = 8000, 4000, 512, 63, 64
SHOWN = (0, 7, 31, 63)
"""Frames that the file keeps."""


def signal() -> np.ndarray:
    """Return a rising tone over a falling one, the same on every machine."""
    time = np.arange(SAMPLES) / RATE
    rising = np.sin(2 * np.pi * (200 * time + 1500 * time**2))
    falling = np.sin(2 * np.pi * (3500 * time - 1000 * time**2))
    return 0.4 * rising + 0.1 * falling


def main() -> None:
    """Write the file."""
    sizes = {"sr": RATE, "n_fft": FFT, "hop_length": HOP, "n_mels": BANDS}
    mel = librosa.feature.melspectrogram(y=signal(), **sizes, center=True, pad_mode="constant")
    power = mel[:, SHOWN]
    facts = {"librosa": librosa.__version__, "rate": RATE, "samples": SAMPLES, "frames": SHOWN}
    FILE.write_text(json.dumps({**facts, "power": power.tolist()}, indent=None) + "\n")


if __name__ == "__main__":
    main()
