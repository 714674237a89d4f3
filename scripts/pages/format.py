"""How results are read and how numbers look on a page: the only place that rounds."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
T = {2: 12.706, 3: 4.303}
"""97.5 % quantile of Student's t, by the number of seeds."""


def read(name: str) -> Any:
    """Return the content of `benchmarks/results/NAME.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratio(value: float) -> str:
    """Return a ratio with two decimals, from 5 on with none."""
    return f"{value:.2f}" if value < 5 else f"{value:.0f}"


def percent(share: float) -> str:
    """Return a share in [0, 1] in percent, with one decimal."""
    return f"{100 * share:.1f}"


def mean_percent(shares: Sequence[float]) -> str:
    """Return the mean of shares in [0, 1] in percent, with one decimal."""
    return f"{statistics.mean([100 * share for share in shares]):.1f}"


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """Return the `mean` with the `half_width` of its 95 % t-interval over seeds."""
    half = T[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": statistics.mean(values), "half_width": half}


def points(summary: dict[str, float], *, signed: bool = False) -> str:
    """Return `mean` ± `half_width` of percentages, with one decimal each."""
    return f"{summary['mean']:{'+' if signed else ''}.1f} ± {summary['half_width']:.1f}"


def spread(values: Sequence[float], *, signed: bool = False) -> str:
    """Return the mean of percentages ± half the distance between the outer ones."""
    half = (max(values) - min(values)) / 2
    mean = f"{statistics.mean(values):{'+' if signed else ''}.1f}"
    return f"{mean} ± {half:.1f}" if len(values) > 1 else mean


def signed(values: Iterable[float]) -> str:
    """Return differences of percentages, each with one decimal."""
    return ", ".join(f"{value:+.1f}" for value in values)


def bounds(value: float, low: float, high: float) -> str:
    """Return a coefficient with its interval, two decimals each."""
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def whole(value: float) -> str:
    """Return a number without decimals, thousands apart."""
    return f"{value:,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a "|" inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
