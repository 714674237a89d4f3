"""Sounds on a page: files that play what they should, and spectrograms with their axes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from widefield.inference.pictures import sound_of
from widefield.report import AudioRows, AuditReport, decode_wav, encode_wav


@given(samples=arrays(np.int16, st.integers(1, 300)), rate=st.integers(1000, 192_000))
def test_a_file_gives_back_its_samples(samples: np.ndarray, rate: int) -> None:
    found, found_rate = decode_wav(encode_wav(samples, rate))
    np.testing.assert_array_equal(found, samples)
    assert found_rate == rate


def test_a_tone_stands_at_its_hertz() -> None:
    tone = (9000 * np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)).astype(np.int16)
    sound = sound_of("tone", encode_wav(tone, 8000))
    loudest = sound.spectrogram[:, 10:50].mean(1).argmax()
    assert abs(sound.hertz[loudest] / 1000 - 1) < 0.05
    assert sound.seconds == 1


def test_rows_of_sounds_play_and_show_their_axes() -> None:
    rng = np.random.default_rng(0)
    row = [
        sound_of(f"<b>{i}", encode_wav(rng.integers(-9, 9, 900).astype(np.int16), 4000))
        for i in range(3)
    ]
    listening = AudioRows(title="Alike", caption="Listen.", rows=[row, row])
    page = AuditReport(title="t", summary="s", figures=[listening], example="sound").html()
    assert page.count("<audio controls") == 6
    assert page.count(">Hz<") == page.count(">seconds<") == 6
    assert "&lt;b&gt;0" in page
    assert "<b>0" not in page
    ids = [part.split('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
