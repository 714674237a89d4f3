"""Where the signal is in long sounds: pooled over sounding segments, drawn from them to train."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.audits.bounds import probe_tasks
from widefield.data import Dataset, open_dataset
from widefield.data.clips import Clips
from widefield.data.open_options import OpenOptions
from widefield.data.planted import Canvas, Tone
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import split_by_hash
from widefield.probes import extract, pixels
from widefield.workflows.classify import classify
from widefield.workflows.embed import embed
from widefield.workflows.explore import explore

RATE = 16_000
STEPS = 1000
FORM = {"seconds": STEPS / RATE}
HERTZ = (300, 900, 2200)


def event(k: int, rng: np.random.Generator, steps: int = STEPS) -> np.ndarray:
    """Return a tone of class k with noise."""
    hertz = HERTZ[k] * rng.uniform(0.95, 1.05)
    tone = 9000 * np.sin(2 * np.pi * hertz * np.arange(steps) / RATE + rng.uniform(0, 6))
    return tone + rng.normal(0, 500, steps)


def nothing(examples: float) -> np.ndarray:
    return np.zeros(round(examples * STEPS))


def hiss(examples: float, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, 3, round(examples * STEPS))


PADDED = {
    "zeros after it": lambda k, rng: [event(k, rng), nothing(3)],
    "zeros before it": lambda k, rng: [nothing(3), event(k, rng)],
    "zeros between two": lambda k, rng: [event(k, rng), nothing(3), event(k, rng)],
    "hiss before it": lambda k, rng: [hiss(4, rng), event(k, rng)],
    "hiss around it": lambda k, rng: [hiss(rng.uniform(0, 2), rng), event(k, rng), hiss(5, rng)],
    "a constant after it": lambda k, rng: [event(k, rng) - 256, nothing(3) - 256],
    "an offset in it alone": lambda k, rng: [event(k, rng) + 9000, nothing(3)],
    "long silence, short event": lambda k, rng: [nothing(40), event(k, rng, STEPS // 3)],
}


def pack(recordings: list[np.ndarray], labels: Any = None) -> dict[str, np.ndarray]:
    held = {
        "audio": np.concatenate(recordings).round().astype(np.int16),
        "offsets": np.cumsum([0, *map(len, recordings)]),
        "sample_rate": np.array(RATE),
    }
    return held if labels is None else held | {"labels": np.asarray(labels)}


def padded(kind: str, each: int = 5) -> dict[str, np.ndarray]:
    rng, labels = np.random.default_rng(0), np.repeat([0, 1, 2], each)
    return pack([np.concatenate(PADDED[kind](k, rng)) for k in labels], labels)


def neighbor_accuracy(h: Tensor, y: np.ndarray) -> float:
    """Return the share of rows whose nearest other row has the same class."""
    distance = torch.cdist(h, h).fill_diagonal_(torch.inf)
    return float((y[distance.argmin(1).numpy()] == y).mean())


def middles(data: dict[str, np.ndarray]) -> np.ndarray:
    """Return the middle of each recording, which was the example before."""
    clips = np.split(data["audio"], data["offsets"][1:-1])
    starts = [(len(clip) - STEPS) // 2 for clip in clips]
    cut = [clip[start : start + STEPS] for clip, start in zip(clips, starts, strict=True)]
    return np.stack(cut)[:, None, :, None]


@pytest.mark.parametrize("kind", PADDED)
def test_padded_recordings_keep_their_class(kind: str) -> None:
    data = padded(kind)
    dataset = open_dataset(data, **FORM)
    y = dataset.labels["class"]
    assert neighbor_accuracy(pixels(dataset.inputs), y) > 0.9
    assert neighbor_accuracy(pixels(dataset.images), y) > 0.9
    assert neighbor_accuracy(pixels(middles(data)), y) < 0.7  # the former rule


def test_features_are_those_of_the_whole_recording_in_every_command() -> None:
    data = padded("zeros between two")
    extractor = FeatureExtractor(name="pixels")
    dataset = extractor.open(data, OpenOptions(seconds=FORM["seconds"]), quiet=True)
    expected = pixels(dataset.inputs)
    assert not torch.allclose(expected, pixels(dataset.images))
    slower = {"audio": np.repeat(data["audio"], 16), "offsets": 16 * data["offsets"]}
    one_second = data | slower  # the length of an example in commands
    whole = pixels(open_dataset(one_second).inputs)
    np.testing.assert_allclose(embed("pixels", one_second, quiet=True).features, whole, atol=1e-6)
    found = explore("pixels", one_second, quiet=True)
    y = found.dataset.labels["class"]
    assert (y[found.graph.index[:, 0]] == y).all()
    labels = {f"row {row}": "abc"[row // 5] for row in (0, 1, 5, 6, 10, 11)}
    predicted = classify("pixels", one_second, labels=labels, quiet=True).values
    assert predicted.argmax(1).tolist() == [0] * 5 + [1] * 5 + [2] * 5
    halves = split_by_hash(open_dataset(padded("zeros after it", each=20), **FORM))
    assert probe_tasks(extractor.features, halves)["class"].values.all()


class Moments(nn.Module):
    """Features of a waveform x [B, 1, 1, T] that show which samples were in it."""

    def forward(self, x: Tensor) -> Tensor:
        samples = x.flatten(1)
        return torch.stack([samples[:, 0], samples.abs().sum(1), samples.square().sum(1)], dim=1)


def test_the_mean_is_over_evenly_spaced_segments_without_silent_ones() -> None:
    rng = np.random.default_rng(1)
    waves = [rng.integers(-9000, 9000, n) for n in (700, 1000, 1001, 2500, 7990)]
    waves[3][1000:] = 0
    waves[4][2000:5000] //= 8000  # below -60 dB
    dataset = open_dataset(pack(waves), **FORM)
    assert dataset.clips is not None
    means = []
    for row in range(5):
        start, length = dataset.clips.starts[row], dataset.clips.lengths[row]
        x = dataset.clips.samples[start : start + length].astype(np.float64)
        count = int(np.ceil(length / STEPS))
        places = [round(i * (length - STEPS) / max(count - 1, 1)) for i in range(count)]
        cuts = [x[place : place + STEPS] for place in places]
        loud = max(cut.var() for cut in cuts)
        kept = [cut for cut in cuts if 10 * np.log10(cut.var() / loud + 1e-30) >= -60]
        assert len(kept) == [1, 1, 2, 2, 6][row]
        stored = torch.tensor(np.array(kept) / 32_768, dtype=torch.float32)
        means.append(Moments()(stored).mean(0))
    for batch_size in (1, 3, 512):
        found = extract(Moments(), dataset.inputs, batch_size=batch_size)
        torch.testing.assert_close(found, torch.stack(means))
    part = dataset.subset(np.array([4, 2]))
    torch.testing.assert_close(extract(Moments(), part.inputs), torch.stack([means[4], means[2]]))


def test_zeros_after_whole_examples_change_nothing() -> None:
    rng = np.random.default_rng(2)
    waves = [rng.integers(-9000, 9000, 2 * STEPS) for _ in range(3)]
    waves = [wave - round(wave.mean()) for wave in waves]
    plain, longer = (
        open_dataset(pack([np.concatenate([wave, nothing(end)]) for wave in waves]), **FORM)
        for end in (0, 6)
    )
    torch.testing.assert_close(pixels(longer.inputs), pixels(plain.inputs), rtol=0, atol=0)


def test_of_a_very_long_recording_a_limited_number_is_taken_from_end_to_end() -> None:
    wave = np.tile([-3000, 3000], 100 * STEPS // 2)
    clips = open_dataset(pack([wave, wave[: 5 * STEPS]]), **FORM).clips
    assert clips is not None
    assert len(clips.segments(0)) == 100
    assert clips.skipped() == 0
    samples = np.arange(len(clips.samples)) // STEPS + 1
    numbered = replace(clips, samples=samples, max_segments=30)
    starts = numbered.segments(0)[:, 0, 0, 0]
    assert len(starts) == 30
    assert numbered.skipped() == pytest.approx(70 / 105)
    assert [starts[0], starts[-1]] == [1, 100]
    assert set(np.diff(starts)) == {3, 4}
    assert len(replace(clips, max_segments=1).segments(0)) == 1
    assert len(clips.segments(1)) == 5


def test_planted_sounds_are_in_every_segment() -> None:
    rng = np.random.default_rng(3)
    waves = [event(row % 3, rng, 4 * STEPS) for row in range(6)]
    held = {"sounds": np.stack(waves).astype(np.int16), "sample_rate": np.array(RATE)}
    plain = open_dataset(held, **FORM)
    canvas = Canvas(shape=plain.images.shape[1:], seed=0, held_out=False, rate=RATE)
    overlay = Tone(level=0).draw(canvas)
    planted = plain.with_overlay(overlay)
    parts, weights = next(iter(planted.inputs.batches(100)))  # type: ignore[union-attr]
    bare, _ = next(iter(plain.inputs.batches(100)))  # type: ignore[union-attr]
    assert list(map(len, weights)) == [4] * 6
    overlay.apply(bare, np.repeat(np.arange(6), 4))
    np.testing.assert_array_equal(parts, bare)


def clips_of(*waves: np.ndarray) -> Clips:
    dataset = open_dataset(pack(list(waves)), **FORM)
    assert dataset.clips is not None
    return dataset.clips


def drawn(clips: Clips, draws: int = 600) -> np.ndarray:
    """Return the starts of segments of sound 0 for random pairs of uniform numbers."""
    reads = [clips._draw(0, *np.random.default_rng(read).random(2)) for read in range(draws)]
    return np.array(reads)


def test_training_draws_segments_by_their_share_of_sound() -> None:
    rng = np.random.default_rng(4)
    wave = np.concatenate([nothing(6), event(0, rng, STEPS), nothing(3)])
    clips = clips_of(wave)
    segments = np.concatenate([clips.sample(np.array([0]), read) for read in range(400)])
    share = (np.abs(segments[:, 0, :, 0]) > 30).mean(1) / 0.99
    assert (share > 0).mean() > 0.97
    # Proportional to a triangle of starts, the share is 2 / 3 on average.
    assert share.mean() == pytest.approx(2 / 3, abs=0.05)
    starts = rng.integers(0, len(wave) - STEPS, 400)  # the former rule
    former = [np.abs(wave[start : start + STEPS]).any() for start in starts]
    assert np.mean(former) < 0.3


@pytest.mark.parametrize("length", [1001, 1100, 1700, 3333, 9000])
def test_without_silence_all_starts_are_equally_probable(length: int) -> None:
    clips = clips_of(np.random.default_rng(5).integers(-9000, 9000, length))
    bounds, share = clips._bins(0)
    assert bounds[0] == 0
    assert bounds[-1] == length - STEPS + 1
    np.testing.assert_allclose(share, 1)
    assert np.ptp(np.diff(bounds)) <= 1
    starts = drawn(clips)
    assert starts.min() >= 0
    assert starts.max() <= length - STEPS
    assert starts.mean() == pytest.approx((length - STEPS) / 2, rel=0.15)


def test_draws_are_a_function_of_seed_read_and_example() -> None:
    rng = np.random.default_rng(6)
    waves = [np.concatenate([nothing(3), event(k, rng), nothing(2)]) for k in (0, 1, 2)]
    one, index = clips_of(*waves), np.array([2, 0])
    whole = clips_of(*waves).sample(np.arange(3), 8)
    one.sample(np.arange(3), 7)  # what was drawn before does not matter
    for clips, rows in ((one, index), (one.subset(index), np.arange(2))):
        np.testing.assert_array_equal(clips.sample(rows, 8), whole[index])
    np.testing.assert_array_equal(open_dataset(pack(waves), **FORM).read(index, 8)[0], whole[index])
    assert (one.sample(index, 9) != whole[index]).any()


def test_silence_is_reported_before_the_work() -> None:
    def notes(kind: str) -> str:
        return "\n".join(open_dataset(padded(kind), **FORM).notes)

    assert "15 are longer, and their features are averaged over all of their segments" in notes(
        "zeros before it"
    )
    assert "15 are silent for 75% of their time, which is left out" in notes("zeros before it")
    rng = np.random.default_rng(7)
    full = open_dataset(pack([event(0, rng, 3 * STEPS), event(1, rng, STEPS // 2)]), **FORM)
    assert "silent" not in "\n".join(full.notes)
    assert "1 are longer" in "\n".join(full.notes)


def test_data_without_long_sounds_are_read_as_they_are() -> None:
    rng = np.random.default_rng(8)
    dataset: Dataset = open_dataset(pack([event(0, rng), event(1, rng, 700)]), **FORM)
    assert dataset.inputs is dataset.images
