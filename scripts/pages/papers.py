"""What of the four papers is reproduced: docs/papers.md, from docs/papers.yaml."""

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pages.format import ROOT, table

STATUSES = ("reproduced", "appears at small scale", "does not appear", "not run")
"""What a row may say of itself, from most to least."""


@cache
def papers() -> list[dict[str, Any]]:
    """Return the papers in docs/papers.yaml, each with its rows."""
    return yaml.safe_load((ROOT / "docs" / "papers.yaml").read_text())


def rows() -> list[dict[str, Any]]:
    """Return the rows of all papers."""
    return [row for paper in papers() for row in paper["rows"]]


def status(row: dict[str, Any]) -> str:
    """Return the status of a row; one that says nothing is not run."""
    return row.get("status", STATUSES[-1])


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
        lines = [(row["id"], row["shows"], _commands(row), _status(row)) for row in paper["rows"]]
        sections.append(f"## {paper['paper']}\n\n{paper['title']}\n\n{table(head, lines)}")
    return "\n\n".join(sections)


def _commands(row: dict[str, Any]) -> str:
    return "<br>".join(f"`{command}`" for command in row.get("commands", []))


def _status(row: dict[str, Any]) -> str:
    """Return the status, with a link to the file that it rests on and what differs."""
    text = status(row)
    if "evidence" in row:
        text = (
            f"[{text}]({Path(os.path.relpath(ROOT / row['evidence'], ROOT / 'docs')).as_posix()})"
        )
    return f"{text}: {row['note']}" if "note" in row else text
