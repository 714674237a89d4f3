"""How results are read and how numbers look on a page: the only place that rounds."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str) -> Any:
    """Return the content of `benchmarks/results/NAME.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratio(value: float) -> str:
    """Return a ratio with two decimals, from 5 on with none."""
    return f"{value:.2f}" if value < 5 else f"{value:.0f}"


def percent(share: float) -> str:
    """Return a share in [0, 1] in percent, with one decimal."""
    return f"{100 * share:.1f}"


def whole(value: float) -> str:
    """Return a number without decimals, thousands apart."""
    return f"{value:,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a "|" inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
