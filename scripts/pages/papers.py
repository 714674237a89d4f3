"""What of the four papers is reproduced: docs/papers.md, from docs/papers.yaml."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from pages.format import ROOT, table
from studies.page import command, status
from studies.registry import papers

DECIDED = ("reproduced", "holds at small scale", "does not hold at small scale")
STATUSES = (*DECIDED, "cannot tell at small scale", "not run")
"""What a row may say of itself, from most to least."""


def counts() -> str:
    """Return how many rows of each paper have each status."""
    lines = []
    for paper in papers():
        count = Counter(map(status, paper["rows"]))
        numbers = [str(count[name]) for name in STATUSES]
        lines.append((paper["paper"], str(len(paper["rows"])), *numbers))
    return table(("paper", "rows", *STATUSES), lines)


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
    """Return the status, with a link to the file that it rests on and what differs."""
    text = status(row)
    if "study" in row:
        text = f"[{text}](studies.md#{row['study'].lower()})"
    if "evidence" in row:
        path = Path(os.path.relpath(ROOT / row["evidence"], ROOT / "docs")).as_posix()
        text = f"[{text}]({path})"
    return f"{text}: {row['note']}" if "note" in row else text
