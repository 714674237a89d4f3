"""Whether a finding holds: the criterion of a study and the numbers of its seeds -> a verdict.

    holds            the interval excludes everything below the size asked
    does not hold    it lies below the size asked
    direction only   it lies above 0 and includes the size asked
    cannot tell      otherwise, or an arm of the finding fails the gate

The interval is the t-interval over the seeds, at the level that Holm's procedure leaves a finding
among those of its study that can be decided.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, Literal

from scipy.stats import t

from studies.study import RATE, Finding, Gate, Measured, SeedRuns, Study
from widefield.core.names import count_text

VerdictName = Literal["holds", "direction only", "does not hold", "cannot tell"]
ALPHA = 0.05


@dataclass(frozen=True)
class Estimate:
    """What the seeds measure of a finding: the mean and the half-width of its 95 % interval."""

    mean: float | None
    half_width: float | None
    """None for one seed."""
    seeds: int
    why: str = ""
    """Why it decides nothing; empty where it can."""

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        assert self.half_width is not None
        return self.half_width / float(t.ppf(1 - ALPHA / 2, self.seeds - 1))

    def p_value(self, size: float) -> float:
        """Return the two-sided p-value of the mean against a size."""
        assert self.mean is not None
        if self.error == 0:
            return float(self.mean == size)
        return 2 * float(t.sf(abs(self.mean - size) / self.error, self.seeds - 1))

    def interval(self, level: float) -> tuple[float, float]:
        """Return the t-interval that misses the mean with probability `level`."""
        assert self.mean is not None
        half = self.error * float(t.ppf(1 - level / 2, self.seeds - 1))
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Verdict:
    """A verdict beside the size asked, the mean and both intervals.

    `half_width` is that of the 95 % interval, and [low, high] the interval of Holm's procedure.
    """

    verdict: VerdictName
    asked: float
    mean: float | None
    half_width: float | None
    low: float | None
    high: float | None
    seeds: int
    why: str = ""


@dataclass(frozen=True)
class Entry:
    """An arm at the gate of its study; it passes if there is no `why`."""

    arm: str
    """It, at the learning rate that validation images chose."""
    rates: int
    above: float | None
    """Points above its untrained network."""
    on: Literal["validation", "test"]
    why: str


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the half-width of its 95 % t-interval; None for one value.

    Example:
        >>> interval([1.0, 2.0, 3.0])
        (2.0, 2.48...)
    """
    n = len(values)
    if n < 2:
        return statistics.mean(values), None
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / math.sqrt(n)
    return statistics.mean(values), half


def by_seed(runs: Mapping[str, Measured], part: str = "measured") -> Mapping[int, SeedRuns]:
    """Return the measures of each seed by arm, from runs named `ARM | seed N`."""
    seeds: dict[int, dict[str, Measured]] = {}
    for key, run in runs.items():
        arm, _, seed = key.rpartition(" | seed ")
        if part in run:
            seeds.setdefault(int(seed), {})[arm] = run[part]
    return seeds


def at_gate(study: Study, runs: Mapping[str, Measured]) -> dict[str, Entry]:
    """Return every trained arm at the gate of the study; nothing if it has none."""
    names = [name for name, arm in study.arms.items() if arm.settings is not None]
    return {
        name: _entry(study, study.gate, name, runs)
        for name in names
        if study.gate is not None and RATE not in name
    }


def _entry(study: Study, gate: Gate, name: str, runs: Mapping[str, Measured]) -> Entry:
    floor = study.untrained(name)
    tested, validated = (list(by_seed(runs, p).values()) for p in ("measured", "validation"))
    tried = [
        arm for arm in study.arms if arm.partition(RATE)[0] == name and tested and arm in tested[0]
    ]
    if not tried:
        return Entry(name, 0, None, "test", "not scored alone")
    chosen = (
        validated and all(floor in seed for seed in validated) and set(tried) <= validated[0].keys()
    )
    seeds = validated if chosen else tested
    # Later seeds may have the best rate alone.
    of_all_rates = [seed for seed in seeds if set(tried) <= seed.keys()]
    above = {arm: _above(gate, arm, floor, of_all_rates) for arm in tried}
    best = max(tried, key=lambda arm: -math.inf if above[arm] is None else above[arm])
    points = _above(gate, best, floor, [seed for seed in seeds if best in seed])
    why = ""
    if len(tried) < gate.rates:
        why = f"trained at {count_text(len(tried), 'learning rate')}, not {gate.rates}"
    elif not chosen:
        why = "not scored on validation images"
    elif points is None or points < gate.points:
        why = f"less than {gate.points:g} points above its untrained network"
    rounded = None if points is None else round(points, 2)
    return Entry(best, len(tried), rounded, "validation" if chosen else "test", why)


