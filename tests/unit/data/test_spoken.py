"""Built-in words: the same on every machine, and what their tasks say."""

import numpy as np

from widefield.data import open_dataset
from widefield.data.builtin.spoken import SAMPLE_RATE, SPEAKERS, WORDS, read_spoken
from widefield.data.examples import Examples
from widefield.data.readers.recordings import from_int16


def clips(examples: Examples) -> np.ndarray:
    recordings = examples.recordings
    assert recordings is not None
    assert recordings.clips is not None
    return np.stack([from_int16(clip) for clip in recordings.clips])


def test_speakers_differ_in_pitch_and_words_in_resonances() -> None:
    examples = read_spoken("test")
    x = clips(examples)
    middle = x[:, 1000:3000] - x[:, 1000:3000].mean(1, keepdims=True)
    power = np.abs(np.fft.rfft(middle, n=8192)) ** 2
    repeats = np.fft.irfft(power)[:, :200]
    period = 20 + repeats[:, 20:].argmax(1)
    for speaker, (pitch, _) in enumerate(SPEAKERS.values()):
        found = SAMPLE_RATE / np.median(period[examples.labels["speaker"] == speaker])
        octaves = np.log2(found / pitch)
        assert abs(octaves - round(octaves)) < 0.15
    hertz = np.fft.rfftfreq(8192, 1 / SAMPLE_RATE)
    high = power[:, hertz > 1600].sum(1) / power.sum(1)
    with_i = [i for i, word in enumerate(WORDS) if "i" in word or "e" in word]
    has = np.isin(examples.labels["class"], with_i)
    assert high[has].mean() > 1.5 * high[~has].mean()


def test_splits_are_other_draws_and_balanced() -> None:
    train, test = (open_dataset(f"spoken:{split}", seconds=0.5) for split in ("train", "test"))
    assert (len(train), len(test), train.rate) == (2400, 600, SAMPLE_RATE)
    assert set(np.bincount(train.labels["class"])) == {240}
    assert set(np.bincount(train.labels["speaker"])) == {400}
    assert not {x.tobytes() for x in train.images} & {x.tobytes() for x in test.images}
    again = open_dataset("spoken:test", seconds=0.5)
    np.testing.assert_array_equal(again.images, test.images)
