"""The whole tour on built-in photos, words or motion: a run, floors, a ceiling and a report."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widefield.config.defaults import DEFAULT_METHOD
from widefield.core.types import Score
from widefield.inference.splits import training_data
from widefield.methods import CEILING
from widefield.report import Table
from widefield.train.run import Pretrained
from widefield.train.run_dir import RunFolder
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import ProbeReport, probe
from widefield.workflows.run_page import run_report

DATA, TEST = "photos:train+digits:jitter=4", "photos:test+digits:jitter=4"
"""The digits move about: at fixed places a linear classifier reads them off the raw pixels."""
_WORDS, WORDS_TEST = "spoken:train+background", "spoken:test+background"
"""Made words over made noises: word, speaker and noise share one recording."""
MOTION, MOTION_TEST = "motion:train", "motion:test"
"""Made accelerations: what is done, and where the sensor sits, share one window."""

SETTINGS: dict[str, Any] = {"views": "gentle", "epochs": 16}
"""Settings for 4,000 images and a minute or two. Color is half of what tells these photographs
apart, so the views leave it mostly alone. They were chosen on a split of the training crops."""
AUDIO: dict[str, Any] = {"seconds": 0.5, "epochs": 12, "batch_size": 128}
"""Settings for 2,400 words and a minute, for the run and its ceiling."""
WINDOWS: dict[str, Any] = {"views": "gentle", "epochs": 16, "batch_size": 128}
"""Settings for 2,400 windows and a minute, chosen on a split of the training windows."""
WINDOWS_CEILING: dict[str, Any] = {"views": "gentle", "batch_size": 64, "lr": 2e-3, "epochs": 8}
CEILING_SETTINGS: dict[str, Any] = {"views": "gentle", "batch_size": 64, "lr": 3e-3, "epochs": 10}
OURS = DEFAULT_METHOD
COLUMNS = ("pixels", "random encoder", OURS, CEILING)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the tour measured."""

    folder: Path
    report: Path
    table: dict[str, dict[str, Score]]
    """Task -> column -> score."""
    pretrained: Pretrained
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield demo --json` prints them."""
        return {
            "report": str(self.report),
            "seconds": round(self.seconds, 1),
            "tasks": {
                task: {column: score.accuracy for column, score in row.items()}
                for task, row in self.table.items()
            },
        }


def demo(
    *,
    out: str | Path = "demo",
    audio: bool = False,
    windows: bool = False,
    data: str | Path | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Demo:
    """Train the default method and a supervised ceiling on built-in data, and write a report.

    Args:
        out: folder for the two runs and `report.html`; must not hold other files.
        audio: train on spoken words with a background instead of photos.
        windows: train on windows of an accelerometer instead of photos.
        data: a folder of sounds in class folders, in place of the built-in words.
        seed: seed of both runs.
        quiet: show no progress.

    Raises:
        ValueError: `out` is not empty, there is `data` without `audio`, or both of `audio` and
            `windows`.
    """
    began, folder = time.monotonic(), Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: delete it, or choose another --out")
    tour = _tour(audio=audio, windows=windows, data=data)
    train, test = tour.train, tour.test
    common: dict[str, Any] = {"seed": seed, "quiet": quiet}
    ours = pretrain(train, out=folder / DEFAULT_METHOD, **common, **tour.settings)
    ceiling = pretrain(train, out=folder / CEILING, method=CEILING, **common, **tour.ceiling)
    if not (ours.finished and ceiling.finished):
        raise KeyboardInterrupt
    table = _table(
        probe(ours.run, test, quiet=quiet), probe(ceiling.run, test, floors=False, quiet=quiet)
    )
    run = RunFolder(path=ours.run)
    page = run_report(
        run,
        training_data(run, quiet=quiet),
        title="widefield demo",
        summary=verdict(table),
        table=Table(
            rows=list(table),
            columns=COLUMNS,
            cells={
                (task, column): (s.accuracy, s.low, s.high)
                for task, row in table.items()
                for column, s in row.items()
            },
            focus=OURS,
        ),
        next_steps=(
            f"`widefield pretrain {tour.yours} --out run` does the same on your own",
            f"`widefield embed {ours.run} {test} --out features.npz` takes the features away",
        ),
    )
    return Demo(
        folder=folder,
        report=page.write(folder / "report.html"),
        table=table,
        pretrained=ours,
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, kw_only=True)
class _Tour:
    """What a tour trains on, and how."""

    train: str
    test: str
    settings: dict[str, Any]
    ceiling: dict[str, Any]
    yours: str
    """What a user's own data may be called."""


def _tour(*, audio: bool, windows: bool, data: str | Path | None) -> _Tour:
    """Return the tour that was asked for.

    Raises:
        ValueError: data without `audio`, or two tours at once.
    """
    if audio and windows:
        raise ValueError("audio and windows are two tours: choose one")
    if data is not None and not audio:
        raise ValueError("data is for the tour of sounds: add --audio, or leave data out")
    if audio:
        given = (f"{data}:train+background", f"{data}:test+background")
        train, test = (_WORDS, WORDS_TEST) if data is None else given
        return _Tour(train=train, test=test, settings=AUDIO, ceiling=AUDIO, yours="./my-sounds")
    if windows:
        settings, ceiling = WINDOWS, WINDOWS_CEILING
        train, test, yours = MOTION, MOTION_TEST, "my-windows.npz"
    else:
        settings, ceiling = SETTINGS, CEILING_SETTINGS
        train, test, yours = DATA, TEST, "./my-images"
    return _Tour(train=train, test=test, settings=settings, ceiling=ceiling, yours=yours)


def verdict(table: dict[str, dict[str, Score]]) -> str:
    """Say on which tasks our features beat both floors, beyond their intervals.

    `table` is task -> column of `COLUMNS` -> score.
    """
    floors = {task: max(row[c].high for c in COLUMNS[:2]) for task, row in table.items()}
    learned = [task for task, row in table.items() if row[OURS].low > floors[task]]
    missed = [task for task in table if task not in learned]
    sentence = f"Without a label, {OURS} beats both floors on {' and '.join(learned) or 'no task'}"
    return f"{sentence}; not on {' and '.join(missed)}." if missed else f"{sentence}."


def _table(ours: ProbeReport, ceiling: ProbeReport) -> dict[str, dict[str, Score]]:
    return {
        task: dict(
            zip(
                COLUMNS,
                # The classes are of equal size, so that the commonest one says nothing.
                (row.floor["pixels"], row.floor["random"], row.score, ceiling.tasks[task].score),
                strict=True,
            )
        )
        for task, row in ours.tasks.items()
    }
