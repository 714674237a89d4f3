"""What of the four papers is reproduced: docs/papers.md, from docs/papers.yaml."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from pages.format import ROOT, table
from studies.page import command, size_of, status, verdict
from studies.registry import papers, rows

DECIDED = (
    "reproduced",
    "reproduced, corrected",
    "holds at small scale",
    "direction only at small scale",
    "does not hold at small scale",
)
STATUSES = (*DECIDED, "cannot tell at small scale", "not run")
"""What a row may say of itself, from most to least."""

MADE = ("setting:", "data:", "algorithm:")
"""How rows begin that are no claim."""


def counts() -> str:
    """Return how many rows of each paper have each status, and how many are on real data."""
    lines = []
    for paper in papers():
        count = Counter(map(status, paper["rows"]))
        numbers = [str(count[name]) for name in STATUSES]
        lines.append((paper["paper"], str(len(paper["rows"])), *numbers))
    return f"{_kinds()}\n\n{table(('paper', 'rows', *STATUSES), lines)}"


def _kinds() -> str:
    """Return in two sentences what kinds of rows there are, and what is decided of the data."""
    real = Counter(status(row) for row in rows() if _on_real_data(row))
    found = ", ".join(f"{real[name]} {name}" for name in STATUSES if real[name])
    reproduced = [row for row in rows() if status(row) in DECIDED[:2]]
    made = sum(row["shows"].startswith(MADE) for row in reproduced)
    return (
        f"{real.total()} rows are tables or figures on real data: {found}. Of the "
        f"{len(reproduced)} rows that are reproduced, {made} are settings, data or algorithms, and "
        f"the others definitions, theorems and their simulations."
    )


def _on_real_data(row: dict[str, Any]) -> bool:
    """Return whether a row is a table or a figure of a paper that no simulation draws."""
    return bool(re.match(r"[A-Z]+-[TF]\d", row["id"])) and "lab" not in command(row).split()


def by_paper() -> str:
    """Return a section with one table for each paper."""
    head = ("id", "what it shows", "command", "status")
    sections = []
    for paper in papers():
        lines = [(row["id"], row["shows"], _command(row), _status(row)) for row in paper["rows"]]
        sections.append(f"## {paper['paper']}\n\n{paper['title']}\n\n{table(head, lines)}")
    return "\n\n".join(sections)


def _command(row: dict[str, Any]) -> str:
    return f"`{command(row)}`" if command(row) else ""


def _status(row: dict[str, Any]) -> str:
    """Return the status, with a link to the file that it rests on, its size, and what differs."""
    text, found = status(row), verdict(row)
    if found:
        why = f": {found['why']}" if found["why"] else ""
        text = f"[{text}](studies.md#{row['study'].lower()}) ({size_of(found)}){why}"
    if "evidence" in row:
        path = Path(os.path.relpath(ROOT / row["evidence"], ROOT / "docs")).as_posix()
        text = f"[{text}]({path})"
    between = "; " if found and found["why"] else ": "
    return f"{text}{between}{row['note']}" if "note" in row else text