def _stopped(entries: Mapping[str, Entry]) -> list[str]:
    """Return for each reason why arms fail the gate which these are, with their points."""
    arms: dict[str, list[str]] = {}
    for name, entry in entries.items():
        points = "" if entry.above is None else f" ({entry.above:+.1f})"
        arms.setdefault(entry.why, []).append(f"{name}{points}")
    return [f"{' and '.join(names)}: {why}" for why, names in arms.items() if why]


def _above(gate: Gate, arm: str, floor: str, seeds: Sequence[SeedRuns]) -> float | None:
    """Return by how much an arm exceeds its floor in the measure in which it does most."""
    if any(floor not in seed for seed in seeds):
        return None
    means = [
        statistics.mean(seed[arm][m] - seed[floor][m] for seed in seeds)
        for m in gate.measures
        if all(m in seed[arm] and m in seed[floor] for seed in seeds)
    ]
    return max(means, default=None)


def estimate(
    finding: Finding, seeds: Sequence[SeedRuns], gate: Mapping[str, Entry] | None = None
) -> Estimate:
    """Return what the runs of every seed say of a finding, each arm at its best rate."""
    gate = gate or {}
    at_best = [
        {**runs, **{name: runs[e.arm] for name, e in gate.items() if e.arm in runs}}
        for runs in seeds
    ]
    reasons = _stopped({name: gate[name] for name in finding.trained})
    try:
        mean, half = interval([finding.value(runs) for runs in at_best])
        reasons += [] if all(map(finding.valid, at_best)) else ["a judge is at chance"]
        reasons += ["one seed"] if half is None else []
    except KeyError as lacking:
        mean = half = None
        reasons.append(f"{lacking.args[0]} was not measured")
    return Estimate(mean, half, len(seeds), "; ".join(dict.fromkeys(reasons)))


def levels(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the level of each finding's interval by Holm's step-down procedure.

    From the first that is not rejected on, all have its level.

    Example:
        >>> levels({"a": 0.2, "b": 0.01, "c": 0.3})
        {'b': 0.016..., 'a': 0.025, 'c': 0.025}
    """
    found: dict[str, float] = {}
    level, stopped = 0.0, False
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=itemgetter(1))):
        if not stopped:
            level = ALPHA / (len(p_values) - rank)
            stopped = p > level
        found[name] = level
    return found


def decide(asked: Mapping[str, float], estimates: Mapping[str, Estimate]) -> dict[str, Verdict]:
    """Return the verdicts on the findings of one study, from the sizes that they ask for."""
    decidable = {name: e for name, e in estimates.items() if not e.why}
    of = levels({name: e.p_value(asked[name]) for name, e in decidable.items()})
    return {name: _verdict(asked[name], e, of.get(name)) for name, e in estimates.items()}


def _verdict(asked: float, e: Estimate, level: float | None) -> Verdict:
    name: VerdictName = "cannot tell"
    low = high = None
    why = e.why
    if level is not None:
        low, high = e.interval(level)
        if low >= asked:
            name = "holds"
        elif high < asked:
            name = "does not hold"
        elif low > 0:
            name = "direction only"
        else:
            why = "the interval is too wide"
    numbers = (None if x is None else round(x, 4) for x in (e.mean, e.half_width, low, high))
    return Verdict(name, asked, *numbers, e.seeds, why)


def judge(study: Study, runs: Mapping[str, Measured]) -> dict[str, Any]:
    """Return the gate and the verdicts of a study as its results keep them, from its runs."""
    entries, seeds = at_gate(study, runs), list(by_seed(runs).values())
    found = decide(
        {f.id: f.at_least for f in study.findings},
        {f.id: estimate(f, seeds, entries) for f in study.findings},
    )
    gate = None
    if study.gate is not None:
        arms = {name: asdict(entry) for name, entry in entries.items()}
        gate = {**asdict(study.gate), "measures": list(study.gate.measures), "arms": arms}
    return {"gate": gate, "findings": {name: asdict(v) for name, v in found.items()}}


def judge_closed(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of a closed study, whose values are in its results alone."""
    found = {
        name: Estimate(old["mean"], old["half_width"], old["seeds"])
        for name, old in kept["findings"].items()
    }
    asked = {name: float(size) for name, (_, size) in kept["criteria"].items()}
    verdicts = decide(asked, found)
    return {"gate": None, "findings": {name: asdict(v) for name, v in verdicts.items()}}
