"""The tour, made small: what it writes, and what it says."""

import html
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from widefield.config.defaults import DEFAULT_METHOD
from widefield.data import open_dataset
from widefield.probes.outcome import Outcome
from widefield.workflows import demo as module
from widefield.workflows.demo import COLUMNS, demo, summarize

FLOOR_NAMES = "raw pixels, an untrained network and a dictionary of patches"
SMALL = {"epochs": 1, "batch_size": 32, "encoder": "resnet-tiny"}


def score(low: float, high: float) -> Outcome:
    """An outcome with this interval."""
    outcome = Outcome(values=np.zeros(2))
    vars(outcome)["interval"] = (low, high)  # where it is kept once it was computed
    return outcome


def shrink(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], **data: str
) -> None:
    """Change settings of the run and of the ceiling of a preset, and its data."""
    preset = getattr(module, name)
    changed = {part: {**getattr(preset, part), **settings} for part in ("settings", "ceiling")}
    monkeypatch.setattr(module, name, replace(preset, **changed, **data))


@pytest.mark.parametrize("preset", [module.PHOTO_PRESET, module.WORD_PRESET])
def test_the_data_of_the_tour_can_be_opened(preset: module.Preset) -> None:
    for spec in (preset.train, preset.test):
        assert {"class"} < open_dataset(spec, max_examples=64).labels.keys()


def photos(folder: Path) -> dict[str, str]:
    """Write noise of one of ten colors; return training and test."""
    rng, kind = np.random.default_rng(0), np.arange(1500) % 10
    x = rng.integers(0, 200, (1500, 32, 32, 3)) + (50 * rng.random((10, 1, 1, 3)))[kind]
    np.savez(folder / "photos.npz", x=x.astype(np.uint8), **{"class": kind})
    return {s: f"{folder}/photos.npz:{s}+digits:jitter=4" for s in ("train", "test")}


def row(ours: tuple[float, float], ceiling: float = 0.8) -> dict[str, Outcome]:
    """Floors whose intervals end at 0.3, 0.4 and 0.35, and a supervised score."""
    floors = score(0.2, 0.3), score(0.1, 0.4), score(0.1, 0.35)
    return dict(
        zip(COLUMNS, (*floors, score(0.0, 0.1), score(*ours), score(ceiling, 1.0)), strict=True)
    )


def test_demo_leaves_runs_a_report_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SMALL | {"max_examples": 96}  # too few to compare with the untrained network
    shrink(monkeypatch, "PHOTO_PRESET", small, **photos(tmp_path))
    tour = tmp_path / "tour"
    done = demo(out=tour, quiet=True)
    assert done.report == tour / "report.html"
    assert {path.name for path in tour.iterdir()} == {DEFAULT_METHOD, "supervised", "report.html"}
    tasks = done.to_json()["tasks"]
    assert tasks.keys() == {"class", "digits"}
    page = done.report.read_text()
    assert summarize(done.table) in page
    for task, columns in done.table.items():
        assert tuple(columns) == COLUMNS
        # Six sources of features, so six numbers: a column in the place of another would repeat.
        assert len({(s.value, s.knn) for s in columns.values()}) == 6
        for column, measured in columns.items():
            assert tasks[task][column] == measured.value
            assert f"{100 * measured.value:.1f} %" in page
    assert "<script" not in page
    with pytest.raises(ValueError, match="is not empty: delete it"):
        demo(out=tour, quiet=True)


def test_the_tour_of_sounds_plays_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rate, rng = 4000, np.random.default_rng(0)
    for i in range(90):
        place = tmp_path / "my words" / ("low", "high")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        tone = np.sin((0.3 + 0.9 * (i % 2)) * np.arange(rate // 4)) * rng.uniform(0.1, 0.5)
        soundfile.write(place / f"{i:02d}.wav", tone, rate)
    shrink(monkeypatch, "WORD_PRESET", SMALL | {"seconds": 0.25})
    words = tmp_path / "my words"
    done = demo(out=tmp_path / "my tour", audio=True, data=words, quiet=True)
    assert done.to_json()["tasks"].keys() == {"class", "background"}
    page = done.report.read_text()
    assert page.count("<audio controls") == 6
    (command,) = re.findall("<code>widefield embed (.*)</code>", page)
    given = [str(tmp_path / "my tour" / DEFAULT_METHOD), f"{words}:test+background"]
    assert shlex.split(html.unescape(command)) == [*given, "--out", "features.npz"]
    assert summarize(done.table) in page
    with pytest.raises(ValueError, match="add audio=True, or leave data out"):
        demo(out=tmp_path / "other", data=words, quiet=True)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ((0.41, 0.6), "predicts class and digits better than " + FLOOR_NAMES + " do."),
        (
            (0.39, 0.6),
            "predicts digits better than " + FLOOR_NAMES + " do; not class.",
        ),  # one floor may be as high
        ((0.31, 0.35), "predicts digits better than " + FLOOR_NAMES + " do; not class."),
    ],
)
def test_the_verdict_counts_only_what_surely_beats_all_floors(
    ours: tuple[float, float], expected: str
) -> None:
    assert summarize({"class": row(ours), "digits": row((0.5, 0.6))}).endswith(expected)


def test_the_verdict_says_when_nothing_was_learned() -> None:
    text = summarize({"class": row((0.2, 0.3))})
    assert text == f"No task is predicted significantly better than by the best of {FLOOR_NAMES}."


def test_the_verdict_says_where_labels_do_not_help_either() -> None:
    low, high = row((0.2, 0.3), ceiling=0.39), row((0.5, 0.6), ceiling=0.39)
    said = " A supervised network does not predict class better either."
    assert summarize({"class": low, "digits": high}).endswith(f"; not class.{said}")
    assert summarize({"class": low}).endswith(f"dictionary of patches.{said}")
    assert "supervised" not in summarize({"class": row((0.2, 0.3)), "digits": high})
