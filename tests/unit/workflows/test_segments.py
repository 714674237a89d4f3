"""Weights of the segments of long recordings, chosen on the examples to fit on."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from widefield import classify, probe
from widefield.audits.bounds import _key
from widefield.data import open_dataset
from widefield.inference.splits import TrainTest
from widefield.probes import extract

RATE, STEPS, SECONDS = 4000, 4000, 12
HERTZ = (500, 900, 1400)


def call(hertz: float, level: float, rng: np.random.Generator) -> NDArray[np.float64]:
    t = np.arange(STEPS) / RATE
    tone = np.sin(2 * np.pi * hertz * rng.uniform(0.97, 1.03) * t) * np.sin(np.pi * t)
    return level * np.asarray(tone)


def call_among_others(k: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a call of class k somewhere among fainter calls that have nothing to do with it."""
    x = np.concatenate([call(rng.uniform(300, 1700), 1500, rng) for _ in range(SECONDS)])
    start = int(rng.integers((SECONDS - 1) * STEPS))
    x[start : start + STEPS] += call(HERTZ[k], 16_000, rng)
    return x + rng.normal(0, 20, len(x))


def hum_beside_a_shot(k: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a faint hum of class k, and a loud call that has nothing to do with it."""
    x = np.concatenate([call(HERTZ[k], 300, rng) for _ in range(SECONDS)])
    x[:STEPS] += call(rng.uniform(300, 1700), 16_000, rng)
    return x + rng.normal(0, 20, len(x))


def pack(make: Any, n: int = 24) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    sounds = [make(k % 3, rng) for k in range(n)]
    return {
        "audio": np.concatenate(sounds).round().astype(np.int16),
        "offsets": np.cumsum([0, *map(len, sounds)]),
        "sample_rate": np.array(RATE),
        "labels": np.arange(n) % 3,
    }


@pytest.mark.parametrize("make", [call_among_others, hum_beside_a_shot])
def test_features_are_the_weighted_mean_over_segments(make: Any) -> None:
    dataset = open_dataset(pack(make, 4))
    assert dataset.clips is not None
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(STEPS, 5))
    for weighting in ("equal", "energy"):
        found = extract(encoder, dataset.weighted(weighting).inputs, device="cpu")
        for row in range(4):
            segments = dataset.clips.segments(row)
            weights = segments.astype(float).var((1, 2, 3)) if weighting == "energy" else None
            each = extract(encoder, segments, device="cpu").numpy()
            expected = np.average(each, axis=0, weights=weights)
            assert np.allclose(found[row].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "taken", "left"),
    [(call_among_others, "by energy", "equally"), (hum_beside_a_shot, "equally", "by energy")],
)
def test_weights_are_those_that_predict_held_out_labels(make: Any, taken: str, left: str) -> None:
    data = pack(make)
    labels = {f"clip {row}": "abc"[k] for row, k in enumerate(data["labels"])}
    names = open_dataset(data).paths
    found = classify(
        "pixels", data, labels=dict(zip(names, labels.values(), strict=True)), quiet=True
    )
    assert found.cross_validation is not None
    assert found.cross_validation.value > 0.9
    report = probe("pixels", pack(make, 12), train_data=data, floors=False, quiet=True)
    assert report.tasks["class"].score.value > 0.9
    choice = "; scores on these labels are too high by this choice"
    assert sum(note.endswith(choice) for note in found.notes) == 1
    for notes in ([note.removesuffix(choice) for note in found.notes], report.notes):
        (note,) = (note for note in notes if "segments of long recordings" in note)
        assert note.startswith(f"segments of long recordings are weighted {taken}: error ")
        assert note.endswith(left)
        assert "of 24 to fit on" in note


def test_cached_floors_are_of_the_same_weights() -> None:
    data = open_dataset(pack(call_among_others, 6))
    keys = set()
    for half in (data, data.weighted("equal"), data.weighted("energy")):
        keys.add(_key([], TrainTest(train=half, test=half)))
    assert len(keys) == 2


def test_recordings_of_one_segment_have_no_weights() -> None:
    data = pack(lambda k, rng: call_among_others(k, rng)[:STEPS])
    report = probe("pixels", data, train_data=data, floors=False, quiet=True)
    assert not any("weighted" in note for note in report.notes)
