"""A demo on built-in photos or words: a run, floors, a ceiling and a report."""

import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from widefield.config.defaults import DEFAULT_METHOD
from widefield.core.errors import option
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import OnNote
from widefield.inference.run_views import run_views
from widefield.inference.splits import training_data
from widefield.methods import CEILING
from widefield.probes.outcome import Outcome
from widefield.report import AccuracyTable
from widefield.report.tables import ResultTable, TabularResult, percent
from widefield.train.run import Pretrained
from widefield.train.run_dir import RunFolder
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe
from widefield.workflows.probe_report import ProbeReport
from widefield.workflows.run_page import run_report


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Data of a demo, and the settings of its runs, for a minute or two."""

    train: str
    test: str
    settings: dict[str, Any]
    ceiling: dict[str, Any]
    example_data: str
    """Path of a user's data, for the advice on the page."""


# At fixed positions a linear classifier predicts digits from raw pixels, so they move. Photos
# differ mostly in color, which gentle views preserve; settings were chosen on a split of the
# training crops, and the epochs by the time that they take.
PHOTO_PRESET = Preset(
    train="photos:train+digits:jitter=4",
    test="photos:test+digits:jitter=4",
    settings={"views": "gentle", "epochs": 10},
    ceiling={"views": "gentle", "batch_size": 64, "lr": 3e-3, "epochs": 6},
    example_data="./my-images",
)
WORD_PRESET = Preset(
    train="spoken:train+background",
    test="spoken:test+background",
    settings={"seconds": 0.5, "epochs": 12, "batch_size": 128},
    ceiling={"seconds": 0.5, "epochs": 12, "batch_size": 128},
    example_data="./my-sounds",
)
FLOORS_SHOWN = {"pixels": "pixels", "random": "untrained", "dictionary": "dictionary"}
"""Floor -> its column."""
POOLED, WIDE = f"{DEFAULT_METHOD}, pooled", f"{DEFAULT_METHOD}, wide"
COLUMNS = (*FLOORS_SHOWN.values(), POOLED, WIDE, CEILING)


@dataclass(frozen=True, kw_only=True, repr=False)
class Demo(TabularResult):
    """Scores of a demo, and its report."""

    folder: Path
    report: Path
    table: dict[str, dict[str, Outcome]]
    """Task -> column -> score."""
    pretrained: Pretrained
    seconds: float

    def tables(self) -> list[ResultTable]:
        """Return the accuracies, and the health of the features."""
        rows = [
            [task, *(percent(row[column].value) for column in COLUMNS)]
            for task, row in self.table.items()
        ]
        return [
            ResultTable(
                title="linear-probe accuracy on held-out examples, %",
                columns=["task", *COLUMNS],
                rows=rows,
                lines=[
                    self.pretrained.health.line(),
                    f"report: {self.report}  ({self.seconds:.0f} s)",
                ],
            )
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield demo --json` prints them."""
        return {
            "report": str(self.report),
            "seconds": round(self.seconds, 1),
            "tasks": {
                task: {column: score.value for column, score in row.items()}
                for task, row in self.table.items()
            },
        }


@describe_arguments
def demo(
    *,
    out: str | Path = "demo",
    audio: bool = False,
    data: str | Path | None = None,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Demo:
    """Train the default method and a supervised ceiling on built-in data, and write a report.

    Args:
        out: folder for the two runs and `report.html`; must not hold other files.
        audio: train on spoken words with a background instead of photos.
        data: a folder of sounds in class folders, in place of the built-in words.
        seed: seed of both runs.
        on_note: called with each note on the data, as by `pretrain` and `probe`.
    """
    start_time, folder = time.monotonic(), Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: delete it, or choose another {option('out')}")
    preset = _preset(audio=audio, data=data)
    common: dict[str, Any] = {"quiet": quiet, "on_note": on_note}
    trained = pretrain(
        preset.train, out=folder / DEFAULT_METHOD, seed=seed, **common, **preset.settings
    )
    supervised = pretrain(
        preset.train, out=folder / CEILING, method=CEILING, seed=seed, **common, **preset.ceiling
    )
    if not (trained.finished and supervised.finished):
        raise KeyboardInterrupt
    table = _table(
        probe(trained.run, preset.test, **common),
        probe(supervised.run, preset.test, floors=False, **common),
    )
    run = RunFolder(path=trained.run)
    embed = ["widefield", "embed", str(trained.run), preset.test, "--out", "features.npz"]
    dataset = training_data(run, quiet=quiet)
    page = run_report(
        run,
        dataset,
        views=run_views(run.path, kept=dataset.bits),
        title="widefield demo",
        summary=summarize(table),
        table=AccuracyTable(
            rows=list(table),
            columns=COLUMNS,
            cells={
                (task, column): (s.value, *s.interval)
                for task, row in table.items()
                for column, s in row.items()
            },
            focus=WIDE,
        ),
        next_steps=(
            f"`widefield pretrain {preset.example_data} --out run` does the same on your data",
            f"`{shlex.join(embed)}` writes the features",
        ),
    )
    return Demo(
        folder=folder,
        report=page.write(folder / "report.html"),
        table=table,
        pretrained=trained,
        seconds=time.monotonic() - start_time,
    )


def _preset(*, audio: bool, data: str | Path | None) -> Preset:
    if data is None:
        return WORD_PRESET if audio else PHOTO_PRESET
    if not audio:
        raise ValueError(
            f"data is for the demo on sounds: add {option('audio', True)}, or leave data out"
        )
    return replace(WORD_PRESET, train=f"{data}:train+background", test=f"{data}:test+background")


def summarize(table: dict[str, dict[str, Outcome]]) -> str:
    """Return on which tasks the interval of wide features is above those of all floors.

    It says too on which others labels do not help either: the supervised network is not above the
    floors. `table` is task -> column of `COLUMNS` -> score.
    """
    floor = {
        task: max(row[column].interval[1] for column in FLOORS_SHOWN.values())
        for task, row in table.items()
    }
    learned, possible = (
        [task for task, row in table.items() if row[column].interval[0] > floor[task]]
        for column in (WIDE, CEILING)
    )
    others = [task for task in table if task not in learned]
    equal = [task for task in others if task not in possible]
    floors = "raw pixels, an untrained network and a dictionary of patches"
    if learned:
        text = f"Trained without labels, the encoder predicts {' and '.join(learned)} better than "
        text += f"{floors} do"
        text = f"{text}; not {' and '.join(others)}." if others else f"{text}."
    else:
        text = f"No task is predicted significantly better than by the best of {floors}."
    if equal:
        text += f" A supervised network does not predict {' and '.join(equal)} better either."
    return text


def _table(trained: ProbeReport, supervised: ProbeReport) -> dict[str, dict[str, Outcome]]:
    # Classes are of equal size, so the majority class is not a useful floor.
    return {
        task: {
            **{column: row.floor[floor] for floor, column in FLOORS_SHOWN.items()},
            POOLED: row.score,
            WIDE: row.wide or row.score,  # encoders without stages have pooled features alone
            CEILING: supervised.tasks[task].score,
        }
        for task, row in trained.tasks.items()
    }
