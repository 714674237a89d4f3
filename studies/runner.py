"""Runs what a study lacks, in as many processes as the machine has cores, and keeps the numbers."""

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import widefield
from studies import registry
from studies.packs import Packs
from studies.study import TOGETHER, Measured, ScaleName, Study
from studies.trained import Trained, data_of, run_settings, train
from studies.verdict import by_seed, decide
from widefield.core.files import write_atomically
from widefield.core.hardware import choose_device, machine

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "studies"

Progress = Callable[[str, int, int], None]
"""Called with a study, the runs that are done and all of them."""


@dataclass(frozen=True)
class Task:
    """One arm and seed of a study, or all arms of a seed together."""

    study: str
    scale: ScaleName
    arm: str
    seed: int

    @property
    def key(self) -> str:
        """The name of its run in the results."""
        return f"{self.arm} | seed {self.seed}"


class Results:
    """The finished runs of a study at one scale, in a file that is rewritten after every run.

    Raises:
        ValueError: it holds a part of the runs, made with other versions than are installed.
    """

    def __init__(self, study: Study, scale: ScaleName, *, folder: Path = RESULTS) -> None:
        self.study, self.scale = study, scale
        self.path = folder / f"{study.id}.{scale}.json"
        self.content: dict[str, Any] = read(self.path)
        self.runs: dict[str, Measured] = self.content.get("runs", {})
        self._check_versions()

    @property
    def missing(self) -> list[Task]:
        """The runs that are not in the file, in the order of the work."""
        return [task for task in tasks(self.study, self.scale) if task.key not in self.runs]

    def add(self, key: str, run: Measured) -> None:
        """Keep a run, and decide the findings once every run is there."""
        here = machine(choose_device("auto"))
        first = self.content.setdefault("machine", here)
        self.runs[key] = run | ({} if first == here else {"machine": here})
        plan = self.study.scales[self.scale]
        self.content = {
            "study": self.study.id,
            "scale": self.scale,
            "command": f"python -m studies run {self.study.id} --scale {self.scale}",
            "machine": first,
            "versions": versions(),
            "sizes": {k: v for k, v in asdict(plan).items() if k not in ("settings", "of_method")},
            "criteria": {f.id: [f.criterion, f.at_least] for f in self.study.findings},
            "seconds": round(sum(r.get("seconds", 0) for r in self.runs.values()), 1),
            "findings": verdicts(self.study, self.scale, self.runs) if not self.missing else {},
            "runs": self.runs,
        }
        text = json.dumps(self.content, indent=1) + "\n"
        write_atomically(self.path, lambda draft: draft.write_text(text))

    def _check_versions(self) -> None:
        begun = self.content.get("versions", versions())
        if self.missing and begun != versions():
            then, now = (", ".join(f"{k} {v}" for k, v in x.items()) for x in (begun, versions()))
            raise ValueError(
                f"{self.study.id} was begun with {then} and this is {now}: "
                f"go on with those versions, or start anew with --anew"
            )


def versions() -> dict[str, str]:
    """Return the versions on which the numbers of a study depend."""
    return {"widefield": widefield.__version__, "torch": torch.__version__.split("+")[0]}


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file of results; nothing if it is not there.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except json.JSONDecodeError:
        raise ValueError(f"{path} is damaged: restore it, or begin again with --anew") from None


def verdicts(study: Study, scale: ScaleName, runs: dict[str, Measured]) -> dict[str, Any]:
    """Return the verdict on every finding of a study whose runs are all there."""
    if study.arms_at(scale) != list(study.arms):
        return {}
    seeds = list(by_seed(runs).values())
    return {finding.id: decide(finding, seeds).to_json() for finding in study.findings}


def tasks(study: Study, scale: ScaleName) -> list[Task]:
    """Return the runs of a study: seed by seed, so that an early end leaves whole seeds."""
    own = study.arms_at(scale) if study.measure else []
    arms = [*own, *([TOGETHER] if study.together else [])]
    return [Task(study.id, scale, arm, s) for s in study.scales[scale].seeds for arm in arms]


def perform(task: Task, packs: Packs, work: Path) -> Measured:
    """Train what a task needs, unless it is there, and measure it."""
    study = registry.study(task.study)
    began, scale = time.monotonic(), study.scales[task.scale]

    def get(arm: str) -> Trained:
        return train(study.arms[arm], scale, packs, task.seed, work)

    if task.arm == TOGETHER:
        assert study.together is not None
        run: Measured = {
            "measured": study.together({arm: get(arm) for arm in study.arms_at(task.scale)})
        }
    else:
        assert study.measure is not None
        trained = get(task.arm)
        run = {"measured": study.measure(trained), "cost": trained.cost}
    return run | {"seconds": round(time.monotonic() - began, 1)}


def run_study(
    study: Study,
    scale: ScaleName,
    *,
    packs: Packs,
    work: Path,
    processes: int,
    results: Path = RESULTS,
    progress: Progress,
) -> Results:
    """Run what the results of a study lack, `processes` runs at a time.

    Raises:
        ValueError: data are missing, or the results were begun with other versions.
    """
    kept = Results(study, scale, folder=results)
    total = len(tasks(study, scale))
    progress(study.id, total - len(kept.missing), total)
    for task, run in _performed(kept.missing, packs, work, processes):
        kept.add(task.key, run)
        progress(study.id, total - len(kept.missing), total)
    return kept


def _performed(
    todo: list[Task], packs: Packs, work: Path, processes: int
) -> Iterator[tuple[Task, Measured]]:
    """Yield each task with its run, as they end."""
    if processes == 1:
        for task in todo:
            yield task, perform(task, packs, work)
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // processes)
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        running: dict[Future[Measured], Task] = {
            pool.submit(perform, task, packs, work): task for task in todo
        }
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def draw(study: Study, scale: ScaleName, *, packs: Packs, work: Path, folder: Path) -> Path | None:
    """Draw the figure of a study from the encoders of its first seed, which `work` has."""
    if study.figure is None:
        return None
    sizes = study.scales[scale]
    trained = {
        name: train(study.arms[name], sizes, packs, sizes.seeds[0], work)
        for name in study.arms_at(scale)
    }
    figure, path = study.figure(trained), folder / f"{study.id}.{scale}.png"
    write_atomically(path, lambda draft: figure.savefig(draft, format="png", dpi=110))
    return path


def seconds_ahead(kept: Results, packs: Packs) -> float:
    """Return the processor time that the missing runs will take, from `widefield.plan`.

    A run that a finished one of the same arm has timed takes as long as that.
    """
    study, scale, total = kept.study, kept.scale, 0.0
    for arm, todo in _by_arm(kept.missing).items():
        done = [
            run["seconds"] for key, run in kept.runs.items() if key.startswith(f"{arm} | seed ")
        ]
        total += todo * (statistics.mean(done) if done else _planned(study, scale, arm, packs))
    return total


def _by_arm(missing: list[Task]) -> dict[str, int]:
    names = [task.arm for task in missing]
    return {arm: names.count(arm) for arm in dict.fromkeys(names)}


def _planned(study: Study, scale: ScaleName, arm: str, packs: Packs) -> float:
    if arm == TOGETHER or study.arms[arm].settings is None:
        return 0.0
    of_scale = study.scales[scale]
    settings = run_settings(study.arms[arm], of_scale, seed=0)
    data = data_of(study.arms[arm], of_scale, packs, seed=0)
    ahead = widefield.plan(data, **settings)
    return settings["epochs"] * ahead.epoch_seconds
