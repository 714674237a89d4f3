"""Runs what a study lacks, in as many processes as the machine has cores, and keeps the numbers."""

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import widefield
from studies import registry
from studies.packs import Packs
from studies.study import RATE, TOGETHER, Measured, ScaleName, Study
from studies.trained import Trained, run_settings, train, validated
from studies.verdict import at_gate, judge, judge_closed
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
    together: tuple[str, ...] = ()
    """The arms of `TOGETHER`."""

    @property
    def key(self) -> str:
        """The name of its run in the results."""
        return f"{self.arm} | seed {self.seed}"


class Results:
    """The finished runs of a study at one scale, in a file that is rewritten after every run.

    Raises:
        ValueError: it was judged by other criteria, or holds a part of the runs that other versions
            or sizes made.
    """

    def __init__(self, study: Study, scale: ScaleName, *, folder: Path = RESULTS) -> None:
        self.study, self.scale = study, scale
        self.path = folder / f"{study.id}.{scale}.json"
        self.content: dict[str, Any] = read(self.path)
        self.runs: dict[str, Measured] = self.content.get("runs", {})
        self._check_criteria()
        self._check_begun()

    @property
    def missing(self) -> list[Task]:
        """The runs that are not in the file, in the order of the work."""
        planned = tasks(self.study, self.scale, self.runs)
        return [task for task in planned if task.key not in self.runs]

    @property
    def next_tasks(self) -> list[Task]:
        """The missing runs whose learning rate is known: first those that rates are chosen by."""
        scale, missing = self.study.scales[self.scale], self.missing
        return [t for t in missing if t.seed in scale.seeds[: scale.rate_seeds]] or missing

    def add(self, key: str, run: Measured, made_on: dict[str, Any] | None = None) -> None:
        """Keep a run of this machine or another, and decide the findings once all are there."""
        here = made_on or machine(choose_device("auto"))
        first = self.content.setdefault("machine", here)
        self.runs[key] = run | ({} if first == here else {"machine": here})
        # In the order of the arms, not in that in which parallel runs ended: tables keep it.
        planned = [task.key for task in tasks(self.study, self.scale, self.runs)]
        self.runs = {key: self.runs[key] for key in planned if key in self.runs} | self.runs
        self.content = {
            "study": self.study.id,
            "scale": self.scale,
            "command": f"python -m studies run {self.study.id} --scale {self.scale}",
            "machine": first,
            "versions": versions(),
            "sizes": sizes(self.study, self.scale),
            "criteria": criteria(self.study),
            "seconds": round(sum(r.get("seconds", 0) for r in self.runs.values()), 1),
            "gate": None,
            "findings": {},
            "runs": self.runs,
        }
        if not self.missing and self.study.arms_at(self.scale) == list(self.study.arms):
            self.content |= judge(self.study, self.runs)
        write(self.path, self.content)

    def _check_criteria(self) -> None:
        kept, now = self.content.get("criteria", criteria(self.study)), criteria(self.study)
        for name in kept | now:
            if kept.get(name) != now.get(name):
                raise ValueError(
                    f"{self.path} has another criterion of {name}: judge its runs by the present "
                    f"one with `python -m studies judge {self.study.id}`, or run it with --anew"
                )

    def _check_begun(self) -> None:
        """Check what all runs of the file have in common, unless none is missing."""
        now = versions() | {k: v for k, v in sizes(self.study, self.scale).items() if k in FIXED}
        kept = self.content.get("versions", {}) | self.content.get("sizes", {})
        begun = {k: kept.get(k, "one for all seeds" if k == SUBSET else v) for k, v in now.items()}
        if self.missing and kept and begun != now:
            differ = [k for k in now if begun[k] != now[k]]
            then, this = (", ".join(f"{k} {x[k]}" for k in differ) for x in (begun, now))
            raise ValueError(
                f"{self.path} was begun with {then} and this is {this}: "
                f"go on as it was begun, or start anew with --anew"
            )


SUBSET = "images drawn"
FIXED = ("images", "epochs", "encoder", "probed", "validation", SUBSET)
"""Sizes that all runs of a file share; seeds may be added."""


def sizes(study: Study, scale: ScaleName) -> dict[str, Any]:
    """Return the sizes of a study's runs, as results keep them."""
    plan = asdict(study.scales[scale])
    kept = {k: v for k, v in plan.items() if k not in ("settings", "of_method")}
    return kept | {SUBSET: "by seed"}


