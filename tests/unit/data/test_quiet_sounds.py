"""Sounds that are nearly nothing: a click in silence, and levels below those of 16 bits."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from widefield.data import open_dataset

RATE = 8000
TONE = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)


@pytest.mark.parametrize("level", [0.0, 0.25])
@pytest.mark.parametrize("samples", [1, 3, 100])
def test_a_click_in_silence_is_a_sound(samples: int, level: float, tmp_path: Path) -> None:
    x = np.full(RATE, level)
    x[4000 : 4000 + samples] += 0.5
    soundfile.write(tmp_path / "a.wav", x, RATE)
    found = open_dataset(tmp_path).images[0, 0, :, 0] / 32_768
    np.testing.assert_allclose(found, x - level, atol=1e-3)


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT"])
@pytest.mark.parametrize("level", [-70, -80, -100])
def test_sounds_below_16_bits_keep_their_form_and_are_told(
    level: int, subtype: str, tmp_path: Path
) -> None:
    quiet = 10 ** (level / 20) * TONE
    soundfile.write(tmp_path / "a.wav", quiet, RATE, subtype=subtype)
    soundfile.write(tmp_path / "b.wav", 0.3 * TONE, RATE, subtype=subtype)
    dataset = open_dataset(tmp_path)
    first, second = dataset.images[:, 0, :, 0].astype(float)
    assert np.corrcoef(first, TONE)[0, 1] > 0.99
    np.testing.assert_allclose(second / 32_768, 0.3 * TONE, atol=1e-3)
    assert any("1 are below -66 dB" in note for note in dataset.notes)


def test_all_of_a_minute_is_read(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.tile(0.3 * TONE, 60), RATE)
    dataset = open_dataset(tmp_path)
    assert any("averaged over all of their segments" in note for note in dataset.notes)
    assert dataset.clips is not None
    assert len(dataset.clips.segments(0)) == 60
