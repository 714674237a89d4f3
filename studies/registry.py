"""All studies by id, and how every row of docs/papers.yaml is reproduced."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from studies.study import Study
from widefield.core.names import check_name

MODULES = (
    "s_diet",
    "s_diet_steps",
    "tian",
    "feature_dropout",
    "feature_dropout_views",
    "wen_li",
    "equal_time",
    "dictionary",
    "rates",
    "photographs",
    "starts",
    "calibration",
    "closed",
)
"""Files of this package with a list `STUDIES`: one for each paper, and our own questions."""

PAPERS = Path(__file__).parents[1] / "docs" / "papers.yaml"


@cache
def studies() -> dict[str, Study]:
    """Return all studies by their ids."""
    found = [s for name in MODULES for s in import_module(f"studies.{name}").STUDIES]
    assert len({s.id for s in found}) == len(found), "two studies have one id"
    return {s.id: s for s in found}


def study(name: str) -> Study:
    """Return a study by its id, or by that of one of its findings.

    Raises:
        ValueError: there is none.
    """
    known = {f.id: s for s in studies().values() for f in s.findings} | studies()
    check_name("study", name, known, list_command="python -m studies list")
    return known[name]


@cache
def papers() -> list[dict[str, Any]]:
    """Return the papers in docs/papers.yaml, each with its rows."""
    papers: list[dict[str, Any]] = yaml.safe_load(PAPERS.read_text())
    return papers


def rows() -> list[dict[str, Any]]:
    """Return the rows of all papers."""
    return [row for paper in papers() for row in paper["rows"]]