def criteria(study: Study) -> dict[str, list[Any]]:
    """Return the criterion of each finding in words, and the size that it asks for."""
    return {f.id: [f.criterion, f.at_least] for f in study.findings}


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a file of results."""
    text = json.dumps(content, indent=1) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text))


def judged(study: Study, content: dict[str, Any]) -> dict[str, Any]:
    """Return results with gate, criteria and verdicts as the study has them now, from the runs."""
    found = judge_closed(content) if study.commit else judge(study, content["runs"])
    last = {"runs": content["runs"]}
    first = {k: v for k, v in content.items() if k not in ("gate", "findings", "runs")}
    return first | {"criteria": criteria(study)} | found | last


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


def tasks(study: Study, scale: ScaleName, runs: Mapping[str, Measured]) -> list[Task]:
    """Return the runs of a study: seed by seed, so that an early end leaves whole seeds.

    Seeds after `rate_seeds` have every arm at its best learning rate in `runs`; before these have
    it, at any.
    """
    plan, every = study.scales[scale], study.arms_at(scale)
    best = {name: entry.arm for name, entry in at_gate(study, runs).items()}
    at_best = [best.get(arm, arm) for arm in every if RATE not in arm]
    planned = []
    for k, seed in enumerate(plan.seeds):
        arms = every if plan.rate_seeds is None or k < plan.rate_seeds else at_best
        if study.measure:
            planned += [Task(study.id, scale, arm, seed) for arm in arms]
        if study.together:
            planned.append(Task(study.id, scale, TOGETHER, seed, tuple(arms)))
    return planned


def perform(task: Task, packs: Packs, work: Path) -> Measured:
    """Train what a task needs, unless it is there, and measure it."""
    study = registry.study(task.study)
    began, scale = time.monotonic(), study.scales[task.scale]

    def get(arm: str) -> Trained:
        return train(study.arms[arm], scale, packs, task.seed, work)

    if task.arm == TOGETHER:
        assert study.together is not None
        run: Measured = {"measured": study.together({arm: get(arm) for arm in task.together})}
    else:
        assert study.measure is not None
        trained = get(task.arm)
        run = {"measured": study.measure(trained), "cost": trained.cost}
        if study.gate is not None:
            run["validation"] = (study.validate or validated)(trained)
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
    total = len(tasks(study, scale, kept.runs))
    progress(study.id, total - len(kept.missing), total)
    while kept.missing:
        for key, run, made_on in _measured_alike(kept):
            kept.add(key, run, made_on)
            progress(study.id, total - len(kept.missing), total)
        for task, run in _performed(kept.next_tasks, packs, work, processes):
            kept.add(task.key, run)
            progress(study.id, total - len(kept.missing), total)
    return kept


def _measured_alike(kept: Results) -> list[tuple[str, Measured, dict[str, Any]]]:
    """Return the next runs that another study has, with their machine.

    Their arm, sizes and measures are the same, on validation images too, which only studies with a
    gate measure. So they would be the same runs.
    """
    study, scale, found = kept.study, kept.scale, []
    next_tasks = [task for task in kept.next_tasks if task.arm in study.arms]
    for other in registry.studies().values():
        if (
            other.id == study.id
            or other.scales.get(scale) != study.scales[scale]
            or (other.measure, other.validate) != (study.measure, study.validate)
            or (other.gate is None) != (study.gate is None)
        ):
            continue
        content = read(kept.path.with_name(f"{other.id}.{scale}.json"))
        # Those of other versions or sizes, which may be there too, are other runs.
        begun = content.get("versions", {}) | content.get("sizes", {})
        now = versions() | sizes(other, scale)
        if not content or any(begun.get(name) != now[name] for name in (*versions(), *FIXED)):
            continue
        for task in next_tasks:
            run = content["runs"].get(task.key)
            if run is not None and other.arms.get(task.arm) == study.arms[task.arm]:
                found.append((task.key, run, run.get("machine", content["machine"])))
    return found


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
    sizes, arms = study.scales[scale], list(study.arms)
    trained = {
        name: train(study.arms[name], sizes, packs, sizes.seeds[0], work)
        # Each arm is followed by those that differ in the learning rate alone.
        for name in sorted(study.arms_at(scale), key=lambda x: arms.index(x.partition(RATE)[0]))
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
    of_arm = study.arms[arm]
    settings = run_settings(of_arm, of_scale, seed=0)
    made = of_arm.source
    data = packs.spec(of_arm.data, "train") if made is None else made(packs, of_scale, 0)
    ahead = widefield.plan(data, **settings)
    return settings["epochs"] * ahead.epoch_seconds
